"""LLVM AMDGPU text of traced programs: one scalar-per-lane function a kernel.

Nothing here may change a bit: no fast-math flags, no contraction, denormals kept. Raw bits are iN values; floats are
bitcasts around the operation, which LLVM removes. Inline assembly cannot be emitted in this process, only intrinsics.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from codegen.ir import LANES, Block, Op, Program, Value, instruction_of
from gfx950.isa.registry import Instruction
from gfx950.lanes import F16, F32, F64, Lanes, Words

TRIPLE = "amdgcn-amd-amdhsa"
FLOATS = {16: "half", 32: "float", 64: "double"}
LANE_FLOATS: dict[type[Lanes], str] = {F16: "half", F32: "float", F64: "double"}

# Implicit arguments no kernel of this language uses; without these marks LLVM reserves registers for them.
UNUSED = (
    "completion-action",
    "default-queue",
    "dispatch-id",
    "dispatch-ptr",
    "flat-scratch-init",
    "heap-ptr",
    "hostcall-ptr",
    "implicitarg-ptr",
    "lds-kernel-id",
    "multigrid-sync-arg",
    "queue-ptr",
    "workitem-id-y",
    "workitem-id-z",
)


class EmitError(ValueError):
    """A program that cannot be said in LLVM; the message names the source line and the operation."""


@dataclass
class _Module:
    """Text that functions share: declarations and LDS globals, sorted when printed."""

    declarations: dict[str, str]

    def intrinsic(self, name: str, result: str, arguments: Sequence[str]) -> None:
        """Declares an intrinsic once."""
        self.declarations[name] = f"declare {result} @{name}({', '.join(arguments)})"


def emit(programs: Sequence[Program]) -> str:
    """The LLVM module of all programs, as text. Raises EmitError for what LLVM cannot be told."""
    names = [p.name for p in programs]
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise EmitError(f"kernels of one module need different names; {', '.join(sorted(twice))} appears twice")
    module = _Module({})
    functions = [_Function(program, index, module).text() for index, program in enumerate(programs)]
    attributes = [f"attributes #{i} = {{ {_attributes(p)} }}" for i, p in enumerate(programs)]
    sizes = [f"!{i + 1} = !{{i32 {p.block}, i32 1, i32 1}}" for i, p in enumerate(programs)]
    flags = ["!llvm.module.flags = !{!0}", '!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}']
    shared = [f'target triple = "{TRIPLE}"', *(module.declarations[n] for n in sorted(module.declarations))]
    return "\n".join([*shared, *functions, *attributes, *flags, *sizes, ""])


def _attributes(program: Program) -> str:
    waves = program.attributes.get("waves_per_eu")
    pairs = {
        "amdgpu-agpr-alloc": str(program.attributes.get("agprs", 0)),
        "amdgpu-flat-work-group-size": f"{program.block},{program.block}",
        "denormal-fp-math": "ieee,ieee",
        "denormal-fp-math-f32": "ieee,ieee",
        "target-cpu": "gfx950",
        "uniform-work-group-size": "true",
    }
    if waves is not None:
        pairs["amdgpu-waves-per-eu"] = ",".join(map(str, waves)) if isinstance(waves, (tuple, list)) else str(waves)
    axes = {op.attributes["axis"] for op in program.operations() if op.name == "workgroup_id"}
    unused = [*UNUSED, *(f"workgroup-id-{'xyz'[axis]}" for axis in (1, 2) if axis not in axes)]
    return " ".join(
        ["nounwind", *(f'"amdgpu-no-{u}"' for u in sorted(unused)), *(f'"{k}"="{v}"' for k, v in pairs.items())]
    )


def _integer(width: int) -> str:
    return f"i{width}"


def _access_type(nbytes: int) -> str:
    return {1: "i8", 2: "i16", 4: "i32"}.get(nbytes) or f"<{nbytes // 4} x i32>"


BINARY = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
SHIFTS = {"shl": "shl", "lshr": "lshr", "ashr": "ashr"}
MINMAX = {"umin": "umin", "umax": "umax", "smin": "smin", "smax": "smax"}
COUNTS = {"popcount": "ctpop", "clz": "ctlz", "ctz": "cttz", "bitreverse": "bitreverse"}
COMPARES = {"eq": "eq", "ne": "ne", "ult": "ult", "ule": "ule", "slt": "slt", "sle": "sle"}
FLOAT_BINARY = {"fadd": "fadd", "fsub": "fsub", "fmul": "fmul", "fdiv": "fdiv"}
FLOAT_CALLS = {
    "fma": "fma",
    "fsqrt": "sqrt",
    "ffloor": "floor",
    "fceil": "ceil",
    "ftrunc": "trunc",
    "frint": "rint",
    "fmaximum": "maximum",
    "fminimum": "minimum",
}
FLOAT_COMPARES = {"feq": "oeq", "flt": "olt", "fle": "ole", "funo": "uno"}


class _Function:
    """Emits one kernel. Names: %vN a value, %pN its pointer where it is an address made from an argument."""

    def __init__(self, program: Program, index: int, module: _Module) -> None:
        self.program, self.index, self.module = program, index, module
        self.lines: list[str] = []
        self.pointers: set[Value] = set()
        self.names: dict[Value, str] = {}
        self.temporaries = 0
        self.labels = 0
        self.label = "entry"  # of the basic block being filled

    def text(self) -> str:
        """The function, with its LDS global before it."""
        self.block(self.program.body)
        name, lds = self.program.name, self.program.lds
        arguments = ", ".join(f"{_argument_type(a.kind, a.pointer)} %{a.name}" for a in self.program.arguments)
        head = (
            f"define amdgpu_kernel void @{name}({arguments}) #{self.index} !reqd_work_group_size !{self.index + 1} {{"
        )
        shared = [f"@{name}.lds = internal addrspace(3) global [{lds} x i8] poison, align 16"] if lds else []
        return "\n".join([*shared, head, "entry:", *self.lines, "  ret void", "}"])

    # ---- text ----------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """One instruction."""
        self.lines.append("  " + text)

    def temporary(self, text: str) -> str:
        """An instruction with a new unnamed-by-the-program result; returns the name."""
        self.temporaries += 1
        name = f"%t{self.temporaries}"
        self.line(f"{name} = {text}")
        return name

    def start(self, label: str) -> None:
        """Begins a basic block."""
        self.lines.append(f"{label}:")
        self.label = label

    def labelled(self, *stems: str) -> list[str]:
        """New labels with one number."""
        self.labels += 1
        return [f"{stem}{self.labels}" for stem in stems]

    def use(self, value: Value) -> str:
        """The text of a value: a literal or a name."""
        return self.names.get(value) or f"%v{value.number}"

    def set(self, value: Value, text: str) -> None:
        """Defines a value by an instruction."""
        self.line(f"%v{value.number} = {text}")

    def alias(self, value: Value, text: str) -> None:
        """Defines a value as another name or literal."""
        self.names[value] = text

    def call(self, name: str, result: str, arguments: Sequence[tuple[str, str]], immediate: Sequence[int] = ()) -> str:
        """The text of a call of an intrinsic, which is declared. immediate: positions that must be constants."""
        kinds = [f"{kind} immarg" if i in immediate else kind for i, (kind, _) in enumerate(arguments)]
        self.module.intrinsic(name, result, kinds)
        return f"call {result} @{name}({', '.join(f'{kind} {text}' for kind, text in arguments)})"

    def cast(self, text: str, source: str, target: str) -> str:
        """A bitcast where the types differ."""
        return text if source == target else self.temporary(f"bitcast {source} {text} to {target}")

    def as_float(self, value: Value) -> str:
        """A value's bits as a float of its width."""
        return self.cast(self.use(value), _integer(value.width), FLOATS[value.width])

    def set_float(self, value: Value, text: str) -> None:
        """Defines a value by an instruction that gives a float."""
        self.set(value, f"bitcast {FLOATS[value.width]} {self.temporary(text)} to {_integer(value.width)}")

    # ---- operations ----------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        """All operations of a region."""
        for op in block.ops:
            if op.name != "yield":
                _EMITTERS[op.name](self, op)

    def pointer(self, address: Value) -> str:
        """A global address as a pointer: by getelementptr from the argument where it was made that way."""
        if address in self.pointers:
            return f"%p{address.number}"
        return self.temporary(f"inttoptr i64 {self.use(address)} to ptr addrspace(1)")

    def lds_pointer(self, address: Value) -> str:
        """An LDS byte address as a pointer."""
        base = f"@{self.program.name}.lds"
        return self.temporary(f"getelementptr i8, ptr addrspace(3) {base}, i32 {self.use(address)}")


