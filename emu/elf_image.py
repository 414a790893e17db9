"""The bytes of a code object at their addresses: segments or sections laid out, symbols found, relocations applied."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from emu.elf_header import damaged
from emu.errors import CodeObjectError

SHN_UNDEF, SHN_ABS, SHN_COMMON, SHN_AMDGPU_LDS = 0, 0xFFF1, 0xFFF2, 0xFF00
PT_LOAD, PF_EXECUTE = "PT_LOAD", 1
PAGE = 4096
LARGEST_IMAGE = 1 << 30


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


def _blank(size: int) -> npt.NDArray[np.uint8]:
    if size > LARGEST_IMAGE:
        raise damaged(f"it asks for {size} bytes of memory, more than {LARGEST_IMAGE}")
    return np.zeros(size, np.uint8)


class Image:
    """A code object's image under construction; subclasses place the pieces and say where symbols are."""

    def __init__(self, elf: ELFFile, base: int) -> None:
        self.elf = elf
        self.base = base
        self.bytes = self._place()
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
        if offset < 0 or size < 0 or offset + size > len(self.bytes):
            raise damaged(f"{size} bytes at {address:#x} are outside its image of {len(self.bytes)} bytes")
        return self.bytes[offset : offset + size].tobytes()

    def write(self, address: int, value: bytes) -> None:
        """Overwrites bytes of the image, as `read` reads them."""
        self.read(address, len(value))
        offset = address - self.base
        self.bytes[offset : offset + len(value)] = np.frombuffer(value, np.uint8)

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


class Linked(Image):
    """A shared object: the loader's view, PT_LOAD segments at their virtual addresses above the base."""

    def _segments(self) -> list[Any]:
        return [s for s in self.elf.iter_segments() if s["p_type"] == PT_LOAD]

    def _place(self) -> npt.NDArray[np.uint8]:
        segments = self._segments()
        if not segments:
            raise damaged("a shared object without any loadable segment")
        image = _blank(max(s["p_vaddr"] + s["p_memsz"] for s in segments))
        for segment in segments:
            data, start = segment.data(), segment["p_vaddr"]
            if len(data) > segment["p_memsz"]:
                raise damaged(f"the segment at {start:#x} has more bytes in the file than in memory")
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


class Relocatable(Image):
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
                raise damaged(f"section {section.name!r} asks for an alignment of {align} bytes")
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


def _apply(image: Image, relocation: Any, symbols: Any, place: int, slot: Callable[[int], int] | None) -> None:
    kind, addend = relocation["r_info_type"], relocation["r_addend"] if relocation.is_RELA() else None
    if kind == NONE:
        return
    if kind == RELATIVE64 and addend is not None:
        image.write(place, struct.pack("<Q", (image.base + addend) % (1 << 64)))
        return
    if kind not in RELOCATIONS or addend is None or (kind in GOT_RELATIVE and slot is None):
        raise damaged(f"relocation type {kind} at {place:#x} is not one that code objects use")
    symbol = symbols.get_symbol(relocation["r_info_sym"])
    target = image.symbol_address(symbol)
    if kind in GOT_RELATIVE and slot is not None:
        target = slot(target)
    _, size, value = RELOCATIONS[kind]
    image.write(place, (value(target, addend, place) % (1 << 8 * size)).to_bytes(size, "little"))
