"""P13: what its kernels give is what the manual's words say, lane by lane, and says which lane or bit came where."""

import re
from functools import cache

import numpy as np
import pytest

from codegen.kernels.probes import lanes, lds
from codegen.kernels.probes.lane_forms import EXEC_PATTERNS, Form, forms_kernel, forms_step, lane_ids, under_patterns
from codegen.kernels.probes.probe import SIZES, probes
from codegen.kernels.probes.run import Runner
from emu.dispatch import RunOptions

QUICK = SIZES["quick"]
STEPS = {step.name: step for step in lanes.steps(QUICK)}
PATTERNS = list(EXEC_PATTERNS.values())


@cache
def outputs():
    """Every output of P13, run once."""
    return {step.name: output for step, _, output in Runner(RunOptions()).outputs(list(STEPS.values()))}


def active(pattern, lane):
    return bool(pattern >> lane & 1)


def rows_of(step):
    """Items of a step: EXEC as a number, and the other rows."""
    for item in STEPS[step].inputs[0]:
        yield sum(int(bit) << lane for lane, bit in enumerate(item[0])), [[int(n) for n in row] for row in item[1:]]


def check(step, predict):
    """Every item against predict(EXEC, rows, form number), the registers of one form."""
    output = outputs()[step]
    for item, (pattern, rows) in enumerate(rows_of(step)):
        expected = predict(pattern, rows)
        np.testing.assert_array_equal(output[item], np.array(expected, np.uint32), err_msg=f"{step} {pattern:#x}")


# ---- DPP -------------------------------------------------------------------------------------------------------------


def dpp_source(control, lane):
    """The manual's table in words, by the names of an assembler; None where there is no lane."""
    name, _, argument = control.partition(":")
    row, place = lane // 16, lane % 16
    if name == "quad_perm":
        return lane // 4 * 4 + int(argument[1:-1].split(",")[lane % 4])
    if name in ("row_mirror", "row_half_mirror"):
        width = 16 if name == "row_mirror" else 8
        return lane // width * width + width - 1 - lane % width
    count = int(argument)
    moved = {
        "row_shl": place + count,
        "row_shr": place - count,
        "row_ror": (place - count) % 16,
        "row_newbcast": count,
    }
    if name in moved:
        return 16 * row + moved[name] if 0 <= moved[name] < 16 else None
    if name == "row_bcast":
        return None if row == 0 or (count == 31 and row < 2) else (16 * row - 1 if count == 15 else 31)
    whole = {"wave_shl": lane + 1, "wave_shr": lane - 1, "wave_rol": (lane + 1) % 64, "wave_ror": (lane - 1) % 64}[name]
    return whole if 0 <= whole < 64 else None


def dpp_words(extra):
    control, rows, banks, *bound = extra.split()
    masks = [int(word.partition(":")[2], 0) for word in (rows, banks)]
    return control, *masks, bool(bound)


