// step 0: 260 B of scratch memory
//   crossEntropy_0 <<<1, 1024>>> in0.0+0 in0.1+0 out0.0+0 out0.1+0 scratch0.0+0 scratch0.0+256
// step 1: 0 B of scratch memory
//   softmax_1 <<<16, 128>>> in1.0+0 out1.0+0
// step 2: 0 B of scratch memory
//   zeros_2 <<<40, 256>>> out2.0+0
//   gatherGrad_3 <<<128, 256>>> in2.0+0 in2.1+0 out2.0+0 fault2.0+0 number2.0+2

struct crossEntropy_0Shape {
  typedef float A;
  typedef s32 I;
  static constexpr int Threads = 1024;
  static constexpr int Rows = 128;
  static constexpr int Axis = 10;
  static constexpr int Lanes = 16;
  static constexpr int Blocks = 1;
  static constexpr bool Grad = true;
};
extern "C" __global__ void __launch_bounds__(1024) crossEntropy_0(const float *__restrict__ a0, const float *__restrict__ a1, float *b0, float *b1, float *part, u32 *counts) {
  crossEntropy<crossEntropy_0Shape>(a0, a1, b0, b1, part, counts);
}

struct softmax_1Shape {
  typedef float A;
  typedef s32 I;
  static constexpr int Threads = 128;
  static constexpr int Rows = 128;
  static constexpr int Axis = 10;
  static constexpr int Inner = 1;
  static constexpr bool Log = false;
  static constexpr int Lanes = 16;
  static constexpr int Keep = 1;
};
extern "C" __global__ void __launch_bounds__(128) softmax_1(const float *__restrict__ a0, float *b0) {
  softmaxRows<softmax_1Shape>(a0, b0);
}

struct zeros_2Shape {
  typedef float A;
  typedef s32 I;
  static constexpr int Threads = 256;
  static constexpr int Count = 10000;
  static constexpr int Grid = 40;
};
extern "C" __global__ void __launch_bounds__(256) zeros_2(float *b0) {
  zeros<zeros_2Shape>(b0);
}

struct gatherGrad_3Shape {
  typedef float A;
  typedef s32 I;
  static constexpr int Threads = 256;
  static constexpr int Axis = 1000;
  static constexpr int Inner = 10;
  static constexpr int Indices = 128;
  static constexpr int Groups = 128;
  static constexpr int Columns = 16;
  static constexpr int Lanes = 16;
  static constexpr bool ByRow = false;
};
extern "C" __global__ void __launch_bounds__(256) gatherGrad_3(const float *__restrict__ a0, const s32 *__restrict__ a1, float *b0, u64 *words, u64 step) {
  gatherGradRows<gatherGrad_3Shape>(a0, a1, b0, words, step);
}
