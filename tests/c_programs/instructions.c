// One program a family of instructions. The chip runs the instruction by its builtin, the host a model of it in plain C,
// written from the ISA's text and not from the emulator.

typedef union { float f; u32 u; } single;
typedef union { double f; u64 u; } twice;
typedef union { _Float16 f; u16 u; } half;
static float as_float(u32 x) { single s; s.u = x; return s.f; }
static u32 of_float(float x) { single s; s.f = x; return x != x ? 0x7fc00000u : s.u; }
static double as_double(u64 x) { twice d; d.u = x; return d.f; }
static u64 of_double(double x) { twice d; d.f = x; return x != x ? 0x7ff8000000000000ull : d.u; }
static _Float16 as_half(u32 x) { half h; h.u = (u16)x; return h.f; }
static u32 of_half(_Float16 x) { half h; h.f = x; return x != x ? 0x7e00u : h.u; }

#ifdef __AMDGCN__
#define CHIP(builtin, ...) __builtin_amdgcn_##builtin(__VA_ARGS__)
#else
#define CHIP(builtin, ...) model_##builtin(__VA_ARGS__)
static i32 clamped(i64 x, i64 low, i64 high) { return (i32)(x < low ? low : x > high ? high : x); }
static u32 byte_of(u32 x, u32 k) { return x >> 8 * k & 255; }
static u32 apart(u32 a, u32 b) { return a > b ? a - b : b - a; }

static u32 model_alignbit(u32 high, u32 low, u32 shift) { return (u32)(((u64)high << 32 | low) >> (shift & 31)); }
static u32 model_alignbyte(u32 high, u32 low, u32 shift) { return (u32)(((u64)high << 32 | low) >> 8 * (shift & 3)); }
static u32 model_perm(u32 high, u32 low, u32 select) {
  u64 both = (u64)high << 32 | low; u32 result = 0;
  for (u32 k = 0; k < 4; k++) {
    u32 s = byte_of(select, k), value;
    if (s <= 7) value = both >> 8 * s & 255;
    else if (s <= 11) value = both >> (16 * (s - 8) + 15) & 1 ? 255 : 0;
    else value = s == 12 ? 0 : 255;
    result |= value << 8 * k;
  }
  return result; }
static u32 model_ubfe(u32 x, u32 offset, u32 width) {
  offset &= 31; width &= 31; return x >> offset & ((1u << width) - 1); }
static i32 model_sbfe(i32 x, u32 offset, u32 width) {
  offset &= 31; width &= 31;
  if (!width) return 0;
  u32 field = (u32)(x >> offset) & ((1u << width) - 1);
  return field >> (width - 1) & 1 ? (i32)(field | ~0u << width) : (i32)field; }
static u32 model_lerp(u32 a, u32 b, u32 c) {
  u32 r = 0; for (u32 k = 0; k < 4; k++) r |= (byte_of(a, k) + byte_of(b, k) + (byte_of(c, k) & 1)) >> 1 << 8 * k; return r; }
static u32 model_sad_u8(u32 a, u32 b, u32 sum) { for (u32 k = 0; k < 4; k++) sum += apart(byte_of(a, k), byte_of(b, k)); return sum; }
static u32 model_sad_hi_u8(u32 a, u32 b, u32 c) { return (model_sad_u8(a, b, 0) << 16) + c; }
static u32 model_sad_u16(u32 a, u32 b, u32 c) { return c + apart(a & 0xffff, b & 0xffff) + apart(a >> 16, b >> 16); }
static u32 model_msad_u8(u32 a, u32 reference, u32 sum) {
  for (u32 k = 0; k < 4; k++) if (byte_of(reference, k)) sum += apart(byte_of(a, k), byte_of(reference, k)); return sum; }
static u64 model_qsad_pk_u16_u8(u64 a, u32 reference, u64 sums) {
  u64 r = 0; for (u32 k = 0; k < 4; k++) r |= (u64)(u16)model_sad_u8((u32)(a >> 8 * k), reference, (u16)(sums >> 16 * k)) << 16 * k; return r; }
static u64 model_mqsad_pk_u16_u8(u64 a, u32 reference, u64 sums) {
  u64 r = 0; for (u32 k = 0; k < 4; k++) r |= (u64)(u16)model_msad_u8((u32)(a >> 8 * k), reference, (u16)(sums >> 16 * k)) << 16 * k; return r; }
