// The part of an allreduce between two ranks that moves through host memory, which both GPUs
// address, over the buses between them and the host. The first blocks of the grid do it. Senders
// store tiles of this rank's data to the other's slots there. Adders add the arrived tiles for this
// rank to its own data.
//
// A sending warp is a pipeline of its own, in both directions, as in tile.cu. It also adds the last
// of its incoming tiles, so that the end does not wait for few adders. Words in host memory
// announce arrived tiles, since writes over one bus are not ordered with those over another. Words
// on the boards announce added tiles, whose slots are free. In place, a tile is overwritten when
// the other's has arrived and the own one has been read, which the sender announces to the adders
// here.
#if RED != RED_NONE && RANKS == 2

// Duct has the addresses of all sending warps, on this rank and on the other.
struct Duct {
  u64 first, end, tile, step, warps; // data: begin, end; bytes of a tile, and of a tile for each warp
  u64 inbox, outbox, slots;          // for tiles, here and there; slots of a warp
  u64 sent, sentThere;               // words in host memory: arrived tiles, here and there
  u64 done, doneThere;               // words on the boards: tiles sent from here that the other has added, and vice versa
  u64 read;                          // words of this rank: read tiles

  __device__ __forceinline__ u64 at(u64 i, u64 t) const { return first + t * step + i * tile; }
  __device__ __forceinline__ u64 slot(u64 i, u64 k) const { return k * step + i * tile; }
};

// c.dstStride is the bytes through the host, and above HOST_SHIFT the bytes of a tile.
__device__ __forceinline__ u64 hostBytes(const Call &c) { return c.dstStride & ((1ull << HOST_SHIFT) - 1); }

__device__ __forceinline__ Duct ductOf(const Call &c, u64 e) {
  const u64 half = (e & 1) * (HOST_WORDS + HOST_HALF);
  const u64 here = read8(c.local + HOST_AT) + half, there = read8(c.local + HOST_AT + 8) + half;
  Duct d;
  d.first = c.bytes - hostBytes(c);
  d.end = c.bytes;
  d.tile = c.dstStride >> HOST_SHIFT;
  d.warps = HOST_SENDERS * (blockDim.x >> 5);
  d.step = d.tile * d.warps;
  d.sent = here;
  d.sentThere = there;
  d.inbox = here + HOST_WORDS;
  d.outbox = there + HOST_WORDS;
  d.slots = HOST_HALF / d.step;
  d.done = c.own() + HOST_DONE_AT;
  d.doneThere = c.board[1] + HOST_DONE_AT;
  d.read = c.local + HOST_READ_AT;
  return d;
}

// Words are 64 bytes apart, and have the epoch above a count, so that they only grow.
__device__ __forceinline__ u64 counted(u64 e, u64 n) { return e << TILE_SHIFT | n; }

// since waits until two words count at least n; they may be the same word.
__device__ __forceinline__ bool since(u64 one, u64 other, u64 e, u64 n, Watch &w) {
  const u32 lane = threadIdx.x & 31;
  if (lane < 2)
    while (acquireWord(lane == 0 ? one : other) < counted(e, n) && w.again()) {
    }
  if (__any_sync(ALL_LANES, w.dead)) w.dead = true;
  __syncwarp(); // a vote orders no memory
  return !w.dead;
}

// addTile adds n arrived bytes to those of this rank, at bytes into the data.
template <bool WHOLE>
__device__ __forceinline__ void addTile(const Call &c, u64 come, u64 at, u64 n, const u64 *scalars) {
  Ends ends;
#pragma unroll
  for (int q = 0; q < RANKS; q++) {
    ends.from[q] = q == c.rank ? c.src + at : come;
    ends.to[q] = c.dst + at;
  }
  reduceVectors<false, WHOLE>(c, ends, n, scalars);
}

// sendTiles sends all tiles of warp i, and adds the last of its incoming tiles.
template <bool WHOLE>
__device__ __forceinline__ void sendTiles(const Call &c, const Duct &d, u64 e, u64 i, Watch &w) {
  if (d.at(i, 0) >= d.end) return;
  u64 k = 0, t = 0, scalars[RANKS];
#pragma unroll 1
  for (;; t++) {
    if (t >= d.slots && !since(d.done + 64 * i, d.done + 64 * i, e, t + 1 - d.slots, w)) return;
    copyVectors<WHOLE>(d.outbox + d.slot(i, k), c.src + d.at(i, t), clamp((s64)(d.end - d.at(i, t)), d.tile));
    __syncwarp();
    if ((threadIdx.x & 31) == 0) {
      fence();
      storeWord(d.sentThere + 64 * i, counted(e, t + 1));
      storeWord(d.read + 64 * i, counted(e, t + 1));
    }
    if (d.at(i, t + 1) >= d.end) break;
    if (++k == d.slots) k = 0;
  }
  takeScalars(c, e, w, scalars);
  if (!since(d.sent + 64 * i, d.sent + 64 * i, e, t + 1, w)) return;
  addTile<WHOLE>(c, d.inbox + d.slot(i, k), d.at(i, t), clamp((s64)(d.end - d.at(i, t)), d.tile), scalars);
}

// addTiles adds the incoming tiles of the sending warps first, first + step, ..., except the last
// tile of each.
template <bool WHOLE>
__device__ __forceinline__ void addTiles(const Call &c, const Duct &d, u64 e, u64 first, u64 step, Watch &w) {
  u64 k = 0, scalars[RANKS];
  takeScalars(c, e, w, scalars);
#pragma unroll 1
  for (u64 t = 0; first < d.warps && d.at(first, t + 1) < d.end; t++) {
#pragma unroll 1
    for (u64 i = first; i < d.warps && d.at(i, t + 1) < d.end; i += step) {
      if (!since(d.sent + 64 * i, d.read + 64 * i, e, t + 1, w)) return;
      addTile<WHOLE>(c, d.inbox + d.slot(i, k), d.at(i, t), d.tile, scalars);
      if (d.at(i, t + d.slots) >= d.end) continue; // its slot is not used again
      __syncwarp();
      if ((threadIdx.x & 31) == 0) {
        fence();
        storeWord(d.doneThere + 64 * i, counted(e, t + 1));
      }
    }
    if (++k == d.slots) k = 0;
  }
}

// byHost is the work of the host's blocks.
template <bool WHOLE>
__device__ __forceinline__ void byHost(const Call &c, u64 e, Watch &w) {
  const u32 warp = threadIdx.x >> 5, block = blockIdx.x;
  const Duct d = ductOf(c, e);
  count(c, e);
  sendScalar(c, e);
  if (block < HOST_SENDERS) {
    sendTiles<WHOLE>(c, d, e, warp * HOST_SENDERS + block, w);
  } else {
    addTiles<WHOLE>(c, d, e, warp * HOST_ADDERS + block - HOST_SENDERS, HOST_ADDERS * (blockDim.x >> 5), w);
  }
}
#endif
