// Floating point without contraction. NaN results are made one NaN: C leaves their bits to the machine.

typedef union { float f; u32 u; i32 i; } single;
typedef union { double f; u64 u; i64 i; } twice;
typedef union { _Float16 f; u16 u; } half;
typedef union { __bf16 f; u16 u; } brain;

static u32 of_single(float x) { single s; s.f = x; return x != x ? 0x7fc00000u : s.u; }
static u64 of_double(double x) { twice d; d.f = x; return x != x ? 0x7ff8000000000000ull : d.u; }
static u32 of_half(_Float16 x) { half h; h.f = x; return x != x ? 0x7e00u : h.u; }
static u32 of_brain(__bf16 x) { brain b; b.f = x; return (float)x != (float)x ? 0x7fc0u : b.u; }
static float single_at(GLOBAL const u32 *in, u32 i) { single s; s.u = in[i]; return s.f; }
static double double_at(GLOBAL const u32 *in, u32 i) { twice d; d.u = wide_at(in, i); return d.f; }
static _Float16 half_at(u32 bits) { half h; h.u = (u16)bits; return h.f; }
static __bf16 brain_at(u32 bits) { brain b; b.u = (u16)bits; return b.f; }

// Brings an exponent near zero, so that sums and quotients of two inputs are of interest.
static float tame(float x) { single s; s.f = x; s.u = (s.u & 0x80ffffffu) + 0x3f000000u - (s.u & 0x00800000u); return s.f; }
static double tamed(double x) {
  twice d; d.f = x; d.u = (d.u & 0x801fffffffffffffull) + 0x3fe0000000000000ull - (d.u & 0x0010000000000000ull); return d.f; }

PROGRAM(single_basics, 3, 14) {
  float a = single_at(in, 0), b = single_at(in, 1), c = single_at(in, 2);
  out[0] = of_single(a + b);
  out[1] = of_single(a - b);
  out[2] = of_single(a * b);
  out[3] = of_single(a * b + c);
  out[4] = of_single(__builtin_fmaf(a, b, c));
  out[5] = of_single(-a - c);
  out[6] = (a < b) | (a <= b) << 1 | (a > b) << 2 | (a >= b) << 3 | (a == b) << 4 | (a != b) << 5
         | !!__builtin_isunordered(a, b) << 6 | !!__builtin_islessgreater(a, b) << 7;
  out[7] = of_single(__builtin_copysignf(a, b));
  out[8] = of_single(__builtin_fabsf(b));
  out[9] = of_single(__builtin_floorf(a)) ^ of_single(__builtin_ceilf(a));
  out[10] = of_single(__builtin_truncf(a)) ^ of_single(__builtin_rintf(a)) ^ of_single(__builtin_roundevenf(c));
  out[11] = of_single(tame(a) + tame(b)) ^ of_single(tame(a) * tame(b) - tame(c));
  out[12] = of_single(__builtin_fmaf(tame(a), tame(b), tame(c)));
  out[13] = !!__builtin_isnan(a) | !!__builtin_isinf(a) << 1 | !!__builtin_isfinite(a) << 2 | !!__builtin_isnormal(a) << 3;
}

PROGRAM(single_division_and_root, 2, 6) {
  float a = single_at(in, 0), b = single_at(in, 1);
  out[0] = of_single(a / b);
  out[1] = of_single(tame(a) / tame(b));
  out[2] = of_single(1.0f / a);
  out[3] = of_single(__builtin_sqrtf(a));
  out[4] = of_single(__builtin_sqrtf(__builtin_fabsf(tame(b))));
  out[5] = of_single(a / 3.0f);
}

PROGRAM(double_basics, 6, 18) {
  double a = double_at(in, 0), b = double_at(in, 2), c = double_at(in, 4);
  wide_to(out, 0, of_double(a + b));
  wide_to(out, 2, of_double(a * b));
  wide_to(out, 4, of_double(tamed(a) - tamed(b)));
  wide_to(out, 6, of_double(tamed(a) * tamed(b) + c));
  wide_to(out, 8, of_double(__builtin_fma(tamed(a), tamed(b), tamed(c))));
  wide_to(out, 10, of_double(__builtin_fma(a, b, c)));
  wide_to(out, 12, of_double(__builtin_floor(a)) ^ of_double(__builtin_ceil(b)) ^ of_double(__builtin_trunc(c)));
  wide_to(out, 14, of_double(__builtin_rint(tamed(a) * 1e3)) ^ of_double(__builtin_copysign(a, b)));
  out[16] = (a < b) | (a <= b) << 1 | (a > b) << 2 | (a >= b) << 3 | (a == b) << 4 | (a != b) << 5;
  out[17] = !!__builtin_isnan(a) | !!__builtin_isinf(a) << 1 | !!__builtin_isnormal(c) << 2;
}

