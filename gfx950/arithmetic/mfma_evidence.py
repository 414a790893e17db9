"""What the bits of matrix instructions rest on."""

from __future__ import annotations

from gfx950.arithmetic.mfma_shapes import SHAPES, is_deep, kind_of
from gfx950.evidence import Evidence, Rule, rule
from gfx950.layouts import INDEX_SET_RULE

_GFX942 = "MMA-Sim 2.1.1 (arXiv 2511.10909): MI300X probes and random full-bit tests"
_OVERFLOW = rule(
    "mfma.overflow",
    Evidence.spec,
    "CDNA4 ISA 7.1.2, 7.1.5, 7.5",
    "An f32 that overflows is Inf, or the largest finite value under FP16_OVFL.",
)
_OVERFLOW_STEP = rule(
    "mfma.overflow_step",
    Evidence.chosen,
    "nothing published",
    "FP16_OVFL acts at every rounding: of a group, or of a multiply-add of f32; an Inf that came in stays Inf. f64"
    " results are not changed by it.",
)
_NAN_BITS = rule(
    "mfma.nan_bits",
    Evidence.chosen,
    "nothing published",
    "The NaN that is made is 0x7FC00000, of f64 instructions 0x7FF8000000000000.",
)
_NAN = rule(
    "mfma.nan",
    Evidence.chosen,
    "nothing published",
    "A NaN result is the same whatever NaN went in.",
)
QUESTION_RULES: dict[str, Rule] = {  # by the question they answer for all classes of shapes
    "group_order": rule(
        "mfma.group_order",
        Evidence.carried,
        _GFX942,
        "Groups follow each other in ascending logical k, each through a rounded f32.",
    ),
    "scale_entry": rule(
        "mfma.scale_entry",
        Evidence.chosen,
        "the manual points both ways: CDNA4 ISA 7.2 applies the scales after the dot product and before accumulation,"
        " which favours block_sum; the formula of 7.1.5 adds them to exponents (those of all products), which is what"
        " is taken here; neither says what is cut where",
        "Block scales add to product exponents before C is aligned.",
    ),
    "sparse_order": rule(
        "mfma.sparse_order",
        Evidence.chosen,
        "nothing published",
        "The stored elements of a sparse A are grouped as those of a dense A of half the depth.",
    ),
    "mixed_formats": rule(
        "mfma.mixed_formats",
        Evidence.chosen,
        "nothing published",
        "A mixed pair follows its wider format's group step.",
    ),
    "nan": _NAN,
    "nan_bits": _NAN_BITS,
    "f32": rule(
        "mfma.f32.chain",
        Evidence.carried,
        _GFX942,
        "f32: fused multiply-adds in ascending k that begin with C, each rounded once to nearest even.",
    ),
    "f32_denorm": rule(
        "mfma.f32_denorm",
        Evidence.chosen,
        "CDNA4 ISA 7.4, which 7.1.2 contradicts: there MODE's denormal fields are ignored and subnormals kept",
        "Subnormal A and B of f32 instructions become zeros of their sign unless MODE keeps f32 inputs; C and D keep"
        " theirs.",
    ),
    "f64": rule(
        "mfma.f64.chain",
        Evidence.carried,
        _GFX942,
        "f64: fused multiply-adds in ascending k that begin with C, each rounded once to nearest even.",
    ),
    "i8": rule(
        "mfma.i8_overflow",
        Evidence.chosen,
        "CDNA4 ISA 7.1.2: an i32 result is clamped under FP16_OVFL",
        "Under FP16_OVFL the addition of C saturates, and else wraps; partial sums do neither.",
    ),
}

