"""Kernels for tests: C and assembly through LLVM's compiler, C for the host, and kernels made of given bytes."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from emu.dispatch import Device

ZIG = (sys.executable, "-m", "ziglang")
TARGET = ("-target", "amdgcn-amd-amdhsa", "-mcpu=gfx950")
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


def _run(command: tuple[str, ...], source: str) -> None:
    run = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@functools.cache
def compile_c(source: str, level: str = "-O2") -> bytes:
    """The code object of C kernels; HEADER stands in front of the source."""
    return _build(HEADER + source, "c", (level, "-nogpulib", "-ffp-contract=off"))


@functools.cache
def assemble_kernel(body: str, directives: str = "", name: str = "k") -> bytes:
    """The code object of one assembly kernel without arguments' metadata: it takes its kernarg block as bytes."""
    needed = {"next_free_vgpr": 128, "next_free_sgpr": 100, "accum_offset": 128, "user_sgpr_kernarg_segment_ptr": 1}
    lines = [f".amdhsa_{key} {value}" for key, value in needed.items() if f".amdhsa_{key}" not in directives]
    source = f"""
.text
.globl {name}
.p2align 8
.type {name},@function
{name}:
{body}
.rodata
.p2align 6
.amdhsa_kernel {name}
{chr(10).join(lines)}
{directives}
.end_amdhsa_kernel
"""
    return _build(source, "assembler", ())


def _build(source: str, language: str, options: tuple[str, ...]) -> bytes:
    FOLDER.mkdir(exist_ok=True)
    key = hashlib.sha256(f"{language}|{options}|{source}".encode()).hexdigest()[:24]
    target = FOLDER / f"{key}.hsaco"
    if not target.exists():
        with tempfile.TemporaryDirectory() as folder:
            part, whole = Path(folder, "k.o"), Path(folder, "k.hsaco")
            _run((*ZIG, "clang", *TARGET, *options, "-x", language, "-c", "-", "-o", str(part)), source)
            _run((*ZIG, "ld.lld", "-shared", str(part), "-o", str(whole)), "")
            whole.replace(target)
    return target.read_bytes()


@functools.cache
def compile_for_host(source: str, level: str = "-O2") -> ctypes.CDLL:
    """C functions for this machine, as a loaded shared library."""
    FOLDER.mkdir(exist_ok=True)
    key = hashlib.sha256(f"host|{level}|{source}".encode()).hexdigest()[:24]
    target = FOLDER / f"{key}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder, "k.so")
            options = (level, "-ffp-contract=off", "-shared", "-fPIC", "-fno-sanitize=undefined", "-x", "c", "-")
            _run((*ZIG, "cc", *options, "-o", str(whole)), HEADER + source)
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
