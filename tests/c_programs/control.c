// Branches of every kind: switches, threaded code, calls, recursion, function pointers, loops with many exits.

static u32 twisted(u32 x, u32 kind) {
  switch (kind) {
    case 0: return x + 17;
    case 1: return x * 3;
    case 2: x ^= 0x1234567; // falls through
    case 3: return x >> 3 | x << 29;
    case 4: return x / 7;
    case 5: return x % 1001;
    case 6: return (u32)-(i32)x;
    case 7: return ~x * 5;
    case 8: case 9: case 10: return x - kind;
    case 100: return 1;
    case 1000: return 2;
    case 0x80000000u: return 3;
    default: return x ^ kind;
  }
}

PROGRAM(switches, 2, 4) {
  u32 x = in[0], sum = 0;
  for (u32 k = 0; k < 14; k++) { x = twisted(x, k); sum = sum * 33 + x; }
  out[0] = sum;
  out[1] = twisted(in[0], in[1] % 13);
  out[2] = twisted(in[1], in[0] & 1 ? 100 : in[0] & 2 ? 1000 : 0x80000000u);
  static const char *const names[] = {"zero", "one", "two", "three", "four", "five"};
  const char *name = names[in[0] % 6];
  u32 letters = 0;
  while (*name) letters = letters * 31 + (u8)*name++;
  out[3] = letters;
}

// A machine of one accumulator whose operations jump to one another through a table, as threaded code does.
typedef struct { const u8 *code; u32 pc, value, counter, limit; } machine;
typedef u32 (*step)(machine *);
NOINLINE static u32 increment(machine *m); NOINLINE static u32 twice(machine *m); NOINLINE static u32 mix(machine *m);
NOINLINE static u32 less(machine *m); NOINLINE static u32 again(machine *m); NOINLINE static u32 halt(machine *m);
static const step steps[] = {increment, twice, mix, less, again, halt};
#define NEXT return steps[m->code[m->pc++]](m)
static u32 increment(machine *m) { m->value += 12345; NEXT; }
static u32 twice(machine *m) { m->value = m->value * 2 + 1; NEXT; }
static u32 mix(machine *m) { m->value ^= m->value >> 7; NEXT; }
static u32 less(machine *m) { m->value -= m->counter; NEXT; }
static u32 again(machine *m) { if (++m->counter < m->limit) m->pc = 0; NEXT; }
static u32 halt(machine *m) { return m->value + m->pc; }
#undef NEXT

PROGRAM(threaded_code, 1, 2) {
  static const u8 code[] = {0, 2, 1, 1, 3, 2, 4, 5}, other[] = {1, 3, 2, 4, 0, 0, 5};
  machine same = {code, 0, in[0], 0, 3}, differing = {in[0] & 1 ? code : other, 0, ~in[0], 0, in[0] >> 8 & 3};
  out[0] = steps[code[same.pc++]](&same);
  out[1] = steps[differing.code[differing.pc++]](&differing);
}

NOINLINE static u32 fibonacci(u32 n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
NOINLINE static u32 ackermann(u32 m, u32 n) {
  return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1)); }
NOINLINE static u32 is_odd(u32 n);
NOINLINE static u32 is_even(u32 n) { return n == 0 ? 1 : is_odd(n - 1) ^ 0; }
NOINLINE static u32 is_odd(u32 n) { return n == 0 ? 0 : is_even(n - 1) + 0; }
NOINLINE static u32 paths(u32 x, u32 y, u32 *visits) {
  u32 kept[3] = {x, y, ++*visits};
  if (!x || !y) return 1;
  return paths(x - 1, y, visits) + paths(x, y - 1, visits) + (kept[0] != x) + (kept[1] != y) + (kept[2] > *visits); }

PROGRAM(recursion, 2, 5) {
  out[0] = fibonacci(in[0] % 9);
  out[1] = ackermann(in[0] % 3, in[1] % 4);
  out[2] = is_even(in[1] % 14);
  u32 visits = 0;
  out[3] = paths(in[0] % 4, in[1] % 5, &visits);
  out[4] = visits;
}

typedef u32 (*operation)(u32, u32);
NOINLINE static u32 plus(u32 a, u32 b) { return a + b; }
NOINLINE static u32 minus(u32 a, u32 b) { return a - b; }
NOINLINE static u32 times(u32 a, u32 b) { return a * b; }
NOINLINE static u32 over(u32 a, u32 b) { return a / (b | 1); }
NOINLINE static u32 power(u32 a, u32 b) { u32 r = 1; for (b &= 15; b; b--) r *= a; return r; }
static const operation operations[] = {plus, minus, times, over, power};
NOINLINE static u32 folded(operation f, const u32 *values, u32 count) {
  u32 result = values[0]; for (u32 k = 1; k < count; k++) result = f(result, values[k]); return result; }

PROGRAM(function_pointers, 4, 4) {
  u32 values[4] = {in[0], in[1], in[2], in[3]};
  out[0] = folded(plus, values, 4) ^ folded(times, values, 4);
  out[1] = operations[in[0] % 5](in[1], in[2]); // another function in every lane
  u32 r = in[0];
  for (u32 k = 0; k < 5; k++) r = operations[(k + item) % 5](r, in[k & 3]);
  out[2] = r;
  out[3] = folded(in[3] & 1 ? minus : over, values, 2 + in[2] % 3);
}

PROGRAM(loops, 2, 4) {
  u32 x = in[0] | 1, steps = 0;
  while (x != 1 && steps < 150) { x = x & 1 ? 3 * x + 1 : x >> 1; steps++; }
  out[0] = steps * 65536 + (x & 0xffff);
  u32 found = 0;
  for (u32 i = 0; i < 12 && !found; i++) {
    for (u32 j = i; j < 12; j++) {
      if (((in[0] >> i ^ in[1] >> j) & 7) == 5) { found = i * 12 + j + 1; goto out_of_both; }
      if (j == i + 6) break;
      if ((in[1] >> j & 3) == 0) continue;
      found += 0;
    }
  }
out_of_both:
  out[1] = found;
  u32 a = in[0] % 50, b = 0;
  do { b += a & 3 ? a : 2 * a; if (b > 300) break; } while (a-- > 0);
  out[2] = b;
  u32 value = in[1], depth = 0;
  for (;;) {
    if (value < 100) break;
    if (value % 3 == 0) { value /= 3; depth += 1; continue; }
    if (value % 5 == 1) { value = value / 5 + 7; depth += 100; if (depth > 2000) break; continue; }
    value -= value / 4 + 1; depth += 10000;
  }
  out[3] = depth + value;
}
