"""A code object as assembly text: its kernels, symbols, instructions, branch labels, and source lines where DWARF is.

The text can be assembled again: everything that is not code stands in comments.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from emu import code_object
from emu.code_object import CodeObject
from emu.elf_header import ET_REL, elf_type
from emu.elf_image import Symbol
from emu.errors import CodeObjectError
from emu.kernel_metadata import Argument, Kernel
from emu.source_lines import SourceLine, source_lines
from gfx950.isa.text import listing

TEXT_COLUMNS = 40  # of an instruction, before its address and bytes
PADDING = bytes.fromhex("000080bf")  # s_nop 0, which compilers fill up with behind a kernel's end
MANY = 16  # of them in a row: told in one line
SYMBOL_BYTES = 24  # of an ELF64 symbol, whose binding is in its fifth byte
STB_WEAK = 2


@dataclass(frozen=True)
class Line:
    """One instruction. address: virtual, in the code object laid out at 0. labels: the names of that address."""

    address: int
    raw: bytes
    text: str
    labels: tuple[str, ...] = ()
    source: SourceLine | None = None


@dataclass(frozen=True)
class Disassembly:
    """A code object, or one kernel of it, as text. undefined: names that an unlinked object expects elsewhere."""

    code: CodeObject
    lines: tuple[Line, ...]
    kernels: tuple[Kernel, ...]
    symbols: tuple[Symbol, ...]
    undefined: tuple[str, ...]


def disassemble(path: str, name: str | None = None, sources: bool = False) -> Disassembly:
    """Reads a linked or unlinked code object. name: only this kernel or function. sources: look up source lines.

    Raises CodeObjectError for a file that is no gfx950 code object, and for a name that it does not define.
    """
    code, undefined = _loaded(path)
    marks = source_lines(code) if sources else {}
    ranges = _ranges(code) if name is None else [_range_of(code, name)]
    lines = _labelled(code, ranges, marks)
    chosen = code.kernels if name is None else {name: code.kernels[name]} if name in code.kernels else {}
    symbols = [s for s in code.symbols.values() if name is None or s.name in (name, f"{name}.kd")]
    ordered = sorted(symbols, key=lambda s: (s.kind == "absolute", s.address, s.name))
    return Disassembly(code, tuple(lines), tuple(chosen.values()), tuple(ordered), undefined)


def _loaded(path: str) -> tuple[CodeObject, tuple[str, ...]]:
    """The code object and the names it expects from others: what is not linked yet can be read all the same."""
    try:
        return code_object.load(path), ()
    except CodeObjectError as problem:
        data = Path(path).read_bytes()
        try:
            weakened, undefined = _with_weak_symbols(data)
        except Exception:  # whatever the ELF reader stumbles over in damaged input: `problem` says what is wrong
            raise problem from None
        if not undefined:
            raise
        return code_object.load(weakened), undefined


def _with_weak_symbols(data: bytes) -> tuple[bytes, tuple[str, ...]]:
    """The file with its undefined symbols weak, and their names."""
    changed, names = bytearray(data), []
    tables: list[Any] = [s for s in ELFFile(BytesIO(data)).iter_sections() if s["sh_type"] == "SHT_SYMTAB"]
    for table in tables:
        for index, symbol in enumerate(table.iter_symbols()):
            if symbol.name and symbol["st_shndx"] == "SHN_UNDEF":
                at = table["sh_offset"] + index * SYMBOL_BYTES + 4
                changed[at] = STB_WEAK << 4 | changed[at] & 15
                names.append(symbol.name)
    return bytes(changed), tuple(names)


# ---- instructions ----------------------------------------------------------------------------------------------------


def _starts(code: CodeObject) -> dict[int, list[str]]:
    """The names of addresses inside code."""
    found: dict[int, list[str]] = {}
    for symbol in code.symbols.values():
        inside = any(run.address <= symbol.address < run.address + len(run.data) for run in code.code)
        if inside and symbol.kind in ("function", "other"):
            found.setdefault(symbol.address, []).append(symbol.name)
    return found


def _ranges(code: CodeObject) -> list[tuple[int, bytes]]:
    """Address and bytes of each piece of code from one symbol to the next: decoding begins anew at each."""
    pieces = []
    for run in code.code:
        inside = [a for a in _starts(code) if run.address < a < run.address + len(run.data) and a % 4 == 0]
        marks = [run.address, *sorted(inside), run.address + len(run.data)]
        for first, end in itertools.pairwise(marks):
            pieces.append((first, run.data[first - run.address : end - run.address]))
    return pieces


def _range_of(code: CodeObject, name: str) -> tuple[int, bytes]:
    """Address and bytes of one function, as far as its symbol's size or the next function."""
    functions = {s.name: s for s in code.symbols.values() if s.kind == "function"}
    if name not in functions and name not in code.kernels:
        near = difflib.get_close_matches(name, sorted({*code.kernels, *functions}), 3)
        raise CodeObjectError(
            f"no kernel or function {name!r} in the code object",
            expected=f"one of: {', '.join(sorted({*code.kernels, *functions})) or 'none'}",
            advice=f"did you mean {' or '.join(near)}?" if near else "C++ functions have mangled names",
        )
    start = code.kernels[name].entry if name in code.kernels else functions[name].address
    run = next(r for r in code.code if r.address <= start < r.address + len(r.data))
    size = functions[name].size if name in functions else 0
    others = [s.address for s in functions.values() if s.address > start]
    end = start + size if size else min([*others, run.address + len(run.data)])
    return start, run.data[start - run.address : end - run.address]


