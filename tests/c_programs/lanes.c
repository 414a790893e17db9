// Instructions that move data between lanes, one kernel a family. x, y: two random words of each work-item.

#define HERE (GROUP * ITEMS + ITEM)
#define LANE __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0))
#define START u32 i = HERE, x = in[i], y = in[count + i], lane = LANE; (void)x; (void)y; (void)lane
#define GIVE(row, value) out[(row) * count + i] = (value)

KERNEL permutes(GLOBAL const u32 *in, GLOBAL u32 *out, u32 count) {
  START;
  GIVE(0, (u32)__builtin_amdgcn_ds_bpermute((int)y, (int)x));
  GIVE(1, (u32)__builtin_amdgcn_ds_permute((int)(((lane * 5 + 3) & 63) * 4), (int)x));
  GIVE(2, (u32)__builtin_amdgcn_ds_permute((int)(y & 31) * 8, (int)x)); // several lanes write one
  GIVE(3, 0x1234);
  if (y & 1) GIVE(3, (u32)__builtin_amdgcn_ds_bpermute((int)(x & 252), (int)y)); // lanes that are off give zero
}

KERNEL swizzles(GLOBAL const u32 *in, GLOBAL u32 *out, u32 count) {
  START;
  GIVE(0, (u32)__builtin_amdgcn_ds_swizzle((int)x, 0x80e4)); // the same lane of the four
  GIVE(1, (u32)__builtin_amdgcn_ds_swizzle((int)x, 0x801b));
  GIVE(2, (u32)__builtin_amdgcn_ds_swizzle((int)x, 0x041f)); // exclusive or with one
  GIVE(3, (u32)__builtin_amdgcn_ds_swizzle((int)x, 0x7c1f)); // mirrored
  GIVE(4, (u32)__builtin_amdgcn_ds_swizzle((int)x, 0x0010)); // and with 16
  GIVE(5, (u32)__builtin_amdgcn_ds_swizzle((int)x, 0x28b5)); // and, or and exclusive or at once
  GIVE(6, (u32)__builtin_amdgcn_ds_swizzle((int)x, 0xc060)); // turned by three to the left
  GIVE(7, (u32)__builtin_amdgcn_ds_swizzle((int)x, 0xc4a0)); // and by five to the right
}

#define DPP(row, control, rows, banks, bound) \
  GIVE(row, (u32)__builtin_amdgcn_update_dpp((int)y, (int)x, control, rows, banks, bound))
KERNEL data_parallel_moves(GLOBAL const u32 *in, GLOBAL u32 *out, u32 count) {
  START;
  DPP(0, 0x1b, 0xf, 0xf, 0); DPP(1, 0x9c, 0xf, 0xf, 0);
  DPP(2, 0x101, 0xf, 0xf, 0); DPP(3, 0x10f, 0xf, 0xf, 1);
  DPP(4, 0x111, 0xf, 0xf, 0); DPP(5, 0x117, 0xf, 0xf, 1);
  DPP(6, 0x121, 0xf, 0xf, 0); DPP(7, 0x12d, 0xf, 0xf, 0);
  DPP(8, 0x140, 0xf, 0xf, 0); DPP(9, 0x141, 0xf, 0xf, 0);
  DPP(10, 0x142, 0xf, 0xf, 0); DPP(11, 0x143, 0xf, 0xf, 0);
  DPP(12, 0x150, 0xf, 0xf, 0); DPP(13, 0x15b, 0xf, 0xf, 0);
  DPP(14, 0x101, 0x5, 0xf, 0); DPP(15, 0x101, 0xf, 0x6, 0); DPP(16, 0x142, 0xa, 0xf, 0); DPP(17, 0x1b, 0x9, 0x3, 1);
  DPP(18, 0x130, 0xf, 0xf, 0); DPP(19, 0x134, 0xf, 0xf, 0); DPP(20, 0x138, 0xf, 0xf, 1); DPP(21, 0x13c, 0xf, 0xf, 0);
}

// The compiler folds these moves into the addition, the maximum and the float addition.
KERNEL folded_moves(GLOBAL const u32 *in, GLOBAL u32 *out, u32 count) {
  START;
  GIVE(0, y + (u32)__builtin_amdgcn_update_dpp(0, (int)x, 0x1b, 0xf, 0xf, 1));
  u32 turned = (u32)__builtin_amdgcn_update_dpp(0, (int)x, 0x114, 0xf, 0xf, 1);
  GIVE(1, y > turned ? y : turned);
  union { float f; u32 u; } a, b, c;
  a.f = (float)(y & 0xffff); b.u = (u32)__builtin_amdgcn_update_dpp(0, (int)(0x3f800000 | x >> 12), 0x128, 0xf, 0xf, 1);
  c.f = a.f + b.f;
  GIVE(2, c.u);
}

KERNEL swaps(GLOBAL const u32 *in, GLOBAL u32 *out, u32 count) {
  START;
  __auto_type halves = __builtin_amdgcn_permlane32_swap(x, y, 0, 0);
  __auto_type rows = __builtin_amdgcn_permlane16_swap(x, y, 0, 0);
  GIVE(0, halves[0]); GIVE(1, halves[1]); GIVE(2, rows[0]); GIVE(3, rows[1]);
}

