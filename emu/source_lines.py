"""Which source line each instruction of a code object comes from: the line tables of its DWARF."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from elftools.elf.elffile import ELFFile

from emu.code_object import CodeObject
from emu.errors import CodeObjectError

# AMDGPU relocations that stand in DWARF sections: type to bytes. [LLVM AMDGPUUsage, 'Relocation Records']
ABSOLUTE = {3: 8, 6: 4}
DWARF_5 = 5


@dataclass(frozen=True)
class SourceLine:
    """A place in a source file. line: from 1."""

    file: str
    line: int


def source_lines(code: CodeObject) -> dict[int, SourceLine]:
    """Where each source line's instructions begin, by virtual address; empty where the file has no DWARF.

    Raises CodeObjectError for DWARF that cannot be read.
    """
    try:
        data = _relocated(code)
        elf = ELFFile(BytesIO(data))
        if not elf.has_dwarf_info():
            return {}
        return dict(_rows(elf.get_dwarf_info(relocate_dwarf_sections=False)))
    except Exception as problem:  # whatever the ELF and DWARF readers stumble over in damaged input
        raise CodeObjectError(
            f"the debug information cannot be read: {type(problem).__name__}: {problem}",
            expected="DWARF version 4 or 5 line tables",
            advice="leave --source out, or compile again with -gdwarf-5",
        ) from problem


def _relocated(code: CodeObject) -> bytes:
    """The file with the relocations of its DWARF sections applied, for the code object laid out where `code` is."""
    elf = ELFFile(BytesIO(code.source))
    if elf.header["e_type"] != "ET_REL":
        return code.source
    data = bytearray(code.source)
    sections: list[Any] = list(elf.iter_sections())
    places = {run.name: run.address for run in code.code}
    for table in sections:
        target = sections[table["sh_info"]] if table["sh_type"] == "SHT_RELA" else None
        if target is None or not target.name.startswith(".debug"):
            continue
        symbols = sections[table["sh_link"]]
        for relocation in table.iter_relocations():
            size = ABSOLUTE.get(relocation["r_info_type"])
            if size is None:
                continue
            symbol = symbols.get_symbol(relocation["r_info_sym"])
            index = symbol["st_shndx"]
            base = places.get(sections[index].name, 0) if isinstance(index, int) else 0
            value = base + symbol["st_value"] + relocation["r_addend"]
            at = target["sh_offset"] + relocation["r_offset"]
            data[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(data)


def _rows(dwarf: Any) -> Iterator[tuple[int, SourceLine]]:
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        if program is None:
            continue
        folder = unit.get_top_DIE().attributes.get("DW_AT_comp_dir")
        start = folder.value.decode(errors="replace") if folder is not None else ""
        for entry in program.get_entries():
            state = entry.state
            if state is not None and not state.end_sequence and state.line:
                yield state.address, SourceLine(_file(program.header, state.file, start), state.line)


def _file(header: Any, number: int, start: str) -> str:
    """The path of a file of a line program. Numbers count from 1 before DWARF 5, and so do its folders."""
    before = 0 if header["version"] >= DWARF_5 else 1
    entry = header["file_entry"][number - before]
    folders = [start] if before else []
    folders += [f.decode(errors="replace") for f in header["include_directory"]]
    folder = folders[entry.dir_index] if entry.dir_index < len(folders) else ""
    return os.path.join(start, folder, entry.name.decode(errors="replace"))