static u32 model_bitop3_b32(u32 a, u32 b, u32 c, u32 table) {
  u32 r = 0; for (u32 k = 0; k < 32; k++) r |= (table >> ((a >> k & 1) << 2 | (b >> k & 1) << 1 | (c >> k & 1)) & 1) << k; return r; }
static u16 model_ashr_pk_i8_i32(u32 a, u32 b, u32 shift) {
  return (u16)((u8)clamped((i32)a >> (shift & 31), -128, 127) | (u8)clamped((i32)b >> (shift & 31), -128, 127) << 8); }
static u16 model_ashr_pk_u8_i32(u32 a, u32 b, u32 shift) {
  return (u16)((u8)clamped((i32)a >> (shift & 31), 0, 255) | (u8)clamped((i32)b >> (shift & 31), 0, 255) << 8); }
static i32 model_sdot2(const i16 *a, const i16 *b, i32 c, int clamp) {
  i64 sum = c + (i64)a[0] * b[0] + (i64)a[1] * b[1]; return clamp ? clamped(sum, -0x80000000ll, 0x7fffffff) : (i32)(u32)sum; }
static u32 model_udot2(const u16 *a, const u16 *b, u32 c, int clamp) {
  u64 sum = c + (u64)a[0] * b[0] + (u64)a[1] * b[1]; return clamp && sum > 0xffffffff ? 0xffffffff : (u32)sum; }
static i32 dot_fields(u32 a, u32 b, i32 c, u32 width, int sign, int clamp) {
  i64 sum = sign ? (i64)c : (i64)(u32)c;
  for (u32 k = 0; k < 32; k += width) {
    u32 x = a >> k & ((1u << width) - 1), y = b >> k & ((1u << width) - 1);
    sum += sign ? (i64)model_sbfe((i32)a, k, width) * model_sbfe((i32)b, k, width) : (i64)x * y;
  }
  if (!clamp) return (i32)(u32)sum;
  return sign ? clamped(sum, -0x80000000ll, 0x7fffffff) : (i32)(u32)(sum > 0xffffffffll ? 0xffffffffll : sum); }
static i32 model_sdot4(i32 a, i32 b, i32 c, int clamp) { return dot_fields((u32)a, (u32)b, c, 8, 1, clamp); }
static u32 model_udot4(u32 a, u32 b, u32 c, int clamp) { return (u32)dot_fields(a, b, (i32)c, 8, 0, clamp); }
static i32 model_sdot8(i32 a, i32 b, i32 c, int clamp) { return dot_fields((u32)a, (u32)b, c, 4, 1, clamp); }
static u32 model_udot8(u32 a, u32 b, u32 c, int clamp) { return (u32)dot_fields(a, b, (i32)c, 4, 0, clamp); }
static u32 model_prng_b32(u32 x) { return x << 1 ^ (x & 0x80000000u ? 197 : 0); }

#define MEDIAN(T, name) static T name(T a, T b, T c) { \
  if (a != a || b != b || c != c) return a != a ? (b != b ? c : c != c ? b : b < c ? b : c) : b != b ? (c != c ? a : a < c ? a : c) : a < b ? a : b; \
  return a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b); }
MEDIAN(float, model_fmed3f)
MEDIAN(_Float16, model_fmed3h)
static int class_of(int negative, int exponent_full, int exponent_zero, int mantissa_zero, int quiet, int mask) {
  int bit = exponent_full && !mantissa_zero ? (quiet ? 1 : 0)
          : exponent_full ? (negative ? 2 : 9) : exponent_zero && mantissa_zero ? (negative ? 5 : 6)
          : exponent_zero ? (negative ? 4 : 7) : (negative ? 3 : 8);
  return mask >> bit & 1; }
static int model_classf(float x, int mask) { single s; s.f = x;
  return class_of(s.u >> 31, (s.u >> 23 & 255) == 255, !(s.u >> 23 & 255), !(s.u & 0x7fffff), s.u >> 22 & 1, mask); }
static int model_class(double x, int mask) { twice d; d.f = x;
  return class_of(d.u >> 63, (d.u >> 52 & 2047) == 2047, !(d.u >> 52 & 2047), !(d.u & 0xfffffffffffffull), d.u >> 51 & 1, mask); }
static int model_classh(_Float16 x, int mask) { half h; h.f = x;
  return class_of(h.u >> 15, (h.u >> 10 & 31) == 31, !(h.u >> 10 & 31), !(h.u & 1023), h.u >> 9 & 1, mask); }
