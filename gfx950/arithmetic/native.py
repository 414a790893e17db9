"""Big instruction bodies as host functions that both engines call by address.

A native works on whole registers: `inputs` is [n_in][64] uint32 (register-major, 64 lanes), `outputs` [n_out][64],
and `parameters` is one packed integer whose meaning the native documents. Bodies are numba functions, compiled on first
use; the code is kept with the other translations (`gfx950.host_code`), so that later processes need no numba at all.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gfx950.host_code import HostCode, Translation, once
from gfx950.lanes import LANES
from gfx950.models import Model, in_force

Body = Callable[[Any, Any, Any], None]
_Function = TypeVar("_Function", bound=Callable[..., Any])
Stamp = tuple[tuple[str, float, int], ...]


def _njit(function: _Function, **options: bool) -> _Function:
    numba: Any = importlib.import_module("numba")
    result: _Function = numba.njit(error_model="numpy", **options)(function)
    return result


def compiled(function: _Function) -> _Function:
    """`function` compiled by numba when first called, without fast-math: for the parts that native bodies are made of.

    Not cached on disk itself: the native that calls it is, so that a change of any part is seen.
    """
    return _njit(function)


def compiled_entry(function: _Function) -> _Function:
    """As `compiled`, and kept in numba's disk cache: for functions that Python calls."""
    entry: Any = _njit(function, cache=True)
    watch_sources(entry._cache, function)
    result: _Function = entry
    return result


def watch_sources(cache: Any, function: Callable[..., Any]) -> None:
    """Makes a numba cache forget what it holds when any file beside `function` changes; numba itself watches only the
    function's own file."""
    cache._cache_file._source_stamp = sources_stamp(function)


def sources_stamp(function: Callable[..., Any]) -> Stamp:
    """Path, time and size of the source of every module of this package that `function`'s module takes names from, at
    any remove."""
    root, waiting, files = function.__module__.partition(".")[0], [function.__module__], {}
    while waiting:
        name = waiting.pop()
        module = sys.modules[name]
        if name in files or not getattr(module, "__file__", None):
            continue
        files[name] = str(module.__file__)
        for value in vars(module).values():
            origin = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(origin, str) and origin.partition(".")[0] == root and origin in sys.modules:
                waiting.append(origin)
    return tuple((path, os.stat(path).st_mtime, os.stat(path).st_size) for path in sorted(files.values()))