def _argument_type(kind: type[Lanes], pointer: bool) -> str:
    return "ptr addrspace(1)" if pointer else LANE_FLOATS.get(kind, f"i{kind.width}")


def _emit_argument(f: _Function, op: Op) -> None:
    argument = f.program.arguments[op.attributes["index"]]
    value = op.results[0]
    if argument.pointer:
        f.pointers.add(value)
        f.line(f"%p{value.number} = getelementptr i8, ptr addrspace(1) %{argument.name}, i64 0")
        f.set(value, f"ptrtoint ptr addrspace(1) %{argument.name} to i64")
    elif argument.kind in LANE_FLOATS:
        f.set(value, f"bitcast {LANE_FLOATS[argument.kind]} %{argument.name} to i{value.width}")
    else:
        f.alias(value, f"%{argument.name}")


def _emit_constant(f: _Function, op: Op) -> None:
    bits, width = op.attributes["bits"], op.results[0].width
    f.alias(op.results[0], ("true" if bits else "false") if width == 1 else str(bits))


def _emit_thread_id(f: _Function, op: Op) -> None:
    call = f.call("llvm.amdgcn.workitem.id.x", "i32", ())
    f.set(op.results[0], call.replace("call i32", f"call range(i32 0, {f.program.block}) i32"))


