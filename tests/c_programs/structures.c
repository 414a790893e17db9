// Structures by value, unions, bit fields, arrays in scratch, stacks whose size is known at run time, variable arguments.

typedef struct { u8 kind; u16 weight; u32 id; double value; u64 tag; } record;
typedef struct { float x, y, z; } vector3;
typedef struct { i32 numerator, denominator; } fraction;
typedef struct { u32 low : 5, middle : 11; i32 high : 9; u64 wide : 37, rest : 20; } fields;

NOINLINE static record made(u32 a, u32 b) {
  record r = {(u8)a, (u16)(a >> 8), b, (double)a * 0.5 - (double)b, (u64)a << 32 | b}; return r; }
NOINLINE static record merged(record left, record right) {
  record r = left.weight < right.weight ? right : left;
  r.kind ^= right.kind; r.value = left.value + right.value; r.id += left.id * 3; r.tag = left.tag ^ right.tag >> 3; return r; }
NOINLINE static vector3 cross(vector3 a, vector3 b) {
  return (vector3){a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x}; }
NOINLINE static fraction reduced(fraction f) {
  i32 a = f.numerator < 0 ? -f.numerator : f.numerator, b = f.denominator;
  while (b) { i32 r = a % b; a = b; b = r; }
  return a ? (fraction){f.numerator / a, f.denominator / a} : (fraction){0, 1}; }

PROGRAM(by_value, 4, 10) {
  record r = merged(made(in[0], in[1]), made(in[2], in[3]));
  record chain[3] = {r, merged(r, made(in[1], in[2])), made(7, item)};
  record last = merged(chain[in[0] % 3], chain[in[1] % 3]);
  union { double d; u64 u; } value; value.d = last.value;
  out[0] = last.kind | (u32)last.weight << 8; out[1] = last.id;
  wide_to(out, 2, value.u); wide_to(out, 4, last.tag);
  vector3 c = cross((vector3){(float)(i8)in[0], (float)(i8)in[1], (float)(i8)in[2]}, (vector3){1.5f, (float)(i8)in[3], -2});
  out[6] = (u32)(i32)(c.x * 4 + c.y * 2 + c.z);
  fraction f = reduced((fraction){(i32)in[2] / 3, (i32)(in[3] >> 1 | 1)});
  out[7] = (u32)f.numerator; out[8] = (u32)f.denominator; out[9] = sizeof(record) + sizeof(fields) * 100;
}

PROGRAM(bit_fields, 4, 6) {
  fields f; __builtin_memset(&f, 0, sizeof f);
  f.low = in[0]; f.middle = in[1]; f.high = (i32)in[2]; f.wide = wide_at(in, 0); f.rest = in[3];
  f.middle += f.low; f.high -= 3; f.wide = f.wide * 3 + 1; f.rest ^= f.middle;
  out[0] = f.low; out[1] = f.middle; out[2] = (u32)(i32)f.high; wide_to(out, 3, f.wide); out[5] = (u32)f.rest;
}

PROGRAM(local_arrays, 8, 6) {
  u32 words[32]; u8 bytes[40]; u16 halves[24]; double doubles[6]; u64 matrix[3][4];
  for (u32 k = 0; k < 32; k++) words[k] = in[k & 7] * (k + 1);
  for (u32 k = 0; k < 40; k++) bytes[k] = (u8)(words[k & 31] >> (k & 24));
  for (u32 k = 0; k < 24; k++) halves[(k * 7 + in[0] % 24) % 24] = (u16)(words[k] ^ bytes[k]);
  for (u32 k = 0; k < 6; k++) doubles[k] = (double)(i32)words[in[k] % 32] / 3.0;
  for (u32 r = 0; r < 3; r++) for (u32 c = 0; c < 4; c++) matrix[r][c] = (u64)words[r * 4 + c] * halves[r + c];
  u32 sum = 0; u64 wide = 0; double total = 0;
  for (u32 k = 0; k < 40; k++) sum = sum * 31 + bytes[(k * 11 + in[1] % 40) % 40] + (u32)(i8)bytes[k];
  for (u32 k = 0; k < 24; k++) sum = sum * 31 + halves[k] + (u32)(i16)halves[23 - k];
  for (u32 r = 0; r < 4; r++) wide = wide * 5 + matrix[in[r] % 3][r];
  for (u32 k = 0; k < 6; k++) total = total * 0.5 + doubles[(k + in[2] % 6) % 6];
  union { double d; u64 u; } value; value.d = total;
  out[0] = sum; out[1] = words[in[3] % 32]; wide_to(out, 2, wide); wide_to(out, 4, value.u);
}

