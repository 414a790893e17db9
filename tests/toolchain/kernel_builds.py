"""Kernels for tests: C and assembly through LLVM's compiler, C for the host, and kernels made of given bytes."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

from llvm_tools import assembled, compiled, kernel_source, linked, run_tool

from emu.dispatch import Device

FOLDER = Path(tempfile.gettempdir()) / "gfx950-test-kernels"

HEADER = """
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned u32; typedef unsigned long long u64;
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
#ifdef __AMDGCN__
#define GLOBAL __attribute__((address_space(1)))
#define LDS __attribute__((address_space(3)))
#define SHARED(type, name, count) static LDS type name[count] __attribute__((loader_uninitialized))
#define KERNEL __attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(1, 1024), visibility("protected"))) void
#define ITEM __builtin_amdgcn_workitem_id_x()
#define GROUP __builtin_amdgcn_workgroup_id_x()
#define ITEMS __builtin_amdgcn_workgroup_size_x()
#define BARRIER() do { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); __builtin_amdgcn_s_barrier(); \
                       __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); } while (0)
#endif
"""

# Every operation rounds by itself, also of the short floats, and no instruction of the host's that flushes subnormals.
HOST_OPTIONS = (
    "-mcpu=baseline",
    "-ffp-contract=off",
    *("-Xclang", "-ffloat16-excess-precision=none"),
    *("-Xclang", "-fbfloat16-excess-precision=none"),
    "-fno-sanitize=undefined",
)


@functools.cache
def compile_c(source: str, level: str = "-O2") -> bytes:
    """The code object of C kernels; HEADER stands in front of the source."""
    return _kept(f"c|{level}|{HEADER}{source}", lambda: linked(compiled(HEADER + source, level)))


@functools.cache
def assemble_kernel(body: str, directives: str = "", name: str = "k") -> bytes:
    """The code object of one assembly kernel without arguments' metadata: it takes its kernarg block as bytes."""
    needed = {"next_free_vgpr": 128, "next_free_sgpr": 100, "accum_offset": 128, "user_sgpr_kernarg_segment_ptr": 1}
    source = kernel_source(directives, body, name, **needed)
    return _kept(source, lambda: linked(assembled(source)))


def _kept(key: str, make: Callable[[], bytes]) -> bytes:
    """What `make` made for this key, in this run or an earlier one."""
    FOLDER.mkdir(exist_ok=True)
    target = FOLDER / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.hsaco"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            whole = Path(folder, "k.hsaco")
            whole.write_bytes(make())
            whole.replace(target)
    return target.read_bytes()


@functools.cache
def compile_for_host(source: str, level: str = "-O2") -> ctypes.CDLL:
    """C functions for this machine, as a loaded shared library."""
    FOLDER.mkdir(exist_ok=True)
    key = hashlib.sha256(f"host|{level}|{HOST_OPTIONS}|{HEADER}{source}".encode()).hexdigest()[:24]
    target = FOLDER / f"{key}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder, "k.so")
            options = (level, *HOST_OPTIONS, "-shared", "-fPIC", "-x", "c", "-")
            run_tool("cc", *options, "-o", str(whole), source=HEADER + source)
            whole.replace(target)
    return ctypes.CDLL(str(target))


def with_code(template: bytes, room: bytes, code: bytes) -> bytes:
    """A code object whose instructions `room`, which stand in it once, are replaced from their start on."""
    assert template.count(room) == 1
    assert len(code) <= len(room)
    return template.replace(room, code + room[len(code) :])


def kernel_of(data: bytes, name: str = "k", device: Device | None = None):
    """The kernel of a code object, on a device of its own unless one is given."""
    return (device or Device()).load(data)[name]
