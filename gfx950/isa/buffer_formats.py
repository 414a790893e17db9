"""Data formats of buffers: what FORMAT loads make of an element's bits, and FORMAT stores of registers.
[CDNA4 ISA 9.1.2-9.1.4, 9.1.11, table 41]

A format is a DFMT code (how many fields of which widths) and an NFMT code (what a field's bits mean). MTBUF has them in
the instruction, MUBUF takes them from the descriptor when it runs: so a code is a Python number or a scalar, and every
function here takes both. An element is at most four dwords, a component at most 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gfx950.evidence import Evidence, rule
from gfx950.isa.buffer_addressing import Buffer
from gfx950.isa.lane_arithmetic import EXACT, with_mode
from gfx950.lanes import F16, F32, F64, I16, I32, U16, U32, U64, Engine, Float, Mask
from gfx950.models import body_switch

FIELDS = rule(
    "buffer.format_fields",
    Evidence.chosen,
    "CDNA4 ISA table 41 has the widths; that a name's last width is the lowest field, R, is what open drivers use",
    "The fields of a data format lie from bit 0 on, R first: 10_11_11 has R in bits 10:0, 2_10_10_10 in bits 9:0,"
    " 10_10_10_2 in bits 1:0.",
)
LOAD = rule(
    "buffer.format_load",
    Evidence.chosen,
    "CDNA4 ISA 9.1.3 says what becomes a float and that 32 bits stay as they are, not how; D3D conventions",
    "A FORMAT load: unorm is n / (2^w - 1), snorm max(n / (2^(w-1) - 1), -1), scaled the integer as a float, in f32 to"
    " nearest even; integers are extended; 16-, 11- and 10-bit floats widened, a NaN quieted; 32-bit fields unchanged.",
)
STORE = rule(
    "buffer.format_store",
    Evidence.chosen,
    "CDNA4 ISA 12.13 names the conversion only; D3D conventions, with ties to even",
    "A FORMAT store: unorm and snorm clamp (NaN gives 0), scale exactly and round to nearest even; scaled numbers"
    " round so too and saturate, as integers do; floats round to nearest even; 11- and 10-bit floats cut below 0.",
)
D16_FORMAT = rule(
    "buffer.format_d16",
    Evidence.chosen,
    "CDNA4 ISA 9.1.3, 9.1.11; the pseudo-code of 12.13 widens before it converts, which is wrong for floats",
    "D16 FORMAT components are f16 where the 32-bit form has f32, the exact number rounded once to nearest even;"
    " integers are the low 16 bits and are extended by their sign for a store. A load moves the bits of 16-, 11- and"
    " 10-bit floats.",
)
UNLISTED = rule(
    "buffer.format_unlisted",
    Evidence.chosen,
    "CDNA4 ISA 9.1.11 lists the legal pairs and says nothing of others",
    "A pair of formats that the table does not list converts each field by its width and number format; NFMT 6, and"
    " floats of 8 and 2 bits, are UINT. DFMT 0 and 15 have no fields: loads give 0, stores write nothing.",
)
SELECT = rule(
    "buffer.format_select",
    Evidence.chosen,
    "CDNA4 ISA tables 43 and 48 for loads; how dst_sel acts on stores is not described",
    "MUBUF components go through dst_sel: 0 and 1 (of the number's kind), 4 to 7 R to A; 2 and 3 give 0. A store puts"
    " into each field the first component that selects it, 0 where none does. MTBUF has X, Y, Z, W = R, G, B, A and"
    " zeros where the element or the instruction has fewer components.",
)
STORE_SELECTS = body_switch(
    "buffer.store_selects",
    (1, 0),
    "The descriptor's dst_sel also permutes what FORMAT stores write.",
    SELECT,
)
RULES = (FIELDS, LOAD, STORE, D16_FORMAT, UNLISTED, SELECT)

UNORM, SNORM, USCALED, SSCALED, UINT, SINT, RESERVED, FLOAT = range(8)
# Widths of the fields by DFMT, the lowest first.
WIDTHS: tuple[tuple[int, ...], ...] = (
    (), (8,), (16,), (8, 8), (32,), (16, 16), (11, 11, 10), (10, 11, 11), (2, 10, 10, 10), (10, 10, 10, 2),
    (8, 8, 8, 8), (32, 32), (16, 16, 16, 16), (32, 32, 32), (32, 32, 32, 32), (),
)  # fmt: skip
ELEMENT_BYTES = tuple(sum(widths) // 8 for widths in WIDTHS)
COMPONENTS = 4
NORMALISED, SIGNED = (UNORM, SNORM), (SNORM, SSCALED)
NUMBERS = (UNORM, SNORM, USCALED, SSCALED)  # fixed-point numbers, floats in registers
# A double that, added to a smaller number, leaves it rounded to an integer in the low 32 bits, ties to even.
ROUNDER = 1.5 * 2.0**52

Code = int | U32


def _looked_up(code: Code, table: Sequence[int], engine: Engine) -> U32:
    """The entry of a table of 8 or 16, a scalar."""
    if isinstance(code, int):
        return U32.constant(engine, table[code])
    result = U32.constant(engine, 0)
    for value in sorted(set(table) - {0}):
        holders = sum(1 << i for i, entry in enumerate(table) if entry == value)
        here = ((U32.constant(engine, holders) >> code) & 1) == 1
        result = here.select(U32.constant(engine, value), result)
    return result


def _is_one_of(code: Code, wanted: Sequence[int], engine: Engine) -> Mask:
    """Whether a code is one of some, a scalar mask."""
    if isinstance(code, int):
        return Mask.constant(engine, int(code in wanted))
    return ((U32.constant(engine, sum(1 << n for n in wanted)) >> code) & 1) == 1


def _by_number_format(
    code: Code, engine: Engine, results: Mapping[tuple[int, ...], Callable[[], U32]], otherwise: U32
) -> U32:
    """The result of the group of NFMT codes that holds a code. All are computed when the code is a scalar."""
    if isinstance(code, int):
        return next((result() for codes, result in results.items() if code in codes), otherwise)
    for codes, result in results.items():
        otherwise = _is_one_of(code, codes, engine).select(result(), otherwise)
    return otherwise


@dataclass(frozen=True)
class Field:
    """Where one component lies in an element: scalars. word: which dword; shift: its low bit there; width: 0 if the
    format has no such component."""

    word: U32
    shift: U32
    width: U32
    mask: U32

    def is_wide(self, bits: int) -> Mask:
        """Whether it has that many bits."""
        return self.width == bits


@dataclass(frozen=True)
class ElementFormat:
    """A data format and a number format. selects: the descriptor's dst_sel scalars of x, y, z, w; None for identity."""

    engine: Engine
    data: Code
    number: Code
    selects: tuple[U32, ...] | None = None

    @classmethod
    def of(cls, buffer: Buffer) -> ElementFormat:
        """The format that an instruction uses: its own, or the descriptor's."""
        if buffer.instruction_format is not None:
            return cls(buffer.engine, *buffer.instruction_format)
        selects = tuple(buffer.select(n) for n in range(COMPONENTS))
        return cls(buffer.engine, buffer.data_format, buffer.number_format, selects)

    @property
    def nbytes(self) -> U32:
        """Bytes of an element, a scalar."""
        return _looked_up(self.data, ELEMENT_BYTES, self.engine)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes an element may have."""
        found = {ELEMENT_BYTES[self.data]} if isinstance(self.data, int) else set(ELEMENT_BYTES)
        return tuple(sorted(found - {0}))

    @property
    def is_float(self) -> Mask:
        """Whether registers hold floats, a scalar mask."""
        return _is_one_of(self.number, (*NUMBERS, FLOAT), self.engine)

    def field(self, component: int) -> Field:
        """The place of R, G, B, A: component 0 to 3."""
        starts = [sum(w[:component]) if component < len(w) else 0 for w in WIDTHS]
        widths = [w[component] if component < len(w) else 0 for w in WIDTHS]
        tables = ([s // 32 for s in starts], [s % 32 for s in starts], widths, [(1 << w) - 1 for w in widths])
        return Field(*(_looked_up(self.data, table, self.engine) for table in tables))


# ---- loads -----------------------------------------------------------------------------------------------------------


def load_format(buffer: Buffer, element: ElementFormat, count: int, d16: bool = False) -> list[U32]:
    """`count` components of each lane's element as registers hold them, with d16 in the low half of a word each."""
    buffer = buffer.as_format()
    size = element.nbytes
    covered = buffer.in_range(size)
    words = [U32.constant(buffer.engine, 0).splat() for _ in range(COMPONENTS)]
    for nbytes in element.sizes:
        found = buffer.load_whole(nbytes, covered & (size == nbytes))
        words[: len(found)] = [word | new for word, new in zip(words, found, strict=False)]
    return unpacked(words, element, count, d16)


