// Integer arithmetic of every width. Inputs are raw bits; nothing here is undefined in C.

#define ALL_OPERATIONS(T, S, BITS)                                                                   \
  static u64 unsigned_##T(T a, T b, u32 shift) {                                                     \
    u64 mix = 0;                                                                                     \
    T d = b ? b : (T)1;                                                                              \
    shift %= BITS;                                                                                   \
    mix = mix * 31 + (T)(a + b);                                                                     \
    mix = mix * 31 + (T)(a - b);                                                                     \
    mix = mix * 31 + (T)((T)(a | (T)0) * (u64)b);                                                    \
    mix = mix * 31 + (T)(a / d);                                                                     \
    mix = mix * 31 + (T)(a % d);                                                                     \
    mix = mix * 31 + (T)(a << shift | (shift ? a >> (BITS - shift) : 0));                            \
    mix = mix * 31 + (T)(a >> shift);                                                                \
    mix = mix * 31 + (T)((a & b) ^ (a | ~b));                                                        \
    mix = mix * 31 + (a < b ? a : b);                                                                \
    mix = mix * 31 + (a > b ? a : b);                                                                \
    mix = mix * 31 + (a == b) + 2 * (a <= b);                                                        \
    return mix;                                                                                      \
  }                                                                                                  \
  static u64 signed_##T(S a, S b, u32 shift) {                                                       \
    u64 mix = 0;                                                                                     \
    S least = (S)((T)1 << (BITS - 1));                                                               \
    S d = b == 0 || (a == least && b == -1) ? (S)3 : b;                                              \
    shift %= BITS;                                                                                   \
    mix = mix * 37 + (T)(a / d);                                                                     \
    mix = mix * 37 + (T)(a % d);                                                                     \
    mix = mix * 37 + (T)(a >> shift);                                                                \
    mix = mix * 37 + (T)(a < b ? a : b);                                                             \
    mix = mix * 37 + (T)(a > b ? a : b);                                                             \
    mix = mix * 37 + (T)(a < 0 ? (T)0 - (T)a : (T)a);                                                \
    mix = mix * 37 + (a < b) + 2 * (a >= 0);                                                         \
    return mix;                                                                                      \
  }                                                                                                  \
  static u64 overflowing_##T(T a, T b) {                                                             \
    T u;                                                                                             \
    S s;                                                                                             \
    u64 mix = __builtin_add_overflow(a, b, &u) + 2 * (u64)u;                                         \
    mix = mix * 41 + __builtin_sub_overflow(a, b, &u) + 2 * (u64)u;                                  \
    mix = mix * 41 + __builtin_mul_overflow(a, b, &u) + 2 * (u64)u;                                  \
    mix = mix * 41 + __builtin_add_overflow((S)a, (S)b, &s) + 2 * (u64)(T)s;                         \
    mix = mix * 41 + __builtin_sub_overflow((S)a, (S)b, &s) + 2 * (u64)(T)s;                         \
    mix = mix * 41 + __builtin_mul_overflow((S)a, (S)b, &s) + 2 * (u64)(T)s;                         \
    mix = mix * 41 + (T)__builtin_elementwise_add_sat(a, b);                                         \
    mix = mix * 41 + (T)__builtin_elementwise_sub_sat(a, b);                                         \
    mix = mix * 41 + (T)__builtin_elementwise_add_sat((S)a, (S)b);                                   \
    mix = mix * 41 + (T)__builtin_elementwise_sub_sat((S)a, (S)b);                                   \
    return mix;                                                                                      \
  }

ALL_OPERATIONS(u8, i8, 8)
ALL_OPERATIONS(u16, i16, 16)
ALL_OPERATIONS(u32, i32, 32)
ALL_OPERATIONS(u64, i64, 64)

