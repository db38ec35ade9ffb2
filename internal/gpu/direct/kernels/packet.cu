// Operations by packets. Data and the flag of their arrival are one store into the receiver's own
// memory. So there is no fence and no barrier, one hop suffices, and buffers may be anywhere. Each
// receiver has two halves of memory for packets; an operation uses the half of its epoch's parity.
// A rank begins operation e+2 only after it had packets, or greetings, of operation e+1 from every
// other rank, which has then finished e.
//
// PROTOCOL 0 is NCCL's LL: 16 bytes carry 8 of data, and each half its own flag. A half is never
// torn (PTX memory model). PROTOCOL 1 is NCCL's LL128: the 8 lanes that share a line of 128 bytes
// carry 120 of data, and the last word is the flag for all. Like NCCL it relies on NVLink from
// Volta on: a line that a warp stores with one instruction becomes visible as a whole, and is
// loaded as a whole.
//
// A unit is the data that a thread sends at once: 16 bytes on the wire, number u at 16*u.
//
// Skipped code costs time, too. So each step has its code once where possible, and rare code is
// called.

// BATCH is the number of units of a thread that are in transfer together, if it has more than one.
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

// unitAt returns the offset of unit u in the data.
__device__ __forceinline__ u64 unitAt(u64 u) {
#if PROTOCOL == 0
  return u * 8;
#else
  return (u >> 3) * 120 + (u & 7) * 16;
#endif
}

__device__ __forceinline__ bool flagLane(u64 u) { return PROTOCOL == 1 && (u & 7) == 7; }

// take returns the data of unit u, of which left bytes begin at p; WHOLE means aligned words.
// Partial words use a function call, which keeps the common code small.
template <bool WHOLE>
__device__ __forceinline__ Pair take(u64 p, u64 u, s64 left) {
  const s64 most = PROTOCOL == 0 || flagLane(u) ? 8 : 16;
  Pair x = {0, 0};
  if (WHOLE && left >= most) {
    x.a = read8(p);
    if (most == 16) x.b = read8(p + 8);
  } else if (left > 0) {
    x = readSome(p, left < most ? left : most);
  }
  return x;
}

// give is the inverse of take.
template <bool WHOLE>
__device__ __forceinline__ void give(u64 p, Pair x, u64 u, s64 left) {
  const s64 most = PROTOCOL == 0 || flagLane(u) ? 8 : 16;
  if (WHOLE && left >= most) {
    write8(p, x.a);
    if (most == 16) write8(p + 8, x.b);
  } else if (left > 0) {
    writeSome(p, x, left < most ? left : most);
  }
}

// put sends x as unit u to the slot at p, if on. For PROTOCOL 1 the lanes of a line call it
// together.
__device__ __forceinline__ void put(u64 p, u64 u, Pair x, bool on, u64 e) {
#if PROTOCOL == 0
  if (on) sendWord(p + 16 * u, x.a, e);
#else
  if (flagLane(u)) x.b = e;
  __syncwarp();
  if (on) storePair(p + 16 * u, x);
#endif
}

// come reports whether x, read at unit u of a slot, was sent by operation e; on means that this
// lane waits for it. For PROTOCOL 1 all lanes of the warp call come and more together, and get the
// same answer.
__device__ __forceinline__ bool come(Pair x, u64 u, bool on, u64 e) {
#if PROTOCOL == 0
  return !on || tagged(x, e);
#else
  return !__any_sync(ALL_LANES, on && flagLane(u) && x.b != e);
#endif
}

// more reports whether to go on waiting.
__device__ __forceinline__ bool more(Watch &w) {
#if PROTOCOL == 0
  return w.again();
#else
  if (__all_sync(ALL_LANES, w.again())) return true;
  w.dead = true;
  return false;
#endif
}

// carried returns the data of an arrived unit.
__device__ __forceinline__ Pair carried(Pair x) {
#if PROTOCOL == 0
  Pair y = {untagged(x), 0};
  return y;
#else
  return x;
#endif
}

