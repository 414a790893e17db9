"""Scalar instructions against plain integers, written down once more from the manual's chapter 12."""

import itertools
import random

import pytest

from emu.wave import Wave
from gfx950.isa.encoding import ENCODINGS, decode
from gfx950.isa.operand_codes import EXEC, VCC
from gfx950.isa.registry import load, lookup

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
EDGES32 = [0, 1, 2, 4, 31, 32, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF]
EDGES64 = [*EDGES32, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, M64 - 1, M64, 0x00F0_0001_8000_0000]


def signed(value, bits=32):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def field(value, control, bits, sign):
    """S_BFE: value an integer of the right sign."""
    offset, width = control & bits - 1, min(control >> 16 & 127, bits)
    got = value >> offset & (1 << width) - 1
    return got - (1 << width) if sign and width and got >> width - 1 else got


def leading(value, bits):
    return -1 if value == 0 else bits - value.bit_length()


def lowest(value):
    return -1 if value == 0 else (value & -value).bit_length() - 1


def leading_signs(value, bits):
    text = f"{value:0{bits}b}"
    same = len(text) - len(text.lstrip(text[0]))
    return -1 if same == bits else same


def quads(value, count):
    return [int(value >> 4 * i & 15 != 0) for i in range(count)]


def nonzero(value):
    return value, value != 0


def nonzero32(value):
    return value & M32, value & M32 != 0


def nonzero64(value):
    return value & M64, value & M64 != 0


def overflow(value):
    return value, not -(1 << 31) <= value < 1 << 31


