"""Recorded goldens: one JSON with the provenance of a case, and one file with the bytes it keeps.

The JSON says how the inputs come about (kernel and case name; their generator is counter-based and fixed), the sha256
of each input, of the code object and of each output, and what the bits rest on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from codegen.kernel_package import KernelPackage, bytes_of
from gfx950.evidence import LEVELS, counted

SCHEMA = "gfx950.golden/2"
HOME = Path(__file__).parent / "recorded"
MOST_KEPT = 1 << 18  # bytes of an output that a record keeps; of larger ones only the digest

State = Literal["new", "unchanged", "same bits", "CHANGED"]
"""What writing did to a golden. same bits: only the provenance changed, the code object or the evidence."""


@dataclass
class StoredOutput:
    """One output of a record. offset and nbytes: where its bytes lie in the record's data file; None: digest only."""

    dtype: str
    shape: list[int]
    sha256: str
    offset: int | None = None
    nbytes: int | None = None


@dataclass(frozen=True)
class RecordedEvidence:
    """What a kernel's bits rest on. rules: those below `spec`, with their levels. instructions: how many of its machine
    code have each level. model: the name of the one in force, and its digest."""

    rules: dict[str, str]
    instructions: dict[str, int]
    model: str
    model_digest: str

    def __post_init__(self) -> None:
        if not isinstance(self.rules, dict) or set(self.instructions) != set(LEVELS):
            raise ValueError(f"its evidence has no rules, or no count of instructions for each of {', '.join(LEVELS)}")

    def changes(self, now: RecordedEvidence) -> list[str]:
        """What is different now, a sentence each."""
        gone, new = (sorted(set(a) - set(b)) for a, b in ((self.rules, now.rules), (now.rules, self.rules)))
        both = sorted(name for name in self.rules if now.rules.get(name, self.rules[name]) != self.rules[name])
        changed = [f"{name} is {now.rules[name]}, was {self.rules[name]}" for name in both]
        changed += [f"{name} ({now.rules[name]}) is new" for name in new]
        changed += [f"{name} (was {self.rules[name]}) is gone" for name in gone]
        if self.model_digest != now.model_digest:
            changed.append(f"the model is {now.model} ({now.model_digest}), was {self.model} ({self.model_digest})")
        if self.instructions != now.instructions:
            changed.append(f"{counted(now.instructions)}; were {counted(self.instructions)}")
        return changed


@dataclass
class Record:
    """A golden. recipe: what the inputs are made from. inputs: the sha256 of each. code_object: its sha256.

    evidence: what the bits rest on.
    """

    kernel: str
    case: str
    recipe: str
    inputs: dict[str, str]
    code_object: str
    outputs: dict[str, StoredOutput]
    evidence: RecordedEvidence
    schema: str = SCHEMA


class MissingGolden(ValueError):
    """No golden is recorded for a case."""


def sha256(data: bytes | NDArray[Any]) -> str:
    """The hex digest of bytes or of an array's bytes."""
    return hashlib.sha256(data if isinstance(data, bytes) else bytes_of(data).tobytes()).hexdigest()


def paths(kernel: str, case: str, home: Path = HOME) -> tuple[Path, Path]:
    """The JSON and the data file of a record."""
    return home / kernel / f"{case}.json", home / kernel / f"{case}.bin"


def recorded(kernel: str, home: Path = HOME) -> list[str]:
    """The cases of a kernel that have a golden."""
    return sorted(p.stem for p in (home / kernel).glob("*.json"))


def write(
    package: KernelPackage,
    case: str,
    inputs: Any,
    outputs: Mapping[str, NDArray[Any]],
    evidence: RecordedEvidence,
    home: Path = HOME,
) -> State:
    """Writes the golden of one case and says what that did. The same arguments give the same files."""
    record, data = _record(package, case, inputs, outputs, evidence)
    text = json.dumps(asdict(record), indent=1, sort_keys=True) + "\n"
    record_path, data_path = paths(package.name, case, home)
    state = _state(record, text, data, record_path, data_path)
    record_path.parent.mkdir(parents=True, exist_ok=True)
    data_path.write_bytes(data)
    record_path.write_text(text)
    return state


def _record(
    package: KernelPackage, case: str, inputs: Any, outputs: Mapping[str, NDArray[Any]], evidence: RecordedEvidence
) -> tuple[Record, bytes]:
    data = bytearray()
    stored: dict[str, StoredOutput] = {}
    for output in package.outputs:
        array = outputs[output.name]
        entry = StoredOutput(str(array.dtype), list(array.shape), sha256(array))
        if output.stored and array.nbytes <= MOST_KEPT:
            entry.offset, entry.nbytes = len(data), array.nbytes
            data += bytes_of(array).tobytes()
        stored[output.name] = entry
    code = sha256(package.compiled().object)
    recipe, digests = package.recipe(case), package.digests(inputs)
    return Record(package.name, case, recipe, digests, code, stored, evidence), bytes(data)


def _state(record: Record, text: str, data: bytes, record_path: Path, data_path: Path) -> State:
    if not record_path.is_file():
        return "new"
    if not data_path.is_file() or data_path.read_bytes() != data:
        return "CHANGED"
    if record_path.read_text() == text:
        return "unchanged"
    try:
        before = _parsed(record_path)
    except ValueError:
        return "CHANGED"
    return "same bits" if (before.inputs, before.outputs) == (record.inputs, record.outputs) else "CHANGED"


def read(kernel: str, case: str, home: Path = HOME) -> tuple[Record, dict[str, NDArray[Any]]]:
    """A record and the outputs whose bytes it keeps.

    Raises MissingGolden when there is none and ValueError when its files do not fit together.
    """
    record_path, data_path = paths(kernel, case, home)
    if not record_path.is_file():
        raise MissingGolden(
            f"no golden is recorded for {kernel} case {case}; after a review record it with"
            f" `gfx950 golden record {kernel} --case {case}`"
        )
    record = _parsed(record_path)
    if (record.kernel, record.case) != (kernel, case):
        raise ValueError(f"{record_path.name} is the golden of {record.kernel} case {record.case}: the file was moved")
    if not data_path.is_file():
        raise ValueError(f"{data_path.name} with the bytes of the golden is missing; only {record_path.name} is there")
    data = data_path.read_bytes()
    kept = {name: entry for name, entry in record.outputs.items() if entry.offset is not None}
    return record, {name: _load(entry, data, f"{data_path.name}: {name}") for name, entry in kept.items()}


def _parsed(path: Path) -> Record:
    try:
        raw = json.loads(path.read_text())
        if raw.get("schema") != SCHEMA:
            raise ValueError(f"its schema is {raw.get('schema')!r}, expected {SCHEMA!r}")
        outputs = {name: StoredOutput(**entry) for name, entry in raw.pop("outputs").items()}
        return Record(outputs=outputs, evidence=RecordedEvidence(**raw.pop("evidence")), **raw)
    except KeyError as error:
        raise ValueError(f"{path.name} is no golden record: it has no {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path.name} is no golden record: {error}") from error


def _load(entry: StoredOutput, data: bytes, what: str) -> NDArray[Any]:
    found = data[entry.offset : (entry.offset or 0) + (entry.nbytes or 0)]
    if hashlib.sha256(found).hexdigest() != entry.sha256:
        raise ValueError(f"{what} does not have the sha256 of the record: the file is damaged")
    try:
        return np.frombuffer(found, dtype=entry.dtype).reshape(entry.shape)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} is no {entry.dtype}{entry.shape}: {error}") from error