static int exponent_of(double x) { int e = 0; if (x - x != 0 || x == 0) return 0; __builtin_frexp(x, &e); return e; }
static double mantissa_of(double x) { int e = 0; return x - x != 0 ? x : __builtin_frexp(x, &e); }
static int model_frexp_expf(float x) { return exponent_of(x); }
static int model_frexp_exp(double x) { return exponent_of(x); }
static i16 model_frexp_exph(_Float16 x) { return (i16)exponent_of((double)x); }
static float model_frexp_mantf(float x) { return (float)mantissa_of(x); }
static double model_frexp_mant(double x) { return mantissa_of(x); }
static _Float16 model_frexp_manth(_Float16 x) { return (_Float16)mantissa_of((double)x); }
static float model_ldexpf(float x, int e) { return __builtin_ldexpf(x, e); }
static double model_ldexp(double x, int e) { return __builtin_ldexp(x, e); }
static float model_cvt_off_f32_i4(int x) { return (float)((x & 7) - (x & 8)) / 16.0f; }
static u32 model_cvt_pk_u8_f32(float x, u32 at, u32 old) {
  u32 value = x != x || x < 0 ? 0 : x > 255 ? 255 : (u32)x;
  return (old & ~(255u << 8 * (at & 3))) | value << 8 * (at & 3); }
static u32 toward_zero(float x) { // of _Float16, by cutting
  single s; s.f = x; u32 sign = s.u >> 16 & 0x8000, m = s.u & 0x7fffff; int e = (int)(s.u >> 23 & 255) - 127;
  if (x != x) return 0x7e00;
  if (e == 128) return sign | 0x7c00;
  if (e > 15) return sign | 0x7bff;
  if (e >= -14) return sign | (u32)(e + 15) << 10 | m >> 13;
  return e < -24 ? sign : sign | (m | 0x800000) >> (13 - 14 - e); }
#endif

PROGRAM(shifts_and_permutes, 3, 6) {
  out[0] = CHIP(alignbit, in[0], in[1], in[2]);
  out[1] = CHIP(alignbyte, in[0], in[1], in[2]);
  out[2] = CHIP(perm, in[0], in[1], in[2]);
  out[3] = CHIP(perm, in[0], in[1], in[2] & 0x0f0f0f0f);
  out[4] = CHIP(ubfe, in[0], in[1], in[2]);
  out[5] = (u32)CHIP(sbfe, (i32)in[0], in[1], in[2]);
}

PROGRAM(byte_differences, 5, 9) {
  u64 a = wide_at(in, 0), sums = wide_at(in, 2) & 0x3fff3fff3fff3fffull;
  out[0] = CHIP(lerp, in[0], in[1], in[2]);
  out[1] = CHIP(sad_u8, in[0], in[1], in[2]);
  out[2] = CHIP(sad_hi_u8, in[0], in[1], in[2]);
  out[3] = CHIP(sad_u16, in[0], in[1], in[2]);
  out[4] = CHIP(msad_u8, in[0], in[1], in[2]);
  wide_to(out, 5, CHIP(qsad_pk_u16_u8, a, in[4], sums));
  wide_to(out, 7, CHIP(mqsad_pk_u16_u8, a, in[4], sums));
}

PROGRAM(four_masked_sums, 7, 4) {
#ifdef __AMDGCN__
  typedef u32 word4 __attribute__((ext_vector_type(4)));
  word4 r = __builtin_amdgcn_mqsad_u32_u8(wide_at(in, 0), in[2], (word4){in[3], in[4], in[5], in[6]});
  for (u32 k = 0; k < 4; k++) out[k] = r[k];
#else
  for (u32 k = 0; k < 4; k++) out[k] = model_msad_u8((u32)(wide_at(in, 0) >> 8 * k), in[2], in[3 + k]);
#endif
}

PROGRAM(three_operand_logic, 3, 8) {
  out[0] = CHIP(bitop3_b32, in[0], in[1], in[2], 0xca);
  out[1] = CHIP(bitop3_b32, in[0], in[1], in[2], 0x96);
  out[2] = CHIP(bitop3_b32, in[0], in[1], in[2], 0x1b);
  out[3] = CHIP(bitop3_b32, in[0], in[1], in[2], 0xe8);
  out[4] = CHIP(bitop3_b32, in[0], in[1], in[2], 0x7f);
  out[5] = CHIP(bitop3_b32, in[0], in[1], in[2], 0x42);
  out[6] = CHIP(bitop3_b32, in[0], in[1], in[2], 0x35);
#ifdef __AMDGCN__
  out[7] = (u16)__builtin_amdgcn_bitop3_b16((short)in[0], (short)in[1], (short)in[2], 0x6c);
#else
  out[7] = (u16)model_bitop3_b32(in[0], in[1], in[2], 0x6c);
#endif
}

