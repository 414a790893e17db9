"""Exact instructions in a kernel: the tracer's side of `exact`, `masked` and of the calls under @kernel(exact=True).

An operand is registers: a lane value of the operand's width, of 32 bits where the operand is narrower (its whole
register), a run, or a number. A result of 16 bits is its whole register, a U32; any other has the definition's type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from codegen.ir import Op, Value
from codegen.machine_text import NoSuchForm, Plan, Register, plan, unusable
from gfx950.isa.registry import Instruction, Parameter
from gfx950.lanes import I32, REGISTERS, U32, U64, Float, Lanes, Mask, Words

if TYPE_CHECKING:
    from codegen.trace import Tracer

FIELDS = {
    "neg", "abs", "clamp", "omod", "op_sel", "op_sel_hi", "op_sel_hi2", "neg_hi", "cbsz", "abid", "blgp", "offset",
    "literal", "scale_op_sel", "scale_op_sel_hi",
}  # fmt: skip


def record_exact(
    tracer: Tracer,
    instruction: Instruction,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    *,
    mask: Mask | None = None,
    old: Any = None,
) -> Any:
    """Records exactly this instruction. args: its register operands in order, then static ones. kwargs: operands by
    name, fields of the encoding, `extra`. Returns the results. Raises TypeError naming the source line."""
    if why := unusable(instruction):
        raise TypeError(f"{tracer.where()}: {instruction.name} {why}")
    given = dict(kwargs)
    extra = given.pop("extra", "")
    bound, fields = _bind(tracer, instruction, args, given)
    static = tuple(sorted(fields.items()))
    try:
        form = plan(instruction.name, static, extra, mask is not None)
    except NoSuchForm as problem:
        raise TypeError(f"{tracer.where()}: {problem}") from None
    kept = _old_values(tracer, form, old)
    operands = [*_source_values(tracer, form, bound), *kept, *([mask.raw] if mask is not None else [])]
    results = [tuple(tracer.value(width) for width in r.widths) for r in form.results]
    attributes = {"mnemonic": instruction.name, "fields": static, "extra": extra, "old": bool(kept)}
    attributes["masked"] = mask is not None
    tracer.record(Op("exact", tuple(operands), tuple(v for r in results for v in r), attributes))
    made = [_result(tracer, p, v) for p, v in zip(instruction.results, results, strict=True)]
    return made[0] if len(made) == 1 else tuple(made)


def _source_values(tracer: Tracer, form: Plan, bound: dict[str, Any]) -> list[Value]:
    kinds = {p.name: p for p in form.instruction.parameters}
    found: list[Value] = []
    for register in form.sources:
        found += _operand(tracer, form.instruction, kinds[register.name], register, bound[register.name])
    return found


def _bind(
    tracer: Tracer, instruction: Instruction, args: Sequence[Any], given: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, int]]:
    """Operands by name, and the fields that are no operands (those of the definition are 0 unless given)."""
    from codegen.trace import is_implicit

    asked = [p for p in instruction.parameters if not is_implicit(p)]
    ordered = [p.name for p in asked]
    if len(args) > len(ordered):
        raise TypeError(f"{tracer.where()}: {instruction.name} takes {len(ordered)} operands, got {len(args)}")
    bound = dict(zip(ordered, args, strict=False))
    static = {p.name for p in asked if p.kind is int}
    for name, value in given.items():
        if name in bound or name not in {*ordered, *FIELDS}:
            raise TypeError(f"{tracer.where()}: {instruction.name} got an unexpected or repeated operand `{name}`")
        bound[name] = value
    fields = {name: bound.pop(name) for name in list(bound) if name in static or name in FIELDS}
    for name, value in fields.items():
        if not isinstance(value, int):
            where = f"{tracer.where()}: {instruction.name}"
            raise TypeError(f"{where} field `{name}` is static: pass an int, got {value!r}")
    missing = [p.name for p in asked if p.name not in bound and p.kind is not int]
    if missing:
        raise TypeError(f"{tracer.where()}: {instruction.name} is missing {', '.join(missing)}")
    return bound, {name: int(value) for name, value in fields.items()}


def _operand(
    tracer: Tracer, instruction: Instruction, parameter: Parameter, register: Register, value: Any
) -> list[Value]:
    """The IR values of one operand. Raises TypeError for a value that is not its registers."""
    kind = parameter.kind
    if register.is_mask:
        if isinstance(value, Mask):
            return [value.raw]
    elif register.words > 2:
        words = list(value.words if isinstance(value, Words) else value if isinstance(value, (tuple, list)) else ())
        if parameter.place in ("matrix_a", "matrix_b"):  # the formats of fewer bits need fewer registers
            words = words[: register.words]
        if len(words) == register.words:
            return [raw for word in words for raw in _word(tracer, instruction, parameter, word)]
    elif register.words == 2:
        if isinstance(value, (tuple, list)) and len(value) == 2:
            low, high = (U32(tracer, _word(tracer, instruction, parameter, part)[0]) for part in value)
            return [(low.to(U64) | high.to(U64) << 32).raw]
        if isinstance(value, Lanes) and value.width == 64:
            return [value.raw]
        if isinstance(value, (int, float)) and kind.width == 64:
            return [kind.constant(tracer, value).raw]
    else:
        return _word(tracer, instruction, parameter, value)
    wanted = "a Mask" if register.is_mask else f"{register.words} registers"
    raise TypeError(
        f"{tracer.where()}: {instruction.name} operand `{parameter.name}` is {wanted}, got {type(value).__name__}"
    )


def _word(tracer: Tracer, instruction: Instruction, parameter: Parameter, value: Any) -> list[Value]:
    """One register."""
    kind = parameter.kind if issubclass(parameter.kind, Lanes) and parameter.kind.width <= 32 else U32
    if isinstance(value, float) and issubclass(kind, Float):
        return [tracer.constant(kind.constant_bits(value), 32)]
    if isinstance(value, int) and not isinstance(value, bool):
        bits = kind.constant_bits(value) if issubclass(kind, Float) else I32.constant_bits(value)
        return [tracer.constant(bits, 32)]
    if isinstance(value, Lanes) and value.width == 32:
        return [value.raw]
    if isinstance(value, Lanes) and value.width == kind.width and value.width > 1:
        return [tracer.apply("zext", 32, value.raw)]
    raise TypeError(
        f"{tracer.where()}: {instruction.name} operand `{parameter.name}` is {kind.__name__} or a whole register,"
        f" got {type(value).__name__}"
    )


def _old_values(tracer: Tracer, form: Plan, old: Any) -> list[Value]:
    """What the results' registers hold before, where it was given or may stay; 0 where it was not given."""
    untied = form.untied
    if old is None:
        return [tracer.constant(0, width) for r in untied for width in r.widths] if form.keeps else []
    values = old if isinstance(old, tuple) and len(untied) != 1 else (old,)
    if len(values) != len(untied):
        raise TypeError(
            f"{tracer.where()}: {form.instruction.name} has {len(untied)} results whose old value can be given, got"
            f" {len(values)}"
        )
    found: list[Value] = []
    for register, value in zip(untied, values, strict=True):
        parameter = Parameter("old", REGISTERS[register.words])
        found += _operand(tracer, form.instruction, parameter, register, value)
    return found


def _result(tracer: Tracer, parameter: Parameter, values: tuple[Value, ...]) -> Any:
    kind = parameter.kind
    if len(values) > 1:
        return REGISTERS[len(values)]([U32(tracer, v) for v in values])
    if values[0].width == kind.width:
        return kind(tracer, values[0])
    return (U64 if values[0].width == 64 else U32)(tracer, values[0])
