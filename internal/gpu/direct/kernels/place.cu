// Operations on data in place: ranks meet, then load and store each other's memory.

#if RANKS <= 2
#define DEPTH 4
#elif RANKS <= 4
#define DEPTH 2
#else
#define DEPTH 1
#endif

__device__ __forceinline__ u64 align16(u64 n) { return (n + 15) & ~15ull; }

// pull is an operation in one shot. Each rank copies its data for the others to its half of the
// staging memory, of the epoch's parity. When all have arrived, each loads from the others. The
// halves have the same role as in packet.cu, so no rank waits at the end. Vector v of a block of
// data belongs to one thread, with the same number on all ranks.
template <bool WHOLE>
__device__ __forceinline__ void stageAll(const Call &c, u64 stage) {
  const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x, stride = (u64)gridDim.x * blockDim.x;
  for (u32 j = 0; j < (c.srcStride == 0 ? 1u : RANKS); j++) {
    if (c.srcStride != 0 && j == c.rank) continue;
    const u64 from = c.src + j * c.srcStride, to = stage + j * c.slot;
    for (u64 v0 = at; 16 * v0 < c.bytes; v0 += DEPTH * stride) {
      Pair x[DEPTH];
#pragma unroll
      for (int k = 0; k < DEPTH; k++) {
        const u64 off = 16 * (v0 + k * stride);
        if (off < c.bytes) x[k] = own16<WHOLE>(from + off, (s64)(c.bytes - off));
      }
#pragma unroll
      for (int k = 0; k < DEPTH; k++) {
        const u64 off = 16 * (v0 + k * stride);
        if (off < c.bytes) write16(to + off, x[k]);
      }
    }
  }
}

template <bool WHOLE>
__device__ __forceinline__ void pullVectors(const Call &c, u64 v0, u64 stride, u64 stage, const u64 *scalars) {
  const u64 block = c.srcStride == 0 ? 0 : c.rank * c.slot, own = c.src + c.rank * c.srcStride;
  Pair x[DEPTH][RANKS];
  u64 from[RANKS];
#pragma unroll
  for (int q = 0; q < RANKS; q++) from[q] = c.of(q) + stage + block;
#pragma unroll
  for (int k = 0; k < DEPTH; k++) {
    const u64 off = 16 * (v0 + k * stride);
#pragma unroll
    for (int q = 0; q < RANKS && off < c.bytes; q++)
      x[k][q] = q == c.rank ? own16<WHOLE>(own + off, (s64)(c.bytes - off)) : read16(from[q] + off);
  }
#pragma unroll
  for (int k = 0; k < DEPTH; k++) {
    const u64 off = 16 * (v0 + k * stride);
    if (off >= c.bytes) continue;
#if RED != RED_NONE
    put16<WHOLE>(c.dst + off, reduced(x[k], scalars), (s64)(c.bytes - off));
#else
#pragma unroll
    for (int q = 0; q < RANKS; q++)
      if (q != c.rank || c.dst + q * c.dstStride != own) put16<WHOLE>(c.dst + q * c.dstStride + off, x[k][q], (s64)(c.bytes - off));
#endif
  }
}

template <bool WHOLE>
__device__ __forceinline__ void pull(const Call &c, u64 e, Watch &w, Meeting &m) {
  const u64 stage = c.area + (e & 1) * c.half;
  const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x, stride = (u64)gridDim.x * blockDim.x;
  u64 scalars[RANKS];
  sendScalar(c, e);
  stageAll<WHOLE>(c, c.own() + stage);
  open(c, e, w, m, 0, 0);
  takeScalars(c, e, w, scalars);
  if (m.dead || w.dead) return;
  for (u64 v = at; 16 * v < c.bytes; v += DEPTH * stride) pullVectors<WHOLE>(c, v, stride, stage, scalars);
}

// place returns the location of this rank's data for the others: the host's, or in the staging half
// at stage, with the same alignment to 16 bytes.
__device__ __forceinline__ u64 place(u64 hostPlace, u64 address, u64 stage) {
  return hostPlace >> SLAB_SHIFT ? hostPlace : stage + (address & 15);
}

