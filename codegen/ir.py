"""The kernel language's IR: SSA values that are raw bits, structured regions, one source line an operation.

Operations are the names of `gfx950.lanes.PRIMITIVES` and those of `OPERATIONS` below. A region's values may not be used
outside it; what leaves a loop or a branch leaves through its `yield`. `verify` holds all of this.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from codegen.machine_text import NoSuchForm, Plan, plan
from gfx950.isa.registry import Instruction, Parameter, lookup
from gfx950.lanes import ACCESS_BYTES, F16, F32, F64, I16, I32, I64, LANES, PRIMITIVES, U8, U16, U32, U64, Lanes, Words

WIDTHS = (1, 8, 16, 32, 64)
TYPE_NAMES: dict[type[Lanes], str] = {
    U8: "uchar", U16: "ushort", I16: "short", U32: "uint", I32: "int", U64: "ulong", I64: "long",
    F16: "half", F32: "float", F64: "double",
}  # fmt: skip

OPERATIONS = {
    "constant": "the static `bits`",
    "argument": "kernel argument number `index`",
    "thread_id": "0 .. block - 1",
    "workgroup_id": "the workgroup's index along `axis`",
    "load": "`nbytes` of global memory at a 64-bit address",
    "store": "`nbytes` to global memory",
    "lds_read": "`nbytes` of LDS at a 32-bit byte address",
    "lds_write": "`nbytes` to LDS",
    "barrier": "all threads of the workgroup meet; earlier writes are visible after it",
    "permute": "lane i takes lane `lanes[i]`",
    "readfirstlane": "the value of the wave's lowest active lane, a scalar",
    "fmaximum": "NaN-propagating maximum, +0 above -0",
    "fminimum": "NaN-propagating minimum, -0 below +0",
    "inst": "the instruction `mnemonic` with static `immediates`",
    "exact": "the instruction `mnemonic` with encoding `fields` and `extra` (DPP, SDWA), that and no other; `masked`:"
    " in the lanes of the last operand; `old`: the operands before it are the results' old registers",
    "set_mode": "MODE[7:0] and MODE[23] take those bits of a scalar, for the exact instructions that follow",
    "clock": "a count that grows, 64 bits",
    "loop": "region(i, carried...) for i in start, start + step .. < stop",
    "branch": "the first region where the mask is set, the second elsewhere",
    "when": "the region where the mask is set",
    "yield": "the values that leave a region",
}


@dataclass(eq=False, slots=True)
class Value:
    """One SSA value: `width` raw bits a lane (1: a mask). number: its name in print."""

    number: int
    width: int

    def __str__(self) -> str:
        return f"%{self.number}"


@dataclass(eq=False, slots=True)
class Block:
    """A region: its arguments, then operations in order."""

    arguments: tuple[Value, ...] = ()
    ops: list[Op] = field(default_factory=list)

    @property
    def yielded(self) -> tuple[Value, ...]:
        """The operands of the closing `yield`; empty where there is none."""
        return self.ops[-1].operands if self.ops and self.ops[-1].name == "yield" else ()


@dataclass(eq=False, slots=True)
class Op:
    """One operation. where: file:line of the kernel source that made it."""

    name: str
    operands: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    regions: tuple[Block, ...] = ()
    where: str = ""

    def __str__(self) -> str:
        made = ", ".join(f"{r}:{r.width}" for r in self.results)
        static = " ".join(f"{k}={_short(v)}" for k, v in self.attributes.items())
        used = ", ".join(str(o) for o in self.operands)
        return " ".join(part for part in (f"{made} =" if made else "", self.name, used, static) if part)


def _short(value: Any) -> str:
    return f"({','.join(map(str, value[:16]))},..)" if isinstance(value, tuple) and len(value) > 16 else str(value)


@dataclass(frozen=True)
class Argument:
    """A kernel argument. kind: its lane type's name; pointer: a 64-bit address of global memory."""

    name: str
    kind: type[Lanes]
    pointer: bool = False

    @property
    def type_name(self) -> str:
        """What OpenCL C calls the type, as the metadata of code objects has it."""
        return "void*" if self.pointer else TYPE_NAMES[self.kind]


