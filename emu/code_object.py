"""Reads AMDGPU code objects: what LLVM emits (relocatable) and what HIP loads (linked), versions 4, 5 and 6.

The ELF container is read by pyelftools, the kernels' metadata by msgpack; the kernel descriptor is decoded here.
"""

from __future__ import annotations

import difflib
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_E_MACHINE

from emu.errors import CodeObjectError
from gfx950.evidence import Evidence, rule

rule(
    "code_object.descriptor",
    Evidence.spec,
    "LLVM AMDGPUUsage, 'Kernel Descriptor'; every field checked against LLVM's assembler",
    "The bits of the kernel descriptor set the registers, modes and preloaded values of a launch.",
)

EM_AMDGPU = 224
ELFOSABI_AMDGPU_HSA = 64
NT_AMDGPU_METADATA = 32
ET_REL, ET_DYN = 1, 3
SHN_UNDEF, SHN_ABS, SHN_COMMON, SHN_AMDGPU_LDS = 0, 0xFFF1, 0xFFF2, 0xFF00
SHT_NULL, SHT_NOBITS = 0, 8
PT_LOAD, PF_EXECUTE = "PT_LOAD", 1
ABI_VERSIONS = {2: 4, 3: 5, 4: 6}  # EI_ABIVERSION to code object version
DESCRIPTOR_BYTES = 64
ENTRY_ALIGNMENT = 256
PAGE = 4096
LARGEST_IMAGE = 1 << 30

# e_flags[7:0] by LLVM's numbering; only for naming what somebody compiled for instead of gfx950.
MACHINES = {
    0x2C: "gfx900", 0x2F: "gfx906", 0x30: "gfx908", 0x33: "gfx1010", 0x36: "gfx1030", 0x3F: "gfx90a", 0x41: "gfx1100",
    0x43: "gfx1150", 0x44: "gfx1103", 0x46: "gfx1101", 0x47: "gfx1102", 0x48: "gfx1200", 0x49: "gfx1250",
    0x4A: "gfx1151", 0x4C: "gfx942", 0x4E: "gfx1201", 0x4F: "gfx950", 0x5F: "gfx9-4-generic",
}  # fmt: skip
RUNNABLE = ("gfx950", "gfx9-4-generic")

COMPILE_FOR_GFX950 = "compile with -target amdgcn-amd-amdhsa -mcpu=gfx950 (HIP: --offload-arch=gfx950)"


@dataclass(frozen=True)
class KernelDescriptor:
    """The 64-byte kernel descriptor, decoded. Sizes in bytes; `vgprs` and `sgprs` are allocated counts.

    vgprs counts the unified file: v registers below `accum_offset`, a registers from there on.
    float_round_* are 0 nearest even, 1 up, 2 down, 3 to zero; float_denorm_* bit 0 keeps inputs, bit 1 keeps outputs.
    exceptions is the MODE.EXCP_EN field: bit 0 invalid, 1 denormal input, 2 division by zero, 3 overflow, 4 underflow,
    5 inexact, 6 integer division by zero, 7 address watch, 8 memory violation.
    workitem_id: 0 packs x into VGPR0, 1 x and y, 2 x, y and z. kernarg_preload_* are counted in dwords.
    """

    group_segment: int
    private_segment: int
    kernarg_size: int
    entry_offset: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    vgprs: int
    accum_offset: int
    tg_split: bool
    sgprs: int
    float_round_32: int
    float_round_16_64: int
    float_denorm_32: int
    float_denorm_16_64: int
    dx10_clamp: bool
    ieee: bool
    fp16_ovfl: bool
    exceptions: int
    enable_private_segment: bool
    user_sgpr_count: int
    enable_workgroup_id_x: bool
    enable_workgroup_id_y: bool
    enable_workgroup_id_z: bool
    enable_workgroup_info: bool
    workitem_id: int
    private_segment_buffer: bool
    dispatch_ptr: bool
    queue_ptr: bool
    kernarg_segment_ptr: bool
    dispatch_id: bool
    flat_scratch_init: bool
    private_segment_size: bool
    wave32: bool
    uses_dynamic_stack: bool
    kernarg_preload_length: int
    kernarg_preload_offset: int


