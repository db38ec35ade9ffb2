// Operations by tiles: stores to peers, and no loads from them. Slice j of the data belongs to rank
// j. A warp cuts its part of every slice into tiles, and stores them to scratch memory of their
// owner. There the same warp reduces them, and in an allreduce stores the sum to all. Warps of one
// number are a pipeline of their own among the ranks, independent of the others: while one waits
// for its links, the others keep these full.
//
// For each other rank a warp has two words in its board. sent counts the tiles that the other rank
// has stored here. done counts this warp's tiles that the other rank has reduced and, in an
// allreduce, stored back. The words have the epoch above the count, so they only grow, and larger
// values satisfy a wait. Each round has one fence, after its stores and before both words.
//
// A tile needs no meeting before it. Its scratch memory is in the half with the epoch's parity. All
// ranks were done with that half before this rank began the operation: see "Synchronization of
// ranks" in doc.go. Within the operation slot t % TILE_SLOTS is free when done counts tile t -
// TILE_SLOTS. A rank may store a sum to a destination, because that rank has sent its tile: so it
// has begun the operation, and has read the data there.

#if RANKS <= 2
#define TILE_DEPTH 8
#elif RANKS <= 4
#define TILE_DEPTH 4
#else
#define TILE_DEPTH 2
#endif

// Pipe is one warp's pipeline.
struct Pipe {
  u64 own, scratch, sent, done; // this rank's board, and offsets in every board
  u64 tile, warps, warp, count; // bytes of a tile, participating warps, this warp, rounds
  u32 lane;

  __device__ __forceinline__ u64 at(u64 t) const { return (t * warps + warp) * tile; }

  // slot returns the offset in the board of rank p of tile t from rank q.
  __device__ __forceinline__ u64 slot(u32 q, u32 p, u64 t) const {
    return scratch + (((q > p ? q - 1 : q) * warps + warp) * TILE_SLOTS + t % TILE_SLOTS) * tile;
  }
};

// turn returns the i-th rank for a warp, from 0. Ranks and warps start with different ones, so that
// no rank gets all data at once.
__device__ __forceinline__ u32 turn(const Call &c, u32 i) {
  return RANKS == 1 ? 0 : (c.rank + 1 + (i + (threadIdx.x >> 5) + c.block) % (RANKS > 1 ? RANKS - 1 : 1)) % RANKS;
}

// tell announces to all other ranks, after all stores of the warp, that t tiles are sent and d
// done.
__device__ __forceinline__ void tell(const Call &c, const Pipe &p, u64 e, u64 t, u64 d) {
  __syncwarp();
  if (p.lane >= RANKS || p.lane == c.rank) return;
  const u64 word = c.of(p.lane) + (p.warp * 8 + c.rank) * 8;
  fence();
  if (t > 0) storeWord(word + p.sent, e << TILE_SHIFT | t);
  if (d > 0) storeWord(word + p.done, e << TILE_SHIFT | d);
}

// reached waits until all other ranks have announced n in words, and reports whether they did.
// Their earlier stores are then visible.
__device__ __forceinline__ bool reached(const Call &c, const Pipe &p, u64 words, u64 e, u64 n, Watch &w) {
  if (p.lane < RANKS && p.lane != c.rank) {
    const u64 word = p.own + words + (p.warp * 8 + p.lane) * 8;
    while (acquireWord(word) < (e << TILE_SHIFT | n) && w.again()) {
    }
  }
  if (__any_sync(ALL_LANES, w.dead)) w.dead = true;
  __syncwarp(); // __any_sync does not order memory accesses
  return !w.dead;
}

// sliceOf returns the bytes of slice j.
template <bool ALL>
__device__ __forceinline__ u64 sliceOf(const Call &c, u32 j) {
  return ALL ? clamp((s64)(c.bytes - j * c.srcStride), c.srcStride) : c.bytes;
}

