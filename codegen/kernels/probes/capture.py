"""The capture of a run of probes: one file with the raw bits of every step, what made them, and digests of all of it.

The file is a zip: `capture.json` says where the bits come from and what each step is (in order, with SHA-256 of its
inputs, of the code object that ran and of its output), `steps/<number>` holds the output's bytes. While a run lasts,
finished probes lie in a folder `<file>.part`; a run that is broken off goes on from there, and the file appears only
when it is whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import shutil
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfx950.whole_files import check_target, write_whole

Array = NDArray[Any]
SCHEMA = "gfx950.capture/1"
INDEX = "capture.json"
LARGEST = 1 << 30  # bytes of outputs that a capture may claim to hold
LARGEST_INDEX = 1 << 25
MOST_AXES = 8  # of an output
NUMBERS = re.compile(r"[<|][uif][1248]")  # dtypes of outputs
DIGEST = re.compile(r"[0-9a-f]{64}")
# What zipfile, its decompressors and its decoding of names may raise over a damaged file.
DAMAGE = (
    OSError, zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError,
    OverflowError, IndexError, KeyError,
)  # fmt: skip


class CaptureError(ValueError):
    """A file that is no whole capture, or not of what it is compared with. Message: the file and what is wrong."""


@dataclass(frozen=True)
class Origin:
    """What the bits come from. kind: device or emulator. name: the device's, or the emulator's version. The others are
    what the system says, empty where it does not."""

    kind: str
    name: str
    architecture: str = "gfx950"
    rocm: str = ""
    driver: str = ""
    firmware: str = ""

    @property
    def text(self) -> str:
        """One line."""
        more = [f"{key} {value}" for key, value in asdict(self).items() if key not in ("kind", "name") and value]
        return ", ".join([f"{self.kind} {self.name}", *more])


@dataclass(frozen=True)
class Entry:
    """One step of a capture. shape, dtype: of its output. inputs, code, output: SHA-256."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    inputs: str
    code: str
    output: str

    @property
    def nbytes(self) -> int:
        """Bytes of the output."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Capture:
    """A whole capture. size: the name of the size it was run at. read(name): the output of a step."""

    origin: Origin
    size: str
    entries: Mapping[str, Entry]
    outputs: Mapping[str, bytes]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what it says, digests of all outputs included."""
        return hashlib.sha256(_index(self.origin, self.size, self.entries.values())).hexdigest()

    def read(self, name: str) -> Array:
        """The output of a step, read-only. Raises CaptureError for a step it does not have."""
        if name not in self.entries:
            raise CaptureError(f"the capture of {self.origin.text} has no step {name}")
        entry = self.entries[name]
        return np.frombuffer(self.outputs[name], dtype=entry.dtype).reshape(entry.shape)


def _index(origin: Origin, size: str, entries: Iterable[Entry]) -> bytes:
    content = {"schema": SCHEMA, "origin": asdict(origin), "size": size, "steps": [asdict(e) for e in entries]}
    return json.dumps(content, indent=1).encode() + b"\n"


def entry_of(name: str, inputs: str, code: str, output: Array) -> Entry:
    """The entry of an output. inputs, code: SHA-256 of what was run."""
    digest = hashlib.sha256(np.ascontiguousarray(output).tobytes()).hexdigest()
    return Entry(name, tuple(output.shape), output.dtype.str, inputs, code, digest)


def make(origin: Origin, size: str, steps: Iterable[tuple[Entry, Array]]) -> Capture:
    """A capture of outputs that are at hand. Raises CaptureError when two steps have one name."""
    return _whole(origin, size, [(entry, np.ascontiguousarray(output).tobytes()) for entry, output in steps])


def _whole(origin: Origin, size: str, pairs: Sequence[tuple[Entry, bytes]]) -> Capture:
    twice = [name for name, count in Counter(entry.name for entry, _ in pairs).items() if count > 1]
    if twice:
        raise CaptureError(f"two steps of a capture are called {twice[0]}; every step has a name of its own")
    return Capture(origin, size, {e.name: e for e, _ in pairs}, {e.name: data for e, data in pairs})


def write(capture: Capture, path: Path) -> None:
    """Writes the file, whole or not at all."""
    write_whole(path, _zipped(capture))


def _zipped(capture: Capture) -> bytes:
    """The content of a capture's file."""
    content = io.BytesIO()
    entries = capture.entries.values()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as zipped:
        zipped.writestr(zipfile.ZipInfo(INDEX), _index(capture.origin, capture.size, entries), zipfile.ZIP_DEFLATED)
        for number, entry in enumerate(entries):
            zipped.writestr(zipfile.ZipInfo(f"steps/{number}"), capture.outputs[entry.name], zipfile.ZIP_DEFLATED)
    return content.getvalue()


def read(path: Path) -> Capture:
    """Reads a capture and checks every digest. Raises CaptureError for anything that is not one, whole and unharmed;
    takes no more memory than LARGEST for outputs, whatever the file claims."""
    try:
        with zipfile.ZipFile(path) as zipped:
            return _read_zip(path, zipped)
    except CaptureError:
        raise
    except DAMAGE as error:
        raise CaptureError(f"{path} is no capture, or damaged: {error}") from None