#define WIDTH(T, S)                                                                                  \
  PROGRAM(width_##T, 5, 6) {                                                                         \
    T a = (T)wide_at(in, 0), b = (T)wide_at(in, 2);                                                  \
    wide_to(out, 0, unsigned_##T(a, b, in[4]));                                                      \
    wide_to(out, 2, signed_##T((S)a, (S)b, in[4]));                                                  \
    wide_to(out, 4, overflowing_##T(a, b));                                                          \
  }

WIDTH(u8, i8)
WIDTH(u16, i16)
WIDTH(u32, i32)
WIDTH(u64, i64)

// Dividends and divisors of very different sizes, so that quotients take every length.
PROGRAM(divisions, 5, 8) {
  u64 a = wide_at(in, 0) >> (in[4] & 63), b = wide_at(in, 2) >> (in[4] >> 6 & 63);
  i64 c = (i64)wide_at(in, 0) >> (in[4] & 63), d = (i64)wide_at(in, 2) >> (in[4] >> 6 & 63);
  if (!b) b = 10;
  if (!d || d == -1) d = -7;
  wide_to(out, 0, a / b);
  wide_to(out, 2, a % b);
  wide_to(out, 4, (u64)(c / d));
  wide_to(out, 6, (u64)(c % d));
}

PROGRAM(constants_divided, 2, 10) {
  u64 a = wide_at(in, 0);
  u32 b = in[0];
  out[0] = b / 10 + b % 7;
  out[1] = (u32)((i32)b / 1000003);
  out[2] = b / 641;
  out[3] = (u32)((i32)b / -16 + (i32)b % 32);
  wide_to(out, 4, a / 1000000007ull);
  wide_to(out, 6, (u64)((i64)a / 10));
  wide_to(out, 8, a % 0x123456789ull);
}

PROGRAM(bit_tricks, 2, 12) {
  u32 a = in[0];
  u64 w = wide_at(in, 0);
  out[0] = a ? __builtin_clz(a) | __builtin_ctz(a) << 8 : 99;
  out[1] = w ? __builtin_clzll(w) | __builtin_ctzll(w) << 8 : 99;
  out[2] = __builtin_popcount(a) | __builtin_popcountll(w) << 8 | __builtin_parityll(w) << 16;
  out[3] = __builtin_bitreverse32(a);
  wide_to(out, 4, __builtin_bitreverse64(w));
  wide_to(out, 6, __builtin_bswap64(w));
  out[8] = __builtin_bswap32(a) ^ __builtin_bswap16((u16)a) ^ (u32)__builtin_bitreverse8((u8)a) << 24;
  out[9] = __builtin_ffsll((i64)w) + 100 * __builtin_clrsb((i32)a);
  out[10] = __builtin_rotateleft32(a, in[1]) ^ __builtin_rotateright16((u16)a, (u16)in[1]);
  out[11] = (u32)(__builtin_rotateleft64(w, a) >> 32) ^ (u32)__builtin_rotateright8((u8)a, (u8)in[1]);
}

PROGRAM(wide_products, 4, 10) {
  u64 a = wide_at(in, 0), b = wide_at(in, 2);
  unsigned __int128 u = (unsigned __int128)a * b;
  __int128 s = (__int128)(i64)a * (i64)b;
  wide_to(out, 0, (u64)u);
  wide_to(out, 2, (u64)(u >> 64));
  wide_to(out, 4, (u64)(s >> 64));
  wide_to(out, 6, (u64)((u + a) >> 37));
  wide_to(out, 8, (u64)((u - b) << 5 >> 70));
}

PROGRAM(packed_vectors, 4, 6) {
  typedef u16 half2 __attribute__((ext_vector_type(2)));
  typedef i8 byte4 __attribute__((ext_vector_type(4)));
  union { u32 word; half2 halves; byte4 bytes; } a, b, c;
  a.word = in[0], b.word = in[1];
  c.halves = a.halves + b.halves; out[0] = c.word;
  c.halves = a.halves * b.halves - (half2){3, 5}; out[1] = c.word;
  c.halves = (a.halves >> (half2){3, 7}) | (b.halves << (half2){1, 9}); out[2] = c.word;
  c.bytes = a.bytes * b.bytes + (a.bytes >> (i8)2); out[3] = c.word;
  c.halves = __builtin_elementwise_max(a.halves, b.halves) ^ __builtin_elementwise_min(a.halves, b.halves.yx);
  out[4] = c.word;
  c.bytes = __builtin_convertvector(a.bytes.wzyx < b.bytes, byte4); out[5] = c.word;
}

PROGRAM(modular_power, 4, 4) {
  u64 modulus = wide_at(in, 0) >> 32 | 1, base = wide_at(in, 2) % modulus, result = 1 % modulus;
  for (u32 exponent = in[3]; exponent; exponent >>= 1) {
    if (exponent & 1) result = result * base % modulus;
    base = base * base % modulus;
  }
  wide_to(out, 0, result);
  u64 a = wide_at(in, 0), b = wide_at(in, 2), steps = 0;
  while (b && steps < 200) { u64 r = a % b; a = b; b = r; steps++; }
  wide_to(out, 2, a * 256 + steps);
}
