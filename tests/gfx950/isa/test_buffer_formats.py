"""FORMAT loads and stores against exact arithmetic: every value of every field, and whole elements by instruction."""

import functools
import random
import struct
from fractions import Fraction

import numpy as np
import pytest

from emu.engines.numpy_engine import NumpyEngine
from emu.memory import Memory
from emu.wave import Wave
from gfx950.isa.buffer_formats import ELEMENT_BYTES, ElementFormat, packed, unpacked
from gfx950.isa.encoding import decode
from gfx950.isa.registry import load
from gfx950.lanes import U32, Mode
from gfx950.models import make_model, using

LANES = range(64)
ACTIVE = 0x8000_00FF_1234_F001
UNORM, SNORM, USCALED, SSCALED, UINT, SINT, RESERVED, FLOAT = range(8)
# Table 41, names as printed: the last number is the lowest field.
NAMES = {
    1: "8", 2: "16", 3: "8_8", 4: "32", 5: "16_16", 6: "10_11_11", 7: "11_11_10", 8: "10_10_10_2", 9: "2_10_10_10",
    10: "8_8_8_8", 11: "32_32", 12: "16_16_16_16", 13: "32_32_32", 14: "32_32_32_32",
}  # fmt: skip
FIELDS = {code: [int(w) for w in reversed(name.split("_"))] for code, name in NAMES.items()}
PAIRS = [(d, n) for d in (1, 3, 8, 9, 10) for n in range(6)]
PAIRS += [(d, n) for d in (2, 5, 12) for n in (0, 1, 2, 3, 4, 5, 7)]
PAIRS += [(d, 7) for d in (6, 7)] + [(d, n) for d in (4, 11, 13, 14) for n in (4, 5, 7)]
MODES = [Mode(), Mode(1, 2, denorm32=0, denorm16_64=0, ieee=False, dx10_clamp=False, fp16_ovfl=True)]


@functools.cache
def rounded(value, exponent_bits, mantissa_bits):
    """Sign and magnitude bits of an exact number as an IEEE-like float, nearest even."""
    sign, numerator, denominator = value < 0, abs(value.numerator), value.denominator
    if not numerator:
        return sign, 0
    bias = (1 << exponent_bits - 1) - 1
    exponent = numerator.bit_length() - denominator.bit_length()
    exponent -= numerator << max(0, -exponent) < denominator << max(0, exponent)
    exponent = max(exponent, 1 - bias)
    shift = mantissa_bits - exponent
    steps, rest = divmod(numerator << max(0, shift), denominator << max(0, -shift))
    rest, half = 2 * rest, denominator << max(0, -shift)
    steps += rest > half or (rest == half and steps & 1)
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    return sign, min((exponent + bias - 1 << mantissa_bits) + steps, infinity)


def f32_of(value):
    sign, bits = rounded(Fraction(value), 8, 23)
    return sign << 31 | bits


def f16_of(value):
    sign, bits = rounded(Fraction(value), 5, 10)
    return sign << 15 | bits


