"""What integer and conversion instructions compute, as C expressions: an oracle that shares nothing with the bodies.

a, b, c are the operands in the order of the body's parameters, in the C type of their lane type; `lane` is the lane,
SAT(x) is x brought into the result's range with clamp and cut to its bits without. An entry is the result, or the
result and the mask (carry, SCC).
"""

from __future__ import annotations

PREAMBLE = r"""
#include <stdint.h>
#include <string.h>
#include <math.h>
typedef uint8_t U8; typedef uint16_t U16; typedef uint32_t U32; typedef uint64_t U64;
typedef int16_t I16; typedef int32_t I32; typedef int64_t I64; typedef int Mask; typedef __int128 Wide;
typedef _Float16 F16; typedef float F32; typedef double F64;

static Wide least(Wide a, Wide b) { return a < b ? a : b; }
static Wide most(Wide a, Wide b) { return a > b ? a : b; }
static Wide limit(Wide x, Wide low, Wide high) { return most(low, least(x, high)); }
static Wide middle(Wide a, Wide b, Wide c) { return most(least(a, b), least(most(a, b), c)); }
static I32 s24(I32 x) { return (I32)((U32)x << 8) >> 8; }
static U32 u24(U32 x) { return x & 0xffffff; }
static U32 raw(F16 x) { U16 bits; memcpy(&bits, &x, 2); return bits; }
static U32 byte(U64 x, int i) { return x >> 8 * i & 255; }
static U32 distance(U32 a, U32 b) { return a > b ? a - b : b - a; }
static U64 field(U64 x, int low, int count) { return x >> low & (count >= 64 ? ~0ull : (1ull << count) - 1); }
static I64 signed_field(U64 x, int count) { return count == 0 ? 0 : (I64)(x << (64 - count)) >> (64 - count); }

static int ones(U64 x) {
  int n = 0;
  for (; x; x &= x - 1) n++;
  return n;
}
static int leading(U64 x, int width) {
  int n = 0;
  while (n < width && !(x >> (width - 1 - n) & 1)) n++;
  return n;
}
static int trailing(U64 x, int width) {
  int n = 0;
  while (n < width && !(x >> n & 1)) n++;
  return n;
}
static U64 reversed(U64 x, int width) {
  U64 r = 0;
  for (int i = 0; i < width; i++) r |= (x >> i & 1) << (width - 1 - i);
  return r;
}
static U32 sad(U32 a, U32 b, int masked) {
  U32 total = 0;
  for (int i = 0; i < 4; i++) total += masked && !byte(b, i) ? 0 : distance(byte(a, i), byte(b, i));
  return total;
}
static U64 quads(U64 a, U32 b, U64 c, int masked, int clamp) {
  U64 r = 0;
  for (int i = 0; i < 4; i++) {
    U32 total = sad((U32)(a >> 8 * i), b, masked) + (U32)field(c, 16 * i, 16);
    r |= (U64)(clamp && total > 65535 ? 65535 : total & 65535) << 16 * i;
  }
  return r;
}
static U32 lerp(U32 a, U32 b, U32 c) {
  U32 r = 0;
  for (int i = 0; i < 4; i++) r |= (byte(a, i) + byte(b, i) + (byte(c, i) & 1)) / 2 << 8 * i;
  return r;
}
static U32 permuted(U32 high, U32 low, U32 select) {
  U64 data = (U64)high << 32 | low;
  U32 r = 0;
  for (int i = 0; i < 4; i++) {
    U32 s = byte(select, i);
    U32 filled = s > 12 ? 255 : s == 12 ? 0 : (byte(data, 2 * (s & 3) + 1) >> 7) * 255;
    r |= (s > 7 ? filled : byte(data, s)) << 8 * i;
  }
  return r;
}
static Wide part(U32 x, int i, int bits, int is_signed) {
  U64 v = field(x, bits * i, bits);
  return is_signed ? signed_field(v, bits) : (Wide)v;
}
static Wide dot(U32 a, U32 b, Wide c, int bits, int is_signed) {
  for (int i = 0; i < 32 / bits; i++) c += part(a, i, bits, is_signed) * part(b, i, bits, is_signed);
  return c;
}
static U64 quad_masks(U64 x, int pack) {
  U64 r = 0;
  for (int i = 0; i < 16; i++)
    if (x >> 4 * i & 15) r |= pack ? 1ull << i : 15ull << 4 * i;
  return r;
}
static U64 twice(U32 x) {
  U64 r = 0;
  for (int i = 0; i < 32; i++) r |= (U64)(x >> i & 1) * 3 << 2 * i;
  return r;
}
static Wide integer(F64 x, Wide low, Wide high) {
  return x != x ? 0 : x <= (F64)low ? low : x >= (F64)high ? high : (Wide)x;
}
static int exponent(F64 x) {
  int e = 0;
  if (x - x == 0 && x != 0) frexp(x, &e);
  return e;
}
static int scaled(F64 x, F64 by, int low, int high) {
  return x != x ? 0 : (int)limit((Wide)rint(fmax(fmin(x, 2), -2) * by), low, high);
}
"""