@dataclass(frozen=True)
class Argument:
    """One kernel argument of the metadata. offset and size in bytes of the kernarg block.

    value_kind: `global_buffer`, `by_value`, `hidden_block_count_x`, ... name, type and address_space may be empty.
    """

    offset: int
    size: int
    value_kind: str
    name: str = ""
    address_space: str = ""
    type: str = ""

    @property
    def hidden(self) -> bool:
        """Whether the launcher fills it in rather than the caller."""
        return self.value_kind.startswith("hidden_")


@dataclass(frozen=True)
class Kernel:
    """One kernel. entry and descriptor_address are virtual addresses; kernarg_size is in bytes, the metadata's first.

    disagreements: where the metadata and the descriptor contradict each other, one sentence each; the descriptor is
    what the hardware sees. reqd_workgroup_size is None when any size will do. has_metadata: False for a bare
    descriptor, whose arguments are unknown.
    """

    name: str
    entry: int
    descriptor_address: int
    descriptor: KernelDescriptor
    code_object_version: int
    kernarg_size: int
    arguments: tuple[Argument, ...] = ()
    wavefront_size: int = 64
    max_flat_workgroup_size: int = 1024
    reqd_workgroup_size: tuple[int, int, int] | None = None
    uniform_workgroup_size: bool = False
    has_metadata: bool = True
    disagreements: tuple[str, ...] = ()


@dataclass(frozen=True)
class Symbol:
    """One named symbol. address: virtual, or the plain value. kind: 'function', 'object', 'absolute' or 'other'."""

    name: str
    address: int
    size: int
    kind: str


@dataclass(frozen=True)
class Code:
    """One run of executable bytes at its virtual address."""

    name: str
    address: int
    data: bytes


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
    target, version = _check_header(data)
    try:
        return _read(data, base, target, version)
    except CodeObjectError:
        raise
    except Exception as problem:  # whatever the ELF and msgpack readers stumble over in damaged input
        raise _damaged(f"{type(problem).__name__}: {problem}") from problem


