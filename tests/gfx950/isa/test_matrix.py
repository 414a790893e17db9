"""Matrix instructions as instructions: names and encodings by LLVM, register files, constants, modifiers, MODE."""

import re
from pathlib import Path

import numpy as np
import pytest

from emu.register_checks import UnsupportedForm
from emu.wave import Wave
from gfx950.arithmetic.mfma_shapes import SHAPES, kind_of
from gfx950.arithmetic.native import NATIVES
from gfx950.isa.encoding import DecodeError, decode
from gfx950.isa.matrix import MATRIX, b_lanes, broadcast_lanes, index_shift
from gfx950.isa.registry import load, lookup, register_count
from gfx950.lanes import Mode
from gfx950.layouts import MATRIX_INSTRUCTIONS

TABLE = Path(__file__).parents[2] / "toolchain" / "gfx950_mnemonics.txt"
LINES = re.findall(r"^v_(?:mfma|smfmac)_.*$", TABLE.read_text(), re.MULTILINE)
SPARSE = [name for name in MATRIX if name.startswith("v_smfmac")]
DENSE = [name for name in MATRIX if not name.startswith("v_smfmac")]


def registers(file, first, count):
    return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"


def text_of(name, a="v", b="v", cd="v", c=None, tail=""):
    """A line with A from 0, B from 16, D from 64, and C from 96 or a constant; the index of a sparse A in v33."""
    instruction = load()[name]
    counts = {p.name: register_count(p.kind) for p in instruction.parameters}
    d = register_count(instruction.results[0].kind)
    last = "v33" if "vdst" in counts else c or registers(cd, 96, d)
    operands = (registers(cd, 64, d), registers(a, 0, counts["src0"]), registers(b, 16, counts["src1"]), last)
    return f"{name} {', '.join(operands)}{tail}"


def run(code, state=None, mode=None, seed=0, exec_=0):
    """The registers (512, 64) before and after the code; EXEC counts for nothing, so it is 0."""
    wave = Wave(**({"mode": mode} if mode else {}))
    wave.set_exec(exec_)
    random = np.random.default_rng(seed)
    wave.vgprs[:] = random.integers(0, 2**32, (512, 64), dtype=np.uint32) if state is None else state
    before, pc = wave.vgprs.copy(), 0
    while pc < len(code):
        decoded = decode(code, pc)
        wave.step(decoded)
        pc += decoded.nbytes
    return before, wave.vgprs


# ---- Names and encodings ----


def test_every_line_of_llvms_table_decodes(assemble_lines):
    """Also the older spellings (`16x16x4f32`, `_1k`): 66 opcodes, two scaled forms and the loading of scales."""
    found = {decode(code, 0).instruction.name for code in assemble_lines(LINES)}
    assert len(found) == 66 + 2 + 1
    assert found == {name for name in load() if name.startswith(("v_mfma", "v_smfmac"))}
    assert found - {"v_mfma_ld_scale_b32"} == set(MATRIX_INSTRUCTIONS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v_mfma_f32_16x16x8_xf32", "is an instruction of gfx942, which gfx950 does not have"),
        ("v_mfma_f32_32x32x4_xf32", "is an instruction of gfx942, which gfx950 does not have"),
        ("v_mfma_f32_32x32x2bf16", "which gfx950 does not have"),
        ("v_mfma_f32_16x16x8_f16", "nearest: v_mfma_f32"),
    ],
)
def test_what_gfx950_has_not_is_refused_by_name(name, message):
    with pytest.raises(KeyError, match=f"{name}.*{message}"):
        lookup(name)