def unpacked(words: Sequence[U32], element: ElementFormat, count: int, d16: bool = False) -> list[U32]:
    """`count` components of elements in four dwords, each as a register holds it or, with d16, as 16 low bits."""
    with with_mode(element.engine, **EXACT):  # to nearest even, with denormals, whatever MODE says
        fields = [_loaded(words, element, component, d16) for component in range(COMPONENTS)]
        return [_selected(fields, element, component, d16) for component in range(count)]


def _loaded(words: Sequence[U32], element: ElementFormat, component: int, d16: bool) -> U32:
    """One component converted. [rules buffer.format_load, buffer.format_d16]"""
    field = element.field(component)
    word = words[0]
    for later in range(1, component + 1):  # component n lies in dword n at most
        word = (field.word == later).select(words[later], word)
    bits = (word >> field.shift) & field.mask
    kept = field.is_wide(32)  # such a field is an f32 or an integer as it stands
    float_bits = _half_of(bits.bits(F32)) if d16 else bits
    signed = _sign_extended(bits, field)

    def number() -> U32:
        wide = _quotient(bits, signed, field, element, F64 if d16 else F32)
        made = _half_of(wide) if d16 else wide.bits(U32)
        return kept.select(float_bits, field.is_wide(0).select(0, made))

    integers = [value & 0xFFFF if d16 else value for value in (bits, signed)]
    groups: dict[tuple[int, ...], Callable[[], U32]] = {
        NUMBERS: number,
        (SINT,): lambda: integers[1],
        (FLOAT,): lambda: _float_field(bits, field, d16, float_bits),
    }
    return _by_number_format(element.number, element.engine, groups, integers[0])


