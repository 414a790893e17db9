"""Both engines run every straight-line instruction from the same random bits and must leave the same bits behind."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from emu import host_memory
from emu.engines.host_engine import native_order
from emu.host_code import HostCode, Translation
from emu.host_machine import aligned
from emu.memory import Memory
from emu.translate import MEMORY_FUNCTIONS, SCC, SCRATCH_BYTES, SGPRS, WAVE_BYTES, Block, function_name, module_text
from emu.wave import Wave
from gfx950.isa.encoding import ENCODINGS, MAI, VOP3_BASES, VOP3B, Decoded, decode, uses_vop3b
from gfx950.isa.registry import load
from gfx950.lanes import Mode

_BLOCK = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 5)
LDS_BYTES = 4096
SKIP_ENCODINGS = {"SMEM", "FLAT", "GLOBAL", "SCRATCH", "MAI_SCALE"}
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
    encoding = VOP3B if form == "VOP3" and uses_vop3b(instruction) else MAI if form == "MAI" else ENCODINGS[form]
    fields = {}
    even = lambda low, high: int(rng.integers(low // 4, high // 4)) * 4  # noqa: E731
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
    if form == "VOP3" and any(p.name == "carry_in" for p in instruction.parameters):
        fields["src2"] = even(0, 32)
    if instruction.results and instruction.results[0].place == "scalar":
        fields["vdst"] = even(40, 80)
    if form == "MAI":
        fields.update(acc=0, acc_cd=0)
    if form == "SOPK":
        fields["simm16"] = int(rng.integers(0, 1 << 16))
    return encoding, fields


def encode(instruction, form, rng) -> Decoded:
    encoding, fields = plain_fields(instruction, form, rng)
    opcode = instruction.opcode + (VOP3_BASES.get(instruction.encoding, 0) if form == "VOP3" else 0)
    if form == "VOP3" and "abs" in encoding.fields:
        fields["abs"], fields["neg"] = int(rng.integers(0, 8)), int(rng.integers(0, 8))
        fields["op_sel"] = int(rng.integers(0, 16)) if instruction.encoding == "VOP3" else 0
    if form == "VOP3P":
        fields["op_sel"], fields["op_sel_hi"] = int(rng.integers(0, 8)), int(rng.integers(0, 4))
    bits = encoding.pack({**fields, "op": opcode})
    raw = bits.to_bytes(encoding.nbytes, "little") + int(rng.integers(0, 1 << 32)).to_bytes(4, "little")
    return decode(raw, 0x1000, 0x1000)


def forms(instruction):
    yield instruction.encoding
    if instruction.encoding in VOP3_BASES and not instruction.parameter("literal"):
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


class Compiled:
    """Every instruction as a host function of its own."""

    def __init__(self, host, mode, table, blocks, natives, functions):
        self.host, self.mode, self.table, self.blocks = host, mode, table, blocks
        self.natives, self.functions = natives, functions

    def __repr__(self):
        return f"<{len(self.blocks)} compiled instructions>"


MODES = {
    "plain": Mode(),
    "flushed": Mode(denorm32=0, denorm16_64=0),
    "mixed": Mode(denorm32=1, denorm16_64=2, dx10_clamp=False, ieee=False),
    "no-ieee": Mode(denorm32=0, denorm16_64=3, dx10_clamp=False, ieee=False, fp16_ovfl=True),
}


@pytest.fixture(scope="module", params=MODES)
def compiled(request):
    mode = MODES[request.param]
    host = HostCode()
    table = {}
    blocks = {}
    pc = 0x1000
    for name, decoded in cases():
        decoded.pc = pc
        blocks[name] = Block(pc, [decoded])
        pc += 16
    natives = np.zeros(256, dtype=np.uint64)
    for full in (True, False):
        text, names = module_text(list(blocks.values()), mode, full)
        host.add(lambda t=text: Translation(t), f"test|{full}|{text}")
        from gfx950.arithmetic.native import NATIVES

        for native in names:
            natives[native_order().index(native)] = NATIVES[native].address
        for name, block in blocks.items():
            assert block.error is None, block.error
            table[name, full] = _BLOCK(host.address(function_name(block.start, full)))
    addresses = host_memory.functions()
    functions = np.array([addresses[n] for n in MEMORY_FUNCTIONS], dtype=np.uint64)
    return Compiled(host, mode, table, blocks, natives, functions)


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


def run_host(compiled, name, full, vgprs, sgprs, scc, lds):
    wave, scratch, context = (
        aligned(WAVE_BYTES),
        aligned(SCRATCH_BYTES),
        np.zeros(host_memory.CONTEXT_WORDS, dtype=np.uint64),
    )
    lds = lds.copy()
    context[host_memory.LDS], context[host_memory.LDS_BYTES] = lds.ctypes.data, len(lds)
    wave[:SGPRS] = vgprs.view(np.uint8).reshape(-1)
    wave[SGPRS : SGPRS + 512] = sgprs.view(np.uint8)
    wave[SCC] = scc
    arrays = (wave, context, compiled.functions, compiled.natives, scratch)
    compiled.table[name, full](*(a.ctypes.data for a in arrays))
    return (
        wave[:SGPRS].view(np.uint32).reshape(512, 64),
        wave[SGPRS : SGPRS + 512].view(np.uint32),
        bool(wave[SCC]),
        lds,
    )


def compare(name, full, seed, a, b):
    for what, x, y in zip(("vgprs", "sgprs", "scc", "lds"), a, b, strict=True):
        if not np.array_equal(x, y):
            where = np.argwhere(np.asarray(x) != np.asarray(y))[0]
            at = tuple(where)
            raise AssertionError(
                f"{name} (full={full}, seed={seed}): {what}{list(at)}: numpy {np.asarray(x)[at]:#x}, host {np.asarray(y)[at]:#x}"
            )


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 17))])
def test_every_instruction_gives_the_same_bits_on_both_engines(compiled, seed):
    rng = np.random.default_rng(seed)
    for full in (True, False):
        state = random_state(rng, full)
        for name, block in compiled.blocks.items():
            numpy_result = run_numpy(block.instructions[0], compiled.mode, *state)
            host_result = run_host(compiled, name, full, *state)
            compare(name, full, seed, numpy_result, host_result)


def test_something_is_compared(compiled):
    assert len(compiled.blocks) > 300