def dpp_result(extra, pattern, source, old, operate):
    control, rows, banks, bound = dpp_words(extra)
    result = list(old)
    for lane in range(64):
        if not (active(pattern, lane) and rows >> lane // 16 & 1 and banks >> lane % 16 // 4 & 1):
            continue
        there = dpp_source(control, lane)
        if there is not None and active(pattern, there):
            result[lane] = operate(source[there], lane)
        elif bound:
            result[lane] = operate(0, lane)
    return result


def forms_of(step):
    """The DPP words of a step's forms, in order."""
    name = step.partition("P13/dpp/")[2]
    if name == "masks":
        return [f.extra for f in lanes._dpp_forms("v_mov_b32", lanes.MASKED_CONTROLS, lanes.SOME_ROWS)]
    if name == "v_add_u32":
        return [f.extra for f in lanes._dpp_forms(name, lanes.MASKED_CONTROLS, [lanes.ALL_ROWS, lanes.SOME_ROWS[4]])]
    if name == "v_mov_b64":
        return [f.extra for f in lanes._dpp_forms(name, lanes.CONTROLS["newbcast"][::5], [lanes.ALL_ROWS])]
    return [f.extra for f in lanes._dpp_forms("v_mov_b32", lanes.CONTROLS[name], [lanes.ALL_ROWS])]


@pytest.mark.parametrize("name", [*lanes.CONTROLS, "masks"])
def test_dpp_moves(name):
    forms = forms_of(f"P13/dpp/{name}")
    check(
        f"P13/dpp/{name}",
        lambda pattern, rows: [dpp_result(extra, pattern, *rows, lambda word, _: word) for extra in forms],
    )


def test_dpp_on_an_instruction_of_two_operands():
    def predict(pattern, rows):
        first, second, old = rows
        return [
            dpp_result(extra, pattern, first, old, lambda word, lane: word + second[lane])
            for extra in forms_of("P13/dpp/v_add_u32")
        ]

    check("P13/dpp/v_add_u32", predict)


def test_dpp_on_pairs():
    def predict(pattern, rows):
        return [
            dpp_result(extra, pattern, rows[half], rows[2 + half], lambda word, _: word)
            for extra in forms_of("P13/dpp/v_mov_b64")
            for half in (0, 1)
        ]

    check("P13/dpp/v_mov_b64", predict)


def test_every_control_that_gfx9_names_is_asked():
    asked = {dpp_words(extra)[0] for name in lanes.CONTROLS for extra in forms_of(f"P13/dpp/{name}")}
    for kind in ("row_shl", "row_shr", "row_ror"):
        assert {f"{kind}:{n}" for n in range(1, 16)} <= asked
    assert {f"row_newbcast:{n}" for n in range(16)} <= asked
    others = {"wave_shl:1", "wave_rol:1", "wave_shr:1", "wave_ror:1", "row_mirror", "row_half_mirror"}
    assert others | {"row_bcast:15", "row_bcast:31"} <= asked
    assert sum(control.startswith("quad_perm") for control in asked) >= 6


# ---- swaps, pulls and pushes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [16, 32])
def test_row_swaps(rows):
    def predict(pattern, given):
        first, second = given
        a, b = list(first), list(second)
        for lane in range(64):
            if lane & rows and active(pattern, lane):
                a[lane] = second[lane - rows]
            if not lane & rows and active(pattern, lane):
                b[lane] = first[lane + rows]
        return [a, b] * 4

    check(f"P13/v_permlane{rows}_swap_b32", predict)


def test_swap():
    def predict(pattern, rows):
        return [[rows[n ^ active(pattern, lane)][lane] for lane in range(64)] for n in (0, 1)]

    check("P13/v_swap_b32", predict)


OFFSETS = (0, 12, 0xFFFF)


def test_pulls():
    def predict(pattern, rows):
        address, data, old = rows
        found = []
        for offset in OFFSETS:
            sources = [(n + offset) // 4 % 64 for n in address]
            pulled = [data[s] if active(pattern, s) else 0 for s in sources]
            found.append([pulled[n] if active(pattern, n) else old[n] for n in range(64)])
        return found

    check("P13/ds_bpermute_b32", predict)


def test_pushes():
    def predict(pattern, rows):
        address, data, old = rows
        found = []
        for offset in OFFSETS:
            pushed = [0] * 64
            for lane in range(64):  # the highest comes last
                if active(pattern, lane):
                    pushed[(address[lane] + offset) // 4 % 64] = data[lane]
            found.append([pushed[n] if active(pattern, n) else old[n] for n in range(64)])
        return found

    check("P13/ds_permute_b32", predict)


def test_pushes_meet_duplicates_and_inactive_targets():
    targets = STEPS["P13/ds_permute_b32"].inputs[0][:, 1] // 4 % 64
    assert {len(set(row)) for row in targets} >= {1, 5, 64}


def swizzle_source(offset, lane):
    """As the manual writes them, in bits of text where it does."""
    half, low = lane & 32, lane & 31
    if offset < 0x8000:
        return ((low & offset) | (offset >> 5 & 31)) ^ (offset >> 10 & 31) | half
    if offset < 0xC000:
        return lane // 4 * 4 + int(f"{offset & 0xFF:08b}"[6 - 2 * (lane % 4) :][:2], 2)
    mask, count = offset & 31, offset >> 5 & 31
    if offset < 0xE000:
        turned = low + (-count if offset & 0x400 else count)
        return low & mask | turned & ~mask & 31 | half  # lanes that share the masked bits change places
    reverse = int(f"{low:05b}"[::-1], 2)
    return (reverse >> bin(mask).count("1")) | low & mask | half


@pytest.mark.parametrize("name", lanes.SWIZZLES)
def test_swizzles(name):
    def predict(pattern, rows):
        source, old = rows
        found = []
        for offset in lanes.SWIZZLES[name]:
            there = [swizzle_source(offset, lane) for lane in range(64)]
            moved = [source[s] if active(pattern, s) else 0 for s in there]
            found.append([moved[n] if active(pattern, n) else old[n] for n in range(64)])
        return found

    check(f"P13/ds_swizzle_b32/{name}", predict)


def test_the_manuals_transforms():
    """FFT with mask 31 leaves lanes, with mask 0 reverses the bits of their numbers; rotates by 0 leave lanes."""
    full = next(i for i, (pattern, _) in enumerate(rows_of("P13/ds_swizzle_b32/fft")) if pattern == PATTERNS[0])
    output = outputs()["P13/ds_swizzle_b32/fft"][full] - lanes.SOURCE
    offsets = lanes.SWIZZLES["fft"]
    np.testing.assert_array_equal(output[offsets.index(0xE01F)], np.arange(64))
    assert [int(n) for n in output[offsets.index(0xE000)][:8]] == [0, 16, 8, 24, 4, 20, 12, 28]


def test_scalars():
    def read(pattern, rows):
        source, lane = rows
        return [[source[lane[0] & 63]] * 64]

    check("P13/v_readlane_b32", read)
    first = [(p & -p).bit_length() - 1 if p else 0 for p in PATTERNS]
    np.testing.assert_array_equal(outputs()["P13/v_readfirstlane_b32"][:, 0, 0], np.array(first) + lanes.SOURCE)


def test_writes_of_a_lane_heed_no_exec():
    names = [register.name for register in Form("v_writelane_b32").plan.sources]

    def predict(pattern, rows):
        given = dict(zip(names, rows, strict=True))
        result = list(given["vdst"])
        result[given["src1"][0] & 63] = given["src0"][0]
        return [result]

    check("P13/v_writelane_b32", predict)


# ---- transposing reads -----------------------------------------------------------------------------------------------


def bits_read(mnemonic, item):
    """Number of the bit of LDS that each bit of each lane's results came from: (64, bits)."""
    output = outputs()[f"P13/{mnemonic}"].reshape(-1, lds.PLANES, *outputs()[f"P13/{mnemonic}"].shape[1:])[item]
    words = np.ascontiguousarray(output.transpose(0, 2, 1))  # planes, lanes, registers
    bits = np.unpackbits(words.view(np.uint8), axis=2, bitorder="little").astype(np.int64)
    return (bits << np.arange(lds.PLANES)[:, None, None]).sum(0)


WIDTHS = {"ds_read_b64_tr_b4": 4, "ds_read_b96_tr_b6": 6, "ds_read_b64_tr_b8": 8, "ds_read_b64_tr_b16": 16}


def transposed_bits(mnemonic, addresses):
    """In each 16 lanes the elements that were loaded are one array; element r of lane c is number 16 r + c of it."""
    width, nbytes = WIDTHS[mnemonic], lds.TRANSPOSES[mnemonic]
    a_lane = 8 * nbytes // width
    expected = np.zeros((64, 8 * nbytes), np.int64)
    for lane in range(64):
        for r in range(a_lane):
            source, element = divmod(16 * r + lane % 16, a_lane)
            begin = 8 * addresses[lane // 16 * 16 + source] + width * element
            expected[lane, width * r : width * (r + 1)] = begin + np.arange(width)
    return expected


@pytest.mark.parametrize("mnemonic", WIDTHS)
def test_transposing_reads_say_which_bit_came_where(mnemonic):
    registers = STEPS[f"P13/{mnemonic}"].inputs[0][:: lds.PLANES]
    whole = [i for i, item in enumerate(registers) if item[0].all()]
    assert len(whole) == (5 if mnemonic.startswith("ds_read_b96") else 4)
    for item in whole:
        addresses = [int(n) for n in registers[item, 1]]
        np.testing.assert_array_equal(bits_read(mnemonic, item), transposed_bits(mnemonic, addresses))


def test_bit_planes_number_every_bit():
    planes = lds.bit_planes(1024, lds.PLANES)
    bits = np.unpackbits(planes.view(np.uint8), axis=1, bitorder="little").astype(np.int64)
    np.testing.assert_array_equal((bits << np.arange(lds.PLANES)[:, None]).sum(0), np.arange(8192))


def test_lanes_that_do_not_read_keep_their_registers():
    for mnemonic in WIDTHS:
        step, output = STEPS[f"P13/{mnemonic}"], outputs()[f"P13/{mnemonic}"]
        registers = step.inputs[0]
        olds, off = registers[:, 2:], registers[:, :1] == 0
        assert off.any()
        assert (output == olds)[np.broadcast_to(off, output.shape)].all()


# ---- the steps -------------------------------------------------------------------------------------------------------


def test_all_patterns_are_asked():
    for name, step in STEPS.items():
        asked = {pattern for pattern, _ in rows_of(name)}
        assert asked == set(PATTERNS), name
        assert step.exact


def test_names_are_unique_and_stable():
    names = [step.name for step in lanes.steps(QUICK)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"P13/[\w/]+", name) for name in names)
    assert [step.inputs_digest for step in lanes.steps(SIZES["full"])] == [s.inputs_digest for s in STEPS.values()]
    assert "P13" in probes()


def test_both_engines_agree():
    names = ["P13/dpp/wave", "P13/v_permlane16_swap_b32", "P13/ds_swizzle_b32/bits", "P13/v_writelane_b32"]
    for step, _, output in Runner(RunOptions(engine="numpy")).outputs([STEPS[name] for name in names]):
        np.testing.assert_array_equal(output, outputs()[step.name])


def test_forms_of_other_rows_and_shapes_are_refused():
    forms = (Form("v_mov_b32", (), "row_mirror"), Form("v_add_u32", (), "row_mirror"))
    with pytest.raises(ValueError, match=r"its forms take \[3, 4\] rows; one launch has one number"):
        forms_kernel("mixed", forms)
    rows = under_patterns([lane_ids(0), lane_ids(1)])
    with pytest.raises(ValueError, match=r"T/x takes uint32 of \(items, 3, 64\), got \(8, 2, 64\)"):
        forms_step("T/x", forms[:1], rows[:, 1:])
    with pytest.raises(ValueError, match=r"T/x fills LDS with uint32 of \(8, n \* 64\), got \(8, 63\)"):
        forms_step("T/x", forms[:1], rows, np.zeros((8, 63), np.uint32))