KERNEL lane_reads(GLOBAL const u32 *in, GLOBAL u32 *out, u32 count) {
  START;
  GIVE(0, (u32)__builtin_amdgcn_readfirstlane((int)x));
  GIVE(1, (u32)__builtin_amdgcn_readlane((int)x, 37));
  GIVE(2, (u32)__builtin_amdgcn_readlane((int)x, __builtin_amdgcn_readfirstlane((int)y) & 63));
  GIVE(3, 77);
  if (y & 4) GIVE(3, (u32)__builtin_amdgcn_readfirstlane((int)x)); // the first lane that is on
  GIVE(4, x);
  if (lane == 9) GIVE(4, x + 1);
}

KERNEL votes(GLOBAL const u32 *in, GLOBAL u32 *out, u32 count) {
  START;
  u64 all = __builtin_amdgcn_ballot_w64(x & 1), less = __builtin_amdgcn_uicmp(x, y, 36), inside = 0, on = 0;
  if (y & 2) { inside = __builtin_amdgcn_ballot_w64(x > y); on = __builtin_amdgcn_read_exec(); }
  GIVE(0, (u32)all); GIVE(1, (u32)(all >> 32)); GIVE(2, (u32)less); GIVE(3, (u32)(less >> 32));
  GIVE(4, (u32)inside); GIVE(5, (u32)(inside >> 32)); GIVE(6, (u32)on); GIVE(7, (u32)(on >> 32));
  GIVE(8, __builtin_amdgcn_mbcnt_lo(x, y)); GIVE(9, __builtin_amdgcn_mbcnt_hi(x, y));
  GIVE(10, (u32)__builtin_popcountll(all) + LANE);
  GIVE(11, __builtin_amdgcn_inverse_ballot_w64(all ^ 0x123456789abcdefull));
  u64 order = __builtin_amdgcn_fcmpf((float)(x & 15), (float)(y & 15), 3); // ordered, greater or equal
  GIVE(12, (u32)order); GIVE(13, (u32)(order >> 32));
}

KERNEL reductions(GLOBAL const u32 *in, GLOBAL u32 *out, u32 count) {
  START;
  GIVE(0, __builtin_amdgcn_wave_reduce_add_u32(x, 0));
  GIVE(1, __builtin_amdgcn_wave_reduce_max_u32(x, 0));
  GIVE(2, (u32)__builtin_amdgcn_wave_reduce_min_i32((int)x, 0));
  GIVE(3, __builtin_amdgcn_wave_reduce_xor_b32(x, 0));
  GIVE(4, 5);
  if (y & 1) GIVE(4, (u32)__builtin_amdgcn_wave_reduce_or_b32((int)(x & 0x11111111 << (y & 3)), 0));
  // the usual butterfly, by exchanges of halves, quarters and so on
  u32 sum = y;
  for (u32 step = 32; step; step /= 2) sum += (u32)__builtin_amdgcn_ds_bpermute((int)((lane ^ step) * 4), (int)sum);
  GIVE(5, sum);
}

SHARED(u32, shared, 64);
KERNEL lds_counters(GLOBAL u32 *out) {
  if (ITEM < 64) shared[ITEM] = 100;
  BARRIER();
  if (ITEM & 1) out[ITEM] = (u32)__builtin_amdgcn_ds_append((LDS int *)&shared[5]);
  else out[ITEM] = (u32)__builtin_amdgcn_ds_consume((LDS int *)&shared[6]);
  BARRIER();
  if (ITEM == 0) { out[ITEMS] = shared[5]; out[ITEMS + 1] = shared[6]; }
}

typedef _Float16 half2 __attribute__((ext_vector_type(2)));
typedef i16 short2 __attribute__((ext_vector_type(2)));
KERNEL float_atomics(GLOBAL const u32 *in, GLOBAL u32 *out, u32 count) {
  START;
  union { u32 u; half2 h; short2 s; float f; } a, r;
  a.u = x;
  GIVE(0, y); GIVE(1, y); GIVE(2, y);
  r.h = __builtin_amdgcn_global_atomic_fadd_v2f16((GLOBAL half2 *)(out + i), a.h); GIVE(3, r.u);
  r.s = __builtin_amdgcn_global_atomic_fadd_v2bf16((GLOBAL short2 *)(out + count + i), a.s); GIVE(4, r.u);
  r.f = __builtin_amdgcn_global_atomic_fadd_f32((GLOBAL float *)(out + 2 * count + i), a.f); GIVE(5, r.u);
}

KERNEL wide_float_atomics(GLOBAL const double *in, GLOBAL double *out, u32 count) {
  u32 i = HERE;
  double x = in[i], y = in[count + i];
  out[i] = out[count + i] = out[2 * count + i] = y;
  __builtin_amdgcn_global_atomic_fadd_f64(out + i, x);
  __builtin_amdgcn_global_atomic_fmin_f64(out + count + i, x);
  out[3 * count + i] = __builtin_amdgcn_global_atomic_fmax_f64(out + 2 * count + i, x);
}

KERNEL wrapping_counters(GLOBAL const u32 *in, GLOBAL u32 *out, u32 count) {
  START;
  GIVE(0, y & 7); GIVE(1, y & 7);
  GIVE(2, __builtin_amdgcn_atomic_inc32(out + i, x & 7, __ATOMIC_RELAXED, "agent"));
  GIVE(3, __builtin_amdgcn_atomic_dec32(out + count + i, x & 7, __ATOMIC_RELAXED, "agent"));
}
