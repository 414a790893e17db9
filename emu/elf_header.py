"""Whether a file is a code object that gfx950 can run, by its ELF header."""

from __future__ import annotations

import struct

from elftools.elf.enums import ENUM_E_MACHINE

from emu.errors import CodeObjectError

ELF_MAGIC = b"\x7fELF"
EM_AMDGPU = 224
ELFOSABI_AMDGPU_HSA = 64
ET_REL, ET_DYN = 1, 3
SHT_NULL, SHT_NOBITS = 0, 8
ABI_VERSIONS = {2: 4, 3: 5, 4: 6}  # EI_ABIVERSION to code object version

# e_flags[7:0] by LLVM's numbering; only for naming what somebody compiled for instead of gfx950.
MACHINES = {
    0x2C: "gfx900", 0x2F: "gfx906", 0x30: "gfx908", 0x33: "gfx1010", 0x36: "gfx1030", 0x3F: "gfx90a", 0x41: "gfx1100",
    0x43: "gfx1150", 0x44: "gfx1103", 0x46: "gfx1101", 0x47: "gfx1102", 0x48: "gfx1200", 0x49: "gfx1250",
    0x4A: "gfx1151", 0x4C: "gfx942", 0x4E: "gfx1201", 0x4F: "gfx950", 0x5F: "gfx9-4-generic",
}  # fmt: skip
RUNNABLE = ("gfx950", "gfx9-4-generic")

COMPILE_FOR_GFX950 = "compile with -target amdgcn-amd-amdhsa -mcpu=gfx950 (HIP: --offload-arch=gfx950)"


def elf_type(data: bytes) -> int:
    """The type of an ELF file: ET_REL for one that is to be linked, ET_DYN for one that is."""
    return int.from_bytes(data[16:18], "little")


def damaged(detail: str) -> CodeObjectError:
    """The error for a file that contradicts itself."""
    return CodeObjectError(
        f"the code object is damaged: {detail}",
        expected="a complete AMDGPU ELF file",
        advice="compile or copy it again; a partial download or a text-mode copy does this",
    )


def _not_elf(data: bytes) -> CodeObjectError:
    if data.startswith((b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB")):
        what, advice = (
            "an offload bundle, not a code object",
            "extract the gfx950 entry with clang-offload-bundler --unbundle",
        )
    elif data.startswith((b"BC\xc0\xde", b"; ModuleID")):
        what, advice = "LLVM bitcode or IR, not a code object", COMPILE_FOR_GFX950
    elif not data:
        what, advice = "empty", "check the path"
    else:
        what, advice = f"not an ELF file: it starts with {data[:4].hex(' ')}", COMPILE_FOR_GFX950
    return CodeObjectError(f"the data is {what}", expected="an ELF file (7f 45 4c 46 ...)", advice=advice)


def check_header(data: bytes) -> tuple[str, int]:
    """The target and code object version of an ELF header that gfx950 can run; CodeObjectError otherwise."""
    if not data.startswith(ELF_MAGIC):
        raise _not_elf(data)
    if len(data) < 64:
        raise damaged(f"its header has 64 bytes and the file only {len(data)}")
    kind, machine = struct.unpack_from("<HH", data, 16)
    if data[5] != 1 or machine != EM_AMDGPU:
        raise CodeObjectError(
            f"the ELF file is for {_machine_name(data)}, not for an AMD GPU",
            expected=f"e_machine {EM_AMDGPU} (EM_AMDGPU), little-endian",
            advice=f"this looks like host code; {COMPILE_FOR_GFX950} and pass the device object",
        )
    if data[4] != 2 or data[7] != ELFOSABI_AMDGPU_HSA or kind not in (ET_REL, ET_DYN):
        raise CodeObjectError(
            f"the AMDGPU ELF file has class {data[4]}, OS/ABI {data[7]} and type {kind}, which is no HSA code object",
            expected=f"class 2 (64 bit), OS/ABI {ELFOSABI_AMDGPU_HSA} (AMDGPU_HSA), type 1 (relocatable) or 3 (shared)",
            advice=COMPILE_FOR_GFX950,
        )
    version = ABI_VERSIONS.get(data[8])
    if version is None:
        raise CodeObjectError(
            f"the code object has ABI version {data[8]}, which is code object V{data[8] + 2}",
            expected="code object V4, V5 or V6 (ABI version 2, 3 or 4)",
            advice="compile with -mcode-object-version=5",
        )
    _check_extents(data)
    return _check_target(struct.unpack_from("<I", data, 48)[0]), version


def _machine_name(data: bytes) -> str:
    order = ">" if data[5] == 2 else "<"
    (machine,) = struct.unpack_from(f"{order}H", data, 18)
    names = [name for name, value in ENUM_E_MACHINE.items() if value == machine]
    return f"{names[0].removeprefix('EM_')} (e_machine {machine})" if names else f"unknown e_machine {machine}"


def _check_target(flags: int) -> str:
    name = MACHINES.get(flags & 0xFF, f"an unknown GPU (machine number {flags & 0xFF:#x})")
    if name not in RUNNABLE:
        raise CodeObjectError(
            f"the code object is for {name} (e_flags {flags:#x})",
            expected="gfx950 (e_flags[7:0] = 0x4f) or gfx9-4-generic (0x5f)",
            advice=COMPILE_FOR_GFX950,
        )
    return name


def _check_extents(data: bytes) -> None:
    """Raises CodeObjectError when a header table or what it points at runs past the end of the file."""
    program_offset, section_offset = struct.unpack_from("<QQ", data, 32)
    program_size, programs, section_size, sections = struct.unpack_from("<HHHH", data, 54)
    tables = [
        ("program header", program_offset, program_size, programs, 56, (8, 32)),
        ("section header", section_offset, section_size, sections, 64, (24, 32)),
    ]
    for name, start, size, count, known, (at, length) in tables:
        if count and (size != known or start + size * count > len(data)):
            raise damaged(
                f"{count} {name}s of {size} bytes at offset {start:#x} do not fit a file of {len(data)} bytes"
            )
        for index in range(count):
            row = start + index * size
            (offset,), (extent,) = (
                struct.unpack_from("<Q", data, row + at),
                struct.unpack_from("<Q", data, row + length),
            )
            kind = struct.unpack_from("<I", data, row + 4)[0]
            empty = name == "section header" and kind in (SHT_NULL, SHT_NOBITS)
            if not empty and offset + extent > len(data):
                raise damaged(
                    f"{name} {index} points at {offset:#x}..{offset + extent:#x} of a file of {len(data)} bytes"
                )