def _contents(source: bytes | bytearray | memoryview | str | PathLike[str]) -> bytes:
    """The bytes of a source, which may be a pipe or a device: no more of them than a code object can have."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if not isinstance(source, str | PathLike):
        raise TypeError(f"a code object is given by its bytes or its path, not by a {type(source).__name__}")
    if not str(source):
        raise FileNotFoundError("the path of the code object is empty")
    try:
        with Path(source).open("rb") as file:
            data = bytearray()
            while len(data) <= LARGEST_IMAGE and (part := file.read(1 << 20)):
                data += part
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


def _read(data: bytes, base: int, target: str, version: int) -> CodeObject:
    elf = ELFFile(BytesIO(data))
    layout = _Relocatable(elf, base) if elf.header["e_type"] == "ET_REL" else _Linked(elf, base)
    metadata = _metadata(elf)
    symbols = layout.named_symbols()
    kernels = {kernel.name: kernel for kernel in _kernels(layout, symbols, metadata, version)}
    return CodeObject(target, version, base, layout.image, tuple(layout.code()), symbols, kernels, metadata, data)


# --- header ---------------------------------------------------------------------------------------------------------


def _damaged(detail: str) -> CodeObjectError:
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


def _check_header(data: bytes) -> tuple[str, int]:
    """The target and code object version of an ELF header that gfx950 can run; CodeObjectError otherwise."""
    if not data.startswith(b"\x7fELF"):
        raise _not_elf(data)
    if len(data) < 64:
        raise _damaged(f"its header has 64 bytes and the file only {len(data)}")
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
            raise _damaged(
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
                raise _damaged(
                    f"{name} {index} points at {offset:#x}..{offset + extent:#x} of a file of {len(data)} bytes"
                )


# --- layout ---------------------------------------------------------------------------------------------------------


def _blank(size: int) -> npt.NDArray[np.uint8]:
    if size > LARGEST_IMAGE:
        raise _damaged(f"it asks for {size} bytes of memory, more than {LARGEST_IMAGE}")
    return np.zeros(size, np.uint8)


class _Layout:
    """The image of a code object under construction; subclasses place the pieces and say where symbols are."""

    def __init__(self, elf: ELFFile, base: int) -> None:
        self.elf = elf
        self.base = base
        self.image = self._place()
        self._relocate()

    def _place(self) -> npt.NDArray[np.uint8]:
        raise NotImplementedError

    def _relocate(self) -> None:
        raise NotImplementedError

    def symbol_address(self, symbol: Any) -> int:
        """The virtual address (or absolute value) of an ELF symbol of this object."""
        raise NotImplementedError

    def tables(self) -> Iterable[Any]:
        """The symbol tables, the fullest last."""
        return [s for s in self.elf.iter_sections() if s["sh_type"] in ("SHT_DYNSYM", "SHT_SYMTAB")]

    def code(self) -> list[Code]:
        """The executable runs, ascending."""
        raise NotImplementedError

    def _run(self, name: str, address: int, size: int) -> Code:
        return Code(name, address, self.read(address, size))

    def read(self, address: int, size: int) -> bytes:
        """Bytes of the image at a virtual address; CodeObjectError when they are not all in it."""
        offset = address - self.base
        if offset < 0 or size < 0 or offset + size > len(self.image):
            raise _damaged(f"{size} bytes at {address:#x} are outside its image of {len(self.image)} bytes")
        return self.image[offset : offset + size].tobytes()

    def write(self, address: int, value: bytes) -> None:
        """Overwrites bytes of the image, as `read` reads them."""
        self.read(address, len(value))
        offset = address - self.base
        self.image[offset : offset + len(value)] = np.frombuffer(value, np.uint8)

    def named_symbols(self) -> dict[str, Symbol]:
        """All defined symbols with a name, by name; of equal names a global one wins."""
        found: dict[str, Symbol] = {}
        for table in self.tables():
            rows = [symbol for symbol in table.iter_symbols() if symbol.name and _defined(symbol)]
            for symbol in sorted(rows, key=lambda row: row["st_info"]["bind"] != "STB_LOCAL"):
                kind = _kind(symbol)
                found[symbol.name] = Symbol(symbol.name, self.symbol_address(symbol), symbol["st_size"], kind)
        return found


def _section_index(symbol: Any) -> int:
    index = symbol["st_shndx"]
    special = {"SHN_UNDEF": SHN_UNDEF, "SHN_ABS": SHN_ABS, "SHN_COMMON": SHN_COMMON}
    return index if isinstance(index, int) else special.get(index, 0xFFFF)


def _defined(symbol: Any) -> bool:
    return symbol["st_info"]["type"] not in ("STT_SECTION", "STT_FILE") and _section_index(symbol) not in (
        SHN_UNDEF,
        SHN_COMMON,
        SHN_AMDGPU_LDS,
    )


def _kind(symbol: Any) -> str:
    if _section_index(symbol) == SHN_ABS:
        return "absolute"
    return {"STT_FUNC": "function", "STT_OBJECT": "object"}.get(symbol["st_info"]["type"], "other")


def _missing(symbol: Any) -> CodeObjectError:
    return CodeObjectError(
        f"the code object needs the symbol {symbol.name!r}, which it does not define",
        expected="an object that is complete in itself",
        advice="compile with -nogpulib and no external symbols, or link all its objects together",
    )


class _Linked(_Layout):
    """A shared object: the loader's view, PT_LOAD segments at their virtual addresses above the base."""

    def _segments(self) -> list[Any]:
        return [s for s in self.elf.iter_segments() if s["p_type"] == PT_LOAD]

    def _place(self) -> npt.NDArray[np.uint8]:
        segments = self._segments()
        if not segments:
            raise _damaged("a shared object without any loadable segment")
        image = _blank(max(s["p_vaddr"] + s["p_memsz"] for s in segments))
        for segment in segments:
            data, start = segment.data(), segment["p_vaddr"]
            if len(data) > segment["p_memsz"]:
                raise _damaged(f"the segment at {start:#x} has more bytes in the file than in memory")
            image[start : start + len(data)] = np.frombuffer(data, np.uint8)
        return image

    def symbol_address(self, symbol: Any) -> int:
        index, value = _section_index(symbol), int(symbol["st_value"])
        if index == SHN_UNDEF and symbol["st_info"]["bind"] != "STB_WEAK":
            raise _missing(symbol)
        return value if index in (SHN_ABS, SHN_UNDEF) else self.base + value

    def tables(self) -> Iterable[Any]:
        return list(super().tables()) or self._dynamics()

    def _dynamics(self) -> list[Any]:
        return [s for s in self.elf.iter_segments() if s["p_type"] == "PT_DYNAMIC"]

    def code(self) -> list[Code]:
        segments = [s for s in self._segments() if s["p_flags"] & PF_EXECUTE]
        runs = [self._run(".text", self.base + s["p_vaddr"], s["p_memsz"]) for s in segments]
        return sorted(runs, key=lambda run: run.address)

    def _relocate(self) -> None:
        for dynamic in self._dynamics():
            for table in dynamic.get_relocation_tables().values():
                for relocation in table.iter_relocations():
                    _apply(self, relocation, dynamic, self.base + relocation["r_offset"], None)


