// step 0: 0 B of scratch memory
//   tiles_0 <<<384, 256>>> in0.0+0 out0.0+0

extern "C" __global__ void __launch_bounds__(256) tiles_0(const float *__restrict__ a0, float *b0) {
  __shared__ float t0[32][33];
  const int column = threadIdx.x % 32, lane = threadIdx.x / 32;
  const int right = blockIdx.x % 24 * 32, below = blockIdx.x / 24 % 2 * 32;
  const s32 c0 = blockIdx.x / 48 % 8;
#pragma unroll
  for (int row = lane; row < 32; row += 8) {
    const s32 c1 = below + column, c2 = right + row;
    if (c1 >= 64 || c2 >= 768) continue;
    t0[row][column] = a0[c0 * 49152 + c1 + c2 * 64];
  }
  __syncthreads();
  for (int row = lane; row < 32; row += 8) {
    const s32 c1 = below + row, c2 = right + column;
    if (c1 >= 64 || c2 >= 768) continue;
    const float q0 = t0[column][row];
    const float r0 = (float)number(q0);
    b0[c0 * 49152 + c1 * 768 + c2] = q0;
  }
}
