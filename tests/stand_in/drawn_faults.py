"""Faults drawn by `gfx950.random_bits`: which instruction of which launch, which bit of its result, when and where."""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from fault_launches import LAUNCHES
from hip_stand_in import Fault

from emu.code_object import load
from emu.dispatch import RunOptions
from emu.observers import Observer
from gfx950.isa.text import disassemble
from gfx950.random_bits import integers
from golden.diff import FileSubject

VALUE = ("vector", "accumulator", "scalar")
KINDS = (  # what is drawn from in turn: the instructions, and what of theirs is wrong
    ("matrix", r"v_mfma", VALUE),
    ("any", r"v_", ("vector",)),
    ("transcendental", r"v_(exp|rcp|rsq|log|sqrt|sin|cos)_", VALUE),
    ("LDS store", r"ds_write", ("store",)),
    ("carry", r"s_", ("scc",)),
    ("any", r"v_", ("vector",)),
    ("between lanes", r".*(_dpp|permlane|bpermute|swizzle|readlane|readfirstlane)", VALUE),
    ("store", r"global_store", ("store",)),
    ("conversion", r"v_cvt", VALUE),
    ("compare", r"v_cmp", ("scalar",)),
    ("LDS load", r"ds_read", VALUE),
    ("any", r"v_", ("vector",)),
    ("accumulator", r"v_", ("accumulator",)),
    ("packed", r"v_pk_", VALUE),
    ("scalar", r"s_", ("scalar",)),
    ("which lanes", r"s_", ("exec",)),
    ("wide", r"v_\w+_[fiu]64", VALUE),
    ("memory load", r"(global|flat)_load", VALUE),
    ("any", r"v_", ("vector",)),
    ("selection", r"v_cndmask|s_cselect", VALUE),
    ("scalar load", r"s_load", ("scalar",)),
    ("any", r"v_", ("vector",)),
    ("carry", r"s_", ("scc",)),
    ("multiply and add", r"v_(fma|mad|mul|fmac)_", VALUE),
    ("LDS store", r"ds_write", ("store",)),
)
ATTEMPTS, IN_ONE_LAUNCH = 60, 6
SCC = re.compile(
    r"s_(cmp|bitcmp|add_u32|add_i32|addc|sub_u32|subb|and_b|or_b|xor_b|lsh[lr]_b|andn2|bcnt)|s_\w+_saveexec"
)
STORES = re.compile(r"(global|flat|buffer|scratch)_store|ds_write")
RESULT = re.compile(r"([vsa])(?:(\d+)\b|\[(\d+):(\d+)\])|(vcc)\b|(exec)\b")
NO_RESULT = re.compile(
    r"s_(cbranch|branch|waitcnt|barrier|nop|endpgm|cmp|bitcmp|set|swappc|call|getpc)|\w+_store|ds_write"
)
LETTERS = {"v": "vector", "s": "scalar", "a": "accumulator"}


@dataclass(frozen=True)
class Run:
    """One execution of an instruction. lanes: of EXEC before it."""

    workgroup: tuple[int, int, int]
    wave: int
    occurrence: int
    lanes: tuple[int, ...]


@dataclass
class Runs(Observer):
    """Every execution of a launch, and each instruction's text, by offset."""

    found: dict[int, list[Run]] = field(default_factory=lambda: defaultdict(list))
    texts: dict[int, str] = field(default_factory=dict)
    counts: Counter = field(default_factory=Counter)

    def before(self, one, decoded):
        offset = decoded.pc - one.kernel.entry
        if offset not in self.texts:
            self.texts[offset] = disassemble(decoded)
        key = offset, one.workgroup, one.index
        self.counts[key] += 1
        lanes = tuple(int(n) for n in np.flatnonzero(one.wave.exec_mask()))
        self.found[offset].append(Run(one.workgroup, one.index, self.counts[key], lanes))


