"""Reads AMDGPU code objects: what LLVM emits (relocatable) and what HIP loads (linked), versions 4, 5 and 6.

The ELF container is read by pyelftools, the kernels' metadata by msgpack; see emu.elf_image and emu.kernel_metadata.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from elftools.elf.elffile import ELFFile

from emu.elf_header import ELF_MAGIC, check_header, damaged
from emu.elf_image import LARGEST_IMAGE, PAGE, Code, Linked, Relocatable, Symbol
from emu.errors import CodeObjectError
from emu.kernel_metadata import Kernel, read_kernels, read_metadata


@dataclass(frozen=True, eq=False)
class CodeObject:
    """A code object laid out at `base`.

    image: uint8, the bytes of [base, base + len(image)), relocated for that base. code: the executable runs in it.
    symbols and kernels by name. metadata: the decoded AMDGPU note (empty when there is none). version: 4, 5 or 6.
    """

    target: str
    version: int
    base: int
    image: npt.NDArray[np.uint8]
    code: tuple[Code, ...]
    symbols: dict[str, Symbol]
    kernels: dict[str, Kernel]
    metadata: dict[str, Any]
    source: bytes = field(repr=False)

    def kernel(self, name: str | None = None) -> Kernel:
        """The kernel of that name, or the only one. Raises CodeObjectError that lists the names there are."""
        names = ", ".join(sorted(self.kernels)) or "none"
        if name is None and len(self.kernels) == 1:
            return next(iter(self.kernels.values()))
        if name is None:
            raise CodeObjectError(f"the code object has {len(self.kernels)} kernels, so name one: {names}")
        if isinstance(name, str) and name in self.kernels:
            return self.kernels[name]
        near = difflib.get_close_matches(str(name), self.kernels, 1)
        raise CodeObjectError(
            f"no kernel {name!r} in the code object",
            expected=f"one of: {names}",
            advice=f"did you mean {near[0]!r}?" if near else "C++ kernels have mangled names",
        )

    def code_of(self, kernel: Kernel) -> Code:
        """All code that a kernel may reach as one run, from the first executable byte to the last.

        It may call functions that stand in other sections than it does itself.
        """
        first = next(c for c in self.code if c.address <= kernel.entry < c.address + len(c.data))
        if len(self.code) == 1:
            return first
        start, end = self.code[0].address, max(c.address + len(c.data) for c in self.code)
        return Code(first.name, start, self.image[start - self.base : end - self.base].tobytes())

    def at(self, base: int) -> CodeObject:
        """The same code object laid out at another base, a multiple of 4096."""
        return self if base == self.base else load(self.source, base)


def load(source: bytes | bytearray | memoryview | str | PathLike[str], base: int = 0) -> CodeObject:
    """Reads a code object from its bytes or its path and lays it out at virtual address `base` (a multiple of 4096).

    Linked objects keep their segments' places; relocatable ones get their sections laid out in order, a global offset
    table if they need one, and their relocations applied.
    Raises CodeObjectError for anything that is not a gfx950 code object, OSError for an unreadable path and TypeError
    for a source that is neither bytes nor a path.
    """
    data = _contents(source)
    if base % PAGE or base < 0:
        raise ValueError(f"base {base:#x} is not a multiple of {PAGE}; addresses in code objects are aligned to pages")
    target, version = check_header(data)
    try:
        return _read(data, base, target, version)
    except CodeObjectError:
        raise
    except Exception as problem:  # whatever the ELF and msgpack readers stumble over in damaged input
        raise damaged(f"{type(problem).__name__}: {problem}") from problem


def _contents(source: bytes | bytearray | memoryview | str | PathLike[str]) -> bytes:
    """The bytes of a source, which may be a pipe or a device: no more of them than a code object can have."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if not isinstance(source, str | PathLike):
        what = f"a code object is given by its bytes or its path, not by a {type(source).__name__}"
        raise TypeError(f"{what}: {_advice(source)}")
    if not str(source):
        raise FileNotFoundError("the path of the code object is empty")
    try:
        with Path(source).open("rb") as file:
            data = bytearray()
            while len(data) <= LARGEST_IMAGE and (part := file.read(1 << 20)):
                data += part
                if not data.startswith(ELF_MAGIC):  # no need to read all of it to say so
                    break
    except OSError as problem:
        problem.filename = problem.filename or str(source)
        raise
    if len(data) > LARGEST_IMAGE:
        raise CodeObjectError(
            f"{source} has more than {LARGEST_IMAGE} bytes",
            expected="a code object, which is an ELF file of some kilobytes to megabytes",
            advice="check the path",
        )
    return bytes(data)


def _advice(source: object) -> str:
    """What to do with something that is no code object but may become one."""
    if isinstance(getattr(source, "object", None), bytes):
        return "pass its .object"
    return "`compile_kernels([trace(kernel)]).object` is that of a function under @kernel"


def _read(data: bytes, base: int, target: str, version: int) -> CodeObject:
    elf = ELFFile(BytesIO(data))
    image = Relocatable(elf, base) if elf.header["e_type"] == "ET_REL" else Linked(elf, base)
    metadata = read_metadata(elf)
    symbols = image.named_symbols()
    kernels = {kernel.name: kernel for kernel in read_kernels(image, symbols, metadata, version)}
    return CodeObject(target, version, base, image.bytes, tuple(image.code()), symbols, kernels, metadata, data)
