// Sorting and searching in arrays of scratch.

#define COUNT 24
static void fill(u32 *a, GLOBAL const u32 *in) { for (u32 k = 0; k < COUNT; k++) a[k] = in[k % 8] * (2 * k + 1) >> (k & 15); }
static u32 digest(const u32 *a, u32 count) {
  u32 mix = 0; for (u32 k = 0; k < count; k++) mix = (mix ^ a[k]) * 16777619u + (k && a[k - 1] > a[k]); return mix; }

NOINLINE static void quick(u32 *a, i32 low, i32 high) {
  if (low >= high) return;
  u32 pivot = a[(low + high) / 2];
  i32 i = low, j = high;
  while (i <= j) {
    while (a[i] < pivot) i++;
    while (a[j] > pivot) j--;
    if (i <= j) { u32 t = a[i]; a[i++] = a[j]; a[j--] = t; }
  }
  quick(a, low, j); quick(a, i, high); }

PROGRAM(quicksort, 8, 3) {
  u32 a[COUNT]; fill(a, in); quick(a, 0, COUNT - 1);
  out[0] = digest(a, COUNT); out[1] = a[0]; out[2] = a[COUNT - 1]; }

static void sift(i32 *a, u32 root, u32 end) {
  for (u32 child; (child = 2 * root + 1) < end; root = child) {
    if (child + 1 < end && a[child] < a[child + 1]) child++;
    if (a[root] >= a[child]) return;
    i32 t = a[root]; a[root] = a[child]; a[child] = t; } }

PROGRAM(heapsort, 8, 2) {
  i32 a[COUNT]; fill((u32 *)a, in);
  for (u32 k = COUNT / 2; k-- > 0;) sift(a, k, COUNT);
  for (u32 end = COUNT; --end > 0;) { i32 t = a[0]; a[0] = a[end]; a[end] = t; sift(a, 0, end); }
  out[0] = digest((u32 *)a, COUNT); out[1] = (u32)a[COUNT / 2]; }

typedef i32 (*order)(const void *, const void *);
NOINLINE static i32 by_size(const void *x, const void *y) { u32 a = *(const u32 *)x, b = *(const u32 *)y; return (a > b) - (a < b); }
NOINLINE static i32 by_bits(const void *x, const void *y) {
  u32 a = *(const u32 *)x, b = *(const u32 *)y; i32 d = __builtin_popcount(a) - __builtin_popcount(b); return d ? d : by_size(y, x); }
NOINLINE static void insertion(void *base, u32 count, u32 size, order compare) {
  u8 *bytes = base;
  for (u32 k = 1; k < count; k++)
    for (u32 j = k; j > 0 && compare(bytes + (j - 1) * size, bytes + j * size) > 0; j--)
      for (u32 b = 0; b < size; b++) {
        u8 t = bytes[(j - 1) * size + b]; bytes[(j - 1) * size + b] = bytes[j * size + b]; bytes[j * size + b] = t; } }

PROGRAM(sort_by_comparator, 8, 2) {
  u32 a[12], b[12];
  for (u32 k = 0; k < 12; k++) a[k] = b[k] = in[k % 8] ^ in[(k + 3) % 8] >> k;
  insertion(a, 12, 4, by_size); insertion(b, 12, 4, item & 1 ? by_bits : by_size);
  out[0] = digest(a, 12); out[1] = digest(b, 12); }

NOINLINE static void merge_sort(float *a, float *spare, u32 count) {
  if (count < 2) return;
  u32 half = count / 2, i = 0, j = half;
  merge_sort(a, spare, half); merge_sort(a + half, spare, count - half);
  for (u32 k = 0; k < count; k++) spare[k] = j >= count || (i < half && a[i] <= a[j]) ? a[i++] : a[j++];
  for (u32 k = 0; k < count; k++) a[k] = spare[k]; }

PROGRAM(mergesort_of_floats, 8, 2) {
  float a[20], spare[20];
  for (u32 k = 0; k < 20; k++) a[k] = (float)(i32)(in[k % 8] << k % 5) * 0.25f;
  merge_sort(a, spare, 20);
  union { float f; u32 u; } v; u32 mix = 0;
  for (u32 k = 0; k < 20; k++) { v.f = a[k]; mix = mix * 31 + v.u; }
  out[0] = mix; v.f = a[10]; out[1] = v.u; }

#define EXCHANGE(i, j) { u32 x = a[i], y = a[j]; a[i] = x < y ? x : y; a[j] = x < y ? y : x; }
PROGRAM(sorting_network, 8, 8) {
  u32 a[8];
  for (u32 k = 0; k < 8; k++) a[k] = in[k];
  EXCHANGE(0, 1) EXCHANGE(2, 3) EXCHANGE(4, 5) EXCHANGE(6, 7)
  EXCHANGE(0, 2) EXCHANGE(1, 3) EXCHANGE(4, 6) EXCHANGE(5, 7)
  EXCHANGE(1, 2) EXCHANGE(5, 6) EXCHANGE(0, 4) EXCHANGE(3, 7)
  EXCHANGE(1, 5) EXCHANGE(2, 6) EXCHANGE(1, 4) EXCHANGE(3, 6)
  EXCHANGE(2, 4) EXCHANGE(3, 5) EXCHANGE(3, 4)
  for (u32 k = 0; k < 8; k++) out[k] = a[k]; }

PROGRAM(radix_and_search, 8, 3) {
  u32 a[COUNT], b[COUNT]; fill(a, in);
  for (u32 shift = 0; shift < 32; shift += 8) {
    u16 counts[256];
    for (u32 k = 0; k < 256; k++) counts[k] = 0;
    for (u32 k = 0; k < COUNT; k++) counts[a[k] >> shift & 255]++;
    u16 total = 0;
    for (u32 k = 0; k < 256; k++) { u16 c = counts[k]; counts[k] = total; total += c; }
    for (u32 k = 0; k < COUNT; k++) b[counts[a[k] >> shift & 255]++] = a[k];
    for (u32 k = 0; k < COUNT; k++) a[k] = b[k];
  }
  out[0] = digest(a, COUNT);
  u32 low = 0, high = COUNT, wanted = in[0];
  while (low < high) { u32 middle = (low + high) / 2; if (a[middle] < wanted) low = middle + 1; else high = middle; }
  out[1] = low; out[2] = a[low < COUNT ? low : 0]; }
