// Kernels of package gpu, for work that neither copies nor libraries do. NVRTC compiles them at run
// time for the device, so they include nothing.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

// factor_of returns the value at at, read when the kernel runs, or else the low bits of a word.
template <typename T> __device__ T factor_of(const T* at, u64 bits) {
  union { u64 word; T value; } u;
  u.word = bits;
  return at ? *at : u.value;
}

// SCALE computes dst[i] = src[i] * factor, or src[i] / ranks, rounded once to T. Integers multiply
// modulo their size in type W; floats divide in their own type.
#define SCALE(name, T, W)                                                                                          \
  extern "C" __global__ void scale_##name(T* dst, const T* src, u64 n, const T* at, u64 bits, int divide) {        \
    const T f = divide ? (T)bits : factor_of(at, bits);                                                            \
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (u64)blockDim.x)               \
      dst[i] = divide ? (T)(src[i] / f) : (T)((W)src[i] * (W)f);                                                   \
  }

SCALE(f32, float, float)
SCALE(f64, double, double)
SCALE(i32, i32, u64)
SCALE(i64, i64, u64)
SCALE(u32, u32, u64)
SCALE(u64, u64, u64)

// Small types cannot hold every number of ranks, so they divide in a wider one.
#define SCALE_SMALL(name, T, W)                                                                                    \
  extern "C" __global__ void scale_##name(T* dst, const T* src, u64 n, const T* at, u64 bits, int divide) {        \
    const W f = divide ? (W)bits : (W)factor_of(at, bits);                                                         \
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (u64)blockDim.x)               \
      dst[i] = divide ? (T)((W)src[i] / f) : (T)((W)src[i] * f);                                                   \
  }

SCALE_SMALL(i8, i8, i64)
SCALE_SMALL(i16, i16, i64)
SCALE_SMALL(u8, u8, i64)
SCALE_SMALL(u16, u16, i64)

__device__ float f16_to_f32(u16 h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}

__device__ u16 f32_to_f16(float f) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}

__device__ float bf16_to_f32(u16 h) { return __uint_as_float((u32)h << 16); }

__device__ u16 f32_to_bf16(float f) {
  u32 b = __float_as_uint(f);
  if ((b & 0x7fffffffu) > 0x7f800000u) return (u16)(b >> 16 | 0x40);  // a NaN stays one
  return (u16)((b + 0x7fffu + (b >> 16 & 1)) >> 16);                  // to nearest, ties to even
}

#define SCALE_HALF(name)                                                                                           \
  extern "C" __global__ void scale_##name(u16* dst, const u16* src, u64 n, const u16* at, u64 bits, int divide) {  \
    const float f = divide ? (float)bits : name##_to_f32(factor_of(at, bits));                                     \
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (u64)blockDim.x) {             \
      const float x = name##_to_f32(src[i]);                                                                       \
      dst[i] = f32_to_##name(divide ? x / f : x * f);                                                              \
    }                                                                                                              \
  }

SCALE_HALF(f16)
SCALE_HALF(bf16)

// Operations on a word, numbered as symmetric.AtomicOp.
enum { FETCH = 1, SET, ADD, AND, OR, XOR, COMPARE_SWAP };

template <typename T> __device__ T apply(int op, T* p, T value, T compare) {
  switch (op) {
    case SET: return atomicExch_system(p, value);
    case ADD: return atomicAdd_system(p, value);
    case AND: return atomicAnd_system(p, value);
    case OR: return atomicOr_system(p, value);
    case XOR: return atomicXor_system(p, value);
    case COMPARE_SWAP: return atomicCAS_system(p, compare, value);
  }
  return atomicOr_system(p, (T)0);
}

// word_op does op on a word of 4 or 8 bytes, atomically for all devices and the host, after all
// earlier work of the stream. It stores the previous value at old, if old is not null.
extern "C" __global__ void word_op(int op, int bytes, void* p, u64 value, u64 compare, u64* old) {
  __threadfence_system();
  u64 was = bytes == 8 ? apply(op, (u64*)p, value, compare) : apply(op, (u32*)p, (u32)value, (u32)compare);
  __threadfence_system();
  if (old) *(volatile u64*)old = was;
}

// Comparisons, numbered as symmetric.Comparison.
enum { EQ = 1, NE, GT, GE, LT, LE };

template <typename T> __device__ bool holds(int cmp, T a, T b) {
  switch (cmp) {
    case EQ: return a == b;
    case NE: return a != b;
    case GT: return a > b;
    case GE: return a >= b;
    case LT: return a < b;
  }
  return a <= b;
}

__device__ bool holds_bits(int bytes, int is_signed, int cmp, u64 a, u64 b) {
  if (bytes == 8) return is_signed ? holds(cmp, (i64)a, (i64)b) : holds(cmp, a, b);
  return is_signed ? holds(cmp, (i32)a, (i32)b) : holds(cmp, (u32)a, (u32)b);
}

// wait_words returns when one word, or all of count words, compare with value as cmp says, or when
// the host sets the word at stop.
extern "C" __global__ void wait_words(const void* p, u64 count, int bytes, int is_signed, int cmp, u64 value, int all,
                                      const u32* stop) {
  for (u32 turn = 1;; turn++) {
    bool done = all != 0;
    for (u64 i = 0; i < count; i++) {
      u64 w = bytes == 8 ? ((const volatile u64*)p)[i] : ((const volatile u32*)p)[i];
      bool h = holds_bits(bytes, is_signed, cmp, w, value);
      if (h != (all != 0)) {
        done = h;
        break;
      }
    }
    if (done || (turn % 64 == 0 && *(const volatile u32*)stop)) break;
  }
  __threadfence_system();
}

// strided copies n elements of size bytes; steps are in bytes. Unaligned elements are copied byte
// by byte.
extern "C" __global__ void strided(u8* dst, u64 dst_step, const u8* src, u64 src_step, u64 n, int size) {
  for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (u64)blockDim.x) {
    u8* d = dst + i * dst_step;
    const u8* s = src + i * src_step;
    u64 both = (u64)d | (u64)s;
    if (size == 8 && both % 8 == 0) {
      *(u64*)d = *(const u64*)s;
    } else if (size == 4 && both % 4 == 0) {
      *(u32*)d = *(const u32*)s;
    } else if (size == 2 && both % 2 == 0) {
      *(u16*)d = *(const u16*)s;
    } else {
      for (int k = 0; k < size; k++) d[k] = s[k];
    }
  }
}