def _sign_extended(bits: U32, field: Field) -> U32:
    spare = U32.constant(bits.engine, 32) - field.width
    return ((bits << spare).bits(I32) >> spare.bits(I32)).bits(U32)


def _quotient(bits: U32, signed: U32, field: Field, element: ElementFormat, kind: type[F32] | type[F64]) -> Float:
    """The number of a normalised or scaled field: an integer, which both types hold exactly, by the largest or by 1."""
    has_sign = _is_one_of(element.number, SIGNED, element.engine)
    normalised = _is_one_of(element.number, NORMALISED, element.engine)
    largest = has_sign.select(field.mask >> 1, field.mask)
    integer = has_sign.select(signed, bits).bits(I32)
    lowest = normalised.select(-largest, -largest - 1)  # -1.0 has two codes
    integer = has_sign.select(integer.maximum(lowest.bits(I32)), integer)
    divisor = normalised.select(largest, 1)
    return integer.to(kind) / divisor.to(kind)


def _half_of(value: Float) -> U32:
    """The bits of the nearest f16."""
    return value.to(F16).bits(U16).to(U32)


def _float_field(bits: U32, field: Field, d16: bool, float_bits: U32) -> U32:
    """A float of 16, 11 or 10 bits, the latter two f16 without sign and low mantissa bits; other widths as they are."""
    half = field.is_wide(16).select(bits, field.is_wide(11).select(bits << 4, bits << 5))
    made = half if d16 else half.to(U16).bits(F16).to(F32).bits(U32)
    return _has_float(field).select(made, field.is_wide(32).select(float_bits, bits))


def _has_float(field: Field) -> Mask:
    return field.is_wide(16) | field.is_wide(11) | field.is_wide(10)


def _selected(fields: Sequence[U32], element: ElementFormat, component: int, d16: bool) -> U32:
    """What dst_sel puts into a component. [rule buffer.format_select]"""
    if element.selects is None:
        return fields[component]
    select, engine = element.selects[component], element.engine
    one = element.is_float.select(U32.constant(engine, 0x3C00 if d16 else 0x3F800000), 1)
    result = (select == 1).select(one, 0).splat()
    for number, field in enumerate(fields):
        result = (select == 4 + number).select(field, result)
    return result


# ---- stores ----------------------------------------------------------------------------------------------------------