@pytest.mark.parametrize("files", [("v", "v", "v"), ("a", "v", "a"), ("v", "a", "a"), ("a", "a", "v")])
def test_llvm_text_decodes_to_the_definition(assemble_lines, files):
    lines = [text_of(name, *files) for name in MATRIX]
    for name, code in zip(MATRIX, assemble_lines(lines), strict=True):
        decoded = decode(code, 0)
        assert decoded.instruction is MATRIX[name]
        fields = decoded.fields
        assert (fields["vdst"], fields["src0"], fields["src1"]) == (64, 256, 256 + 16)
        assert fields["src2"] == 256 + (33 if name in SPARSE else 96)
        assert (fields["acc"] & 1, fields["acc"] >> 1, fields["acc_cd"]) == tuple(int(file == "a") for file in files)


OLDER = {
    "v_mfma_f32_4x4x4f16 v[0:3], v[32:33], v[34:35], v[0:3]": "v_mfma_f32_4x4x4_16b_f16",
    "v_mfma_f32_32x32x4bf16_1k v[0:31], v[32:33], v[34:35], v[0:31]": "v_mfma_f32_32x32x4_2b_bf16",
    "v_mfma_i32_32x32x16i8 v[0:15], v[32:33], v[34:35], v[0:15]": "v_mfma_i32_32x32x16_i8",
    "v_mfma_f64_16x16x4f64 v[0:7], v[32:33], v[34:35], v[0:7]": "v_mfma_f64_16x16x4_f64",
}


def test_older_spellings_are_the_same_instructions(assemble_lines):
    for code, name in zip(assemble_lines(list(OLDER)), OLDER.values(), strict=True):
        assert decode(code, 0).instruction is MATRIX[name]


# ---- Register files, constants ----


@pytest.mark.parametrize("files", [("v", "v", "v"), ("a", "v", "a"), ("v", "a", "a"), ("a", "a", "v")])
def test_operands_come_from_the_file_that_is_named(assemble_lines, files):
    """The native on the registers that the text names; every other register stays."""
    lines = [text_of(name, *files) for name in MATRIX]
    for name, code in zip(MATRIX, assemble_lines(lines), strict=True):
        decoded = decode(code, 0)
        native = native_of(name)
        shape = SHAPES[native]
        a, b, d = (256 * (file == "a") for file in files)
        c = (64 if name in SPARSE else 96) + d
        n, m, count = shape.operand_registers, shape.b_shape.operand_registers, shape.c_registers
        before, after = run(code)
        rows = [*range(a, a + n), *range(b + 16, b + 16 + m), *range(c, c + count), *[33] * shape.sparse]
        parameters = {"f16": 5 | 5 << 3, "bf16": 6 | 6 << 3}.get(name.rpartition("_")[2], 0)
        if kind_of(native) == "f8":
            parameters = sum(("fp8", "bf8").index(f) << 3 * i for i, f in enumerate(name.split("_")[-2:]))
        before[64 + d : 64 + d + count] = NATIVES[native](before[rows], parameters)
        np.testing.assert_array_equal(before, after, err_msg=str(decoded))


def native_of(name):
    family, _, shape = re.fullmatch(r"v_(mfma|smfmac)_(\w\d+)_(\d+x\d+x\d+(?:_\d+b)?)_\w+", name).groups()
    kind = name.rpartition("_")[2]
    return f"{family}_{shape}_{ {'fp8': 'f8', 'bf8': 'f8', 'bf16': 'f16'}.get(kind, kind) }"


CONSTANTS = {  # text: f32 or i32 word, f64 bits
    "1.0": (0x3F800000, 0x3FF0000000000000),
    "-4.0": (0xC0800000, 0xC010000000000000),
    "0.15915494": (0x3E22F983, None),
    "0.15915494309189532": (None, 0x3FC45F306DC9C882),
    "0": (0, 0),
    "64": (64, 64),
    "-16": (0xFFFFFFF0, 0xFFFFFFFFFFFFFFF0),
}


