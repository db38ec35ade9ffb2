// Operations by packets: data and the flag that says it has come are one store into the receiver's own memory, so there is
// neither a fence nor a barrier, one hop is all it takes, and buffers may lie anywhere. Each receiver has two halves of
// memory for packets, of which an operation uses that of its epoch's parity: a rank begins operation e+2 only after it had
// packets, or greetings, of operation e+1 from every other, which therefore is done with e.
//
// PROTOCOL 0 is NCCL's LL: 16 bytes carry 8 of data, and each half its own flag. A half is never torn (PTX memory model).
// PROTOCOL 1 is NCCL's LL128: the 8 lanes that share a line of 128 bytes carry 120 of data, and the last word is the flag
// for all of it. It needs what NCCL relies on as well on NVLink from Volta on: a line that one warp stores with one
// instruction becomes visible as a whole, and is loaded as a whole.
//
// A unit is what a thread sends at once: 16 bytes on the wire, number u at 16*u.

// BATCH is the units of a thread that are on their way together, where it has more than one.
#if RANKS <= 2
#define BATCH 4
#elif RANKS <= 4
#define BATCH 2
#else
#define BATCH 1
#endif

#if PROTOCOL == 0
#define UNITS(bytes) (((bytes) + 7) / 8)
#else
#define UNITS(bytes) (((bytes) + 119) / 120 * 8)
#endif

// unitAt is where in the data unit u begins.
__device__ __forceinline__ u64 unitAt(u64 u) {
#if PROTOCOL == 0
  return u * 8;
#else
  return (u >> 3) * 120 + (u & 7) * 16;
#endif
}

__device__ __forceinline__ bool flagLane(u64 u) { return PROTOCOL == 1 && (u & 7) == 7; }

// take is what unit u carries, of data of which left bytes begin at p; WHOLE says that words are aligned.
template <bool WHOLE>
__device__ __forceinline__ Pair take(u64 p, u64 u, s64 left) {
  Pair x = {0, 0};
  const s64 most = PROTOCOL == 0 || flagLane(u) ? 8 : 16;
  if (left > most) left = most;
  if (!WHOLE) return readSome(p, left);
  x.a = left >= 8 ? read8(p) : rest8(p, left);
  if (PROTOCOL == 1 && left > 8) x.b = left == 16 ? read8(p + 8) : rest8(p + 8, left - 8);
  return x;
}

// give is the inverse of take.
template <bool WHOLE>
__device__ __forceinline__ void give(u64 p, Pair x, u64 u, s64 left) {
  const s64 most = PROTOCOL == 0 || flagLane(u) ? 8 : 16;
  if (left > most) left = most;
  if (!WHOLE) {
    writeSome(p, x, left);
  } else if (left == 16) {
    write8(p, x.a);
    write8(p + 8, x.b);
  } else if (left == 8) {
    write8(p, x.a);
  } else {
    giveRest16(p, x, left);
  }
}

// put sends unit u to the slot at p. For PROTOCOL 1 the lanes of a line come together.
__device__ __forceinline__ void put(u64 p, u64 u, Pair x, u64 e) {
#if PROTOCOL == 0
  sendWord(p + 16 * u, x.a, e);
#else
  if (flagLane(u)) x.b = e;
  storePair(p + 16 * u, x);
#endif
}

// arrived is x once it is whole: x is what was found at unit u of the slot at p, on says whether this lane waits for it.
// For PROTOCOL 1 all lanes of the warp come together.
__device__ __forceinline__ Pair arrived(Pair x, u64 p, u64 u, bool on, u64 e, Watch &w) {
#if PROTOCOL == 0
  if (!on) return x;
  while (!tagged(x, e) && w.again()) x = loadPair(p + 16 * u);
  Pair y = {untagged(x), 0};
  return y;
#else
  while (__any_sync(ALL_LANES, on && flagLane(u) && x.b != e)) {
    if (!__all_sync(ALL_LANES, w.again())) {
      w.dead = true;
      break;
    }
    if (on) x = loadPair(p + 16 * u);
  }
  return x;
#endif
}

// slotOf is the number of the slot for packets from rank q at rank p, which needs none for its own.
__device__ __forceinline__ u32 slotOf(u32 q, u32 p) { return q > p ? q - 1 : q; }

// Span is the units of a thread, one stride apart, from at on.
struct Span {
  u64 at, stride, units, padded;

  __device__ __forceinline__ Span(const Call &c, u64 n) {
    at = (u64)c.block * blockDim.x + threadIdx.x;
    stride = (u64)c.blocks * blockDim.x;
    units = n;
    padded = (n + 31) & ~31ull; // lanes of a warp go together
  }
};

