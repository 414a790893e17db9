"""The kernarg block: the values of a kernel's arguments, as the metadata lays them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from emu.argument_numbers import FLOAT_TYPES, Refusal, is_number, number_bytes, pack_float, pack_integer
from emu.errors import LaunchError
from emu.geometry import GRID_DIMENSIONS, Geometry
from emu.kernel_metadata import Argument, Kernel
from emu.memory import PRIVATE_APERTURE, SHARED_APERTURE
from gfx950.evidence import Evidence, rule

LARGEST_KERNARG = 1 << 20  # bytes; compilers allow some kilobytes, so more than this is a damaged file
POINTER_KINDS = ("global_buffer", "pipe", "queue", "image", "sampler")

rule(
    "launch.hidden_arguments",
    Evidence.spec,
    "LLVM AMDGPUUsage, code object V5 metadata, kernel argument value kinds",
    "hidden_block_count counts full workgroups only, hidden_remainder is the size of the partial one (0 if none).",
)
rule(
    "launch.hip_values",
    Evidence.vendor,
    "what HIP passes: always three grid dimensions, no global offset, no host services",
    "hidden_grid_dims is 3, global offsets are 0, and printf, hostcall, heap and grid-sync pointers are null.",
)


def build_kernarg(
    kernel: Kernel,
    arguments: Sequence[object] | Mapping[str, object],
    geometry: Geometry,
    *,
    dynamic_lds: int = 0,
    queue_address: int = 0,
    hidden: Mapping[str, int] | None = None,
) -> bytes:
    """The kernarg block: the caller's arguments and the hidden ones, where the metadata puts them.

    arguments: in order, or by name where the metadata has names. Buffers are device addresses (int). By-value arguments
    are numbers, or bytes and arrays of exactly the argument's size. A number is converted to the argument's type where
    the metadata states one (`emu.argument_numbers.number_bytes`); without one an int is passed as an integer
    (range-checked), a float as a float (rounded to the argument's size), and a numpy scalar as its own bytes.
    hidden: values for hidden arguments by `value_kind`, instead of the usual ones.
    A kernel without metadata takes one argument: the whole block as bytes.
    Raises LaunchError for a wrong number, name, type, size or range.
    """
    if not kernel.has_metadata:
        return _whole_block(kernel, arguments)
    values = _in_order(kernel, kernel.explicit, arguments)
    block = bytearray(_block_bytes(kernel))
    for index, (argument, value) in enumerate(zip(kernel.explicit, values, strict=True)):
        block[argument.offset : argument.offset + argument.size] = _encode(kernel, index, argument, value)
    numbers = _hidden_values(geometry, dynamic_lds, queue_address) | _overrides(kernel, hidden or {})
    for argument in kernel.arguments:
        if argument.hidden:
            number = numbers.get(argument.value_kind, 0)
            packed = pack_integer(number, argument.size)
            if packed is None:
                what = f"{argument.value_kind} = {number} does not fit its {argument.size} bytes"
                raise LaunchError(what, kernel=kernel.name)
            block[argument.offset : argument.offset + argument.size] = packed
    return bytes(block)


def _block_bytes(kernel: Kernel) -> int:
    size = max([kernel.kernarg_size, *(a.offset + a.size for a in kernel.arguments)])
    if size > LARGEST_KERNARG:
        raise LaunchError(
            f"the metadata gives the kernel {size} bytes of arguments",
            expected=f"at most {LARGEST_KERNARG}",
            advice="the code object is damaged: compile or copy it again",
            kernel=kernel.name,
        )
    return size


def _overrides(kernel: Kernel, hidden: Mapping[str, int]) -> dict[str, int]:
    if not isinstance(hidden, Mapping) or not all(isinstance(n, int | np.integer) for n in hidden.values()):
        raise LaunchError(
            f"the hidden arguments are {_shown(hidden)}",
            expected='whole numbers by name, such as {"hidden_grid_dims": 1}',
            kernel=kernel.name,
        )
    kinds = sorted({a.value_kind for a in kernel.arguments if a.hidden})
    unknown = sorted(str(name) for name in set(hidden) - set(kinds))
    if unknown:
        raise LaunchError(
            f"the kernel has no hidden argument {', '.join(unknown)}",
            expected=f"some of: {', '.join(kinds) or 'none, it takes no hidden arguments'}",
            kernel=kernel.name,
        )
    return {name: int(number) for name, number in hidden.items()}


def _hidden_values(geometry: Geometry, dynamic_lds: int, queue_address: int) -> dict[str, int]:
    values = {
        "hidden_grid_dims": GRID_DIMENSIONS,
        "hidden_dynamic_lds_size": dynamic_lds,
        "hidden_queue_ptr": queue_address,
        "hidden_private_base": PRIVATE_APERTURE >> 32,
        "hidden_shared_base": SHARED_APERTURE >> 32,
    }
    for axis, index in (("x", 0), ("y", 1), ("z", 2)):
        values[f"hidden_block_count_{axis}"] = geometry.full_workgroups[index]
        values[f"hidden_group_size_{axis}"] = geometry.block[index]
        values[f"hidden_remainder_{axis}"] = geometry.remainder[index]
        values[f"hidden_global_offset_{axis}"] = 0
    return values


def _whole_block(kernel: Kernel, arguments: Sequence[object] | Mapping[str, object]) -> bytes:
    values = list(arguments.values()) if isinstance(arguments, Mapping) else list(arguments)
    if not values and kernel.kernarg_size == 0:
        return b""
    blob = _raw_bytes(values[0]) if len(values) == 1 else None
    if blob is None or len(blob) < kernel.kernarg_size:
        raise LaunchError(
            "the code object has no metadata for this kernel, so its arguments are unknown",
            expected=f"one argument: the whole kernarg block as bytes, {kernel.kernarg_size} of them",
            kernel=kernel.name,
        )
    return blob


def _in_order(
    kernel: Kernel, explicit: list[Argument], arguments: Sequence[object] | Mapping[str, object]
) -> list[object]:
    wanted = ", ".join(a.name or f"{a.value_kind}:{a.size}" for a in explicit) or "none"
    if not isinstance(arguments, Mapping):
        if len(arguments) == len(explicit):
            return list(arguments)
        raise LaunchError(
            f"the kernel takes {len(explicit)} arguments and got {len(arguments)}",
            expected=f"({wanted})",
            kernel=kernel.name,
        )
    names = [a.name for a in explicit]
    if not all(names):
        raise LaunchError(
            "the arguments are given by name, but the code object does not name them",
            expected=f"a sequence in order: ({wanted})",
            kernel=kernel.name,
        )
    if set(names) != set(arguments):
        missing, unknown = sorted(set(names) - set(arguments)), sorted(set(arguments) - set(names))
        raise LaunchError(
            f"the arguments lack {', '.join(missing) or 'nothing'} and have unknown {', '.join(unknown) or 'nothing'}",
            expected=f"({wanted})",
            kernel=kernel.name,
        )
    return [arguments[name] for name in names]


def _encode(kernel: Kernel, index: int, argument: Argument, value: object) -> bytes:
    pointer = argument.value_kind in POINTER_KINDS
    encoded = _encode_pointer(argument, value) if pointer else _encode_value(argument, value)
    if isinstance(encoded, bytes):
        return encoded
    name = f' "{argument.name}"' if argument.name else ""
    kind = f"{argument.type or argument.value_kind}, {argument.size} bytes at offset {argument.offset}"
    mapped = "map it with Memory.map and pass the address"
    advice = mapped if isinstance(value, np.ndarray) and value.ndim else encoded.advice
    raise LaunchError(
        f"argument {index}{name} ({kind}) got {type(value).__name__} {_shown(value)}",
        expected=encoded.expected,
        advice=advice,
        kernel=kernel.name,
    )


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray) and value.ndim:
        return f"of {value.dtype} {value.shape}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _encode_pointer(argument: Argument, value: object) -> bytes | Refusal:
    """The bytes of a device address, or what was expected."""
    refused = Refusal(f"a device address from 0 to 2**{8 * argument.size} - 1")
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        return refused
    return pack_integer(int(value), argument.size) or refused


def _encode_value(argument: Argument, value: object) -> bytes | Refusal:
    """The bytes of a by-value argument, or what was expected."""
    size = argument.size
    if is_number(argument.type, size) and not _is_raw(value):
        return number_bytes(argument.type, size, value)
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return pack_integer(int(value), size) or Refusal(f"an integer of {8 * size} bits, signed or unsigned")
    if isinstance(value, float):
        if argument.type and argument.type not in FLOAT_TYPES:
            return Refusal(f"a value of type {argument.type}; a Python float would change its meaning")
        return pack_float(value, size)
    blob = _raw_bytes(value)
    if blob is None:
        return Refusal(f"an int, a float, a numpy scalar, or exactly {size} bytes")
    return blob if len(blob) == size else Refusal(f"exactly {size} bytes, not {len(blob)}")


def _is_raw(value: object) -> bool:
    """Whether a value is bytes rather than a number: bytes, an array with dimensions, a structure."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0 or value.dtype.type is np.void
    return isinstance(value, bytes | bytearray | memoryview | np.void | np.datetime64 | np.timedelta64)


def _raw_bytes(value: object) -> bytes | None:
    if isinstance(value, np.ndarray | np.generic):
        return value.tobytes()
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None
