"""The same code on two engines, as a rule the chip and the emulator, and every bit of what they leave compared.

found = diff(CaseSubject(package, "small"), Plan(("host", "device"), repeat=3))
found.good, found.arrays[0].difference, found.arrays[0].writer, found.arrays[0].unstable
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from codegen.kernel_package import KernelPackage, Output, Watchpoint, case_inputs
from emu import code_object
from emu.contained_rules import KernelEvidence, contained_rules, together
from emu.dispatch import Device, Module, RunOptions, RunReport, Watch
from emu.elf_header import ET_REL, elf_type
from emu.geometry import Geometry
from emu.instrument_run import Job
from emu.kernel_metadata import Kernel
from emu.run_arguments import RunArgument
from gfx950.formats import FORMATS
from gfx950.lanes import LANES
from golden.bits import FORMAT_OF
from golden.compare import PLAIN, Difference, compare, format_of, written
from golden.stores import Store, Stores
from golden.writers import Writers, narrowed, numbered, writers_of

if TYPE_CHECKING:
    from golden.first_wrong import FirstWrong, RegistersAt

Array = NDArray[Any]

STEPPED = 60_000  # wave instructions that are stepped through to learn who wrote what
SAMPLES = 24  # differing elements whose writer is asked for one by one where there are more instructions
WATCHED = 2_000_000_000  # wave instructions in all that this may take


class Subject(Protocol):
    """What is run: it can be run any number of times with the same inputs."""

    @property
    def name(self) -> str:
        """A case's name, or a kernel's."""

    @property
    def outputs(self) -> Sequence[Output]:
        """What is compared."""

    def before(self, output: str) -> Array | None:
        """What an output holds before the run, where it is known."""

    def run(self, options: RunOptions, watch: Watchpoint | None) -> tuple[Mapping[str, Array], RunReport]:
        """The outputs by name, and what the run did."""

    def code(self, engine: str) -> bytes:
        """The code object that an engine runs."""


@dataclass(frozen=True)
class Plan:
    """How to compare. engines: the first is the one that the second is held against. options: of emulated engines.
    repeat: runs of the second engine. writers: whether to find out who wrote what differs."""

    engines: tuple[str, str] = ("host", "device")
    options: RunOptions = field(default_factory=RunOptions)
    repeat: int = 1
    writers: bool = True

    def of(self, engine: str) -> RunOptions:
        """The options of one engine: of a device none but itself."""
        return RunOptions(engine="device") if engine == "device" else replace(self.options, engine=engine)


@dataclass(frozen=True, eq=False)
class Unstable:
    """Elements that were not the same in every run. mask: which. index: the first. shown: its codes, each once, with
    how many of the runs had it. where: as of a Difference, empty for the whole array. narrowed: the lanes, wave or
    workgroup that wrote all of them, where the run was stepped through."""

    mask: NDArray[np.bool_]
    count: int
    index: tuple[int, ...]
    shown: dict[str, int]
    where: str
    narrowed: str = ""


@dataclass(eq=False)
class ArrayDiff:
    """One output of both engines. problem: why it cannot be compared. difference: the first and how, of the elements
    that were stable. writer, store, byte: who wrote the first differing byte, and which byte of its store that is;
    store only where the run was stepped through. narrowed: lanes, wave or workgroup that all differences come from."""

    output: Output
    a: Array
    b: Array
    problem: str = ""
    difference: Difference | None = None
    writer: Watch | None = None
    store: Store | None = None
    byte: int = 0
    writers: Writers | None = None
    narrowed: str = ""
    unstable: Unstable | None = None

    @property
    def good(self) -> bool:
        """Whether nothing was found."""
        return not self.problem and self.difference is None and self.unstable is None

    @cached_property
    def differing(self) -> NDArray[np.intp]:
        """The flat indices of the differing elements that were stable."""
        if self.difference is None:
            return np.zeros(0, np.intp)
        differs = codes(self.a) != codes(self.b)
        return np.flatnonzero(differs if self.unstable is None else differs & ~self.unstable.mask.reshape(-1))


@dataclass(eq=False)
class Comparison:
    """One subject on two engines. instructions: of the emulated run. seconds: wall time by engine. first_wrong,
    registers: of `golden.first_wrong`, where they were asked for; not_inside: why there is none of these."""

    name: str
    engines: tuple[str, str]
    repeat: int
    arrays: list[ArrayDiff] = field(default_factory=list)
    instructions: int = 0
    milliseconds: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    first_wrong: FirstWrong | None = None
    registers: RegistersAt | None = None
    not_inside: str = ""

    @property
    def good(self) -> bool:
        """Whether every bit of every run agreed."""
        return all(array.good for array in self.arrays)


def codes(array: Array) -> Array:
    """The bits of each element, flat."""
    return np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")


# ---- subjects --------------------------------------------------------------------------------------------------------


class CaseSubject:
    """A case of a kernel package."""

    def __init__(self, package: KernelPackage, case: str) -> None:
        self.package, self.name = package, case
        self.inputs = case_inputs(package, case)
        self.outputs = package.outputs

    def before(self, output: str) -> Array | None:
        """See Subject: the input of that name is used in place."""
        found = getattr(self.inputs, output, None)
        return found if isinstance(found, np.ndarray) else None

    def run(self, options: RunOptions, watch: Watchpoint | None) -> tuple[Mapping[str, Array], RunReport]:
        """See Subject."""
        return self.package.run_machine(self.inputs, options, watch)

    def code(self, engine: str) -> bytes:
        """See Subject: a device takes the linked object."""
        compiled = self.package.compiled()
        return compiled.code_object if engine == "device" else compiled.object


class FileSubject:
    """A launch of a kernel of a code object file with the arguments of `gfx950 run`; every array that names an output
    file is compared, and none is written. linked: whether a relocatable object is to be linked first, as a device needs
    it, so that all engines run the same bytes."""

    def __init__(
        self,
        source: bytes,
        kernel: str | None,
        geometry: Geometry,
        arguments: Sequence[RunArgument],
        dynamic_lds: int = 0,
        hidden: Mapping[str, int] | None = None,
        formats: Mapping[str, str] | None = None,
        linked: bool = False,
    ) -> None:
        self.source = _linked(source) if linked else source
        self.kernel = code_object.load(self.source).kernel(kernel)
        self.name = self.kernel.name
        self.geometry, self.arguments, self.dynamic_lds, self.hidden = geometry, arguments, dynamic_lds, hidden
        self.names = _argument_names(self.kernel, len(arguments))
        self.formats = {self._named(name): form for name, form in (formats or {}).items()}
        written = [n for n, a in enumerate(arguments) if a.output is not None]
        self._check_formats([self.names[n] for n in written])
        self._initial = {self.names[n]: self._viewed(n, arguments[n].value) for n in written}
        self.outputs = [Output(name, self._format(name), True, _no_words) for name in self._initial]
        self._modules: dict[str, Module] = {}

    def _named(self, name: str) -> str:
        """The name of an argument that is given by its number."""
        return dict(zip(map(str, range(len(self.names))), self.names, strict=True)).get(name, name)

    def _check_formats(self, written: Sequence[str]) -> None:
        for name, form in self.formats.items():
            if name not in written:
                raise ValueError(f"--format {name}={form}: no argument that is written is called so: {_list(written)}")
            if form not in FORMATS and form not in PLAIN:
                raise ValueError(f"--format {name}={form}: formats are {', '.join((*FORMATS, *PLAIN))}")

    def _format(self, name: str) -> str:
        dtype = self._initial[name].dtype
        return self.formats.get(name) or FORMAT_OF.get(dtype.name, f"u{8 * dtype.itemsize}")

    def _viewed(self, number: int, array: Array) -> Array:
        """An array with elements of the width of the format it is said to have."""
        form = self.formats.get(self.names[number])
        wanted = np.dtype(f"u{int(form[1:]) // 8}" if form in PLAIN else FORMATS[form].code_dtype) if form else None
        if wanted is None and array.dtype.itemsize in (1, 2, 4, 8):
            return array
        wanted = wanted or np.dtype(np.uint8)
        if array.dtype.itemsize == wanted.itemsize:
            return array
        if array.nbytes % wanted.itemsize:
            raise ValueError(f"{self.names[number]} has {array.nbytes} bytes, no whole number of {form}")
        return array.reshape(-1).view(wanted)

    def before(self, output: str) -> Array | None:
        """See Subject."""
        return self._initial[output]

    def run(self, options: RunOptions, watch: Watchpoint | None) -> tuple[Mapping[str, Array], RunReport]:
        """See Subject."""
        if options.engine not in self._modules:
            self._modules[options.engine] = Device(RunOptions(engine=options.engine)).load(self.source)
        values = [copied(a.value) for a in self.arguments]
        watched = None if watch is None else (values[self.names.index(watch.output)], watch.byte)
        report = self._modules[options.engine][self.name][self.geometry](
            *values, options=options, dynamic_lds=self.dynamic_lds, watch=watched, hidden=self.hidden
        )
        return {name: self._viewed(n, values[n]) for n, name in enumerate(self.names) if name in self._initial}, report

    def code(self, engine: str) -> bytes:
        """See Subject."""
        return self.source

    def job(self) -> Job:
        """The launch as it is, for instrumented runs."""
        values = [a.value for a in self.arguments]
        return Job(self.source, self.name, self.geometry, values, self.dynamic_lds, self.hidden)


def copied(value: Any) -> Any:
    """A copy of an array, read-only where it is; anything else as it is."""
    if not isinstance(value, np.ndarray):
        return value
    fresh = np.array(value, order="C")
    fresh.flags.writeable = value.flags.writeable
    return fresh


def _argument_names(kernel: Kernel, count: int) -> list[str]:
    """The names of the metadata, where each has its own, or the numbers."""
    names = [a.name or f"arg{n}" for n, a in enumerate(kernel.explicit)]
    return names if len(names) == count == len(set(names)) else [f"arg{n}" for n in range(count)]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none is"


def _no_words(index: tuple[int, ...]) -> str:
    return ""


def _linked(source: bytes) -> bytes:
    if elf_type(source) != ET_REL:
        return source
    from codegen.link import link

    return link(source)


def evidence_of(code: bytes, kernel: str | None) -> KernelEvidence:
    """What the emulated bits of a kernel rest on, or those of all kernels."""
    loaded = code_object.load(code)
    kernels = [loaded.kernel(kernel)] if kernel is not None else list(loaded.kernels.values())
    return together([contained_rules(loaded, one) for one in kernels])


# ---- running and comparing -------------------------------------------------------------------------------------------


def diff(subject: Subject, plan: Plan) -> Comparison:
    """Runs the subject on both engines and compares every bit of every output. Raises what a run raises, NoDevice where
    a device is asked for and there is none."""
    found = Comparison(subject.name, plan.engines, plan.repeat)
    first, second = plan.engines
    left, report = _timed(found, first, lambda: subject.run(plan.of(first), None))
    found.instructions = report.instructions
    right, unstable, other = _timed(found, second, lambda: _repeated(subject, plan))
    found.milliseconds = other.milliseconds if other.milliseconds is not None else report.milliseconds
    found.arrays = [_compared(subject, plan, o, left, right, unstable.get(o.name)) for o in subject.outputs]
    if plan.writers:
        find_writers(subject, plan, found)
    return found


def _timed(found: Comparison, engine: str, run: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    try:
        return run()
    finally:
        found.seconds[engine] = found.seconds.get(engine, 0.0) + time.perf_counter() - start


def _repeated(subject: Subject, plan: Plan) -> tuple[Mapping[str, Array], dict[str, Unstable], RunReport]:
    """The second engine's first outputs, and what was not the same in later runs."""
    options = plan.of(plan.engines[1])
    first, report = subject.run(options, None)
    first = {name: array.copy() for name, array in first.items()} if plan.repeat > 1 else first
    runs: dict[str, list[Array]] = {}
    for _ in range(plan.repeat - 1):
        again, _ = subject.run(options, None)
        for name, array in again.items():
            same = array.shape == first[name].shape and np.array_equal(codes(array), codes(first[name]))
            if not same:
                runs.setdefault(name, []).append(array.copy())
    formats = {output.name: output.format for output in subject.outputs}
    found = {n: _unstable(n, first[n], others, formats[n], plan.repeat) for n, others in runs.items() if n in formats}
    return first, found, report


