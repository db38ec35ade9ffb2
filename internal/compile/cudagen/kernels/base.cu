// Code of all kernels: types, loads and stores, scalar operations, and sums over the threads of a
// block. ARCH is the architecture, 90 for sm_90.

typedef unsigned long long u64;
typedef long long s64;
typedef unsigned int u32;
typedef int s32;
typedef unsigned short u16;
typedef short s16;
typedef unsigned char u8;
typedef signed char s8;
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

#define INLINE __device__ __forceinline__

// Vec is V elements that are loaded and stored at once, or 16 bytes at a time.
template <class T, int V>
struct alignas(sizeof(T) * V > 16 ? 16 : sizeof(T) * V) Vec {
  T x[V];
};

template <int V, class T>
INLINE Vec<T, V> load(const T *p) {
  return *reinterpret_cast<const Vec<T, V> *>(p);
}

template <int V, class T>
INLINE void store(T *p, Vec<T, V> v) {
  *reinterpret_cast<Vec<T, V> *>(p) = v;
}

// number converts an element for arithmetic.
INLINE float number(f16 x) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x.bits));
  return f;
}
INLINE float number(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
template <class T>
INLINE T number(T x) {
  return x;
}

// put is the inverse of number: it rounds a number to an element. Integers are rounded towards 0
// and clamped, and NaN becomes 0.
template <class A, class T>
INLINE void put(T &to, A x) {
  to = (T)x;
}
#define INTEGER(T, least, beyond)                                          \
  template <class A>                                                       \
  INLINE void put(T &to, A x) {                                            \
    to = x <= (A)least ? (T)(s64)(least) : x >= (A)beyond ? (T)((u64)beyond - 1) : x == x ? (T)x : (T)0; \
  }
INTEGER(s8, -128.0, 128.0)
INTEGER(s16, -32768.0, 32768.0)
INTEGER(s32, -2147483648.0, 2147483648.0)
INTEGER(s64, -9223372036854775808.0, 9223372036854775808.0)
INTEGER(u8, 0.0, 256.0)
INTEGER(u16, 0.0, 65536.0)
INTEGER(u32, 0.0, 4294967296.0)
#undef INTEGER
template <class A>
INLINE void put(u64 &to, A x) {
  to = x >= (A)18446744073709551616.0 ? ~0ull : x > (A)0 ? (u64)x : 0;
}
INLINE void put(f16 &to, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
INLINE void put(f16 &to, double x) { asm("cvt.rn.f16.f64 %0, %1;" : "=h"(to.bits) : "d"(x)); }
INLINE void put(bf16 &to, float x) {
#if ARCH >= 90
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
  const u32 u = __float_as_uint(x);
  to.bits = (u16)((u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40u : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);
#endif
}
INLINE void put(bf16 &to, double x) { put(to, (float)x); }

// narrowed returns x rounded to T.
template <class T>
INLINE float narrowed(float x) {
  T t;
  put(t, x);
  return number(t);
}

// odd returns x as a float whose last bit is set if x is between two of them. Rounding that to a type
// with at least two bits fewer rounds x once: see toOdd in package tensor.
INLINE float odd(double x) {
  const float f = (float)x;
  if ((double)f == x || x != x) return f;
  u32 bits = __float_as_uint(f);
  if (fabs((double)f) > fabs(x)) bits--;
  return __uint_as_float(bits | 1u);
}

// The scalar operations, for float and double. None is approximate: libdevice's are within a few
// units of the last place. Maximum and minimum return NaN if an operand is NaN.
#define UNARY(name, f, d)                 \
  INLINE float name(float x) { return f; } \
  INLINE double name(double x) { return d; }
UNARY(opNeg, -x, -x)
UNARY(opAbs, fabsf(x), fabs(x))
UNARY(opSign, (float)((x > 0.0f) - (x < 0.0f)), (double)((x > 0.0) - (x < 0.0)))
UNARY(opCeil, ceilf(x), ceil(x))
UNARY(opFloor, floorf(x), floor(x))
UNARY(opSin, sinf(x), sin(x))
UNARY(opCos, cosf(x), cos(x))
UNARY(opExp, expf(x), exp(x))
UNARY(opLog, logf(x), log(x))
UNARY(opLog2, log2f(x), log2(x))
UNARY(opLog1p, log1pf(x), log1p(x))
UNARY(opExpm1, expm1f(x), expm1(x))
UNARY(opSquare, x *x, x *x)
UNARY(opCube, x *x *x, x *x *x)
UNARY(opSqrt, sqrtf(x), sqrt(x))
UNARY(opRsqrt, 1.0f / sqrtf(x), 1.0 / sqrt(x))
UNARY(opInverse, 1.0f / x, 1.0 / x)
UNARY(opTanh, tanhf(x), tanh(x))
UNARY(opSigmoid, 1.0f / (1.0f + expf(-x)), 1.0 / (1.0 + exp(-x)))
UNARY(opSoftplus, (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x))), (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x))))
UNARY(opErf, erff(x), erf(x))
UNARY(opToBF16, narrowed<bf16>(x), (double)narrowed<bf16>(odd(x)))
UNARY(opToF16, narrowed<f16>(x), (double)narrowed<f16>(odd(x)))
#undef UNARY