# What a group step rests on, by class of shapes and by topic. gfx942 has the shapes of `half` and `byte`.
_STEPS = {
    "products": "Products are cut toward zero 24 bits below the largest exponent of their part.",
    "dot": "The group sum is floored 32 bits below the larger of its and C's exponent.",
    "sum": "The total is floored 31 bits below its exponent.",
    "output": "The total is rounded to f32, nearest even, with gradual underflow.",
    "zero_sign": "An exactly zero total is +0, also for C = -0.",
}
_HALF_STEPS = _STEPS | {
    "group": "Groups of 8 products are summed on one alignment.",
    "split": "A group is aligned as a whole.",
    "product_overflow": "A bf16 product of 2^128 or more is Inf before summing: one whose factors' exponents, plus one"
    " where their significands multiply to 2 or more, add up to 128 or more.",
    "c": "C is floored 24 bits below the larger exponent, however far below it is.",
}
_BYTE_STEPS = _STEPS | {
    "group": "Groups of 16 products, at every K.",
    "split": "Even and odd k are aligned apart, then both are floored to the larger exponent.",
    "product_overflow": "Products have no range limit before the f32 result.",
    "c": "C is floored 24 bits below the larger exponent, and dropped more than 25 binades below it.",
}
_CLASSES = {
    "half": ("f16, bf16", Evidence.carried, _GFX942, _HALF_STEPS),
    "half_deep": (
        "f16, bf16 on gfx950's own shapes",
        Evidence.chosen,
        "nothing published; as gfx942 does at its depths",
        _HALF_STEPS,
    ),
    "byte": ("fp8, bf8", Evidence.carried, _GFX942, _BYTE_STEPS),
    "byte_deep": (
        "fp8, bf8 on gfx950's own shapes",
        Evidence.chosen,
        "nothing published; as gfx942 does at its depths",
        _BYTE_STEPS,
    ),
    "small": ("fp6, bf6, fp4", Evidence.chosen, "nothing published; as fp8 on gfx942", _BYTE_STEPS),
}


def _class_rules(class_: str) -> dict[str, Rule]:
    what, evidence, source, steps = _CLASSES[class_]
    rules = {topic: rule(f"mfma.{class_}.{topic}", evidence, source, f"{what}: {t}") for topic, t in steps.items()}
    rules["subnormals"] = rule(
        f"mfma.{class_}.subnormals",
        Evidence.spec,
        "CDNA4 ISA 7.1.2, 7.1.5, 7.4",
        f"{what}: subnormal inputs, C and D are kept whatever MODE says.",
    )
    return rules


CLASS_RULES = {class_: _class_rules(class_) for class_ in _CLASSES}
_GROUPS: tuple[Rule, ...] = (
    QUESTION_RULES["group_order"],
    _OVERFLOW,
    _OVERFLOW_STEP,
    rule(
        "mfma.specials",
        Evidence.carried,
        _GFX942,
        "Inf * 0 and Inf - Inf are NaN; Inf and NaN of A, B and C propagate.",
    ),
    _NAN,
    _NAN_BITS,
)
HALF_RULES: tuple[Rule, ...] = (*CLASS_RULES["half"].values(), *_GROUPS)
HALF_DEEP_RULES: tuple[Rule, ...] = (*CLASS_RULES["half_deep"].values(), *_GROUPS)
BYTE_RULES: tuple[Rule, ...] = (*CLASS_RULES["byte"].values(), *_GROUPS)
BYTE_DEEP_RULES: tuple[Rule, ...] = (*CLASS_RULES["byte_deep"].values(), *_GROUPS)
F8F6F4_RULES: tuple[Rule, ...] = (
    QUESTION_RULES["mixed_formats"],
    QUESTION_RULES["scale_entry"],
    rule(
        "mfma.scaled_overflow",
        Evidence.chosen,
        "nothing published",
        "Scaled products have no range limit before the f32 result.",
    ),
    rule(
        "mfma.undefined_format",
        Evidence.chosen,
        "CDNA4 ISA 7.1.5: undefined",
        "An undefined CBSZ or BLGP code of F8F6F4 is read as fp8.",
    ),
    rule(
        "mfma.scale_nan",
        Evidence.chosen,
        "CDNA4 ISA 7.2: 0xFF is NaN",
        "A NaN scale makes its whole row or column NaN, even with zero data.",
    ),
    *CLASS_RULES["byte_deep"].values(),
    *CLASS_RULES["small"].values(),
    *_GROUPS,
)