PROGRAM(narrowing_shifts, 3, 4) {
  out[0] = (u16)CHIP(ashr_pk_i8_i32, in[0], in[1], in[2]);
  out[1] = (u16)CHIP(ashr_pk_u8_i32, in[0], in[1], in[2]);
  out[2] = (u16)CHIP(ashr_pk_i8_i32, in[0], in[1], 21);
  out[3] = CHIP(prng_b32, in[0]);
}

PROGRAM(integer_dots, 3, 12) {
#ifdef __AMDGCN__
  typedef i16 short2 __attribute__((ext_vector_type(2)));
  typedef u16 ushort2 __attribute__((ext_vector_type(2)));
  union { u32 w; short2 s; ushort2 u; } a = {in[0]}, b = {in[1]};
  out[0] = (u32)__builtin_amdgcn_sdot2(a.s, b.s, (i32)in[2], 0); out[1] = (u32)__builtin_amdgcn_sdot2(a.s, b.s, (i32)in[2], 1);
  out[2] = __builtin_amdgcn_udot2(a.u, b.u, in[2], 0); out[3] = __builtin_amdgcn_udot2(a.u, b.u, in[2], 1);
#else
  i16 s[4] = {(i16)in[0], (i16)(in[0] >> 16), (i16)in[1], (i16)(in[1] >> 16)};
  u16 u[4] = {(u16)in[0], (u16)(in[0] >> 16), (u16)in[1], (u16)(in[1] >> 16)};
  out[0] = (u32)model_sdot2(s, s + 2, (i32)in[2], 0); out[1] = (u32)model_sdot2(s, s + 2, (i32)in[2], 1);
  out[2] = model_udot2(u, u + 2, in[2], 0); out[3] = model_udot2(u, u + 2, in[2], 1);
#endif
  out[4] = (u32)CHIP(sdot4, (i32)in[0], (i32)in[1], (i32)in[2], 0);
  out[5] = (u32)CHIP(sdot4, (i32)in[0], (i32)in[1], (i32)in[2], 1);
  out[6] = CHIP(udot4, in[0], in[1], in[2], 0);
  out[7] = CHIP(udot4, in[0], in[1], in[2], 1);
  out[8] = (u32)CHIP(sdot8, (i32)in[0], (i32)in[1], (i32)in[2], 0);
  out[9] = (u32)CHIP(sdot8, (i32)in[0], (i32)in[1], (i32)in[2], 1);
  out[10] = CHIP(udot8, in[0], in[1], in[2], 0);
  out[11] = CHIP(udot8, in[0], in[1], in[2], 1);
}

// Patterns that the compiler turns into one instruction: v_add3, v_lshl_add, v_lshl_or, v_and_or, v_or3, v_xad, v_bfi,
// v_bfm, v_mad_u24, v_mad_i24, v_mul_hi, v_med3, v_cvt_f32_ubyte and others.
PROGRAM(fused_patterns, 3, 22) {
  u32 a = in[0], b = in[1], c = in[2];
  i32 x = (i32)a, y = (i32)b, z = (i32)c;
  out[0] = a + b + c;
  out[1] = (a << (b & 31)) + c;
  out[2] = (a << 5) | c;
  out[3] = (a & b) | c;
  out[4] = a | b | c;
  out[5] = (a ^ b) + c;
  out[6] = (a + b) << (c & 31);
  out[7] = (a & b) | (~a & c);
  out[8] = ((1u << (a & 31)) - 1) << (b & 31);
  out[9] = (a & 0xffffff) * (b & 0xffffff) + c;
  out[10] = (u32)((x << 8 >> 8) * (y << 8 >> 8)) + c;
  out[11] = (u32)((u64)a * b >> 32);
  out[12] = (u32)((i64)x * y >> 32);
  i32 low = x < y ? x : y, high = x < y ? y : x, m = z < low ? low : z > high ? high : z;
  out[13] = (u32)m;
  u32 ulow = a < b ? a : b, uhigh = a < b ? b : a;
  out[14] = c < ulow ? ulow : c > uhigh ? uhigh : c;
  out[15] = a > b ? (a > c ? a : c) : (b > c ? b : c);
  out[16] = of_float((float)(a >> 8 & 255)) ^ of_float((float)(b >> 24)) ^ of_float((float)(c & 255) + (float)(c >> 16 & 255));
  wide_to(out, 17, (u64)a * b + wide_at(in, 1));
  out[19] = a - b < a ? a : c;
  out[20] = ~(a ^ b) + (u32)__builtin_popcount(c);
  out[21] = (u32)((u64)(u32)x + (u64)b >> 32) + (a & ~b);
}

