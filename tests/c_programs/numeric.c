// Matrices, transforms, fractals, puzzles and long integers.

static u32 float_bits(float x) { union { float f; u32 u; } v; v.f = x; return v.u; }
static u64 double_bits(double x) { union { double f; u64 u; } v; v.f = x; return v.u; }

#define MATRIX(T, N, name) \
  NOINLINE static void name(const T *a, const T *b, T *c) { \
    for (u32 i = 0; i < N; i++) for (u32 j = 0; j < N; j++) { \
      T sum = 0; for (u32 k = 0; k < N; k++) sum = sum + a[i * N + k] * b[k * N + j]; c[i * N + j] = sum; } }
MATRIX(float, 5, product_of_floats)
MATRIX(double, 4, product_of_doubles)
MATRIX(u32, 4, product_of_words)

PROGRAM(matrix_products, 8, 5) {
  float a[25], b[25], c[25]; double d[16], e[16], f[16]; u32 g[16], h[16], m[16];
  for (u32 k = 0; k < 25; k++) { a[k] = (float)(i8)(in[k % 8] >> k % 24) * 0.37f; b[k] = (float)(i16)(in[(k + 3) % 8] >> k % 16) * 0.011f; }
  for (u32 k = 0; k < 16; k++) {
    d[k] = (double)a[k] / 7.0; e[k] = (double)b[k] * 1.1; g[k] = in[k % 8] + k; h[k] = in[(k * 3) % 8] ^ k; }
  product_of_floats(a, b, c); product_of_doubles(d, e, f); product_of_words(g, h, m);
  u32 mix = 0, words = 0; u64 wide = 0;
  for (u32 k = 0; k < 25; k++) mix = mix * 31 + float_bits(c[k]);
  for (u32 k = 0; k < 16; k++) { wide = wide * 31 + double_bits(f[k]); words = words * 31 + m[k]; }
  out[0] = mix; out[1] = float_bits(c[12]); wide_to(out, 2, wide); out[4] = words;
}

// A transform of 16 complex numbers; the roots of unity are doubles rounded by hand.
static const double cosines[8] = {1.0, 0.92387953251128674, 0.70710678118654757, 0.38268343236508984, 0.0,
                                  -0.38268343236508973, -0.70710678118654746, -0.92387953251128674};
NOINLINE static void transform(double *re, double *im, i32 sign) {
  for (u32 i = 1, j = 0; i < 16; i++) {
    u32 bit = 8; for (; j & bit; bit >>= 1) j ^= bit;
    j |= bit;
    if (i < j) { double t = re[i]; re[i] = re[j]; re[j] = t; t = im[i]; im[i] = im[j]; im[j] = t; }
  }
  for (u32 size = 2; size <= 16; size *= 2)
    for (u32 start = 0; start < 16; start += size)
      for (u32 k = 0; k < size / 2; k++) {
        u32 turn = k * 16 / size;
        double c = cosines[turn], s = (double)sign * (turn >= 4 ? cosines[turn - 4] : -cosines[turn + 4]);
        u32 a = start + k, b = a + size / 2;
        double x = re[b] * c - im[b] * s, y = re[b] * s + im[b] * c;
        re[b] = re[a] - x; im[b] = im[a] - y; re[a] += x; im[a] += y;
      } }

PROGRAM(fourier, 8, 6) {
  double re[16], im[16];
  for (u32 k = 0; k < 16; k++) { re[k] = (double)(i16)(in[k % 8] >> k) / 256.0; im[k] = (double)(i8)(in[(k + 5) % 8] >> (k & 7)); }
  transform(re, im, -1);
  u64 mix = 0; for (u32 k = 0; k < 16; k++) mix = mix * 31 + double_bits(re[k]) + double_bits(im[k]) * 7;
  wide_to(out, 0, mix); wide_to(out, 2, double_bits(re[5]));
  transform(re, im, 1);
  mix = 0; for (u32 k = 0; k < 16; k++) mix = mix * 31 + double_bits(re[k]) + double_bits(im[k] / 16) * 7;
  wide_to(out, 4, mix);
}

