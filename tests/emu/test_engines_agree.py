"""Both engines run every straight-line instruction from the same random bits and must leave the same bits behind."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import numpy as np
import pytest

from emu import host_layout, host_memory
from emu.blocks import Block
from emu.engines.host_engine import native_order
from emu.host_layout import MEMORY_FUNCTIONS, SCC, SCRATCH_BYTES, SGPRS, WAVE_BYTES
from emu.memory import Memory
from emu.operands import FLOAT_PAIRS
from emu.resident import aligned
from emu.translate import function_name, module_text
from emu.wave import Wave
from gfx950.arithmetic.native import NATIVES
from gfx950.host_code import HostCode, Translation
from gfx950.isa.encoding import ENCODINGS, MAI, VOP3_BASES, VOP3B, Decoded, decode, uses_vop3b
from gfx950.isa.legality import takes_vop3
from gfx950.isa.registry import load
from gfx950.lanes import Mode
from gfx950.layouts import MATRIX_INSTRUCTIONS

_BLOCK = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 5)
LDS_BYTES = 4096
SKIP_ENCODINGS = {"SMEM", "FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MUBUF_LDS", "MTBUF"}
INTERESTING = np.array(
    [
        0,
        0x80000000,
        0x7F800000,
        0xFF800000,
        0x7FC01234,
        0x7F800001,
        0xFFC00001,
        1,
        0x807FFFFF,
        0x3F800000,
        0x7F7FFFFF,
        0x43E80000,
        0xFFFFFFFF,
    ],
    dtype=np.uint32,
)


def plain_fields(instruction, form, rng):
    """Random registers: sources v0..v63 (even), destinations v64..v126, scalars s0..s30 (multiples of 4)."""
    encoding = (
        VOP3B if form == "VOP3" and uses_vop3b(instruction) else MAI if form.startswith("MAI") else ENCODINGS[form]
    )
    fields = {}

    def even(low, high):
        return int(rng.integers(low // 4, high // 4)) * 4

    for name in encoding.fields:
        if name in ("ssrc0", "ssrc1"):
            fields[name] = even(0, 32)
        elif name in ("src0", "src1", "src2"):
            fields[name] = even(0, 48) + (0 if form in ("VOP2", "VOPC") and name == "src1" else 256)
        elif name == "sdst":
            fields[name] = even(40, 80)
        elif name == "vdst":
            mask_result = form == "VOP3" and instruction.encoding == "VOPC"
            fields[name] = even(40, 80) if mask_result else even(64, 120)
        elif name in ("addr", "data0", "data1"):
            fields[name] = even(0, 48)
    for parameter in instruction.parameters:
        if parameter.place == "scalar" and parameter.name in fields and form == "VOP3":
            fields[parameter.name] = even(0, 32)
    if instruction.name == "v_writelane_b32":
        fields["src1"] = 124  # M0: an instruction reads one other scalar [rule decode.one_scalar]
    if form == "VOP3" and any(p.name == "carry_in" for p in instruction.parameters):
        fields["src2"] = even(0, 32)
    if instruction.results and instruction.results[0].place == "scalar":
        fields["vdst"] = even(40, 80)
    if form.startswith("MAI"):
        fields.update(matrix_fields(instruction, rng))
    if form == "SOPK":
        fields["simm16"] = int(rng.integers(0, 1 << 16))
    return encoding, fields


def matrix_fields(instruction, rng):
    """Register files, broadcasts, formats, sets of indices and constants that the matrix instruction has."""
    shape = MATRIX_INSTRUCTIONS.get(instruction.name)
    if shape is None:  # moves of accumulation registers
        return {"acc": 0, "acc_cd": 0}
    fields = {"acc": int(rng.integers(0, 4)), "acc_cd": int(rng.integers(0, 2)), "blgp": int(rng.integers(0, 8))}
    if shape.has_formats:
        fields["cbsz"], fields["blgp"] = (int(n) for n in rng.integers(0, 5, 2))
        fields["abid"] = int(shape.has_scales)
    elif shape.sparse:
        fields["cbsz"], fields["abid"] = int(rng.integers(0, 2)), int(rng.integers(0, 4))
    else:
        fields["cbsz"] = int(rng.integers(0, shape.blocks.bit_length()))
        fields["abid"] = int(rng.integers(0, 1 << fields["cbsz"]))
    if not shape.sparse and rng.random() < 0.3:
        fields["src2"] = int(rng.choice([133, 200, 242, 248]))
    return fields


def encode(instruction, form, rng) -> Decoded:
    encoding, fields = plain_fields(instruction, form, rng)
    opcode = instruction.opcode + (VOP3_BASES.get(instruction.encoding, 0) if form == "VOP3" else 0)
    if form == "VOP3" and "abs" in encoding.fields:
        no_signs = any(p.place in FLOAT_PAIRS for p in instruction.parameters) and not instruction.parameter("neg")
        fields["abs"], fields["neg"] = (0, 0) if no_signs else (int(n) for n in rng.integers(0, 8, 2))
        fields["op_sel"] = int(rng.integers(0, 16)) if instruction.encoding == "VOP3" else 0
    if form == "VOP3P":
        fields["op_sel"], fields["op_sel_hi"] = int(rng.integers(0, 8)), int(rng.integers(0, 4))
    bits = encoding.pack({**fields, "op": opcode})
    raw = bits.to_bytes(encoding.nbytes, "little") + int(rng.integers(0, 1 << 32)).to_bytes(4, "little")
    if form == "MAI_SCALE":
        raw = scale_prefix(rng) + raw
    return decode(raw, 0x1000, 0x1000)


def scale_prefix(rng):
    """Scales from a vector register, a scalar one, or a constant."""
    sources = [int(rng.choice([256 + int(rng.integers(0, 48)), 12, 130, 242, 248])) for _ in range(2)]
    fields = {"op": 0x2C, "src0": sources[0], "src1": sources[1], "op_sel": int(rng.integers(0, 4))}
    bits = ENCODINGS["VOP3P"].pack({**fields, "op_sel_hi": int(rng.integers(0, 4))})
    return bits.to_bytes(8, "little")


def forms(instruction):
    yield instruction.encoding
    if instruction.encoding in VOP3_BASES and takes_vop3(instruction):
        yield "VOP3"


def cases():
    rng = np.random.default_rng(7)
    for instruction in load().values():
        if instruction.flow or instruction.encoding in SKIP_ENCODINGS:
            continue
        if any(r.place == "pc" for r in instruction.results) or instruction.parameter("address"):
            continue
        for form in forms(instruction):
            try:
                yield f"{instruction.name}-{form}", encode(instruction, form, rng)
            except Exception as error:
                raise AssertionError(f"{instruction.name} as {form}: {error}") from error


MODES = {
    "plain": Mode(),
    "flushed": Mode(denorm32=0, denorm16_64=0),
    "mixed": Mode(denorm32=1, denorm16_64=2, dx10_clamp=False, ieee=False),
    "no-ieee": Mode(denorm32=0, denorm16_64=3, dx10_clamp=False, ieee=False, fp16_ovfl=True),
    "up-down": Mode(1, 2, fp16_ovfl=True),
    "down-up": Mode(2, 1, denorm32=2, denorm16_64=1, ieee=False),
    "zero-down": Mode(3, 2, denorm32=0, denorm16_64=0, dx10_clamp=False),
}


class Compiler:
    """Host functions of single instructions; those that MODE does not change are compiled once for all modes."""

    def __init__(self):
        self.host = []
        self.made = {}  # function by its text
        self.natives = np.zeros(256, dtype=np.uint64)
        addresses = host_memory.functions()
        self.functions = np.array([addresses[n] for n in MEMORY_FUNCTIONS], dtype=np.uint64)

    def compile(self, blocks, mode, full):
        """The function of each block by name."""
        texts = {name: module_text([block], mode, full)[0] for name, block in blocks.items()}
        new = [name for name in blocks if texts[name] not in self.made]
        text, natives, _ = module_text([blocks[name] for name in new], mode, full)
        host = HostCode()
        host.add(lambda: Translation(text), f"test|{text}")
        self.host.append(host)
        for native in natives:
            self.natives[native_order().index(native)] = NATIVES[native].address
        for name in new:
            assert blocks[name].error is None, blocks[name].error
            self.made[texts[name]] = _BLOCK(host.address(function_name(blocks[name].start, full)))
        return {name: self.made[text] for name, text in texts.items()}


@dataclass
class Compiled:
    """Every instruction as host functions of one mode. variants: for EXEC all ones (if there), for any EXEC."""

    mode: Mode
    blocks: dict[str, Block]
    variants: dict[bool, dict[str, object]]
    compiler: Compiler = field(repr=False)

    def __repr__(self):
        return f"<{len(self.blocks)} compiled instructions>"


@pytest.fixture(scope="module")
def compiler():
    return Compiler()


# Except in the slow runs a mode of its own is tried on the functions for any EXEC only: MODE and EXEC do not meet.
@pytest.fixture(
    scope="module",
    params=["plain", "flushed", "mixed", "no-ieee", "up-down"]
    + [pytest.param(mode, marks=pytest.mark.slow) for mode in ("down-up", "zero-down")]
    + [pytest.param(f"{mode} full", marks=pytest.mark.slow) for mode in ("flushed", "mixed", "no-ieee")],
)
def compiled(request, compiler):
    name, _, both = request.param.partition(" ")
    blocks = {}
    for i, (title, decoded) in enumerate(cases()):
        decoded.pc = 0x1000 + 16 * i
        blocks[title] = Block(decoded.pc, [decoded])
    wanted = (True, False) if both or name == "plain" else (False,)
    variants = {full: compiler.compile(blocks, MODES[name], full) for full in wanted}
    return Compiled(MODES[name], blocks, variants, compiler)


def random_state(rng, full):
    vgprs = rng.integers(0, 1 << 32, (512, 64), dtype=np.uint32)
    special = rng.random((512, 64)) < 0.25
    vgprs[special] = rng.choice(INTERESTING, int(special.sum()))
    vgprs[:16] &= 0xFFF  # LDS addresses
    sgprs = rng.integers(0, 1 << 32, 128, dtype=np.uint32)
    active = (1 << 64) - 1 if full else int(rng.integers(0, 1 << 64, dtype=np.uint64))
    sgprs[126], sgprs[127] = active & 0xFFFFFFFF, active >> 32
    lds = rng.integers(0, 256, LDS_BYTES, dtype=np.uint8)
    return vgprs, sgprs, bool(rng.integers(0, 2)), lds


def run_numpy(decoded, mode, vgprs, sgprs, scc, lds):
    wave = Wave(lds.copy(), Memory(), mode)
    wave.vgprs[:], wave.sgprs[:], wave.scc_bit = vgprs, sgprs, scc
    wave.step(decoded)
    return wave.vgprs, wave.sgprs, wave.scc_bit, wave.lds


def run_host(compiled, function, vgprs, sgprs, scc, lds):
    wave, scratch, context = (
        aligned(WAVE_BYTES),
        aligned(SCRATCH_BYTES),
        np.zeros(host_layout.CONTEXT_WORDS, dtype=np.uint64),
    )
    lds = lds.copy()
    context[host_layout.LDS], context[host_layout.LDS_BYTES] = lds.ctypes.data, len(lds)
    wave[:SGPRS] = vgprs.view(np.uint8).reshape(-1)
    wave[SGPRS : SGPRS + 512] = sgprs.view(np.uint8)
    wave[SCC] = scc
    arrays = (wave, context, compiled.compiler.functions, compiled.compiler.natives, scratch)
    function(*(a.ctypes.data for a in arrays))
    return (
        wave[:SGPRS].view(np.uint32).reshape(512, 64),
        wave[SGPRS : SGPRS + 512].view(np.uint32),
        bool(wave[SCC]),
        lds,
    )


def compare(what, a, b):
    for part, x, y in zip(("vgprs", "sgprs", "scc", "lds"), map(np.asarray, a), map(np.asarray, b), strict=True):
        if not np.array_equal(x, y):
            at = tuple(np.argwhere(x != y)[0])
            raise AssertionError(f"{what}: {part}{list(at)}: numpy {x[at]:#x}, host {y[at]:#x}")


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 17))])
def test_every_instruction_gives_the_same_bits_on_both_engines(compiled, seed):
    rng = np.random.default_rng(seed)
    for all_lanes in (True, False):
        state = random_state(rng, all_lanes)
        for name, block in compiled.blocks.items():
            numpy_result = run_numpy(block.instructions[0], compiled.mode, *state)
            for full, functions in compiled.variants.items():
                if all_lanes or not full:
                    host_result = run_host(compiled, functions[name], *state)
                    compare(f"{name} (all lanes={all_lanes}, {full=}, {seed=})", numpy_result, host_result)


def test_something_is_compared(compiled):
    assert len(compiled.blocks) > 300