def _unstable(name: str, first: Array, others: list[Array], form: str, runs: int) -> Unstable:
    """What others, the runs that were not as the first, have otherwise."""
    mask, right = np.zeros(first.size, bool), codes(first)
    for other in others:
        mask |= codes(other) != right
    at = int(mask.argmax())
    found = np.array([right[at]] * (runs - len(others)) + [codes(other)[at] for other in others])
    known, digits = format_of(form, found, found), 2 * first.dtype.itemsize
    seen = Counter(known.show(code) if known is not None else f"0x{code:0{digits}x}" for code in map(int, found))
    marked = compare(name, np.zeros(first.shape, np.uint8), mask.reshape(first.shape).view(np.uint8), "u8")
    index = tuple(int(i) for i in np.unravel_index(at, first.shape))
    where = marked.where if marked is not None else ""
    return Unstable(mask.reshape(first.shape), int(np.count_nonzero(mask)), index, seen, where)


def _compared(
    subject: Subject,
    plan: Plan,
    output: Output,
    left: Mapping[str, Array],
    right: Mapping[str, Array],
    unstable: Unstable | None,
) -> ArrayDiff:
    a, b = left[output.name], right[output.name]
    found = ArrayDiff(output, a, b, unstable=unstable)
    if a.shape != b.shape or a.dtype != b.dtype:
        found.problem = f"{a.dtype}{list(a.shape)} against {b.dtype}{list(b.shape)}"
        return found
    if unstable is not None:
        b = np.where(unstable.mask, codes(a).reshape(a.shape), codes(b).reshape(a.shape)).view(b.dtype)
    found.difference = compare(output.name, a, b, output.format, subject.before(output.name), plan.engines)
    return found


