"""The `--arg` texts of `gfx950 run`: numbers and .npy files become kernel arguments, results go back to files.

Forms, in the order of the kernel's arguments:

    in.npy                      an array, read-only: a kernel that writes it faults
    in.npy:out.npy              an array used in place; what the kernel left in it is written to out.npy
    zeros:DTYPE:SHAPE:out.npy   a new zeroed array, written to out.npy; DTYPE u8 .. u64, i8 .. i64, f16, f32, f64;
                                SHAPE as 64x128
    5  -3  0x10  1.5            a number, in the type and size the code object's metadata gives the argument
    1.5f  i32:5  f32:1.0        a number of a stated type, whose size must be that of the metadata
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.code_object import Argument, Kernel
from emu.launch_state import POINTER_KINDS

DTYPES: dict[str, type[np.generic]] = {
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
ADDRESS_BYTES = 8
LONGEST_SIZE = 20  # digits
LONGEST_TEXT = 4096  # of one --arg: the longest path


@dataclass(frozen=True)
class RunArgument:
    """One argument. value: what the launch takes. typed: bytes of a number whose type was stated, else None.
    output: the file that receives the array after the run, or None."""

    text: str
    value: Any
    typed: int | None = None
    output: Path | None = None


def parse_argument(text: str) -> RunArgument:
    """One `--arg` text. Raises ValueError that names the text and the forms there are, OSError for unreadable files."""
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"--arg {text[:40]!r}... has {len(text)} characters, more than {LONGEST_TEXT}")
    head, *rest = text.split(":")
    if head == "zeros":
        return _zeros(text, rest)
    if head.endswith(".npy") and len(rest) <= 1:
        return _array(text, head, rest[0] if rest else None)
    if head in DTYPES and len(rest) == 1:
        return _typed(text, DTYPES[head], rest[0])
    if not rest and text.endswith("f") and _number(text[:-1]) is not None:
        return _typed(text, np.float32, text[:-1])
    value = None if rest else _number(text)
    if value is None:
        raise ValueError(
            f"cannot read --arg {text!r}; forms are in.npy, in.npy:out.npy, zeros:DTYPE:SHAPE:out.npy, 5, 0x10, 1.5,"
            f" 1.5f, TYPE:NUMBER (types {', '.join(DTYPES)})"
        )
    return RunArgument(text, value)


def _number(text: str) -> int | float | None:
    for read in (lambda: int(text, 0), lambda: float(text)):
        try:
            return read()
        except ValueError:
            continue
    return None


def _typed(text: str, dtype: type[np.generic], number: str) -> RunArgument:
    value = _number(number)
    if value is None or (issubclass(dtype, np.integer) and not isinstance(value, int)):
        what = "a whole number" if issubclass(dtype, np.integer) else "a number"
        raise ValueError(f"--arg {text!r}: {number!r} is not {what}")
    if issubclass(dtype, np.integer):
        limits = np.iinfo(dtype)
        if not limits.min <= value <= limits.max:
            raise ValueError(f"--arg {text!r}: {value} does not fit; the type holds {limits.min} .. {limits.max}")
    with np.errstate(over="ignore"):
        scalar = np.array(value, dtype=dtype)
    if issubclass(dtype, np.floating) and math.isfinite(value) and not np.isfinite(scalar):
        raise ValueError(f"--arg {text!r}: {number} overflows the type; write inf to mean infinity")
    return RunArgument(text, scalar.tobytes(), typed=scalar.nbytes)


def _array(text: str, source: str, target: str | None) -> RunArgument:
    try:
        loaded = np.load(source, allow_pickle=False)
    except MemoryError as error:
        raise ValueError(f"--arg {text!r}: {source} states an array that does not fit in memory: {error}") from error
    except (ValueError, EOFError) as error:
        raise ValueError(f"--arg {text!r}: {source} is no .npy file of plain numbers: {error}") from error
    if not isinstance(loaded, np.ndarray):
        raise ValueError(f"--arg {text!r}: {source} is an archive of several arrays (.npz); save the one as .npy")
    array = np.array(loaded, order="C", ndmin=1)
    array.flags.writeable = target is not None
    return RunArgument(text, array, output=_output(text, target) if target is not None else None)


def _zeros(text: str, rest: Sequence[str]) -> RunArgument:
    if len(rest) != 3 or rest[0] not in DTYPES:
        raise ValueError(
            f"cannot read --arg {text!r}; write zeros:DTYPE:SHAPE:out.npy, for example zeros:f32:64x128:out.npy"
            f" (types {', '.join(DTYPES)})"
        )
    sizes = rest[1].replace(",", "x").split("x")
    if not all(size.isdecimal() and len(size) < LONGEST_SIZE and int(size) > 0 for size in sizes):
        raise ValueError(
            f"--arg {text!r}: {rest[1]!r} is no shape; write sizes above 0 joined by x, for example 64x128"
        )
    output = _output(text, rest[2])
    try:
        array = np.zeros([int(s) for s in sizes], DTYPES[rest[0]])
    except (ValueError, MemoryError) as error:  # numpy's limits, or this machine's
        raise ValueError(f"--arg {text!r}: cannot make an array of shape {rest[1]}: {error}") from error
    return RunArgument(text, array, output=output)


def _output(text: str, target: str) -> Path:
    path = Path(target)
    if path.suffix != ".npy":
        raise ValueError(f"--arg {text!r}: the output {target!r} does not end in .npy")
    return path


def check_arguments(kernel: Kernel, arguments: Sequence[RunArgument]) -> None:
    """Compares arguments with the kernel's metadata. Raises ValueError that names the argument and what it wants."""
    wanted = [a for a in kernel.arguments if not a.hidden]
    if kernel.has_metadata and len(wanted) != len(arguments):
        shown = ", ".join(f"{_name(i, a)}: {_kind(a)}" for i, a in enumerate(wanted)) or "none"
        raise ValueError(f"{kernel.name} takes {len(wanted)} arguments and got {len(arguments)}; in order: {shown}")
    for index, (argument, given) in enumerate(zip(wanted, arguments, strict=False)):
        _check_one(kernel, _name(index, argument), argument, given)