PROGRAM(float_fields, 3, 14) {
  float a = as_float(in[0]);
  double b = as_double(wide_at(in, 0));
  _Float16 c = as_half(in[0]);
  out[0] = (u32)CHIP(frexp_expf, a);
  out[1] = of_float(CHIP(frexp_mantf, a));
  out[2] = (u32)CHIP(frexp_exp, b);
  wide_to(out, 3, of_double(CHIP(frexp_mant, b)));
  out[5] = (u32)CHIP(frexp_exph, c);
  out[6] = of_half(CHIP(frexp_manth, c));
  int e = (int)(in[2] % 700) - 350, mask = (int)(in[2] & 0x3ff);
  out[7] = of_float(CHIP(ldexpf, a, e));
  wide_to(out, 8, of_double(CHIP(ldexp, b, e * 7)));
  out[10] = (u32)CHIP(classf, a, mask) | (u32)CHIP(class, b, mask) << 1 | (u32)CHIP(classh, c, mask) << 2;
  out[11] = of_float(CHIP(cvt_off_f32_i4, (int)in[1]));
  // of whole numbers: the manual does not say how others are rounded
  out[12] = CHIP(cvt_pk_u8_f32, __builtin_truncf(a), in[1], in[2]);
  out[13] = CHIP(cvt_pk_u8_f32, (float)(i32)(in[0] & 0x3ff) - 300.0f, in[1], in[2]);
}

PROGRAM(medians, 3, 4) {
  float a = as_float(in[0]), b = as_float(in[1]), c = as_float(in[2]);
  // of numbers: what NaNs give is a question of the mode, and +0 and -0 are one to the model
  if (a != a) a = 1.0f;
  if (b != b) b = -2.0f;
  if (c != c) c = 3e38f;
  out[0] = of_float(CHIP(fmed3f, a, b, c) + 0.0f);
  out[1] = of_float(CHIP(fmed3f, a, 0.5f, c) + 0.0f);
  _Float16 x = as_half(in[0] & 0xbfff), y = as_half(in[1] & 0xbfff), z = as_half(in[2] & 0xbfff);
  out[2] = of_half(CHIP(fmed3h, x, y, z) + (_Float16)0.0f);
  out[3] = of_half(CHIP(fmed3h, x, (_Float16)-0.25f, z) + (_Float16)0.0f);
}

PROGRAM(fractions, 2, 4) {
  float a = as_float(in[0]);
  double b = as_double(wide_at(in, 0));
  _Float16 c = as_half(in[0]);
#ifdef __AMDGCN__
  out[0] = of_float(__builtin_amdgcn_fractf(a)); wide_to(out, 1, of_double(__builtin_amdgcn_fract(b))); out[3] = of_half(__builtin_amdgcn_fracth(c));
#else
  // x - floor(x), and the largest number below one where that rounds to one
  float f = a - __builtin_floorf(a); double d = b - __builtin_floor(b); _Float16 h = c - (_Float16)__builtin_floorf((float)c);
  out[0] = f == 1.0f ? 0x3f7fffff : of_float(f); wide_to(out, 1, d == 1.0 ? 0x3fefffffffffffffull : of_double(d));
  out[3] = h == (_Float16)1 ? 0x3bff : of_half(h);
#endif
}