#define BINARY(name, f, d)                         \
  INLINE float name(float a, float b) { return f; } \
  INLINE double name(double a, double b) { return d; }
BINARY(opAdd, a + b, a + b)
BINARY(opSub, a - b, a - b)
BINARY(opMul, a *b, a *b)
BINARY(opProduct, __fmul_rn(a, b), __dmul_rn(a, b))
BINARY(opDiv, a / b, a / b)
BINARY(opPow, powf(a, b), pow(a, b))
BINARY(opMaximum, a > b || a != a ? a : b, a > b || a != a ? a : b)
BINARY(opMinimum, a < b || a != a ? a : b, a < b || a != a ? a : b)
BINARY(opLess, a < b ? 1.0f : 0.0f, a < b ? 1.0 : 0.0)
BINARY(opLessEqual, a <= b ? 1.0f : 0.0f, a <= b ? 1.0 : 0.0)
BINARY(opGreater, a > b ? 1.0f : 0.0f, a > b ? 1.0 : 0.0)
BINARY(opGreaterEqual, a >= b ? 1.0f : 0.0f, a >= b ? 1.0 : 0.0)
BINARY(opEqual, a == b ? 1.0f : 0.0f, a == b ? 1.0 : 0.0)
BINARY(opNotEqual, a != b ? 1.0f : 0.0f, a != b ? 1.0 : 0.0)
#undef BINARY

template <class A>
INLINE A opSelect(A a, A b, A c) {
  return a != (A)0 ? b : c;
}

// Sum and Max are reductions: the value of an empty one, and the combination of two.
struct Sum {
  template <class A>
  static INLINE A none() {
    return (A)0;
  }
  template <class A>
  static INLINE A join(A a, A b) {
    return a + b;
  }
};

struct Max {
  template <class A>
  static INLINE A none() {
    return (A)__uint_as_float(0xff800000u);
  }
  template <class A>
  static INLINE A join(A a, A b) {
    return opMaximum(a, b);
  }
};

// across reduces x over LANES neighbouring threads, in a fixed order, and returns the result to
// all. LANES is a power of 2; above 32 it is the whole block.
template <class Red, int LANES, class A>
INLINE A across(A x) {
#pragma unroll
  for (int d = (LANES < 32 ? LANES : 32) / 2; d > 0; d /= 2) x = Red::join(x, __shfl_xor_sync(0xffffffffu, x, d));
  if (LANES > 32) {
    __shared__ A part[LANES > 32 ? LANES / 32 : 1];
    __syncthreads(); // an earlier call may still read
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    x = part[0];
#pragma unroll
    for (int i = 1; i < LANES / 32; i++) x = Red::join(x, part[i]);
  }
  return x;
}

// meet synchronizes the LANES threads of a row, and makes their writes visible to each other. Above
// 32 they are the whole block.
template <int LANES>
INLINE void meet() {
  if (LANES > 32)
    __syncthreads();
  else
    __syncwarp();
}

// down reduces x over the LANES threads with equal threadIdx.x % WIDTH. Threads with threadIdx.x <
// WIDTH get the result. The block has LANES*WIDTH threads. LANES is a power of 2.
template <class Red, int LANES, int WIDTH, class A>
INLINE A down(A x) {
  __shared__ A part[LANES * WIDTH];
  __syncthreads();
  part[threadIdx.x] = x;
#pragma unroll
  for (int h = LANES / 2; h > 0; h /= 2) {
    __syncthreads();
    if (threadIdx.x < h * WIDTH) part[threadIdx.x] = x = Red::join(x, part[threadIdx.x + h * WIDTH]);
  }
  return x;
}

// lastOf reports whether this block is the last of n to call it. The last one sees all earlier
// writes of the others, and the counter is 0 again.
INLINE bool lastOf(u32 *counter, u32 n) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(counter, n - 1) == n - 1;
  __syncthreads();
  if (last) __threadfence();
  return last;
}

// whole returns an index as an integer, negative if invalid.
template <class K>
INLINE s64 whole(K x) {
  return (s64)x;
}
INLINE s64 whole(double x) { return x >= 0 && x < 9e18 ? (s64)x : -1; }
INLINE s64 whole(float x) { return x >= 0 && x < 9e18f ? (s64)x : -1; }

// fault records the first fault of a run: a value, and its place in a vector.
__device__ __noinline__ void fault(u64 *words, u64 code, u64 step, double value, u64 place = 0) {
  if (atomicCAS(words, 0ull, code) != 0) return;
  words[1] = step;
  words[2] = (u64)__double_as_longlong(value);
  words[3] = place;
}