def _emit_workgroup_id(f: _Function, op: Op) -> None:
    f.set(op.results[0], f.call(f"llvm.amdgcn.workgroup.id.{'xyz'[op.attributes['axis']]}", "i32", ()))


def _emit_binary(f: _Function, op: Op) -> None:
    a, b = op.operands
    width = op.results[0].width
    f.set(op.results[0], f"{BINARY[op.name]} i{width} {f.use(a)}, {f.use(b)}")
    if op.name == "add" and width == 64:
        _emit_pointer_sum(f, op)


def _emit_pointer_sum(f: _Function, op: Op) -> None:
    """An address made from an argument keeps its pointer, so that LLVM sees which memory it is."""
    a, b = op.operands
    if (a in f.pointers) == (b in f.pointers):
        return
    base, offset = (a, b) if a in f.pointers else (b, a)
    value = op.results[0]
    f.pointers.add(value)
    f.line(f"%p{value.number} = getelementptr i8, ptr addrspace(1) %p{base.number}, i64 {f.use(offset)}")


def _emit_shift(f: _Function, op: Op) -> None:
    width = op.results[0].width
    a, b = op.operands
    amount = f.temporary(f"and i{width} {f.use(b)}, {width - 1}")
    f.set(op.results[0], f"{SHIFTS[op.name]} i{width} {f.use(a)}, {amount}")


def _emit_minmax(f: _Function, op: Op) -> None:
    kind = _integer(op.results[0].width)
    f.set(op.results[0], f.call(f"llvm.{MINMAX[op.name]}.{kind}", kind, [(kind, f.use(o)) for o in op.operands]))


def _emit_count(f: _Function, op: Op) -> None:
    kind = _integer(op.results[0].width)
    extra = [("i1", "false")] if op.name in ("clz", "ctz") else []
    arguments = [(kind, f.use(op.operands[0])), *extra]
    f.set(op.results[0], f.call(f"llvm.{COUNTS[op.name]}.{kind}", kind, arguments, (1,)))


def _emit_compare(f: _Function, op: Op) -> None:
    a, b = op.operands
    f.set(op.results[0], f"icmp {COMPARES[op.name]} i{a.width} {f.use(a)}, {f.use(b)}")


def _emit_resize(f: _Function, op: Op) -> None:
    source, target = op.operands[0], op.results[0]
    f.set(target, f"{op.name} i{source.width} {f.use(source)} to i{target.width}")


def _emit_select(f: _Function, op: Op) -> None:
    mask, a, b = op.operands
    kind = _integer(a.width)
    f.set(op.results[0], f"select i1 {f.use(mask)}, {kind} {f.use(a)}, {kind} {f.use(b)}")


def _emit_float_binary(f: _Function, op: Op) -> None:
    a, b = (f.as_float(o) for o in op.operands)
    f.set_float(op.results[0], f"{FLOAT_BINARY[op.name]} {FLOATS[op.results[0].width]} {a}, {b}")


def _emit_float_call(f: _Function, op: Op) -> None:
    width = op.results[0].width
    arguments = [(FLOATS[width], f.as_float(o)) for o in op.operands]
    f.set_float(op.results[0], f.call(f"llvm.{FLOAT_CALLS[op.name]}.f{width}", FLOATS[width], arguments))


def _emit_float_compare(f: _Function, op: Op) -> None:
    a, b = (f.as_float(o) for o in op.operands)
    f.set(op.results[0], f"fcmp {FLOAT_COMPARES[op.name]} {FLOATS[op.operands[0].width]} {a}, {b}")


def _emit_float_resize(f: _Function, op: Op) -> None:
    source, target = op.operands[0], op.results[0]
    f.set_float(target, f"{op.name} {FLOATS[source.width]} {f.as_float(source)} to {FLOATS[target.width]}")


def _emit_to_float(f: _Function, op: Op) -> None:
    source, target = op.operands[0], op.results[0]
    f.set_float(target, f"{op.name} i{source.width} {f.use(source)} to {FLOATS[target.width]}")


def _emit_to_integer(f: _Function, op: Op) -> None:
    source, target = op.operands[0], op.results[0]
    name = f"llvm.{op.name}.sat.i{target.width}.f{source.width}"
    f.set(target, f.call(name, f"i{target.width}", [(FLOATS[source.width], f.as_float(source))]))


# ---- across lanes --------------------------------------------------------------------------------