#if RED != RED_NONE
// Tiles divides the bytes of a slice among blocks, equally on all ranks and for any alignment. So
// after a meeting a block knows that its peers have staged the data that it reads.
struct Tiles {
  u64 bytes;

  __device__ __forceinline__ u64 size() const { return 16ull * DEPTH * blockDim.x; }
  __device__ __forceinline__ u64 first() const { return blockIdx.x * size(); }
  __device__ __forceinline__ u64 step() const { return gridDim.x * size(); }
  __device__ __forceinline__ u64 end(u64 lo) const { return lo + size() < bytes ? lo + size() : bytes; }
};

// VECTORS loops over the vectors v of this thread in a tile of n: at most DEPTH, number k of a
// thread.
#define VECTORS(k, v, n) \
  _Pragma("unroll") for (int k = 0; k < DEPTH; k++) if (const u64 v = threadIdx.x + (u64)k * blockDim.x; v < (n))

// moveTiles copies this block's tiles of n bytes. ALIKE means equal alignment to 16 bytes at both
// ends.
template <bool ALIKE>
__device__ __forceinline__ void moveTiles(u64 to, u64 from, u64 n) {
  const Tiles t = {n};
  for (u64 lo = t.first(); lo < n; lo += t.step()) {
    const u64 len = t.end(lo) - lo, head = clamp((s64)(-(to + lo) & 15), len), body = (len - head) / 16, tail = (len - head) & 15;
    Pair x[DEPTH];
    VECTORS(k, v, body) x[k] = ALIKE ? read16(from + lo + head + 16 * v) : readSome(from + lo + head + 16 * v, 16);
    VECTORS(k, v, body) write16(to + lo + head + 16 * v, x[k]);
    if (threadIdx.x < 2) { // the bytes outside of whole vectors
      const u64 at = threadIdx.x == 0 ? lo : lo + len - tail;
      const s64 some = threadIdx.x == 0 ? head : tail;
      writeSome(to + at, readSome(from + at, some), some);
    }
  }
}

__device__ __forceinline__ void move(u64 to, u64 from, u64 n) {
  if (((to ^ from) & 15) == 0) {
    moveTiles<true>(to, from, n);
  } else {
    moveTiles<false>(to, from, n);
  }
}

// reduceTiles reduces this rank's slice of n bytes, which begins at from[q] on rank q. It stores
// the result to all of to, or without ALL to to[0] only. ALIKE means equal alignment of all
// addresses to 16 bytes.
template <bool ALL, bool ALIKE>
__device__ __forceinline__ void reduceTiles(const u64 *from, const u64 *to, u64 n, const u64 *scalars) {
  const Tiles t = {n};
  for (u64 lo = t.first(); lo < n; lo += t.step()) {
    const u64 len = t.end(lo) - lo, head = ALIKE ? clamp((s64)(-(from[0] + lo) & 15), len) : 0;
    const u64 body = (len - head) / 16, tail = (len - head) & 15;
    Pair x[DEPTH][RANKS];
    VECTORS(k, v, body) {
#pragma unroll
      for (int q = 0; q < RANKS; q++) x[k][q] = ALIKE ? read16(from[q] + lo + head + 16 * v) : readSome(from[q] + lo + head + 16 * v, 16);
    }
    VECTORS(k, v, body) {
      const Pair y = reduced(x[k], scalars);
#pragma unroll
      for (int q = 0; q < (ALL ? RANKS : 1); q++) {
        if (ALIKE) {
          write16(to[q] + lo + head + 16 * v, y);
        } else {
          writeSome(to[q] + lo + head + 16 * v, y, 16);
        }
      }
    }
    if (threadIdx.x < 2) { // the bytes outside of whole vectors
      const u64 at = threadIdx.x == 0 ? lo : lo + len - tail;
      const s64 some = threadIdx.x == 0 ? head : tail;
      Pair z[RANKS];
#pragma unroll
      for (int q = 0; q < RANKS; q++) z[q] = readSome(from[q] + at, some);
      const Pair y = reduced(z, scalars);
#pragma unroll
      for (int q = 0; q < (ALL ? RANKS : 1); q++) writeSome(to[q] + at, y, some);
    }
  }
}

