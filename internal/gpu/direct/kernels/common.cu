// Code for all kernels: arguments, epochs, waits, meetings of equal blocks on all ranks, and memory
// of any alignment. The host defines RANKS, MAX_BLOCKS, MAX_THREADS, locations in a board
// (HELLO_AT, SCALARS_AT, CLOSE_AT, OPEN_AT) and in local memory (EPOCHS_AT, TABLE_AT): see
// layout.go.

#define ALL_LANES 0xffffffffu
#define SLAB_SHIFT 48

// Arguments are single values, so that they stay in constant memory. board0 is this rank's board;
// the boards of the other ranks follow in ascending order, as this rank addresses them. So no board
// need be looked up by rank. Bits of senders and receivers have the same order. local is this
// rank's own memory; who is rank | senders << 8 | receivers << 16 | flags << 24; tiling is the
// bytes of a tile | warps << 32.
#define PARAMETERS                                                                                                  \
  u64 board0, u64 board1, u64 board2, u64 board3, u64 board4, u64 board5, u64 board6, u64 board7, u64 local,        \
      u64 abortWord, u64 src, u64 dst, u64 srcPlace, u64 dstPlace, u64 bytes, u64 srcStride, u64 dstStride, u64 slot,\
      u64 area, u64 half, u64 scalar, u64 scalarAt, u64 who, u64 tiling

#define FLAG_GREET 1 /* greetings: some ranks have no data for each other */
#define FLAG_FENCE 2 /* a barrier: earlier writes become visible */
#define FLAG_NEXT 4  /* the next kernel in the stream may begin before this one ends */

struct Call {
  u64 board[8];
  u64 local, abortWord, src, dst, srcPlace, dstPlace, bytes, srcStride, dstStride, slot, area, half, scalar, scalarAt, tiling;
  u32 rank, senders, receivers, flags;
  u32 block, blocks; // index and number of the blocks of this task

  __device__ __forceinline__ u64 own() const { return board[0]; }

  // peer returns the rank of peer i of RANKS - 1.
  __device__ __forceinline__ u32 peer(u32 i) const { return i < rank ? i : i + 1; }
  __device__ __forceinline__ bool peerSends(u32 i) const { return senders >> (i + 1) & 1; }
  __device__ __forceinline__ bool peerReceives(u32 i) const { return receivers >> (i + 1) & 1; }

  // index returns the index of rank r among boards.
  __device__ __forceinline__ u32 index(u32 r) const { return r == rank ? 0 : r < rank ? r + 1 : r; }
  __device__ __forceinline__ bool sends(u32 r) const { return senders >> index(r) & 1; }
  __device__ __forceinline__ bool receives(u32 r) const { return receivers >> index(r) & 1; }

  // of returns the board of rank r, which is unknown to the compiler.
  __device__ __forceinline__ u64 of(u32 r) const {
    const u32 n = index(r);
    u64 b = board[0];
#pragma unroll
    for (int i = 1; i < RANKS; i++)
      if (n == i) b = board[i];
    return b;
  }
};

#define CALL                                                                                                        \
  {                                                                                                                 \
    {board0, board1, board2, board3, board4, board5, board6, board7}, local, abortWord, src, dst, srcPlace, dstPlace,\
        bytes, srcStride, dstStride, slot, area, half, scalar, scalarAt, tiling, (u32)(who & 255),                  \
        (u32)(who >> 8 & 255), (u32)(who >> 16 & 255), (u32)(who >> 24), blockIdx.x, gridDim.x                      \
  }

// Watch limits a thread's wait. Reading the host's word crosses the bus, so it is rare.
struct Watch {
  u64 word;
  u32 spins;
  bool dead;

  // again reports whether to go on waiting.
  __device__ __forceinline__ bool again() {
    if (dead) return false;
    if ((++spins & 4095) == 0 && loadWord(word) != 0) dead = true;
    return !dead;
  }
};

// awaitPrevious waits for the end of the previous kernel in the stream, which may still run. Then
// it lets the next kernel begin, if flags say so.
__device__ __forceinline__ void awaitPrevious(u32 flags) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (flags & FLAG_NEXT) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// epoch returns the number of this operation, from 1. Each block has its own count. The blocks of a
// grid also count for missing blocks, so all counts stay equal for any grids, and no block waits
// for another. A block may write them once it has read its own: the next kernel in the stream reads
// them only after this one has ended. Early writes need not be waited for at the end.
__device__ __forceinline__ u64 epoch(const Call &c) { return read8(c.local + EPOCHS_AT + 8 * blockIdx.x); }

