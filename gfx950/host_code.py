"""Host code from LLVM text, kept on disk: what was translated once is only loaded the next time."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
VERSION = "2"  # part of every cache key: change it when emitted code or the form of the files changes meaning


def once(make: Callable[[], T]) -> Callable[[], T]:
    """The function's one value, made once whichever threads ask first: `functools.cache` would let each make its own,
    and what the losers made, code that they may already call, would be freed."""
    lock, kept = threading.RLock(), functools.cache(make)

    @functools.wraps(make)
    def value() -> T:
        with lock:
            return kept()

    return value


@dataclass(frozen=True)
class Translation:
    """LLVM text and what its user must know about it. notes: plain JSON, kept beside the compiled object."""

    text: str
    notes: dict[str, Any] = field(default_factory=dict)


class HostCode:
    """Compiles LLVM text to host code. opt: LLVM's codegen level.

    Cache folder: GFX950_CACHE, else the user's cache folder. A folder that cannot be written costs only time, and a
    file that is damaged is made again.
    """

    def __init__(self, opt: int = 0) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.llvm = llvm
        cpu, features = _host()
        self.machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=cpu, features=features, opt=opt, jit=True, codemodel="jitdefault"
        )
        version = ".".join(map(str, llvm.llvm_version_info))
        self.key = "|".join((VERSION, cpu, features, str(opt), version, platform.machine()))
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.machine)
        self.lock = threading.RLock()

    def add(self, make: Callable[[], Translation], key: str | None) -> dict[str, Any]:
        """Makes the functions of a module available and returns its notes. make() runs only when `key` is not kept;
        what has no key is not kept."""
        notes, data = self._made(make) if key is None else self._kept(make, key)
        with self.lock:
            self.engine.add_object_file(self.llvm.object_file.ObjectFileRef.from_data(data))
            self.engine.finalize_object()
        return notes

    def _made(self, make: Callable[[], Translation]) -> tuple[dict[str, Any], bytes]:
        made = make()
        return made.notes, self._compile(made.text)

    def _kept(self, make: Callable[[], Translation], key: str) -> tuple[dict[str, Any], bytes]:
        digest = hashlib.sha256(f"{self.key}|{key}".encode()).hexdigest()
        path = cache_folder() / f"{digest}.gfx950"
        kept = _read(path)
        if kept is None:
            kept = self._made(make)
            _keep(path, *kept)
        return kept

    def _compile(self, text: str) -> bytes:
        module = self.llvm.parse_assembly(text)
        data: bytes = self.machine.emit_object(module)
        return data

    def address(self, name: str) -> int:
        """The address of a function, 0 when there is none."""
        return int(self.engine.get_function_address(name))


@functools.cache
def _host() -> tuple[str, str]:
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def cache_folder() -> Path:
    """Where translations are kept."""
    chosen = os.environ.get("GFX950_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gfx950"


def _read(path: Path) -> tuple[dict[str, Any], bytes] | None:
    """The notes and the object of a kept file: a checksum, a line of JSON, the object. None for anything damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    body = content[32:]
    if len(content) < 33 or hashlib.sha256(body).digest() != content[:32]:
        return None
    notes, _, data = body.partition(b"\n")
    return json.loads(notes), data


def _keep(path: Path, notes: dict[str, Any], data: bytes) -> None:
    """Writes under another name first, so that nobody reads half a file; failing costs only the next translation."""
    body = json.dumps(notes).encode() + b"\n" + data
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            temporary = file.name
            file.write(hashlib.sha256(body).digest() + body)
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