@pytest.mark.parametrize("constant", CONSTANTS)
def test_c_may_be_an_inline_constant(assemble_lines, constant):
    single, double = CONSTANTS[constant]
    names = [name for name in DENSE if (double if "f64" in name else single) is not None]
    codes = assemble_lines([text_of(name, c=constant) for name in names])
    in_registers = assemble_lines([text_of(name) for name in names])
    for name, code, other in zip(names, codes, in_registers, strict=True):
        state = np.random.default_rng(1).integers(0, 2**32, (512, 64), dtype=np.uint32)
        bits = [double & 0xFFFFFFFF, double >> 32] if "f64" in name else [single] * 2
        state[96:128] = np.tile(np.array(bits, np.uint32), 16)[:, None]
        np.testing.assert_array_equal(run(code, state)[1], run(other, state)[1], err_msg=name)


def patched(code, **fields):
    """The code with fields of its MAI encoding replaced."""
    from gfx950.isa.encoding import MAI

    bits = int.from_bytes(code[-8:], "little")
    for name, value in fields.items():
        low, count = MAI.fields[name]
        bits = bits & ~((1 << count) - 1 << low) | value << low
    return code[:-8] + bits.to_bytes(8, "little")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"src2": 4}, "src2 of a matrix instruction is source code 4: A, B and the index"),
        ({"src2": 255}, "src2 of a matrix instruction is source code 255"),
        ({"src2": 230}, "src2 of a matrix instruction is source code 230"),
        ({"src0": 242}, "src0 of a matrix instruction is source code 242"),
        ({"src1": 10}, "src1 of a matrix instruction is source code 10"),
        ({"src1": 256 + 17}, "v17 starts an operand of 2 registers: it is odd"),
        ({"src2": 256 + 97, "acc_cd": 1}, "a97 starts an operand of 4 registers: it is odd"),
        ({"vdst": 65}, "v65 starts an operand of 4 registers: it is odd"),
        ({"vdst": 254}, r"4 registers from v254 on reach past the last one"),
    ],
)
def test_operands_that_are_none_are_refused(assemble, fields, message):
    code = assemble(text_of("v_mfma_f32_16x16x16_f16"))
    with pytest.raises(UnsupportedForm, match=message):
        run(patched(code, **fields))


def test_the_index_is_a_v_register_of_any_number(assemble):
    code = assemble(text_of("v_smfmac_f32_16x16x32_f16", cd="a"))
    state = np.random.default_rng(2).integers(0, 2**32, (512, 64), dtype=np.uint32)
    other = state.copy()
    other[256 + 33] ^= np.uint32(0xFF)
    assert (run(code, state)[1] == run(code, other)[1])[:256].all()
    np.testing.assert_array_equal(run(code, state)[1][320:324], run(code, other)[1][320:324])
    other[33] ^= np.uint32(0xFF)
    assert (run(code, state)[1][320:324] != run(code, other)[1][320:324]).any()
    with pytest.raises(UnsupportedForm, match="src2 of a matrix instruction is source code 128"):
        run(patched(code, src2=128))


# ---- CBSZ, ABID, BLGP ----


def test_broadcasts_of_blocks():
    """By table 89: in every 2^CBSZ blocks, A is that of the one numbered ABID."""
    four = SHAPES["mfma_16x16x4_4b_f16"]
    assert broadcast_lanes(four, 0, 0) == tuple(range(64))
    for cbsz, abid in ((1, 0), (1, 1), (2, 0), (2, 3)):
        lanes = broadcast_lanes(four, cbsz, abid)
        for block in range(4):
            source = block >> cbsz << cbsz | abid
            assert lanes[16 * block : 16 * block + 16] == tuple(range(16 * source, 16 * source + 16))
    deep = broadcast_lanes(SHAPES["mfma_4x4x4_16b_i8"], 4, 9)
    assert deep == tuple(36 + lane % 4 for lane in range(64))


