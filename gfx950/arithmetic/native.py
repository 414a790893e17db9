"""Big instruction bodies as host functions that both engines call by address.

A native works on whole registers: `inputs` is [n_in][64] uint32 (register-major, 64 lanes), `outputs` [n_out][64],
and `parameters` is one packed integer whose meaning the native documents. Bodies are numba functions, compiled on
first use and kept in numba's disk cache. Nothing here imports numba before a native is used.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gfx950.lanes import LANES

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
    Python source of the function, or "module:attribute" where to find it, imported on first use.
    """

    def __init__(self, name: str, n_in: int, n_out: int, body: Body | str) -> None:
        self.name, self.n_in, self.n_out = name, n_in, n_out
        self._body = body

    def __repr__(self) -> str:
        return f"Native({self.name!r}, n_in={self.n_in}, n_out={self.n_out})"

    def _function(self) -> Body:
        if not isinstance(self._body, str):
            return self._body
        module, _, attribute = self._body.partition(":")
        function: Body = getattr(importlib.import_module(module), attribute)
        return function

    @functools.cached_property
    def host_function(self) -> Any:
        """The compiled numba `CFunc`, from the disk cache where it is there."""
        types: Any = importlib.import_module("numba.core.types")
        make: Any = importlib.import_module("numba.core.ccallback").CFunc
        body = self._function()
        words = types.CPointer(types.uint32)
        signature = types.void(words, words, types.int64)
        function = make(body, (signature.args, signature.return_type), locals={}, options={"error_model": "numpy"})
        function.enable_caching()
        watch_sources(function._cache, body)
        function.compile()
        return function

    @property
    def address(self) -> int:
        """The address of the host function, valid for the life of the process."""
        return int(self.host_function.address)

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
        count = outputs.size // (self.n_out * LANES)
        addresses = (self.address, source.ctypes.data, outputs.ctypes.data)
        _item_loop()(*addresses, count, self.n_in * LANES * 4, self.n_out * LANES * 4, parameters)
        return outputs


NATIVES: dict[str, Native] = {}


def declare(name: str, n_in: int, n_out: int, body: Body | str) -> Native:
    """Enters a native in `NATIVES`. Raises ValueError when the name is taken."""
    if name in NATIVES:
        raise ValueError(f"native {name!r} is declared twice; it stands for {NATIVES[name]!r} already")
    NATIVES[name] = Native(name, n_in, n_out, body)
    return NATIVES[name]


def native(name: str, n_in: int, n_out: int) -> Callable[[Body], Native]:
    """Decorator: makes `def body(inputs, outputs, parameters)` the native `name`.

    The body sees two flat uint32 pointers: register r of lane l is `inputs[64 * r + l]`. It may call functions made
    by `compiled`.
    """
    return lambda body: declare(name, n_in, n_out, body)


@functools.cache
def _item_loop() -> Callable[..., None]:
    from gfx950.arithmetic import native_loop

    loop: Callable[..., None] = native_loop.run_items
    return loop