PROGRAM(double_division_and_root, 4, 12) {
  double a = double_at(in, 0), b = double_at(in, 2);
  wide_to(out, 0, of_double(a / b));
  wide_to(out, 2, of_double(tamed(a) / tamed(b)));
  wide_to(out, 4, of_double(1.0 / a));
  wide_to(out, 6, of_double(__builtin_sqrt(a)));
  wide_to(out, 8, of_double(__builtin_sqrt(__builtin_fabs(tamed(b)))));
  wide_to(out, 10, of_double(b / 10.0));
}

// A float that every integer type of BITS bits holds after truncation.
static float fits(float x, u32 bits) { single s; s.f = x; u32 e = s.u >> 23 & 255; s.u = (s.u & 0x807fffffu) | (127 + e % (bits - 1)) << 23; return s.f; }
static double fitting(double x, u32 bits) {
  twice d; d.f = x; u64 e = d.u >> 52 & 2047; d.u = (d.u & 0x800fffffffffffffull) | (1023 + e % (bits - 1)) << 52; return d.f; }

PROGRAM(conversions_to_integers, 4, 14) {
  float a = single_at(in, 0), p = __builtin_fabsf(a);
  double b = double_at(in, 2), q = __builtin_fabs(b);
  out[0] = (u32)(i32)fits(a, 31);
  out[1] = (u32)fits(p, 32);
  wide_to(out, 2, (u64)(i64)fits(a, 63));
  wide_to(out, 4, (u64)fits(p, 64));
  out[6] = (u32)(i32)fitting(b, 31);
  out[7] = (u32)fitting(q, 32);
  wide_to(out, 8, (u64)(i64)fitting(b, 63));
  wide_to(out, 10, (u64)fitting(q, 64));
  out[12] = (u8)(i8)fits(a, 7) | (u32)(u8)fits(p, 8) << 8 | (u32)(u16)(i16)fits(a, 15) << 16;
  out[13] = (u16)fitting(q, 16) | (u32)(u16)(i16)(_Float16)fits(a, 11) << 16;
}

PROGRAM(conversions_from_integers, 4, 22) {
  u32 a = in[0], s = in[1] & 63;
  u64 w = wide_at(in, 2);
  out[0] = of_single((float)a);
  out[1] = of_single((float)(i32)a);
  out[2] = of_single((float)w);
  out[3] = of_single((float)(i64)w);
  out[4] = of_single((float)(w >> s));
  out[5] = of_single((float)((i64)w >> s));
  wide_to(out, 6, of_double((double)a));
  wide_to(out, 8, of_double((double)(i32)a));
  wide_to(out, 10, of_double((double)w));
  wide_to(out, 12, of_double((double)(i64)w));
  wide_to(out, 14, of_double((double)((i64)w >> s)));
  out[16] = of_single((float)(u8)a) ^ of_single((float)(i8)(a >> 8));
  out[17] = of_single((float)(u16)a) ^ of_single((float)(i16)(a >> 16));
  out[18] = of_half((_Float16)(i16)a) | of_half((_Float16)(u16)(a >> 16)) << 16;
  out[19] = of_half((_Float16)(i32)(a >> (s & 31))) | of_half((_Float16)(u32)(a & 0x1ffff)) << 16;
  out[20] = of_half((_Float16)(i8)a) | of_half((_Float16)(u8)(a >> 8)) << 16;
  out[21] = of_single((float)(w >> 63));
}

PROGRAM(conversions_between_floats, 4, 10) {
  float a = single_at(in, 0);
  double b = double_at(in, 2);
  wide_to(out, 0, of_double((double)a));
  out[2] = of_single((float)b);
  out[3] = of_single((float)fitting(b, 64));
  out[4] = of_half((_Float16)a) | of_half((_Float16)fits(a, 16)) << 16;
  out[5] = of_half((_Float16)tame(a)) | of_half((_Float16)(tame(a) * 3e-5f)) << 16;
  out[6] = of_single((float)half_at(in[1]));
  out[7] = of_single((float)brain_at(in[1] >> 16));
  out[8] = of_brain((__bf16)a) | of_brain((__bf16)tame(a)) << 16;
  out[9] = of_half((_Float16)tamed(b)) | of_half((_Float16)(fitting(b, 20) * 1e-7)) << 16;
}

