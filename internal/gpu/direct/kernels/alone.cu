// The kernel of a group of one: a premulsum, elements times the factor. The driver does copies.
// Blocks wait for no rank, so no epoch is counted, and there may be more blocks than run at once.

#define DEPTH 4

// scale stores n bytes at from, times the factor, at to. ALIKE means equal alignment to 16 bytes.
// Each thread loads some vectors before it stores the first, which may be one of them in place.
template <bool ALIKE>
__device__ __forceinline__ void scale(u64 to, u64 from, u64 n, u64 factor) {
  const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x, stride = (u64)gridDim.x * blockDim.x;
  const u64 head = clamp((s64)(-to & 15), n), body = (n - head) / 16, tail = (n - head) & 15;
  for (u64 v0 = at; v0 < body; v0 += DEPTH * stride) {
    Pair x[DEPTH];
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
      const u64 v = v0 + k * stride, p = from + head + 16 * v;
      if (v < body) x[k] = ALIKE ? read16(p) : readSome(p, 16);
    }
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
      const u64 v = v0 + k * stride;
      if (v < body) write16(to + head + 16 * v, reduced(&x[k], &factor));
    }
  }
  if (at < 2) { // the bytes outside of whole vectors
    const u64 off = at == 0 ? 0 : n - tail;
    const s64 some = at == 0 ? head : tail;
    const Pair x = readSome(from + off, some);
    writeSome(to + off, reduced(&x, &factor), some);
  }
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS) ENTRY(PARAMETERS) {
  if (local == 0) return; // a launch without work, by which the driver allocates memory for later ones
  const Call c = CALL;
  const u64 factor = ownScalar(c);
  if (c.dst == c.src && element(factor, 0) == (Acc)1) return; // every number stays the same
  if (((c.dst ^ c.src) & 15) == 0) {
    scale<true>(c.dst, c.src, c.bytes, factor);
  } else {
    scale<false>(c.dst, c.src, c.bytes, factor);
  }
}
