// What work-items do together: atomics on memory and LDS, barriers over several waves, grids of three dimensions.

#define RELAXED __ATOMIC_RELAXED
#define ITEM_Y __builtin_amdgcn_workitem_id_y()
#define ITEM_Z __builtin_amdgcn_workitem_id_z()
#define GROUP_Y __builtin_amdgcn_workgroup_id_y()
#define GROUP_Z __builtin_amdgcn_workgroup_id_z()
#define HERE (GROUP * ITEMS + ITEM)

// One word an operation; what each returned stands behind one another.
KERNEL atomics_on_words(GLOBAL const u32 *in, GLOBAL u32 *words, GLOBAL u32 *returned, u32 count) {
  u32 i = HERE;
  if (i >= count) return;
  u32 x = in[i];
  returned[i] = __atomic_fetch_add(&words[0], x, RELAXED);
  returned[count + i] = __atomic_fetch_or(&words[1], 1u << (x & 31), RELAXED);
  returned[2 * count + i] = (u32)__atomic_fetch_max((GLOBAL i32 *)&words[2], (i32)x, RELAXED);
  returned[3 * count + i] = __atomic_exchange_n(&words[3], x, RELAXED);
  __atomic_fetch_sub(&words[4], x >> 3, RELAXED);
  __atomic_fetch_and(&words[5], x | 0x0ff0, RELAXED);
  __atomic_fetch_xor(&words[6], x * 3, RELAXED);
  __atomic_fetch_min((GLOBAL i32 *)&words[7], (i32)x, RELAXED);
  __atomic_fetch_min(&words[8], x, RELAXED);
  __atomic_fetch_max(&words[9], x, RELAXED);
  u32 expected = __atomic_load_n(&words[10], RELAXED), wanted;
  do wanted = expected * 5 + 1; while (!__atomic_compare_exchange_n(&words[10], &expected, wanted, 0, RELAXED, RELAXED));
  __atomic_fetch_nand(&words[11], 0u, RELAXED);
  __scoped_atomic_fetch_add((GLOBAL float *)&words[12], (float)(x & 255) * 0.5f, RELAXED, __MEMORY_SCOPE_DEVICE);
}

KERNEL atomics_on_wide_words(GLOBAL const u64 *in, GLOBAL u64 *words, GLOBAL u64 *returned, u32 count) {
  u32 i = HERE;
  if (i >= count) return;
  u64 x = in[i];
  returned[i] = __atomic_fetch_add(&words[0], x, RELAXED);
  returned[count + i] = __atomic_exchange_n(&words[1], x, RELAXED);
  __atomic_fetch_or(&words[2], 1ull << (x & 63), RELAXED);
  __atomic_fetch_xor(&words[3], x, RELAXED);
  __atomic_fetch_max((GLOBAL i64 *)&words[4], (i64)x, RELAXED);
  __atomic_fetch_min(&words[5], x, RELAXED);
  u64 expected = __atomic_load_n(&words[6], RELAXED);
  while (!__atomic_compare_exchange_n(&words[6], &expected, expected * 3 + 1, 0, RELAXED, RELAXED)) {}
  __scoped_atomic_fetch_add((GLOBAL double *)&words[7], (double)(x & 1023) * 0.25, RELAXED, __MEMORY_SCOPE_DEVICE);
}

SHARED(u32, counts, 64);
SHARED(u64, wides, 4);
KERNEL atomics_on_lds(GLOBAL const u32 *in, GLOBAL u32 *out, GLOBAL u64 *wide_out) {
  u32 i = ITEM, x = in[HERE];
  if (i < 64) counts[i] = i == 33 || i == 35 ? ~0u : 0;
  if (i < 4) wides[i] = i == 2 ? ~0ull : 0;
  BARRIER();
  __atomic_fetch_add(&counts[x & 31], 1, RELAXED);
  __atomic_fetch_max(&counts[32], x, RELAXED);
  __atomic_fetch_min(&counts[33], x, RELAXED);
  __atomic_fetch_xor(&counts[34], x, RELAXED);
  __atomic_fetch_and(&counts[35], x | 7, RELAXED);
  u32 ticket = __atomic_fetch_add(&counts[36], 1, RELAXED);
  __atomic_fetch_add(&counts[37], ticket, RELAXED);
  u32 expected = __atomic_load_n(&counts[38], RELAXED);
  while (!__atomic_compare_exchange_n(&counts[38], &expected, expected + (x & 3), 0, RELAXED, RELAXED)) {}
  __scoped_atomic_fetch_add((LDS float *)&counts[39], (float)(x & 63) * 0.5f, RELAXED, __MEMORY_SCOPE_WRKGRP);
  __atomic_fetch_add(&wides[0], (u64)x << 20, RELAXED);
  __atomic_fetch_max(&wides[1], (u64)x * x, RELAXED);
  __atomic_fetch_min((LDS i64 *)&wides[2], -(i64)x, RELAXED);
  __scoped_atomic_fetch_add((LDS double *)&wides[3], (double)(x & 1023) * 0.125, RELAXED, __MEMORY_SCOPE_WRKGRP);
  BARRIER();
  if (i < 64) out[GROUP * 64 + i] = counts[i];
  if (i < 4) wide_out[GROUP * 4 + i] = wides[i];
}