# ---- who wrote it ----------------------------------------------------------------------------------------------------


def find_writers(subject: Subject, plan: Plan, found: Comparison) -> None:
    """Runs the code on the emulator again to learn who wrote what differs; adds to the arrays.

    A short run is stepped through, and then all stores are known; in a longer one a sample of elements is asked for.
    """
    wrong = [array for array in found.arrays if not array.good and not array.problem]
    if not wrong:
        return
    emulated = plan.of("host")
    instructions = found.instructions or subject.run(emulated, None)[1].instructions
    if instructions <= STEPPED:
        stores = Stores()
        outputs, _ = subject.run(replace(emulated, engine="numpy", threads=1, observers=(stores,)), None)
        for array in wrong:
            _from_stores(array, stores, outputs[array.output.name])
    for array in wrong:
        if array.writers is None and array.difference is not None:
            _from_watches(array, subject, emulated, max(1, min(SAMPLES, WATCHED // max(1, instructions))))
        if array.writers is not None:
            array.narrowed = narrowed(array.writers)
        if array.writer is not None and array.difference is not None:
            array.difference = written(array.difference)


def _from_stores(array: ArrayDiff, stores: Stores, output: Array) -> None:
    """Everything that is known of an output whose run was stepped through."""
    known = stores.of(output)
    if known is None:
        return
    size = array.a.dtype.itemsize
    writer = known[0].reshape(-1, size).max(axis=1)
    if array.unstable is not None:
        changing = narrowed(_gathered(writer, array.unstable.mask.reshape(-1), stores))
        array.unstable = replace(array.unstable, narrowed=changing)
    if array.difference is None:
        return
    bytes_at = _first_bytes(array)
    writer[array.differing] = known[0][bytes_at]
    differs = np.zeros(writer.size, bool)
    differs[array.differing] = True
    array.writers = _gathered(writer, differs, stores)
    first = int(known[0][bytes_at[0]])
    if first:
        execution, lane = divmod(first - 1, LANES)
        array.store, array.byte = stores.executions[execution], int(known[1][bytes_at[0]])
        array.writer = array.store.by(lane)


def _first_bytes(array: ArrayDiff) -> NDArray[np.intp]:
    """The first differing byte of each differing element, as an offset in the array."""
    size, at = array.a.dtype.itemsize, array.differing
    changed = (codes(array.a)[at] ^ codes(array.b)[at]).view(np.uint8).reshape(-1, size) != 0
    return np.asarray(at * size + changed.argmax(axis=1))


def _gathered(writer: NDArray[np.int32], differs: NDArray[np.bool_], stores: Stores) -> Writers:
    element = np.flatnonzero(writer)
    execution, lane = np.divmod(writer[element].astype(np.intp) - 1, LANES)
    places = [store.place for store in stores.executions]
    number = numbered(place.workgroup for place in places)
    wave = np.array([place.wave for place in places], np.intp)
    group = np.array([number[place.workgroup] for place in places], np.intp)
    return Writers(
        element, lane, wave[execution], group[execution], differs[element], list(number), True, np.ones(element.size)
    )


def _from_watches(array: ArrayDiff, subject: Subject, options: RunOptions, samples: int) -> None:
    """Asks for the writers of the first differing element, of others that differ and of some that do not."""
    assert array.difference is not None
    size, at = array.a.dtype.itemsize, array.differing

    def asked(byte: int) -> Watch | None:
        return subject.run(options, Watchpoint(array.output.name, int(byte)))[1].watch

    array.writer = asked(array.difference.byte)
    if array.writer is None or samples < 2 or at.size < 2:
        return
    chosen = np.unique(np.linspace(0, at.size - 1, samples).astype(np.intp))
    found = [(int(at[n]), asked(byte), True) for n, byte in zip(chosen, _first_bytes(array)[chosen], strict=True)]
    same = np.setdiff1d(np.linspace(0, array.a.size - 1, 2 * samples).astype(np.intp), at)[:samples]
    found += [(int(n), asked(n * size), False) for n in same]
    array.writers = writers_of([(n, w, d) for n, w, d in found if w is not None], at.size, array.a.size)