def _by_words(f: _Function, value: Value, move: Callable[[str], str]) -> str:
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


def _bpermute(f: _Function, value: str, byte_address: str) -> str:
    return f.temporary(f.call("llvm.amdgcn.ds.bpermute", "i32", [("i32", byte_address), ("i32", value)]))


def _emit_gather(f: _Function, op: Op) -> None:
    value, lanes = op.operands
    address = f.temporary(f"shl i32 {f.use(lanes)}, 2")
    f.alias(op.results[0], _by_words(f, value, lambda word: _bpermute(f, word, address)))


def _lane(f: _Function) -> str:
    """The lane's number in its wave."""
    low = f.temporary(f.call("llvm.amdgcn.mbcnt.lo", "i32", [("i32", "-1"), ("i32", "0")]))
    return f.temporary(f.call("llvm.amdgcn.mbcnt.hi", "i32", [("i32", "-1"), ("i32", low)]))


def _emit_permute(f: _Function, op: Op) -> None:
    lanes = op.attributes["lanes"]
    controls = dpp_controls(lanes)
    if controls is None:
        address = f.temporary(f"shl i32 {_static_lanes(f, lanes)}, 2")
        f.alias(op.results[0], _by_words(f, op.operands[0], lambda word: _bpermute(f, word, address)))
    else:
        f.alias(op.results[0], _by_words(f, op.operands[0], lambda word: _dpp(f, word, controls)))


def _dpp(f: _Function, word: str, controls: Sequence[int]) -> str:
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


def _static_lanes(f: _Function, lanes: Sequence[int]) -> str:
    """Each lane's own number of a static table. Raises EmitError unless it is lane xor constant."""
    mask = lanes[0]
    if any(n != i ^ mask for i, n in enumerate(lanes)):
        raise EmitError(
            f"permute to lanes {tuple(lanes)} is neither DPP-expressible (a pattern within rows of 16) nor lane xor"
            " constant; use .gather(lane numbers)"
        )
    return f.temporary(f"xor i32 {_lane(f)}, {mask}")


QUAD_IDENTITY = 0xE4


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


def _emit_readfirstlane(f: _Function, op: Op) -> None:
    def move(word: str) -> str:
        return f.temporary(f.call("llvm.amdgcn.readfirstlane.i32", "i32", [("i32", word)]))

    f.alias(op.results[0], _by_words(f, op.operands[0], move))


def _emit_readlane(f: _Function, op: Op) -> None:
    lane = ("i32", f.use(op.operands[1]))

    def move(word: str) -> str:
        return f.temporary(f.call("llvm.amdgcn.readlane.i32", "i32", [("i32", word), lane]))

    f.alias(op.results[0], _by_words(f, op.operands[0], move))


def _emit_writelane(f: _Function, op: Op) -> None:
    old, lane, scalar = op.operands
    kind = _integer(old.width)
    number = f.temporary(f"and i32 {f.use(lane)}, 63")
    here = f.temporary(f"icmp eq i32 {_lane(f)}, {number}")
    f.set(op.results[0], f"select i1 {here}, {kind} {f.use(scalar)}, {kind} {f.use(old)}")


def _emit_ballot(f: _Function, op: Op) -> None:
    f.set(op.results[0], f.call("llvm.amdgcn.ballot.i64", "i64", [("i1", f.use(op.operands[0]))]))


def _emit_lanes_of(f: _Function, op: Op) -> None:
    lane = f.temporary(f"zext i32 {_lane(f)} to i64")
    f.set(op.results[0], f"trunc i64 {f.temporary(f'lshr i64 {f.use(op.operands[0])}, {lane}')} to i1")


def _emit_splat(f: _Function, op: Op) -> None:
    f.alias(op.results[0], f.use(op.operands[0]))


# ---- memory --------------------------------------------------------------------------------------


def _memory_pointer(f: _Function, op: Op) -> str:
    if op.name in ("load", "store"):
        return f"ptr addrspace(1) {f.pointer(op.operands[0])}"
    return f"ptr addrspace(3) {f.lds_pointer(op.operands[0])}"


def _emit_read(f: _Function, op: Op) -> None:
    nbytes = op.attributes["nbytes"]
    kind = _access_type(nbytes)
    loaded = f.temporary(f"load {kind}, {_memory_pointer(f, op)}, align {op.attributes['align']}")
    if nbytes < 4:
        f.set(op.results[0], f"zext {kind} {loaded} to i32")
    elif nbytes == 4:
        f.alias(op.results[0], loaded)
    else:
        for index, result in enumerate(op.results):
            f.set(result, f"extractelement {kind} {loaded}, i32 {index}")