// Words are tagged with 32 bits of the epoch, and unwritten memory has tag 0. So two epochs around
// 2^32 are skipped, which keeps the parities alternating.
__device__ __forceinline__ void count(const Call &c, u64 e) {
  __syncthreads();
  const u64 next = (u32)e == 0xffffffffu ? e + 3 : e + 1;
  for (u32 i = blockIdx.x + gridDim.x * threadIdx.x; i < MAX_BLOCKS; i += gridDim.x * blockDim.x) write8(c.local + EPOCHS_AT + 8 * i, next);
}

// lastEpoch returns the number of the previous operation, for a kernel that does not count as one.
__device__ __forceinline__ u64 lastEpoch(const Call &c) {
  const u64 n = epoch(c) - 1;
  return (u32)n == 1 && n > 1 ? n - 2 : n;
}

// A tagged word is 16 bytes. Each half has 32 bits of the word and the low 32 bits of the epoch, so
// it needs no fence and no separate flag. NCCL's LL protocol.
__device__ __forceinline__ void sendWord(u64 p, u64 x, u64 e) {
  Pair y = {(x & 0xffffffffu) | e << 32, x >> 32 | e << 32};
  storePair(p, y);
}

__device__ __forceinline__ bool tagged(Pair y, u64 e) { return (u32)(y.a >> 32) == (u32)e && (u32)(y.b >> 32) == (u32)e; }

__device__ __forceinline__ u64 untagged(Pair y) { return (y.a & 0xffffffffu) | y.b << 32; }

__device__ __forceinline__ u64 waitWord(u64 p, u64 e, Watch &w) {
  Pair y = loadPair(p);
  while (!tagged(y, e) && w.again()) y = loadPair(p);
  return untagged(y);
}

// greet announces to every other rank that this one has begun; greeted waits for all of them.
__device__ __forceinline__ void greet(const Call &c, u64 e) {
  if (blockIdx.x != 0 || threadIdx.x >= RANKS || threadIdx.x == c.rank) return;
  if (c.flags & FLAG_FENCE) fence();
  storeWord(c.of(threadIdx.x) + HELLO_AT + 8 * c.rank, e);
}

__device__ __forceinline__ void greeted(const Call &c, u64 e, Watch &w) {
  if (blockIdx.x != 0 || threadIdx.x >= RANKS || threadIdx.x == c.rank) return;
  const u64 p = c.own() + HELLO_AT + 8 * threadIdx.x;
  while (acquireWord(p) < e && w.again()) {
  }
}

// ownScalar returns this rank's factor of a premulsum, in the low bytes.
__device__ __forceinline__ u64 ownScalar(const Call &c) {
#if RED == RED_PREMULSUM
  if (c.scalarAt != 0) {
    if (sizeof(Elem) == 1) return read1(c.scalarAt);
    if (sizeof(Elem) == 2) return read2(c.scalarAt);
    if (sizeof(Elem) == 4) return read4(c.scalarAt);
    return read8(c.scalarAt);
  }
#endif
  return c.scalar;
}

// sendScalar sends this rank's factor to the others; takeScalars waits for theirs.
__device__ __forceinline__ void sendScalar(const Call &c, u64 e) {
#if RED == RED_PREMULSUM
  if (blockIdx.x == 0 && threadIdx.x < RANKS && threadIdx.x != c.rank)
    sendWord(c.of(threadIdx.x) + SCALARS_AT + ((e & 1) * 8 + c.rank) * 16, ownScalar(c), e);
#endif
}

__device__ __forceinline__ void takeScalars(const Call &c, u64 e, Watch &w, u64 *scalars) {
#if RED == RED_PREMULSUM
  u64 own = c.own() + SCALARS_AT + (e & 1) * 8 * 16;
#pragma unroll
  for (int q = 0; q < RANKS; q++) scalars[q] = q == c.rank ? ownScalar(c) : waitWord(own + 16 * q, e, w);
#endif
}

// Meeting has the results of an opening for a block: source and destination of every rank, as this
// rank addresses them, and the distance of their slices.
struct Meeting {
  u64 src[RANKS], dst[RANKS], srcStride[RANKS], dstStride[RANKS];
  u32 dead;
};

