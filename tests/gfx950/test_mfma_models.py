"""Matrix arithmetic under every model, against its telling in rational numbers (matrix_oracle): every field of every
class with every answer, and every question; models by name; natives that stand for others under a model."""

import ctypes
import functools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matrix_oracle import BITS, CLASSES, Tile, decoded, dot

from gfx950.arithmetic.mfma import (
    CDNA3,
    DEFAULT,
    EXACT,
    FMA_CHAIN,
    Format,
    MfmaModel,
    Operand,
    evaluate,
    mfma_class,
    multiply,
    pack_parameters,
)
from gfx950.arithmetic.mfma_evidence import rules_of
from gfx950.arithmetic.mfma_shapes import SHAPES, kind_of
from gfx950.arithmetic.mfma_switches import CLASS_SWITCHES, DEFAULT_RULES, FIELDS, answer_of
from gfx950.arithmetic.native import NATIVES, native_in_force
from gfx950.evidence import Evidence
from gfx950.models import DEFAULT as GFX950
from gfx950.models import find_model, load_switches, make_model, rule_in_force, using

SWITCHES = {name: switch for name, switch in load_switches().items() if name.startswith("mfma.")}
FORMATS = {
    "half": (Format.f16, Format.bf16),
    "half_deep": (Format.bf16, Format.f16),
    "byte": (Format.fp8, Format.bf8),
    "byte_deep": (Format.bf8, Format.fp8),
    "small": (Format.fp6, Format.bf6, Format.fp4),
}
NAN_CODES = {Format.fp8: [0x7F, 0xFF], Format.bf8: [0x7D, 0xFE], Format.f16: [0x7C01, 0xFE12]}
NAN_CODES |= {Format.bf16: [0x7F81, 0xFFC3]}
INF_CODES = {Format.bf8: [0x7C, 0xFC], Format.f16: [0x7C00, 0xFC00], Format.bf16: [0x7F80, 0xFF80]}


def answers_of(values):
    """All matrix answers of a model."""
    return {name: values.get(name, switch.default) for name, switch in SWITCHES.items()}


# ---- Products of codes that meet every step ----


@functools.cache
def codes_by_exponent(format_):
    """Nonzero finite codes by the exponent of their binade."""
    found = {}
    for code in range(1 << BITS[format_]):
        number = decoded(code, format_, False)
        if number.kind == "finite" and number.value:
            found.setdefault(number.exponent, []).append(code)
    return found


def operand_codes(random, format_, size, spread, specials):
    """Codes around one binade, at most `spread` binades apart; some zeros; with specials, Inf and NaN."""
    table = codes_by_exponent(format_)
    exponents = sorted(table)
    middle = int(random.integers(len(exponents))) if random.random() < 0.3 else len(exponents) // 2
    low, high = max(middle - spread, 0), min(middle + spread, len(exponents) - 1)
    chosen, picks = random.integers(low, high + 1, size), random.integers(0, 1 << 30, size)
    codes = np.zeros(size, np.uint16)
    for n in range(low, high + 1):
        there = np.array(table[exponents[n]], np.uint16)
        codes = np.where(chosen == n, there[picks % len(there)], codes)
    codes[random.random(size) < 0.1] = 0
    codes[random.random(size) < 0.05] = 1 << BITS[format_] - 1
    if specials:
        for row in codes:
            for _ in range(int(random.integers(3))):
                choice = [*NAN_CODES.get(format_, []), *INF_CODES.get(format_, []), 0]
                row[int(random.integers(len(row)))] = choice[int(random.integers(len(choice)))]
    return codes


def c_bits(random, size, near):
    """C: zeros, subnormals, Inf, NaN, anything, and mostly numbers within 45 binades of an exponent."""
    field = np.clip(127 + near + random.integers(-45, 20, size), 0, 254).astype(np.uint32)
    bits = field << np.uint32(23) | random.integers(0, 1 << 23, size, dtype=np.uint32)
    kind = random.random(size)
    bits = np.where(kind < 0.15, 0, bits)
    bits = np.where((kind >= 0.15) & (kind < 0.2), bits & 0x7FFFFF, bits)
    bits = np.where((kind >= 0.2) & (kind < 0.22), 0x7F800000, bits)
    bits = np.where((kind >= 0.22) & (kind < 0.25), random.integers(0x7F800001, 1 << 31, size), bits)
    return (bits | random.integers(0, 2, size).astype(np.int64) << 31).astype(np.uint32)


