"""Random programs of legal instructions that mostly mean something, and the registers they begin with.

Addresses come from registers that nothing else writes, so accesses mostly reach memory that is there: a buffer, LDS,
scratch. Loops are short, branches forward, calls return. What is garbage comes from `random_garbage`.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

import numpy as np
from random_garbage import random_instruction
from random_instructions import Generator

from gfx950.isa.encoding import Decoded, encode
from gfx950.isa.registry import Instruction, load
from gfx950.isa.text import assemble
from gfx950.isa.text.catalog import syntaxes
from gfx950.isa.text.fields import Joined
from gfx950.isa.text.immediates import HardwareRegister
from gfx950.isa.text.memory import BufferAddress
from gfx950.isa.text.modifiers import Value
from gfx950.isa.text.operands import Number

BUFFER_BYTES = 65536
LDS_BYTES, SCRATCH_BYTES = 8192, 8448
MIDDLE = 6144  # of the buffer: what global addresses begin at
FIRST_VECTOR, FIRST_SCALAR, LAST_SCALAR = 24, 28, 90  # registers that instructions write
SMALL, DESCRIPTORS, BASE, COUNTERS = (6, 7), (12, 16, 20), 4, (26, 27)
LANE_OFFSETS = range(1, 7)  # vector registers with an offset a lane
GLOBAL, SHARED, PRIVATE, INDICES = (8, 10), (12,), (14,), (16, 18)  # pairs of them
BEFORE_SCRATCH = 7  # the register with offsets from which an immediate may go back
WILD = 0.004  # of all instructions: those that jump, stop or are refused anywhere
LEAVES = ("end", "trap", "halt", "halt_always", "kill", "branch", "refused")
NOT_STRAIGHT = {
    "s_setpc_b64", "s_swappc_b64", "s_call_b64", "s_cbranch_g_fork", "s_cbranch_i_fork", "s_cbranch_join",
    "s_setvskip", "s_set_gpr_idx_on",
}  # fmt: skip
FLOATS = (  # zeros, denormals, infinities and NaNs of f32, of f16 in both halves, and as high words of f64
    0, 0x80000000, 1, 0x3F800000, 0xBF000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x007FFFFF,
    0x7C007C01, 0xFC00FFFF, 0x7E00FD55, 0x3C00BC00, 0x03FF8001, 0x7FF00000, 0xFFF80001, 0x7FF00001, 0x3FF00000,
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """Instructions, and what registers hold before the first: vectors (512, 64) and scalars (128,) as uint32."""

    code: bytes
    vectors: np.ndarray
    scalars: np.ndarray


# ---- registers ------------------------------------------------------------------------------------------------------


def starting_vectors(rng: np.random.Generator, buffer: int, shared: int, private: int) -> np.ndarray:
    """Lane offsets, addresses, and data of several kinds."""
    values = rng.integers(0, 1 << 32, (512, 64), dtype=np.uint32)
    kinds = rng.integers(0, 5, 512)
    values[kinds == 1] &= 0xFF
    values[kinds == 2] = rng.choice(np.array(FLOATS, np.uint32), (int((kinds == 2).sum()), 64))
    values[kinds == 3] = rng.standard_normal((int((kinds == 3).sum()), 64)).astype(np.float32).view(np.uint32)
    halves = rng.standard_normal((int((kinds == 4).sum()), 128)).astype(np.float16)
    values[kinds == 4] = halves.view(np.uint32)
    lane = np.arange(64, dtype=np.uint32)
    tiles, anywhere = rng.integers(0, 64, 64) * 16, rng.integers(0, 1024, 64)
    for register, offsets in zip(LANE_OFFSETS, (4 * lane, 8 * lane, 16 * lane, 64, tiles, anywhere), strict=True):
        values[register] = offsets
    values[BEFORE_SCRATCH] = 4096 + rng.integers(0, 4, 64) * 16
    for pair, base, offset in (
        (8, buffer + MIDDLE, 16 * lane),
        (10, buffer + MIDDLE, rng.integers(0, 64, 64) * 16),
        (12, shared, 16 * lane),
        (14, private, rng.integers(0, 8, 64) * 16),
    ):
        values[pair], values[pair + 1] = (base & 0xFFFFFFFF) + offset, base >> 32
    for register, data in zip(range(16, 20), (lane, 16 * lane, rng.integers(0, 64, 64) * 8, tiles // 2), strict=True):
        values[register] = data
    return values


def starting_scalars(rng: np.random.Generator, buffer: int) -> np.ndarray:
    """Bases, small offsets, masks and three descriptors: raw, of structures, and of structures by lane, swizzled."""
    values = rng.integers(0, 1 << 32, 128, dtype=np.uint32)
    values[::3] &= 0x1F
    values[BASE : BASE + 8] = (buffer + MIDDLE) & 0xFFFFFFFF, buffer >> 32, 64, 16, *values[8:10], 0x55, 0
    selects = 4 | 5 << 3 | 6 << 6 | 7 << 9
    formats = int(rng.integers(0, 8)) << 12 | int(rng.integers(1, 15)) << 15
    high, low = buffer >> 32, buffer & 0xFFFFFFFF
    values[12:16] = low, high, 12288, selects | formats
    values[16:20] = low, high | 16 << 16, 512, selects | formats
    values[20:24] = low, high | 1 << 31 | 8 << 16, 300, selects | 1 << 23 | int(rng.integers(0, 4)) << 21
    values[106:108], values[124] = rng.integers(0, 1 << 32, 2), 64
    return values


# ---- single instructions --------------------------------------------------------------------------------------------


class Meaningful(Generator):
    """Instructions whose addresses are in memory, and whose results leave the registers of addresses alone."""

    def operand(self, item) -> None:
        slot = getattr(item, "slot", None)
        chosen = self._address(getattr(slot, "name", ""), item)
        if chosen is not None and self.rng.random() > WILD:
            slot.put(self.decoded, chosen)
        elif isinstance(item, Number) and self.syntax.form == "SMEM" and item.count > 7:
            slot.put(self.decoded, self._offset(2048, item.signed) & (1 << item.count) - 1)
        elif isinstance(item, BufferAddress):
            self.decoded.fields["vaddr"] = self.rng.choice(INDICES)
        elif isinstance(item, HardwareRegister):
            super().operand(item)
            if self.rng.random() < 0.8:
                slot.put(self.decoded, slot.get(self.decoded) & ~63 | self.rng.choice((1, 1, 2, 4, 5, 6, 15)))
        else:
            super().operand(item)

    def _address(self, name: str, item) -> int | None:
        """The registers of an address, None for another operand."""
        rng, form, words = self.rng, self.syntax.instruction.encoding, getattr(item, "words", 0)
        if name == "addr":
            if words == 1:
                return BEFORE_SCRATCH if form == "SCRATCH" else rng.choice(LANE_OFFSETS)
            pairs = GLOBAL if form == "GLOBAL" or rng.random() < 0.5 else (*SHARED, *PRIVATE)
            return rng.choice(pairs)
        if name == "sbase":
            return (rng.choice(DESCRIPTORS) if words == 4 else BASE) // 2
        if name == "srsrc":
            return rng.choice(DESCRIPTORS) // 4
        if name == "soffset" or (name == "offset" and words == 1):
            return rng.choice((*SMALL, 128, 136) if form != "SMEM" else SMALL)
        if name == "saddr":
            return BASE if words == 2 else rng.choice(SMALL)
        return None

    def _offset(self, limit: int, signed: bool) -> int:
        """An offset, mostly of an aligned access."""
        offset = self.rng.randrange(-limit if signed else 0, limit)
        return offset & ~(15 if self.rng.random() < 0.85 else 3 if self.rng.random() < 0.7 else 0)

    def modifier(self, item) -> None:
        if not isinstance(item, Value) or "offset" not in item.name:
            super().modifier(item)
            return
        joined = isinstance(item.slot, Joined)
        limit = 4096 if joined else min(1 << item.count - item.signed, 2048 if item.count > 13 else 4096)
        below = "_nothing_" if self.syntax.instruction.encoding != "SCRATCH" else "off"
        signed = item.signed and not any(getattr(o, "word", "") == below for o in self.syntax.operands)
        if self.syntax.form in ("MUBUF", "MTBUF") and self.rng.random() < 0.95:
            limit = 512  # what is swizzled lies far apart
        value = self._offset(limit, signed) if limit > 256 else self.rng.randrange(limit)
        item.slot.put(self.decoded, value & (1 << item.count) - 1)

    def instruction(self) -> Decoded:
        """Broadcasts of matrix instructions are of blocks that they have."""
        decoded = super().instruction()
        name = decoded.instruction.name
        plain = decoded.instruction.encoding == "MAI" and "f8f6f4" not in name and "smfmac" not in name
        if plain and self.rng.random() > WILD:
            decoded.fields["cbsz"] = decoded.fields["abid"] = 0
        return decoded

    def vector(self, item) -> None:
        step = 1 if (item.words == 1 and not item.even) or item.any_start else 2
        last = 257 - item.words if self.rng.random() < 0.05 else max(FIRST_VECTOR + 1, 64 - item.words)
        item.slot.put(self.decoded, self.rng.randrange(FIRST_VECTOR, last, step) + item.offset)
        if item.acc is not None and not item.follows:
            item.acc.put(self.decoded, self.rng.random() < 0.2)

    def scalar_code(self, item) -> int:
        rng, step = self.rng, min(item.words, 4)
        if item.off is not None and rng.random() < 0.3:
            return item.off
        if item.words <= 2 and rng.random() < 0.1:
            return 106
        if item.words == 1 and rng.random() < 0.03:
            return 124
        return rng.randrange(FIRST_SCALAR, LAST_SCALAR + 1 - item.words, step)


# ---- which instruction ----------------------------------------------------------------------------------------------

WEIGHTS = {"SOP1": 3, "SOP2": 3, "SOPC": 1, "SOPK": 2, "SOPP": 1, "VOP1": 5, "VOP2": 4, "VOPC": 3, "VOP3": 6}


@functools.cache
def families() -> dict[str, list[Instruction]]:
    """Straight-line instructions by encoding."""
    found: dict[str, list[Instruction]] = {}
    for instruction in load().values():
        if instruction.flow not in LEAVES and instruction.name not in NOT_STRAIGHT:
            found.setdefault(instruction.encoding, []).append(instruction)
    return found


def legal_instruction(rng: random.Random, families_of: tuple[str, ...] = ()) -> Decoded:
    """One instruction, of one of the encodings if some are given."""
    names = families_of or tuple(families())
    family = rng.choices(names, [WEIGHTS.get(name, 2) for name in names])[0]
    instruction = rng.choice(families()[family])
    return Meaningful(rng.choice(syntaxes(instruction)), rng).instruction()


# ---- programs -------------------------------------------------------------------------------------------------------


@functools.cache
def assembled(text: str) -> bytes:
    """The bytes of a line."""
    return assemble(text)


class Writer:
    """Writes a program piece by piece. room: the bytes it may have."""

    def __init__(self, rng: random.Random, garbage, room: int) -> None:
        self.rng, self.garbage, self.left = rng, garbage, room
        self.counters = list(COUNTERS)
        self.inside = 0

    def program(self) -> bytes:
        """Some pieces."""
        return b"".join(self.piece() for _ in range(self.rng.randrange(1, 6)))

    def body(self) -> bytes:
        """A few instructions, now and then pieces within pieces."""
        self.inside += 1
        if self.inside < 3 and self.rng.random() < 0.15:
            code = self.piece()
        else:
            code = b"".join(self.one() for _ in range(self.rng.randrange(1, 5)))
        self.inside -= 1
        return code

    def one(self, families_of: tuple[str, ...] = ()) -> bytes:
        """An instruction, garbage now and then."""
        if self.rng.random() < WILD:
            return random_instruction(self.garbage)
        code = encode(legal_instruction(self.rng, families_of))
        if len(code) > self.left - 256:
            return b""
        self.left -= len(code)
        return code

    def piece(self) -> bytes:
        """Straight code or code with some control around it."""
        kinds = (
            self.body,
            self.loop,
            self.skip,
            self.call,
            self.lanes,
            self.mode,
            self.indexed,
            self.skipping,
            self.wait,
        )
        return self.rng.choices(kinds, (12, 3, 3, 2, 4, 2, 1, 1, 1))[0]()

    def loop(self) -> bytes:
        """A body that runs one to four times."""
        if not self.counters:
            return self.body()
        counter = self.counters.pop()
        body = self.body()
        tail = assembled(f"s_sub_u32 s{counter}, s{counter}, 1\ns_cmp_lg_u32 s{counter}, 0")
        back = -(len(body) + len(tail)) // 4 - 1
        self.counters.append(counter)
        count = self.rng.randrange(1, 5)
        return assembled(f"s_movk_i32 s{counter}, {count}") + body + tail + assembled(f"s_cbranch_scc1 {back}")

    def skip(self) -> bytes:
        """A branch over code, or over what is none."""
        names = ("scc0", "scc1", "vccz", "vccnz", "execz", "execnz")
        if self.rng.random() < 0.3:
            data = self.rng.randbytes(4 * self.rng.randrange(1, 4))
            return assembled(f"s_branch {len(data) // 4}") + data
        body = self.body()
        return assembled(f"s_cbranch_{self.rng.choice(names)} {len(body) // 4}") + body

    def call(self) -> bytes:
        """A function behind a branch over it, called in one of two ways, once or twice."""
        body = self.body() + assembled("s_setpc_b64 s[92:93]")
        code = assembled(f"s_branch {len(body) // 4}") + body
        for _ in range(self.rng.randrange(1, 3)):
            if self.rng.random() < 0.5:
                code += assembled(f"s_call_b64 s[92:93], {(4 - len(code)) // 4 - 1}")
            else:
                away = 4 - len(code) - 4
                code += assembled(f"s_getpc_b64 s[24:25]\ns_add_u32 s24, s24, lit({away})\ns_addc_u32 s25, s25, -1")
                code += assembled("s_swappc_b64 s[92:93], s[24:25]")
        return code

    def lanes(self) -> bytes:
        """Code with some lanes only."""
        ways = (
            "s_mov_b64 exec, s[8:9]", "s_mov_b64 exec, 0", "s_and_saveexec_b64 s[94:95], vcc", "s_wqm_b64 exec, exec",
            "v_cmpx_gt_u32 exec, 17, v0", "s_mov_b32 exec_hi, 0", "s_andn2_b64 exec, exec, s[10:11]",
            "s_lshl_b64 exec, 1, s6", "s_mov_b64 exec, vcc",
        )  # fmt: skip
        back = assembled("s_mov_b64 exec, -1") if self.rng.random() < 0.7 else b""
        return assembled(self.rng.choice(ways)) + self.body() + back

    def mode(self) -> bytes:
        """Code under another MODE: rounding, denormals, DX10_CLAMP, IEEE, FP16_OVFL."""
        width, at = self.rng.choice(((4, 0), (4, 4), (8, 0), (2, 8), (10, 0), (1, 23)))
        bits = self.rng.getrandbits(width)
        begin = assembled(f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, {at}, {width}), {bits}")
        back = assembled("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 10), 0x3f0") if self.rng.random() < 0.5 else b""
        return begin + self.body() + back

    def indexed(self) -> bytes:
        """VALU instructions under VGPR indexing."""
        valu = ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3P")
        body = b"".join(self.one(valu) for _ in range(self.rng.randrange(1, 4)))
        index = self.rng.choice(("3", "s7", "64", "s6"))
        begin = f"s_set_gpr_idx_on {index}, {self.rng.randrange(8)}"  # not the destination: it could be an address
        return assembled(begin) + body + assembled("s_set_gpr_idx_off")

    def skipping(self) -> bytes:
        """Code whose vector instructions are skipped, or not."""
        return assembled(f"s_setvskip s7, {self.rng.choice((4, 5))}") + self.body() + assembled("s_setvskip 0, 0")

    def wait(self) -> bytes:
        """What waits."""
        return assembled(self.rng.choice(("s_waitcnt vmcnt(0)", "s_waitcnt 0", "s_barrier", "s_waitcnt lgkmcnt(0)")))


def random_program(rng: np.random.Generator, buffer: int, shared: int, private: int, room: int) -> Program:
    """A program of at most `room` bytes. buffer, shared, private: where the buffer, LDS and scratch lie."""
    choose = random.Random(int(rng.integers(0, 1 << 62)))
    code = Writer(choose, rng, room).program()
    return Program(code[:room], starting_vectors(rng, buffer, shared, private), starting_scalars(rng, buffer))
