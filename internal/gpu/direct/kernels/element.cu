// Reduction of elements within words, with the bits of internal/host/reduce: rank order, and one
// rounding for each step. So no product is fused with a sum (the compiler also gets -fmad=false),
// and denormal numbers are kept. DTYPE is the number of a tensor.DType, RED of a dist.RedKind,
// RANKS the number of operands.

#define RED_SUM 0
#define RED_PROD 1
#define RED_MIN 2
#define RED_MAX 3
#define RED_AVG 4
#define RED_PREMULSUM 5
#define RED_AND 6
#define RED_OR 7
#define RED_XOR 8
#define RED_NONE 9

#if RED != RED_NONE

#if DTYPE == 1 || DTYPE == 2
typedef u16 Elem;
typedef float Acc;
#define FLOATING 1
#elif DTYPE == 3
typedef float Elem;
typedef float Acc;
#define FLOATING 1
#elif DTYPE == 4
typedef double Elem;
typedef double Acc;
#define FLOATING 1
#elif DTYPE == 5
typedef signed char Elem;
typedef int Acc;
#elif DTYPE == 6
typedef short Elem;
typedef int Acc;
#elif DTYPE == 7
typedef int Elem;
typedef int Acc;
#elif DTYPE == 8
typedef s64 Elem;
typedef s64 Acc;
#elif DTYPE == 9
typedef u8 Elem;
typedef u32 Acc;
#elif DTYPE == 10
typedef u16 Elem;
typedef u32 Acc;
#elif DTYPE == 11
typedef u32 Elem;
typedef u32 Acc;
#elif DTYPE == 12
typedef u64 Elem;
typedef u64 Acc;
#endif

#define LANES (8 / (int)sizeof(Elem))

// element returns element i of a word, in the accumulation type.
__device__ __forceinline__ Acc element(u64 w, int i) {
  u64 bits = w >> (8 * (int)sizeof(Elem) * i);
#if DTYPE == 1
  return halfToFloat((u16)bits);
#elif DTYPE == 2
  return __uint_as_float((u32)(u16)bits << 16);
#elif DTYPE == 3
  return __uint_as_float((u32)bits);
#elif DTYPE == 4
  return __longlong_as_double((s64)bits);
#else
  return (Acc)(Elem)bits;
#endif
}

// bitsOf is the inverse of element, rounded to the element type, in the low bytes.
__device__ __forceinline__ u64 bitsOf(Acc x) {
#if DTYPE == 1
  return floatToHalf(x);
#elif DTYPE == 2
  u32 u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return u >> 16 | 0x40u; // a NaN stays one
  return (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
#elif DTYPE == 3
  return __float_as_uint(x);
#elif DTYPE == 4
  return (u64)__double_as_longlong(x);
#elif DTYPE == 5 || DTYPE == 9
  return (u8)x;
#elif DTYPE == 6 || DTYPE == 10
  return (u16)x;
#elif DTYPE == 7 || DTYPE == 11
  return (u32)x;
#else
  return (u64)x;
#endif
}

#if (DTYPE == 1 || DTYPE == 2 && RED != RED_MIN && RED != RED_MAX) && __CUDA_ARCH__ >= 800
#define IN_PAIRS
// bitsOfTwo is bitsOf of two elements, in one instruction. It produces a single NaN, the same as
// arithmetic does, so the results agree.
__device__ __forceinline__ u32 bitsOfTwo(float x, float y) {
  u32 w;
#if DTYPE == 1
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(y), "f"(x));
#else
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(y), "f"(x));
#endif
  return w;
}
#endif

// wrapped returns an integer cut to its type. Between steps the wide registers may hold more bits.
// They are right modulo the type, and are cut only where signs matter.
__device__ __forceinline__ Acc wrapped(Acc x) {
#ifdef FLOATING
  return x;
#else
  return (Acc)(Elem)x;
#endif
}

__device__ __forceinline__ Acc plus(Acc x, Acc y) {
#if DTYPE == 4
  return __dadd_rn(x, y);
#elif defined(FLOATING)
  return __fadd_rn(x, y);
#elif DTYPE == 8
  return (s64)((u64)x + (u64)y);
#elif DTYPE == 12
  return x + y;
#else
  return (Acc)((u32)x + (u32)y);
#endif
}