def _emit_write(f: _Function, op: Op) -> None:
    nbytes, words = op.attributes["nbytes"], op.operands[1:]
    kind = _access_type(nbytes)
    data = f.use(words[0])
    if nbytes < 4:
        data = f.temporary(f"trunc i32 {data} to {kind}")
    elif nbytes > 4:
        data = _vector(f, kind, [f.use(w) for w in words])
    f.line(f"store {kind} {data}, {_memory_pointer(f, op)}, align {op.attributes['align']}")


def _vector(f: _Function, kind: str, words: Sequence[str]) -> str:
    vector = "poison"
    for index, word in enumerate(words):
        vector = f.temporary(f"insertelement {kind} {vector}, i32 {word}, i32 {index}")
    return vector


def _emit_barrier(f: _Function, op: Op) -> None:
    f.line('fence syncscope("workgroup") release')
    f.line(f.call("llvm.amdgcn.s.barrier", "void", ()))
    f.line('fence syncscope("workgroup") acquire')


# ---- control -------------------------------------------------------------------------------------


def _emit_loop(f: _Function, op: Op) -> None:
    start, stop, step, *initial = op.operands
    region = op.regions[0]
    head, body, done = f.labelled("head", "body", "done")
    before = f.label
    f.line(f"br label %{head}")
    f.start(head)
    phis = len(f.lines)
    f.line(f"%c{f.labels} = icmp slt i32 {f.use(region.arguments[0])}, {f.use(stop)}")
    f.line(f"br i1 %c{f.labels}, label %{body}, label %{done}")
    f.start(body)
    f.block(region)
    next_index = f.temporary(f"add i32 {f.use(region.arguments[0])}, {f.use(step)}")
    incoming = zip(region.arguments, (start, *initial), (next_index, *map(f.use, region.yielded)), strict=True)
    f.lines[phis:phis] = [
        f"  %v{a.number} = phi i{a.width} [ {f.use(first)}, %{before} ], [ {later}, %{f.label} ]"
        for a, first, later in incoming
    ]
    f.line(f"br label %{head}")
    f.start(done)
    for result, argument in zip(op.results, region.arguments[1:], strict=True):
        f.alias(result, f.use(argument))


def _emit_branch(f: _Function, op: Op) -> None:
    then, otherwise, done = f.labelled("then", "else", "join")
    f.line(f"br i1 {f.use(op.operands[0])}, label %{then}, label %{otherwise}")
    ends = []
    for label, region in zip((then, otherwise), op.regions, strict=True):
        f.start(label)
        f.block(region)
        ends.append(f.label)
        f.line(f"br label %{done}")
    f.start(done)
    for result, first, second in zip(op.results, *(r.yielded for r in op.regions), strict=True):
        f.set(result, f"phi i{result.width} [ {f.use(first)}, %{ends[0]} ], [ {f.use(second)}, %{ends[1]} ]")


def _emit_when(f: _Function, op: Op) -> None:
    then, done = f.labelled("when", "after")
    f.line(f"br i1 {f.use(op.operands[0])}, label %{then}, label %{done}")
    f.start(then)
    f.block(op.regions[0])
    f.line(f"br label %{done}")
    f.start(done)


# ---- instructions --------------------------------------------------------------------------------


def _emit_inst(f: _Function, op: Op) -> None:
    instruction = instruction_of(op.attributes["mnemonic"])
    operands = _inst_operands(instruction, op)
    special = IRREGULAR.get(instruction.name)
    if special is not None:
        special(f, op, operands)
    else:
        _emit_regular(f, op, instruction, operands)


def _inst_operands(instruction: Instruction, op: Op) -> dict[str, Any]:
    """By parameter name: a list of IR values, or an int for static ones."""
    rest = list(op.operands)
    operands: dict[str, Any] = {}
    for parameter in instruction.parameters:
        kind = parameter.kind
        if kind is int:
            operands[parameter.name] = op.attributes["immediates"][parameter.name]
        elif isinstance(kind, type) and issubclass(kind, (Lanes, Words)) and parameter.place != "exec":
            count = kind.count if issubclass(kind, Words) else 1
            operands[parameter.name], rest = rest[:count], rest[count:]
    return operands


def _kind_text(kind: Any) -> str:
    if issubclass(kind, Words):
        return f"<{kind.count} x i32>"
    return LANE_FLOATS.get(kind, f"i{kind.width}")


def _operand_text(f: _Function, values: Sequence[Value], target: str) -> str:
    """IR values as one LLVM value of a type."""
    if len(values) == 1:
        return f.cast(f.use(values[0]), _integer(values[0].width), target)
    source = f"<{len(values)} x i32>"
    return f.cast(_vector(f, source, [f.use(v) for v in values]), source, target)


def _set_results(f: _Function, results: Sequence[Value], text: str, source: str) -> None:
    """Spreads one LLVM value of a type over IR values."""
    if len(results) == 1:
        f.alias(results[0], f.cast(text, source, _integer(results[0].width)))
        return
    vector = f"<{len(results)} x i32>"
    text = f.cast(text, source, vector)
    for index, result in enumerate(results):
        f.set(result, f"extractelement {vector} {text}, i32 {index}")