template <bool ALL>
__device__ __forceinline__ void reduceSlice(const u64 *from, const u64 *to, u64 n, const u64 *scalars) {
  u64 differ = 0;
#pragma unroll
  for (int q = 0; q < RANKS; q++) differ |= from[q] ^ from[0];
#pragma unroll
  for (int q = 0; q < (ALL ? RANKS : 1); q++) differ |= to[q] ^ from[0];
  if ((differ & 15) == 0) {
    reduceTiles<ALL, true>(from, to, n, scalars);
  } else {
    reduceTiles<ALL, false>(from, to, n, scalars);
  }
}

// sliceBytes returns the size of slice j of n bytes, if slices are stride apart.
__device__ __forceinline__ u64 sliceBytes(u64 n, u32 j, u64 stride) { return clamp((s64)(n - j * stride), stride); }

// slices is an allreduce (ALL) or a reduce-scatter in place: rank r loads slice r of all, reduces
// it, and stores it to all, or to itself. Data outside slabs are copied to the staging memory
// before, and from there after.
template <bool ALL>
__device__ __forceinline__ void slices(const Call &c, u64 e, Watch &w, Meeting &m) {
  const u64 in = c.area + (e & 1) * c.half, out = c.area + (~e & 1) * c.half, own = c.own();
  const u64 srcPlace = place(c.srcPlace, c.src, in), dstPlace = place(c.dstPlace, c.dst, out);
  u64 scalars[RANKS], from[RANKS], to[RANKS];
  sendScalar(c, e);
  for (u32 j = 0; j < RANKS && !(srcPlace >> SLAB_SHIFT); j++)
    if (j != c.rank) move(own + srcPlace + j * c.slot, c.src + j * c.srcStride, ALL ? sliceBytes(c.bytes, j, c.srcStride) : c.bytes);
  open(c, e, w, m, srcPlace, dstPlace);
  takeScalars(c, e, w, scalars);
  if (m.dead) return;
#pragma unroll
  for (int q = 0; q < RANKS; q++) {
    from[q] = q == c.rank ? c.src + c.rank * c.srcStride : m.src[q] + c.rank * m.srcStride[q];
    if (ALL) {
      to[q] = q == c.rank ? c.dst + c.rank * c.dstStride : m.dst[q] + c.rank * m.dstStride[q];
    } else {
      to[q] = c.dst;
    }
  }
  reduceSlice<ALL>(from, to, ALL ? sliceBytes(c.bytes, c.rank, c.srcStride) : c.bytes, scalars);
  close(c, e, w);
  for (u32 j = 0; ALL && j < RANKS && !(dstPlace >> SLAB_SHIFT); j++)
    if (j != c.rank) move(c.dst + j * c.dstStride, own + dstPlace + j * c.slot, sliceBytes(c.bytes, j, c.dstStride));
}

// addUp reduces n bytes of this rank's data, at src, with the copies of the others' data in this
// rank's board: at area, slot bytes apart, in rank order without this rank. The factors belong to
// the last meeting, of epoch e.
__device__ __forceinline__ void addUp(const Call &c, u64 e, Watch &w) {
  u64 scalars[RANKS], from[RANKS];
  takeScalars(c, e, w, scalars);
  if (w.dead) return;
#pragma unroll
  for (int q = 0; q < RANKS; q++) from[q] = q == c.rank ? c.src : c.own() + c.area + (q > c.rank ? q - 1 : q) * c.slot;
  reduceSlice<false>(from, &c.dst, c.bytes, scalars);
}
#else
// SPREAD is the number of a block's tiles that a thread has under way. A tile is a vector for each
// thread. The division in tiles is equal on all ranks, for any alignment. So after a meeting a
// block reads the data that the same blocks have written.
#define SPREAD 4