# name: f(s0, s1, scc, old destination) -> (destination or None, SCC or None when untouched)
SOP2 = {
    "s_add_u32": lambda a, b, c, d: (a + b, a + b > M32),
    "s_sub_u32": lambda a, b, c, d: (a - b, b > a),
    "s_add_i32": lambda a, b, c, d: overflow(signed(a) + signed(b)),
    "s_sub_i32": lambda a, b, c, d: overflow(signed(a) - signed(b)),
    "s_addc_u32": lambda a, b, c, d: (a + b + c, a + b + c > M32),
    "s_subb_u32": lambda a, b, c, d: (a - b - c, b + c > a),
    "s_min_i32": lambda a, b, c, d: (min(signed(a), signed(b)), signed(a) < signed(b)),
    "s_min_u32": lambda a, b, c, d: (min(a, b), a < b),
    "s_max_i32": lambda a, b, c, d: (max(signed(a), signed(b)), signed(a) >= signed(b)),
    "s_max_u32": lambda a, b, c, d: (max(a, b), a >= b),
    "s_cselect_b32": lambda a, b, c, d: (a if c else b, None),
    "s_cselect_b64": lambda a, b, c, d: (a if c else b, None),
    "s_lshl_b32": lambda a, b, c, d: nonzero32(a << (b & 31)),
    "s_lshl_b64": lambda a, b, c, d: nonzero64(a << (b & 63)),
    "s_lshr_b32": lambda a, b, c, d: nonzero(a >> (b & 31)),
    "s_lshr_b64": lambda a, b, c, d: nonzero(a >> (b & 63)),
    "s_ashr_i32": lambda a, b, c, d: nonzero(signed(a) >> (b & 31)),
    "s_ashr_i64": lambda a, b, c, d: nonzero(signed(a, 64) >> (b & 63)),
    "s_bfm_b32": lambda a, b, c, d: ((1 << (a & 31)) - 1 << (b & 31), None),
    "s_bfm_b64": lambda a, b, c, d: ((1 << (a & 63)) - 1 << (b & 63), None),
    "s_mul_i32": lambda a, b, c, d: (a * b, None),
    "s_bfe_u32": lambda a, b, c, d: nonzero(field(a, b, 32, False)),
    "s_bfe_i32": lambda a, b, c, d: nonzero(field(signed(a), b, 32, True)),
    "s_bfe_u64": lambda a, b, c, d: nonzero(field(a, b, 64, False)),
    "s_bfe_i64": lambda a, b, c, d: nonzero(field(signed(a, 64), b, 64, True)),
    "s_absdiff_i32": lambda a, b, c, d: nonzero(abs(signed(a - b))),
    "s_mul_hi_u32": lambda a, b, c, d: (a * b >> 32, None),
    "s_mul_hi_i32": lambda a, b, c, d: (signed(a) * signed(b) >> 32, None),
    "s_lshl1_add_u32": lambda a, b, c, d: (2 * a + b, 2 * a + b > M32),
    "s_lshl2_add_u32": lambda a, b, c, d: (4 * a + b, 4 * a + b > M32),
    "s_lshl3_add_u32": lambda a, b, c, d: (8 * a + b, 8 * a + b > M32),
    "s_lshl4_add_u32": lambda a, b, c, d: (16 * a + b, 16 * a + b > M32),
    "s_pack_ll_b32_b16": lambda a, b, c, d: (a % 65536 + b % 65536 * 65536, None),
    "s_pack_lh_b32_b16": lambda a, b, c, d: (a % 65536 + b // 65536 * 65536, None),
    "s_pack_hh_b32_b16": lambda a, b, c, d: (a // 65536 + b // 65536 * 65536, None),
}
LOGIC = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn2": lambda a, b: a & (b ^ M64),
    "orn2": lambda a, b: a | (b ^ M64),
    "nand": lambda a, b: (a & b) ^ M64,
    "nor": lambda a, b: (a | b) ^ M64,
    "xnor": lambda a, b: (a ^ b) ^ M64,
}
SOP2 |= {f"s_{n}_b32": lambda a, b, c, d, f=f: nonzero32(f(a, b)) for n, f in LOGIC.items()}
SOP2 |= {f"s_{n}_b64": lambda a, b, c, d, f=f: nonzero64(f(a, b)) for n, f in LOGIC.items()}
SOP1 = {
    "s_mov_b32": lambda a, c, d: (a, None),
    "s_mov_b64": lambda a, c, d: (a, None),
    "s_cmov_b32": lambda a, c, d: (a if c else d & M32, None),
    "s_cmov_b64": lambda a, c, d: (a if c else d, None),
    "s_not_b32": lambda a, c, d: nonzero(a ^ M32),
    "s_not_b64": lambda a, c, d: nonzero(a ^ M64),
    "s_wqm_b32": lambda a, c, d: nonzero(sum(q * 15 << 4 * i for i, q in enumerate(quads(a, 8)))),
    "s_wqm_b64": lambda a, c, d: nonzero(sum(q * 15 << 4 * i for i, q in enumerate(quads(a, 16)))),
    "s_quadmask_b32": lambda a, c, d: nonzero(sum(q << i for i, q in enumerate(quads(a, 8)))),
    "s_quadmask_b64": lambda a, c, d: nonzero(sum(q << i for i, q in enumerate(quads(a, 16)))),
    "s_brev_b32": lambda a, c, d: (int(f"{a:032b}"[::-1], 2), None),
    "s_brev_b64": lambda a, c, d: (int(f"{a:064b}"[::-1], 2), None),
    "s_bcnt0_i32_b32": lambda a, c, d: nonzero(32 - a.bit_count()),
    "s_bcnt0_i32_b64": lambda a, c, d: nonzero(64 - a.bit_count()),
    "s_bcnt1_i32_b32": lambda a, c, d: nonzero(a.bit_count()),
    "s_bcnt1_i32_b64": lambda a, c, d: nonzero(a.bit_count()),
    "s_ff0_i32_b32": lambda a, c, d: (lowest(a ^ M32), None),
    "s_ff0_i32_b64": lambda a, c, d: (lowest(a ^ M64), None),
    "s_ff1_i32_b32": lambda a, c, d: (lowest(a), None),
    "s_ff1_i32_b64": lambda a, c, d: (lowest(a), None),
    "s_flbit_i32_b32": lambda a, c, d: (leading(a, 32), None),
    "s_flbit_i32_b64": lambda a, c, d: (leading(a, 64), None),
    "s_flbit_i32": lambda a, c, d: (leading_signs(a, 32), None),
    "s_flbit_i32_i64": lambda a, c, d: (leading_signs(a, 64), None),
    "s_sext_i32_i8": lambda a, c, d: (signed(a, 8), None),
    "s_sext_i32_i16": lambda a, c, d: (signed(a, 16), None),
    "s_bitset0_b32": lambda a, c, d: (d & M32 & ~(1 << a % 32), None),
    "s_bitset0_b64": lambda a, c, d: (d & ~(1 << a % 64), None),
    "s_bitset1_b32": lambda a, c, d: (d & M32 | 1 << a % 32, None),
    "s_bitset1_b64": lambda a, c, d: (d | 1 << a % 64, None),
    "s_abs_i32": lambda a, c, d: nonzero(abs(signed(a))),
    "s_bitreplicate_b64_b32": lambda a, c, d: (int("".join(bit * 2 for bit in f"{a:032b}"), 2), None),
}
COMPARE = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}
SOPC = {f"s_cmp_{n}_i32": lambda a, b, f=f: f(signed(a), signed(b)) for n, f in COMPARE.items()}
SOPC |= {f"s_cmp_{n}_u32": lambda a, b, f=f: f(a, b) for n, f in COMPARE.items()}
SOPC |= {"s_cmp_eq_u64": lambda a, b: a == b, "s_cmp_lg_u64": lambda a, b: a != b}
SOPC |= {f"s_bitcmp{v}_b{w}": lambda a, b, v=v, w=w: a >> b % w & 1 == v for v in (0, 1) for w in (32, 64)}
SOPK = {f"s_cmpk_{n}_i32": lambda d, k, c, f=f: (d, f(signed(d), signed(k, 16))) for n, f in COMPARE.items()}
SOPK |= {f"s_cmpk_{n}_u32": lambda d, k, c, f=f: (d, f(d, k)) for n, f in COMPARE.items()}
SOPK |= {
    "s_movk_i32": lambda d, k, c: (signed(k, 16), None),
    "s_cmovk_i32": lambda d, k, c: (signed(k, 16) if c else d, None),
    "s_addk_i32": lambda d, k, c: overflow(signed(d) + signed(k, 16)),
    "s_mulk_i32": lambda d, k, c: (d * signed(k, 16), None),
}
SAVE = {n: f for n, f in LOGIC.items()}
SAVE |= {"andn1": lambda s, e: (s ^ M64) & e, "orn1": lambda s, e: (s ^ M64) | e}


