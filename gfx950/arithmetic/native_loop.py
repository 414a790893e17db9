"""The loop that runs a native over many items, compiled once for all natives."""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic


def _call_address(typing_context: Any, address: Any, inputs: Any, outputs: Any, parameters: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = ir.IntType(32).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [words, words, ir.IntType(64)])
        function = builder.inttoptr(arguments[0], kind.as_pointer())
        pointers = [builder.inttoptr(argument, words) for argument in arguments[1:3]]
        builder.call(function, [*pointers, arguments[3]])
        return context.get_dummy_value()

    return types.void(address, inputs, outputs, parameters), emit


call_address: Any = intrinsic(_call_address)


def _run_items(
    address: int, inputs: int, outputs: int, count: int, in_bytes: int, out_bytes: int, parameters: int
) -> None:
    for item in range(count):
        call_address(address, inputs + item * in_bytes, outputs + item * out_bytes, parameters)


run_items: Any = numba.njit("void(int64, int64, int64, int64, int64, int64, int64)", cache=True, error_model="numpy")(
    _run_items
)
