"""Register layouts: both directions over every element, facts seen on silicon, and LLVM as judge of names and sizes."""

import subprocess
import sys

import numpy as np
import pytest

from gfx950 import layouts
from gfx950.arithmetic import mfma
from gfx950.arithmetic.native import NATIVES
from gfx950.layouts import MATRIX_INSTRUCTIONS, Element, Piece, describe_element, describe_place, layout

F8F6F4_16 = "v_mfma_f32_16x16x128_f8f6f4"
F8F6F4_32 = "v_mfma_f32_32x32x64_f8f6f4"
SCALED_16 = "v_mfma_scale_f32_16x16x128_f8f6f4"
SCALED_32 = "v_mfma_scale_f32_32x32x64_f8f6f4"


def every_operand():
    for name, instruction in MATRIX_INSTRUCTIONS.items():
        for operand in "ABD":  # C is laid out as D: see the expanded formulas
            if instruction.has_formats and operand in "AB":
                for spelled in layouts.FORMAT_BITS:
                    formats = {f"{operand.lower()}_format": spelled}
                    yield pytest.param(layout(name, operand, **formats), id=f"{name}-{operand}-{spelled}")
            else:
                yield pytest.param(layout(name, operand), id=f"{name}-{operand}")
        if instruction.has_scales:
            for operand in ("scaleA", "scaleB"):
                for byte in range(4):
                    yield pytest.param(layout(name, operand, op_sel=byte), id=f"{name}-{operand}-{byte}")
        for chosen in range(instruction.index_sets if instruction.sparse else 0):
            yield pytest.param(layout(name, "index", op_sel=chosen), id=f"{name}-index-{chosen}")


@pytest.mark.parametrize("operand", list(every_operand()))
def test_every_bit_has_one_element_and_the_inverse_finds_it(operand):
    owner = {}
    for element in operand.elements():
        place = operand.locate(*element)
        assert 0 <= place.lane < 64
        assert sum(p.high_bit - p.low_bit + 1 for p in place.pieces) == operand.element_bits
        for piece in place.pieces:
            assert 0 <= piece.low_bit <= piece.high_bit <= 31
            for bit in range(piece.low_bit, piece.high_bit + 1):
                assert owner.setdefault((piece.register, place.lane, bit), element) == element
    assert len(owner) == operand.rows * operand.cols * operand.blocks * operand.element_bits
    if operand.operand in "ABCD":
        assert len(owner) == operand.registers * 64 * 32, "an operand fills its registers"
    for (register, lane, bit), element in owner.items():
        assert operand.element(register, lane, bit) == element


def item_of(operand, row, col, block=0):
    place = operand.locate(row, col, block)
    return place.lane, (32 * place.register + place.low_bit) // operand.element_bits


