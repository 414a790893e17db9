"""The check of a kernel case: SOURCE bits = MACHINE CODE bits = recorded golden, and inside the float64 bound."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from codegen.kernel_package import KernelPackage, Output, Watchpoint, case_inputs, kernel_package
from emu import code_object
from emu.contained_rules import KernelEvidence, contained_rules, together
from emu.dispatch import RunOptions, Watch
from gfx950.evidence import LEDGER, Evidence, Rule, weakest_first
from gfx950.models import in_force, rule_in_force
from golden.compare import Difference, compare, written
from golden.store import HOME, MissingGolden, Record, RecordedEvidence, StoredOutput, read, sha256


@dataclass
class Finding:
    """One thing that is not as it must be.

    kind: source-machine (they differ), golden (the run is not what is recorded, or the record is damaged), missing (no
    golden), inputs (they are not those of the golden) or bound (outside the float64 bound). element: what the differing
    element is. writer: the last store of the machine code to it, None when there was none.
    """

    kind: str
    text: str
    difference: Difference | None = None
    writer: Watch | None = None
    element: str = ""


def sides_of(kind: str) -> tuple[str, str]:
    """What the two arrays of such a finding are called: source and machine, or what is recorded and what a run gave."""
    return ("source", "machine") if kind == "source-machine" else ("golden", "run")


@dataclass
class CaseResult:
    """What the check of one case found. seconds: wall time by step. evidence_changes: what the bits rest on that is not
    as it was when the golden was recorded, which is no finding."""

    kernel: str
    case: str
    findings: list[Finding] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    instructions: int = 0
    evidence_changes: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether everything agreed."""
        return not self.findings


def check_case(package: KernelPackage, case: str, options: RunOptions, home: Path = HOME) -> CaseResult:
    """Runs one case on both sides and compares all there is to compare."""
    result = CaseResult(package.name, case)
    inputs = case_inputs(package, case)
    source = _timed(result, "source", lambda: package.run_source(inputs))
    machine, report = _timed(result, "machine", lambda: package.run_machine(inputs, options, None))
    result.instructions = report.instructions
    _check_source_machine(result, package, inputs, source, machine, options)
    _timed(result, "golden", lambda: check_recorded(result, package, inputs, source, home))
    bound = _timed(result, "bound", lambda: package.bound(inputs, source))
    result.findings += [Finding("bound", text) for text in bound]
    return result


def check_cases(
    package: KernelPackage, cases: Sequence[str], options: RunOptions, home: Path = HOME, jobs: int = 1
) -> Iterator[CaseResult]:
    """The results of the cases in order.

    The first case compiles what all need; the rest run in `jobs` processes at once where the system can fork. A device
    stays with the process that opened it.
    """
    if cases:
        yield check_case(package, cases[0], options, home)
    rest = [(package.name, case, options, home) for case in cases[1:]]
    can_fork = "fork" in multiprocessing.get_all_start_methods() and options.engine != "device"
    if jobs > 1 and len(rest) > 1 and can_fork:
        single = [(name, case, replace(options, threads=1), home) for name, case, options, home in rest]
        with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
            yield from pool.map(_check_named, single)
    else:
        yield from map(_check_named, rest)


def _check_named(job: tuple[str, str, RunOptions, Path]) -> CaseResult:
    name, case, options, home = job
    return check_case(kernel_package(name), case, options, home)


def _timed(result: CaseResult, step: str, run: Any) -> Any:
    start = time.perf_counter()
    try:
        return run()
    finally:
        result.seconds[step] = time.perf_counter() - start


def _check_source_machine(
    result: CaseResult,
    package: KernelPackage,
    inputs: Any,
    source: Mapping[str, NDArray[Any]],
    machine: Mapping[str, NDArray[Any]],
    options: RunOptions,
) -> None:
    for output in package.outputs:
        text = f"{output.name}: source and machine code differ"
        finding = _compare("source-machine", text, output, source[output.name], machine[output.name])
        if finding is not None and finding.difference is not None:
            finding.writer = find_writer(package, inputs, finding.difference, options)
            finding.difference = finding.difference if finding.writer is None else written(finding.difference)
        result.findings += [finding] if finding is not None else []


