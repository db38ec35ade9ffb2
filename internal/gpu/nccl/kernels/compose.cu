// Kernels before and after NCCL's reductions, where these differ from package dist. See doc.go.
//
// Floats are ordered as integers. The bits of a positive number, read as a signed integer, have the
// order of the numbers. Those of a negative one have the reverse order, so its bits except the sign
// are flipped. A NaN becomes the largest integer for a maximum and the smallest for a minimum. It
// is decoded to a NaN, because only NaNs have these two integers.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// place returns the index in src of element i of rows of n elements that begin stride elements
// apart.
static __device__ __forceinline__ u64 place(u64 i, u64 n, u64 stride) { return i / n * stride + i % n; }

#define EACH(i, n) \
	for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < (n); i += gridDim.x * (u64)blockDim.x)

// ORDER defines encode and decode between a float of type T, as bits, and an integer K of NCCL's. S
// is the signed integer of T's size, MASK its bits except the sign, INF the bits of infinity.
#define ORDER(NAME, T, S, K, MASK, INF) \
	extern "C" __global__ void encode_##NAME(K *dst, const T *src, u64 n, u64 rows, u64 stride, u32 max) { \
		EACH(i, n * rows) { \
			T bits = src[rows == 1 ? i : place(i, n, stride)]; \
			S key = (S)bits; \
			if (key < 0) key = (S)(key ^ (S)(MASK)); \
			if ((T)(bits & (T)(MASK)) > (T)(INF)) key = max ? (S)(MASK) : (S)(-(S)(MASK) - 1); \
			dst[i] = (K)key; \
		} \
	} \
	extern "C" __global__ void decode_##NAME(T *dst, const K *src, u64 n) { \
		EACH(i, n) { \
			S key = (S)src[i]; \
			if (key < 0) key = (S)(key ^ (S)(MASK)); \
			dst[i] = (T)key; \
		} \
	}

ORDER(f16, u16, short, int, 0x7fff, 0x7c00)
ORDER(bf16, u16, short, int, 0x7fff, 0x7f80)
ORDER(f32, u32, int, int, 0x7fffffff, 0x7f800000)
ORDER(f64, u64, i64, i64, 0x7fffffffffffffffLL, 0x7ff0000000000000LL)

// divide is the second half of a mean over ranks, in the accumulator's type.
extern "C" __global__ void divide_f32(float *dst, u64 n, u32 ranks) {
	EACH(i, n) dst[i] = __fdiv_rn(dst[i], (float)ranks);
}

extern "C" __global__ void divide_f64(double *dst, u64 n, u32 ranks) {
	EACH(i, n) dst[i] = __ddiv_rn(dst[i], (double)ranks);
}

extern "C" __global__ void divide_bf16(u16 *dst, u64 n, u32 ranks) {
	EACH(i, n) {
		u32 bits = __float_as_uint(__fdiv_rn(__uint_as_float((u32)dst[i] << 16), (float)ranks));
		if ((bits & 0x7fffffffu) > 0x7f800000u)
			bits |= 0x400000u; // a NaN stays one, and quiet
		else
			bits += 0x7fffu + (bits >> 16 & 1u); // to nearest, ties to even
		dst[i] = (u16)(bits >> 16);
	}
}