def exact(bits, exponent_bits, mantissa_bits):
    """The number of unsigned float bits: a Fraction, "inf" or "nan"."""
    exponent, mantissa = bits >> mantissa_bits, bits & (1 << mantissa_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    if exponent == (1 << exponent_bits) - 1:
        return "nan" if mantissa else "inf"
    hidden = (1 << mantissa_bits) if exponent else 0
    return Fraction(mantissa + hidden) * Fraction(2) ** (max(exponent, 1) - bias - mantissa_bits)


def widened(bits, width):
    """A float of 16, 11 or 10 bits as f32 bits."""
    sign, mantissa_bits = (bits >> 15, 10) if width == 16 else (0, width - 5)
    bits &= 0x7FFF
    number = exact(bits, 5, mantissa_bits)
    if number == "nan":
        return sign << 31 | 0x7FC00000 | (bits & (1 << mantissa_bits) - 1) << 23 - mantissa_bits
    return sign << 31 | (0x7F800000 if number == "inf" else f32_of(number))


def number_of(bits, width, nfmt):
    """What a field means: a Fraction for floats, an int for integers; None where its bits stay as they are."""
    signed = bits - (1 << width) if bits >> width - 1 else bits
    if width == 32:
        return None
    return {
        UNORM: lambda: Fraction(bits, (1 << width) - 1),
        SNORM: lambda: max(Fraction(signed, (1 << width - 1) - 1), Fraction(-1)),
        USCALED: lambda: Fraction(bits),
        SSCALED: lambda: Fraction(signed),
        UINT: lambda: bits,
        SINT: lambda: signed,
        FLOAT: lambda: None,
    }[nfmt]()


def load_oracle(bits, width, nfmt, d16):
    """Register bits of one field."""
    number = number_of(bits, width, nfmt)
    if number is None:
        if width == 16:
            return bits if d16 else widened(bits, 16)
        single = bits if width == 32 else widened(bits, width)
        if not d16:
            return single
        if width < 32:
            return bits << 15 - width  # the same exponent and the mantissa's top, also of a NaN
        if nfmt in (UINT, SINT):
            return bits & 0xFFFF
        return float_field(single >> 31, exact(single & 0x7FFFFFFF, 8, 23), single, 16)
    if isinstance(number, int):
        return number & (0xFFFF if d16 else 0xFFFFFFFF)
    return f16_of(number) if d16 else f32_of(number)


def store_oracle(register, width, nfmt, d16):
    """Field bits of a register."""
    if nfmt in (UINT, SINT):
        size = 16 if d16 else 32
        value = register - (1 << size) if nfmt == SINT and register >> size - 1 else register
        low, high = (-(1 << width - 1), (1 << width - 1) - 1) if nfmt == SINT else (0, (1 << width) - 1)
        return max(low, min(high, value)) & (1 << width) - 1
    if d16 and nfmt == FLOAT and width == 16:
        return register
    single = widened(register, 16) if d16 else register
    if width == 32:
        return single
    sign, number = single >> 31, exact(single & 0x7FFFFFFF, 8, 23)
    if nfmt == FLOAT:
        return float_field(sign, number, single, width)
    if number == "nan":
        return 0
    number = Fraction(10**30) if number == "inf" else number
    number = -number if sign else number
    if nfmt in (UNORM, SNORM):
        largest = (1 << width - (nfmt == SNORM)) - 1
        low = -1 if nfmt == SNORM else 0
        return round(max(Fraction(low), min(Fraction(1), number)) * largest) & (1 << width) - 1
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if nfmt == SSCALED else (0, (1 << width) - 1)
    return max(low, min(high, round(number))) & (1 << width) - 1


def float_field(sign, number, single, width):
    mantissa_bits, has_sign = (10, True) if width == 16 else (width - 5, False)
    infinity = 31 << mantissa_bits
    if number == "nan":
        payload = (single & 0x7FFFFF) >> 23 - mantissa_bits
        bits = infinity | 1 << mantissa_bits - 1 | payload
    elif sign and not has_sign:
        return 0
    else:
        bits = infinity if number == "inf" else rounded(number, 5, mantissa_bits)[1]
    return bits | (sign << 15 if has_sign else 0)


def element_format(engine, dfmt, nfmt, dynamic):
    """As MTBUF gives it, or as MUBUF reads it from a descriptor."""
    if dynamic:
        return ElementFormat(engine, U32.constant(engine, dfmt), U32.constant(engine, nfmt))
    return ElementFormat(engine, dfmt, nfmt)


def field_values(width, every):
    if width == 32:
        rng = random.Random("words")
        special = [0, 1, 0x7F800000, 0xFF800001, 0x3F800000, 0xFFFFFFFF, 0x80000000, 0x477FF000, 0x33000001]
        return special + [rng.getrandbits(32) for _ in range(200)]
    if every or width < 16:
        return range(1 << width)
    return [*range(0, 1 << width, 97), *range(0x7BF0, 0x7C80), 65455, 65535]  # 65455 / 65535: two roundings differ


def lanes_of(values):
    """Values in rows of 64 lanes."""
    room = -len(values) % 64
    return np.array([*values, *[0] * room], dtype=np.uint32).reshape(-1, 64)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("d16", [False, True])
@pytest.mark.parametrize(("dfmt", "nfmt"), PAIRS)
def test_every_value_of_every_field_loads(dfmt, nfmt, d16, every):
    for component, width in enumerate(FIELDS[dfmt]):
        if component and width == FIELDS[dfmt][0] and width == 16:
            continue  # the same field again; whole elements are tested below
        values = field_values(width, every)
        low = sum(FIELDS[dfmt][:component])
        expected = [load_oracle(v, width, nfmt, d16) for v in values]
        for mode, dynamic in zip(MODES, (False, True), strict=True):
            engine = NumpyEngine(mode)
            background = np.uint32(0xFFFFFFFF ^ ((1 << width) - 1 << low % 32 & 0xFFFFFFFF))
            word = (lanes_of(values) << np.uint32(low % 32)) | background
            words = [U32(engine, word if n == low // 32 else np.full_like(word, 0xFFFFFFFF)) for n in range(4)]
            found = unpacked(words, element_format(engine, dfmt, nfmt, dynamic), 4, d16)[component].raw
            assert list(np.broadcast_to(found, word.shape).reshape(-1)[: len(values)]) == expected


def register_values(width, nfmt, d16):
    """Numbers on and beside the ties of a field's rounding, its limits, and anything."""
    rng = random.Random(f"{width} {nfmt} {d16}")
    size = 16 if d16 else 32
    values = [rng.getrandbits(size) for _ in range(150)]
    values += [0, 1 << size - 1, (1 << size) - 1, (1 << size - 1) - 1]
    if nfmt in (UINT, SINT):
        values += [(s + d) % 2**size for s in (1 << width - 1, 1 << width, -(1 << width - 1)) for d in (-1, 0, 1)]
        return [v % 2**size for v in values]
    scale = {UNORM: (1 << width) - 1, SNORM: (1 << width - 1) - 1}.get(nfmt, 1) if width < 32 else 1
    for _ in range(150):
        number = Fraction(rng.randrange(-2 * (1 << min(width, 16)), 2 * (1 << min(width, 16))), 2 * scale)
        values += [(f16_of if d16 else f32_of)(number)]
    for exponent in range(-27, 20):
        values += [(f16_of if d16 else f32_of)(Fraction(rng.getrandbits(12)) * Fraction(2) ** (exponent - 11))]
    top = 0x7C00 if d16 else 0x7F800000
    values += [top, top | 1, top | top >> 1, top | 1 << size - 1, top - 1]
    if not d16:
        values += [v + d & 0xFFFFFFFF for v in values[-60:] for d in (-1, 1)]
        values += [0x477FE000 + d for d in range(0x2000 - 40, 0x2000 + 4)] + [0x477FEFFF, 0x477FF000, 0x477FF001]
    return values


@pytest.mark.parametrize("d16", [False, True])
@pytest.mark.parametrize(("dfmt", "nfmt"), PAIRS)
def test_stores_round_and_saturate(dfmt, nfmt, d16):
    for component, width in enumerate(FIELDS[dfmt]):
        values = register_values(width, nfmt, d16)
        low = sum(FIELDS[dfmt][:component])
        expected = [store_oracle(v, width, nfmt, d16) for v in values]
        for mode, dynamic in zip(MODES, (False, True), strict=True):
            engine = NumpyEngine(mode)
            garbage = 0xABCD0000 if d16 else 0
            data = U32(engine, lanes_of(values) | np.uint32(garbage))
            zero = U32(engine, np.zeros_like(data.raw))
            components = [data if n == component else zero for n in range(4)]
            words = packed(components, element_format(engine, dfmt, nfmt, dynamic), d16)
            for number, word in enumerate(words):
                want = [v << low % 32 if number == low // 32 else 0 for v in expected]
                assert list(np.broadcast_to(word.raw, data.raw.shape).reshape(-1)[: len(values)]) == want


def test_half_floats_against_numpy():
    """numpy rounds f32 to f16 itself."""
    values = register_values(16, FLOAT, False)
    engine = NumpyEngine(Mode())
    with np.errstate(over="ignore"):
        want = np.array(values, np.uint32).view(np.float32).astype(np.float16)
    found = packed([U32(engine, lanes_of(values))], ElementFormat(engine, 2, FLOAT))[0].raw.reshape(-1)[: len(values)]
    number = ~np.isnan(want)
    assert (found[number] == want.view(np.uint16)[number]).all()
    assert (np.isnan(found.astype(np.uint16).view(np.float16)) == ~number).all()


# ---- instructions ----------------------------------------------------------------------------------------------------

NBYTES = 8192


@pytest.fixture
def wave():
    wave = Wave(memory=Memory())
    wave.bytes = np.frombuffer(random.Random("formats").randbytes(NBYTES), dtype=np.uint8).copy()
    wave.base = wave.address_space.map(wave.bytes, name="bytes")
    wave.set_exec(ACTIVE)
    for index in range(10, 30):
        wave.vgprs[index] = np.frombuffer(random.Random(index).randbytes(256), dtype=np.uint32)
    return wave


def describe(wave, dfmt, nfmt, select=(4, 5, 6, 7), records=60, stride=20):
    word3 = sum(s << 3 * i for i, s in enumerate(select)) | nfmt << 12 | dfmt << 15
    wave.sgprs[8:12] = [wave.base & 0xFFFFFFFF, wave.base >> 32 | stride << 16, records, word3]
    wave.vgprs[2] = np.array([7 * n % 64 for n in LANES], dtype=np.uint32)
    wave.sgprs[3] = 4


def fields_of(element, dfmt, nfmt, d16):
    """R, G, B, A as registers would hold them, 0 where there is none."""
    low, found = 0, []
    for width in FIELDS.get(dfmt, []):
        found.append(load_oracle(element >> low & (1 << width) - 1, width, nfmt, d16))
        low += width
    return found + [0] * (4 - len(found))


def select_oracle(fields, select, nfmt, d16):
    one = 1 if nfmt in (UINT, SINT) else 0x3C00 if d16 else 0x3F800000
    return [0 if s in (0, 2, 3) else one if s == 1 else fields[s - 4] for s in select]


def registers_of(components, old, d16):
    """Components in registers; an odd D16 count keeps the last high half."""
    if not d16:
        return components
    halves = components + ([old[-1] >> 16] if len(components) % 2 else [])
    return [a | b << 16 for a, b in zip(halves[::2], halves[1::2], strict=True)]


def format_cases():
    rng = random.Random("cases")
    for d16 in (False, True):
        for count in range(1, 5):
            name = ("d16_" if d16 else "") + "xyzw"[:count]
            for dfmt, nfmt in rng.sample(PAIRS, 7):
                yield name, count, d16, dfmt, nfmt, tuple(rng.choice([0, 1, 2, 4, 5, 6, 7]) for _ in range(4))


def texts(name, words, dfmt, nfmt):
    data = f"v[20:{19 + words}]" if words > 1 else "v20"
    where = "v2, s[8:11]"
    return [
        f"buffer_{name} {data}, {where}, s3 idxen offset:2",
        f"tbuffer_{name} {data}, {where}, dfmt:{dfmt}, nfmt:{nfmt}, s3 idxen offset:2",
    ]


CASES = list(format_cases())


def test_loads_by_instruction(wave, assemble_lines):
    lines = [t for n, c, d, f, g, _ in CASES for t in texts(f"load_format_{n}", (c + 1) // 2 if d else c, f, g)]
    codes = iter(assemble_lines(lines))
    for _, count, d16, dfmt, nfmt, select in CASES:
        words = (count + 1) // 2 if d16 else count
        for tbuffer in (False, True):
            describe(wave, 4 if tbuffer else dfmt, 5 if tbuffer else nfmt, select)
            old = wave.vgprs.copy()
            wave.step(decode(next(codes), 0))
            for n in LANES:
                before = [int(old[20 + i][n]) for i in range(words)]
                want = before
                if ACTIVE >> n & 1:
                    index = 7 * n % 64
                    at = 20 * index + 6
                    element = int.from_bytes(wave.bytes[at : at + ELEMENT_BYTES[dfmt]].tobytes(), "little")
                    fields = fields_of(element if index < 60 else 0, dfmt, nfmt, d16)
                    chosen = fields if tbuffer else select_oracle(fields, select, nfmt, d16)
                    want = registers_of(chosen[:count], before, d16)
                assert [int(wave.vgprs[20 + i][n]) for i in range(words)] == want, (dfmt, nfmt, select, n)


def element_of(components, dfmt, nfmt, d16, select):
    """The bytes that a store leaves."""
    element, low = 0, 0
    for number, width in enumerate(FIELDS[dfmt]):
        sources = [c for c, s in zip(components, select, strict=False) if s == 4 + number]
        element |= store_oracle(sources[0] if sources else 0, width, nfmt, d16) << low
        low += width
    return element.to_bytes(low // 8, "little")


@pytest.mark.parametrize("selects", [1, 0])
def test_stores_by_instruction(wave, assemble_lines, selects):
    model = make_model("test", {"buffer.store_selects": selects})
    lines = [t for n, c, d, f, g, _ in CASES for t in texts(f"store_format_{n}", (c + 1) // 2 if d else c, f, g)]
    codes = iter(assemble_lines(lines))
    for _, count, d16, dfmt, nfmt, select in CASES:
        for tbuffer in (False, True):
            describe(wave, 4 if tbuffer else dfmt, 5 if tbuffer else nfmt, select)
            before = wave.bytes.copy()
            want = before.copy()
            for n in LANES:
                index = 7 * n % 64
                if not ACTIVE >> n & 1 or index >= 60:
                    continue
                words = [int(wave.vgprs[20 + i][n]) for i in range(4)]
                halves = [h for w in words for h in (w & 0xFFFF, w >> 16)]
                used = (halves if d16 else words)[:count]
                order = (4, 5, 6, 7) if tbuffer or not selects else select
                data = element_of(used, dfmt, nfmt, d16, order)
                want[20 * index + 6 :][: len(data)] = list(data)
            with using(model):
                wave.step(decode(next(codes), 0))
            assert (wave.bytes == want).all(), (dfmt, nfmt, select)
            wave.bytes[:] = before


def test_the_high_half_forms(wave, assemble):
    describe(wave, 1, UNORM, (4, 0, 1, 1))
    old = wave.vgprs[20].copy()
    wave.sgprs[3] = 0
    wave.step(decode(assemble("buffer_load_format_d16_hi_x v20, v2, s[8:11], 0 idxen"), 0))
    for n in LANES:
        at = 20 * (7 * n % 64)
        half = load_oracle(int(wave.bytes[at]), 8, UNORM, True) if 7 * n % 64 < 60 else 0
        want = int(old[n]) & 0xFFFF | half << 16 if ACTIVE >> n & 1 else int(old[n])
        assert int(wave.vgprs[20][n]) == want
    wave.vgprs[20] = np.array([f16_of(Fraction(n, 64)) << 16 | 0xBEEF for n in LANES], dtype=np.uint32)
    expected = wave.bytes.copy()
    for n in LANES:
        if ACTIVE >> n & 1 and 7 * n % 64 < 60:
            expected[20 * (7 * n % 64)] = round(Fraction(n, 64) * 255)
    wave.step(decode(assemble("buffer_store_format_d16_hi_x v20, v2, s[8:11], 0 idxen"), 0))
    assert (wave.bytes == expected).all()


@pytest.mark.parametrize("name", ["buffer_load_format_xyzw", "tbuffer_load_format_xyzw"])
def test_a_format_access_is_checked_as_a_whole(wave, assemble, name):
    """Only the element's own bytes count, and a lane gets all of them or none."""
    for dfmt, nbytes in ((14, 16), (13, 12), (11, 8), (10, 4), (2, 2), (1, 1)):
        describe(wave, dfmt, UINT, records=100, stride=0)
        wave.vgprs[2] = np.arange(64) * 2
        form = f" dfmt:{dfmt}, nfmt:4," if name[0] == "t" else ""
        wave.step(decode(assemble(f"{name} v[20:23], v2, s[8:11],{form} 0 offen"), 0))
        for n in LANES:
            if ACTIVE >> n & 1:
                element = int.from_bytes(wave.bytes[2 * n : 2 * n + nbytes].tobytes(), "little")
                fields = fields_of(element if 2 * n + nbytes <= 100 else 0, dfmt, UINT, False)
                assert [int(wave.vgprs[20 + i][n]) for i in range(4)] == fields


def test_a_selected_one_is_given_out_of_range_too(wave, assemble):
    for nfmt, one in ((FLOAT, 0x3F800000), (UINT, 1), (UNORM, 0x3F800000)):
        describe(wave, 14 if nfmt != UNORM else 10, nfmt, (1, 4, 1, 0), records=0)
        wave.step(decode(assemble("buffer_load_format_xyzw v[20:23], v2, s[8:11], 0 idxen"), 0))
        lane = ACTIVE.bit_length() - 1
        assert [int(wave.vgprs[20 + i][lane]) for i in range(4)] == [one, 0, one, 0]


@pytest.mark.parametrize("dfmt", [0, 15])
def test_formats_without_fields(wave, assemble, dfmt):
    describe(wave, 4, 0)
    before = wave.bytes.copy()
    for text in ("load_format_xyz v[20:22]", "store_format_xyz v[12:14]"):
        wave.step(decode(assemble(f"tbuffer_{text}, v2, s[8:11], dfmt:{dfmt}, nfmt:4, 0 idxen"), 0))
    lane = ACTIVE.bit_length() - 1
    assert [int(wave.vgprs[20 + i][lane]) for i in range(3)] == [0, 0, 0]
    assert (wave.bytes == before).all()


def test_unlisted_pairs_follow_width_and_number_format(wave, assemble):
    """NFMT 6 and floats of 8 bits are UINT; a 10-bit field of 2_10_10_10 as FLOAT is a 10-bit float."""
    for dfmt, nfmt, like in ((10, 6, UINT), (10, 7, UINT), (1, 6, UINT)):
        describe(wave, dfmt, nfmt)
        wave.step(decode(assemble("buffer_load_format_x v20, v2, s[8:11], 0 idxen"), 0))
        wave.step(decode(assemble(f"tbuffer_load_format_x v21, v2, s[8:11], dfmt:{dfmt}, nfmt:{like}, 0 idxen"), 0))
        assert (wave.vgprs[20] == wave.vgprs[21])[[n for n in LANES if ACTIVE >> n & 1]].all()
    describe(wave, 9, FLOAT)
    wave.step(decode(assemble("buffer_load_format_xyzw v[20:23], v2, s[8:11], 0 idxen"), 0))
    lane = ACTIVE.bit_length() - 1
    word = struct.unpack_from("<I", wave.bytes, 20 * (7 * lane % 64))[0]
    want = [widened(word >> low & 0x3FF, 10) for low in (0, 10, 20)] + [word >> 30]
    assert [int(wave.vgprs[20 + i][lane]) for i in range(4)] == want


def test_every_definition_is_tested():
    names = {f"{p}_{w}_format_{case[0]}" for p in ("buffer", "tbuffer") for w in ("load", "store") for case in CASES}
    names |= {"buffer_load_format_d16_hi_x", "buffer_store_format_d16_hi_x", "buffer_load_format_x_lds"}
    assert {i.name for i in load().values() if "_format_" in i.name} == names
