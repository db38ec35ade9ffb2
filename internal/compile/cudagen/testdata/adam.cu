// step 0: 0 B of scratch memory
//   maps_2 <<<395, 256>>> in0.0+0 in0.1+0 in0.2+0 in0.3+0 in0.4+0 in1.0+0 in1.1+0 in1.2+0 in1.3+0 in2.0+0 in2.1+0 in2.2+0 in2.3+0
// step 1: 0 B of scratch memory
// step 2: 0 B of scratch memory

static __device__ __noinline__ void part_0(const float *a0, const float *__restrict__ a1, const float *a2, const float *a3, const float *__restrict__ a4, float *b0, float *b1, float *b2, int n, int block) {
  const float q4 = a4[0];
  const float r4 = (float)number(q4);
  const float r5 = 0x1.ccccccp-01f;
  const float r7 = 0x1.99999ap-04f;
  const float r10 = 0x1.ff7ceep-01f;
  const float r13 = 0x1.0624dep-10f;
  const float r17 = 0x1.5798eep-27f;
  const s32 i = block * 256 + threadIdx.x;
  if (i < n) {
    const s32 e = i * 4;
    const Vec<float, 4> v0 = load<4>(a0 + e);
    const Vec<float, 4> v1 = load<4>(a1 + e);
    const Vec<float, 4> v2 = load<4>(a2 + e);
    const Vec<float, 4> v3 = load<4>(a3 + e);
    Vec<float, 4> w0;
    Vec<float, 4> w1;
    Vec<float, 4> w2;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const float q0 = v0.x[k];
      const float r0 = (float)number(q0);
      const float q1 = v1.x[k];
      const float r1 = (float)number(q1);
      const float q2 = v2.x[k];
      const float r2 = (float)number(q2);
      const float q3 = v3.x[k];
      const float r3 = (float)number(q3);
      const float r6 = opMul(r2, r5);
      const float r8 = opMul(r1, r7);
      const float r9 = opAdd(r6, r8);
      const float r11 = opMul(r3, r10);
      const float r12 = opSquare(r1);
      const float r14 = opMul(r12, r13);
      const float r15 = opAdd(r11, r14);
      const float r16 = opSqrt(r15);
      const float r18 = opAdd(r16, r17);
      const float r19 = opDiv(r9, r18);
      const float r20 = opMul(r19, r4);
      const float r21 = opSub(r0, r20);
      put(w0.x[k], r21);
      put(w1.x[k], r9);
      put(w2.x[k], r15);
    }
    store<4>(b0 + e, w0);
    store<4>(b1 + e, w1);
    store<4>(b2 + e, w2);
  }
}

static __device__ __noinline__ void part_1(const float *a0, const float *__restrict__ a1, const float *a2, const float *a3, const float *__restrict__ a4, float *b0, float *b1, float *b2, int n, int block) {
  const float q4 = a4[0];
  const float r4 = (float)number(q4);
  const float r5 = 0x1.ccccccp-01f;
  const float r7 = 0x1.99999ap-04f;
  const float r10 = 0x1.ff7ceep-01f;
  const float r13 = 0x1.0624dep-10f;
  const float r17 = 0x1.5798eep-27f;
  const s32 i = block * 256 + threadIdx.x;
  if (i < n) {
    const s32 e = i;
    const float q0 = a0[e];
    const float r0 = (float)number(q0);
    const float q1 = a1[e];
    const float r1 = (float)number(q1);
    const float q2 = a2[e];
    const float r2 = (float)number(q2);
    const float q3 = a3[e];
    const float r3 = (float)number(q3);
    const float r6 = opMul(r2, r5);
    const float r8 = opMul(r1, r7);
    const float r9 = opAdd(r6, r8);
    const float r11 = opMul(r3, r10);
    const float r12 = opSquare(r1);
    const float r14 = opMul(r12, r13);
    const float r15 = opAdd(r11, r14);
    const float r16 = opSqrt(r15);
    const float r18 = opAdd(r16, r17);
    const float r19 = opDiv(r9, r18);
    const float r20 = opMul(r19, r4);
    const float r21 = opSub(r0, r20);
    put(b0[e], r21);
    put(b1[e], r9);
    put(b2[e], r15);
  }
}

extern "C" __global__ void __launch_bounds__(256) maps_2(float *p0, float *p1, float *p2, float *p3, float *p4, float *p5, float *p6, float *p7, float *p8, float *p9, float *p10, float *p11, float *p12) {
  if (blockIdx.x < 392) {
    part_0(p0, p1, p2, p3, p4, p0, p2, p3, 100352, blockIdx.x - 0);
  } else {
    if (blockIdx.x < 394) {
      part_1(p5, p6, p7, p8, p4, p5, p7, p8, 512, blockIdx.x - 392);
    } else {
      part_1(p9, p10, p11, p12, p4, p9, p11, p12, 10, blockIdx.x - 394);
    }
  }
}