def _compare(kind: str, text: str, output: Output, expected: NDArray[Any], found: NDArray[Any]) -> Finding | None:
    """None where both arrays of an output are the same bits of the same shape and dtype."""
    if expected.shape != found.shape or expected.dtype != found.dtype:
        kinds = [f"{array.dtype}{list(array.shape)}" for array in (expected, found)]
        return Finding(kind, f"{text}: {kinds[0]} against {kinds[1]}")
    difference = compare(output.name, expected, found, output.format, sides=sides_of(kind))
    if difference is None:
        return None
    return Finding(kind, text, difference, None, output.describe(difference.index))


def find_writer(package: KernelPackage, inputs: Any, difference: Difference, options: RunOptions) -> Watch | None:
    """Runs the machine code once more with a watchpoint on the differing byte; None when nothing writes it.

    A device has no watchpoints; for its bits the emulator tells who writes the element.
    """
    emulated = replace(options, engine="host") if options.engine == "device" else options
    _, report = package.run_machine(inputs, emulated, Watchpoint(difference.output, difference.byte))
    return report.watch


def check_recorded(
    result: CaseResult, package: KernelPackage, inputs: Any, outputs: Mapping[str, NDArray[Any]], home: Path
) -> None:
    """Compares the outputs with the case's golden (bytes where it keeps them, else digests); adds to the findings."""
    try:
        record, arrays = read(package.name, result.case, home)
    except MissingGolden as error:
        result.findings.append(Finding("missing", str(error)))
        return
    except ValueError as error:
        result.findings.append(Finding("golden", str(error)))
        return
    result.evidence_changes = record.evidence.changes(recorded_evidence(package.name))
    result.findings += _input_findings(record, package.digests(inputs))
    for output in package.outputs:
        finding = _check_output(output, record.outputs.get(output.name), arrays, outputs[output.name])
        result.findings += [finding] if finding is not None else []
    for name in sorted(set(record.outputs) - {output.name for output in package.outputs}):
        result.findings.append(Finding("golden", f"{name}: the golden has it, the kernel does not; record it anew"))


def _check_output(
    output: Output, entry: StoredOutput | None, arrays: Mapping[str, NDArray[Any]], found: NDArray[Any]
) -> Finding | None:
    if entry is None:
        return Finding("golden", f"{output.name}: the golden has no such output; record it anew")
    if output.name in arrays:
        return _compare(
            "golden", f"{output.name}: the run differs from the recorded golden", output, arrays[output.name], found
        )
    if sha256(found) == entry.sha256:
        return None
    text = f"its bits do not have the recorded sha256 {entry.sha256[:16]}.. (the golden does not keep its bytes)"
    return Finding("golden", f"{output.name}: {text}")


def _input_findings(record: Record, digests: Mapping[str, str]) -> Iterator[Finding]:
    names = sorted(name for name in {*digests, *record.inputs} if record.inputs.get(name) != digests.get(name))
    if names:
        text = "are not those of the golden: the case's recipe or the generator changed"
        yield Finding("inputs", f"the inputs {', '.join(names)} {text}")


def kernel_evidence(package_name: str) -> KernelEvidence:
    """What the instructions in a kernel's machine code rest on under the model in force."""
    model = in_force()
    ledger = (model.name, model.digest, *sorted(model.measured.items()))
    return _object_evidence(kernel_package(package_name).compiled().object, ledger)


@lru_cache(maxsize=8)
def _object_evidence(data: bytes, _model: tuple[object, ...]) -> KernelEvidence:
    loaded = code_object.load(data)
    return together([contained_rules(loaded, kernel) for kernel in loaded.kernels.values()])


def own_rules(package_name: str) -> tuple[Rule, ...]:
    """The rules that a kernel declares itself, weakest first."""
    kernel_package(package_name)
    return weakest_first(rule_in_force(r) for name, r in LEDGER.items() if name.startswith(f"{package_name}."))


def kernel_rules(package_name: str) -> tuple[Rule, ...]:
    """The rules a kernel's bits follow, weakest first: its own, and those of the instructions in its machine code."""
    return weakest_first((*kernel_evidence(package_name).rules, *own_rules(package_name)))


def recorded_evidence(package_name: str) -> RecordedEvidence:
    """What a golden says that its bits rest on."""
    found = kernel_evidence(package_name)
    rules = {r.name: r.evidence.name for r in kernel_rules(package_name) if r.evidence < Evidence.spec}
    return RecordedEvidence(rules, found.counts, found.model.name, found.model.digest)
