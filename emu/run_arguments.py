"""The `--arg` texts of `gfx950 run`: numbers and .npy files become kernel arguments, results go back to files.

Forms, in the order of the kernel's arguments:

    in.npy                      an array, read-only: a kernel that writes it faults
    in.npy:out.npy              an array used in place; what the kernel left in it is written to out.npy
    zeros:DTYPE:SHAPE:out.npy   a new zeroed array, written to out.npy; DTYPE u8 .. u64, i8 .. i64, f16, f32, f64, or
                                bf16, fp8, bf8, e8m0 and the other floats of ml_dtypes by name; SHAPE as 64x128
    5  -3  0x10  1.5            a number, converted to the argument's type where the code object states one; most
                                state none: then 5 goes as an integer, so write 5.0 for a float
    1.5f  i32:5  bf16:1.0       a number of that type, which must be the argument's where it is stated, or else its size

A file that ends in .bin holds an array's bytes alone. An .npy file cannot name the types of ml_dtypes: numpy writes
them as plain bytes (V1, V2), which `.view(ml_dtypes.bfloat16)` makes numbers again.
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

from emu.argument_numbers import Refusal, is_number, number_bytes, same_kind
from emu.arguments import ADDRESS_BYTES
from emu.kernarg import POINTER_KINDS
from emu.kernel_metadata import Argument, Kernel

DTYPES: dict[str, type[np.generic]] = {
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
# The gfx950 names of floats that numpy does not have, and ml_dtypes'.
NARROW_FLOATS = {"bf16": "bfloat16", "fp8": "float8_e4m3fn", "bf8": "float8_e5m2", "e8m0": "float8_e8m0fnu"}
TYPE_NAMES = ", ".join((*DTYPES, *NARROW_FLOATS))
FILES = (".npy", ".bin")
LONGEST_SIZE = 20  # digits
LONGEST_TEXT = 4096  # of one --arg: the longest path


@dataclass(frozen=True)
class RunArgument:
    """One argument. value: what the launch takes. dtype: of a number whose type the text states, else None.
    output: the file that receives the array after the run, or None."""

    text: str
    value: Any
    dtype: np.dtype[Any] | None = None
    output: Path | None = None


def dtype_of(name: str) -> np.dtype[Any] | None:
    """The type of a name, numpy's or a float of ml_dtypes; None where there is none."""
    if name in DTYPES:
        return np.dtype(DTYPES[name])
    full = NARROW_FLOATS.get(name, name)
    if not full.startswith(("bfloat", "float")):
        return None
    import ml_dtypes

    found = getattr(ml_dtypes, full, None)
    return np.dtype(found) if isinstance(found, type) and issubclass(found, np.generic) else None


def parse_argument(text: str) -> RunArgument:
    """One `--arg` text. Raises ValueError that names the text and the forms there are, OSError for unreadable files."""
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"--arg {text[:40]!r}... has {len(text)} characters, more than {LONGEST_TEXT}")
    head, *rest = text.split(":")
    if head == "zeros":
        return _zeros(text, rest)
    if head.endswith(FILES) and len(rest) <= 1:
        return _array(text, head, rest[0] if rest else None)
    dtype = dtype_of(head) if len(rest) == 1 else None
    if dtype is not None:
        return _typed(text, dtype, rest[0])
    if not rest and text.endswith("f") and _number(text[:-1]) is not None:
        return _typed(text, np.dtype(np.float32), text[:-1])
    value = None if rest else _number(text)
    if value is None:
        raise ValueError(
            f"cannot read --arg {text!r}; forms are in.npy, in.npy:out.npy, zeros:DTYPE:SHAPE:out.npy, 5, 0x10, 1.5,"
            f" 1.5f, TYPE:NUMBER (types {TYPE_NAMES}); files end in .npy or .bin"
        )
    return RunArgument(text, value)


def _number(text: str) -> int | float | None:
    for read in (lambda: int(text, 0), lambda: float(text)):
        try:
            return read()
        except ValueError:
            continue
    return None