__device__ __forceinline__ Acc times(Acc x, Acc y) {
#if DTYPE == 4
  return __dmul_rn(x, y);
#elif defined(FLOATING)
  return __fmul_rn(x, y);
#elif DTYPE == 8
  return (s64)((u64)x * (u64)y);
#elif DTYPE == 12
  return x * y;
#else
  return (Acc)((u32)x * (u32)y);
#endif
}

#ifdef FLOATING
// Equal numbers have equal bits, except zeros: for these OR returns the smaller, and AND the
// larger.
#if DTYPE == 4
#define BITS(x) (u64)__double_as_longlong(x)
#define NUMBER(u) __longlong_as_double((s64)(u))
#else
#define BITS(x) __float_as_uint(x)
#define NUMBER(u) __uint_as_float(u)
#endif
#endif

__device__ __forceinline__ Acc smaller(Acc x, Acc y) {
#ifdef FLOATING
  if (x != x) return x;
  if (y != y) return y;
  if (x == y) return NUMBER(BITS(x) | BITS(y));
#endif
  return x < y ? x : y;
}

__device__ __forceinline__ Acc larger(Acc x, Acc y) {
#ifdef FLOATING
  if (x != x) return x;
  if (y != y) return y;
  if (x == y) return NUMBER(BITS(x) & BITS(y));
#endif
  return x < y ? y : x;
}

__device__ __forceinline__ Acc combine(Acc x, Acc y) {
#if RED == RED_PROD
  return times(x, y);
#elif RED == RED_MIN
  return smaller(x, y);
#elif RED == RED_MAX
  return larger(x, y);
#elif RED == RED_AND
  return x & y;
#elif RED == RED_OR
  return x | y;
#elif RED == RED_XOR
  return x ^ y;
#else
  return plus(x, y);
#endif
}

// mean returns x divided by the ranks. For a power of two, the product with the inverse is the same
// number, rounded once.
__device__ __forceinline__ Acc mean(Acc x) {
#if DTYPE == 4
  return (RANKS & (RANKS - 1)) == 0 ? __dmul_rn(x, 1.0 / RANKS) : __ddiv_rn(x, (double)RANKS);
#elif defined(FLOATING)
  return (RANKS & (RANKS - 1)) == 0 ? __fmul_rn(x, 1.0f / RANKS) : __fdiv_rn(x, (float)RANKS);
#else
  return wrapped(x) / (Acc)RANKS;
#endif
}

// Sum8 is the reduction of one word of all ranks, in rank order.
struct Sum8 {
  Acc v[LANES];

  __device__ __forceinline__ void add(int rank, u64 w, const u64 *scalars) {
#pragma unroll
    for (int i = 0; i < LANES; i++) {
      Acc x = element(w, i);
#if RED == RED_PREMULSUM
      x = times(x, element(scalars[rank], 0));
#endif
      v[i] = rank == 0 ? x : combine(v[i], x);
    }
  }

  __device__ __forceinline__ Acc at(int i) const {
#if RED == RED_AVG
    return mean(v[i]);
#else
    return v[i];
#endif
  }

  __device__ __forceinline__ u64 result() const {
    u64 w = 0;
#ifdef IN_PAIRS
#pragma unroll
    for (int i = 0; i < LANES; i += 2) w |= (u64)bitsOfTwo(at(i), at(i + 1)) << (16 * i);
#else
#pragma unroll
    for (int i = 0; i < LANES; i++) w |= bitsOf(at(i)) << (8 * (int)sizeof(Elem) * i);
#endif
    return w;
  }
};

// reduced returns the reduction of the words x of all ranks. A single operand is copied, unless it
// is scaled.
__device__ __forceinline__ u64 reduced(const u64 *x, const u64 *scalars) {
  if (RANKS == 1 && RED != RED_PREMULSUM) return x[0];
  Sum8 s;
#pragma unroll
  for (int q = 0; q < RANKS; q++) s.add(q, x[q], scalars);
  return s.result();
}

__device__ __forceinline__ Pair reduced(const Pair *x, const u64 *scalars) {
  Sum8 s, t;
  if (RANKS == 1 && RED != RED_PREMULSUM) return x[0];
#pragma unroll
  for (int q = 0; q < RANKS; q++) {
    s.add(q, x[q].a, scalars);
    t.add(q, x[q].b, scalars);
  }
  Pair y = {s.result(), t.result()};
  return y;
}

#endif