def put(wave, index, value, registers=2):
    for i in range(registers):
        wave.sgprs[index + i] = value >> 32 * i & M32


def get(wave, index, registers=2):
    return sum(int(wave.sgprs[index + i]) << 32 * i for i in range(registers))


def step(wave, name, **fields):
    instruction = lookup(name)
    code = ENCODINGS[instruction.encoding].pack({"op": instruction.opcode, **fields})
    return wave.step(decode(code.to_bytes(4, "little"), 0x1000, 0x1000))


def values(instruction, name, seed):
    """Edges and random values of an operand's width."""
    wide = instruction.parameter(name).registers == 2
    rng = random.Random(f"{instruction.name} {name} {seed}")
    bits = 64 if wide else 32
    drawn = [rng.getrandbits(bits) & rng.getrandbits(bits) for _ in range(4)] + [
        rng.getrandbits(bits) for _ in range(6)
    ]
    drawn += [rng.randrange(64) | rng.randrange(70) << 16 for _ in range(6)]  # shift counts and bit-field controls
    return (EDGES64 if wide else EDGES32) + drawn


def check(instruction, wave, expected, scc_before, before):
    destination, scc = expected
    plain = [r for r in instruction.results if r.place is None]
    if plain:
        count = plain[0].registers
        assert get(wave, 40, count) == destination & (1 << 32 * count) - 1
        assert get(wave, 40 + count, 1) == before >> 32 * count & M32
    assert wave.scc_bit == (scc_before if scc is None else scc)


OLD = 0xDEADBEEF_9ABCDEF0_12345678


@pytest.mark.parametrize("name", sorted(SOP2))
def test_sop2(name):
    instruction = lookup(name)
    pairs = itertools.product(values(instruction, "ssrc0", 0), values(instruction, "ssrc1", 1))
    for (a, b), scc in itertools.product(list(pairs)[:: 3 if "bfe" in name else 11], (False, True)):
        wave = Wave()
        put(wave, 8, a), put(wave, 16, b), put(wave, 40, OLD, 3)
        wave.scc_bit = scc
        step(wave, name, ssrc0=8, ssrc1=16, sdst=40)
        check(instruction, wave, SOP2[name](a, b, int(scc), OLD), scc, OLD)


