"""LLVM for what crosses lanes: static permutations as DPP moves, and the lane intrinsics."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from codegen.ir import Op, Value
from codegen.llvm_text import EmitError, FunctionText, integer_type
from gfx950.lanes import LANES


def _by_words(f: FunctionText, value: Value, move: Callable[[str], str]) -> str:
    """Applies a movement of i32 values to a value of any width; returns the moved value's name."""
    text, width = f.use(value), value.width
    if width == 32:
        return move(text)
    if width < 32:
        wide = f.temporary(f"zext i{width} {text} to i32")
        return f.temporary(f"trunc i32 {move(wide)} to i{width}")
    low = move(f.temporary(f"trunc i64 {text} to i32"))
    high = move(f.temporary(f"trunc i64 {f.temporary(f'lshr i64 {text}, 32')} to i32"))
    wide_low, wide_high = (f.temporary(f"zext i32 {part} to i64") for part in (low, high))
    return f.temporary(f"or i64 {wide_low}, {f.temporary(f'shl i64 {wide_high}, 32')}")


def _bpermute(f: FunctionText, value: str, byte_address: str) -> str:
    return f.temporary(f.call("llvm.amdgcn.ds.bpermute", "i32", [("i32", byte_address), ("i32", value)]))


def _emit_gather(f: FunctionText, op: Op) -> None:
    value, lanes = op.operands
    address = f.temporary(f"shl i32 {f.use(lanes)}, 2")
    f.alias(op.results[0], _by_words(f, value, lambda word: _bpermute(f, word, address)))


def _lane(f: FunctionText) -> str:
    """The lane's number in its wave."""
    low = f.temporary(f.call("llvm.amdgcn.mbcnt.lo", "i32", [("i32", "-1"), ("i32", "0")]))
    return f.temporary(f.call("llvm.amdgcn.mbcnt.hi", "i32", [("i32", "-1"), ("i32", low)]))


def _emit_permute(f: FunctionText, op: Op) -> None:
    lanes = op.attributes["lanes"]
    controls = dpp_controls(lanes)
    if controls is None:
        address = f.temporary(f"shl i32 {_static_lanes(f, lanes)}, 2")
        f.alias(op.results[0], _by_words(f, op.operands[0], lambda word: _bpermute(f, word, address)))
    else:
        f.alias(op.results[0], _by_words(f, op.operands[0], lambda word: _dpp(f, word, controls)))


def _dpp(f: FunctionText, word: str, controls: Sequence[int]) -> str:
    for control in controls:
        arguments = [
            ("i32", "poison"),
            ("i32", word),
            ("i32", str(control)),
            ("i32", "15"),
            ("i32", "15"),
            ("i1", "true"),
        ]
        word = f.temporary(f.call("llvm.amdgcn.update.dpp.i32", "i32", arguments, (2, 3, 4, 5)))
    return word


def _static_lanes(f: FunctionText, lanes: Sequence[int]) -> str:
    """Each lane's own number of a static table. Raises EmitError unless it is lane xor constant."""
    mask = lanes[0]
    if any(n != i ^ mask for i, n in enumerate(lanes)):
        raise EmitError(
            f"permute to lanes {tuple(lanes)} is neither DPP-expressible (a pattern within rows of 16) nor lane xor"
            " constant; use .gather(lane numbers)"
        )
    return f.temporary(f"xor i32 {_lane(f)}, {mask}")


@functools.cache
def _row_moves() -> dict[tuple[int, ...], int]:
    """Permutations of a row of 16 that one DPP control makes, besides quad permutations."""
    moves = {
        tuple((i - n) % 16 for i in range(16)): 0x120 + n for n in range(1, 16)
    }  # row_ror: lane i takes lane i - n
    moves[tuple(15 - i for i in range(16))] = 0x140  # row_mirror
    moves[tuple(i ^ 7 for i in range(16))] = 0x141  # row_half_mirror
    moves.update({(n,) * 16: 0x150 + n for n in range(16)})  # row_newbcast
    return moves


@functools.cache
def dpp_controls(lanes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The DPP controls, applied in order, that move the lanes so; None where at most two of them cannot.

    quad_perm, row_ror, row_mirror, row_half_mirror, row_newbcast, and one of the last four followed by a quad_perm.
    """
    row = lanes[:16]
    if any(lanes[i] != i // 16 * 16 + row[i % 16] for i in range(LANES)) or max(row) > 15:
        return None
    if row == tuple(range(16)):
        return ()
    quad = _quad_control(row)
    if quad is not None:
        return (quad,)
    if row in _row_moves():
        return (_row_moves()[row],)
    return _two_controls(row)


def _quad_control(row: Sequence[int]) -> int | None:
    """The quad_perm that moves a row so, None where none does."""
    quad = [n % 4 for n in row[:4]]
    if any(row[i] != i // 4 * 4 + quad[i % 4] for i in range(16)):
        return None
    return sum(n << 2 * i for i, n in enumerate(quad))


def _two_controls(row: tuple[int, ...]) -> tuple[int, ...] | None:
    for first, control in _row_moves().items():
        if len(set(first)) < 16:
            continue
        second = _quad_control([first.index(n) for n in row])
        if second is not None:
            return (control, second)
    return None


def _emit_readfirstlane(f: FunctionText, op: Op) -> None:
    def move(word: str) -> str:
        return f.temporary(f.call("llvm.amdgcn.readfirstlane.i32", "i32", [("i32", word)]))

    f.alias(op.results[0], _by_words(f, op.operands[0], move))


def _emit_readlane(f: FunctionText, op: Op) -> None:
    lane = ("i32", f.use(op.operands[1]))

    def move(word: str) -> str:
        return f.temporary(f.call("llvm.amdgcn.readlane.i32", "i32", [("i32", word), lane]))

    f.alias(op.results[0], _by_words(f, op.operands[0], move))


def _emit_writelane(f: FunctionText, op: Op) -> None:
    old, lane, scalar = op.operands
    kind = integer_type(old.width)
    number = f.temporary(f"and i32 {f.use(lane)}, 63")
    here = f.temporary(f"icmp eq i32 {_lane(f)}, {number}")
    f.set(op.results[0], f"select i1 {here}, {kind} {f.use(scalar)}, {kind} {f.use(old)}")


def _emit_ballot(f: FunctionText, op: Op) -> None:
    f.set(op.results[0], f.call("llvm.amdgcn.ballot.i64", "i64", [("i1", f.use(op.operands[0]))]))


def _emit_lanes_of(f: FunctionText, op: Op) -> None:
    set_lanes_of(f, op.results[0], f.use(op.operands[0]))


def set_lanes_of(f: FunctionText, value: Value, bits: str) -> None:
    """Defines a mask by the bits of a 64-bit scalar."""
    lane = f.temporary(f"zext i32 {_lane(f)} to i64")
    f.set(value, f"trunc i64 {f.temporary(f'lshr i64 {bits}, {lane}')} to i1")


def _emit_splat(f: FunctionText, op: Op) -> None:
    f.alias(op.results[0], f.use(op.operands[0]))


EMITTERS: dict[str, Callable[[FunctionText, Op], None]] = {
    "gather": _emit_gather,
    "permute": _emit_permute,
    "readfirstlane": _emit_readfirstlane,
    "readlane": _emit_readlane,
    "writelane": _emit_writelane,
    "ballot": _emit_ballot,
    "lanes_of": _emit_lanes_of,
    "splat": _emit_splat,
}