def _check_one(kernel: Kernel, name: str, argument: Argument, given: RunArgument) -> None:
    where = f"argument {name} of {kernel.name} is {_kind(argument)}, --arg {given.text!r} is"
    if isinstance(given.value, np.ndarray) and argument.size != ADDRESS_BYTES:
        raise ValueError(f"{where} an array, whose address takes {ADDRESS_BYTES} bytes")
    if given.typed is not None and given.typed != argument.size:
        raise ValueError(f"{where} a number of {given.typed} bytes")
    if argument.value_kind in POINTER_KINDS and isinstance(given.value, float | bytes):
        raise ValueError(f"{where} no buffer; give an .npy file, zeros:DTYPE:SHAPE:out.npy, or 0 for a null pointer")


def _name(index: int, argument: Argument) -> str:
    return f"{index} ({argument.name})" if argument.name else str(index)


def _kind(argument: Argument) -> str:
    what = "a buffer" if argument.value_kind in POINTER_KINDS else argument.type or "a value"
    return f"{what} of {argument.size} bytes" if what != "a buffer" else what


def outputs(arguments: Sequence[RunArgument]) -> dict[Path, NDArray[Any]]:
    """The arrays to write, by file. Raises ValueError when two arguments want one file."""
    found: dict[Path, NDArray[Any]] = {}
    for argument in arguments:
        if argument.output is None:
            continue
        if argument.output in found:
            raise ValueError(f"two arguments write {argument.output}; give each its own file")
        found[argument.output] = argument.value
    return found


@contextmanager
def written_together(arrays: dict[Path, NDArray[Any]]) -> Iterator[None]:
    """Reserves a file beside each output before the body runs; when it ends well, writes them all, then renames them.

    A run that fails, or a disk that is full, leaves every output as it was. Raises OSError for a folder that cannot be
    written before the body runs.
    """
    reserved: dict[Path, Path] = {}
    try:
        for path in arrays:
            if path.is_dir():
                raise IsADirectoryError(f"the output {path} is a folder")
            reserved[path] = _reserve(path)
        yield
        for path, temporary in reserved.items():
            with temporary.open("wb") as file:
                np.save(file, arrays[path], allow_pickle=False)
        for path, temporary in reserved.items():
            os.replace(temporary, path)
    finally:
        for temporary in reserved.values():
            temporary.unlink(missing_ok=True)


def _reserve(path: Path) -> Path:
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror}") from error
    os.close(handle)
    os.chmod(name, 0o666 & ~_umask())
    return Path(name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