def _typed(text: str, dtype: np.dtype[Any], number: str) -> RunArgument:
    value, whole = _number(number), dtype.kind in "iu"
    if value is None or (whole and not isinstance(value, int)):
        what = "a whole number" if whole else "a number"
        raise ValueError(f"--arg {text!r}: {number!r} is not {what}")
    if whole:
        limits = np.iinfo(dtype)
        if not limits.min <= value <= limits.max:
            raise ValueError(f"--arg {text!r}: {value} does not fit; the type holds {limits.min} .. {limits.max}")
    with np.errstate(over="ignore", invalid="ignore"):
        scalar = np.array(value, dtype=dtype)
    if not whole and math.isfinite(value) and not np.isfinite(scalar):
        raise ValueError(f"--arg {text!r}: {number} overflows the type; write inf to mean infinity")
    return RunArgument(text, scalar.tobytes(), dtype)


def _array(text: str, source: str, target: str | None) -> RunArgument:
    output = _output(text, target) if target is not None else None
    if source.endswith(".bin"):
        raw = np.fromfile(source, np.uint8)
        raw.flags.writeable = target is not None
        return RunArgument(text, raw, output=output)
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
    return RunArgument(text, array, output=output)


def _zeros(text: str, rest: Sequence[str]) -> RunArgument:
    dtype = dtype_of(rest[0]) if len(rest) == 3 else None
    if dtype is None:
        raise ValueError(
            f"cannot read --arg {text!r}; write zeros:DTYPE:SHAPE:out.npy, for example zeros:f32:64x128:out.npy"
            f" (types {TYPE_NAMES})"
        )
    sizes = rest[1].replace(",", "x").split("x")
    if not all(size.isdecimal() and len(size) < LONGEST_SIZE and int(size) > 0 for size in sizes):
        raise ValueError(
            f"--arg {text!r}: {rest[1]!r} is no shape; write sizes above 0 joined by x, for example 64x128"
        )
    output = _output(text, rest[2])
    try:
        array = np.zeros([int(s) for s in sizes], dtype)
    except (ValueError, MemoryError) as error:  # numpy's limits, or this machine's
        raise ValueError(f"--arg {text!r}: cannot make an array of shape {rest[1]}: {error}") from error
    return RunArgument(text, array, output=output)


def _output(text: str, target: str) -> Path:
    path = Path(target)
    if path.suffix not in FILES:
        raise ValueError(f"--arg {text!r}: the output {target!r} does not end in {' or '.join(FILES)}")
    return path


def check_arguments(kernel: Kernel, arguments: Sequence[RunArgument]) -> None:
    """Compares arguments with the kernel's metadata. Raises ValueError that names the argument and what it wants."""
    wanted = kernel.explicit
    if kernel.has_metadata and len(wanted) != len(arguments):
        shown = ", ".join(f"{_name(i, a)}: {_kind(a)}" for i, a in enumerate(wanted)) or "none"
        raise ValueError(f"{kernel.name} takes {len(wanted)} arguments and got {len(arguments)}; in order: {shown}")
    for index, (argument, given) in enumerate(zip(wanted, arguments, strict=False)):
        _check_one(kernel, _name(index, argument), argument, given)


def _check_one(kernel: Kernel, name: str, argument: Argument, given: RunArgument) -> None:
    where = f"argument {name} of {kernel.name} is {_kind(argument)}, --arg {given.text!r} is"
    if isinstance(given.value, np.ndarray) and argument.size != ADDRESS_BYTES:
        raise ValueError(f"{where} an array, whose address takes {ADDRESS_BYTES} bytes")
    if given.dtype is not None and given.dtype.itemsize != argument.size:
        raise ValueError(f"{where} a number of {given.dtype.itemsize} bytes")
    if given.dtype is not None and not same_kind(argument.type, given.dtype):
        what = "a whole number" if given.dtype.kind in "iu" else f"a {given.dtype.name}"
        raise ValueError(f"{where} {what}; write the number without a type, and it is converted")
    if not isinstance(given.value, np.ndarray | bytes) and is_number(argument.type, argument.size):
        refused = number_bytes(argument.type, argument.size, given.value)
        if isinstance(refused, Refusal):
            raise ValueError(f"{where} {given.value}; expected {refused.expected}")
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
                if path.suffix == ".bin":
                    file.write(arrays[path].reshape(-1).view(np.uint8).tobytes())
                else:
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