def test_probed_broadcasts():
    """fpsan's tests on gfx950: S = 64 >> CBSZ, A of lane l % S + S * ABID, where that is all blocks."""
    for name, cbsz, abid in (("mfma_16x16x1_4b_f32", 2, 3), ("mfma_32x32x1_2b_f32", 1, 1)):
        size = 64 >> cbsz
        assert broadcast_lanes(SHAPES[name], cbsz, abid) == tuple(lane % size + size * abid for lane in range(64))


def test_lanes_of_b():
    table = {
        0: lambda lane: lane,
        1: lambda lane: lane % 32,
        2: lambda lane: lane % 32 + 32,
        3: lambda lane: (lane + 16) % 64,
        **{4 + n: lambda lane, n=n: lane % 16 + 16 * n for n in range(4)},
    }
    assert all(b_lanes(blgp) == tuple(map(read, range(64))) for blgp, read in table.items())


@pytest.mark.parametrize("tail", [" cbsz:1 abid:1", " blgp:1", " blgp:3", " cbsz:1 blgp:7"])
def test_modifiers_are_as_if_the_lanes_had_moved(assemble_lines, tail):
    names = [n for n in DENSE if "f64" not in n and ("cbsz" not in tail or SHAPES[native_of(n)].copies > 1)]
    codes, plain = (assemble_lines([text_of(name, tail=t) for name in names]) for t in (tail, ""))
    for name, code, other in zip(names, codes, plain, strict=True):
        shape, fields = SHAPES[native_of(name)], decode(code, 0).fields
        state = np.random.default_rng(3).integers(0, 2**32, (512, 64), dtype=np.uint32)
        moved = state.copy()
        moved[:16] = state[:16, list(broadcast_lanes(shape, fields["cbsz"], fields["abid"]))]
        moved[16:32] = state[16:32, list(b_lanes(fields["blgp"]))]
        after, want = run(code, state)[1][64:96], run(other, moved)[1][64:96]
        np.testing.assert_array_equal(after, want, err_msg=name)
        assert (after != run(other, state)[1][64:96]).any()


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("v_mfma_f32_16x16x16_f16", {"cbsz": 1}, "CBSZ 1 broadcasts to 2 blocks, and the instruction has 1: give less"),
        ("v_mfma_f32_16x16x16_f16", {"abid": 1}, "ABID 1 is none of the 1 blocks that CBSZ 0 puts together"),
        ("v_mfma_f32_4x4x1_16b_f32", {"cbsz": 7}, "CBSZ 7 broadcasts to 128 blocks, and the instruction has 16"),
        ("v_mfma_i32_16x16x4_4b_i8", {"cbsz": 1, "abid": 2}, "ABID 2 is none of the 2 blocks that CBSZ 1"),
    ],
)
def test_broadcasts_beyond_the_blocks_are_refused(assemble, name, fields, message):
    with pytest.raises(ValueError, match=message):
        run(patched(assemble(text_of(name)), **fields))


def test_f64_takes_blgp_as_signs_and_nothing_else(assemble):
    for name in ("v_mfma_f64_16x16x4_f64", "v_mfma_f64_4x4x4_4b_f64"):
        code, plain = assemble(text_of(name, tail=" neg:[1,0,1]")), assemble(text_of(name))
        state = np.random.default_rng(4).integers(0, 2**32, (512, 64), dtype=np.uint32)
        signs = state.copy()
        signs[1] ^= np.uint32(1 << 31)
        signs[97:105:2] ^= np.uint32(1 << 31)
        after = run(code, state)[1][64:72]
        np.testing.assert_array_equal(after, run(plain, signs)[1][64:72])
        same = run(patched(code, cbsz=3, abid=5), state, Mode(denorm16_64=0, fp16_ovfl=True))[1][64:72]
        np.testing.assert_array_equal(after, same)


# ---- The index of a sparse A ----