def matrices(random, class_, depth, rows=3, specials=False, formats=None, scaled=None):
    """A, B, C that cancel, differ by many binades and meet C. scaled: around which E8M0 byte the scales of A and of B
    are, if they have any."""
    formats = formats or [FORMATS[class_][int(random.integers(len(FORMATS[class_])))]] * 2
    spread = int(random.integers(1, 24))
    a, b = (operand_codes(random, f, (rows, depth), spread, specials) for f in formats)
    if random.random() < 0.5:  # products that cancel
        b[:, depth // 2 :], a[:, depth // 2 :] = b[:, : depth // 2], a[:, : depth // 2] ^ (1 << BITS[formats[0]] - 1)
        if random.random() < 0.5:  # but for one
            a[:, -1] = operand_codes(random, formats[0], (rows,), spread, False)
    sample = [decoded(int(x), f, False) for x, f in zip((a[0, 0], b[0, 0]), formats, strict=True)]
    near = sum(x.exponent for x in sample if x.kind == "finite")
    scales = [None, None]
    if scaled is not None and depth % 32 == 0:
        scales = [(scaled + random.integers(-14, 14, (rows, depth // 32))).astype(np.uint8) for _ in range(2)]
        near += int(scales[0][0, 0]) + int(scales[1][0, 0]) - 254
    c = c_bits(random, (rows, rows), near)
    return Operand(a, formats[0], scales[0]), Operand(b, formats[1], scales[1]), c


@functools.cache
def many_matrices(class_, *options):
    options = {name: [Format.bf16] * 2 if name == "formats" else value for name, value in options}
    made = [matrices(np.random.default_rng(seed), class_, 128, rows=12, **options) for seed in range(60)]
    format_ = made[0][0].format
    minus_zeros = np.full((2, 128), 1 << BITS[format_] - 1, np.uint16)  # A; of B +0
    small = np.array([[1 << 31, 1], [0x80000001, 0x7FFFFF]], np.uint32)  # C: -0 and subnormals
    return [*made, (Operand(minus_zeros, format_), Operand(minus_zeros * 0, format_), small)]


def told(a, b, c, answers, class_, clamp=False):
    """The oracle's D."""
    scales = [[None] * len(x.codes) if x.scales is None else x.scales.tolist() for x in (a, b)]
    d = np.empty(c.shape, np.uint32)
    for i, j in np.ndindex(c.shape):
        pair = None if a.scales is None else (scales[0][i], scales[1][j])
        formats = (a.format, b.format)
        args = (a.codes[i], b.codes[j], formats, int(c[i, j]), answers, class_)
        d[i, j] = dot(*args, scales=pair, clamp=clamp)
    return d


def check(values, class_, seed):
    random = np.random.default_rng(seed)
    answers = answers_of(values)
    depth = max(answers[f"mfma.{class_}.length"], int(random.choice([8, 32])))
    options = {"scaled": (127, 127, 190, 60)[int(random.integers(4))]} if class_ in SCALED else {}
    a, b, c = matrices(random, class_, depth, specials=bool(random.random() < 0.3), **options)
    clamp = bool(random.integers(2))
    model = MfmaModel.of(make_model("test", values))
    d = multiply(a, b, c, model, clamp=clamp, class_=class_)
    np.testing.assert_array_equal(d, told(a, b, c, answers, class_, clamp), err_msg=f"{values} seed {seed}")
    return d


SCALED = ("byte_deep", "small")  # the classes of F8F6F4
# What must be so for a field to be seen: other answers of its class.
SEEN_WITH = {
    "split_direction": {"split": "even_odd"},
    "product_overflow": {},
    "sum_direction": {"sum_bits": 23},
    "sum_bits": {"dot_bits": 40, "product_bits": 36},
    "dot_bits": {"product_bits": 36},
    "dot_direction": {"product_bits": 36, "dot_bits": 22},
    "c_direction": {"c_window": "none"},
    "c_window": {"length": 128, "c_bits": 40, "dot_bits": 40, "sum_bits": 40},
    "output_direction": {},
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("class_", CLASSES)
def test_every_answer_to_a_field_of_a_class(class_, field):
    name = f"mfma.{class_}.{field}"
    for number, answer in enumerate(SWITCHES[name].answers):
        if len(SWITCHES[name].answers) > 8 and (number + CLASSES.index(class_)) % 3:
            continue  # a third of the numbers a class; all at length
        others = {f"mfma.{class_}.{other}": value for other, value in SEEN_WITH.get(field, {}).items()}
        for seed in range(2):
            check(others | {name: answer}, class_, 100 * number + seed)


@pytest.mark.slow
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("class_", CLASSES)
def test_every_answer_to_a_field_of_a_class_at_length(class_, field):
    name = f"mfma.{class_}.{field}"
    for answer in SWITCHES[name].answers:
        others = {f"mfma.{class_}.{other}": value for other, value in SEEN_WITH.get(field, {}).items()}
        for seed in range(1000, 1030):
            check(others | {name: answer}, class_, seed)


def random_values(draw, *, classes=CLASSES):
    """Answers to about half of the switches."""
    names = [n for n in SWITCHES if n.split(".")[1] in classes or n.split(".")[1] not in CLASSES]
    chosen = draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names)))
    return {name: draw(st.sampled_from(SWITCHES[name].answers)) for name in chosen}


@st.composite
def models(draw, classes=CLASSES):
    return random_values(draw, classes=classes)


@settings(max_examples=60, deadline=None)
@given(values=models(), class_=st.sampled_from(CLASSES), seed=st.integers(0, 2**32 - 1))
def test_any_mix_of_answers(values, class_, seed):
    check(values, class_, seed)


@settings(max_examples=40, deadline=None)
@given(
    values=models(("byte_deep", "small")),
    formats=st.tuples(*[st.sampled_from([Format(n) for n in range(5)])] * 2),
    entry=st.sampled_from(["product_exponent", "block_sum"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_scales_enter_where_the_model_says(values, formats, entry, seed):
    random = np.random.default_rng(seed)
    values = values | {"mfma.scale_entry": entry}
    class_ = mfma_class("mfma_f8f6f4_16x16x128", *formats, MfmaModel.of(make_model("test", values)))
    a, b, c = matrices(random, class_, 128, rows=2, specials=seed % 4 == 0, formats=formats)
    near = int(random.choice([127, 127, 60, 10, 200, 245]))
    scales = [np.clip(random.integers(near - 12, near + 12, (2, 4)), 0, 255).astype(np.uint8) for _ in range(2)]
    if seed % 8 == 0:
        scales[0][0, 1] = 255
    a, b = (Operand(x.codes, x.format, s) for x, s in zip((a, b), scales, strict=True))
    d = multiply(a, b, c, MfmaModel.of(make_model("test", values)), class_=class_)
    np.testing.assert_array_equal(d, told(a, b, c, answers_of(values), class_))


@pytest.mark.parametrize("class_", CLASSES)
@pytest.mark.parametrize("field", FIELDS)
def test_every_answer_makes_a_difference(class_, field):
    """Each answer gives another D than every other one somewhere; so that the tests above can fail."""
    name, found = f"mfma.{class_}.{field}", {}
    others = {f"mfma.{class_}.{other}": value for other, value in SEEN_WITH.get(field, {}).items()}
    if class_ == "small":  # whose products within a block of 32 are all of a size
        others = {"mfma.small.length": 128} | others
    options = {"scaled": {"product_overflow": 190, "subnormal_d": 60, "subnormal_c": 60}.get(field, 127)}
    if class_ not in SCALED and (class_ != "byte" or options["scaled"] == 127):
        options = {"formats": "bf16"} if field == "product_overflow" else {}
    for answer in SWITCHES[name].answers:
        model = MfmaModel.of(make_model("test", others | {name: answer}))
        made = [multiply(*abc, model, class_=class_).tobytes() for abc in many_matrices(class_, *options.items())]
        found[answer] = b"".join(made)
    # Random products seldom tell numbers apart that lie far below the 24 bits of a result.
    compared = [answer for answer in found if isinstance(answer, str) or answer <= 30 or field == "length"]
    assert not [(x, y) for x in compared for y in compared if x is not y and found[x] == found[y]]


# ---- Instructions ----


def formats_for(random, name):
    kind = kind_of(name)
    if kind == "f16":
        return [(Format.f16, Format.bf16)[int(random.integers(2))]] * 2
    if kind in ("f8", "f8f6f4"):
        return [Format(int(n)) for n in random.integers(0, 5 if kind == "f8f6f4" else 2, 2)]
    return [Format.fp8] * 2


def registers_for(random, name, mode):
    """Registers of a native; mode 0: any bits; else no specials among A and B of floats, and C near the products."""
    shape, native, kind = SHAPES[name], NATIVES[name], kind_of(name)
    inputs = random.integers(0, 2**32, (native.n_in, 64), dtype=np.uint32)
    ab = slice(0, shape.operand_registers + shape.b_shape.operand_registers)
    c = slice(ab.stop, ab.stop + shape.c_registers)
    if mode:
        inputs[ab] &= np.uint32({"f16": 0xBFFFBFFF, "f8": 0xBFBFBFBF, "f8f6f4": 0xBFBFBFBF}.get(kind, 0xFFFFFFFF))
        inputs[ab][random.random(inputs[ab].shape) < 0.2] = 0
    if mode == 2 and kind in ("f32", "f64"):  # near each other, so that they round and cancel
        inputs[: c.stop] = inputs[: c.stop] & 0x81FFFFFF | 0x3E000000
        if kind == "f64":
            inputs[: c.stop] = inputs[: c.stop] & 0x801FFFFF | 0x3FE00000
    elif mode == 2 and kind != "i8":
        inputs[c] = inputs[c] & 0x807FFFFF | random.integers(100, 150, inputs[c].shape, dtype=np.uint32) << 23
    if mode == 1 and kind == "i8":
        inputs[c] = np.uint32(0x7FFFFF00) + inputs[c] % np.uint32(512)
    if shape.blocks and mode:
        inputs[-2:] = inputs[-2:] & 0x0F0F0F0F | 0x70707070
    return inputs


def parameters_for(random, name, formats):
    shape = SHAPES[name]
    options = {"clamp": bool(random.integers(2)), "flush": bool(random.integers(2)), "negate": int(random.integers(8))}
    if shape.blocks:
        options |= {"scaled": bool(random.integers(2)), "scale_byte_a": 1, "scale_byte_b": 2}
    if shape.sparse:
        options["index_shift"] = int(random.choice(range(0, 32, 2 * shape.lane_items)))
    return pack_parameters(*formats, **options)


def d_code(name, outputs, row, column, block):
    """The bits of an element of D."""
    where = Tile(name, None, 0).where_d()
    place, bits = where.locate(row, column, block), 0
    for number, piece in enumerate(place.pieces):
        bits |= int(outputs[piece.register, place.lane]) << 32 * number
    return bits


def check_native(name, values, seed, elements=4):
    random = np.random.default_rng(seed)
    inputs = registers_for(random, name, seed % 3)
    parameters = parameters_for(random, name, formats_for(random, name))
    model, shape = make_model("test", values), SHAPES[name]
    with using(model):
        outputs = native_in_force(name)(inputs, parameters)
    np.testing.assert_array_equal(outputs, evaluate(name, inputs, parameters, MfmaModel.of(model)))
    tile = Tile(name, inputs, parameters)
    for _ in range(elements):
        at = int(random.integers(shape.rows)), int(random.integers(shape.rows)), int(random.integers(shape.copies))
        want = tile.element(answers_of(values), *at)
        assert hex(d_code(name, outputs, *at)) == hex(want), f"{name} {values} seed {seed} at {at}"


ORDERS = [
    {"mfma.group_order": order, "mfma.sparse_order": sparse, "mfma.scale_entry": entry, "mfma.mixed_formats": mixed}
    for order in ("logical", "physical")
    for sparse in ("stored", "expanded")
    for entry in ("product_exponent", "block_sum")
    for mixed in ("wider", "narrower")
]


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_under_every_order(name):
    for seed, values in enumerate(ORDERS):
        check_native(name, values, seed, elements=1)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("model", ["cdna3", "fma_chain", "exact"])
def test_every_shape_under_every_named_model(name, model):
    for seed in range(3):
        check_native(name, dict(find_model(model).values), seed, elements=2)


CHAINS = [name for name in SHAPES if kind_of(name) in ("f32", "f64", "i8")]
_OF_CHAINS = [n for n in SWITCHES if n.split(".")[1] in ("f32", "f64", "i8", "nan", "nan_bits")]


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("switch", _OF_CHAINS)
def test_every_answer_about_chains_and_integers(name, switch):
    for answer in SWITCHES[switch].answers:
        others = {"mfma.nan": "c_first"} if switch == "mfma.nan_bits" else {}
        for seed in range(3):
            check_native(name, others | {switch: answer}, seed, elements=2)


@settings(max_examples=80, deadline=None)
@given(values=models(), name=st.sampled_from(list(SHAPES)), seed=st.integers(0, 2**32 - 1))
def test_any_shape_under_any_mix_of_answers(values, name, seed):
    check_native(name, values, seed, elements=2)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(values=models(), name=st.sampled_from(list(SHAPES)), seed=st.integers(0, 2**32 - 1))
def test_any_shape_under_any_mix_of_answers_at_length(values, name, seed):
    check_native(name, values, seed, elements=4)


# ---- Models ----


def test_the_default_is_what_the_switches_say_and_cdna3_is_the_same_spelled_out():
    assert MfmaModel.of(GFX950) == DEFAULT == CDNA3 == MfmaModel.of(find_model("cdna3"))
    assert DEFAULT.answers == answers_of({})
    assert MfmaModel.of(find_model("exact")) == EXACT
    assert MfmaModel.of(find_model("fma_chain")) == FMA_CHAIN
    assert set(CDNA3.answers) == set(SWITCHES)
    for class_, rule in DEFAULT_RULES.items():
        for field, value in rule._asdict().items():
            assert CLASS_SWITCHES[class_][field].default == answer_of(field, value)


@settings(max_examples=50, deadline=None)
@given(values=models())
def test_answers_and_numbers_go_both_ways(values):
    assert MfmaModel.of(make_model("test", values)).answers == answers_of(values)


def test_a_native_stays_itself_where_its_model_says_the_same_of_it():
    fast = NATIVES["mfma_16x16x32_f8"]
    assert fast.under(GFX950) is fast
    assert fast.under(find_model("cdna3")) is fast
    others = {
        "mfma.half.length": 4,
        "mfma.small.c_bits": 30,
        "mfma.group_order": "physical",
        "mfma.i8.overflow": "wrap",
    }
    assert fast.under(make_model("test", others)) is fast
    changed = fast.under(make_model("test", {"mfma.byte.length": 32}))
    assert changed is not fast
    assert changed is fast.under(make_model("other", {"mfma.byte.length": 32, "mfma.half.length": 1}))
    assert changed.under(GFX950) is fast


@pytest.mark.parametrize("name", SHAPES)
def test_each_native_reads_the_switches_of_its_rules_and_no_others(name):
    """Asked of `under`; so that `gfx950 evidence` shows what a model changes of an instruction."""
    rules = {rule.name for rule in rules_of(name)}
    for switch_name, switch in SWITCHES.items():
        other = next(answer for answer in switch.answers if answer != switch.default)
        model = make_model("test", {switch_name: other})
        if NATIVES[name].under(model) is not NATIVES[name]:
            assert {rule.name for rule in switch.rules} <= rules


def test_a_switch_in_force_is_seen_in_the_rule_it_decides():
    rule = SWITCHES["mfma.byte_deep.length"].rules[0]
    assert rule.evidence is Evidence.chosen
    model = make_model("test", {"mfma.byte.length": 32})
    assert "Switched here: mfma.byte.length = 32" in rule_in_force(SWITCHES["mfma.byte.length"].rules[0], model).text
    assert rule_in_force(rule, model) is rule
    assert SWITCHES["mfma.half.length"].rules[0].evidence is Evidence.carried


def test_the_class_of_a_native():
    assert mfma_class("mfma_16x16x16_f16", Format.bf16, Format.bf16) == "half"
    assert mfma_class("smfmac_32x32x32_f16", Format.f16, Format.f16) == "half_deep"
    assert mfma_class("mfma_4x4x4_16b_f16", Format.f16, Format.f16) == "half"
    assert mfma_class("smfmac_16x16x64_f8", Format.fp8, Format.bf8) == "byte"
    assert mfma_class("smfmac_16x16x128_f8", Format.fp8, Format.bf8) == "byte_deep"
    mixed = ("mfma_f8f6f4_32x32x64", Format.fp4, Format.fp8)
    assert mfma_class(*mixed) == "byte_deep"
    assert mfma_class(*mixed, MfmaModel.of(make_model("test", {"mfma.mixed_formats": "narrower"}))) == "small"
    assert mfma_class("mfma_f8f6f4_32x32x64", Format.fp4, Format.bf6) == "small"
    assert mfma_class("mfma_16x16x4_f32", Format.fp8, Format.fp8) is None


def test_the_switches_have_sensible_answers_and_rules():
    for name, switch in SWITCHES.items():
        assert switch.rules, name
        assert not switch.in_bodies
        assert len(switch.answers) >= 2


# ---- Code of a model's own, as translated code calls it ----


@pytest.mark.parametrize(
    "name", ["mfma_f8f6f4_16x16x128", "smfmac_16x16x64_f8", "mfma_4x4x4_4b_f64", "mfma_16x16x64_i8"]
)
def test_the_address_of_a_general_native_gives_what_evaluate_gives(name):
    random, native = np.random.default_rng(3), NATIVES[name]
    values = {"mfma.byte.length": 4, "mfma.byte_deep.length": 64, "mfma.f64.fused": 0, "mfma.i8.overflow": "saturate"}
    model = make_model("test", values | {"mfma.small.split": "halves"})
    general = native.under(model)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(general.address)
    assert general.address not in (0, native.address)
    for mode in range(3):
        inputs, parameters = registers_for(random, name, mode), parameters_for(random, name, [Format.fp8] * 2)
        outputs = np.empty((native.n_out, 64), np.uint32)
        run(inputs.ctypes.data, outputs.ctypes.data, parameters)
        np.testing.assert_array_equal(outputs, evaluate(name, inputs, parameters, MfmaModel.of(model)))


def test_a_general_native_is_made_in_milliseconds():
    """The rule is compiled already; each model adds a block of numbers and a call."""
    models = [make_model("test", {"mfma.byte.product_bits": n, "mfma.byte.c_bits": 40}) for n in range(20, 37)]
    natives = [NATIVES["mfma_16x16x32_f8"].under(model) for model in models]
    assert natives[0].address
    start = time.process_time()
    assert len({native.address for native in natives}) == len(models)
    assert time.process_time() - start < 0.02 * len(models)


# ---- gfx942's own formats ----


def test_xf32_cuts_its_inputs_and_sums_groups_of_four():
    torch, mmasim = pytest.importorskip("torch"), pytest.importorskip("mmasim.amd")
    peer, random = mmasim.MFMA("CDNA3", "f32_16x16x8_xf32"), np.random.default_rng(5)
    for mode in range(4):
        a, b, c = (random.integers(0, 1 << 32, (16, n), dtype=np.uint32) for n in (8, 8, 16))
        if mode:  # near each other
            a, b, c = (x & np.uint32(0x83FFFFFF) | np.uint32(0x3C000000) for x in (a, b, c))
        theirs = peer(
            *(t if n != 1 else t.T for n, t in enumerate(torch.from_numpy(x).view(torch.float32) for x in (a, b, c)))
        )
        theirs = theirs.view(torch.int32).numpy().view(np.uint32)
        theirs = np.where(theirs & 0x7FFFFFFF > 0x7F800000, np.uint32(0x7FC00000), theirs)
        ours = multiply(Operand(a, Format.xf32), Operand(b, Format.xf32), c)
        np.testing.assert_array_equal(ours, theirs)
