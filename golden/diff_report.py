"""Results of `gfx950 diff` as text for people and as a JSON document."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from emu.bisect import Finding
from emu.bisect_compare import Difference
from gfx950.evidence import counted as counted_instructions
from gfx950.terminal import columns, wrap
from golden.compare import code_text, format_of, index_text, ulps_between
from golden.diff import ArrayDiff, Comparison, codes
from golden.first_wrong import WrongLaunch
from golden.provenance import Provenance
from golden.report import counted, rule_texts, writer_document, writer_text

SHOWN = 8
LABEL = 10  # characters before what a line says


def comparison_lines(found: Comparison) -> Iterator[str]:
    """One comparison: a line when all is well, else what differs."""
    first, second = found.engines
    runs = f", {found.repeat} runs" if found.repeat > 1 else ""
    if found.good:
        took = f"{sum(found.seconds.values()):.2f} s"
        yield from wrap(f"same  {found.name:<16} every bit of {first} = {second}{runs}, {took}")
        return
    wrong = [array for array in found.arrays if not array.good]
    outputs = counted(len(found.arrays), "output")
    yield from wrap(f"WRONG {found.name:<16} {len(wrong)} of {outputs}: {first} against {second}{runs}")
    for array in wrong[:SHOWN]:
        for line in array_lines(array, found.engines, found.repeat):
            yield from _wrapped(line)
    if len(wrong) > SHOWN:
        yield f"  and {len(wrong) - SHOWN} more"
    for line in inside_lines(found):
        yield from _wrapped(line)


def _wrapped(line: str) -> list[str]:
    """A line in the width of the terminal, its continuation under what stands behind the label."""
    if line.startswith("["):
        return wrap(line, "  ")
    labelled = line[LABEL - 1 : LABEL] == " " and line[LABEL : LABEL + 1].strip() != ""
    under = " " * (4 + LABEL * labelled)
    return textwrap.wrap(line, columns(), initial_indent="    ", subsequent_indent=under, break_on_hyphens=False)


def inside_lines(found: Comparison) -> Iterator[str]:
    """The first wrong instruction and the registers at a point, where they were looked for."""
    if found.first_wrong is not None:
        first = found.first_wrong
        yield f"[first wrong] {launch_text(first.launch)}"
        yield from (line.strip() for line in str(first.finding).splitlines())
        yield from (f"then {through_text(load)}" for load in first.through)
        if first.finding.kind == "none":
            yield "given the emulator's inputs it is right: what it read was wrong before, or it is not wrong each time"
    if found.registers is not None:
        at, differences = found.registers, found.registers.differences
        place = f"offset 0x{at.point.offset:x}, run {at.point.occurrence}, of workgroup {at.point.workgroup}"
        yield f"[registers] {launch_text(at.launch)}"
        yield f"before {place} wave {at.point.wave}: {counted(len(differences), 'register')} differ"
        yield from map(str, differences[:SHOWN])
        if len(differences) > SHOWN:
            yield f"and {len(differences) - SHOWN} more"
    if found.not_inside:
        head, *lines = found.not_inside.splitlines()
        yield f"[not looked into] {head}"
        yield from (line.strip() for line in lines)


def through_text(load: Finding) -> str:
    """A load by which what was wrong came to another wave."""
    place = f"workgroup {load.workgroup} wave {load.wave}"
    at = f"0x{load.point.offset:x}, run {load.point.occurrence}" if load.point is not None else "its start"
    return f"{place} loads it by `{load.instruction}` at offset {at}"


def launch_text(launch: WrongLaunch) -> str:
    """Which launch was looked at."""
    return f"kernel {launch.writer.kernel}, launch {launch.number}, which wrote {launch.output}"


def array_lines(array: ArrayDiff, engines: Sequence[str], repeat: int = 1) -> Iterator[str]:
    """What was found of one output, its name first in brackets."""
    name, difference = array.output.name, array.difference
    if array.problem:
        yield f"[{name}] cannot be compared: {array.problem}"
        return
    if difference is not None:
        yield f"[{name}] {difference.count} of {difference.total} elements ({array.output.format}) differ"
        yield from _first_lines(array, engines)
    if array.unstable is not None:
        yield from _unstable_lines(array, engines[1], repeat)


def _line(label: str, text: str) -> str:
    return f"{label:<{LABEL}}{text}"


def _first_lines(array: ArrayDiff, engines: Sequence[str]) -> Iterator[str]:
    d = array.difference
    assert d is not None
    yield _line("first", f"{array.output.name}{index_text(d.index)}{described(array, d.index)}")
    for engine, shown in zip(engines, (d.shown_a, d.shown_b), strict=True):
        yield _line(engine, shown)
    if d.ulps is not None:
        yield _line("distance", f"{d.ulps} ulp of {array.output.format}")
    if d.where:
        yield _line("all in", f"{array.output.name}{d.where}")
    if d.pattern:
        yield _line("pattern", d.pattern)
    if array.narrowed:
        yield _line("lanes", array.narrowed + sampled(array))
    yield from _writer_lines(array)
    yield from _more_lines(array)


def sampled(array: ArrayDiff) -> str:
    """What to say of writers that are a sample."""
    if array.writers is None or array.writers.complete:
        return ""
    return f" (of {array.writers.wrong} differing elements asked for)"


def described(array: ArrayDiff, index: tuple[int, ...]) -> str:
    """What an element is, behind a colon, where the kernel says so."""
    text = array.output.describe(index)
    return f": {text}" if text else ""


def _writer_lines(array: ArrayDiff) -> Iterator[str]:
    if array.writer is None:
        yield _line("writer", "none in the emulator: nothing was stored there, or it was not asked for")
        return
    register = f", from {array.store.register(array.byte)}" if array.store is not None else ""
    yield _line("writer", writer_text(array.writer) + register)
    if array.store is not None:
        yield _line("text", array.store.text)
        yield _line("inputs", inputs_text(array))


def inputs_text(array: ArrayDiff) -> str:
    """The registers that the writing instruction names, in its lane, in the emulator."""
    assert array.store is not None
    assert array.writer is not None
    inputs = array.store.inputs(array.writer.lane)
    return ", ".join(f"{name} 0x{value:08x}" for name, value in inputs.items())


def first_rows(array: ArrayDiff, count: int) -> list[tuple[tuple[int, ...], str, str, int | None]]:
    """Of the first differing elements: index, both codes for people, and how many ulps apart (None for NaN, plain)."""
    at = array.differing[:count]
    left, right = codes(array.a)[at], codes(array.b)[at]
    form, size = format_of(array.output.format, left, right), left.dtype.itemsize
    rows: list[tuple[tuple[int, ...], str, str, int | None]] = []
    for flat, x, y in zip(at, map(int, left), map(int, right), strict=True):
        index = tuple(int(i) for i in np.unravel_index(flat, array.a.shape))
        rows.append((index, code_text(x, form, size), code_text(y, form, size), ulps_between(x, y, form)))
    return rows


def _more_lines(array: ArrayDiff) -> Iterator[str]:
    rows = first_rows(array, SHOWN)
    for index, a, b, ulps in rows[1:]:
        apart = f", {ulps} ulp" if ulps is not None else ""
        yield _line("also", f"{index_text(index)} {_short(a)} against {_short(b)}{apart}")
    if array.differing.size > len(rows):
        yield f"and {array.differing.size - len(rows)} more"


def _short(shown: str) -> str:
    """The code and the value, without the fields."""
    parts = shown.split("  ")
    return f"{parts[0]} ({parts[-1]})"


def _unstable_lines(array: ArrayDiff, engine: str, repeat: int) -> Iterator[str]:
    u = array.unstable
    assert u is not None
    name = array.output.name
    yield f"[{name}] {u.count} of {array.a.size} elements are not the same in all {repeat} runs of {engine}"
    yield _line("first", f"{name}{index_text(u.index)}{described(array, u.index)}")
    for shown, runs in list(u.shown.items())[:SHOWN]:
        yield _line(f"{runs} of {repeat}", shown)
    if len(u.shown) > SHOWN:
        yield f"and {len(u.shown) - SHOWN} more"
    if u.where:
        yield _line("all in", f"{name}{u.where}")
    if u.narrowed:
        yield _line("lanes", u.narrowed)


def provenance_lines(found: Provenance) -> Iterator[str]:
    """Where the bits come from."""
    for engines, digest in _by_digest(found.code).items():
        yield from wrap(f"code object of {engines}: sha256 {digest}")
    if found.device:
        yield from wrap(f"device: {', '.join(f'{key} {value}' for key, value in found.device.items() if value)}")
    model = f"model {found.model} ({found.model_digest})"
    yield from wrap(f"the emulator's bits, under {model}: {counted_instructions(found.instructions)}")
    for text in rule_texts(found.rules):
        yield from wrap(f"rest on {text}", "  ")


def _by_digest(code: dict[str, str]) -> dict[str, str]:
    engines: dict[str, list[str]] = {}
    for engine, digest in code.items():
        engines.setdefault(digest, []).append(engine)
    return {" and ".join(names): digest for digest, names in engines.items()}


# ---- JSON ------------------------------------------------------------------------------------------------------------


def document(comparisons: Sequence[Comparison], found: Provenance) -> dict[str, Any]:
    """All of it, for `gfx950.diff/1`."""
    return {
        "ok": all(c.good for c in comparisons),
        "subject": found.subject,
        "comparisons": [_comparison_document(c) for c in comparisons],
        "provenance": asdict(found),
    }


def _comparison_document(found: Comparison) -> dict[str, Any]:
    return {
        "name": found.name,
        "ok": found.good,
        "engines": list(found.engines),
        "repeat": found.repeat,
        "wave_instructions": found.instructions,
        "device_milliseconds": found.milliseconds,
        "seconds": {engine: round(seconds, 3) for engine, seconds in found.seconds.items()},
        "first_wrong": _first_wrong_document(found),
        "registers": _registers_document(found),
        "not_inside": found.not_inside or None,
        "outputs": [_array_document(array, found.engines) for array in found.arrays],
    }


def _first_wrong_document(found: Comparison) -> dict[str, Any] | None:
    if found.first_wrong is None:
        return None
    launch, finding = found.first_wrong.launch, found.first_wrong.finding
    return _launch_document(launch) | {
        "kind": finding.kind,
        "instruction": finding.instruction,
        "offset": finding.point.offset if finding.point is not None else None,
        "occurrence": finding.point.occurrence if finding.point is not None else None,
        "index": finding.index,
        "of": finding.total,
        "runs": finding.runs,
        "source": str(finding.source) if finding.source is not None else None,
        "inputs": {name: [hex(v) for v in values] for name, values in finding.inputs.items()},
        "undefined": list(finding.undefined),
        "found_in": {"workgroup": list(finding.workgroup), "wave": finding.wave},
        "through": [through_text(load) for load in found.first_wrong.through],
        "differences": [_register_document(d) for d in finding.differences],
    }


def _registers_document(found: Comparison) -> dict[str, Any] | None:
    if found.registers is None:
        return None
    point = found.registers.point
    return _launch_document(found.registers.launch) | {
        "offset": point.offset,
        "occurrence": point.occurrence,
        "differences": [_register_document(d) for d in found.registers.differences],
    }


def _launch_document(launch: WrongLaunch) -> dict[str, Any]:
    w = launch.writer
    return {
        "kernel": w.kernel,
        "launch": launch.number,
        "output": launch.output,
        "workgroup": list(w.workgroup),
        "wave": w.wave,
    }


def _register_document(difference: Difference) -> dict[str, Any]:
    sides = {"emulator": difference.reference, "suspect": difference.suspect}
    values = {side: [hex(v) for v in numbers] for side, numbers in sides.items()}
    return {"register": difference.register, "lanes": list(difference.lanes)} | values


def _array_document(array: ArrayDiff, engines: Sequence[str]) -> dict[str, Any]:
    d, u = array.difference, array.unstable
    document: dict[str, Any] = {"name": array.output.name, "ok": array.good, "format": array.output.format}
    document |= {"dtype": str(array.a.dtype), "shape": list(array.a.shape)}
    if array.problem:
        document["problem"] = array.problem
    if d is not None:
        rows = zip(engines, ((d.a, d.shown_a), (d.b, d.shown_b)), strict=True)
        document |= {
            "differing": d.count,
            "of": d.total,
            "index": list(d.index),
            "element": array.output.describe(d.index),
            "values": {engine: {"bits": hex(code), "shown": shown} for engine, (code, shown) in rows},
            "ulps": d.ulps,
            "where": d.where,
            "pattern": d.pattern,
            "only": array.narrowed,
            "writer": _writer_document(array),
            "first": [{"index": list(i), "shown": [a, b], "ulps": n} for i, a, b, n in first_rows(array, SHOWN)],
        }
    if u is not None:
        document["unstable"] = {"count": u.count, "index": list(u.index), "runs": u.shown, "where": u.where}
        document["unstable"]["only"] = u.narrowed
    return document


def _writer_document(array: ArrayDiff) -> dict[str, Any] | None:
    w, store = array.writer, array.store
    if w is None:
        return None
    document = writer_document(w)
    if store is not None:
        inputs = {name: hex(value) for name, value in store.inputs(w.lane).items()}
        document |= {"text": store.text, "register": store.register(array.byte), "inputs": inputs}
    return document