class _Relocatable(_Layout):
    """An object file: its allocated sections one after the other, those with code side by side, as a linker lays them,
    then a global offset table if one is needed."""

    def _place(self) -> npt.NDArray[np.uint8]:
        self.places: dict[int, int] = {}
        self.slots: dict[int, int] = {}  # global offset table: symbol address to slot address
        end = 0
        kept = [(i, s) for i, s in enumerate(self.elf.iter_sections()) if s["sh_flags"] & SH_FLAGS.SHF_ALLOC]
        kept.sort(key=lambda item: not item[1]["sh_flags"] & SH_FLAGS.SHF_EXECINSTR)
        for index, section in kept:
            align = max(1, section["sh_addralign"])
            if align > PAGE or align & (align - 1):
                raise _damaged(f"section {section.name!r} asks for an alignment of {align} bytes")
            start = -(-end // align) * align
            self.places[index] = self.base + start
            end = start + section["sh_size"]
        self.table = self.base + -(-end // 8) * 8
        image = _blank(self.table - self.base + 8 * self._slot_count())
        for index, section in kept:
            start = self.places[index] - self.base
            if section["sh_type"] != "SHT_NOBITS":
                data = section.data()
                image[start : start + len(data)] = np.frombuffer(data, np.uint8)
        return image

    def _relocations(self) -> Iterable[tuple[int, Any, Any]]:
        """(address of the relocated section, relocation, symbol table), for sections that are in the image."""
        section: Any
        for section in self.elf.iter_sections():
            if section["sh_type"] in ("SHT_RELA", "SHT_REL") and section["sh_info"] in self.places:
                symbols = self.elf.get_section(section["sh_link"])
                for relocation in section.iter_relocations():
                    yield self.places[section["sh_info"]], relocation, symbols

    def _slot_count(self) -> int:
        wanted = {r["r_info_sym"] for _, r, _ in self._relocations() if r["r_info_type"] in GOT_RELATIVE}
        return len(wanted)

    def slot(self, target: int) -> int:
        """Address of the global offset table entry that holds the address `target`."""
        if target not in self.slots:
            self.slots[target] = self.table + 8 * len(self.slots)
            self.write(self.slots[target], struct.pack("<Q", target))
        return self.slots[target]

    def symbol_address(self, symbol: Any) -> int:
        index, value = _section_index(symbol), int(symbol["st_value"])
        if index == SHN_ABS:
            return value
        if index in self.places:
            return self.places[index] + value
        if index == SHN_UNDEF and symbol["st_info"]["bind"] == "STB_WEAK":
            return 0
        if index in (SHN_UNDEF, SHN_COMMON, SHN_AMDGPU_LDS):
            raise _missing(symbol)
        return value  # a symbol of a section that is not loaded, e.g. debug information

    def code(self) -> list[Code]:
        runs = []
        for index, address in self.places.items():
            section = self.elf.get_section(index)
            if section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR:
                runs.append(self._run(section.name, address, section["sh_size"]))
        return sorted(runs, key=lambda run: run.address)

    def _relocate(self) -> None:
        for place, relocation, symbols in self._relocations():
            _apply(self, relocation, symbols, place + relocation["r_offset"], self.slot)


# --- relocations ----------------------------------------------------------------------------------------------------

RELATIVE64, NONE = 13, 0
# Type: (name, bytes, value of symbol S, addend A, place P), as LLVM's AMDGPUUsage defines them.
RELOCATIONS: dict[int, tuple[str, int, Callable[[int, int, int], int]]] = {
    1: ("R_AMDGPU_ABS32_LO", 4, lambda s, a, p: s + a),
    2: ("R_AMDGPU_ABS32_HI", 4, lambda s, a, p: (s + a) >> 32),
    3: ("R_AMDGPU_ABS64", 8, lambda s, a, p: s + a),
    4: ("R_AMDGPU_REL32", 4, lambda s, a, p: s + a - p),
    5: ("R_AMDGPU_REL64", 8, lambda s, a, p: s + a - p),
    6: ("R_AMDGPU_ABS32", 4, lambda s, a, p: s + a),
    7: ("R_AMDGPU_GOTPCREL", 4, lambda s, a, p: s + a - p),
    8: ("R_AMDGPU_GOTPCREL32_LO", 4, lambda s, a, p: s + a - p),
    9: ("R_AMDGPU_GOTPCREL32_HI", 4, lambda s, a, p: (s + a - p) >> 32),
    10: ("R_AMDGPU_REL32_LO", 4, lambda s, a, p: s + a - p),
    11: ("R_AMDGPU_REL32_HI", 4, lambda s, a, p: (s + a - p) >> 32),
    14: ("R_AMDGPU_REL16", 2, lambda s, a, p: (s + a - p - 4) // 4),
}
GOT_RELATIVE = (7, 8, 9)


def _apply(layout: _Layout, relocation: Any, symbols: Any, place: int, slot: Callable[[int], int] | None) -> None:
    kind, addend = relocation["r_info_type"], relocation["r_addend"] if relocation.is_RELA() else None
    if kind == NONE:
        return
    if kind == RELATIVE64 and addend is not None:
        layout.write(place, struct.pack("<Q", (layout.base + addend) % (1 << 64)))
        return
    if kind not in RELOCATIONS or addend is None or (kind in GOT_RELATIVE and slot is None):
        raise _damaged(f"relocation type {kind} at {place:#x} is not one that code objects use")
    symbol = symbols.get_symbol(relocation["r_info_sym"])
    target = layout.symbol_address(symbol)
    if kind in GOT_RELATIVE and slot is not None:
        target = slot(target)
    _, size, value = RELOCATIONS[kind]
    layout.write(place, (value(target, addend, place) % (1 << 8 * size)).to_bytes(size, "little"))


# --- metadata and kernels -------------------------------------------------------------------------------------------


def _metadata(elf: ELFFile) -> dict[str, Any]:
    """The AMDGPU metadata note, decoded; empty when the object has none."""
    holders: list[Any] = [s for s in elf.iter_sections() if s["sh_type"] == "SHT_NOTE"]
    holders = holders or [s for s in elf.iter_segments() if s["p_type"] == "PT_NOTE"]
    for holder in holders:
        for note in holder.iter_notes():
            if note["n_name"] == "AMDGPU" and note["n_type"] == NT_AMDGPU_METADATA:
                decoded = msgpack.unpackb(note["n_descdata"], strict_map_key=False)
                if not isinstance(decoded, dict):
                    raise _damaged(f"its metadata is a {type(decoded).__name__}, not a map")
                return decoded
    return {}


def _bits(word: int, low: int, count: int = 1) -> int:
    return (word >> low) & ((1 << count) - 1)


def decode_descriptor(data: bytes) -> KernelDescriptor:
    """Decodes the 64 bytes of a kernel descriptor. Raises ValueError for another length."""
    if len(data) != DESCRIPTOR_BYTES:
        raise ValueError(f"a kernel descriptor has {DESCRIPTOR_BYTES} bytes, not {len(data)}")
    group, private, kernarg, entry = struct.unpack_from("<III4xq", data)
    rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIIHH", data, 44)
    return KernelDescriptor(
        group_segment=group,
        private_segment=private,
        kernarg_size=kernarg,
        entry_offset=entry,
        rsrc1=rsrc1,
        rsrc2=rsrc2,
        rsrc3=rsrc3,
        properties=properties,
        vgprs=8 * (_bits(rsrc1, 0, 6) + 1),
        accum_offset=4 * (_bits(rsrc3, 0, 6) + 1),
        tg_split=bool(_bits(rsrc3, 16)),
        sgprs=16 * (_bits(rsrc1, 6, 4) // 2 + 1),
        float_round_32=_bits(rsrc1, 12, 2),
        float_round_16_64=_bits(rsrc1, 14, 2),
        float_denorm_32=_bits(rsrc1, 16, 2),
        float_denorm_16_64=_bits(rsrc1, 18, 2),
        dx10_clamp=bool(_bits(rsrc1, 21)),
        ieee=bool(_bits(rsrc1, 23)),
        fp16_ovfl=bool(_bits(rsrc1, 26)),
        exceptions=_bits(rsrc2, 24, 7) | _bits(rsrc2, 13, 2) << 7,
        enable_private_segment=bool(_bits(rsrc2, 0)),
        user_sgpr_count=_bits(rsrc2, 1, 5),
        enable_workgroup_id_x=bool(_bits(rsrc2, 7)),
        enable_workgroup_id_y=bool(_bits(rsrc2, 8)),
        enable_workgroup_id_z=bool(_bits(rsrc2, 9)),
        enable_workgroup_info=bool(_bits(rsrc2, 10)),
        workitem_id=_bits(rsrc2, 11, 2),
        private_segment_buffer=bool(_bits(properties, 0)),
        dispatch_ptr=bool(_bits(properties, 1)),
        queue_ptr=bool(_bits(properties, 2)),
        kernarg_segment_ptr=bool(_bits(properties, 3)),
        dispatch_id=bool(_bits(properties, 4)),
        flat_scratch_init=bool(_bits(properties, 5)),
        private_segment_size=bool(_bits(properties, 6)),
        wave32=bool(_bits(properties, 10)),
        uses_dynamic_stack=bool(_bits(properties, 11)),
        kernarg_preload_length=_bits(preload, 0, 7),
        kernarg_preload_offset=_bits(preload, 7, 9),
    )


def _kernels(layout: _Layout, symbols: dict[str, Symbol], metadata: dict[str, Any], version: int) -> Iterable[Kernel]:
    """The kernels the metadata lists, then those that have only a descriptor symbol."""
    listed = metadata.get("amdhsa.kernels", [])
    code = layout.code()
    known = {_text(row, ".symbol"): row for row in listed}
    for name, row in known.items():
        yield _kernel(layout, symbols, code, name, row, version)
    for name, symbol in symbols.items():
        if name.endswith(".kd") and name not in known and symbol.size == DESCRIPTOR_BYTES:
            yield _kernel(layout, symbols, code, name, None, version)


def _kernel(
    layout: _Layout,
    symbols: dict[str, Symbol],
    code: list[Code],
    symbol_name: str,
    row: dict[str, Any] | None,
    version: int,
) -> Kernel:
    facts = row or {}
    name = _text(facts, ".name", symbol_name.removesuffix(".kd"))
    if symbol_name not in symbols:
        raise CodeObjectError(
            f"the metadata lists kernel {name!r}, but its descriptor symbol {symbol_name!r} does not exist",
            expected=f"a 64-byte object symbol {symbol_name!r}",
            advice="in assembly, write an .amdhsa_kernel block for it; do not strip the symbols",
            kernel=name,
        )
    address = symbols[symbol_name].address
    descriptor = decode_descriptor(layout.read(address, DESCRIPTOR_BYTES))
    if descriptor.wave32 or facts.get(".wavefront_size", 64) != 64:
        raise _wave32(name)
    required = facts.get(".reqd_workgroup_size")
    return Kernel(
        name=name,
        entry=_entry(name, address + descriptor.entry_offset, code),
        descriptor_address=address,
        descriptor=descriptor,
        code_object_version=version,
        kernarg_size=_count(facts, ".kernarg_segment_size", 0) or descriptor.kernarg_size,
        arguments=tuple(_argument(a) for a in facts.get(".args", ())),
        max_flat_workgroup_size=_count(facts, ".max_flat_workgroup_size", 1024),
        reqd_workgroup_size=(int(required[0]), int(required[1]), int(required[2])) if required else None,
        uniform_workgroup_size=bool(facts.get(".uniform_work_group_size", 0)),
        has_metadata=row is not None,
        disagreements=tuple(_disagreements(descriptor, facts)),
    )


def _wave32(name: str) -> CodeObjectError:
    return CodeObjectError(
        f"kernel {name!r} is compiled for wave32",
        expected="wave64, the only wave size of gfx950",
        advice="compile for gfx950 without -mwavefrontsize32",
        kernel=name,
    )


def _entry(name: str, address: int, code: list[Code]) -> int:
    if not any(run.address <= address < run.address + len(run.data) for run in code):
        raise CodeObjectError(
            f"kernel {name!r} starts at {address:#x}, which is not in executable code",
            expected="an entry inside .text",
            advice="the descriptor is damaged or was not relocated",
            kernel=name,
        )
    if address % ENTRY_ALIGNMENT:
        raise CodeObjectError(
            f"kernel {name!r} starts at {address:#x}, which is not a multiple of {ENTRY_ALIGNMENT}",
            expected="an aligned entry: the hardware drops the low 8 bits",
            advice="in assembly, write .p2align 8 before the kernel's label",
            kernel=name,
        )
    return address


def _count(facts: dict[str, Any], key: str, default: int) -> int:
    value = facts.get(key, default)
    if not isinstance(value, int) or value < 0:
        raise _damaged(f"its metadata has {key} = {value!r}, which is no size")
    return value


def _argument(row: dict[str, Any]) -> Argument:
    return Argument(
        offset=_count(row, ".offset", 0),
        size=_count(row, ".size", 0),
        value_kind=_text(row, ".value_kind"),
        name=_text(row, ".name", ""),
        address_space=_text(row, ".address_space", ""),
        type=_text(row, ".type_name", ""),
    )


def _text(row: dict[str, Any], key: str, default: str | None = None) -> str:
    value = row.get(key, default)
    if not isinstance(value, str):
        raise _damaged(f"its metadata has {key} = {value!r}, which is no name")
    return value


def _disagreements(descriptor: KernelDescriptor, facts: dict[str, Any]) -> Iterable[str]:
    pairs = [
        (".group_segment_fixed_size", descriptor.group_segment, "bytes of LDS"),
        (".private_segment_fixed_size", descriptor.private_segment, "bytes of scratch a lane"),
        (".kernarg_segment_size", descriptor.kernarg_size, "bytes of kernel arguments"),
    ]
    for key, low, what in pairs:
        high = facts.get(key, low)
        if high != low and not (key == ".kernarg_segment_size" and low == 0):
            yield f"the metadata says {high} {what} ({key}), the descriptor {low}"
    limits = [
        (".vgpr_count", descriptor.vgprs),
        (".agpr_count", descriptor.vgprs - descriptor.accum_offset),
        (".sgpr_count", descriptor.sgprs),
    ]
    for key, limit in limits:
        if facts.get(key, 0) > max(0, limit):
            yield f"the metadata says {facts[key]} registers ({key}), the descriptor allocates {limit}"
    used = [(a[".offset"] + a[".size"], a) for a in facts.get(".args", ()) if ".offset" in a and ".size" in a]
    size = facts.get(".kernarg_segment_size", 0)
    for end, row in used:
        if end > size:
            yield f"the argument at offset {row['.offset']} ends at {end}, past the {size} bytes of kernel arguments"