_SHIFTS = {
    "lshr": "(U{w})b >> (a & {m})",
    "ashr": "(I{w})b >> (a & {m})",
    "lshl": "(U{w})b << (a & {m})",
}
VECTOR: dict[str, str | tuple[str, str]] = {
    "v_not_b32": "~a",
    "v_bfrev_b32": "reversed(a, 32)",
    "v_ffbh_u32": "a ? leading(a, 32) : -1",
    "v_ffbl_b32": "a ? trailing(a, 32) : -1",
    "v_ffbh_i32": "a == 0 || a == -1 ? -1 : leading((U32)(a < 0 ? ~a : a), 32)",
    "v_prng_b32": "(a << 1) ^ (a >> 31) * 197",
    "v_sat_pk_u8_i16": "(U32)limit((I16)a, 0, 255) | (U32)limit((I16)(a >> 16), 0, 255) << 8",
    "v_mul_i32_i24": "SAT((Wide)s24(a) * s24(b))",
    "v_mul_hi_i32_i24": "((I64)s24(a) * s24(b)) >> 32",
    "v_mul_u32_u24": "SAT((Wide)u24(a) * u24(b))",
    "v_mul_hi_u32_u24": "((U64)u24(a) * u24(b)) >> 32",
    "v_lshrrev_b32": _SHIFTS["lshr"].format(w=32, m=31),
    "v_ashrrev_i32": _SHIFTS["ashr"].format(w=32, m=31),
    "v_lshlrev_b32": _SHIFTS["lshl"].format(w=32, m=31),
    "v_lshrrev_b16": _SHIFTS["lshr"].format(w=16, m=15),
    "v_ashrrev_i16": _SHIFTS["ashr"].format(w=16, m=15),
    "v_lshlrev_b16": _SHIFTS["lshl"].format(w=16, m=15),
    "v_lshrrev_b64": _SHIFTS["lshr"].format(w=64, m=63),
    "v_ashrrev_i64": _SHIFTS["ashr"].format(w=64, m=63),
    "v_lshlrev_b64": _SHIFTS["lshl"].format(w=64, m=63),
    "v_and_b32": "a & b",
    "v_or_b32": "a | b",
    "v_xor_b32": "a ^ b",
    "v_xnor_b32": "~(a ^ b)",
    "v_add_co_u32": ("SAT((Wide)a + b)", "(Wide)a + b > 0xffffffff"),
    "v_sub_co_u32": ("SAT((Wide)a - b)", "b > a"),
    "v_subrev_co_u32": ("SAT((Wide)b - a)", "a > b"),
    "v_addc_co_u32": ("SAT((Wide)a + b + c)", "(Wide)a + b + c > 0xffffffff"),
    "v_subb_co_u32": ("SAT((Wide)a - b - c)", "(Wide)b + c > a"),
    "v_subbrev_co_u32": ("SAT((Wide)b - a - c)", "(Wide)a + c > b"),
    "v_mul_lo_u16": "(U32)a * b",
    "v_dot2c_i32_i16": "SAT(dot(a, b, c, 16, 1))",
    "v_dot4c_i32_i8": "SAT(dot(a, b, c, 8, 1))",
    "v_dot8c_i32_i4": "SAT(dot(a, b, c, 4, 1))",
    "v_dot2_i32_i16": "SAT(dot(a, b, c, 16, 1))",
    "v_dot2_u32_u16": "SAT(dot(a, b, c, 16, 0))",
    "v_dot4_i32_i8": "SAT(dot(a, b, c, 8, 1))",
    "v_dot4_u32_u8": "SAT(dot(a, b, c, 8, 0))",
    "v_dot8_i32_i4": "SAT(dot(a, b, c, 4, 1))",
    "v_dot8_u32_u4": "SAT(dot(a, b, c, 4, 0))",
    "v_cvt_pk_u16_u32": "(U32)least(a, 65535) | (U32)least(b, 65535) << 16",
    "v_cvt_pk_i16_i32": "(U16)limit(a, -32768, 32767) | (U32)limit(b, -32768, 32767) << 16",
    "v_mad_i32_i24": "SAT((Wide)s24(a) * s24(b) + c)",
    "v_mad_u32_u24": "SAT((Wide)u24(a) * u24(b) + c)",
    "v_mad_u32_u16": "SAT((Wide)a * b + c)",
    "v_mad_i32_i16": "SAT((Wide)a * b + c)",
    "v_mul_lo_u32": "a * b",
    "v_mul_hi_u32": "(U64)a * b >> 32",
    "v_mul_hi_i32": "(I64)a * b >> 32",
    "v_mad_u64_u32": ("SAT((Wide)a * b + c)", "((Wide)a * b + c) >> 64 & 1"),
    "v_mad_i64_i32": ("SAT((Wide)a * b + c)", "((Wide)a * b + c) >> 64 & 1"),
    "v_add3_u32": "a + b + c",
    "v_lshl_add_u32": "(a << (b & 31)) + c",
    "v_add_lshl_u32": "(a + b) << (c & 31)",
    "v_lshl_add_u64": "(a << ((b & 7) > 4 ? 0 : b & 7)) + c",
    "v_xad_u32": "(a ^ b) + c",
    "v_lshl_or_b32": "(a << (b & 31)) | c",
    "v_and_or_b32": "(a & b) | c",
    "v_or3_b32": "a | b | c",
    "v_bfe_u32": "field(a, b & 31, c & 31)",
    "v_bfe_i32": "signed_field(field(a, b & 31, c & 31) | ((I64)a >> (b & 31) & 0xffffffff), c & 31)",
    "v_bfi_b32": "(a & b) | (~a & c)",
    "v_bfm_b32": "((1u << (a & 31)) - 1) << (b & 31)",
    "v_alignbit_b32": "((U64)a << 32 | b) >> (c & 31)",
    "v_alignbyte_b32": "((U64)a << 32 | b) >> 8 * (c & 3)",
    "v_perm_b32": "permuted(a, b, c)",
    "v_bcnt_u32_b32": "ones(a) + b",
    "v_mbcnt_lo_u32_b32": "ones(a & (U32)((1ull << lane) - 1)) + b",
    "v_mbcnt_hi_u32_b32": "ones(a & (U32)(((1ull << lane) - 1) >> 32)) + b",
    "v_sad_u8": "SAT((Wide)sad(a, b, 0) + c)",
    "v_sad_hi_u8": "SAT(((Wide)sad(a, b, 0) << 16) + c)",
    "v_sad_u16": "SAT((Wide)distance(a & 65535, b & 65535) + distance(a >> 16, b >> 16) + c)",
    "v_sad_u32": "SAT((Wide)distance(a, b) + c)",
    "v_msad_u8": "SAT((Wide)sad(a, b, 1) + c)",
    "v_lerp_u8": "lerp(a, b, c)",
    "v_ashr_pk_i8_i32": "(U8)limit(a >> (c & 31), -128, 127) | (U8)limit(b >> (c & 31), -128, 127) << 8",
    "v_ashr_pk_u8_i32": "(U8)limit(a >> (c & 31), 0, 255) | (U8)limit(b >> (c & 31), 0, 255) << 8",
    "v_qsad_pk_u16_u8": "quads(a, b, c, 0, clamp)",
    "v_mqsad_pk_u16_u8": "quads(a, b, c, 1, clamp)",
    "v_pk_lshrrev_b16": "b >> (a & 15)",
    "v_pk_ashrrev_i16": "b >> (a & 15)",
    "v_pk_lshlrev_b16": "(U32)b << (a & 15)",
    "v_pack_b32_f16": "raw(a) | (U32)raw(b) << 16",
}
for _name, _text in {"add": "(Wide)a + b", "sub": "(Wide)a - b", "subrev": "(Wide)b - a"}.items():
    for _kind in ("u32", "u16", "i32", "i16"):
        if _kind[0] == "u" or _name != "subrev":
            VECTOR[f"v_{_name}_{_kind}"] = f"SAT({_text})"
    if _name != "subrev":
        VECTOR |= {f"v_pk_{_name}_{kind}": f"SAT({_text})" for kind in ("u16", "i16")}