PROGRAM(packed_conversions, 2, 6) {
  float a = as_float(in[0]), b = as_float(in[1]);
#ifdef __AMDGCN__
  union { __fp16 __attribute__((ext_vector_type(2))) h; i16 __attribute__((ext_vector_type(2))) s; u16 __attribute__((ext_vector_type(2))) u; u32 w; } r;
  r.h = __builtin_amdgcn_cvt_pkrtz(a, b);
  half low = {.u = (u16)r.w}, high = {.u = (u16)(r.w >> 16)}; out[0] = of_half(low.f) | of_half(high.f) << 16;
  r.s = __builtin_amdgcn_cvt_pknorm_i16(a, b); out[1] = r.w;
  r.u = __builtin_amdgcn_cvt_pknorm_u16(a, b); out[2] = r.w;
  r.s = __builtin_amdgcn_cvt_pk_i16((i32)in[0], (i32)in[1]); out[3] = r.w;
  r.u = __builtin_amdgcn_cvt_pk_u16(in[0], in[1]); out[4] = r.w;
  r.s = __builtin_amdgcn_cvt_pknorm_i16((float)(i16)in[0] / 16384.0f, (float)(i16)in[1] / 32768.0f); out[5] = r.w;
#else
  float pair[2] = {a, b}, small[2] = {(float)(i16)in[0] / 16384.0f, (float)(i16)in[1] / 32768.0f};
  u32 s = 0, u = 0, n = 0;
  for (u32 k = 0; k < 2; k++) {
    double x = pair[k] != pair[k] ? 0 : pair[k], y = small[k];
    s |= (u32)(u16)(i16)__builtin_rint((x > 1 ? 1 : x < -1 ? -1 : x) * 32767) << 16 * k;
    u |= (u32)(u16)__builtin_rint((x > 1 ? 1 : x < 0 ? 0 : x) * 65535) << 16 * k;
    n |= (u32)(u16)(i16)__builtin_rint((y > 1 ? 1 : y < -1 ? -1 : y) * 32767) << 16 * k;
  }
  out[0] = toward_zero(a) | toward_zero(b) << 16; out[1] = s; out[2] = u;
  out[3] = (u16)clamped((i32)in[0], -32768, 32767) | (u32)(u16)clamped((i32)in[1], -32768, 32767) << 16;
  out[4] = (u16)clamped(in[0], 0, 65535) | (u32)(u16)clamped(in[1], 0, 65535) << 16; out[5] = n;
#endif
}

// The pieces of a division: fixing up what cannot be computed.
PROGRAM(division_pieces, 6, 3) {
  float q = as_float(in[0]), d = as_float(in[1]), n = as_float(in[2]);
  double dq = as_double(wide_at(in, 0)), dd = as_double(wide_at(in, 2)), dn = as_double(wide_at(in, 4));
  // Ordinary operands keep exponents near zero: far ones are a case of their own, which divisions cover.
  if (n - n == 0 && n != 0 && d - d == 0 && d != 0) {
    n = as_float((in[2] & 0x83ffffffu) | 0x3c000000u); d = as_float((in[1] & 0x83ffffffu) | 0x3c000000u); }
  if (dn - dn == 0 && dn != 0 && dd - dd == 0 && dd != 0) {
    dn = as_double((wide_at(in, 4) & 0x803fffffffffffffull) | 0x3fc0000000000000ull);
    dd = as_double((wide_at(in, 2) & 0x803fffffffffffffull) | 0x3fc0000000000000ull); }
#ifdef __AMDGCN__
  out[0] = of_float(__builtin_amdgcn_div_fixupf(q, d, n)); wide_to(out, 1, of_double(__builtin_amdgcn_div_fixup(dq, dd, dn)));
#else
  // quotient, denominator, numerator: where n / d is no ordinary number it is n / d, else the quotient with its sign
  int ordinary = n == n && d == d && n != 0 && d != 0 && n - n == 0 && d - d == 0;
  single s; s.f = q; s.u = (s.u & 0x7fffffff) | (__builtin_signbit(d) != __builtin_signbit(n)) * 0x80000000u;
  twice t; t.f = dq; t.u = (t.u & 0x7fffffffffffffffull) | (u64)(__builtin_signbit(dd) != __builtin_signbit(dn)) << 63;
  out[0] = ordinary ? of_float(s.f) : of_float(n / d);
  int wide_ordinary = dn == dn && dd == dd && dn != 0 && dd != 0 && dn - dn == 0 && dd - dd == 0;
  wide_to(out, 1, wide_ordinary ? of_double(t.f) : of_double(dn / dd));
#endif
}

// Every comparison of a type, as bits; the compiler must not drop the conditions that NaNs make different.
#define ORDER(T, a, b) ((u32)((a) < (b)) | (u32)((a) <= (b)) << 1 | (u32)((a) > (b)) << 2 | (u32)((a) >= (b)) << 3 \
                      | (u32)((a) == (b)) << 4 | (u32)((a) != (b)) << 5)
#define FLOAT_ORDER(T, a, b) (ORDER(T, a, b) | (u32)!((a) < (b)) << 6 | (u32)!((a) <= (b)) << 7 | (u32)!((a) > (b)) << 8 \
                      | (u32)!((a) >= (b)) << 9 | (u32)!!__builtin_isunordered(a, b) << 10 | (u32)!__builtin_isunordered(a, b) << 11 \
                      | (u32)!!__builtin_islessgreater(a, b) << 12 | (u32)!__builtin_islessgreater(a, b) << 13)