def _emit_regular(f: _Function, op: Op, instruction: Instruction, operands: dict[str, Any]) -> None:
    """An intrinsic with the signature of the definition: lanes in order, static operands as i32 constants."""
    if len(instruction.results) != 1 or instruction.intrinsic is None:
        raise EmitError(f"{op.where}: {instruction.name} needs an entry in IRREGULAR: it has not one plain result")
    arguments: list[tuple[str, str]] = []
    immediate: list[int] = []
    for parameter in instruction.parameters:
        value = operands.get(parameter.name)
        if isinstance(value, int):
            immediate.append(len(arguments))
            arguments.append(("i32", str(value)))
        elif value is not None:
            kind = _kind_text(parameter.kind)
            arguments.append((kind, _operand_text(f, value, kind)))
    result = _kind_text(instruction.results[0].kind)
    called = f.temporary(f.call(instruction.intrinsic, result, arguments, immediate))
    _set_results(f, op.results, called, result)


Irregular = Callable[[_Function, Op, dict[str, Any]], None]


def _swap(name: str) -> Irregular:
    def emit_swap(f: _Function, op: Op, operands: dict[str, Any]) -> None:
        words = [("i32", f.use(operands[n][0])) for n in ("vdst", "src0")]
        arguments = [*words, ("i1", "false"), ("i1", "false")]
        pair = f.temporary(f.call(name, "{ i32, i32 }", arguments, (2, 3)))
        for index, result in enumerate(op.results):
            f.set(result, f"extractvalue {{ i32, i32 }} {pair}, {index}")

    return emit_swap


def _fp8_pack(name: str) -> Irregular:
    """(f32, f32, old register, i1: which half). The one static operand of the definition, zero or not, is the half."""

    def emit_pack(f: _Function, op: Op, operands: dict[str, Any]) -> None:
        floats = [("float", _operand_text(f, operands[n], "float")) for n in ("src0", "src1")]
        half = next((v for v in operands.values() if isinstance(v, int)), 0)
        arguments = [*floats, ("i32", f.use(operands["vdst"][0])), ("i1", "true" if half else "false")]
        f.set(op.results[0], f.call(name, "i32", arguments, (3,)))

    return emit_pack


def _typed(name: str, result: str, kinds: Sequence[str], constants: Sequence[tuple[str, str]] = ()) -> Irregular:
    """An intrinsic whose LLVM types differ from the definition's registers; constants follow the operands."""

    def emit_typed(f: _Function, op: Op, operands: dict[str, Any]) -> None:
        given = [_operand_text(f, values, kind) for values, kind in zip(operands.values(), kinds, strict=True)]
        arguments = [*zip(kinds, given, strict=True), *constants]
        immediate = range(len(kinds), len(arguments))
        _set_results(f, op.results, f.temporary(f.call(name, result, arguments, immediate)), result)

    return emit_typed


def _fp8_stochastic(name: str) -> Irregular:
    """(f32, random bits, old register, byte): op_sel's upper two bits are the byte."""

    def emit_stochastic(f: _Function, op: Op, operands: dict[str, Any]) -> None:
        source = ("float", _operand_text(f, operands["src0"], "float"))
        words = [("i32", f.use(operands[n][0])) for n in ("src1", "vdst")]
        arguments = [source, *words, ("i32", str(operands["op_sel"] >> 2 & 3))]
        f.set(op.results[0], f.call(name, "i32", arguments, (3,)))

    return emit_stochastic


def _bf16_pair(f: _Function, op: Op, operands: dict[str, Any]) -> None:
    """No intrinsic: LLVM selects the instruction for a rounding of two floats."""
    pair = "poison"
    for index, name in enumerate(("src0", "src1")):
        element = _operand_text(f, operands[name], "float")
        pair = f.temporary(f"insertelement <2 x float> {pair}, float {element}, i32 {index}")
    f.set(op.results[0], f"bitcast <2 x bfloat> {f.temporary(f'fptrunc <2 x float> {pair} to <2 x bfloat>')} to i32")


def _nested(name: str) -> Irregular:
    """Three operands through a function of two; LLVM makes one instruction of the pair."""

    def emit_nested(f: _Function, op: Op, operands: dict[str, Any]) -> None:
        first, *others = (("float", _operand_text(f, operands[n], "float")) for n in ("src0", "src1", "src2"))
        for other in others:
            first = ("float", f.temporary(f.call(name, "float", [first, other])))
        f.alias(op.results[0], f.cast(first[1], "float", "i32"))

    return emit_nested