// open meets the same block of the other ranks: their earlier writes are visible afterwards. The
// words that announce a block contain its locations: a slab's number above SLAB_SHIFT, and an
// offset; slab 0 is the board.
__device__ __forceinline__ void open(const Call &c, u64 e, Watch &w, Meeting &m, u64 srcPlace, u64 dstPlace) {
  const u32 r = threadIdx.x;
  if (r == 0) m.dead = 0;
  __syncthreads();
  if (r < RANKS && r != c.rank) {
    const u64 board = c.of(r), row = OPEN_AT + ((e & 1) * MAX_BLOCKS + blockIdx.x) * 8 * 32;
    fence();
    sendWord(board + row + 32 * c.rank, srcPlace, e);
    sendWord(board + row + 32 * c.rank + 16, dstPlace, e);
    const u64 own = c.own() + row + 32 * r;
    const u64 from = waitWord(own, e, w), to = waitWord(own + 16, e, w);
    acquireWord(own); // reads this or a later value; a fence would wait for this thread's own pending accesses
    const u64 slabs = 8 * (from >> SLAB_SHIFT), slabd = 8 * (to >> SLAB_SHIFT);
    const u64 offset = (1ull << SLAB_SHIFT) - 1;
    if (w.dead) {
      m.dead = 1;
    } else {
      m.src[r] = (from & offset) + (slabs ? read8(c.local + TABLE_AT + 8 * (slabs + r)) : board);
      m.dst[r] = (to & offset) + (slabd ? read8(c.local + TABLE_AT + 8 * (slabd + r)) : board);
      m.srcStride[r] = slabs ? c.srcStride : c.slot;
      m.dstStride[r] = slabd ? c.dstStride : c.slot;
    }
  }
  __syncthreads();
}

// close meets the same block of the other ranks again. Their reads and writes have then ended, and
// are visible to the rest of this kernel and to later ones.
__device__ __forceinline__ void close(const Call &c, u64 e, Watch &w) {
  const u32 r = threadIdx.x;
  __syncthreads();
  if (r < RANKS && r != c.rank) {
    fence();
    storeWord(c.of(r) + CLOSE_AT + (blockIdx.x * 8 + c.rank) * 8, e);
    const u64 own = c.own() + CLOSE_AT + (blockIdx.x * 8 + r) * 8;
    while (acquireWord(own) < e && w.again()) {
    }
  }
  __syncthreads();
}

// readSome returns up to 16 bytes at p, left of them, by the widest accesses possible; the other
// bytes are 0.
__device__ __noinline__ Pair readSome(u64 p, s64 left) {
  u64 x[2] = {0, 0};
  const int n = left > 16 ? 16 : (int)left;
  if (n == 16 && (p & 15) == 0) return read16(p);
  if (((p | n) & 7) == 0) {
    if (n > 0) x[0] = read8(p);
    if (n > 8) x[1] = read8(p + 8);
  } else if (((p | n) & 3) == 0) {
#pragma unroll
    for (int i = 0; i < 16; i += 4)
      if (i < n) x[i >> 3] |= (u64)read4(p + i) << 8 * (i & 7);
  } else if (((p | n) & 1) == 0) {
#pragma unroll
    for (int i = 0; i < 16; i += 2)
      if (i < n) x[i >> 3] |= (u64)read2(p + i) << 8 * (i & 7);
  } else {
#pragma unroll
    for (int i = 0; i < 16; i++)
      if (i < n) x[i >> 3] |= (u64)read1(p + i) << 8 * (i & 7);
  }
  Pair y = {x[0], x[1]};
  return y;
}

// writeSome is the inverse of readSome.
__device__ __noinline__ void writeSome(u64 p, Pair y, s64 left) {
  const u64 x[2] = {y.a, y.b};
  const int n = left > 16 ? 16 : (int)left;
  if (n == 16 && (p & 15) == 0) {
    write16(p, y);
  } else if (((p | n) & 7) == 0) {
    if (n > 0) write8(p, x[0]);
    if (n > 8) write8(p + 8, x[1]);
  } else if (((p | n) & 3) == 0) {
#pragma unroll
    for (int i = 0; i < 16; i += 4)
      if (i < n) write4(p + i, (u32)(x[i >> 3] >> 8 * (i & 7)));
  } else if (((p | n) & 1) == 0) {
#pragma unroll
    for (int i = 0; i < 16; i += 2)
      if (i < n) write2(p + i, (u32)(x[i >> 3] >> 8 * (i & 7)));
  } else {
#pragma unroll
    for (int i = 0; i < 16; i++)
      if (i < n) write1(p + i, (u32)(x[i >> 3] >> 8 * (i & 7)));
  }
}

// clamp limits x to the range from 0 to most.
__device__ __forceinline__ u64 clamp(s64 x, u64 most) { return x < 0 ? 0 : (u64)x > most ? most : (u64)x; }

// own16 returns a vector of this rank's data, of which left bytes begin at p, and put16 is its
// inverse; WHOLE means aligned vectors. Partial vectors use a function call, which keeps the common
// code small.
template <bool WHOLE>
__device__ __forceinline__ Pair own16(u64 p, s64 left) {
  if (WHOLE && left >= 16) return read16(p);
  Pair none = {0, 0};
  return left > 0 ? readSome(p, left) : none;
}

template <bool WHOLE>
__device__ __forceinline__ void put16(u64 p, Pair x, s64 left) {
  if (WHOLE && left >= 16) {
    write16(p, x);
  } else if (left > 0) {
    writeSome(p, x, left);
  }
}
