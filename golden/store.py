"""Recorded goldens: one JSON with the provenance of a case, and one file with the bytes it keeps.

The JSON says how the inputs come about (kernel and case name; their generator is counter-based and fixed), the sha256
of each input, of the code object and of each output, and what the bits rest on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.kernel_package import KernelPackage, bytes_of

SCHEMA = "gfx950.golden/1"
HOME = Path(__file__).parent / "recorded"


@dataclass
class StoredOutput:
    """One output of a record. offset and nbytes: where its bytes lie in the record's data file; None: digest only."""

    dtype: str
    shape: list[int]
    sha256: str
    offset: int | None = None
    nbytes: int | None = None


@dataclass
class Record:
    """A golden. evidence: the weakest level and the rules below `spec` that the kernel's instructions follow."""

    kernel: str
    case: str
    inputs: dict[str, str]
    code_object: str
    outputs: dict[str, StoredOutput]
    evidence: dict[str, str] = field(default_factory=dict)
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
    evidence: dict[str, str],
    home: Path = HOME,
) -> Path:
    """Writes the golden of one case, data file first. Returns the JSON's path."""
    record_path, data_path = paths(package.name, case, home)
    record_path.parent.mkdir(parents=True, exist_ok=True)
    data = bytearray()
    stored: dict[str, StoredOutput] = {}
    for output in package.outputs:
        array = outputs[output.name]
        entry = StoredOutput(str(array.dtype), list(array.shape), sha256(array))
        if output.stored:
            entry.offset, entry.nbytes = len(data), array.nbytes
            data += bytes_of(array).tobytes()
        stored[output.name] = entry
    code = sha256(package.compiled().object)
    record = Record(package.name, case, package.digests(inputs), code, stored, evidence)
    data_path.write_bytes(bytes(data))
    record_path.write_text(json.dumps(asdict(record), indent=1, sort_keys=True) + "\n")
    return record_path


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
    try:
        raw = json.loads(record_path.read_text())
        if raw.get("schema") != SCHEMA:
            raise ValueError(f"schema {raw.get('schema')!r}, expected {SCHEMA!r}")
        outputs = {name: StoredOutput(**entry) for name, entry in raw.pop("outputs").items()}
        record = Record(outputs=outputs, **raw)
    except (json.JSONDecodeError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{record_path.name} is no golden record: {error}") from error
    return record, {name: _load(entry, data_path, name) for name, entry in outputs.items() if entry.offset is not None}


def _load(entry: StoredOutput, path: Path, name: str) -> NDArray[Any]:
    data = path.read_bytes()[entry.offset : (entry.offset or 0) + (entry.nbytes or 0)]
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise ValueError(f"{path.name}: the bytes of {name} do not have the digest of the record: the file is damaged")
    return np.frombuffer(data, dtype=entry.dtype).reshape(entry.shape)