// sendBatch sends N units of this rank's data to all that receive, into its slot of their half, at scratch in their boards. What is sent is
// loaded before the first store, so that the loads wait for each other no more than the stores do.
template <bool WHOLE, int N>
__device__ __forceinline__ void sendBatch(const Call &c, const Span &s, u64 at, u64 scratch, u64 e) {
  Pair x[N][RANKS];
#pragma unroll
  for (int k = 0; k < N; k++) {
    const u64 u = at + k * s.stride, off = unitAt(u);
    if (u >= s.padded) break; // all lanes of a warp
    const s64 left = u < s.units ? (s64)(c.bytes - off) : 0;
    if (c.srcStride == 0) {
      x[k][0] = take<WHOLE>(c.src + off, u, left);
#pragma unroll
      for (int p = 1; p < RANKS; p++) x[k][p] = x[k][0];
    } else {
#pragma unroll
      for (int p = 0; p < RANKS; p++)
        x[k][p] = take<WHOLE>(c.src + p * c.srcStride + off, u, p != c.rank && c.receives(p) ? left : 0);
    }
  }
#pragma unroll
  for (int k = 0; k < N; k++) {
    const u64 u = at + k * s.stride;
    if (u >= s.padded) break;
#pragma unroll
    for (int p = 0; p < RANKS; p++) {
      if (p == c.rank || !c.receives(p)) continue;
      __syncwarp();
      if (u < s.units) put(c.base[p] + scratch + slotOf(c.rank, p) * c.slot, u, x[k][p], e);
    }
  }
}

// takeBatch waits for N units of all that send and puts their reduction, or each of them, where it belongs.
template <bool WHOLE, int N>
__device__ __forceinline__ void takeBatch(const Call &c, const Span &s, u64 at, u64 from, u64 e, Watch &w, const u64 *scalars) {
  Pair x[N][RANKS];
#pragma unroll
  for (int k = 0; k < N; k++) {
    const u64 u = at + k * s.stride, off = unitAt(u);
    if (u >= s.padded) break;
#pragma unroll
    for (int q = 0; q < RANKS; q++) {
      x[k][q].a = x[k][q].b = 0;
      if (u >= s.units || !c.sends(q)) continue;
      x[k][q] = q == c.rank ? take<WHOLE>(c.src + c.rank * c.srcStride + off, u, (s64)(c.bytes - off)) : loadPair(from + slotOf(q, c.rank) * c.slot + 16 * u);
    }
  }
#pragma unroll
  for (int k = 0; k < N; k++) {
    const u64 u = at + k * s.stride;
    if (u >= s.padded) break;
    const bool on = u < s.units;
    const u64 off = unitAt(u);
    const s64 left = on ? (s64)(c.bytes - off) : 0;
#pragma unroll
    for (int q = 0; q < RANKS; q++) {
      if (!c.sends(q)) continue;
      if (q != c.rank) x[k][q] = arrived(x[k][q], from + slotOf(q, c.rank) * c.slot, u, on, e, w);
#if RED == RED_NONE
      const u64 to = c.dst + q * c.dstStride + off;
      if (q != c.rank || to != c.src + c.rank * c.srcStride + off) give<WHOLE>(to, x[k][q], u, left);
#endif
    }
#if RED != RED_NONE
#if PROTOCOL == 0
    u64 v[RANKS];
#pragma unroll
    for (int q = 0; q < RANKS; q++) v[q] = x[k][q].a;
    Pair y = {reduced(v, scalars), 0};
#else
    Pair y = reduced(x[k], scalars);
#endif
    give<WHOLE>(c.dst + off, y, u, left);
#endif
  }
}

// once is every operation in one hop: each rank sends what it has for each other and takes what the others have for it.
template <bool WHOLE>
__device__ __forceinline__ void once(const Call &c, u64 e, Watch &w) {
  const u64 scratch = c.area + (e & 1) * c.half, from = c.of(c.rank) + scratch;
  const bool sends = c.sends(c.rank), takes = c.receives(c.rank);
  const Span s(c, UNITS(c.bytes));
  const u64 jump = BATCH * s.stride;
  u64 scalars[RANKS];
  if (c.flags & FLAG_GREET) greet(c, e);
  if (sends) sendScalar(c, e);
  if (s.units <= s.stride) { // at most one for each thread: code for more takes its time even where there is nothing to do
    if (sends && s.at < s.padded) sendBatch<WHOLE, 1>(c, s, s.at, scratch, e);
    count(c, e);
    if (takes && s.at < s.padded) {
      takeScalars(c, e, w, scalars);
      takeBatch<WHOLE, 1>(c, s, s.at, from, e, w, scalars);
    }
  } else {
    if (sends && s.at < s.padded) sendBatch<WHOLE, BATCH>(c, s, s.at, scratch, e);
    count(c, e);
    if (takes && s.at < s.padded) takeScalars(c, e, w, scalars);
    for (u64 at = s.at; at < s.padded; at += jump) {
      if (sends && at + jump < s.padded) sendBatch<WHOLE, BATCH>(c, s, at + jump, scratch, e); // on its way while this one is taken
      if (takes) takeBatch<WHOLE, BATCH>(c, s, at, from, e, w, scalars);
    }
  }
  if (c.flags & FLAG_GREET) greeted(c, e, w);
}