@dataclass(eq=False)
class Program:
    """A traced kernel. block: threads a workgroup. lds: bytes. attributes: further keywords (waves_per_eu)."""

    name: str
    arguments: tuple[Argument, ...]
    block: int
    lds: int
    body: Block
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def waves(self) -> int:
        """Waves of a workgroup."""
        return -(-self.block // LANES)

    @functools.cached_property
    def has_matrix_intrinsics(self) -> bool:
        """Whether LLVM itself places matrix instructions in it."""
        return any("mf" in op.attributes["mnemonic"] for op in self.operations() if op.name == "inst")

    def operations(self) -> Iterator[Op]:
        """Every operation, those of regions after their owner."""
        return _walk(self.body)

    def __str__(self) -> str:
        arguments = ", ".join(f"{a.name}: {'Pointer' if a.pointer else a.kind.__name__}" for a in self.arguments)
        return "\n".join(
            [f"kernel {self.name}({arguments}) block={self.block} lds={self.lds}", *_lines(self.body, "  ")]
        )


def _walk(block: Block) -> Iterator[Op]:
    for op in block.ops:
        yield op
        for region in op.regions:
            yield from _walk(region)


def _lines(block: Block, indent: str) -> Iterator[str]:
    for op in block.ops:
        yield f"{indent}{op!s:<60} # {op.where}"
        for index, region in enumerate(op.regions):
            arguments = ", ".join(f"{a}:{a.width}" for a in region.arguments)
            yield f"{indent}region {index} ({arguments}):"
            yield from _lines(region, indent + "  ")


# ---- verification --------------------------------------------------------------------------------


class VerifyError(ValueError):
    """A program breaks a rule of the IR; the message names the source line and the operation."""


def verify(program: Program) -> None:
    """Checks scopes, operand and result widths, yields, static attributes. Raises VerifyError at the first breach."""
    if not 1 <= program.block <= 1024:
        raise VerifyError(f"kernel {program.name}: block is {program.block} threads; a workgroup has 1 to 1024")
    if not 0 <= program.lds <= 163840:
        raise VerifyError(f"kernel {program.name}: lds is {program.lds} bytes; a workgroup has at most 163840")
    _Verifier(program).block(program.body, set())
    _check_modes(program)


def _check_modes(program: Program) -> None:
    """Where MODE is changed, only exact instructions may depend on it: LLVM takes MODE to be the default."""
    ops = list(program.operations())
    if all(op.name != "set_mode" for op in ops):
        return
    for op in ops:
        if op.name == "inst" or op.name in _FLOAT_NAMES:
            raise breach(
                op,
                "depends on MODE, which this kernel changes, and LLVM may move or change it; call the instruction"
                " (v_add_f32 ...) under @kernel(exact=True), or by exact(...)",
            )


class _Verifier:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.defined: set[Value] = set()  # every value defined so far, in any region

    def block(self, block: Block, visible: set[Value]) -> None:
        """Checks one region; `visible` are the values of the regions around it."""
        scope = visible | set(block.arguments)
        self.defined.update(block.arguments)
        for index, op in enumerate(block.ops):
            self._scope(op, scope)
            self._types(op)
            if op.name == "yield" and index != len(block.ops) - 1:
                raise breach(op, "is not the last operation of its region")
            for region in op.regions:
                self.block(region, scope)
            self._results(op)
            scope.update(op.results)

    def _results(self, op: Op) -> None:
        for result in op.results:
            if result in self.defined:
                raise breach(op, f"defines {result} a second time")
            self.defined.add(result)

    def _scope(self, op: Op, scope: set[Value]) -> None:
        for index, operand in enumerate(op.operands):
            if operand in scope:
                continue
            if operand in self.defined:
                raise breach(
                    op,
                    f"operand {index} ({operand}) was made inside a `when`, `loop` or `branch` and is used outside it;"
                    " carry or yield it out of the region",
                )
            raise breach(op, f"operand {index} ({operand}) is used before it is defined")

    def _types(self, op: Op) -> None:
        if op.name in PRIMITIVES:
            _check_primitive(op)
        elif op.name in _CHECKS:
            _CHECKS[op.name](op, self.program)
        else:
            raise breach(op, "is no operation of the IR")


def breach(op: Op, what: str) -> VerifyError:
    """The error for an operation that breaks a rule."""
    return VerifyError(f"{op.where or '(no source line)'}: op `{op.name}` {what}")


def _widths(op: Op, operands: Sequence[int], results: Sequence[int]) -> None:
    for what, values, wanted in (("operands", op.operands, operands), ("results", op.results, results)):
        if len(values) != len(wanted):
            raise breach(op, f"has {len(values)} {what}, expected {len(wanted)}")
        for index, (value, width) in enumerate(zip(values, wanted, strict=True)):
            if value.width != width:
                raise breach(op, f"{what[:-1]} {index} ({value}) has {value.width} bits, expected {width}")


_EXTENDS = {"zext", "sext", "fpext"}
_NARROWS = {"trunc", "fptrunc"}
_FLOAT_RESULT = {"fpext", "fptrunc", "sitofp", "uitofp"}
_FLOAT_OPERAND = {"fpext", "fptrunc", "fptosi", "fptoui", "feq", "flt", "fle", "funo"}
_FLOAT_SAME = {"fadd", "fsub", "fmul", "fdiv", "fma", "fsqrt", "ffloor", "fceil", "ftrunc", "frint"}
_FLOAT_NAMES = _FLOAT_RESULT | _FLOAT_OPERAND | _FLOAT_SAME | {"fmaximum", "fminimum"}
_CONVERSIONS = _EXTENDS | _NARROWS | _FLOAT_RESULT | {"fptosi", "fptoui"}
_ACROSS = {"gather": (32,), "readlane": (32,), "writelane": (32, None)}  # None: the width of the value


def _check_primitive(op: Op) -> None:
    primitive = PRIMITIVES[op.name]
    if len(op.results) != 1:
        raise breach(op, f"has {len(op.results)} results, expected 1")
    if len(op.operands) != primitive.operands:
        raise breach(op, f"has {len(op.operands)} operands, expected {primitive.operands}")
    width = op.results[0].width
    first = op.operands[0].width
    if op.name in _CONVERSIONS:
        _check_conversion(op, first, width)
    elif op.name == "select":
        _widths(op, (1, width, width), (width,))
    elif op.name in _ACROSS:
        _widths(op, (width, *(w or width for w in _ACROSS[op.name])), (width,))
    elif op.name in ("ballot", "lanes_of"):
        _widths(op, (1,) if op.name == "ballot" else (64,), (64,) if op.name == "ballot" else (1,))
    elif primitive.result == "mask":
        _widths(op, (first,) * primitive.operands, (1,))
    else:
        _widths(op, (width,) * primitive.operands, (width,))
    _check_float_widths(op, first, width)


def _check_conversion(op: Op, source: int, target: int) -> None:
    if op.name in _EXTENDS and not source < target:
        raise breach(op, f"extends {source} bits to {target}: the result must be wider")
    if op.name in _NARROWS and not source > target:
        raise breach(op, f"narrows {source} bits to {target}: the result must be narrower")


def _check_float_widths(op: Op, first: int, result: int) -> None:
    if op.name in _FLOAT_OPERAND | _FLOAT_SAME and first not in (16, 32, 64):
        raise breach(op, f"operand 0 has {first} bits; floats have 16, 32 or 64")
    if op.name in _FLOAT_RESULT and result not in (16, 32, 64):
        raise breach(op, f"result 0 has {result} bits; floats have 16, 32 or 64")


def _attribute(op: Op, name: str, kind: type) -> Any:
    value = op.attributes.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise breach(op, f"needs the static attribute `{name}` ({kind.__name__}), got {value!r}")
    return value


def _check_constant(op: Op, program: Program) -> None:
    bits = _attribute(op, "bits", int)
    _widths(op, (), (op.results[0].width if op.results else 0,))
    width = op.results[0].width
    if width not in WIDTHS or not 0 <= bits < 1 << width:
        raise breach(op, f"bits {bits:#x} do not fit {width} bits (widths are {WIDTHS})")


def _check_argument(op: Op, program: Program) -> None:
    index = _attribute(op, "index", int)
    if not 0 <= index < len(program.arguments):
        raise breach(op, f"index {index} is out of range: the kernel has {len(program.arguments)} arguments")
    _widths(op, (), (program.arguments[index].kind.width,))


def _check_identity(op: Op, program: Program) -> None:
    if op.name == "workgroup_id" and _attribute(op, "axis", int) not in (0, 1, 2):
        raise breach(op, f"axis is {op.attributes['axis']}; a grid has axes 0, 1 and 2")
    _widths(op, (), (32,))


def _check_memory(op: Op, program: Program) -> None:
    nbytes, align = _attribute(op, "nbytes", int), _attribute(op, "align", int)
    if nbytes not in ACCESS_BYTES:
        raise breach(op, f"moves {nbytes} bytes; an access has {ACCESS_BYTES}")
    if align not in (1, 2, 4, 8, 16):
        raise breach(op, f"align is {align}; it is 1, 2, 4, 8 or 16 bytes")
    words = (32,) * max(1, nbytes // 4)
    address = 64 if op.name in ("load", "store") else 32
    if op.name in ("load", "lds_read"):
        _widths(op, (address,), words)
    else:
        _widths(op, (address, *words), ())
    if address == 32 and not program.lds:
        raise breach(op, "uses LDS, but the kernel has none: state @kernel(lds=bytes)")


def _check_permute(op: Op, program: Program) -> None:
    lanes = _attribute(op, "lanes", tuple)
    if len(lanes) != LANES or not all(isinstance(n, int) and 0 <= n < LANES for n in lanes):
        raise breach(op, f"needs {LANES} lane numbers in 0..{LANES - 1}, got {_short(lanes)}")
    _check_same(op, program, 1)


def _check_same(op: Op, program: Program, count: int) -> None:
    width = op.results[0].width if op.results else 0
    _widths(op, (width,) * count, (width,))


def _check_maximum(op: Op, program: Program) -> None:
    _widths(op, (32, 32), (32,))


def _check_loop(op: Op, program: Program) -> None:
    carried = [r.width for r in op.results]
    _widths(op, (32, 32, 32, *carried), carried)
    if len(op.regions) != 1:
        raise breach(op, f"has {len(op.regions)} regions, expected 1")
    _check_region(op, op.regions[0], "loop body", (32, *carried), carried)


def _check_branch(op: Op, program: Program) -> None:
    results = [r.width for r in op.results]
    _widths(op, (1,), results)
    if len(op.regions) != 2:
        raise breach(op, f"has {len(op.regions)} regions, expected 2")
    for region, what in zip(op.regions, ("first side", "second side"), strict=True):
        _check_region(op, region, what, (), results)


def _check_when(op: Op, program: Program) -> None:
    _widths(op, (1,), ())
    if len(op.regions) != 1:
        raise breach(op, f"has {len(op.regions)} regions, expected 1")
    _check_region(op, op.regions[0], "body", (), ())


def _check_region(op: Op, region: Block, what: str, arguments: Sequence[int], yields: Sequence[int]) -> None:
    got = [a.width for a in region.arguments]
    if got != list(arguments):
        raise breach(op, f"{what} takes values of {got} bits, expected {list(arguments)}")
    left = [y.width for y in region.yielded]
    if left != list(yields):
        raise breach(op, f"{what} yields values of {left} bits, expected {list(yields)}")


def _check_yield(op: Op, program: Program) -> None:
    if op.results:
        raise breach(op, "has results")


def _check_barrier(op: Op, program: Program) -> None:
    _widths(op, (), ())


@functools.cache
def instruction_of(mnemonic: str) -> Instruction:
    """The definition of a mnemonic, looked up once. Raises KeyError as `lookup`."""
    return lookup(mnemonic)


def lane_widths(parameters: Sequence[Parameter]) -> list[int]:
    """The widths of the raw values behind lane parameters, wide operands register by register; static ones left out."""
    widths: list[int] = []
    for parameter in parameters:
        if parameter.place == "exec":
            continue
        kind = parameter.kind
        if isinstance(kind, type) and issubclass(kind, Words):
            widths += [32] * kind.count
        elif isinstance(kind, type) and issubclass(kind, Lanes):
            widths.append(kind.width)
    return widths


def _check_inst(op: Op, program: Program) -> None:
    mnemonic = _attribute(op, "mnemonic", str)
    try:
        instruction = instruction_of(mnemonic)
    except KeyError as missing:
        raise breach(op, f"names an unknown instruction: {missing.args[0]}") from missing
    _widths(op, lane_widths(instruction.parameters), lane_widths(instruction.results))
    _check_lds(op, program, instruction)
    immediates = _attribute(op, "immediates", dict)
    wanted = {p.name for p in instruction.parameters if p.kind is int}
    if set(immediates) != wanted or not all(isinstance(v, int) for v in immediates.values()):
        raise breach(op, f"({mnemonic}) has immediates {immediates}, expected integers named {sorted(wanted)}")


def exact_plan(op: Op) -> Plan:
    """The plan of an `exact` operation, or of an `inst` that reads LDS."""
    attributes = op.attributes
    if op.name == "inst":
        return plan(attributes["mnemonic"], tuple(sorted(attributes["immediates"].items())))
    return plan(attributes["mnemonic"], attributes["fields"], attributes["extra"], attributes["masked"])


def _check_exact(op: Op, program: Program) -> None:
    _attribute(op, "mnemonic", str)
    try:
        form = exact_plan(op)
    except (KeyError, NoSuchForm) as problem:
        raise breach(op, f"cannot be made: {problem.args[0]}") from problem
    results = [w for r in form.results for w in r.widths]
    old = [w for r in form.untied if op.attributes["old"] for w in r.widths]
    operands = [*(w for s in form.sources for w in s.widths), *old, *([1] if op.attributes["masked"] else [])]
    _widths(op, operands, results)
    _check_lds(op, program, form.instruction)


def _check_lds(op: Op, program: Program, instruction: Instruction) -> None:
    if not program.lds and any(p.place == "lds" for p in instruction.parameters):
        raise breach(op, "uses LDS, but the kernel has none: state @kernel(lds=bytes)")


_CHECKS: dict[str, Callable[[Op, Program], None]] = {
    "constant": _check_constant,
    "argument": _check_argument,
    "thread_id": _check_identity,
    "workgroup_id": _check_identity,
    "load": _check_memory,
    "store": _check_memory,
    "lds_read": _check_memory,
    "lds_write": _check_memory,
    "barrier": _check_barrier,
    "permute": _check_permute,
    "readfirstlane": lambda op, program: _check_same(op, program, 1),
    "fmaximum": _check_maximum,
    "fminimum": _check_maximum,
    "inst": _check_inst,
    "exact": _check_exact,
    "set_mode": lambda op, program: _widths(op, (32,), ()),
    "clock": lambda op, program: _widths(op, (), (64,)),
    "loop": _check_loop,
    "branch": _check_branch,
    "when": _check_when,
    "yield": _check_yield,
}
assert _CHECKS.keys() == OPERATIONS.keys()