// arrived waits for unit u of the slot at p, and returns its data. x is the first value read there;
// on means that this lane waits for it.
__device__ __forceinline__ Pair arrived(Pair x, u64 p, u64 u, bool on, u64 e, Watch &w) {
  while (!come(x, u, on, e) && more(w))
    if (on) x = loadPair(p + 16 * u);
  return carried(x);
}

// halfOf returns the offset in every board of operation e's half of the memory for packets.
__device__ __forceinline__ u64 halfOf(const Call &c, u64 e) { return c.area + (e & 1) * c.half; }

// slotAt returns the slot of this rank at peer i, among slots that begin at first in every board.
// On this rank that peer has slot i.
__device__ __forceinline__ u64 slotAt(const Call &c, int i, u64 first) {
  return c.board[i + 1] + first + (i < c.rank ? c.rank - 1 : c.rank) * c.slot;
}

// inOrder sets x to the data of this rank and of its peers, by rank.
__device__ __forceinline__ void inOrder(const Call &c, Pair own, const Pair *peers, Pair *x) {
#pragma unroll
  for (int q = 0; q < RANKS; q++) {
    Pair y = own;
    if (q > 0 && q > c.rank) y = peers[q > 0 ? q - 1 : 0];
    if (q < RANKS - 1 && q < c.rank) y = peers[q < RANKS - 1 ? q : 0];
    x[q] = y;
  }
}

// arrivedAll is arrived for unit u of all senders, whose slots begin at from. It polls the missing
// ones in turn, so that waiting for all takes no longer than for the last one.
__device__ __forceinline__ void arrivedAll(const Call &c, Pair *x, u64 from, u64 u, bool on, u64 e, Watch &w) {
  for (bool all = false; !all;) {
    all = true;
#pragma unroll
    for (int i = 0; i < RANKS - 1; i++) {
      if (!c.peerSends(i) || come(x[i], u, on, e)) continue;
      all = false;
      if (on) x[i] = loadPair(from + i * c.slot + 16 * u);
    }
    if (!all && !more(w)) break;
  }
#pragma unroll
  for (int i = 0; i < RANKS - 1; i++) x[i] = carried(x[i]);
}

// Span has the units of a thread: one every stride, from at on.
struct Span {
  u64 at, stride, units, padded;

  __device__ __forceinline__ Span(const Call &c, u64 n) {
    at = (u64)c.block * blockDim.x + threadIdx.x;
    stride = (u64)c.blocks * blockDim.x;
    units = n;
    padded = (n + 31) & ~31ull; // lanes of a warp stay together
  }
};

// sendBatch sends N units of this rank's data to all receivers, into its slot of their half. All
// loads come before the first store, so that they overlap, also with the count of epochs.
template <bool WHOLE, int N>
__device__ __forceinline__ void sendBatch(const Call &c, const Span &s, u64 at, u64 &e) {
  Pair x[N][RANKS - 1];
#pragma unroll
  for (int k = 0; k < N; k++) {
    const u64 u = at + k * s.stride, off = unitAt(u);
    if (u >= s.padded) break; // all lanes of a warp
    const s64 left = u < s.units ? (s64)(c.bytes - off) : 0;
#pragma unroll
    for (int i = 0; i < RANKS - 1; i++) {
      const bool wanted = c.srcStride == 0 ? i == 0 : c.peerReceives(i);
      if (wanted) x[k][i] = take<WHOLE>(c.src + c.peer(i) * c.srcStride + off, u, left);
    }
  }
  later(e);
  const u64 first = halfOf(c, e);
#pragma unroll
  for (int k = 0; k < N; k++) {
    const u64 u = at + k * s.stride;
    if (u >= s.padded) break;
    Pair y;
#pragma unroll
    for (int i = 0; i < RANKS - 1; i++) {
      if (i == 0 || c.srcStride != 0) y = x[k][i];
      if (c.peerReceives(i)) put(slotAt(c, i, first), u, y, u < s.units, e);
    }
  }
}

