"""What the bits of matrix instructions rest on."""

from __future__ import annotations

from gfx950.evidence import Evidence, Rule, rule
from gfx950.layouts import INDEX_SET_RULE

_GFX942 = "MMA-Sim 2.1.1 (arXiv 2511.10909): MI300X probes and random full-bit tests"
_OVERFLOW = rule(
    "mfma.overflow",
    Evidence.spec,
    "CDNA4 ISA 7.1.2",
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
    "Every NaN result is 0x7FC00000, of f64 instructions 0x7FF8000000000000.",
)
# What a group step rests on, whatever the formats.
_GROUP: tuple[Rule, ...] = (
    rule(
        "mfma.group_order",
        Evidence.carried,
        _GFX942,
        "Groups follow each other in ascending logical k, each through a rounded f32.",
    ),
    rule(
        "mfma.product_bits",
        Evidence.carried,
        _GFX942,
        "Products are cut toward zero 24 bits below the group's largest exponent.",
    ),
    rule(
        "mfma.dot_bits",
        Evidence.carried,
        _GFX942,
        "The group sum is floored 32 bits below the larger of its and C's exponent.",
    ),
    rule("mfma.c_bits", Evidence.carried, _GFX942, "C is floored 24 bits below that exponent."),
    rule(
        "mfma.sum_bits",
        Evidence.carried,
        _GFX942,
        "The total is floored 31 bits below its exponent, then rounded to nearest even.",
    ),
    rule(
        "mfma.subnormals",
        Evidence.spec,
        "CDNA4 ISA 7.1.2, 7.4",
        "Subnormal inputs, C and D are kept whatever MODE says.",
    ),
    _OVERFLOW,
    _OVERFLOW_STEP,
    rule(
        "mfma.specials",
        Evidence.carried,
        _GFX942,
        "Inf * 0 and Inf - Inf are NaN; Inf and NaN of A, B and C propagate.",
    ),
    _NAN_BITS,
    rule("mfma.signed_zero", Evidence.carried, _GFX942, "An exactly zero total is +0, also for C = -0."),
)
HALF_RULES: tuple[Rule, ...] = (
    rule("mfma.group_length.f16_bf16", Evidence.carried, _GFX942, "f16 and bf16: groups of 8 products."),
    rule("mfma.product_overflow", Evidence.carried, _GFX942, "A bf16 product of 2^128 or more is Inf before summing."),
    *_GROUP,
)
BYTE_RULES: tuple[Rule, ...] = (
    rule(
        "mfma.group_length.fp8_bf8",
        Evidence.carried,
        _GFX942,
        "fp8 and bf8: groups of 16 products, at every K and also in F8F6F4.",
    ),
    rule(
        "mfma.split",
        Evidence.carried,
        _GFX942,
        "8-bit formats align even and odd k apart, then floor both to the larger exponent.",
    ),
    rule(
        "mfma.c_window",
        Evidence.carried,
        _GFX942,
        "8-bit formats drop C more than 25 binades below; f16 and bf16 never drop it.",
    ),
    *_GROUP,
)
F8F6F4_RULES: tuple[Rule, ...] = (
    rule(
        "mfma.group_length.fp6_fp4", Evidence.chosen, "nothing published", "fp6, bf6, fp4: the same group step as fp8."
    ),
    rule(
        "mfma.mixed_formats",
        Evidence.chosen,
        "nothing published",
        "A mixed pair follows its wider format's group step.",
    ),
    rule(
        "mfma.scale_entry",
        Evidence.chosen,
        "CDNA4 ISA 7.2 gives only the value",
        "Block scales add to product exponents before C is aligned.",
    ),
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
    *BYTE_RULES,
)

_CHAIN = rule(
    "mfma.chain",
    Evidence.carried,
    _GFX942,
    "f32 and f64: fused multiply-adds in ascending k that begin with C, each rounded once to nearest even.",
)
F64_RULES: tuple[Rule, ...] = (
    _CHAIN,
    _OVERFLOW_STEP,
    _NAN_BITS,
    rule(
        "mfma.f64_negate",
        Evidence.spec,
        "CDNA4 ISA 7.1.6.4",
        "BLGP's bits negate A, B and C of f64 instructions; CBSZ, ABID and MODE mean nothing to them.",
    ),
)
F32_RULES: tuple[Rule, ...] = (
    _CHAIN,
    _OVERFLOW,
    _OVERFLOW_STEP,
    _NAN_BITS,
    rule(
        "mfma.f32_denorm",
        Evidence.spec,
        "CDNA4 ISA 7.4; 7.1.2 says that MODE's denormal fields are ignored",
        "Subnormal A and B of f32 instructions become zeros of their sign unless MODE keeps f32 inputs; C and D keep"
        " theirs.",
    ),
)
INTEGER_RULES: tuple[Rule, ...] = (
    rule(
        "mfma.i8",
        Evidence.spec,
        "CDNA4 ISA 7.1.2, 12.10",
        "i8: the exact sum of the signed products is added to C modulo 2^32.",
    ),
    rule(
        "mfma.i8_overflow",
        Evidence.chosen,
        "CDNA4 ISA 7.1.2: an i32 result is clamped under FP16_OVFL",
        "Under FP16_OVFL that one addition saturates; partial sums do not.",
    ),
)
SPARSE_RULES: tuple[Rule, ...] = (
    INDEX_SET_RULE,
    rule(
        "mfma.sparse_index",
        Evidence.chosen,
        "CDNA4 ISA 7.5 wants the two of a pair to be different and ascending",
        "Every stored element meets the k that its own two bits name, also where the two of a pair are not ascending.",
    ),
    rule(
        "mfma.sparse_order",
        Evidence.chosen,
        "nothing published",
        "The stored elements of a sparse A are grouped as those of a dense A of half the depth.",
    ),
)
BROADCAST_RULES: tuple[Rule, ...] = (
    rule(
        "mfma.broadcast",
        Evidence.spec,
        "CDNA4 ISA table 89 and AMD's matrix instruction calculator; 7.1.6.1 differs where 2^CBSZ is not the number of"
        " blocks; fpsan's tests on gfx950 have it so",
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