PROGRAM(halves, 2, 12) {
  _Float16 a = half_at(in[0]), b = half_at(in[0] >> 16), c = half_at(in[1]);
  out[0] = of_half(a + b) | of_half(a - b) << 16;
  out[1] = of_half(a * b) | of_half(a / b) << 16;
  out[2] = of_half((_Float16)(a * b) + c) | of_half(-c) << 16;
  out[3] = (a < b) | (a <= b) << 1 | (a > b) << 2 | (a >= b) << 3 | (a == b) << 4 | (a != b) << 5;
  out[4] = of_half(__builtin_elementwise_floor(a)) | of_half(__builtin_elementwise_ceil(b)) << 16;
  out[5] = of_half(__builtin_elementwise_trunc(c)) | of_half(__builtin_elementwise_rint(a)) << 16;
  out[6] = of_half((_Float16)__builtin_sqrtf((float)a)) | of_half((_Float16)1 / c) << 16;
  half h = {a};
  h.u = (u16)(h.u & 0xbfff);
  out[7] = (u16)(i16)(h.f * (_Float16)64) | (u32)(u16)(i16)h.f << 16;
  out[8] = of_half(__builtin_elementwise_copysign(a, b)) | of_half(__builtin_elementwise_abs(b)) << 16;
  _Float16 sum = 0;
  for (u32 k = 0; k < 8; k++) sum = sum + half_at((in[k & 1] >> (k & 16)) & 0x3fff) * (_Float16)0.125;
  out[9] = of_half(sum);
  typedef _Float16 half2 __attribute__((ext_vector_type(2)));
  half2 p = {a, b}, q = {c, a};
  half2 r = p * q, t = p - q.yx;
  out[10] = of_half(r.x) | of_half(r.y) << 16;
  out[11] = of_half(t.x) | of_half(t.y) << 16;
}

PROGRAM(brains, 2, 6) {
  __bf16 a = brain_at(in[0]), b = brain_at(in[0] >> 16), c = brain_at(in[1]);
  out[0] = of_brain(a + b) | of_brain(a - b) << 16;
  out[1] = of_brain(a * b) | of_brain(a / b) << 16;
  out[2] = of_brain((__bf16)(a * b) + c) | of_brain(-c) << 16;
  out[3] = (a < b) | (a <= b) << 1 | (a == b) << 2 | (a != c) << 3;
  out[4] = of_single((float)a * (float)c);
  out[5] = of_brain(a < c ? a : b) | of_brain((__bf16)(i16)in[1]) << 16;
}

PROGRAM(scaling, 3, 8) {
  float a = single_at(in, 0);
  double b = double_at(in, 0);
  i32 shift = (i32)(in[2] % 600) - 300, further = (i32)(in[2] % 4000) - 2000;
  out[0] = of_single(__builtin_ldexpf(a, shift));
  wide_to(out, 2, of_double(__builtin_ldexp(b, further)));
  i32 e = 0;
  out[1] = of_single(__builtin_frexpf(tame(a), &e)) ^ (u32)e;
  wide_to(out, 4, of_double(__builtin_frexp(tamed(b), &e)));
  out[6] = (u32)e;
  out[7] = of_single(__builtin_fminf(tame(a), 0.25f)) ^ of_single(__builtin_fmaxf(tame(a), -0.5f));
}

PROGRAM(newton_and_series, 2, 6) {
  float x = tame(single_at(in, 0));
  double y = tamed(double_at(in, 0)), guess = 1.0, sum = 0.0, term = 1.0;
  for (u32 k = 0; k < 6; k++) guess = 0.5 * (guess + __builtin_fabs(y) / guess);
  for (u32 k = 1; k < 18; k++) { sum += term; term = term * y / (double)k; }
  wide_to(out, 0, of_double(guess));
  wide_to(out, 2, of_double(sum));
  float horner = 0.0f;
  for (i32 k = 9; k >= 0; k--) horner = horner * x + 1.0f / (float)(2 * k + 1);
  out[4] = of_single(horner);
  out[5] = of_single((float)(guess - sum));
}