// takeBatch waits for N units of all senders, and stores their reduction, or each of them, at its
// destination.
template <bool WHOLE, int N>
__device__ __forceinline__ void takeBatch(const Call &c, const Span &s, u64 at, u64 e, Watch &w, const u64 *scalars) {
  const u64 from = c.own() + halfOf(c, e);
  Pair x[N][RANKS - 1] = {}, own[N] = {};
#pragma unroll
  for (int k = 0; k < N; k++) {
    const u64 u = at + k * s.stride, off = unitAt(u);
    if (u >= s.padded) break;
    const bool on = u < s.units;
    own[k] = take<WHOLE>(c.src + c.rank * c.srcStride + off, u, on && c.sends(c.rank) ? (s64)(c.bytes - off) : 0);
#pragma unroll
    for (int i = 0; i < RANKS - 1; i++)
      if (on && c.peerSends(i)) x[k][i] = loadPair(from + i * c.slot + 16 * u);
  }
#pragma unroll
  for (int k = 0; k < N; k++) {
    const u64 u = at + k * s.stride, off = unitAt(u);
    if (u >= s.padded) break;
    const bool on = u < s.units;
    const s64 left = on ? (s64)(c.bytes - off) : 0;
    arrivedAll(c, x[k], from, u, on, e, w);
#if RED == RED_NONE
#pragma unroll
    for (int i = 0; i < RANKS - 1; i++)
      if (c.peerSends(i)) give<WHOLE>(c.dst + c.peer(i) * c.dstStride + off, x[k][i], u, left);
    const u64 to = c.dst + c.rank * c.dstStride + off;
    if (c.sends(c.rank) && to != c.src + c.rank * c.srcStride + off) give<WHOLE>(to, own[k], u, left);
#else
    Pair all[RANKS];
    inOrder(c, own[k], x[k], all);
#if PROTOCOL == 0
    u64 v[RANKS];
#pragma unroll
    for (int q = 0; q < RANKS; q++) v[q] = all[q].a;
    const Pair y = {reduced(v, scalars), 0};
#else
    const Pair y = reduced(all, scalars);
#endif
    give<WHOLE>(c.dst + off, y, u, left);
#endif
  }
}

// once is every operation in one hop: each rank sends its data for each other rank, and takes
// theirs.
template <bool WHOLE>
__device__ __forceinline__ void once(const Call &c, u64 e, Watch &w) {
  const bool sends = c.sends(c.rank), takes = c.receives(c.rank);
  const Span s(c, UNITS(c.bytes));
  const u64 jump = BATCH * s.stride;
  u64 scalars[RANKS];
  if (c.flags & FLAG_GREET) greet(c, e);
  if (sends) sendScalar(c, e);
  if (s.units <= s.stride) { // at most one for each thread: code for more takes time even without work
    if (sends && s.at < s.padded) sendBatch<WHOLE, 1>(c, s, s.at, e);
    count(c, e);
    if (takes && s.at < s.padded) {
      takeScalars(c, e, w, scalars);
      takeBatch<WHOLE, 1>(c, s, s.at, e, w, scalars);
    }
  } else {
    u64 at = s.at; // the units to send next, while the previous ones are taken
#pragma unroll 1
    for (bool first = true;; first = false, at += jump) {
      if (sends && at < s.padded) sendBatch<WHOLE, BATCH>(c, s, at, e);
      if (first) {
        count(c, e);
        if (takes && at < s.padded) takeScalars(c, e, w, scalars);
      } else if (takes) {
        takeBatch<WHOLE, BATCH>(c, s, at - jump, e, w, scalars);
      }
      if (at >= s.padded) break;
    }
  }
  if (c.flags & FLAG_GREET) greeted(c, e, w);
}
