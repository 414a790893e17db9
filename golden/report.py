"""Results of checks as text for people and as JSON documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from emu.dispatch import Watch
from gfx950.evidence import counted as counted_instructions
from gfx950.terminal import wrap
from golden.check import CaseResult, Finding, sides_of
from golden.compare import Difference, index_text
from golden.store import RecordedEvidence

SHOWN = 8


def case_lines(result: CaseResult, agreed: str) -> Iterator[str]:
    """One case: a line when all is well, else what was found. agreed: what it means to be well."""
    if result.good:
        yield f"ok    {result.case:<16} {agreed} {sum(result.seconds.values()):7.2f} s"
        return
    yield f"WRONG {result.case:<16} {counted(len(result.findings), 'finding')}"
    yield from findings_lines(result.findings)


def findings_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """The findings, indented; those after the first few are counted only."""
    for finding in findings[:SHOWN]:
        yield from wrap(f"[{finding.kind}] {finding.text}", "  ")
        if finding.difference is not None:
            for line in _difference_lines(finding, finding.difference):
                yield from wrap(line, "    ")
    if len(findings) > SHOWN:
        yield f"  and {len(findings) - SHOWN} more"


def _difference_lines(finding: Finding, difference: Difference) -> Iterator[str]:
    at = index_text(difference.index)
    element = f": {finding.element}" if finding.element else ""
    yield f"first of {difference.count} of {difference.total}: {difference.output}{at}{element}"
    sides = sides_of(finding.kind)
    for name, shown in zip(sides, (difference.shown_a, difference.shown_b), strict=True):
        yield f"{name:<7} {shown}"
    if difference.ulps is not None:
        yield f"{difference.ulps} ulp apart"
    if difference.where:
        yield f"all in  {difference.output}{difference.where}"
    if difference.pattern:
        yield f"pattern {difference.pattern}"
    if finding.writer is not None:
        yield f"writer  {writer_text(finding.writer)}"
    elif finding.kind == "source-machine":
        yield "writer  none: the machine code never writes it"


def evidence_lines(kernel: str, evidence: RecordedEvidence) -> Iterator[str]:
    """What the bits rest on: the instructions counted, then the rules below `spec`, a level a line, the first few by
    name."""
    yield from wrap(counted_instructions(evidence.instructions))
    for text in rule_texts(evidence.rules):
        yield from wrap(f"the bits rest on {text}")
    if evidence.rules:
        yield f"`gfx950 evidence {kernel}` lists them all"


def rule_texts(rules: Mapping[str, str]) -> Iterator[str]:
    """The rules of each level, counted, the first few by name. rules: the level by the rule's name."""
    for level in dict.fromkeys(rules.values()):
        names = [name for name, its in rules.items() if its == level]
        yield f"{counted(len(names), f'{level} rule')}: {first_few(names)}"


def first_few(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def change_lines(results: Sequence[CaseResult]) -> Iterator[str]:
    """What the bits rest on that is not as it was when goldens were recorded: once for all cases with the same news."""
    cases: dict[tuple[str, ...], list[str]] = {}
    for result in results:
        cases.setdefault(tuple(result.evidence_changes), []).append(result.case)
    for changes, names in cases.items():
        if changes:
            yield from wrap(f"note: what the bits of {first_few(names)} rest on is not what their goldens say:")
            for change in changes[:SHOWN]:
                yield from wrap(change, "  ")
            if len(changes) > SHOWN:
                yield f"  and {len(changes) - SHOWN} more"


def writer_text(writer: Watch) -> str:
    """Who wrote an element."""
    return f"{writer.store}, {writer.place}"


def writer_document(writer: Watch) -> dict[str, Any]:
    """The same for a JSON document."""
    place = {"workgroup": list(writer.workgroup), "wave": writer.wave, "lane": writer.lane}
    where = {"kernel": writer.kernel, "offset": writer.offset, "pc": writer.pc}
    return place | where | {"instruction": writer.instruction}


def counted(number: int, noun: str) -> str:
    """`1 case`, `2 cases`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def case_document(result: CaseResult) -> dict[str, Any]:
    """One case for a JSON document."""
    return {
        "case": result.case,
        "ok": result.good,
        "wave_instructions": result.instructions,
        "seconds": {step: round(seconds, 3) for step, seconds in result.seconds.items()},
        "findings": [_finding_document(finding) for finding in result.findings],
        "evidence_changes": list(result.evidence_changes),
    }


def _finding_document(finding: Finding) -> dict[str, Any]:
    document: dict[str, Any] = {"kind": finding.kind, "text": finding.text}
    d, w = finding.difference, finding.writer
    if d is not None:
        sides = sides_of(finding.kind)
        shown = {"bits": (hex(d.a), hex(d.b)), "shown": (d.shown_a, d.shown_b)}
        document |= {
            "output": d.output,
            "index": list(d.index),
            "element": finding.element,
            "differing": d.count,
            "of": d.total,
            "values": {side: {k: pair[i] for k, pair in shown.items()} for i, side in enumerate(sides)},
            "ulps": d.ulps,
            "where": d.where,
            "pattern": d.pattern,
        }
    if w is not None:
        document["writer"] = writer_document(w)
    return document