// STEP is the bytes of a tile that a warp has in flight at once, and VECTOR(k, v) its k-th vector
// from v on.
#define STEP (512 * TILE_DEPTH)
#define VECTOR(k, v) ((v) + 512 * (k))

// copyStep copies the whole vectors from v on, of n bytes at from, to to. FULL means that a whole
// step remains.
template <bool FULL>
__device__ __forceinline__ void copyStep(u64 to, u64 from, u64 v, u64 n) {
  Pair x[TILE_DEPTH] = {};
#pragma unroll
  for (int k = 0; k < TILE_DEPTH; k++)
    if (FULL || VECTOR(k, v) + 16 <= n) x[k] = read16(from + VECTOR(k, v));
#pragma unroll
  for (int k = 0; k < TILE_DEPTH; k++)
    if (FULL || VECTOR(k, v) + 16 <= n) write16(to + VECTOR(k, v), x[k]);
}

// copyVectors copies n bytes from from to to, by one warp. Partial vectors, or all if vectors are
// unaligned, are copied one by one.
template <bool WHOLE>
__device__ __forceinline__ void copyVectors(u64 to, u64 from, u64 n) {
  const u64 lane = 16 * (threadIdx.x & 31);
  u64 v = 0;
  if (WHOLE) {
#pragma unroll 1
    for (; v + STEP <= n; v += STEP) copyStep<true>(to, from, v + lane, n);
    if (v + 16 <= n) copyStep<false>(to, from, v + lane, n);
    v = n & ~15ull;
  }
#pragma unroll 1
  for (v += lane; v < n; v += 512) write16(to + v, readSome(from + v, (s64)(n - v)));
}

// scatterTile stores tile t of every other rank's slice to it.
template <bool ALL, bool WHOLE>
__device__ __forceinline__ void scatterTile(const Call &c, const Pipe &p, u64 t) {
  const u64 at = p.at(t);
#pragma unroll 1
  for (u32 i = 0; i + 1 < RANKS; i++) {
    const u32 j = turn(c, i);
    const u64 from = c.src + j * c.srcStride + at, to = c.of(j) + p.slot(c.rank, j, t);
    copyVectors<WHOLE>(to, from, clamp((s64)(sliceOf<ALL>(c, j) - at), p.tile));
  }
}

// Ends has the addresses of a warp's tile of this rank's slice: sources by rank, and destinations
// with this rank first.
struct Ends {
  u64 from[RANKS], to[RANKS];
};

// reduceStep reduces the whole vectors from v on, of n bytes. FULL means that a whole step remains.
template <bool ALL, bool FULL>
__device__ __forceinline__ void reduceStep(const Ends &ends, u64 v, u64 n, const u64 *scalars) {
  Pair x[TILE_DEPTH][RANKS] = {};
#pragma unroll
  for (int k = 0; k < TILE_DEPTH; k++) {
#pragma unroll
    for (int q = 0; q < RANKS; q++)
      if (FULL || VECTOR(k, v) + 16 <= n) x[k][q] = read16(ends.from[q] + VECTOR(k, v));
  }
#pragma unroll
  for (int k = 0; k < TILE_DEPTH; k++) {
    if (!FULL && VECTOR(k, v) + 16 > n) continue;
    const Pair y = reduced(x[k], scalars);
#pragma unroll
    for (int i = (ALL ? RANKS : 1) - 1; i >= 0; i--) write16(ends.to[i] + VECTOR(k, v), y);
  }
}

// reduceVectors reduces n bytes, by one warp. Partial vectors, or all if vectors are unaligned, are
// reduced one by one.
template <bool ALL, bool WHOLE>
__device__ __forceinline__ void reduceVectors(const Call &c, const Ends &ends, u64 n, const u64 *scalars) {
  const u64 lane = 16 * (threadIdx.x & 31);
  u64 v = 0;
  if (WHOLE) {
#pragma unroll 1
    for (; v + STEP <= n; v += STEP) reduceStep<ALL, true>(ends, v + lane, n, scalars);
    if (v + 16 <= n) reduceStep<ALL, false>(ends, v + lane, n, scalars);
    v = n & ~15ull;
  }
#pragma unroll 1
  for (v += lane; v < n; v += 512) {
    Pair x[RANKS];
#pragma unroll
    for (int q = 0; q < RANKS; q++) x[q] = q == c.rank ? readSome(ends.from[q] + v, (s64)(n - v)) : read16(ends.from[q] + v);
    const Pair y = reduced(x, scalars);
#pragma unroll
    for (int i = (ALL ? RANKS : 1) - 1; i >= 0; i--) writeSome(ends.to[i] + v, y, (s64)(n - v));
  }
}