# Facts of published probes and of the manual's expanded tables, written with lane = f(...) the other way round:
# from lane and item to element, where the module goes through the general closed form.
OUTPUT_EXPANDED = {
    "32x32": lambda lane, r: (8 * (r % 16 // 4) + 4 * (lane // 32) + r % 4, lane % 32, r // 16),
    "16x16": lambda lane, r: (4 * (lane // 16) + r % 4, lane % 16, r // 4),
    "4x4": lambda lane, r: (r, lane % 4, lane // 4),
    "f64_16x16": lambda lane, r: (lane // 16 + 4 * r, lane % 16, 0),
    "f64_4x4": lambda lane, r: (lane // 16, lane % 4, lane % 16 // 4),
}


@pytest.mark.parametrize("name", MATRIX_INSTRUCTIONS)
@pytest.mark.parametrize("operand", ["C", "D"])
def test_output_layout_is_the_expanded_one(name, operand):
    found = layout(name, operand)
    m = MATRIX_INSTRUCTIONS[name].m
    expanded = OUTPUT_EXPANDED[("f64_" if "f64" in name.split("_")[2] else "") + f"{m}x{m}"]
    for lane in range(64):
        for item in range(found.items):
            row, col, block = expanded(lane, item)
            assert item_of(found, row, col, block) == (lane, item)


# instruction, operand format, k of item t in lane group g (group = lane / m)
INPUT_K = [
    ("v_mfma_f32_16x16x32_f16", None, lambda g, t: 8 * g + t),
    ("v_mfma_f32_32x32x16_bf16", None, lambda g, t: 8 * g + t),
    ("v_mfma_f32_16x16x16_f16", None, lambda g, t: 4 * g + t),
    ("v_mfma_f32_32x32x8_f16", None, lambda g, t: 4 * g + t),
    ("v_mfma_f32_16x16x32_fp8_fp8", None, lambda g, t: 8 * g + t),
    ("v_mfma_f32_32x32x16_bf8_fp8", None, lambda g, t: 8 * g + t),
    ("v_mfma_i32_16x16x64_i8", None, lambda g, t: 16 * g + t),
    ("v_mfma_i32_32x32x32_i8", None, lambda g, t: 16 * g + t),
    ("v_mfma_f32_32x32x2_f32", None, lambda g, t: g),
    ("v_mfma_f32_16x16x4_f32", None, lambda g, t: g),
    ("v_mfma_f64_16x16x4_f64", None, lambda g, t: g),
    (F8F6F4_16, "fp8", lambda g, t: 64 * (t // 16) + 16 * g + t % 16),
    (F8F6F4_32, "bf8", lambda g, t: 32 * (t // 16) + 16 * g + t % 16),
    (F8F6F4_16, "fp4", lambda g, t: 32 * g + t),
    (F8F6F4_32, "fp6", lambda g, t: 32 * g + t),
]


@pytest.mark.parametrize(("name", "spelled", "k_of"), INPUT_K, ids=lambda v: v if isinstance(v, str) else "")
def test_input_layout_of_one_block_shapes(name, spelled, k_of):
    lines = MATRIX_INSTRUCTIONS[name].m
    a, b = layout(name, "A", a_format=spelled), layout(name, "B", b_format=spelled)
    for lane in range(64):
        for item in range(a.items):
            k = k_of(lane // lines, item)
            assert item_of(a, lane % lines, k) == (lane, item)
            assert item_of(b, k, lane % lines) == (lane, item)


def test_inputs_of_many_block_shapes():
    a, b = layout("v_mfma_f64_4x4x4_4b_f64", "A"), layout("v_mfma_f64_4x4x4_4b_f64", "B")
    for block in range(4):
        for k in range(4):
            for line in range(4):
                assert a.locate(line, k, block).lane == 16 * k + 4 * block + line
                assert b.locate(k, line, block).lane == 16 * k + 4 * block + line
    wide = layout("v_mfma_f32_32x32x4_2b_f16", "A")
    assert item_of(wide, 5, 3, 1) == (37, 3)
    narrow = layout("v_mfma_f32_4x4x4_16b_bf16", "B")
    assert item_of(narrow, 2, 3, 9) == (39, 2)


@pytest.mark.parametrize(("name", "lines"), [(SCALED_16, 16), (SCALED_32, 32)])
@pytest.mark.parametrize("operand", ["scaleA", "scaleB"])
@pytest.mark.parametrize("byte", range(4))
def test_scales(name, lines, operand, byte):
    found = layout(name, operand, a_format="fp4", b_format="fp6", op_sel=byte)
    assert (found.rows, found.cols, found.registers) == (lines, 64 // lines, 1)
    for row in range(found.rows):
        for k_block in range(found.cols):
            place = found.locate(row, k_block)
            assert (place.lane, place.register, place.low_bit, place.high_bit) == (
                lines * k_block + row,
                0,
                8 * byte,
                8 * byte + 7,
            )
    if byte:
        with pytest.raises(IndexError, match=rf"bit 0 is not used: {operand} of {name} reads bits"):
            found.element(0, 0, 0)


def test_six_bit_elements_straddle_registers():
    found = layout(F8F6F4_16, "A", a_format="bf6")
    assert found.locate(0, 5).pieces == (Piece(0, 30, 31), Piece(1, 0, 3))
    assert found.element(0, 0, 31) == found.element(1, 0, 3) == Element(0, 5, 0)
    assert layout("v_mfma_f64_16x16x4_f64", "D").locate(5, 2).pieces == (Piece(2, 0, 31), Piece(3, 0, 31))


def test_element_text():
    answer = describe_element(SCALED_16, "B[100][3]")
    assert (answer["lane"], answer["pieces"]) == (35, [{"register": 5, "high_bit": 7, "low_bit": 0}])
    assert answer["text"] == "B[100][3]: lane 35, v5 bits 7:0"
    assert answer["evidence"] == "published"
    straddles = describe_element(F8F6F4_16, "A[0][5]", a_format="fp6")
    assert straddles["text"] == "A[0][5]: lane 0, v0 bits 31:30 and v1 bits 3:0"
    assert describe_element("v_mfma_f32_4x4x4_16b_f16", "A[3][0] block 2")["lane"] == 11
    assert describe_element("v_mfma_f32_4x4x4_16b_f16", "A[3][0].b2")["text"].startswith("A[3][0] block 2: lane 11")
    assert describe_element(SCALED_16, "scaleB[3][2]", op_sel=1)["text"] == "scaleB[3][2]: lane 35, v0 bits 15:8"


def test_place_text():
    answer = describe_place(SCALED_16, "B v3 lane 17 [7:4]", b_format="fp4")
    assert answer["elements"] == [{"row": 57, "col": 1, "block": 0, "high_bit": 7, "low_bit": 4}]
    assert answer["text"] == "B v3 lane 17 bits 7:4: B[57][1]"
    whole = describe_place(SCALED_16, "A v1 lane 0")
    assert [e["col"] for e in whole["elements"]] == [4, 5, 6, 7]
    six = describe_place(F8F6F4_16, "A v1 lane 0 [5:2]", a_format="fp6")
    assert [(e["col"], e["high_bit"], e["low_bit"]) for e in six["elements"]] == [(5, 3, 0), (6, 9, 4)]
    assert describe_place("v_mfma_f64_4x4x4_4b_f64", "D a1 lane 22 [31]")["text"].endswith("D[1][2] block 1")
    assert describe_place(SCALED_16, "scaleA v0 lane 35", op_sel=2)["elements"][0]["low_bit"] == 16


@pytest.mark.parametrize("operand", ["A", "B", "C", "D"])
def test_texts_invert_each_other(operand):
    for name in (SCALED_16, "v_mfma_f32_16x16x4_4b_f16", "v_mfma_f64_16x16x4_f64"):
        found = layout(name, operand)
        for row, col, block in list(found.elements())[::37]:
            there = describe_element(name, f"{operand}[{row}][{col}] block {block}")
            piece = there["pieces"][0]
            text = f"{operand} v{piece['register']} lane {there['lane']} [{piece['high_bit']}:{piece['low_bit']}]"
            (back,) = describe_place(name, text)["elements"]
            assert (back["row"], back["col"], back["block"]) == (row, col, block)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: layout("v_mfma_f32_16x16x128_f8f6", "A"), ValueError, "nearest: v_mfma_f32_16x16x128_f8f6f4"),
        (lambda: layout("s_add", "A"), ValueError, "for example v_mfma_f32_32x32x1_2b_f32"),
        (lambda: layout(F8F6F4_16, "E"), ValueError, "operands are A, B, C, D"),
        (
            lambda: layout(F8F6F4_16, "scaleA"),
            ValueError,
            "it has no scaleA; scaled are v_mfma_scale",
        ),
        (lambda: layout(F8F6F4_16, "A", a_format="fp5"), ValueError, "formats are fp8, bf8, fp6, bf6, fp4"),
        (
            lambda: layout("v_mfma_f32_16x16x16_f16", "A", a_format="fp8"),
            ValueError,
            "drop the format 'fp8' given",
        ),
        (lambda: layout(SCALED_16, "scaleA", op_sel=4), ValueError, "give 0, 1, 2 or 3"),
        (lambda: describe_element(F8F6F4_16, "B[128][3]"), IndexError, "row 128 is outside B of .* rows 0..127"),
        (lambda: describe_element(F8F6F4_16, "B[0][16]"), IndexError, "column 16 .* columns 0..15"),
        (lambda: describe_element(F8F6F4_16, "B[0][0] block 1"), IndexError, "block 1 .* blocks 0..0"),
        (lambda: describe_element(F8F6F4_16, "B(0,0)"), ValueError, "write for example 'B\\[100\\]\\[3\\]'"),
        (lambda: describe_place(F8F6F4_16, "B v8 lane 0"), IndexError, "register 8 .* registers 0..7"),
        (lambda: describe_place(F8F6F4_16, "B v0 lane 64"), IndexError, "lane 64 .* lanes 0..63"),
        (lambda: describe_place(F8F6F4_16, "B v0 lane 0 [3:9]"), ValueError, "no bit range"),
        (lambda: describe_place(F8F6F4_16, "B 3 17"), ValueError, "write for example 'B v3 lane 17"),
    ],
)
def test_errors_say_what_to_do(call, error, message):
    with pytest.raises(error, match=message):
        call()


def _assembly(name, source):
    """One line of assembly that uses every operand with the number of registers the layouts claim."""
    formats = {"a_format": source, "b_format": source} if source else {}
    counts = [layout(name, operand, **formats).registers for operand in "DABC"]
    if MATRIX_INSTRUCTIONS[name].sparse:  # C is D's old value
        counts[3] = layout(name, "index").registers
    operands = []
    for count, base in zip(counts, (0, 32, 48, 64), strict=True):
        operands.append(f"v[{base}:{base + count - 1}]" if count > 1 else f"v{base}")
    if MATRIX_INSTRUCTIONS[name].has_scales:
        operands += ["v100", "v101"]
    code = {None: "", "fp8": "", "bf8": " cbsz:1 blgp:1", "fp6": " cbsz:2 blgp:2", "bf6": " cbsz:3 blgp:3"}
    return f"{name} {', '.join(operands)}{code.get(source, ' cbsz:4 blgp:4')}"


def test_assembler_knows_every_name_and_register_count(assemble_lines):
    lines = []
    for name, instruction in MATRIX_INSTRUCTIONS.items():
        lines += [_assembly(name, f) for f in (layouts.FORMAT_BITS if instruction.has_formats else [None])]
    assert all(assemble_lines(lines))


SPARSE_PLACES = [
    # mnemonic, operand, element, lane, item: the 16-bit shape by fpsan's tables, the 8-bit one by shipped kernels
    ("v_smfmac_f32_16x16x64_f16", "A", (3, 21), 16 * 2 + 3, 5),
    ("v_smfmac_f32_16x16x64_f16", "B", (45, 7), 16 * 1 + 7, 8 + 5),
    ("v_smfmac_f32_16x16x64_f16", "index", (3, 21), 16 * 2 + 3, 5),
    ("v_smfmac_f32_16x16x32_bf16", "B", (13, 2), 16 * 1 + 2, 5),
    ("v_smfmac_f32_16x16x128_fp8_bf8", "A", (9, 40), 16 * 2 + 9, 8),
    ("v_smfmac_f32_16x16x128_fp8_bf8", "B", (90, 4), 16 * 1 + 4, 16 + 10),
    ("v_smfmac_i32_32x32x32_i8", "B", (17, 30), 32 * 1 + 30, 1),
    ("v_smfmac_i32_32x32x64_i8", "B", (17, 30), 32 * 1 + 30, 1),
    ("v_smfmac_i32_32x32x64_i8", "B", (33, 30), 30, 16 + 1),
]


@pytest.mark.parametrize(("name", "operand", "element", "lane", "item"), SPARSE_PLACES)
def test_sparse_operands(name, operand, element, lane, item):
    assert item_of(layout(name, operand), *element) == (lane, item)


def test_the_sets_of_a_sparse_index():
    sets = {n: i.index_sets for n, i in MATRIX_INSTRUCTIONS.items() if i.sparse and n.endswith(("_f16", "_i8"))}
    assert list(sets.values()) == [4, 4, 2, 2, 2, 2, 1, 1]
    assert describe_element("v_smfmac_f32_16x16x32_f16", "index[5][2]", op_sel=3)["text"].endswith("v0 bits 29:28")
    assert describe_place("v_smfmac_f32_16x16x64_f16", "index v0 lane 17 [17:16]", op_sel=1)["text"].endswith(
        "index[1][8]"
    )
    with pytest.raises(ValueError, match=r"op_sel 1: the index of v_smfmac_i32_16x16x128_i8 has 1 set\(s\)"):
        layout("v_smfmac_i32_16x16x128_i8", "index", op_sel=1)
    with pytest.raises(ValueError, match=r"has no operand 'index'; .* index where sparse"):
        layout("v_mfma_f32_16x16x16_f16", "index")


ONE = {"fp8": 0x38, "bf8": 0x3C, "fp6": 0x08, "bf6": 0x0C, "fp4": 0x2, "f16": 0x3C00, "bf16": 0x3F80}
NUMERIC = [
    ("mfma_f8f6f4_16x16x128", SCALED_16, ("fp8", "fp4")),
    ("mfma_f8f6f4_16x16x128", SCALED_16, ("bf6", "bf8")),
    ("mfma_f8f6f4_16x16x128", SCALED_16, ("fp4", "fp6")),
    ("mfma_f8f6f4_32x32x64", SCALED_32, ("fp4", "fp8")),
    ("mfma_f8f6f4_32x32x64", SCALED_32, ("bf8", "fp6")),
    ("mfma_f8f6f4_32x32x64", SCALED_32, ("bf6", "fp4")),
    ("mfma_16x16x32_f8", "v_mfma_f32_16x16x32_fp8_bf8", ("fp8", "bf8")),
    ("mfma_32x32x16_f8", "v_mfma_f32_32x32x16_bf8_fp8", ("bf8", "fp8")),
    ("mfma_16x16x32_f16", "v_mfma_f32_16x16x32_f16", ("f16", "f16")),
    ("mfma_32x32x16_f16", "v_mfma_f32_32x32x16_bf16", ("bf16", "bf16")),
    ("mfma_16x16x16_f16", "v_mfma_f32_16x16x16_bf16", ("bf16", "bf16")),
    ("mfma_32x32x8_f16", "v_mfma_f32_32x32x8_f16", ("f16", "f16")),
]


def put(registers, place, value):
    """Writes the bits of `value` at a place of a (registers, 64) array that is zero there."""
    for piece in place.pieces:
        width = piece.high_bit - piece.low_bit + 1
        registers[piece.register, place.lane] |= np.uint32((value & ((1 << width) - 1)) << piece.low_bit)
        value >>= width


def scale_register(mnemonic, operand, line, k_block, byte, value):
    """Scale 2^-63 for everything but one line and k block, which get `value`; 1.0 in the bytes not selected."""
    found = layout(mnemonic, operand, op_sel=byte)
    register = np.full((1, 64), 0x7F7F7F7F, np.uint32) & ~np.uint32(0xFF << 8 * byte)
    for element in found.elements():
        put(register, found.locate(*element), value if element[:2] == (line, k_block) else 64)
    return register[0]


@pytest.mark.parametrize(("native", "mnemonic", "formats"), NUMERIC)
def test_one_hot_runs_land_where_the_layout_says(native, mnemonic, formats):
    """A[m][k] = 1 and B[j][n] = 1 alone: D[m][n] is 1 where k = j (times the scales of k's block), else all is zero."""
    scaled = MATRIX_INSTRUCTIONS[mnemonic].has_scales
    given = dict(zip(("a_format", "b_format"), formats, strict=True)) if scaled else {}
    a, b, d = (layout(mnemonic, operand, **given) for operand in "ABD")
    size = mfma.SHAPES[native].operand_registers
    generator = np.random.default_rng(7)
    inputs, wanted = np.zeros((400, NATIVES[native].n_in, 64), np.uint32), np.zeros((400, d.registers, 64), np.uint32)
    for registers, result in zip(inputs, wanted, strict=True):
        m, n, k = (int(generator.integers(size)) for size in (a.rows, b.cols, a.cols))
        j = k if generator.random() < 0.8 else int(generator.integers(a.cols))
        put(registers[:size], a.locate(m, k), ONE[formats[0]])
        put(registers[size : 2 * size], b.locate(j, n), ONE[formats[1]])
        if scaled:
            registers[-2] = scale_register(mnemonic, "scaleA", m, k // 32, 2, 127 + 3)
            registers[-1] = scale_register(mnemonic, "scaleB", n, k // 32, 1, 127 + 5)
        if j == k:
            put(result, d.locate(m, n), (127 + 8 * scaled) << 23)
    codes = [mfma.Format[name] for name in formats]
    parameters = mfma.pack_parameters(*codes, scaled=scaled, scale_byte_a=2, scale_byte_b=1)
    assert np.array_equal(NATIVES[native](inputs, parameters), wanted)


def test_import_stays_light():
    program = "import sys, gfx950.layouts; sys.exit(any(m in sys.modules for m in ('numba', 'numpy', 'llvmlite')))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(("row", "col"), [(1.0, 0), (0, "a"), (None, 0)])
def test_indices_are_whole_numbers(row, col):
    with pytest.raises(
        TypeError, match=r"(row 1\.0 is a float|column 'a' is a str|row None is a NoneType); D of .*0\.\.15"
    ):
        layout("v_mfma_f32_16x16x32_bf16", "D").locate(row, col)
