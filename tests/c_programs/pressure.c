// More live values than registers: some wait in scratch.

#define COUNT 150
PROGRAM(many_values, 20, 2) {
  u32 x[COUNT], forward = 1, backward = 1;
#pragma unroll
  for (u32 k = 0; k < COUNT; k++) x[k] = in[k % 20] * (2 * k + 1) ^ in[(k * 7 + 3) % 20] >> k % 31;
#pragma unroll
  for (u32 k = 0; k < COUNT; k++) forward = (forward ^ x[k]) * 0x9e3779b1u;
#pragma unroll
  for (u32 k = 0; k < COUNT; k++) x[k] += forward >> k % 29;
#pragma unroll
  for (u32 k = COUNT; k-- > 0;) backward = (backward ^ x[k]) * 0x85ebca6bu;
  out[0] = forward; out[1] = backward;
}