@pytest.mark.parametrize("name", sorted(SOP1))
def test_sop1(name):
    instruction = lookup(name)
    for a, scc in itertools.product(values(instruction, "ssrc0", 0), (False, True)):
        wave = Wave()
        put(wave, 8, a), put(wave, 40, OLD, 3)
        wave.scc_bit = scc
        step(wave, name, ssrc0=8, sdst=40)
        check(instruction, wave, SOP1[name](a, scc, OLD & M64), scc, OLD)


@pytest.mark.parametrize("name", sorted(SOPC))
def test_sopc(name):
    instruction = lookup(name)
    pairs = list(itertools.product(values(instruction, "ssrc0", 0), values(instruction, "ssrc1", 1)))
    for a, b in pairs[::5]:
        wave = Wave()
        put(wave, 8, a), put(wave, 16, b)
        step(wave, name, ssrc0=8, ssrc1=16)
        assert wave.scc_bit == SOPC[name](a, b), (a, b)


@pytest.mark.parametrize("name", sorted(SOPK))
def test_sopk(name):
    for d, k, scc in itertools.product(EDGES32, (0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x1234), (False, True)):
        wave = Wave()
        put(wave, 40, d, 1)
        wave.scc_bit = scc
        step(wave, name, sdst=40, simm16=k)
        destination, new = SOPK[name](d, k, scc)
        assert get(wave, 40, 1) == destination & M32
        assert wave.scc_bit == (scc if new is None else new)


@pytest.mark.parametrize("name", sorted(SAVE))
def test_saveexec(name):
    rng = random.Random(name)
    for source, mask in [
        (0, 0),
        (M64, M64),
        (0, M64),
        (M64, 0),
        *((rng.getrandbits(64), rng.getrandbits(64)) for _ in range(9)),
    ]:
        wave = Wave()
        wave.set_exec(mask)
        put(wave, 8, source)
        step(wave, f"s_{name}_saveexec_b64", ssrc0=8, sdst=40)
        assert (get(wave, 40), get(wave, EXEC)) == (mask, SAVE[name](source, mask))
        assert wave.scc_bit == (SAVE[name](source, mask) != 0)


@pytest.mark.parametrize(("name", "rule"), [("andn1", lambda s, e: ~s & e), ("andn2", lambda s, e: s & ~e)])
def test_wrexec_writes_the_same_to_both(name, rule):
    wave = Wave()
    wave.set_exec(0x1234_5678_9ABC_DEF0)
    put(wave, 8, 0xFF00_FF00_FF00_FF00)
    step(wave, f"s_{name}_wrexec_b64", ssrc0=8, sdst=40)
    expected = rule(0xFF00_FF00_FF00_FF00, 0x1234_5678_9ABC_DEF0) & M64
    assert get(wave, 40) == get(wave, EXEC) == expected
    assert wave.scc_bit


def test_manual_examples_of_absdiff():
    """The functional examples of S_ABSDIFF_I32. [12.1]"""
    for a, b, expected in [
        (2, 5, 3),
        (0xFFFFFFFF, 0, 1),
        (0x80000000, 0, 0x80000000),
        (0x80000000, 1, 0x7FFFFFFF),
        (0x80000000, 0xFFFFFFFF, 0x7FFFFFFF),
        (0x80000000, 0xFFFFFFFE, 0x7FFFFFFE),
    ]:
        wave = Wave()
        put(wave, 8, a, 1), put(wave, 16, b, 1)
        step(wave, "s_absdiff_i32", ssrc0=8, ssrc1=16, sdst=40)
        assert get(wave, 40, 1) == expected


def test_program_counter():
    wave = Wave()
    put(wave, 8, 0x1234_5678_9ABC)
    step(wave, "s_getpc_b64", sdst=40)
    assert get(wave, 40) == 0x1004
    jump = step(wave, "s_setpc_b64", ssrc0=8)
    assert (jump.kind, int(jump.target[0])) == ("jump", 0x1234_5678_9ABC)
    jump = step(wave, "s_swappc_b64", ssrc0=8, sdst=8)
    assert (int(jump.target[0]), get(wave, 8)) == (0x1234_5678_9ABC, 0x1004)
    jump = step(wave, "s_call_b64", sdst=40, simm16=0xFFFE)
    assert (int(jump.target[0]), get(wave, 40)) == (0x1004 - 8, 0x1004)