for _kind in ("i32", "u32", "i16", "u16"):
    VECTOR |= {f"v_min_{_kind}": "least(a, b)", f"v_max_{_kind}": "most(a, b)"}
    VECTOR |= {f"v_min3_{_kind}": "least(a, least(b, c))", f"v_max3_{_kind}": "most(a, most(b, c))"}
    VECTOR[f"v_med3_{_kind}"] = "middle(a, b, c)"
for _kind in ("i16", "u16"):
    VECTOR |= {f"v_pk_min_{_kind}": "least(a, b)", f"v_pk_max_{_kind}": "most(a, b)"}
    VECTOR |= {f"v{pk}_mad_{_kind}": "SAT((Wide)a * b + c)" for pk in ("", "_pk")}
    VECTOR[f"v_mad_legacy_{_kind}"] = "SAT((Wide)a * b + c)"
VECTOR["v_pk_mul_lo_u16"] = "SAT((Wide)a * b)"

_SIGNS = {"lt": "<", "eq": "==", "le": "<=", "gt": ">", "ne": "!=", "ge": ">="}
COMPARES: dict[str, str] = {}
for _kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
    for _prefix in ("v_cmp", "v_cmpx"):
        COMPARES |= {f"{_prefix}_{name}_{_kind}": f"a {sign} b" for name, sign in _SIGNS.items()}
        COMPARES |= {f"{_prefix}_f_{_kind}": "0", f"{_prefix}_t_{_kind}": "1"}