class Native:
    """One host function of signature `void(uint32* inputs, uint32* outputs, int64 parameters)`.

    The two blocks must not overlap. name: its key in `NATIVES`. n_in, n_out: registers read and written. body: the
    Python source of the function, or "module:attribute" where to find it, imported when it must be compiled.
    """

    kept = True  # whether the compiled code may be kept for later processes

    def __init__(self, name: str, n_in: int, n_out: int, body: Body | str) -> None:
        self.name, self.n_in, self.n_out = name, n_in, n_out
        self._body = body

    def __repr__(self) -> str:
        return f"Native({self.name!r}, n_in={self.n_in}, n_out={self.n_out})"

    def _function(self) -> Body:
        return _found(self._body) if isinstance(self._body, str) else self._body

    @functools.cached_property
    def address(self) -> int:
        """The address of the host function, valid for the life of the process."""
        code = _host_code()
        named = self.kept and isinstance(self._body, str)
        key = f"native|{self._body}|{_sources_digest()}" if named else None
        return code.address(code.add(lambda: _translation(self._function()), key)["symbol"])

    def under(self, model: Model) -> Native:
        """The native that stands for this one under a model; itself unless a kind of natives says otherwise."""
        return self

    def __call__(self, inputs: npt.NDArray[np.uint32], parameters: int = 0) -> npt.NDArray[np.uint32]:
        """Runs the native on `inputs`, uint32 of shape (..., n_in, 64); returns uint32 of shape (..., n_out, 64).

        Leading dimensions are independent items with the same `parameters`. Raises TypeError for another dtype,
        ValueError for another shape.
        """
        if inputs.dtype != np.uint32:
            raise TypeError(
                f"{self.name} takes uint32 registers, got {inputs.dtype}; use .view(numpy.uint32) to pass bits"
            )
        if inputs.shape[-2:] != (self.n_in, LANES):
            raise ValueError(f"{self.name} takes inputs of shape (..., {self.n_in}, {LANES}), got {inputs.shape}")
        leading = inputs.shape[:-2]
        source = np.ascontiguousarray(inputs)
        outputs = np.empty((*leading, self.n_out, LANES), np.uint32)
        self._run_items(source, outputs, outputs.size // (self.n_out * LANES), parameters)
        return outputs

    def _run_items(
        self, inputs: npt.NDArray[np.uint32], outputs: npt.NDArray[np.uint32], count: int, parameters: int
    ) -> None:
        sizes = count, self.n_in * LANES * 4, self.n_out * LANES * 4
        _item_loop()(self.address, inputs.ctypes.data, outputs.ctypes.data, *sizes, parameters)


NATIVES: dict[str, Native] = {}


def enter(native: Native) -> Native:
    """Enters a native in `NATIVES`. Raises ValueError when the name is taken."""
    if native.name in NATIVES:
        raise ValueError(f"native {native.name!r} is declared twice; it stands for {NATIVES[native.name]!r} already")
    NATIVES[native.name] = native
    return native


def declare(name: str, n_in: int, n_out: int, body: Body | str) -> Native:
    """Enters a native that is the same under every model."""
    return enter(Native(name, n_in, n_out, body))


def native_in_force(name: str) -> Native:
    """The native of that name under the model in force."""
    return NATIVES[name].under(in_force())


def native(name: str, n_in: int, n_out: int) -> Callable[[Body], Native]:
    """Decorator: makes `def body(inputs, outputs, parameters)` the native `name`.

    The body sees two flat uint32 pointers: register r of lane l is `inputs[64 * r + l]`. It may call functions made
    by `compiled`.
    """
    return lambda body: declare(name, n_in, n_out, body)


def named(name: str, body: Body) -> Body:
    """A body made by a function, under a name of its own: the code of several natives stands side by side."""
    body.__name__ = body.__qualname__ = name
    return body


# ---- code ------------------------------------------------------------------------------------------------------------

_LOOP = """
define void @run_items(ptr %function, ptr %inputs, ptr %outputs, i64 %count, i64 %in, i64 %out, i64 %parameters) {
entry:
  %none = icmp eq i64 %count, 0
  br i1 %none, label %done, label %item
item:
  %i = phi i64 [ 0, %entry ], [ %next, %item ]
  %from = phi ptr [ %inputs, %entry ], [ %from.next, %item ]
  %to = phi ptr [ %outputs, %entry ], [ %to.next, %item ]
  call void %function(ptr %from, ptr %to, i64 %parameters)
  %from.next = getelementptr i8, ptr %from, i64 %in
  %to.next = getelementptr i8, ptr %to, i64 %out
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %item, label %done
done:
  ret void
}
"""


@once
def _host_code() -> HostCode:
    return HostCode(opt=3)


@once
def _item_loop() -> Callable[..., None]:
    """The loop that runs a native over many items."""
    code = _host_code()
    code.add(lambda: Translation(_LOOP), f"native loop|{hashlib.sha256(_LOOP.encode()).hexdigest()}")
    kinds = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 4
    return ctypes.CFUNCTYPE(None, *kinds)(code.address("run_items"))


@functools.cache
def _sources_digest() -> str:
    """A digest of every file that a native's body can be made of."""
    folder = Path(__file__).parent
    total = hashlib.sha256()
    for path in (*sorted(folder.glob("*.py")), folder.parent / "formats.py", folder.parent / "layouts.py"):
        total.update(path.read_bytes())
    return total.hexdigest()


def _translation(body: Body) -> Translation:
    """A body as a native calls it."""
    return _plain_function(body, ("words", "words", "number"))


def _plain_function(body: Callable[..., None], kinds: tuple[str, ...]) -> Translation:
    """The LLVM text that numba makes of a body, with a plain C function around it."""
    numba: Any = importlib.import_module("numba")
    types: Any = importlib.import_module("numba.core.types")
    of_kind = {
        "words": types.CPointer(types.uint32),
        "integers": types.CPointer(types.int32),
        "numbers": types.CPointer(types.int64),
        "number": types.int64,
    }
    make = numba.njit(
        types.void(*(of_kind[kind] for kind in kinds)),
        error_model="numpy",
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
    )
    (made,) = make(body).overloads.values()
    text, inner = str(made.library.get_llvm_str()), made.fndesc.llvm_func_name
    for name, intrinsic in _MATHEMATICS.items():
        text = re.sub(rf"@{name}\b", f"@{intrinsic}", text)
    foreign = re.findall(r"^declare .*@(?!llvm\.)([\w.]+)", text, re.MULTILINE)
    if foreign:
        raise ValueError(f"native {body.__name__} calls {', '.join(foreign)}, which translated code does not have")
    symbol = f"native_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    arguments = ", ".join(f"{'i64' if kind == 'number' else 'ptr'} %a{i}" for i, kind in enumerate(kinds))
    around = _WRAPPER.format(symbol=symbol, inner=inner, arguments=arguments)
    return Translation(f"{text}\n{around}", {"symbol": symbol})


@functools.cache
def function_address(body: str, kinds: tuple[str, ...]) -> int:
    """The address of a C function made of the numba function at "module:attribute", kept with the natives' code.

    kinds: of its arguments: "words" (uint32*), "integers" (int32*), "numbers" (int64*), "number" (int64). It returns
    nothing.
    """
    code, key = _host_code(), f"function|{body}|{kinds}|{_sources_digest()}"
    return code.address(code.add(lambda: _plain_function(_found(body), kinds), key)["symbol"])


def add_host_function(text: str, symbol: str, kept: bool = False) -> int:
    """The address of a function of LLVM text. kept: for later processes too, which must not be if it holds
    addresses."""
    code = _host_code()
    code.add(lambda: Translation(text), f"text|{hashlib.sha256(text.encode()).hexdigest()}" if kept else None)
    return code.address(symbol)


def _found(name: str) -> Body:
    module, _, attribute = name.partition(":")
    function: Body = getattr(importlib.import_module(module), attribute)
    return function


_MATHEMATICS = {"sqrt": "llvm.sqrt.f64", "sqrtf": "llvm.sqrt.f32"}  # functions that hosts have as instructions
# numba's own convention: a place for the result and one for an exception come first; a body has neither.
_WRAPPER = """
define void @{symbol}({arguments}) {{
  %result = alloca ptr
  %raised = alloca ptr
  %status = call i32 @"{inner}"(ptr %result, ptr %raised, {arguments})
  ret void
}}
"""
