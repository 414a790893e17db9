"""Kernels that are a description only, for tests of launches."""

import dataclasses

from llvm_tools import assembled, kernel_source

from emu.code_object import load
from emu.geometry import Geometry
from emu.kernel_descriptor import decode_descriptor
from emu.kernel_metadata import Argument, Kernel

BARE = decode_descriptor(bytes(64))
ONE = Geometry.of_blocks(1, 64)


def assembled_kernel(directives: str) -> Kernel:
    return load(assembled(kernel_source(directives)), 0x10000).kernel()


def kernel(*arguments: Argument, size: int = 0, **changes) -> Kernel:
    descriptor = dataclasses.replace(BARE, **{k: v for k, v in changes.items() if hasattr(BARE, k)})
    rest = {k: v for k, v in changes.items() if not hasattr(BARE, k)}
    return Kernel("k", 0x1000, 0x40, descriptor, 5, size, tuple(arguments), **rest)
