"""LLVM AMDGPU text of traced programs: one scalar-per-lane function a kernel.

Nothing here may change a bit: no fast-math flags, no contraction, denormals kept. Raw bits are iN values; floats are
bitcasts around the operation, which LLVM removes. Exact instructions are inline assembly (codegen.emit_exact).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from codegen import emit_exact, lane_moves
from codegen.intrinsics import emit_instruction
from codegen.ir import Block, Op, Program
from codegen.llvm_text import FLOATS, LANE_FLOATS, EmitError, FunctionText, ModuleText, integer_type
from gfx950.lanes import Lanes

TRIPLE = "amdgcn-amd-amdhsa"
VERSIONS = (5, 6)  # of code objects; the first, our own, is what the ROCm of today loads

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


def _check_programs(programs: object) -> None:
    traced = "`trace(kernel)` makes one of a function under `@kernel`"
    if not isinstance(programs, Sequence):
        raise EmitError(f"the programs are {programs!r:.60}; expected a list of traced programs: {traced}")
    for index, program in enumerate(programs):
        if not isinstance(program, Program):
            raise EmitError(f"program {index} is {program!r:.60}; expected a traced program: {traced}")


def emit(programs: Sequence[Program], version: int = VERSIONS[0]) -> str:
    """The LLVM module of all programs, as text, for a code object of a version of `VERSIONS`. Raises EmitError for what
    LLVM cannot be told."""
    _check_programs(programs)
    if version not in VERSIONS:
        raise EmitError(f"there is no code object version {version!r}; expected one of {', '.join(map(str, VERSIONS))}")
    names = [p.name for p in programs]
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise EmitError(f"kernels of one module need different names; {', '.join(sorted(twice))} appears twice")
    module = ModuleText({})
    count = len(programs)
    marks = [f"#{i} !reqd_work_group_size !{i + 1} !kernel_arg_type !{count + i + 1}" for i in range(count)]
    functions = [_function(p, m, module) for p, m in zip(programs, marks, strict=True)]
    attributes = [f"attributes #{i} = {{ {_attributes(p)} }}" for i, p in enumerate(programs)]
    sizes = [f"!{i + 1} = !{{i32 {p.block}, i32 1, i32 1}}" for i, p in enumerate(programs)]
    types = [f"!{count + i + 1} = !{{{_type_names(p)}}}" for i, p in enumerate(programs)]
    number = f'!0 = !{{i32 1, !"amdhsa_code_object_version", i32 {100 * version}}}'
    flags = ["!llvm.module.flags = !{!0}", number]
    shared = [f'target triple = "{TRIPLE}"', *(module.declarations[n] for n in sorted(module.declarations))]
    return "\n".join([*shared, *functions, *attributes, *flags, *sizes, *types, ""])


def _type_names(program: Program) -> str:
    """What becomes `.type_name` of the arguments: whoever launches the kernel converts numbers by it."""
    return ", ".join(f'!"{a.type_name}"' for a in program.arguments)


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


def _function(program: Program, marks: str, module: ModuleText) -> str:
    """One kernel, with its LDS global before it. marks: its attributes and metadata."""
    f = FunctionText(program, module)
    _emit_block(f, program.body)
    name, lds = program.name, program.lds
    arguments = ", ".join(f"{_argument_type(a.kind, a.pointer)} %{a.name}" for a in program.arguments)
    head = f"define amdgpu_kernel void @{name}({arguments}) {marks} {{"
    shared = [f"@{name}.lds = internal addrspace(3) global [{lds} x i8] poison, align 16"] if lds else []
    return "\n".join([*shared, head, "entry:", *f.lines, "  ret void", "}"])


def _emit_block(f: FunctionText, block: Block) -> None:
    """All operations of a region."""
    for op in block.ops:
        if op.name != "yield":
            _EMITTERS[op.name](f, op)


def _argument_type(kind: type[Lanes], pointer: bool) -> str:
    return "ptr addrspace(1)" if pointer else LANE_FLOATS.get(kind, f"i{kind.width}")


def _emit_argument(f: FunctionText, op: Op) -> None:
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


def _emit_constant(f: FunctionText, op: Op) -> None:
    bits, width = op.attributes["bits"], op.results[0].width
    f.alias(op.results[0], ("true" if bits else "false") if width == 1 else str(bits))


def _emit_thread_id(f: FunctionText, op: Op) -> None:
    call = f.call("llvm.amdgcn.workitem.id.x", "i32", ())
    f.set(op.results[0], call.replace("call i32", f"call range(i32 0, {f.program.block}) i32"))


def _emit_workgroup_id(f: FunctionText, op: Op) -> None:
    f.set(op.results[0], f.call(f"llvm.amdgcn.workgroup.id.{'xyz'[op.attributes['axis']]}", "i32", ()))


def _emit_binary(f: FunctionText, op: Op) -> None:
    a, b = op.operands
    width = op.results[0].width
    f.set(op.results[0], f"{BINARY[op.name]} i{width} {f.use(a)}, {f.use(b)}")
    if op.name == "add" and width == 64:
        _emit_pointer_sum(f, op)


def _emit_pointer_sum(f: FunctionText, op: Op) -> None:
    """An address made from an argument keeps its pointer, so that LLVM sees which memory it is."""
    a, b = op.operands
    if (a in f.pointers) == (b in f.pointers):
        return
    base, offset = (a, b) if a in f.pointers else (b, a)
    value = op.results[0]
    f.pointers.add(value)
    f.line(f"%p{value.number} = getelementptr i8, ptr addrspace(1) %p{base.number}, i64 {f.use(offset)}")


def _emit_shift(f: FunctionText, op: Op) -> None:
    width = op.results[0].width
    a, b = op.operands
    amount = f.temporary(f"and i{width} {f.use(b)}, {width - 1}")
    f.set(op.results[0], f"{SHIFTS[op.name]} i{width} {f.use(a)}, {amount}")


def _emit_minmax(f: FunctionText, op: Op) -> None:
    kind = integer_type(op.results[0].width)
    f.set(op.results[0], f.call(f"llvm.{MINMAX[op.name]}.{kind}", kind, [(kind, f.use(o)) for o in op.operands]))


def _emit_count(f: FunctionText, op: Op) -> None:
    kind = integer_type(op.results[0].width)
    extra = [("i1", "false")] if op.name in ("clz", "ctz") else []
    arguments = [(kind, f.use(op.operands[0])), *extra]
    f.set(op.results[0], f.call(f"llvm.{COUNTS[op.name]}.{kind}", kind, arguments, (1,)))


def _emit_compare(f: FunctionText, op: Op) -> None:
    a, b = op.operands
    f.set(op.results[0], f"icmp {COMPARES[op.name]} i{a.width} {f.use(a)}, {f.use(b)}")


def _emit_resize(f: FunctionText, op: Op) -> None:
    source, target = op.operands[0], op.results[0]
    f.set(target, f"{op.name} i{source.width} {f.use(source)} to i{target.width}")


def _emit_select(f: FunctionText, op: Op) -> None:
    mask, a, b = op.operands
    kind = integer_type(a.width)
    f.set(op.results[0], f"select i1 {f.use(mask)}, {kind} {f.use(a)}, {kind} {f.use(b)}")


def _emit_float_binary(f: FunctionText, op: Op) -> None:
    a, b = (f.as_float(o) for o in op.operands)
    f.set_float(op.results[0], f"{FLOAT_BINARY[op.name]} {FLOATS[op.results[0].width]} {a}, {b}")


def _emit_float_call(f: FunctionText, op: Op) -> None:
    width = op.results[0].width
    arguments = [(FLOATS[width], f.as_float(o)) for o in op.operands]
    f.set_float(op.results[0], f.call(f"llvm.{FLOAT_CALLS[op.name]}.f{width}", FLOATS[width], arguments))


def _emit_float_compare(f: FunctionText, op: Op) -> None:
    a, b = (f.as_float(o) for o in op.operands)
    f.set(op.results[0], f"fcmp {FLOAT_COMPARES[op.name]} {FLOATS[op.operands[0].width]} {a}, {b}")


def _emit_float_resize(f: FunctionText, op: Op) -> None:
    source, target = op.operands[0], op.results[0]
    f.set_float(target, f"{op.name} {FLOATS[source.width]} {f.as_float(source)} to {FLOATS[target.width]}")


def _emit_to_float(f: FunctionText, op: Op) -> None:
    source, target = op.operands[0], op.results[0]
    f.set_float(target, f"{op.name} i{source.width} {f.use(source)} to {FLOATS[target.width]}")


def _emit_to_integer(f: FunctionText, op: Op) -> None:
    source, target = op.operands[0], op.results[0]
    name = f"llvm.{op.name}.sat.i{target.width}.f{source.width}"
    f.set(target, f.call(name, f"i{target.width}", [(FLOATS[source.width], f.as_float(source))]))


# ---- memory --------------------------------------------------------------------------------------


def _memory_pointer(f: FunctionText, op: Op) -> str:
    if op.name in ("load", "store"):
        return f"ptr addrspace(1) {f.pointer(op.operands[0])}"
    return f"ptr addrspace(3) {f.lds_pointer(op.operands[0])}"


def _emit_read(f: FunctionText, op: Op) -> None:
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


def _emit_write(f: FunctionText, op: Op) -> None:
    nbytes, words = op.attributes["nbytes"], op.operands[1:]
    kind = _access_type(nbytes)
    data = f.use(words[0])
    if nbytes < 4:
        data = f.temporary(f"trunc i32 {data} to {kind}")
    elif nbytes > 4:
        data = f.vector(kind, [f.use(w) for w in words])
    f.line(f"store {kind} {data}, {_memory_pointer(f, op)}, align {op.attributes['align']}")


def _emit_barrier(f: FunctionText, op: Op) -> None:
    f.line('fence syncscope("workgroup") release')
    f.line(f.call("llvm.amdgcn.s.barrier", "void", ()))
    f.line('fence syncscope("workgroup") acquire')


# ---- control -------------------------------------------------------------------------------------


def _emit_loop(f: FunctionText, op: Op) -> None:
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
    _emit_block(f, region)
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


def _emit_branch(f: FunctionText, op: Op) -> None:
    then, otherwise, done = f.labelled("then", "else", "join")
    f.line(f"br i1 {f.use(op.operands[0])}, label %{then}, label %{otherwise}")
    ends = []
    for label, region in zip((then, otherwise), op.regions, strict=True):
        f.start(label)
        _emit_block(f, region)
        ends.append(f.label)
        f.line(f"br label %{done}")
    f.start(done)
    for result, first, second in zip(op.results, *(r.yielded for r in op.regions), strict=True):
        f.set(result, f"phi i{result.width} [ {f.use(first)}, %{ends[0]} ], [ {f.use(second)}, %{ends[1]} ]")


def _emit_when(f: FunctionText, op: Op) -> None:
    then, done = f.labelled("when", "after")
    f.line(f"br i1 {f.use(op.operands[0])}, label %{then}, label %{done}")
    f.start(then)
    _emit_block(f, op.regions[0])
    f.line(f"br label %{done}")
    f.start(done)


_EMITTERS: dict[str, Callable[[FunctionText, Op], None]] = {
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
    **lane_moves.EMITTERS,
    **emit_exact.EMITTERS,
    "load": _emit_read,
    "lds_read": _emit_read,
    "store": _emit_write,
    "lds_write": _emit_write,
    "barrier": _emit_barrier,
    "loop": _emit_loop,
    "branch": _emit_branch,
    "when": _emit_when,
    "inst": emit_instruction,
}