PROGRAM(mandelbrot, 2, 3) {
  float cx = (float)(in[0] & 0x3ff) / 341.3333f - 2.0f, cy = (float)(in[1] & 0x3ff) / 512.0f - 1.0f, x = 0, y = 0;
  u32 steps = 0;
  while (x * x + y * y < 4.0f && steps < 60) { float t = x * x - y * y + cx; y = 2.0f * x * y + cy; x = t; steps++; }
  out[0] = steps; out[1] = float_bits(x);
  double dx = cx, dy = cy, u = 0, v = 0; u32 more = 0;
  for (; u * u + v * v < 4.0 && more < 40; more++) { double t = u * u - v * v + dx; v = 2.0 * u * v + dy; u = t; }
  out[2] = more ^ (u32)double_bits(v);
}

NOINLINE static u32 queens(u32 size, u32 columns, u32 left, u32 right) {
  u32 all = (1u << size) - 1, count = 0, free = all & ~(columns | left | right);
  if (columns == all) return 1;
  while (free) { u32 bit = free & -free; free ^= bit; count += queens(size, columns | bit, (left | bit) << 1, (right | bit) >> 1); }
  return count; }

PROGRAM(n_queens, 1, 2) { out[0] = queens(in[0] % 4 + 3, 0, 0, 0); out[1] = queens(5, 1u << in[0] % 5, 2u << in[0] % 5, (1u << in[0] % 5) >> 1); }

NOINLINE static void long_product(const u32 *a, const u32 *b, u32 *c, u32 count) {
  for (u32 k = 0; k < 2 * count; k++) c[k] = 0;
  for (u32 i = 0; i < count; i++) {
    u64 carry = 0;
    for (u32 j = 0; j < count; j++) { carry += (u64)a[i] * b[j] + c[i + j]; c[i + j] = (u32)carry; carry >>= 32; }
    c[i + count] = (u32)carry;
  } }
NOINLINE static u32 long_remainder(const u32 *a, u32 count, u32 divisor, u32 *quotient) {
  u64 rest = 0;
  for (u32 k = count; k-- > 0;) { rest = rest << 32 | a[k]; quotient[k] = (u32)(rest / divisor); rest %= divisor; }
  return (u32)rest; }

PROGRAM(long_integers, 12, 14) {
  u32 a[6], b[6], c[12], q[12];
  for (u32 k = 0; k < 6; k++) { a[k] = in[k]; b[k] = in[6 + k]; }
  long_product(a, b, c, 6);
  for (u32 k = 0; k < 12; k++) out[k] = c[k];
  out[12] = long_remainder(c, 12, in[0] | 1, q);
  u32 mix = 0; for (u32 k = 0; k < 12; k++) mix = mix * 31 + q[k];
  out[13] = mix;
}

PROGRAM(linear_system, 8, 4) {
  double a[4][5];
  for (u32 i = 0; i < 4; i++) for (u32 j = 0; j < 5; j++) a[i][j] = (double)(i8)(in[(i * 5 + j) % 8] >> (i + j)) + (i == j ? 300.0 : 0.0);
  for (u32 p = 0; p < 4; p++) {
    u32 best = p;
    for (u32 i = p + 1; i < 4; i++) if (__builtin_fabs(a[i][p]) > __builtin_fabs(a[best][p])) best = i;
    for (u32 j = 0; j < 5; j++) { double t = a[p][j]; a[p][j] = a[best][j]; a[best][j] = t; }
    for (u32 i = 0; i < 4; i++) if (i != p) { double f = a[i][p] / a[p][p]; for (u32 j = p; j < 5; j++) a[i][j] -= f * a[p][j]; }
  }
  u64 mix = 0; for (u32 i = 0; i < 4; i++) mix = mix * 31 + double_bits(a[i][4] / a[i][i]);
  wide_to(out, 0, mix); wide_to(out, 2, double_bits(a[2][4] / a[2][2]));
}

PROGRAM(primes, 1, 3) {
  u8 composite[200]; u32 count = 0, sum = 0;
  for (u32 k = 0; k < 200; k++) composite[k] = 0;
  for (u32 k = 2; k < 200; k++) {
    if (composite[k]) continue;
    count++; sum = sum * 3 + k;
    for (u32 j = k * k; j < 200; j += k) composite[j] = 1;
  }
  u32 n = in[0] | 1, factor = 0;
  for (u32 k = 3; k < 200 && !factor; k += 2) if (!composite[k] && n % k == 0) factor = k;
  out[0] = count; out[1] = sum; out[2] = factor;
}
