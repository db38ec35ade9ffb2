// Built-in names of NVRTC, for clang without CUDA.
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __align__(n) __attribute__((aligned(n)))

#define SYMGRAD_INDEX(name, reg)                                                                    \
  struct name##_t {                                                                                 \
    struct {                                                                                        \
      __device__ __forceinline__ operator unsigned() const { return __nvvm_read_ptx_sreg_##reg(); } \
    } x;                                                                                            \
  };                                                                                                \
  __device__ name##_t name;
SYMGRAD_INDEX(threadIdx, tid_x)
SYMGRAD_INDEX(blockIdx, ctaid_x)
SYMGRAD_INDEX(blockDim, ntid_x)
SYMGRAD_INDEX(gridDim, nctaid_x)

#define __threadfence() __nvvm_membar_gl()
#define __popc(x) __builtin_popcount(x)
#define __fmul_rn(a, b) ((a) * (b))
#define __dmul_rn(a, b) ((a) * (b))
#define __uint_as_float(x) __builtin_bit_cast(float, (unsigned)(x))
#define __float_as_uint(x) __builtin_bit_cast(unsigned, (float)(x))
#define __longlong_as_double(x) __builtin_bit_cast(double, (long long)(x))
#define __double_as_longlong(x) __builtin_bit_cast(long long, (double)(x))

__device__ unsigned __ballot_sync(unsigned mask, int predicate);
__device__ void __syncwarp();
__device__ float fmaxf(float a, float b);
__device__ int __any_sync(unsigned mask, int x);
__device__ float __shfl_xor_sync(unsigned mask, float x, int lanes);
__device__ double __shfl_xor_sync(unsigned mask, double x, int lanes);
__device__ unsigned atomicInc(unsigned *p, unsigned most);
__device__ unsigned long long atomicCAS(unsigned long long *p, unsigned long long was, unsigned long long is);
__device__ inline int min(int a, int b) { return a < b ? a : b; }
__device__ inline long long min(long long a, long long b) { return a < b ? a : b; }

#define SYMGRAD_MATH1(name)              \
  __device__ float name##f(float);       \
  __device__ double name(double);
#define SYMGRAD_MATH2(name)              \
  __device__ float name##f(float, float); \
  __device__ double name(double, double);
extern "C" {
SYMGRAD_MATH1(fabs) SYMGRAD_MATH1(ceil) SYMGRAD_MATH1(floor) SYMGRAD_MATH1(sin) SYMGRAD_MATH1(cos) SYMGRAD_MATH1(exp)
SYMGRAD_MATH1(log) SYMGRAD_MATH1(log2) SYMGRAD_MATH1(log1p) SYMGRAD_MATH1(expm1) SYMGRAD_MATH1(sqrt) SYMGRAD_MATH1(tanh)
SYMGRAD_MATH1(erf)
SYMGRAD_MATH2(pow)
}