// spreadTiles copies this block's tiles of n bytes to those of N destinations that live has.
// Vectors begin shift bytes into a tile. TO and FROM mean aligned destinations and source.
template <int N, bool TO, bool FROM>
__device__ __forceinline__ void spreadTiles(const u64 *to, u32 live, u64 from, u64 n, u64 shift) {
  const u64 tile = 16ull * blockDim.x, step = gridDim.x * tile, lane = 16ull * threadIdx.x;
  for (u64 first = blockIdx.x * tile; first < n; first += SPREAD * step) {
    Pair x[SPREAD];
#pragma unroll
    for (int k = 0; k < SPREAD; k++) {
      const u64 at = first + k * step + shift + lane;
      if (lane + 16 + shift <= tile && at + 16 <= n) x[k] = FROM ? read16(from + at) : readSome(from + at, 16);
    }
#pragma unroll
    for (int k = 0; k < SPREAD; k++) {
      const u64 at = first + k * step + shift + lane;
      if (lane + 16 + shift > tile || at + 16 > n) continue;
#pragma unroll
      for (int i = 0; i < N; i++) {
        if (!(live >> i & 1)) continue;
        if (TO) {
          write16(to[i] + at, x[k]);
        } else {
          writeSome(to[i] + at, x[k], 16);
        }
      }
    }
    if ((shift | (n & 15)) == 0 || threadIdx.x >= 2) continue;
#pragma unroll 1
    for (int k = 0; k < SPREAD; k++) { // the bytes outside of whole vectors
      const u64 lo = first + k * step, len = clamp((s64)(n - lo), tile), head = shift < len ? shift : len, tail = (len - head) & 15;
      const u64 at = threadIdx.x == 0 ? lo : lo + len - tail;
      const s64 some = threadIdx.x == 0 ? head : tail;
      const Pair y = readSome(from + at, some);
#pragma unroll
      for (int i = 0; i < N; i++)
        if (live >> i & 1) writeSome(to[i] + at, y, some);
    }
  }
}

// spread copies n bytes to those of N destinations that live has, and reads them once.
template <int N>
__device__ __forceinline__ void spread(const u64 *to, u32 live, u64 from, u64 n) {
  if (live == 0) return;
  u64 one = from, differ = 0;
#pragma unroll
  for (int i = 0; i < N; i++)
    if (live >> i & 1) one = to[i];
#pragma unroll
  for (int i = 0; i < N; i++)
    if (live >> i & 1) differ |= to[i] ^ one;
  if ((differ & 15) != 0) {
    spreadTiles<N, false, false>(to, live, from, n, 0);
  } else if (((one ^ from) & 15) != 0) {
    spreadTiles<N, true, false>(to, live, from, n, -one & 15);
  } else {
    spreadTiles<N, true, true>(to, live, from, n, -one & 15);
  }
}

// push is every operation that only moves: each rank stores its data for others directly to their
// destination.
__device__ __forceinline__ void push(const Call &c, u64 e, Watch &w, Meeting &m) {
  const u64 out = c.area + (e & 1) * c.half, own = c.own(), dstPlace = place(c.dstPlace, c.dst, out);
  const bool takes = c.receives(c.rank);
  open(c, e, w, m, 0, dstPlace);
  if (m.dead) return;
  u64 to[RANKS];
  u32 live = 0;
#pragma unroll
  for (int i = 0; i < RANKS; i++) { // each starts with its neighbour, so that no rank gets all data at once
    const u32 p = (c.rank + 1 + i) % RANKS;
    to[i] = p == c.rank ? c.dst + c.rank * c.dstStride : m.dst[p] + (c.dstStride == 0 ? 0 : c.rank * m.dstStride[p]);
    if (c.sends(c.rank) && c.receives(p) && (p != c.rank || to[i] != c.src + p * c.srcStride)) live |= 1 << i;
  }
  if (c.srcStride == 0) {
    spread<RANKS>(to, live, c.src, c.bytes);
  } else {
#pragma unroll
    for (int i = 0; i < RANKS; i++)
      if (live >> i & 1) spread<1>(to + i, 1, c.src + (c.rank + 1 + i) % RANKS * c.srcStride, c.bytes);
  }
  close(c, e, w);
  for (u32 q = 0; q < RANKS && takes && !(dstPlace >> SLAB_SHIFT); q++) {
    const u64 at = c.dst + q * c.dstStride;
    if (q != c.rank && c.sends(q)) spread<1>(&at, 1, own + dstPlace + (c.dstStride == 0 ? 0 : q * c.slot), c.bytes);
  }
}
#endif