def test_sets_of_indices_by_the_table():
    small, middle, large = (SHAPES[n] for n in ("smfmac_16x16x32_f16", "smfmac_32x32x32_i8", "smfmac_16x16x128_f8"))
    assert [index_shift(small, 0, abid) for abid in range(4)] == [0, 8, 16, 24]
    assert [index_shift(middle, 0, abid) for abid in range(4)] == [0, 16, 0, 16]  # ABID[0]
    assert [index_shift(large, 0, abid) for abid in range(2)] == [0, 0]
    assert index_shift(SHAPES["smfmac_16x16x64_f16"], 0, 3) == 16
    assert {index_shift(shape, cbsz, 3) for shape in (small, middle, large) for cbsz in (1, 2, 3)} == {0}


@pytest.mark.parametrize("name", SPARSE)
def test_cbsz_and_abid_choose_the_set_of_indices(assemble, name):
    shape = SHAPES[native_of(name)]
    bits = 2 * shape.lane_items
    for tail, used in ((" abid:1", 1), (" cbsz:1 abid:1", 0), ("", 0)):
        code = assemble(text_of(name, tail=tail))
        state = np.random.default_rng(5).integers(0, 2**32, (512, 64), dtype=np.uint32) & np.uint32(0xBFBFBFBF)
        moved = state.copy()
        moved[33] = state[33] >> np.uint32(bits * used % 32)
        np.testing.assert_array_equal(
            run(code, state)[1][64:80], run(assemble(text_of(name)), moved)[1][64:80], err_msg=tail
        )
    if bits < 32:
        assert (run(assemble(text_of(name)), state)[1] != run(assemble(text_of(name, tail=" abid:1")), state)[1]).any()


# ---- MODE ----


def test_f32_inputs_honour_mode_and_the_others_do_not(assemble):
    subnormal, one = 0x00100000, 0x3F800000
    state = np.zeros((512, 64), np.uint32)
    state[0], state[16], state[96:100] = subnormal, one, 7
    code = assemble(text_of("v_mfma_f32_16x16x4_f32"))
    for denorm, want in ((3, 4 * subnormal + 7), (1, 4 * subnormal + 7), (2, 7), (0, 7)):
        assert run(code, state, Mode(denorm32=denorm))[1][64, 0] == want
    halves = assemble(text_of("v_mfma_f32_16x16x16_f16"))
    results = [run(halves, None, Mode(denorm32=d, denorm16_64=d, round32=d, round16_64=d))[1] for d in (0, 3)]
    np.testing.assert_array_equal(*results)


def test_fp16_ovfl_clamps(assemble):
    state = np.zeros((512, 64), np.uint32)
    state[0], state[16], state[96:100] = 0x7F7F7F7F, 0x7F7F7F7F, 0x7FFFFFFF
    for name, plain, clamped in (
        ("v_mfma_i32_4x4x4_16b_i8", 0x7FFFFFFF + 4 * 127 * 127, 0x7FFFFFFF),
        ("v_mfma_f32_16x16x4_f32", 0x7FC00000, 0x7FC00000),  # C is NaN
    ):
        code = assemble(text_of(name))
        assert run(code, state)[1][64, 0] == plain
        assert run(code, state, Mode(fp16_ovfl=True))[1][64, 0] == clamped
    state[96:100] = 0
    code = assemble(text_of("v_mfma_f32_16x16x4_f32"))
    assert run(code, state)[1][64, 0] == 0x7F800000
    assert run(code, state, Mode(fp16_ovfl=True))[1][64, 0] == 0x7F7FFFFF


# ---- Loading scales ----

SCALED = "v_mfma_scale_f32_16x16x128_f8f6f4 v[64:67], v[0:7], v[16:23], v[96:99], v40, v41"
PLAIN = "v_mfma_f32_16x16x128_f8f6f4 v[64:67], v[0:7], v[16:23], v[96:99]"


def scale_state(a, b):
    state = np.zeros((512, 64), np.uint32)
    state[0:8] = state[16:24] = 0x38383838  # ones of fp8
    state[40], state[41] = a, b
    return state