def _labelled(code: CodeObject, ranges: Sequence[tuple[int, bytes]], marks: Mapping[int, SourceLine]) -> Iterator[Line]:
    """The lines, with a label wherever a branch goes."""
    rows = [row for start, data in ranges for row in listing(data, start, _marked, exact=True)]
    names = _starts(code)
    goals = {int(part, 16) for _, _, text in rows if "\0" in text for part in text.split("\0")[1::2]}
    here = {address for address, _, _ in rows}
    for number, goal in enumerate(sorted(g for g in goals if g in here and g not in names)):
        names[goal] = [f"L{number}"]
    source = None
    for address, raw, text in rows:
        if "\0" in text:
            before, target, after = text.split("\0")
            text = before + names.get(int(target, 16), [_distance(raw)])[0] + after
        now = marks.get(address, source)
        yield Line(address, raw, text, tuple(names.get(address, ())), now if now != source else None)
        source = now


def _marked(address: int) -> str:
    """The goal of a branch, to be named once all goals are known."""
    return f"\0{address:x}\0"


def _distance(raw: bytes) -> str:
    """The words a branch goes, as its instruction holds them."""
    return str(struct.unpack("<h", raw[:2])[0])


# ---- what is printed -------------------------------------------------------------------------------------------------


def text_lines(found: Disassembly, width: int) -> Iterator[str]:
    """The assembly text. width: columns; a line that is wider has its address and bytes on a line of their own."""
    for comment in _heading(found):
        yield f"; {comment}" if comment else ";"
    for is_padding, group in itertools.groupby(found.lines, _is_padding):
        lines = list(group)
        if is_padding and len(lines) >= MANY:
            text = f"  .fill {len(lines)}, 4, 0x{int.from_bytes(PADDING, 'little'):08x}"
            yield f"{text.ljust(TEXT_COLUMNS)} ; {lines[0].address:08x}: s_nop 0, {len(lines)} of them"
        else:
            yield from _instruction_lines(lines, width)


def _is_padding(line: Line) -> bool:
    return line.raw == PADDING and not line.labels and line.source is None