@functools.cache
def launch(name: str) -> tuple[FileSubject, Runs, int]:
    """A launch, what it runs, and how many bytes lie between its symbol and its first instruction."""
    subject, runs = LAUNCHES[name](), Runs()
    subject.run(RunOptions(engine="numpy", observers=(runs,)), None)
    code = load(subject.source)
    return subject, runs, subject.kernel.entry - code.symbols[subject.kernel.name].address


def results(text: str) -> dict[str, list[str]]:
    """What an instruction gives, by kind: vector, accumulator, scalar, exec, scc, store."""
    given: dict[str, list[str]] = defaultdict(list)
    if STORES.match(text):
        given["store"] = ["store"]
    if SCC.match(text):
        given["scc"] = ["scc"]
    if "_saveexec" in text:
        given["exec"] = ["exec_lo", "exec_hi"]
    first = RESULT.match(text.partition(" ")[2])
    if first and not NO_RESULT.match(text):
        letter, one, low, high, vcc, exec_mask = first.groups()
        if vcc or exec_mask:
            name = vcc or exec_mask
            given["scalar" if vcc else "exec"] = [f"{name}_lo", f"{name}_hi"]
        else:
            given[LETTERS[letter]] = [f"{letter}{n}" for n in range(int(one or low), int(one or high) + 1)]
    return given


@dataclass(frozen=True)
class Drawn:
    """A fault with its launch. number, attempt: what it was drawn for."""

    number: int
    attempt: int
    launch: str
    kind: str
    fault: Fault
    text: str

    def __str__(self) -> str:
        f = self.fault
        where = f"lane {f.lane}" + (f", wave {f.wave} of {f.workgroup}" if f.wave is not None else ", all waves")
        when = f"execution {f.execution}" if f.execution else "every execution"
        what = f"`{self.text}` at {f.offset:#x} of {self.launch}"
        return f"{self.number} ({self.kind}): bit {f.bit} of {f.register} after {what}, {where}, {when}"


def draws(number: int, used: set[tuple[str, int]]) -> Iterator[Drawn]:
    """The attempts at a fault, for as long as one is asked for; instructions that are used already are left out."""
    kind, pattern, of = KINDS[number % len(KINDS)]
    names = [list(LAUNCHES)[(number * 7 + n) % len(LAUNCHES)] for n in range(len(LAUNCHES))]
    having = (name for name in names if _choices(name, pattern, of, used))
    places = (name for name in itertools.cycle(having) for _ in range(IN_ONE_LAUNCH))
    for attempt, name in enumerate(itertools.islice(places, ATTEMPTS)):
        pick = iter(integers(f"fault {number}.{attempt}", 8, 0, 1 << 30).tolist())
        subject, runs, ahead = launch(name)
        choices = _choices(name, pattern, of, used)
        offset, register = choices[next(pick) % len(choices)]
        one = runs.found[offset][next(pick) % len(runs.found[offset])]
        lane, bit = (
            (one.lanes or (0,))[next(pick) % max(1, len(one.lanes))],
            next(pick) % _bits(runs.texts[offset], register),
        )
        every, everywhere = next(pick) % 3 == 0, next(pick) % 3 == 0
        fault = Fault(
            subject.kernel.name, offset + ahead, register, bit, lane, None if every else one.occurrence,
            None if everywhere else one.wave, None if everywhere else one.workgroup,
        )  # fmt: skip
        yield Drawn(number, attempt, name, kind, fault, runs.texts[offset])


def _choices(name: str, pattern: str, of: Sequence[str], used: set[tuple[str, int]]) -> list[tuple[int, str]]:
    """Offset and register of what may be wrong in a launch."""
    texts = [(offset, text) for offset, text in sorted(launch(name)[1].texts.items()) if re.match(pattern, text)]
    given = [(offset, results(text)) for offset, text in texts if (name, offset) not in used]
    return [(offset, register) for offset, all_of in given for kind in of for register in all_of.get(kind, ())]


def _bits(text: str, register: str) -> int:
    """How many bits of it there are to choose from."""
    if register == "scc":
        return 1
    narrow = 8 if "_b8" in text or "byte" in text else 16 if "_b16" in text or "short" in text else 32
    return narrow if register == "store" else 32