def result(code, state):
    after = run(code, state)[1][64:68]
    assert (after == after[0, 0]).all()
    return float(after[0, 0].view(np.float32))


def test_one_byte_of_the_scales_at_a_time(assemble):
    state = scale_state(0x807F7E7D, 0x7F7F7F83)
    for op_sel in range(4):
        tail = f" op_sel:[{op_sel & 1},0] op_sel_hi:[{op_sel >> 1},0]"
        assert result(assemble(SCALED + tail), state) == 128 * 2.0 ** (op_sel - 2) * 16


def test_scales_loaded_by_an_instruction_of_their_own(assemble):
    """LLVM sets OP_SEL_HI of a lone one; F8F6F4 takes the scales where its ABID[0] is set. [7.1.5]"""
    load_scales = assemble("v_mfma_ld_scale_b32 v40, v41")
    assert decode(load_scales, 0).instruction.name == "v_mfma_ld_scale_b32"
    plain, state = assemble(PLAIN), scale_state(0x7F817F7F, 0x7F827F7F)
    assert result(load_scales + plain, state) == 128
    assert result(load_scales + patched(plain, abid=1), state) == 128 * 4 * 8  # byte 2
    assert result(plain, state) == 128
    whole = decode(load_scales + patched(plain, abid=1), 0)
    assert (whole.nbytes, whole.instruction.name) == (16, "v_mfma_scale_f32_16x16x128_f8f6f4")
    between = load_scales + assemble("v_nop") + patched(plain, abid=1)
    assert result(between, state) == 128


def test_a_scaled_instruction_whose_abid_is_clear_is_two(assemble):
    state, code = scale_state(0x81, 0x82), assemble(SCALED)
    assert result(code, state) == 128 * 4 * 8
    assert result(patched(code, abid=0), state) == 128
    assert decode(patched(code, abid=0), 0).nbytes == 8


def with_scale_sources(code, a, b):
    bits = int.from_bytes(code[:8], "little") & ~(0x3FFFF << 32) | a << 32 | b << 41
    return bits.to_bytes(8, "little") + code[8:]


@pytest.mark.parametrize(
    ("source", "scale"),
    [
        (240, 0.5),
        (241, 0.5),
        (242, 1.0),
        (244, 2.0),
        (247, 4.0),
        (248, 2.0**-3),
        (128 + 64, 2.0**-63),
        (128, 2.0**-127),
    ],
)
@pytest.mark.parametrize("op_sel", ["", " op_sel:[1,1]", " op_sel_hi:[1,0]"])
def test_scales_that_are_constants(assemble, source, scale, op_sel):
    """A float is its exponent whatever byte is asked for; an integer has bytes."""
    code = with_scale_sources(assemble(SCALED + op_sel), source, 256 + 41)
    byte = 1.0 if source >= 240 or not op_sel else 0.0
    want = 128 * scale if byte else 128 * 2.0**-127
    assert result(code, scale_state(0, 0x7F7F7F7F)) == want


def test_a_negative_integer_scale_is_nan(assemble):
    code = with_scale_sources(assemble(SCALED + " op_sel:[1,0]"), 193, 256 + 41)
    assert np.isnan(result(code, scale_state(0, 0x7F)))


def test_loading_scales_in_the_middle_of_nothing_is_no_prefix(assemble):
    code = assemble("v_mfma_ld_scale_b32 1.0, 2.0")
    assert decode(code, 0).nbytes == 8
    with pytest.raises(DecodeError, match="the code ends in the middle of an instruction"):
        decode(code[:4], 0)


def test_signs_among_the_scales_are_refused(assemble):
    code = bytearray(assemble(SCALED))
    code[7] |= 0x80  # NEG[2]
    with pytest.raises(
        DecodeError, match="loads MFMA scales with NEG 4 and SRC2 0: what they mean there is not documented"
    ):
        decode(bytes(code), 0)