def _instruction_lines(lines: Sequence[Line], width: int) -> Iterator[str]:
    """Each with its labels and source line above it."""
    for line in lines:
        if line.labels:
            yield ""
        for label in line.labels:
            yield f"{label}:"
        if line.source is not None:
            yield f"; {line.source.file}:{line.source.line}{_quoted(line.source)}"
        words = " ".join(f"{int.from_bytes(line.raw[i : i + 4], 'little'):08x}" for i in range(0, len(line.raw), 4))
        where = f"; {line.address:08x}: {words}"
        text = f"  {line.text}"
        whole = f"{text.ljust(TEXT_COLUMNS)} {where}"
        if len(whole) <= width:
            yield whole
        else:
            yield text
            yield f"{'':8}{where}"


def _heading(found: Disassembly) -> Iterator[str]:
    code = found.code
    linked = "unlinked" if elf_type(code.source) == ET_REL else "linked"
    size = sum(len(run.data) for run in code.code)
    yield f"{code.target}, code object V{code.version}, {linked}, {size} bytes of code"
    for kernel in found.kernels:
        yield from _kernel_lines(kernel)
    absolute = [s for s in found.symbols if s.kind == "absolute"]
    if found.symbols:
        yield f"symbols, and {len(absolute)} absolute ones that --json lists:" if absolute else "symbols:"
    for symbol in found.symbols:
        if symbol.kind != "absolute":
            yield f"  {symbol.address:08x} {symbol.size:8} {symbol.kind:8} {symbol.name}"
    for name in found.undefined:
        yield f"  {'undefined':26} {name}"


def _kernel_lines(kernel: Kernel) -> Iterator[str]:
    d = kernel.descriptor
    yield f"kernel {kernel.name} at {kernel.entry:#x}"
    split = f"those from {d.accum_offset} on are AGPRs" if d.accum_offset < d.vgprs else "no AGPRs"
    vectors = f"{d.vgprs} VGPRs ({split})"
    yield f"  {vectors}, {d.sgprs} SGPRs ({d.user_sgpr_count} for user data)"
    yield f"  bytes: LDS {d.group_segment}, scratch {d.private_segment} a lane, arguments {kernel.kernarg_size}"
    if not kernel.has_metadata:
        yield "  no metadata: the arguments are unknown"
    for argument in kernel.arguments:
        yield f"  {_argument(argument)}"
    yield from (f"  {sentence}" for sentence in kernel.disagreements)


def _argument(argument: Argument) -> str:
    named = " ".join(part for part in (argument.value_kind, argument.type, argument.name) if part)
    return f"{argument.offset:4} +{argument.size:<3} {named}"


@functools.lru_cache(maxsize=64)
def _file_lines(path: str) -> tuple[str, ...]:
    try:
        return tuple(Path(path).read_text(errors="replace").splitlines())
    except OSError:
        return ()


def _quoted(place: SourceLine) -> str:
    """What stands there, where the file is at hand."""
    lines = _file_lines(place.file)
    return f": {lines[place.line - 1].strip()}" if place.line <= len(lines) else ""


def document(found: Disassembly) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "target": found.code.target,
        "version": found.code.version,
        "kernels": [_kernel_document(kernel) for kernel in found.kernels],
        "symbols": [vars(symbol) for symbol in found.symbols],
        "undefined": list(found.undefined),
        "lines": [_line_document(line) for line in found.lines],
    }


def _kernel_document(kernel: Kernel) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "entry": kernel.entry,
        "kernarg_size": kernel.kernarg_size,
        "arguments": [vars(argument) for argument in kernel.arguments],
        "descriptor": vars(kernel.descriptor),
    }


def _line_document(line: Line) -> dict[str, Any]:
    shown: dict[str, Any] = {"address": line.address, "bytes": line.raw.hex(), "text": line.text}
    if line.labels:
        shown["labels"] = list(line.labels)
    if line.source is not None:
        shown["source"] = vars(line.source)
    return shown
