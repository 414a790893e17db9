"""Kernel arguments as callers have them: numpy arrays and CPU tensors become device addresses, scalars are checked.

Arrays and tensors are used in place, whatever their element type: the kernel sees their bytes and they see its stores.
Tensors of torch are known only where the caller has imported torch; nothing here does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from emu.argument_numbers import is_number
from emu.errors import LaunchError
from emu.kernarg import POINTER_KINDS
from emu.kernel_metadata import Argument, Kernel
from emu.memory import Memory

Arguments: TypeAlias = Sequence[object] | Mapping[str, object] | bytes

ADDRESS_BYTES = 8
DEVICE_TYPE = "cuda"  # what torch calls a device of ROCm
NUMPY_FLOATS = ("float16", "float32", "float64")  # torch has the same names


def device_values(
    kernel: Kernel, arguments: Arguments, memory: Memory, mapped: dict[int, int], on_device: bool = False
) -> Arguments:
    """The arguments as `emu.launch.prepare` takes them, with arrays mapped in `memory`.

    arguments: in the kernel's order, by name, or the finished kernarg block as bytes. For a pointer: a C-contiguous
    numpy array (any dtype, those of ml_dtypes too; read-only ones may only be read), a contiguous CPU tensor of any
    dtype, a device address, or None for a null pointer. For a value: a Python number, a numpy scalar, a 0-d array or
    tensor, bytes, or an array of exactly the argument's size that is not a pointer's; see
    `emu.kernarg.build_kernarg`. mapped: takes up the address of each array by its `id`; an array given twice is
    mapped once. on_device: the launch is on a real device, and tensors of torch's device "cuda" (ROCm's name for itself
    there) are used where they are.
    Raises LaunchError for everything else, TypeError and ValueError for arrays that have no plain memory.
    """
    if isinstance(arguments, bytes):
        return arguments
    if not isinstance(arguments, Sequence | Mapping) or isinstance(arguments, str):
        raise LaunchError(
            f"the arguments are a {type(arguments).__name__}",
            expected="a sequence in the kernel's order, a mapping by name, or the kernarg block as bytes",
            kernel=kernel.name,
        )
    explicit = kernel.explicit
    if isinstance(arguments, Mapping):
        known = {a.name: a for a in explicit}
        return {n: _value(kernel, n, known.get(n), v, memory, mapped, on_device) for n, v in arguments.items()}
    wanted = [*explicit, *[None] * len(arguments)]  # too many are counted and refused by `build_kernarg`
    pairs = zip(wanted, arguments, strict=False)
    return [_value(kernel, _name(i, a), a, v, memory, mapped, on_device) for i, (a, v) in enumerate(pairs)]


def _name(index: int, argument: Argument | None) -> str:
    return f'{index} "{argument.name}"' if argument is not None and argument.name else str(index)


def _value(
    kernel: Kernel,
    name: str,
    argument: Argument | None,
    value: Any,
    memory: Memory,
    mapped: dict[int, int],
    on_device: bool,
) -> object:
    """One argument: a device address for what is mapped, or the value itself once it is known to fit."""
    tensor = is_tensor(value)
    if not tensor and not isinstance(value, np.ndarray):
        return _plain(kernel, name, argument, value)
    if argument is None and not kernel.has_metadata:
        return _bytes_of(kernel, name, value)
    by_value = argument is not None and argument.value_kind not in POINTER_KINDS
    if argument is not None and by_value and (value.ndim == 0 or argument.size != ADDRESS_BYTES):
        return _contents(kernel, name, argument, value)
    if id(value) not in mapped:
        if tensor and on_device and value.device.type == DEVICE_TYPE:
            return _place_there(kernel, name, value, memory, mapped)
        array = tensor_bytes(kernel, name, value) if tensor else value
        writable = bool(array.flags.writeable)
        mapped[id(value)] = memory.map(array, writable=writable, name=f"argument {name}")
    return mapped[id(value)]


def _plain(kernel: Kernel, name: str, argument: Argument | None, value: object) -> object:
    """A number, bytes or address; a LaunchError where a pointer cannot be one."""
    if argument is None:
        return value
    if argument.value_kind in POINTER_KINDS:
        if value is None:
            return 0
        if isinstance(value, int | np.integer) and not isinstance(value, bool):
            return value
        raise LaunchError(
            f"argument {name} is a pointer and got {type(value).__name__} {value!r:.60}",
            expected="a numpy array or a CPU tensor (used in place), a device address, or None for a null pointer",
            kernel=kernel.name,
        )
    return value


def _contents(kernel: Kernel, name: str, argument: Argument, value: Any) -> object:
    """What an array or tensor holds, for an argument that is passed by value."""
    if value.ndim == 0 and is_number(argument.type, argument.size):
        return _scalar_of(kernel, name, value) if is_tensor(value) else value
    if value.nbytes != argument.size:
        shape = f" and shape {tuple(value.shape)}" if value.ndim else ""
        raise LaunchError(
            f"argument {name} takes {argument.size} bytes by value and got {value.nbytes}: "
            f"a {type(value).__name__} of type {value.dtype}{shape}",
            expected=f"a value of exactly {argument.size} bytes; a Python number takes the argument's own size",
            kernel=kernel.name,
        )
    return _bytes_of(kernel, name, value)


def _scalar_of(kernel: Kernel, name: str, tensor: Any) -> object:
    """The number in a tensor: numpy's scalar of the same bits where there is one, else the Python number."""
    raw, dtype = tensor_bytes(kernel, name, tensor), str(tensor.dtype).removeprefix("torch.")
    return raw.view(dtype)[0] if dtype in NUMPY_FLOATS else tensor.item()


