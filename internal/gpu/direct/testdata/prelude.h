// Declarations that NVRTC has built in, for clang without a CUDA installation.
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __align__(n) __attribute__((aligned(n)))
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(n) __attribute__((launch_bounds(n)))

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

#define __syncwarp() __nvvm_bar_warp_sync(0xffffffffu)
#define __any_sync(m, p) __nvvm_vote_any_sync(m, p)
#define __all_sync(m, p) __nvvm_vote_all_sync(m, p)
#define __fadd_rn(a, b) __nvvm_add_rn_f(a, b)
#define __fmul_rn(a, b) __nvvm_mul_rn_f(a, b)
#define __fdiv_rn(a, b) __nvvm_div_rn_f(a, b)
#define __dadd_rn(a, b) __nvvm_add_rn_d(a, b)
#define __dmul_rn(a, b) __nvvm_mul_rn_d(a, b)
#define __ddiv_rn(a, b) __nvvm_div_rn_d(a, b)
#define __uint_as_float(x) __builtin_bit_cast(float, (unsigned)(x))
#define __float_as_uint(x) __builtin_bit_cast(unsigned, (float)(x))
#define __longlong_as_double(x) __builtin_bit_cast(double, (long long)(x))
#define __double_as_longlong(x) __builtin_bit_cast(long long, (double)(x))