// reduceTile reduces tile t of this rank's slice, and stores the sum here, and to all if ALL. dst
// has the slice's destinations, in the order of Ends.
template <bool ALL, bool WHOLE>
__device__ __forceinline__ void reduceTile(const Call &c, const Pipe &p, const u64 *dst, u64 t, const u64 *scalars) {
  const u64 at = p.at(t);
  Ends ends;
#pragma unroll
  for (int q = 0; q < RANKS; q++) {
    ends.from[q] = q == c.rank ? c.src + c.rank * c.srcStride + at : p.own + p.slot(q, c.rank, t);
    ends.to[q] = dst[q] + at;
  }
  reduceVectors<ALL, WHOLE>(c, ends, clamp((s64)(sliceOf<ALL>(c, c.rank) - at), p.tile), scalars);
}

// destinations sets dst to the address of this rank's slice on all ranks, in the order of Ends: the
// same offset of a slab on each.
template <bool ALL>
__device__ __forceinline__ void destinations(const Call &c, u64 *dst) {
  dst[0] = c.dst + (ALL ? c.rank * c.dstStride : 0);
#pragma unroll
  for (int i = 1; i < RANKS; i++) {
    const u64 slab = c.dstPlace >> SLAB_SHIFT, offset = c.dstPlace & ((1ull << SLAB_SHIFT) - 1);
    dst[i] = ALL ? read8(c.local + TABLE_AT + 8 * (8 * slab + turn(c, i - 1))) + offset + c.rank * c.dstStride : 0;
  }
}

// tiles is an allreduce (ALL) or a reduce-scatter. In each round a warp sends its next tiles before
// it waits for those of the previous round.
template <bool ALL, bool WHOLE>
__device__ __forceinline__ void tiles(const Call &c, u64 e, Watch &w) {
  Pipe p;
  p.own = c.own();
  p.scratch = c.area + (e & 1) * c.half;
  p.sent = SENT_AT;
  p.done = DONE_AT;
  p.tile = c.tiling & 0xffffffffu;
  p.warps = c.tiling >> 32;
  p.warp = (u64)(threadIdx.x >> 5) * c.blocks + c.block; // few tiles spread over many multiprocessors
  p.lane = threadIdx.x & 31;
  const u64 slice = ALL ? c.srcStride : c.bytes, round = p.tile * p.warps;
  p.count = (slice + round - 1) / round;
  u64 scalars[RANKS], dst[RANKS];
  count(c, e);
  sendScalar(c, e);
  if (p.warp >= p.warps || p.count == 0) return;
#pragma unroll 1
  for (u64 t = 0; t <= p.count; t++) {
    if (t < p.count) {
      if (t >= TILE_SLOTS && !reached(c, p, p.done, e, t + 1 - TILE_SLOTS, w)) return;
      scatterTile<ALL, WHOLE>(c, p, t);
    }
    if (t == 0) {
      tell(c, p, e, 1, 0);
      destinations<ALL>(c, dst);
      takeScalars(c, e, w, scalars);
      continue;
    }
    if (!reached(c, p, p.sent, e, t, w)) return;
    reduceTile<ALL, WHOLE>(c, p, dst, t - 1, scalars);
    if (ALL || t < p.count) tell(c, p, e, t < p.count ? t + 1 : 0, t);
  }
  if (ALL) reached(c, p, p.done, e, p.count, w);
}