def _bytes_of(kernel: Kernel, name: str, value: Any) -> bytes:
    return (tensor_bytes(kernel, name, value) if is_tensor(value) else value).tobytes()


# ---- tensors ---------------------------------------------------------------------------------------------------------


def is_tensor(value: object) -> bool:
    """Whether it is a tensor of torch; False wherever nobody has imported torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def tensor_bytes(kernel: Kernel, name: str, tensor: Any) -> np.ndarray[Any, Any]:
    """A tensor's own memory as bytes, for a kernel to use in place. Autograd does not see what the kernel stores.

    Raises LaunchError for a tensor on another device, one without plain memory, and one that is not contiguous.
    """
    torch = sys.modules["torch"]
    _refuse(kernel, name, _tensor_problem(torch, tensor))
    return tensor.detach().reshape(-1).view(torch.uint8).numpy()  # type: ignore[no-any-return]


def _place_there(kernel: Kernel, name: str, tensor: Any, memory: Memory, mapped: dict[int, int]) -> int:
    """The emulated address that stands for a tensor on a device, 0 for one without elements."""
    _refuse(kernel, name, _layout_problem(sys.modules["torch"], tensor))
    if not tensor.numel():
        return 0
    index, address = tensor.device.index or 0, int(tensor.data_ptr())
    mapped[id(tensor)] = memory.map_on_device(index, address, name=f"argument {name}")
    return mapped[id(tensor)]


def _refuse(kernel: Kernel, name: str, problem: tuple[str, str, str] | None) -> None:
    if problem is not None:
        what, expected, advice = problem
        raise LaunchError(f"argument {name} is {what}", expected=expected, advice=advice, kernel=kernel.name)


def _tensor_problem(torch: Any, tensor: Any) -> tuple[str, str, str] | None:
    """What keeps a tensor from being used in place: what it is, what was expected, what to do."""
    if tensor.device.type != "cpu":
        where = f"a tensor on {tensor.device}"
        return where, "a tensor on the CPU, where the emulator runs", "pass tensor.cpu() and copy the result back"
    return _layout_problem(torch, tensor)


def _layout_problem(torch: Any, tensor: Any) -> tuple[str, str, str] | None:
    """What keeps a tensor's memory, wherever it is, from being an array's."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        return f"a {kind} tensor", "a dense (strided) one: a kernel sees plain memory", "pass tensor.to_dense()"
    if tensor.is_conj() or tensor.is_neg():
        return (
            "a conjugated or negated view, whose memory holds other values",
            "a tensor whose memory holds its values",
            "pass tensor.resolve_conj().resolve_neg()",
        )
    if not tensor.is_contiguous():
        return (
            f"a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()}, which is not contiguous",
            "a contiguous tensor, because it is used in place",
            "pass tensor.contiguous(), and copy the result back where the kernel stores into it",
        )
    return None
