// dst[i] = src[i] * factor and dst[i] = src[i] / ranks, for the reductions that NVSHMEM lacks. dst
// may be src.
//
// Products and quotients are rounded once to the element type. 16-bit floats are widened to float,
// and the result is rounded to nearest even. Integers wrap, and divide toward zero. The factor is
// read from at when the kernel runs; if at is null it is the low bytes of bits.

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;

struct f16 { u16 bits; };
struct bf16 { u16 bits; };

__device__ inline float wide(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

__device__ inline float wide(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

__device__ inline void narrow(f16 &to, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }

__device__ inline void narrow(bf16 &to, float x) {
  u32 u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) {
    to.bits = (u16)(u >> 16 | 0x40u);  // a NaN stays one
  } else {
    to.bits = (u16)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
  }
}

template <class T> __device__ inline T product(T a, T b) { return (T)(a * b); }
template <> __device__ inline float product(float a, float b) { return __fmul_rn(a, b); }
template <> __device__ inline double product(double a, double b) { return __dmul_rn(a, b); }
template <> __device__ inline f16 product(f16 a, f16 b) { f16 c; narrow(c, __fmul_rn(wide(a), wide(b))); return c; }
template <> __device__ inline bf16 product(bf16 a, bf16 b) { bf16 c; narrow(c, __fmul_rn(wide(a), wide(b))); return c; }

template <class T> __device__ inline T quotient(T a, u32 n) { return (T)((long long)a / (long long)n); }
template <> __device__ inline u64 quotient(u64 a, u32 n) { return a / n; }
template <> __device__ inline float quotient(float a, u32 n) { return __fdiv_rn(a, (float)n); }
template <> __device__ inline double quotient(double a, u32 n) { return __ddiv_rn(a, (double)n); }
template <> __device__ inline f16 quotient(f16 a, u32 n) { f16 c; narrow(c, __fdiv_rn(wide(a), (float)n)); return c; }
template <> __device__ inline bf16 quotient(bf16 a, u32 n) { bf16 c; narrow(c, __fdiv_rn(wide(a), (float)n)); return c; }

// One thread reads and writes each element, so dst may be src.
#define KERNELS(NAME, T)                                                                                  \
  extern "C" __global__ void multiply_##NAME(T *dst, const T *src, u64 n, const T *at, u64 bits) {        \
    union { u64 word; T value; } given;                                                                   \
    given.word = bits;                                                                                    \
    const T factor = at ? *at : given.value;                                                              \
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {   \
      dst[i] = product<T>(src[i], factor);                                                                \
    }                                                                                                     \
  }                                                                                                       \
  extern "C" __global__ void divide_##NAME(T *dst, const T *src, u64 n, u32 ranks) {                      \
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {   \
      dst[i] = quotient<T>(src[i], ranks);                                                                \
    }                                                                                                     \
  }

KERNELS(f16, f16)
KERNELS(bf16, bf16)
KERNELS(f32, float)
KERNELS(f64, double)
KERNELS(i8, signed char)
KERNELS(i16, short)
KERNELS(i32, int)
KERNELS(i64, long long)
KERNELS(u8, unsigned char)
KERNELS(u16, u16)
KERNELS(u32, u32)
KERNELS(u64, u64)