SHARED(u32, tile, 1024);
KERNEL prefix_sums(GLOBAL const u32 *in, GLOBAL u32 *out) {
  u32 i = ITEM;
  tile[i] = in[HERE];
  BARRIER();
  for (u32 step = 1; step < ITEMS; step *= 2) {
    u32 add = i >= step ? tile[i - step] : 0;
    BARRIER();
    tile[i] += add;
    BARRIER();
  }
  out[HERE] = tile[i];
}

KERNEL bitonic_sort(GLOBAL u32 *data) {
  u32 i = ITEM;
  tile[i] = data[HERE];
  BARRIER();
  for (u32 size = 2; size <= ITEMS; size *= 2)
    for (u32 step = size / 2; step; step /= 2) {
      u32 other = i ^ step, mine = tile[i], theirs = tile[other];
      BARRIER();
      tile[i] = ((i & size) == 0) == (i < other) ? (mine < theirs ? mine : theirs) : (mine < theirs ? theirs : mine);
      BARRIER();
    }
  data[HERE] = tile[i];
}

// Tiles of 16 by 16: c[rows][columns] = a[rows][inner] b[inner][columns], sizes not multiples of the tile.
SHARED(float, left, 256);
SHARED(float, right, 272);
KERNEL tiled_product(GLOBAL const float *a, GLOBAL const float *b, GLOBAL float *c, u32 rows, u32 columns, u32 inner) {
  u32 x = ITEM, y = ITEM_Y, row = GROUP_Y * 16 + y, column = GROUP * 16 + x;
  float sum = 0.0f;
  for (u32 start = 0; start < inner; start += 16) {
    left[y * 16 + x] = row < rows && start + x < inner ? a[row * inner + start + x] : 0.0f;
    right[y * 17 + x] = start + y < inner && column < columns ? b[(start + y) * columns + column] : 0.0f;
    BARRIER();
    for (u32 k = 0; k < 16; k++) sum = sum + left[y * 16 + k] * right[k * 17 + x];
    BARRIER();
  }
  if (row < rows && column < columns) c[row * columns + column] = sum;
}

// The workgroup that comes last adds up what all have left.
KERNEL last_group_finishes(GLOBAL const u32 *in, GLOBAL u32 *partial, GLOBAL u32 *done, GLOBAL u32 *total) {
  u32 i = ITEM;
  if (i == 0) counts[0] = counts[1] = 0;
  BARRIER();
  __atomic_fetch_add(&counts[0], in[HERE], RELAXED);
  BARRIER();
  if (i == 0) {
    __atomic_store_n(&partial[GROUP], counts[0], RELAXED);
    counts[1] = __scoped_atomic_fetch_add(done, 1, __ATOMIC_ACQ_REL, __MEMORY_SCOPE_DEVICE);
  }
  BARRIER();
  if (counts[1] == in[-1] - 1) {
    u32 sum = 0;
    for (u32 k = i; k < in[-1]; k += ITEMS) sum += __atomic_load_n(&partial[k], RELAXED);
    __atomic_fetch_add(total, sum, RELAXED);
  }
}

// A lock over all waves. One lane of a wave after another comes to it: lanes that wait for a lane of their own wave would
// wait for ever.
KERNEL locked_updates(GLOBAL u32 *lock, GLOBAL u32 *shared, u32 turns) {
  for (u32 k = 0; k < turns; k++) {
    if (ITEM % 8 != k) continue;
    for (u32 lane = 0; lane < 64; lane += 8) {
      if (ITEM % 64 != lane + k) continue;
      while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE)) {}
      shared[0] = shared[0] * 3 + 1;
      shared[1] += HERE;
      __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
    }
  }
}

// Every work-item of a grid of three dimensions writes where it stands. The size of its own workgroup, which may be a
// partial one, comes from the hidden arguments: counts of full workgroups, sizes of full ones, sizes of the last ones.
static u32 size_here(u32 axis, u32 group) {
  const CONSTANT u8 *hidden = (const CONSTANT u8 *)__builtin_amdgcn_implicitarg_ptr();
  u32 full = ((const CONSTANT u32 *)hidden)[axis];
  return ((const CONSTANT u16 *)(hidden + (group < full ? 12 : 18)))[axis];
}
KERNEL three_dimensions(GLOBAL u32 *out, u32 width, u32 height) {
  u32 x = GROUP * 4 + ITEM, y = GROUP_Y * 3 + ITEM_Y, z = GROUP_Z * 2 + ITEM_Z;
  GLOBAL u32 *mine = out + ((z * height + y) * width + x) * 4;
  mine[0] = size_here(0, GROUP) | size_here(1, GROUP_Y) << 8 | size_here(2, GROUP_Z) << 16 | ITEMS << 24;
  mine[1] = ITEM | ITEM_Y << 8 | ITEM_Z << 16;
  mine[2] = GROUP | GROUP_Y << 8 | GROUP_Z << 16;
  mine[3] = __builtin_amdgcn_grid_size_x() | __builtin_amdgcn_grid_size_y() << 8 | __builtin_amdgcn_grid_size_z() << 16;
}

// LDS whose size is known at launch only, behind LDS of the kernel's own.
extern LDS u32 dynamic[];
KERNEL dynamic_lds(GLOBAL const u32 *in, GLOBAL u32 *out, u32 words) {
  u32 i = ITEM;
  tile[i] = in[i];
  for (u32 k = i; k < words; k += ITEMS) dynamic[k] = in[k] * 7 + k;
  BARRIER();
  u32 mix = tile[ITEMS - 1 - i];
  for (u32 k = i; k < words; k += ITEMS) mix = mix * 31 + dynamic[words - 1 - k];
  out[i] = mix;
}
