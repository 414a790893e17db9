"""LLVM for exact instructions, MODE and the clock: inline assembly, which LLVM neither changes nor reorders."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from codegen import lane_moves
from codegen.ir import Op, Program, Value, exact_plan
from codegen.llvm_text import FunctionText, Operand
from codegen.machine_text import MATRIX_WAIT, OTHER_WAIT, Plan, Register

# hwreg(register, lowest bit, count): rounding and denormals, then FP16_OVFL. [CDNA4 ISA 3.5]
SET_MODE = ("s_setreg_b32 hwreg(HW_REG_MODE, 0, 8), $0", "s_setreg_b32 hwreg(HW_REG_MODE, 23, 1), $1")


def _kind(words: int) -> str:
    return {1: "i32", 2: "i64"}.get(words) or f"<{words} x i32>"


def _emit_exact(f: FunctionText, op: Op) -> None:
    form = exact_plan(op)
    rest = list(op.operands)
    groups = [[rest.pop(0) for _ in s.widths] for s in form.sources]
    old = {r: [rest.pop(0) for _ in r.widths] for r in (form.untied if op.attributes["old"] else ())}
    outputs = [_output(r) for r in form.results]
    names = {(r.file, r.first): f"${i}" for i, r in enumerate(form.results)}
    if op.attributes["masked"]:
        outputs.append(Operand("i64", "=&s"))
    inputs: list[Operand] = []
    for register, values in zip(form.sources, groups, strict=True):
        names.setdefault((register.file, register.first), f"${len(outputs) + len(inputs)}")
        inputs.append(_input(f, op, form, register, values))
    for register, values in old.items():
        kind = _kind(register.words)
        inputs.append(Operand(kind, str(form.results.index(register)), f.operand(values, kind)))
    before, after = form.waits
    lines = [*_earlier_waits(f.program, before), form.over(names), *after]
    if op.attributes["masked"]:
        lines = _under_mask(lines, f"${len(form.results)}", f"${len(outputs) + len(inputs)}")
        inputs.append(Operand("i64", "s", _ballot(f, rest.pop())))
    _set_results(f, op, form, f.assembly(lines, outputs, inputs))


def _earlier_waits(program: Program, before: tuple[str, ...]) -> tuple[str, ...]:
    """What stands before: more where LLVM may have put a matrix instruction there, whose result takes long."""
    if program.has_matrix_intrinsics and before[-len(OTHER_WAIT) :] == OTHER_WAIT:
        return before[: -len(OTHER_WAIT)] + MATRIX_WAIT
    return before


def _under_mask(lines: Sequence[str], save: str, mask: str) -> list[str]:
    return [f"s_mov_b64 {save}, exec", f"s_mov_b64 exec, {mask}", *lines, f"s_mov_b64 exec, {save}"]


def _output(register: Register) -> Operand:
    if register.file == "vcc":
        return Operand("i64", "={vcc}")
    return Operand(_kind(register.words), f"=&{register.file}")


def _input(f: FunctionText, op: Op, form: Plan, register: Register, values: list[Value]) -> Operand:
    kind = _kind(register.words)
    constraint = {"v": "v", "s": "s", "vcc": "{vcc}", "m0": "{m0}"}[register.file]
    if register.is_mask:
        return Operand(kind, constraint, _ballot(f, values[0]))
    if register.file in ("s", "m0"):
        return Operand(kind, constraint, _first_lane(f, f.use(values[0])))
    if register.tied is not None:
        constraint = str(register.tied)
    if register.name == "addr" and any(p.place == "lds" for p in form.instruction.parameters):
        return Operand(kind, constraint, _lds_address(f, values[0]))
    return Operand(kind, constraint, f.operand(values, kind))


def _lds_address(f: FunctionText, value: Value) -> str:
    return f.temporary(f"ptrtoint ptr addrspace(3) {f.lds_pointer(value)} to i32")


def _ballot(f: FunctionText, value: Value) -> str:
    return f.temporary(f.call("llvm.amdgcn.ballot.i64", "i64", [("i1", f.use(value))]))


def _first_lane(f: FunctionText, text: str) -> str:
    return f.temporary(f.call("llvm.amdgcn.readfirstlane.i32", "i32", [("i32", text)]))


def _set_results(f: FunctionText, op: Op, form: Plan, made: Sequence[str]) -> None:
    rest = list(op.results)
    for register, text in zip(form.results, made, strict=False):
        values = [rest.pop(0) for _ in register.widths]
        if register.is_mask:
            lane_moves.set_lanes_of(f, values[0], text)
        else:
            f.spread(values, text, _kind(register.words))


def _emit_set_mode(f: FunctionText, op: Op) -> None:
    low = _first_lane(f, f.use(op.operands[0]))
    high = f.temporary(f"lshr i32 {low}, 23")
    f.assembly([*SET_MODE, *OTHER_WAIT], [], [Operand("i32", "s", low), Operand("i32", "s", high)])


def _emit_clock(f: FunctionText, op: Op) -> None:
    f.set(op.results[0], f.call("llvm.amdgcn.s.memtime", "i64", ()))


EMITTERS: dict[str, Callable[[FunctionText, Op], None]] = {
    "exact": _emit_exact,
    "set_mode": _emit_set_mode,
    "clock": _emit_clock,
}
