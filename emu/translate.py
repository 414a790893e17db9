"""Translation: the basic blocks of a kernel become host functions, compiled by LLVM at opt level 0 and kept on disk.

Each block exists twice: for EXEC all ones (stores are plain) and for any EXEC (stores blend); the driver picks by EXEC
at entry. Instructions that differ only in their registers share one function, which gets the registers' places: LLVM's
time goes by distinct forms.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from emu.block_memory import add_to_word
from emu.block_state import BlockState
from emu.blocks import Block
from emu.engines.host_engine import HostEngine
from emu.errors import EmulatorError
from emu.execute import PC_MASK, execute, polls
from emu.host_layout import BARRIER, COUNT, END, FAULT, HALT, ISSUED, KIND_SHIFT, POLLS, RUN, STOPPED, TRAP
from emu.register_checks import AGPR, UnsupportedForm
from emu.state import Transfer
from gfx950.isa.encoding import Decoded
from gfx950.lanes import Mode

INLINE_LINES = 5  # a shorter instruction is cheaper in place than as a call
KINDS = {"end": END, "barrier": BARRIER, "trap": TRAP, "halt": HALT}
COMMON = ("%wave", "%context", "%memory", "%natives", "%scratch")  # what every block gets


def _result(kind: int, pc: int) -> int:
    value = kind << KIND_SHIFT | pc
    return value - (1 << 64) if value >> 63 else value


def function_name(pc: int, full: bool, tag: str = "") -> str:
    """The symbol of a block. tag: tells apart what would have one name in two modules."""
    return f"block_{pc:x}_{'full' if full else 'part'}{tag}"


class Emitter:
    """The functions of one module: those of blocks, and those of the forms of instructions that blocks call."""

    def __init__(self, mode: Mode, full: bool, tag: str) -> None:
        self.engine = HostEngine(mode)
        self.full, self.tag = full, tag
        self.forms: dict[str, str] = {}  # name of a form's function by its parameters and body
        self.blocks: list[str] = []
        self.ends = [0, AGPR]  # of the v and a registers that are written

    def text(self) -> str:
        """The module."""
        forms = (f"define internal i64 @{name}{text}" for text, name in self.forms.items())
        return "\n".join([*sorted(self.engine.declared), *forms, *self.blocks, ""])

    def block(self, block: Block) -> None:
        """Appends the host function of one block. An instruction that cannot be run cuts it short."""
        parameters = ", ".join(f"ptr {name}" for name in COMMON)
        self.blocks.append(f"define i64 @{function_name(block.start, self.full, self.tag)}({parameters}) {{")
        state = BlockState(self.engine, self.full)
        transfer: Transfer | None = None
        for done, one in enumerate(block.instructions):
            state.done = done
            try:
                transfer = self._emit(one, state)
            except (UnsupportedForm, EmulatorError, ValueError) as error:
                block.cut(done, f"pc 0x{one.pc:x}: {one.instruction.name}: {error}")
                break
            if transfer is None:
                self.blocks += self._call(one, state.places)
            else:
                self.blocks += _inlined(self.engine.lines, state.places, one.pc)
        self.ends = [max(pair) for pair in zip(self.ends, state.ends, strict=True)]
        self._leave(block, transfer, state.issued)

    def _emit(self, one: Decoded, state: BlockState) -> Transfer | None:
        """The instruction's body in the engine's lines, with its registers as `%p0`, `%p1`, ..."""
        self.engine.restart()
        state.places.clear()
        state.pc = one.pc
        return execute(one, state)

    def _call(self, one: Decoded, places: Sequence[int]) -> list[str]:
        """The lines of a block that run the instruction just emitted."""
        body, pc = self.engine.lines, one.pc
        if len(body) <= INLINE_LINES and not any(line.endswith(":") for line in body):
            return _inlined(body, places, pc)
        text = "\n".join([*body, "  ret i64 0", "}"])
        common = [f"ptr {name}" for name in COMMON if re.search(rf"{name}\b", text)]
        at_pc = ["i64 %pc"] if "i64 %pc" in text else []
        parameters = ", ".join([*common, *at_pc, *(f"ptr %p{i}" for i in range(len(places)))])
        name = self.forms.setdefault(f"({parameters}) {{\n{text}", f"form_{len(self.forms)}")
        arguments = ", ".join(
            [*common, *(f"i64 {pc}" for _ in at_pc), *(f"ptr %r{pc:x}_{i}" for i in range(len(places)))]
        )
        lines = _place_lines(places, pc)
        if "ret i64 1" not in text:
            return [*lines, f"  call i64 @{name}({arguments})"]
        return [*lines, *_guarded(f"call i64 @{name}({arguments})", pc)]

    def _leave(self, block: Block, transfer: Transfer | None, issued: int) -> None:
        """Counts the instructions and returns where control goes."""
        engine = self.engine
        engine.restart()
        stopped = str(_result(STOPPED, block.end))
        result = _destination(engine, transfer, block) if block.error is None else stopped
        for offset, amount in ((COUNT, len(block.instructions)), (ISSUED, issued)):
            if amount:
                add_to_word(engine, "%wave", offset, amount)
        polling = sum(polls(one) for one in block.instructions)
        if polling:
            add_to_word(engine, "%context", 8 * POLLS, polling)
        engine.emit(f"ret i64 {result}")
        self.blocks += [*engine.lines, "}"]


def _destination(engine: HostEngine, transfer: Transfer | None, block: Block) -> str:
    """What the block returns: the kind in the top bits, the program counter below."""
    following = block.end
    if transfer is None:
        return str(_result(RUN, following))
    if transfer.kind in KINDS:
        return str(_result(KINDS[transfer.kind], following))
    prefix = _prefix(block.instructions[-1].pc)
    if transfer.kind == "jump":
        return engine.define(f"and i64 {_renamed(transfer.target.text, prefix)}, {PC_MASK}", 64, False).text
    if transfer.condition is None:
        return str(_result(RUN, transfer.target & PC_MASK))
    condition = _renamed(engine.typed(transfer.condition, False), prefix)
    return engine.define(f"select {condition}, i64 {transfer.target & PC_MASK}, i64 {following}", 64, False).text


def _prefix(pc: int) -> str:
    return f"%i{pc:x}_"


def _renamed(text: str, prefix: str) -> str:
    """An instruction's own names made unique in a block."""
    return _OWN_NAMES.sub(rf"{prefix}\1", text)


