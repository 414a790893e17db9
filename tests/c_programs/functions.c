// One float function a kernel, and conversions between float formats: oracles are multiple-precision arithmetic and
// the formats of a library.

#define HERE (GROUP * ITEMS + ITEM)
#define FUNCTION(name, T, builtin) \
  KERNEL name(GLOBAL const T *in, GLOBAL T *out) { out[HERE] = __builtin_amdgcn_##builtin(in[HERE]); }
FUNCTION(exp2_f32, float, exp2f)
FUNCTION(log2_f32, float, logf)
FUNCTION(rcp_f32, float, rcpf)
FUNCTION(rsq_f32, float, rsqf)
FUNCTION(sqrt_f32, float, sqrtf)
FUNCTION(sin_f32, float, sinf)
FUNCTION(cos_f32, float, cosf)
FUNCTION(rcp_f16, _Float16, rcph)
FUNCTION(rsq_f16, _Float16, rsqh)
FUNCTION(sqrt_f16, _Float16, sqrth)

typedef float float2 __attribute__((ext_vector_type(2)));
KERNEL to_fp8(GLOBAL const float *in, GLOBAL u32 *out) {
  u32 i = HERE; float a = in[2 * i], b = in[2 * i + 1];
  int low = __builtin_amdgcn_cvt_pk_fp8_f32(a, b, 0x55555555, 0);
  out[2 * i] = (u32)__builtin_amdgcn_cvt_pk_fp8_f32(b, a, low, 1);
  low = __builtin_amdgcn_cvt_pk_bf8_f32(a, b, 0x55555555, 0);
  out[2 * i + 1] = (u32)__builtin_amdgcn_cvt_pk_bf8_f32(b, a, low, 1);
}
KERNEL from_fp8(GLOBAL const u32 *in, GLOBAL float *out) {
  u32 i = HERE; int x = (int)in[i]; GLOBAL float *o = out + 16 * i;
  o[0] = __builtin_amdgcn_cvt_f32_fp8(x, 0); o[1] = __builtin_amdgcn_cvt_f32_fp8(x, 1);
  o[2] = __builtin_amdgcn_cvt_f32_fp8(x, 2); o[3] = __builtin_amdgcn_cvt_f32_fp8(x, 3);
  float2 low = __builtin_amdgcn_cvt_pk_f32_fp8(x, 0), high = __builtin_amdgcn_cvt_pk_f32_fp8(x, 1);
  o[4] = low.x; o[5] = low.y; o[6] = high.x; o[7] = high.y;
  o[8] = __builtin_amdgcn_cvt_f32_bf8(x, 0); o[9] = __builtin_amdgcn_cvt_f32_bf8(x, 1);
  o[10] = __builtin_amdgcn_cvt_f32_bf8(x, 2); o[11] = __builtin_amdgcn_cvt_f32_bf8(x, 3);
  low = __builtin_amdgcn_cvt_pk_f32_bf8(x, 0), high = __builtin_amdgcn_cvt_pk_f32_bf8(x, 1);
  o[12] = low.x; o[13] = low.y; o[14] = high.x; o[15] = high.y;
}
KERNEL from_scaled_fp4(GLOBAL const u32 *in, GLOBAL float *out) {
  u32 i = HERE; u32 x = in[2 * i]; union { u32 u; float f; } scale = {in[2 * i + 1]};
#define PAIR(byte) { float2 p = __builtin_amdgcn_cvt_scalef32_pk_f32_fp4(x, scale.f, byte); out[8 * i + 2 * byte] = p.x; out[8 * i + 2 * byte + 1] = p.y; }
  PAIR(0) PAIR(1) PAIR(2) PAIR(3)
}
KERNEL to_scaled_fp4(GLOBAL const float *in, GLOBAL u32 *out, GLOBAL const float *scales) {
  u32 i = HERE; GLOBAL const float *v = in + 8 * i; float s = scales[i];
  u32 r = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(0, v[0], v[1], s, 0);
  r = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(r, v[2], v[3], s, 1);
  r = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(r, v[4], v[5], s, 2);
  out[i] = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(r, v[6], v[7], s, 3);
}
typedef u32 word6 __attribute__((ext_vector_type(6)));
KERNEL from_scaled_fp6(GLOBAL const u32 *in, GLOBAL float *out, GLOBAL const float *scales) {
  u32 i = HERE; word6 x; for (u32 k = 0; k < 6; k++) x[k] = in[6 * i + k];
  __auto_type a = __builtin_amdgcn_cvt_scalef32_pk32_f32_fp6(x, scales[i]);
  __auto_type b = __builtin_amdgcn_cvt_scalef32_pk32_f32_bf6(x, scales[i]);
  for (u32 k = 0; k < 32; k++) { out[64 * i + k] = a[k]; out[64 * i + 32 + k] = b[k]; }
}
KERNEL brain_pairs(GLOBAL const float *in, GLOBAL u32 *out) {
  typedef __bf16 brain2 __attribute__((ext_vector_type(2)));
  union { brain2 b; u32 u; } r; r.b = (brain2){(__bf16)in[2 * HERE], (__bf16)in[2 * HERE + 1]}; out[HERE] = r.u;
}
