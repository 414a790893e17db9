"""What a kernel folder offers to the rest of the project. `codegen/kernels/<name>/package.py` holds one `PACKAGE`."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.compile import Compiled
from codegen.ir import Program
from emu.dispatch import RunOptions, RunReport

Array = NDArray[Any]


@dataclass(frozen=True)
class Output:
    """One array a kernel writes. name: its key. format: a `gfx950.formats` name, or "u8" for plain bytes. stored: how
    much of it a recorded golden keeps: the bytes themselves (where they are not many), or only their digest."""

    name: str
    format: str
    stored: bool
    describe: Callable[[tuple[int, ...]], str]


@dataclass(frozen=True)
class Watchpoint:
    """A byte of an output whose last writer is asked for."""

    output: str
    byte: int


@dataclass(frozen=True)
class KernelPackage:
    """A kernel with its cases and its oracles.

    cases: names with one line each. build(case) -> inputs. digests(inputs): sha256 of each input array. run_source and
    run_machine give the outputs by name; both leave the inputs as they are. bound(inputs, outputs): where the outputs
    leave the derived error bound of the float64 reference, one sentence each. recipe(case): what its inputs are made
    from, as text for the record of a golden.
    """

    name: str
    cases: Mapping[str, str]
    build: Callable[[str], Any]
    digests: Callable[[Any], dict[str, str]]
    outputs: Sequence[Output]
    run_source: Callable[[Any], dict[str, Array]]
    run_machine: Callable[[Any, RunOptions, Watchpoint | None], tuple[dict[str, Array], RunReport]]
    bound: Callable[[Any, dict[str, Array]], list[str]]
    programs: Callable[[], Sequence[Program]]
    compiled: Callable[[], Compiled]
    recipe: Callable[[str], str] = str

    def output(self, name: str) -> Output:
        """The output of that name."""
        return next(o for o in self.outputs if o.name == name)


def kernel_names() -> list[str]:
    """The kernels there are: the folders under codegen/kernels that hold a package."""
    import codegen.kernels as home

    found = [m.name for m in pkgutil.iter_modules(home.__path__) if m.ispkg]
    return sorted(n for n in found if importlib.util.find_spec(f"codegen.kernels.{n}.package"))


def kernel_package(name: str) -> KernelPackage:
    """The package of a kernel. Raises ValueError with the nearest names when there is none."""
    names = kernel_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"there is no kernel {name!r}; there are: {', '.join(names) or 'none'}{hint}")
    package: KernelPackage = importlib.import_module(f"codegen.kernels.{name}.package").PACKAGE
    return package


def chosen_cases(package: KernelPackage, cases: Sequence[str]) -> list[str]:
    """These cases, or all where there are none. Raises ValueError with the nearest names when one does not exist."""
    for case in cases:
        if case not in package.cases:
            near = difflib.get_close_matches(case, package.cases, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"{package.name} has no case {case!r}; there are: {', '.join(package.cases)}{hint}")
    return list(cases or package.cases)


def case_inputs(package: KernelPackage, case: str) -> Any:
    """The inputs of a case. Raises ValueError with the nearest names when there is no such case."""
    (chosen,) = chosen_cases(package, [case])
    return package.build(chosen)


def bytes_of(array: Array) -> NDArray[np.uint8]:
    """An array's bytes in C order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