for _name, _sign in (("eq", "=="), ("lg", "!="), ("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<=")):
    COMPARES |= {f"s_cmp_{_name}_{kind}": f"a {_sign} b" for kind in ("i32", "u32")}
COMPARES |= {"s_cmp_eq_u64": "a == b", "s_cmp_lg_u64": "a != b"}
for _bit in (0, 1):
    COMPARES |= {f"s_bitcmp{_bit}_b{w}": f"(a >> (b & {w - 1}) & 1) == {_bit}" for w in (32, 64)}

_NOT_ZERO = "D != 0"
SCALAR: dict[str, str | tuple[str, str]] = {
    "s_mov_b32": "a",
    "s_mov_b64": "a",
    "s_cmov_b32": "c ? a : b",
    "s_cmov_b64": "c ? a : b",
    "s_sext_i32_i8": "(int8_t)a",
    "s_sext_i32_i16": "(I16)a",
    "s_flbit_i32": "a == 0 || a == -1 ? -1 : leading((U32)(a < 0 ? ~a : a), 32)",
    "s_flbit_i32_i64": "a == 0 || a == -1 ? -1 : leading((U64)(a < 0 ? ~a : a), 64)",
    "s_abs_i32": ("a < 0 ? -(U32)a : a", _NOT_ZERO),
    "s_bitreplicate_b64_b32": "twice(a)",
    "s_add_u32": ("a + b", "(U64)a + b > 0xffffffff"),
    "s_sub_u32": ("a - b", "b > a"),
    "s_add_i32": ("(U32)a + b", "(I64)a + b != (I32)((U32)a + b)"),
    "s_sub_i32": ("(U32)a - b", "(I64)a - b != (I32)((U32)a - b)"),
    "s_addc_u32": ("a + b + c", "(U64)a + b + c > 0xffffffff"),
    "s_subb_u32": ("a - b - c", "(U64)b + c > a"),
    "s_min_i32": ("least(a, b)", "a < b"),
    "s_min_u32": ("least(a, b)", "a < b"),
    "s_max_i32": ("most(a, b)", "a >= b"),
    "s_max_u32": ("most(a, b)", "a >= b"),
    "s_cselect_b32": "c ? a : b",
    "s_cselect_b64": "c ? a : b",
    "s_bfe_u32": ("field(a, b & 31, b >> 16 & 127)", _NOT_ZERO),
    "s_bfe_u64": ("field(a, b & 63, b >> 16 & 127)", _NOT_ZERO),
    "s_mul_i32": "(U32)a * b",
    "s_mul_hi_u32": "(U64)a * b >> 32",
    "s_mul_hi_i32": "(I64)a * b >> 32",
    "s_absdiff_i32": ("(I32)((U32)a - b) < 0 ? (U32)b - a : (U32)a - b", _NOT_ZERO),
    "s_pack_ll_b32_b16": "(a & 65535) | b << 16",
    "s_pack_lh_b32_b16": "(a & 65535) | (b & 0xffff0000)",
    "s_pack_hh_b32_b16": "a >> 16 | (b & 0xffff0000)",
}
for _w in (32, 64):
    SCALAR |= {
        f"s_not_b{_w}": ("~a", _NOT_ZERO),
        f"s_wqm_b{_w}": ("quad_masks(a, 0)", _NOT_ZERO),
        f"s_quadmask_b{_w}": ("quad_masks(a, 1)", _NOT_ZERO),
        f"s_brev_b{_w}": f"reversed(a, {_w})",
        f"s_bcnt0_i32_b{_w}": (f"{_w} - ones(a)", _NOT_ZERO),
        f"s_bcnt1_i32_b{_w}": ("ones(a)", _NOT_ZERO),
        f"s_ff0_i32_b{_w}": f"(U{_w})~a ? trailing((U{_w})~a, {_w}) : -1",
        f"s_ff1_i32_b{_w}": f"a ? trailing(a, {_w}) : -1",
        f"s_flbit_i32_b{_w}": f"a ? leading(a, {_w}) : -1",
        f"s_bitset0_b{_w}": f"b & ~((U{_w})1 << (a & {_w - 1}))",
        f"s_bitset1_b{_w}": f"b | ((U{_w})1 << (a & {_w - 1}))",
        f"s_lshl_b{_w}": (f"a << (b & {_w - 1})", _NOT_ZERO),
        f"s_lshr_b{_w}": (f"a >> (b & {_w - 1})", _NOT_ZERO),
        f"s_ashr_i{_w}": (f"a >> (b & {_w - 1})", _NOT_ZERO),
        f"s_bfm_b{_w}": f"(((U{_w})1 << (a & {_w - 1})) - 1) << (b & {_w - 1})",
    }
    for _name, _text in {
        "and": "a & b", "or": "a | b", "xor": "a ^ b", "andn2": "a & ~b", "orn2": "a | ~b", "nand": "~(a & b)",
        "nor": "~(a | b)", "xnor": "~(a ^ b)",
    }.items():  # fmt: skip
        SCALAR[f"s_{_name}_b{_w}"] = (_text, _NOT_ZERO)
