// step 0: 0 B of scratch memory
//   reduce_0 <<<16, 1024>>> in0.0+0 out0.0+0
// step 1: 0 B of scratch memory
//   reduce_1 <<<128, 64>>> in1.0+0 out1.0+0
// step 2: 260 B of scratch memory
//   reduce_2 <<<16, 256>>> in2.0+0 out2.0+0 scratch2.0+0 scratch2.0+256

extern "C" __global__ void __launch_bounds__(1024) reduce_0(const float *__restrict__ a0, float *b0) {
  const s32 o = (blockIdx.x) * 32 + threadIdx.x % 32;
  const int lane = threadIdx.x / 32;
  float sums[1];
#pragma unroll
  for (int k = 0; k < 1; k++) sums[k] = Sum::none<float>();
  if (o < 512) {
#pragma unroll 4
    for (s32 i = lane; i < 128; i += 32) {
      const s32 e = i;
      const float q0 = a0[o + e * 512];
      const float r0 = (float)number(q0);
      sums[0] = Sum::join(sums[0], r0);
    }
  }
  float x = sums[0];
#pragma unroll
  for (int k = 1; k < 1; k++) x = Sum::join(x, sums[k]);
  x = down<Sum, 32, 32>(x);
  if (lane == 0 && o < 512) {
    put(b0[o], x);
  }
}

extern "C" __global__ void __launch_bounds__(64) reduce_1(const float *__restrict__ a0, float *b0) {
  const s32 o = (blockIdx.x) * 1 + threadIdx.x / 64;
  const int lane = threadIdx.x % 64;
  float sums[2];
#pragma unroll
  for (int k = 0; k < 2; k++) sums[k] = Max::none<float>();
  if (o < 128) {
#pragma unroll 4
    for (s32 i = lane; i < 256; i += 64) {
      const s32 e = i * 2;
      const Vec<float, 2> v0 = load<2>(a0 + o * 512 + e);
#pragma unroll
      for (int k = 0; k < 2; k++) {
        const float q0 = v0.x[k];
        const float r0 = (float)number(q0);
        sums[k] = Max::join(sums[k], r0);
      }
    }
  }
  float x = sums[0];
#pragma unroll
  for (int k = 1; k < 2; k++) x = Max::join(x, sums[k]);
  x = across<Max, 64>(x);
  if (lane == 0 && o < 128) {
    put(b0[o], x);
  }
}

extern "C" __global__ void __launch_bounds__(256) reduce_2(const float *__restrict__ a0, float *b0, float *part, u32 *counts) {
  const int split = blockIdx.x % 16;
  const s32 o = (blockIdx.x / 16) * 1 + threadIdx.x / 256;
  const int lane = threadIdx.x % 256;
  float sums[2];
#pragma unroll
  for (int k = 0; k < 2; k++) sums[k] = Sum::none<float>();
  if (o < 1) {
#pragma unroll 4
    for (s32 i = split * 2048 + lane; i < min(32768, (split + 1) * 2048); i += 256) {
      const s32 e = i * 2;
      const Vec<float, 2> v0 = load<2>(a0 + e);
#pragma unroll
      for (int k = 0; k < 2; k++) {
        const float q0 = v0.x[k];
        const float r0 = (float)number(q0);
        sums[k] = Sum::join(sums[k], r0);
      }
    }
  }
  float x = sums[0];
#pragma unroll
  for (int k = 1; k < 2; k++) x = Sum::join(x, sums[k]);
  x = across<Sum, 256>(x);
  if (lane == 0 && o < 1) part[split * s32(1) + o] = x;
  if (!lastOf(counts + blockIdx.x / 16, 16)) return;
  x = Sum::none<float>();
  if (o < 1)
    for (int i = lane; i < 16; i += 256) x = Sum::join(x, part[i * s32(1) + o]);
  x = across<Sum, 256>(x);
  if (lane == 0 && o < 1) {
    put(b0[0], x);
  }
}