PROGRAM(comparisons, 4, 10) {
  u32 a = in[0], b = in[1];
  u64 wa = wide_at(in, 0), wb = wide_at(in, 2);
  out[0] = ORDER(u32, a, b) | ORDER(i32, (i32)a, (i32)b) << 8 | ORDER(i32, (i32)a, 17) << 16 | ORDER(u32, b, 255u) << 24;
  out[1] = ORDER(u64, wa, wb) | ORDER(i64, (i64)wa, (i64)wb) << 8 | ORDER(i64, (i64)wa, -5) << 16;
  out[2] = ORDER(u16, (u16)a, (u16)b) | ORDER(i16, (i16)a, (i16)b) << 8 | ORDER(u8, (u8)a, (u8)b) << 16 | ORDER(i8, (i8)a, (i8)b) << 24;
  out[3] = FLOAT_ORDER(float, as_float(a), as_float(b)) | ORDER(float, as_float(a), 0.5f) << 16;
  out[4] = FLOAT_ORDER(double, as_double(wa), as_double(wb)) | ORDER(double, as_double(wa), -2.0) << 16;
  out[5] = FLOAT_ORDER(_Float16, as_half(a), as_half(b)) | ORDER(_Float16, as_half(a), (_Float16)1.0f) << 16;
  // comparisons that choose a value or a way
  out[6] = as_float(a) < as_float(b) ? a : !(as_float(a) >= as_float(b)) ? 7 : b;
  out[7] = !(as_half(a) <= as_half(b)) ? a + 1 : b;
  u32 way = 0;
  if ((i16)a < (i16)b) way += 1;
  if (!(as_double(wa) > as_double(wb))) way += 2;
  if ((i64)wa >= (i64)wb) way += 4;
  if ((a & 0x10000) && !(b & 0x800)) way += 8;
  out[8] = way;
  out[9] = (a >> (b & 31) & 1) | (u32)(wa >> (b & 63) & 1) << 1 | (u32)((a & (1u << (b & 31))) == 0) << 2;
}

#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define MOST(a, b) ((a) > (b) ? (a) : (b))
#define THREE(T, a, b, c) ((u32)(T)LEAST(LEAST(a, b), c) + 3u * (u32)(T)MOST(MOST(a, b), c) \
                         + 5u * (u32)(T)MOST(LEAST(a, b), LEAST(MOST(a, b), c)))
PROGRAM(three_operands, 3, 8) {
  u32 a = in[0], b = in[1], c = in[2];
  out[0] = THREE(u32, a, b, c);
  out[1] = THREE(i32, (i32)a, (i32)b, (i32)c);
  out[2] = THREE(u16, (u16)a, (u16)b, (u16)c);
  out[3] = THREE(i16, (i16)a, (i16)b, (i16)c);
  float x = as_float(a & 0x7effffff), y = as_float(b & 0xfeffffff), z = as_float(c & 0xfeffffff); // no NaNs
  if (x == 0) x = 1; if (y == 0) y = 2; if (z == 0) z = 3; // and one zero
  out[4] = of_float(__builtin_fminf(__builtin_fminf(x, y), z));
  out[5] = of_float(__builtin_fmaxf(__builtin_fmaxf(x, y), z));
  double d = as_double(wide_at(in, 0) & 0xffefffffffffffffull), e = as_double(wide_at(in, 1) & 0xffefffffffffffffull);
  if (d == 0) d = 1; if (e == 0) e = -1;
  twice t; t.f = __builtin_fmin(d, e); out[6] = (u32)(t.u ^ t.u >> 32);
  t.f = __builtin_fmax(d, e); out[7] = (u32)(t.u ^ t.u >> 32);
}

PROGRAM(logic, 4, 14) {
  u32 a = in[0], b = in[1];
  u64 wa = wide_at(in, 0), wb = wide_at(in, 2);
  out[0] = ~(a & b); out[1] = ~(a | b); out[2] = ~(a ^ b); out[3] = a | ~b; out[4] = a & ~b;
  wide_to(out, 5, ~(wa & wb) ^ (wa | ~wb)); wide_to(out, 7, ~(wa | wb) + (wa & ~wb) * 3 + ~(wa ^ wb));
  out[9] = ((a << 1) + b) ^ ((a << 2) + b) ^ ((a << 3) + b) ^ ((a << 4) + b);
  out[10] = ((a & 0xffff) | b << 16) ^ ((a >> 16) | (b & 0xffff0000u)) ^ ((a & 0xffff) | (b & 0xffff0000u));
  i32 d = (i32)(a >> 2) - (i32)(b >> 2);
  out[11] = (u32)(d < 0 ? -d : d);
  wide_to(out, 12, (wa >> (b & 31) & ((1ull << (b >> 8 & 31)) - 1)) + (u64)((i64)(wa << (b & 63)) >> (b & 63)));
}

