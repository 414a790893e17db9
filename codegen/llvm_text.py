"""LLVM text under construction: what is said once a module, and the lines of one function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen.ir import Program, Value
from gfx950.lanes import F16, F32, F64, Lanes

FLOATS = {16: "half", 32: "float", 64: "double"}
LANE_FLOATS: dict[type[Lanes], str] = {F16: "half", F32: "float", F64: "double"}


class EmitError(ValueError):
    """A program that cannot be said in LLVM; the message names the source line and the operation."""


@dataclass(frozen=True)
class Operand:
    """One operand of inline assembly. text: of an input, the value."""

    kind: str
    constraint: str
    text: str = ""


@dataclass
class ModuleText:
    """Text that functions share: the declarations of intrinsics, sorted when printed."""

    declarations: dict[str, str]

    def intrinsic(self, name: str, result: str, arguments: Sequence[str]) -> None:
        """Declares an intrinsic once."""
        self.declarations[name] = f"declare {result} @{name}({', '.join(arguments)})"


def integer_type(width: int) -> str:
    """The type of raw bits."""
    return f"i{width}"


class FunctionText:
    """The lines of one kernel. Names: %vN a value, %pN its pointer where it is an address made from an argument."""

    def __init__(self, program: Program, module: ModuleText) -> None:
        self.program, self.module = program, module
        self.lines: list[str] = []
        self.pointers: set[Value] = set()
        self.names: dict[Value, str] = {}
        self.temporaries = 0
        self.labels = 0
        self.label = "entry"  # of the basic block being filled

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

    def assembly(self, lines: Sequence[str], outputs: Sequence[Operand], inputs: Sequence[Operand]) -> list[str]:
        """Inline assembly, kept in order with all other. The lines name operands $0, $1 .. outputs first. Returns the
        outputs' names."""
        kinds = [o.kind for o in outputs]
        result = "void" if not kinds else kinds[0] if len(kinds) == 1 else f"{{ {', '.join(kinds)} }}"
        constraints = ",".join(o.constraint for o in (*outputs, *inputs))
        given = ", ".join(f"{o.kind} {o.text}" for o in inputs)
        text = "\\0A\\09".join(line.replace('"', "\\22") for line in lines)  # a swizzle's bit mask is in quotes
        call = f'call {result} asm sideeffect "{text}", "{constraints}"({given})'
        if not kinds:
            self.line(call)
            return []
        made = self.temporary(call)
        if len(kinds) == 1:
            return [made]
        return [self.temporary(f"extractvalue {result} {made}, {i}") for i in range(len(kinds))]

    def cast(self, text: str, source: str, target: str) -> str:
        """A bitcast where the types differ."""
        return text if source == target else self.temporary(f"bitcast {source} {text} to {target}")

    def as_float(self, value: Value) -> str:
        """A value's bits as a float of its width."""
        return self.cast(self.use(value), integer_type(value.width), FLOATS[value.width])

    def set_float(self, value: Value, text: str) -> None:
        """Defines a value by an instruction that gives a float."""
        self.set(value, f"bitcast {FLOATS[value.width]} {self.temporary(text)} to {integer_type(value.width)}")

    def pointer(self, address: Value) -> str:
        """A global address as a pointer: by getelementptr from the argument where it was made that way."""
        if address in self.pointers:
            return f"%p{address.number}"
        return self.temporary(f"inttoptr i64 {self.use(address)} to ptr addrspace(1)")

    def lds_pointer(self, address: Value) -> str:
        """An LDS byte address as a pointer."""
        base = f"@{self.program.name}.lds"
        return self.temporary(f"getelementptr i8, ptr addrspace(3) {base}, i32 {self.use(address)}")

    def vector(self, kind: str, words: Sequence[str]) -> str:
        """i32 values as one vector."""
        vector = "poison"
        for index, word in enumerate(words):
            vector = self.temporary(f"insertelement {kind} {vector}, i32 {word}, i32 {index}")
        return vector

    def operand(self, values: Sequence[Value], target: str) -> str:
        """IR values as one LLVM value of a type."""
        if len(values) == 1:
            return self.cast(self.use(values[0]), integer_type(values[0].width), target)
        source = f"<{len(values)} x i32>"
        return self.cast(self.vector(source, [self.use(v) for v in values]), source, target)

    def spread(self, results: Sequence[Value], text: str, source: str) -> None:
        """One LLVM value of a type over IR values."""
        if len(results) == 1:
            self.alias(results[0], self.cast(text, source, integer_type(results[0].width)))
            return
        vector = f"<{len(results)} x i32>"
        text = self.cast(text, source, vector)
        for index, result in enumerate(results):
            self.set(result, f"extractelement {vector} {text}, i32 {index}")