def store_format(buffer: Buffer, element: ElementFormat, components: Sequence[U32], d16: bool = False) -> None:
    """The components as one element a lane; with d16 they are the low halves of a word each."""
    buffer = buffer.as_format()
    size = element.nbytes
    covered = buffer.in_range(size)
    words = packed(components, element, d16)
    for nbytes in element.sizes:
        buffer.store_whole(words[: max(1, nbytes // 4)], nbytes, covered & (size == nbytes))


def packed(components: Sequence[U32], element: ElementFormat, d16: bool = False) -> list[U32]:
    """The four dwords of the elements that the components make; the inverse of `unpacked`."""
    words = [U32.constant(element.engine, 0).splat() for _ in range(COMPONENTS)]
    with with_mode(element.engine, **EXACT):  # to nearest even, with denormals, whatever MODE says
        for number in range(COMPONENTS):
            value = _source(element, components, number)
            if value is None:
                continue
            field = element.field(number)
            bits = _stored(value, field, element, d16) << field.shift
            for word in range(number + 1):
                words[word] = words[word] | (field.word == word).select(bits, 0)
    return words


def _source(element: ElementFormat, components: Sequence[U32], number: int) -> U32 | None:
    """The component that goes into a field; None for 0. [rule buffer.format_select]"""
    if element.selects is None or not STORE_SELECTS.answer:
        return components[number] if number < len(components) else None
    result = U32.constant(element.engine, 0).splat()
    for component, select in reversed(list(zip(components, element.selects, strict=False))):
        result = (select == 4 + number).select(component, result)
    return result


def _stored(value: U32, field: Field, element: ElementFormat, d16: bool) -> U32:
    """The field's bits. [rules buffer.format_store, buffer.format_d16]"""
    number = element.number
    if not d16:
        return _field_bits(value, field, element)
    half = value.to(U16)
    signed = half.bits(I16).to(I32).bits(U32)
    integer = _is_one_of(number, (SINT,), element.engine).select(signed, half.to(U32))
    wide = element.is_float.select(half.bits(F16).to(F32).bits(U32), integer)
    passes = field.is_wide(16) & _is_one_of(number, (FLOAT,), element.engine)
    return passes.select(half.to(U32), _field_bits(wide, field, element))


def _field_bits(value: U32, field: Field, element: ElementFormat) -> U32:
    """A register's f32 or integer as a field's bits, none above the field."""
    groups: dict[tuple[int, ...], Callable[[], U32]] = {
        NUMBERS: lambda: _rounded(value.bits(F32), field, element),
        (SINT,): lambda: _saturated(value.bits(I32), field),
        (FLOAT,): lambda: _narrowed(value, field),
    }
    result = _by_number_format(element.number, element.engine, groups, value.minimum(field.mask))
    return field.is_wide(32).select(value, result) & field.mask


def _rounded(value: F32, field: Field, element: ElementFormat) -> U32:
    """A number as a normalised or scaled field: exact as a double, saturated, then the nearest integer."""
    has_sign = _is_one_of(element.number, SIGNED, element.engine)
    normalised = _is_one_of(element.number, NORMALISED, element.engine)
    high = has_sign.select(field.mask >> 1, field.mask)
    largest = high.to(F64)
    lowest = has_sign.select(normalised.select(-largest, -largest - 1.0), 0.0)
    number = value.to(F64) * normalised.select(largest, 1.0)
    inside = (number < lowest).select(lowest, (number > largest).select(largest, number))
    return (value.is_nan().select(0.0, inside) + ROUNDER).bits(U64).to(U32)


def _saturated(value: I32, field: Field) -> U32:
    """Brought into the range of a signed field."""
    high = (field.mask >> 1).bits(I32)
    return value.minimum(high).maximum(-high - 1).bits(U32)


def _narrowed(value: U32, field: Field) -> U32:
    """An f32 as a float of 16, 11 or 10 bits; integers of other widths saturate."""
    half = value.bits(F32).to(F16).bits(U16).to(U32)
    small = field.is_wide(11).select(_unsigned_float(value, 6), _unsigned_float(value, 5))
    return _has_float(field).select(field.is_wide(16).select(half, small), value.minimum(field.mask))


def _unsigned_float(value: U32, mantissa: int) -> U32:
    """An f32 as a float of 5 exponent bits without sign, to nearest even; negative numbers give 0, NaNs stay NaNs."""
    magnitude, dropped = value & 0x7FFFFFFF, 23 - mantissa
    infinity, smallest_normal = 31 << mantissa, 113 << 23
    moved = magnitude - (112 << 23)  # the exponent's bias is 15 instead of 127
    rounded = (moved + ((1 << dropped - 1) - 1) + ((moved >> dropped) & 1)) >> dropped
    # A subnormal: adding this power of two leaves it, rounded, in the sum's low bits.
    unit = F32.constant(value.engine, 2.0 ** (9 - mantissa))
    subnormal = (magnitude.bits(F32) + unit).bits(U32) - unit.bits(U32)
    finite = (magnitude < smallest_normal).select(subnormal, rounded).minimum(infinity)
    payload = ((magnitude & 0x7FFFFF) >> dropped) | infinity | 1 << mantissa - 1
    positive = (value & 0x80000000) == 0
    nan = magnitude > 0x7F800000
    limited = (magnitude >= 0x47800000).select(U32.constant(value.engine, infinity), finite)
    return nan.select(payload, positive.select(limited, 0))


def pack_halves(low: U32, high: U32) -> U32:
    """Two 16-bit components as one register."""
    return (low & 0xFFFF) | (high << 16)


def unpack_halves(word: U32) -> tuple[U32, U32]:
    """The two 16-bit components of a register."""
    return word & 0xFFFF, word >> 16