F64_RULES: tuple[Rule, ...] = (
    QUESTION_RULES["f64"],
    _OVERFLOW_STEP,
    _NAN,
    _NAN_BITS,
    rule(
        "mfma.f64_negate",
        Evidence.spec,
        "CDNA4 ISA 7.1.6.4, 7.4",
        "BLGP's bits negate A, B and C of f64 instructions; CBSZ, ABID and MODE mean nothing to them.",
    ),
)
F32_RULES: tuple[Rule, ...] = (
    QUESTION_RULES["f32"],
    _OVERFLOW,
    _OVERFLOW_STEP,
    _NAN,
    _NAN_BITS,
    QUESTION_RULES["f32_denorm"],
)
INTEGER_RULES: tuple[Rule, ...] = (
    rule(
        "mfma.i8",
        Evidence.spec,
        "CDNA4 ISA 7.1.2, 7.4, 12.10",
        "i8: the exact sum of the signed products is added to C modulo 2^32.",
    ),
    QUESTION_RULES["i8"],
)
SPARSE_RULES: tuple[Rule, ...] = (
    INDEX_SET_RULE,
    rule(
        "mfma.sparse_index",
        Evidence.chosen,
        "CDNA4 ISA 7.5 wants the two of a pair to be different and ascending",
        "Every stored element meets the k that its own two bits name, also where the two of a pair are not ascending.",
    ),
    QUESTION_RULES["sparse_order"],
)
BROADCAST_RULES: tuple[Rule, ...] = (
    rule(
        "mfma.broadcast",
        Evidence.published,
        "fpsan's tests on gfx950; so has it CDNA4 ISA table 89 and AMD's matrix instruction calculator, while 7.1.6.1"
        " differs where 2^CBSZ is not the number of blocks",
        "In every 2^CBSZ consecutive blocks, A is that of the one numbered ABID among them.",
    ),
    rule(
        "mfma.broadcast_limits",
        Evidence.chosen,
        "CDNA4 ISA table 89: 2^CBSZ is at most the number of blocks, ABID less than 2^CBSZ",
        "A CBSZ or ABID beyond that is refused.",
    ),
    rule(
        "mfma.b_lanes",
        Evidence.published,
        "CDNA4 ISA table 29; fpsan tests on gfx950",
        "BLGP: 1 and 2 put the lower or upper 32 lanes of B in both halves, 3 rotates by 16 lanes, 4 to 7 put one group"
        " of 16 lanes in all four.",
    ),
)
SCALE_RULES: tuple[Rule, ...] = (
    rule(
        "mfma.scale_constant",
        Evidence.chosen,
        "CDNA4 ISA 7.2.1: of inline float constants only the exponent is used; LLVM encodes integers too",
        "A scale that is an inline float is its exponent field, whatever byte is picked; an inline integer or a scalar"
        " register gives its bytes as a vector register does.",
    ),
    rule(
        "mfma.load_scale",
        Evidence.spec,
        "CDNA4 ISA 7.1.5, 7.2.1",
        "V_MFMA_LD_SCALE_B32 acts on the F8F6F4 instruction that follows it at once and has ABID[0] set; before any"
        " other it does nothing.",
    ),
)


_DEEP = {"f8f6f4": F8F6F4_RULES, "f16": HALF_DEEP_RULES, "f8": BYTE_DEEP_RULES}
_KINDS = {"f16": HALF_RULES, "f8": BYTE_RULES, "f32": F32_RULES, "f64": F64_RULES, "i8": INTEGER_RULES}


def rules_of(native: str) -> tuple[Rule, ...]:
    """What the arithmetic of a matrix native rests on, apart from layouts."""
    kind = kind_of(native)
    rules = (_DEEP if is_deep(native) else _KINDS)[kind]
    rules += SCALE_RULES if kind == "f8f6f4" else ()
    return rules + (SPARSE_RULES if SHAPES[native].sparse else ())