for _n in (1, 2, 3, 4):
    SCALAR[f"s_lshl{_n}_add_u32"] = (f"(a << {_n}) + b", f"(((U64)a << {_n}) + b) > 0xffffffff")

CONVERSIONS: dict[str, str | tuple[str, str]] = {
    "v_cvt_i32_f64": "integer(a, INT32_MIN, INT32_MAX)",
    "v_cvt_u32_f64": "integer(a, 0, UINT32_MAX)",
    "v_cvt_i32_f32": "integer(a, INT32_MIN, INT32_MAX)",
    "v_cvt_u32_f32": "integer(a, 0, UINT32_MAX)",
    "v_cvt_rpi_i32_f32": "integer(floor((F64)a + 0.5), INT32_MIN, INT32_MAX)",
    "v_cvt_flr_i32_f32": "integer(floor(a), INT32_MIN, INT32_MAX)",
    "v_cvt_u16_f16": "integer((F64)a, 0, 65535)",
    "v_cvt_i16_f16": "integer((F64)a, -32768, 32767)",
    "v_cvt_f64_i32": "a",
    "v_cvt_f64_u32": "a",
    "v_cvt_f32_i32": "a",
    "v_cvt_f32_u32": "a",
    "v_cvt_f16_u16": "(F32)a",
    "v_cvt_f16_i16": "(F32)a",
    "v_cvt_f32_f16": "a",
    "v_cvt_f16_f32": "a",
    "v_cvt_f32_f64": "a",
    "v_cvt_f64_f32": "a",
    "v_cvt_off_f32_i4": "(F32)((I32)(a << 28) >> 28) / 16",
    "v_frexp_exp_i32_f64": "exponent(a)",
    "v_frexp_exp_i32_f32": "exponent(a)",
    "v_frexp_exp_i16_f16": "exponent(a)",
    "v_cvt_norm_i16_f16": "scaled(a, 32767, -32767, 32767)",
    "v_cvt_norm_u16_f16": "scaled(a, 65535, 0, 65535)",
}
CONVERSIONS |= {f"v_cvt_f32_ubyte{n}": f"byte(a, {n})" for n in range(4)}