PROGRAM(packed_pairs, 3, 11) {
  typedef i16 pair __attribute__((ext_vector_type(2)));
  typedef u16 upair __attribute__((ext_vector_type(2)));
  union { u32 u; pair s; upair w; } a = {in[0]}, b = {in[1]}, c = {in[2]}, r;
  r.s = a.s + b.s; out[0] = r.u;
  r.s = a.s - b.s.yx; out[1] = r.u;
  r.s = a.s * b.s + c.s; out[2] = r.u;
  r.s = a.s >> (b.s & (pair){15, 15}); out[3] = r.u;
  r.s = a.s << (b.s & (pair){15, 15}); out[4] = r.u;
  r.w = a.w >> (b.w & (upair){15, 15}); out[5] = r.u;
  r.s = __builtin_elementwise_min(a.s, b.s); out[6] = r.u;
  r.s = __builtin_elementwise_max(a.s.yx, b.s); out[7] = r.u;
  r.s = __builtin_elementwise_add_sat(a.s, b.s); out[8] = r.u;
  r.w = __builtin_elementwise_sub_sat(a.w, b.w); out[9] = r.u;
  out[10] = (u32)((i32)(i16)in[0] * (i16)in[1] + (i32)in[2]) ^ ((u32)(u16)in[0] * (u16)in[1] + in[2]);
}

PROGRAM(fused_halves, 3, 6) {
  _Float16 a = as_half(in[0]), b = as_half(in[0] >> 16), c = as_half(in[1]), d = as_half(in[1] >> 16), e = as_half(in[2]), f = as_half(in[2] >> 16);
#ifdef __AMDGCN__
  typedef _Float16 pair __attribute__((ext_vector_type(2)));
  pair r = __builtin_elementwise_fma((pair){a, b}, (pair){c, d}, (pair){e, f});
  out[0] = of_half(r.x) | of_half(r.y) << 16;
  out[1] = of_half(__builtin_elementwise_fma(a, -c, e));
  out[2] = of_half(__builtin_amdgcn_ldexph(a, (i16)(in[1] & 63) - 31));
  out[3] = of_float(__builtin_fmaf((float)a, (float)c, (float)e)); // mixed precision
  half m = {(_Float16)__builtin_fmaf((float)a, (float)d, as_float(in[2] & 0xbfffffff))}; out[4] = of_half(m.f);
#else
  out[0] = of_half((_Float16)((double)a * c + e)) | of_half((_Float16)((double)b * d + f)) << 16;
  out[1] = of_half((_Float16)((double)a * -(double)c + e));
  out[2] = of_half((_Float16)__builtin_ldexp((double)a, (int)(in[1] & 63) - 31));
  out[3] = of_float((float)((double)a * c + e));
  out[4] = of_half((_Float16)__builtin_fmaf((float)a, (float)d, as_float(in[2] & 0xbfffffff)));
#endif
  // sums of products of small whole numbers: exact in any order
#ifdef __AMDGCN__
  pair p = {(_Float16)(i8)in[0], (_Float16)(i8)in[1]}, q = {(_Float16)(i8)in[2], (_Float16)(i8)(in[2] >> 8)};
  typedef __bf16 brains __attribute__((ext_vector_type(2)));
  brains u = {(__bf16)(i8)in[0], (__bf16)(i8)in[1]}, v = {(__bf16)(i8)in[2], (__bf16)(i8)(in[2] >> 8)};
  out[5] = of_float(__builtin_amdgcn_fdot2(p, q, (float)(i16)in[0], 0)) + of_float(__builtin_amdgcn_fdot2_f32_bf16(u, v, (float)(i16)in[1], 0)) * 3;
#else
  float s = (float)((i8)in[0] * (i8)in[2] + (i8)in[1] * (i8)(in[2] >> 8));
  out[5] = of_float(s + (float)(i16)in[0]) + of_float(s + (float)(i16)in[1]) * 3;
#endif
}