def _write_lane(f: _Function, op: Op, operands: dict[str, Any]) -> None:
    """The intrinsic takes the scalar, the lane, then the old register."""
    arguments = [("i32", f.use(operands[n][0])) for n in ("src0", "src1", "vdst")]
    f.set(op.results[0], f.call("llvm.amdgcn.writelane.i32", "i32", arguments))


def _lane_push(name: str) -> Irregular:
    """DS permutes by address; the intrinsics have no offset, so it is added."""

    def emit_push(f: _Function, op: Op, operands: dict[str, Any]) -> None:
        address = f.temporary(f"add i32 {f.use(operands['addr'][0])}, {operands.get('offset', 0)}")
        f.set(op.results[0], f.call(name, "i32", [("i32", address), ("i32", f.use(operands["data0"][0]))]))

    return emit_push


def _mfma(name: str, operand: str, register: str) -> Irregular:
    """Two operands of one type, an accumulator, and cbsz, abid, blgp (0 where the definition has none)."""

    def emit_mfma(f: _Function, op: Op, operands: dict[str, Any]) -> None:
        ab = [(operand, _operand_text(f, operands[n], operand)) for n in ("src0", "src1")]
        zeros = [("i32", str(operands.get(n, 0))) for n in ("cbsz", "abid", "blgp")]
        arguments = [*ab, (register, _operand_text(f, operands["src2"], register)), *zeros]
        _set_results(f, op.results, f.temporary(f.call(name, register, arguments, (3, 4, 5))), register)

    return emit_mfma


def _mfma_scale(shape: str, register: str) -> Irregular:
    """Two operands of 8 registers with their format and scale; the scale's byte is chosen by the two op_sel bits.

    The unscaled form is the same intrinsic with both scales the constant 0.
    """
    name = f"llvm.amdgcn.mfma.scale.f32.{shape}.f8f6f4.v8i32.v8i32"

    def emit_mfma(f: _Function, op: Op, operands: dict[str, Any]) -> None:
        ab = [("<8 x i32>", _operand_text(f, operands[n], "<8 x i32>")) for n in ("src0", "src1")]
        formats = [("i32", str(operands[n])) for n in ("cbsz", "blgp")]
        low, high = operands.get("scale_op_sel", 0), operands.get("scale_op_sel_hi", 0)
        scales: list[tuple[str, str]] = []
        for bit, scale in enumerate(("scale_a", "scale_b")):
            byte = (low >> bit & 1) | (high >> bit & 1) << 1
            scales += [("i32", str(byte)), ("i32", f.use(operands[scale][0]) if scale in operands else "0")]
        arguments = [*ab, (register, _operand_text(f, operands["src2"], register)), *formats, *scales]
        _set_results(f, op.results, f.temporary(f.call(name, register, arguments, (3, 4, 5, 7))), register)

    return emit_mfma


# What follows `llvm.amdgcn.mfma.f32.` and the type of the two operands, by shape and type.
_F16_OPERANDS = {
    ("16x16x16", "f16"): ("16x16x16f16", "<4 x half>"),
    ("32x32x8", "f16"): ("32x32x8f16", "<4 x half>"),
    ("16x16x16", "bf16"): ("16x16x16bf16.1k", "<4 x i16>"),
    ("32x32x8", "bf16"): ("32x32x8bf16.1k", "<4 x i16>"),
    ("16x16x32", "f16"): ("16x16x32.f16", "<8 x half>"),
    ("32x32x16", "f16"): ("32x32x16.f16", "<8 x half>"),
    ("16x16x32", "bf16"): ("16x16x32.bf16", "<8 x bfloat>"),
    ("32x32x16", "bf16"): ("32x32x16.bf16", "<8 x bfloat>"),
}


def _accumulator(shape: str) -> str:
    return "<4 x float>" if shape.startswith("16x16") else "<16 x float>"


def _matrix_intrinsics() -> dict[str, Irregular]:
    table: dict[str, Irregular] = {}
    for shape in ("16x16x128", "32x32x64"):
        for form in ("", "scale_"):
            table[f"v_mfma_{form}f32_{shape}_f8f6f4"] = _mfma_scale(shape, _accumulator(shape))
    for shape in ("16x16x32", "32x32x16"):
        for a in ("fp8", "bf8"):
            for b in ("fp8", "bf8"):
                name = f"llvm.amdgcn.mfma.f32.{shape}.{a}.{b}"
                table[f"v_mfma_f32_{shape}_{a}_{b}"] = _mfma(name, "i64", _accumulator(shape))
    for (shape, kind), (name, operand) in _F16_OPERANDS.items():
        table[f"v_mfma_f32_{shape}_{kind}"] = _mfma(f"llvm.amdgcn.mfma.f32.{name}", operand, _accumulator(shape))
    return table