_OWN_NAMES = re.compile(r"%(v\d+)")
_PLACES = re.compile(r"%p(\d+)")


def _inlined(body: Sequence[str], places: Sequence[int], pc: int) -> list[str]:
    """An instruction's lines in a block of others."""
    text = _PLACES.sub(rf"%r{pc:x}_\1", _renamed("\n".join(body), _prefix(pc)))
    return [*_place_lines(places, pc), *([text] if text else [])]


def _place_lines(places: Sequence[int], pc: int) -> list[str]:
    """The places of an instruction's registers in the wave."""
    return [f"  %r{pc:x}_{i} = getelementptr i8, ptr %wave, i64 {offset}" for i, offset in enumerate(places)]


def _guarded(call: str, pc: int) -> list[str]:
    """A call that may fault: then the block is left with the instruction's address."""
    return [
        f"  %s{pc:x} = {call}",
        f"  %b{pc:x} = icmp ne i64 %s{pc:x}, 0",
        f"  br i1 %b{pc:x}, label %fault{pc:x}, label %go{pc:x}",
        f"fault{pc:x}:",
        f"  ret i64 {_result(FAULT, pc)}",
        f"go{pc:x}:",
    ]


def module_text(blocks: Sequence[Block], mode: Mode, full: bool, tag: str = "") -> tuple[str, list[str], list[int]]:
    """The LLVM module of the blocks in one variant, the names of the natives it calls by index, and the ends of the v
    and a registers that it may write (0..512)."""
    emitter = Emitter(mode, full, tag)
    for block in blocks:
        emitter.block(block)
    return emitter.text(), emitter.engine.native_names, emitter.ends
