"""Torch CPU tensors as the numpy arrays that the kernels take: checked, without copies where memory allows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.sparse_attention.launch import shape_text

try:
    import torch
except ImportError as error:
    raise ModuleNotFoundError(
        "the backend pieces of codegen.kernels.sparse_attention take torch tensors, and torch is not installed; it is "
        "optional: pip install 'gfx950[torch]'. The kernels themselves (attend.py, select.py ...) take numpy arrays",
        name="torch",
    ) from error

__all__ = ["bf16_bits", "check_tensor", "e4m3_bytes", "integers", "lengths", "torch", "writable"]

Array = NDArray[Any]
Shape = Sequence[int | None]

# Formats of one byte that a gfx950 cache never holds, and what reading their bytes as e4m3fn would do.
_OTHER_FP8 = {
    "float8_e4m3fnuz": "gfx942's format: read as e4m3fn each byte is twice its number, and its NaN, 0x80, is -0",
    "float8_e5m2": "a format of other exponent bits: read as e4m3fn its bytes are unrelated numbers",
    "float8_e5m2fnuz": "a format of gfx942 with other exponent bits: read as e4m3fn its bytes are unrelated numbers",
}


def check_tensor(
    name: str, tensor: object, dtypes: Sequence[torch.dtype], shape: Shape | None = None, why: str = ""
) -> torch.Tensor:
    """The tensor itself, dense and on the CPU, of one of the dtypes and of the shape (None: any size). why: where the
    shape comes from, for the error.

    Raises TypeError for what is no such tensor or of another dtype, ValueError for another shape; both name it.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}; expected a torch tensor of {_names(dtypes)}")
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        raise TypeError(f"{name} is a {tensor.layout} tensor on {tensor.device}; pass a dense one on the CPU: .cpu()")
    if tensor.dtype not in dtypes:
        other = _OTHER_FP8.get(_name(tensor.dtype))
        raise TypeError(f"{name} is {_name(tensor.dtype)}{f', {other}' if other else ''}; expected {_names(dtypes)}")
    got = tuple(tensor.shape)
    if shape is not None and not _fits(got, shape):
        raise ValueError(f"{name} has shape {got}; expected {shape_text(shape)}{f': {why}' if why else ''}")
    return tensor.detach()


def _fits(got: tuple[int, ...], shape: Shape) -> bool:
    return len(got) == len(shape) and all(n is None or n == m for n, m in zip(shape, got, strict=True))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _names(dtypes: Sequence[torch.dtype]) -> str:
    return " or ".join(_name(dtype) for dtype in dtypes)


def integers(name: str, tensor: object, shape: Shape, dtype: type[np.signedinteger] = np.int32) -> Array:
    """Whole numbers (int32 or int64) as a C-contiguous array of `dtype`. Raises as `check_tensor`, and ValueError for
    a number that `dtype` has not."""
    array: Array = check_tensor(name, tensor, (torch.int32, torch.int64), shape).numpy()
    limits = np.iinfo(dtype)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise ValueError(f"{name} has numbers from {array.min()} to {array.max()}; expected what {limits.dtype} holds")
    return np.ascontiguousarray(array, dtype)


def bf16_bits(name: str, tensor: object, shape: Shape) -> Array:
    """The bit patterns of a bfloat16 tensor, uint16, in place when it is contiguous and copied otherwise."""
    return _bits(check_tensor(name, tensor, (torch.bfloat16,), shape).contiguous())


def e4m3_bytes(name: str, tensor: object, shape: Shape) -> Array:
    """The bytes of a tensor of e4m3fn numbers, or of bytes that are meant as such, in place when it is contiguous."""
    return _bits(check_tensor(name, tensor, (torch.float8_e4m3fn, torch.uint8), shape).contiguous())


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether a dimension does not step over the ones of smaller strides."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def lengths(name: str, tensor: object, shape: Shape) -> Array:
    """As `integers`, of which none is negative."""
    array = integers(name, tensor, shape)
    wrong = np.flatnonzero(array < 0)
    if wrong.size:
        raise ValueError(f"{name}[{wrong[0]}] is {array[wrong[0]]}; expected a length: 0 or more tokens")
    return array


def _bits(tensor: torch.Tensor) -> Array:
    bits = tensor.view(torch.uint16 if tensor.element_size() == 2 else torch.uint8).numpy()
    assert isinstance(bits, np.ndarray)
    return bits


def writable(name: str, tensor: object, dtype: torch.dtype, shape: Shape, why: str = "") -> Array:
    """A view to store into, of any strides: what is written is in the tensor. bfloat16 is seen as uint16. why: as of
    `check_tensor`.

    Raises as `check_tensor`, and ValueError for a tensor whose elements share memory.
    """
    checked = check_tensor(name, tensor, (dtype,), shape, why)
    if checked.numel() and _overlaps(checked):
        raise ValueError(
            f"{name} has shape {tuple(checked.shape)} and strides {checked.stride()}, so that its elements share memory"
            f" and it cannot be written; pass {name}.contiguous()"
        )
    return _bits(checked) if dtype is torch.bfloat16 else checked.numpy()
