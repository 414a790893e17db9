// Memory by other ways than a plain global pointer: generic pointers into three kinds of memory, buffer descriptors with
// range checks, loads to LDS, packed and float atomics in LDS.

#define HERE (GROUP * ITEMS + ITEM)
#define GENERIC __attribute__((address_space(0)))
SHARED(u32, tile, 256);
SHARED(u32, sums, 256);

// Each lane's pointer leads to LDS, to its own scratch or to memory; one flat access serves them all.
NOINLINE static u32 exchanged(u32 *place, u32 value) { u32 old = *place; *place = value; return old; }
NOINLINE static u64 wide_exchanged(u64 *place, u64 value) { u64 old = *place; *place = value; return old; }
KERNEL generic_pointers(GLOBAL const u32 *in, GLOBAL u32 *memory, GLOBAL u32 *out) {
  u32 own[4] = {HERE, 1, 2, 3}, i = HERE, x = in[i];
  u64 wide[3] = {i, x, 5};
  tile[ITEM] = ITEM * 7;
  u32 *place = x % 3 == 0 ? (u32 *)&tile[ITEM] : x % 3 == 1 ? &own[x >> 4 & 3] : (u32 *)&memory[i];
  out[4 * i] = exchanged(place, x);
  out[4 * i + 1] = (__builtin_amdgcn_is_shared((GENERIC void *)place) ? 1 : 0) | (__builtin_amdgcn_is_private((GENERIC void *)place) ? 2 : 0);
  out[4 * i + 2] = tile[ITEM] + own[0] * 3 + own[1] * 5 + own[2] * 7 + own[3] * 11;
  out[4 * i + 3] = (u32)wide_exchanged(&wide[x % 3], x) + (u32)wide[0] + (u32)wide[1] * 3 + (u32)wide[2] * 5;
}

KERNEL generic_atomics(GLOBAL const u32 *in, GLOBAL u32 *memory, GLOBAL u32 *out) {
  u32 i = HERE, x = in[i];
  tile[ITEM] = 0;
  BARRIER();
  u32 *place = x & 1 ? (u32 *)&tile[x >> 1 & 15] : (u32 *)&memory[GROUP * 16 + (x >> 1 & 15)];
  __atomic_fetch_add(place, x >> 8, __ATOMIC_RELAXED);
  __atomic_fetch_or(x & 1 ? (u32 *)&tile[16] : (u32 *)&memory[1000 + GROUP], 1u << (x >> 5 & 31), __ATOMIC_RELAXED);
  BARRIER();
  if (ITEM < 17) out[GROUP * 17 + ITEM] = tile[ITEM];
}

// A descriptor of `bytes` bytes: loads beyond give zero, stores beyond are dropped.
KERNEL buffers(GLOBAL u32 *memory, GLOBAL u32 *out, u32 bytes) {
  typedef u32 word2 __attribute__((ext_vector_type(2)));
  typedef u32 word4 __attribute__((ext_vector_type(4)));
  __amdgpu_buffer_rsrc_t r = __builtin_amdgcn_make_buffer_rsrc((void *)memory, 0, bytes, 0x00027000);
  u32 i = HERE;
  out[8 * i] = __builtin_amdgcn_raw_buffer_load_b32(r, i * 4, 0, 0);
  out[8 * i + 1] = __builtin_amdgcn_raw_buffer_load_b16(r, i * 2, 12, 0);
  out[8 * i + 2] = __builtin_amdgcn_raw_buffer_load_b8(r, i, 100, 0);
  word2 pair = __builtin_amdgcn_raw_buffer_load_b64(r, i * 8, 0, 0);
  word4 four = __builtin_amdgcn_raw_buffer_load_b128(r, i * 16, 0, 0);
  out[8 * i + 3] = pair.x ^ pair.y * 3;
  out[8 * i + 4] = four.x ^ four.y * 3 ^ four.z * 5 ^ four.w * 7;
  __builtin_amdgcn_raw_buffer_store_b32(out[8 * i] + i, r, i * 4, 6000, 0);
  __builtin_amdgcn_raw_buffer_store_b8((u8)i, r, i * 3, 8000, 0);
}

KERNEL loads_to_lds(GLOBAL const u32 *in, GLOBAL u32 *out) {
  u32 i = ITEM, wave = i / 64;
  LDS u32 *row = tile + __builtin_amdgcn_readfirstlane((int)wave) * 64;
  __builtin_amdgcn_global_load_lds((GLOBAL void *)(in + (i * 5 + 3) % 256), (LDS void *)row, 4, 0, 0);
  BARRIER();
  out[i] = tile[(i + 64) % 256];
}

typedef _Float16 half2 __attribute__((ext_vector_type(2)));
typedef i16 short2 __attribute__((ext_vector_type(2)));
KERNEL float_atomics_in_lds(GLOBAL const u32 *in, GLOBAL u32 *out) {
  u32 i = ITEM, x = in[i], y = in[256 + i];
  union { u32 u; half2 h; short2 s; float f; } a, r;
  a.u = x;
  tile[i] = sums[i] = y;
  r.h = __builtin_amdgcn_ds_atomic_fadd_v2f16((LDS half2 *)&tile[i], a.h);
  r.s = __builtin_amdgcn_ds_atomic_fadd_v2bf16((LDS short2 *)&sums[i], a.s);
  out[i] = tile[i]; out[256 + i] = sums[i];
  union { u32 u; float f; } low = {y & 0x3fffffff}, other = {x & 0x3fffffff};
  tile[i] = sums[i] = low.u;
  __builtin_amdgcn_ds_fminf((LDS float *)&tile[i], other.f, 0, 0, 0);
  __builtin_amdgcn_ds_fmaxf((LDS float *)&sums[i], other.f, 0, 0, 0);
  out[512 + i] = tile[i]; out[768 + i] = sums[i];
}

// Unaligned accesses of every size, as packed structures make them.
typedef struct __attribute__((packed)) { u8 first; u16 second; u32 third; u64 fourth; u8 last; } odd;
KERNEL unaligned(GLOBAL const odd *in, GLOBAL odd *out) {
  odd x = in[HERE];
  odd y = {(u8)(x.last + 1), (u16)(x.second * 3), x.third ^ (u32)x.fourth, x.fourth + x.third, x.first};
  out[HERE] = y;
}