BRANCHES = {
    "s_cbranch_scc0": lambda scc, vcc, mask: not scc,
    "s_cbranch_scc1": lambda scc, vcc, mask: scc,
    "s_cbranch_vccz": lambda scc, vcc, mask: vcc == 0,
    "s_cbranch_vccnz": lambda scc, vcc, mask: vcc != 0,
    "s_cbranch_execz": lambda scc, vcc, mask: mask == 0,
    "s_cbranch_execnz": lambda scc, vcc, mask: mask != 0,
    "s_cbranch_cdbgsys": lambda scc, vcc, mask: False,
    "s_cbranch_cdbguser": lambda scc, vcc, mask: False,
    "s_cbranch_cdbgsys_or_user": lambda scc, vcc, mask: False,
    "s_cbranch_cdbgsys_and_user": lambda scc, vcc, mask: False,
}


@pytest.mark.parametrize("name", sorted(BRANCHES))
def test_conditional_branches(name):
    for scc, vcc, mask in itertools.product((False, True), (0, 1, 1 << 63), (0, 1, 1 << 32)):
        wave = Wave()
        wave.scc_bit = scc
        wave.set_exec(mask)
        put(wave, VCC, vcc)
        transfer = step(wave, name, simm16=0x8000)
        assert transfer.target == 0x1004 - 4 * 0x8000
        assert bool(transfer.condition[0]) == BRANCHES[name](scc, vcc, mask)


def test_flow():
    wave = Wave()
    branch = step(wave, "s_branch", simm16=0x7FFF)
    assert (branch.kind, branch.condition, branch.target) == ("branch", None, 0x1004 + 4 * 0x7FFF)
    assert step(wave, "s_barrier").kind == "barrier"
    assert step(wave, "s_endpgm").kind == "end"
    assert step(wave, "s_endpgm_saved").kind == "end"
    for name in ("s_nop", "s_waitcnt", "s_sleep", "s_setprio", "s_sendmsg", "s_icache_inv", "s_wakeup"):
        assert step(wave, name, simm16=3) is None


def test_sources_are_inline_constants_literals_and_flags(assemble_lines):
    cases = [
        ("s_mov_b32 s40, -16", 0xFFFFFFF0),
        ("s_mov_b64 s[40:41], -16", M64 - 15),
        ("s_mov_b32 s40, 64", 64),
        ("s_mov_b32 s40, 0.15915494", 0x3E22F983),
        ("s_mov_b64 s[40:41], 1.0", 0x3FF0000000000000),
        ("s_mov_b32 s40, 0x12345678", 0x12345678),
        ("s_mov_b64 s[40:41], 0x80000000", 0x80000000),
        ("s_ashr_i64 s[40:41], 0x7fffffff, 4", 0x07FFFFFF),
        ("s_mov_b32 s40, src_scc", 1),
        ("s_mov_b32 s40, src_vccz", 1),
        ("s_mov_b32 s40, src_execz", 0),
        ("s_add_u32 s40, 0x1000, 0x1000", 0x2000),
        ("s_mov_b64 s[40:41], exec", M64),
    ]
    for (text, expected), code in zip(cases, assemble_lines([text for text, _ in cases]), strict=True):
        wave = Wave()
        wave.scc_bit = True
        wave.step(decode(code, 0))
        assert get(wave, 40) == expected, text


def test_every_scalar_definition_is_tested():
    covered = {*SOP1, *SOP2, *SOPC, *SOPK, *(f"s_{n}_saveexec_b64" for n in SAVE)}
    covered |= {"s_andn1_wrexec_b64", "s_andn2_wrexec_b64", "s_getpc_b64", "s_setpc_b64", "s_swappc_b64", "s_call_b64"}
    covered |= {"s_rfe_b64", "s_rfe_restore_b64"}  # refused: test_complete
    elsewhere = ("gfx950.isa.fork", "gfx950.isa.mode_registers")  # tests/emu/test_fork.py, test_mode_registers.py
    scalar = [i for i in load().values() if i.encoding in ("SOP1", "SOP2", "SOPC", "SOPK")]
    assert {i.name for i in scalar if i.body.__module__ not in elsewhere} - covered == set()
