"""A code object with more code: a segment of its own behind the others, everything else where it was."""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any

from elftools.elf.elffile import ELFFile

from emu.elf_image import PAGE, PF_EXECUTE, PT_LOAD
from emu.errors import CodeObjectError

PROGRAM_HEADER, SECTION_HEADER = "<IIQQQQQQ", "<IIQQQQIIQQ"
SECTION_HEADER_BYTES = 64
READABLE_CODE = 4 | PF_EXECUTE
PROGBITS, ALLOCATED_CODE = 1, 2 | 4
SECTION_NAME = b".text.instrument\0"
NOT_NEEDED = "PT_GNU_STACK"  # says that a stack is not executable: no device has such a stack
SHOFF, SHNUM = 0x28, 0x3C  # of the ELF header


class GrowingObject:
    """The bytes of a linked code object while they are changed. address: where the new segment begins."""

    def __init__(self, source: bytes) -> None:
        self.elf: Any = ELFFile(BytesIO(source))
        self.bytes = bytearray(source)
        self.segments: list[Any] = list(self.elf.iter_segments())
        ends = [s["p_vaddr"] + s["p_memsz"] for s in self.segments if s["p_type"] == PT_LOAD]
        self.address = -(-max(ends) // PAGE) * PAGE

    def write(self, address: int, data: bytes) -> None:
        """Overwrites bytes at a virtual address, which the file must hold."""
        for s in self.segments:
            if (
                s["p_type"] == PT_LOAD
                and s["p_vaddr"] <= address
                and address + len(data) <= s["p_vaddr"] + s["p_filesz"]
            ):
                at = s["p_offset"] + address - s["p_vaddr"]
                self.bytes[at : at + len(data)] = data
                return
        raise CodeObjectError(f"the code object's file does not hold the bytes at {address:#x}")

    def append(self, code: bytes) -> bytes:
        """The finished file with `code` at `self.address`, in a segment and a section of its own.

        The loader finds the file's end by its section headers, so these move behind the new code.
        """
        entry = self._entry()
        self.bytes += bytes(-len(self.bytes) % PAGE)
        offset = len(self.bytes)
        size = len(code)
        header = struct.pack(PROGRAM_HEADER, 1, READABLE_CODE, offset, self.address, self.address, size, size, PAGE)
        self.bytes[entry : entry + len(header)] = header
        self.bytes += code
        if self.elf.header["e_shnum"]:
            self._append_sections(offset, size)
        return bytes(self.bytes)

    def _entry(self) -> int:
        """The offset of the program header that becomes the new segment's: it must stand behind the other segments."""
        kinds = [s["p_type"] for s in self.segments]
        last = max(n for n, kind in enumerate(kinds) if kind == PT_LOAD)
        if NOT_NEEDED not in kinds[last:]:
            raise CodeObjectError(
                "the code object has no program header to spare",
                expected=f"a {NOT_NEEDED} header, which ld.lld writes, behind the loaded segments",
                advice="link it again without -z nognustack; a code object can be instrumented once only",
            )
        index = last + kinds[last:].index(NOT_NEEDED)
        return int(self.elf.header["e_phoff"]) + index * int(self.elf.header["e_phentsize"])

    def _append_sections(self, offset: int, size: int) -> None:
        header = self.elf.header
        count, names = int(header["e_shnum"]), int(header["e_shstrndx"])
        start = int(header["e_shoff"])
        table = bytearray(self.bytes[start : start + count * SECTION_HEADER_BYTES])
        strings = self.elf.get_section(names).data()
        strings_at = len(self.bytes)
        self.bytes += strings + SECTION_NAME
        moved = list(struct.unpack_from(SECTION_HEADER, table, names * SECTION_HEADER_BYTES))
        moved[4:6] = strings_at, len(strings) + len(SECTION_NAME)
        struct.pack_into(SECTION_HEADER, table, names * SECTION_HEADER_BYTES, *moved)
        table += struct.pack(
            SECTION_HEADER, len(strings), PROGBITS, ALLOCATED_CODE, self.address, offset, size, 0, 0, PAGE, 0
        )
        self.bytes += bytes(-len(self.bytes) % 8)
        struct.pack_into("<Q", self.bytes, SHOFF, len(self.bytes))
        struct.pack_into("<H", self.bytes, SHNUM, count + 1)
        self.bytes += table