_FLOAT_PAIR = ("float", "float")
_WORD_PAIR = ("i32", "i32")
_BYTE_0, _LOW_HALF = ("i32", "0"), ("i1", "false")

IRREGULAR: dict[str, Irregular] = {
    "v_cvt_sr_fp8_f32": _fp8_stochastic("llvm.amdgcn.cvt.sr.fp8.f32"),
    "v_cvt_sr_bf8_f32": _fp8_stochastic("llvm.amdgcn.cvt.sr.bf8.f32"),
    "v_cvt_f32_fp8": _typed("llvm.amdgcn.cvt.f32.fp8", "float", ("i32",), [_BYTE_0]),
    "v_cvt_f32_bf8": _typed("llvm.amdgcn.cvt.f32.bf8", "float", ("i32",), [_BYTE_0]),
    "v_cvt_pk_f32_fp8": _typed("llvm.amdgcn.cvt.pk.f32.fp8", "<2 x float>", ("i32",), [_LOW_HALF]),
    "v_cvt_pk_f32_bf8": _typed("llvm.amdgcn.cvt.pk.f32.bf8", "<2 x float>", ("i32",), [_LOW_HALF]),
    "v_cvt_pkrtz_f16_f32": _typed("llvm.amdgcn.cvt.pkrtz", "<2 x half>", _FLOAT_PAIR),
    "v_cvt_pk_u16_u32": _typed("llvm.amdgcn.cvt.pk.u16", "<2 x i16>", _WORD_PAIR),
    "v_cvt_pk_i16_i32": _typed("llvm.amdgcn.cvt.pk.i16", "<2 x i16>", _WORD_PAIR),
    "v_cvt_pknorm_i16_f32": _typed("llvm.amdgcn.cvt.pknorm.i16", "<2 x i16>", _FLOAT_PAIR),
    "v_cvt_pknorm_u16_f32": _typed("llvm.amdgcn.cvt.pknorm.u16", "<2 x i16>", _FLOAT_PAIR),
    "v_exp_f16": _typed("llvm.amdgcn.exp2.f16", "half", ("half",)),
    "v_log_f16": _typed("llvm.amdgcn.log.f16", "half", ("half",)),
    "v_cvt_pk_bf16_f32": _bf16_pair,
    "v_permlane16_swap_b32": _swap("llvm.amdgcn.permlane16.swap"),
    "v_permlane32_swap_b32": _swap("llvm.amdgcn.permlane32.swap"),
    "v_cvt_pk_fp8_f32": _fp8_pack("llvm.amdgcn.cvt.pk.fp8.f32"),
    "v_cvt_pk_bf8_f32": _fp8_pack("llvm.amdgcn.cvt.pk.bf8.f32"),
    "v_minimum3_f32": _nested("llvm.minimum.f32"),
    "v_maximum3_f32": _nested("llvm.maximum.f32"),
    "v_writelane_b32": _write_lane,
    "ds_permute_b32": _lane_push("llvm.amdgcn.ds.permute"),
    "ds_bpermute_b32": _lane_push("llvm.amdgcn.ds.bpermute"),
    **_matrix_intrinsics(),
}

_EMITTERS: dict[str, Callable[[_Function, Op], None]] = {
    "argument": _emit_argument,
    "constant": _emit_constant,
    "thread_id": _emit_thread_id,
    "workgroup_id": _emit_workgroup_id,
    **dict.fromkeys(BINARY, _emit_binary),
    **dict.fromkeys(SHIFTS, _emit_shift),
    **dict.fromkeys(MINMAX, _emit_minmax),
    **dict.fromkeys(COUNTS, _emit_count),
    **dict.fromkeys(COMPARES, _emit_compare),
    **dict.fromkeys(("zext", "sext", "trunc"), _emit_resize),
    "select": _emit_select,
    **dict.fromkeys(FLOAT_BINARY, _emit_float_binary),
    **dict.fromkeys(FLOAT_CALLS, _emit_float_call),
    **dict.fromkeys(FLOAT_COMPARES, _emit_float_compare),
    **dict.fromkeys(("fpext", "fptrunc"), _emit_float_resize),
    **dict.fromkeys(("sitofp", "uitofp"), _emit_to_float),
    **dict.fromkeys(("fptosi", "fptoui"), _emit_to_integer),
    "gather": _emit_gather,
    "permute": _emit_permute,
    "readfirstlane": _emit_readfirstlane,
    "readlane": _emit_readlane,
    "writelane": _emit_writelane,
    "ballot": _emit_ballot,
    "lanes_of": _emit_lanes_of,
    "splat": _emit_splat,
    "load": _emit_read,
    "lds_read": _emit_read,
    "store": _emit_write,
    "lds_write": _emit_write,
    "barrier": _emit_barrier,
    "loop": _emit_loop,
    "branch": _emit_branch,
    "when": _emit_when,
    "inst": _emit_inst,
}