def _read_zip(path: Path, zipped: zipfile.ZipFile) -> Capture:
    members = {info.filename: info for info in zipped.infolist()}
    if INDEX not in members:
        raise CaptureError(f"{path} is no capture: it has no {INDEX}")
    index = _index_of(path, _member(path, zipped, members[INDEX], LARGEST_INDEX))
    try:
        origin, entries = _origin_of(index["origin"]), [_entry_of(step) for step in index["steps"]]
        size = _word(index["size"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CaptureError(f"{path} is no capture, or damaged: its {INDEX} does not read ({error})") from None
    claimed = sum(entry.nbytes for entry in entries)
    if claimed > LARGEST:
        raise CaptureError(f"{path} claims {claimed} bytes of outputs; a capture has at most {LARGEST}")
    _check_members(path, zipped, entries)
    outputs = [_checked(path, zipped, members[f"steps/{n}"], entry) for n, entry in enumerate(entries)]
    try:
        return _whole(origin, size, list(zip(entries, outputs, strict=True)))
    except CaptureError as error:
        raise CaptureError(f"{path}: {error}") from None


def _index_of(path: Path, data: bytes) -> dict[str, Any]:
    try:
        index = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CaptureError(f"{path} is no capture, or damaged: its {INDEX} does not read ({error})") from None
    if not isinstance(index, dict) or "schema" not in index:
        raise CaptureError(f"{path} is no capture: its {INDEX} has no schema")
    if index["schema"] != SCHEMA:
        raise CaptureError(f"{path}: its schema is {index['schema']!r}, this version reads {SCHEMA!r}")
    return index


def _word(value: Any, pattern: re.Pattern[str] | None = None) -> str:
    if not isinstance(value, str) or (pattern and not pattern.fullmatch(value)):
        raise ValueError(f"{value!r} is not what belongs there")
    return value


def _origin_of(found: dict[str, Any]) -> Origin:
    return Origin(**{key: _word(value) for key, value in found.items()})


def _entry_of(found: dict[str, Any]) -> Entry:
    entry = Entry(**{**found, "shape": tuple(found["shape"])})
    _word(entry.name)
    _word(entry.dtype, NUMBERS)
    for digest in (entry.inputs, entry.code, entry.output):
        _word(digest, DIGEST)
    if len(entry.shape) > MOST_AXES or any(type(n) is not int or n < 0 for n in entry.shape):
        raise ValueError(f"{entry.shape} is no shape")
    return entry


def _check_members(path: Path, zipped: zipfile.ZipFile, entries: Sequence[Entry]) -> None:
    """A capture has its index and one member a step, each once."""
    names, wanted = zipped.namelist(), [INDEX, *(f"steps/{n}" for n in range(len(entries)))]
    if missing := sorted(set(wanted) - set(names)):
        entry = entries[int(missing[0].partition("/")[2])]
        raise CaptureError(f"{path} is damaged: the output of step {entry.name} is missing")
    if len(names) != len(wanted) or set(names) != set(wanted):
        more = sorted((Counter(names) - Counter(wanted)).elements())[0]
        raise CaptureError(f"{path} is no capture: it has {more!r}, which a capture has not, or not twice")


def _checked(path: Path, zipped: zipfile.ZipFile, member: zipfile.ZipInfo, entry: Entry) -> bytes:
    data = _member(path, zipped, member, entry.nbytes) if member.file_size == entry.nbytes else b""
    if len(data) != entry.nbytes or hashlib.sha256(data).hexdigest() != entry.output:
        raise CaptureError(f"{path} is damaged: the output of step {entry.name} is not what its digest says")
    return data


def _member(path: Path, zipped: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> bytes:
    """The bytes of a member, which may be `most`: neither its claim nor what it unpacks to is trusted."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise CaptureError(f"{path} is no capture: {member.filename} is packed by method {member.compress_type}")
    if member.file_size > most:
        raise CaptureError(f"{path}: {member.filename} claims {member.file_size} bytes; it has at most {most}")
    with zipped.open(member) as file:
        return file.read(most + 1)


class Unfinished:
    """The folder of a run that goes on: a file for each finished probe. Left by a run that was broken off, it is taken
    up again if it is of the same origin and size."""

    def __init__(self, path: Path, origin: Origin, size: str) -> None:
        path = path.resolve() if path.is_symlink() else path  # a link stays one
        if path.name:
            path.parent.mkdir(parents=True, exist_ok=True)
        check_target(path)
        self.path, self.origin, self.size = path, origin, size
        self.folder = path.with_name(f"{path.name}.part")
        if self.folder.exists() and not self.folder.is_dir():
            raise OSError(f"{self.folder} is no folder, and the parts of {path} go there; move it")
        self.folder.mkdir(exist_ok=True)

    def finished(self, probe: str) -> Capture | None:
        """What an earlier run left of a probe; None when it must be run."""
        try:
            found = read(self.folder / probe)
        except CaptureError:
            return None
        return found if (found.origin, found.size) == (self.origin, self.size) else None

    def keep(self, probe: str, steps: Iterable[tuple[Entry, Array]]) -> Capture:
        """Keeps a probe's outputs."""
        if (self.folder / probe).is_dir():
            raise OSError(f"{self.folder / probe} is a folder, and what {probe} gives goes there; move it")
        made = make(self.origin, self.size, steps)
        write(made, self.folder / probe)
        return made

    def finish(self, parts: Iterable[Capture]) -> Capture:
        """Writes the whole capture and removes the folder."""
        pairs = [(entry, part.outputs[name]) for part in parts for name, entry in part.entries.items()]
        whole = _whole(self.origin, self.size, pairs)
        made = self.folder / ".whole"  # so that a run that is killed leaves nothing but the folder
        write(whole, made)
        os.replace(made, self.path)
        shutil.rmtree(self.folder, ignore_errors=True)
        return whole