PROGRAM(copies, 8, 4) {
  u8 text[64], other[64];
  for (u32 k = 0; k < 64; k++) text[k] = (u8)(in[k / 8] >> 4 * (k % 8));
  __builtin_memcpy(other, text, 64);
  __builtin_memmove(text + 3, text, 50);
  __builtin_memset(other + in[0] % 20, 0x5a, 17);
  __builtin_memcpy(other + 40, text + 5, 13);
  u32 a = 0, b = 0, unaligned;
  for (u32 k = 0; k < 64; k++) { a = a * 33 + text[k]; b = b * 37 + other[k]; }
  __builtin_memcpy(&unaligned, text + in[1] % 60, 4);
  u64 wide; __builtin_memcpy(&wide, other + in[2] % 56, 8);
  out[0] = a; out[1] = b; out[2] = unaligned; out[3] = (u32)(wide ^ wide >> 32);
}

NOINLINE static u32 on_stack(u32 count, u32 seed) {
  u32 values[count];
  for (u32 k = 0; k < count; k++) values[k] = seed = seed * 1664525 + 1013904223;
  u32 *more = __builtin_alloca(4 * (seed % 5 + 1));
  more[seed % 5] = count;
  u32 result = more[seed % 5];
  for (u32 k = 0; k < count; k++) result = result * 31 ^ values[(k * 3) % count];
  return result;
}

PROGRAM(stacks, 2, 3) {
  out[0] = on_stack(in[0] % 23 + 1, in[1]);
  u32 sum = 0;
  for (u32 k = 1; k < 6; k++) sum += on_stack(k * (in[1] % 3 + 1), in[0] + k);
  out[1] = sum;
  u16 halves[in[1] % 9 + 2];
  for (u32 k = 0; k < in[1] % 9 + 2; k++) halves[k] = (u16)(in[0] >> k);
  out[2] = halves[in[0] % (in[1] % 9 + 2)] + (u32)sizeof halves;
}

NOINLINE static u64 summed(u32 count, ...) {
  __builtin_va_list arguments;
  u64 sum = 0;
  __builtin_va_start(arguments, count);
  for (u32 k = 0; k < count; k++) {
    if (k % 3 == 0) sum = sum * 7 + __builtin_va_arg(arguments, u32);
    else if (k % 3 == 1) sum = sum * 7 + __builtin_va_arg(arguments, u64);
    else sum = sum * 7 + (u64)(i64)__builtin_va_arg(arguments, double);
  }
  __builtin_va_end(arguments);
  return sum;
}

PROGRAM(variable_arguments, 3, 4) {
  wide_to(out, 0, summed(3, in[0], (u64)in[1] << 20, (double)(i32)in[2] * 3));
  wide_to(out, 2, summed(6, in[2], wide_at(in, 0), 2.75, in[1], 1ull << 50 | in[0], -(double)in[1]));
}

typedef struct node { u32 key; struct node *left, *right; } node;
NOINLINE static void insert(node **root, node *fresh) {
  while (*root) root = fresh->key < (*root)->key ? &(*root)->left : &(*root)->right;
  *root = fresh; }
NOINLINE static u32 walked(const node *tree, u32 depth, u32 mix) {
  if (!tree) return mix;
  mix = walked(tree->left, depth + 1, mix);
  return walked(tree->right, depth + 1, mix * 33 + tree->key + depth); }

PROGRAM(linked_structures, 6, 2) {
  node nodes[18], *root = 0;
  for (u32 k = 0; k < 18; k++) {
    nodes[k] = (node){(in[k % 6] >> k) * 2654435761u >> 16, 0, 0}; insert(&root, &nodes[k]); }
  out[0] = walked(root, 0, item);
  node *previous = 0;
  for (u32 k = 0; k < 18; k++) { nodes[k].left = previous; previous = &nodes[(k * 5) % 18]; }
  u32 sum = 0;
  for (const node *n = &nodes[17]; n && sum < 0x40000000; n = n->left) sum = sum * 3 + (n->key & 15) + 1;
  out[1] = sum;
}
