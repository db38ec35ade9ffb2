#if RED != RED_NONE
// An allreduce in two hops. Slice j of the data is whole lines; rank j reduces it and sends it to
// all. Each half of the memory for packets has two slots for each other rank: its part of this
// rank's slice, and its own reduced slice.

// Slices has the lines of each rank: per lines for each, up to their total.
struct Slices {
  u64 lines, per;

  __device__ __forceinline__ bool has(u32 j, u64 u) const { return j * per + u / 8 < lines; }
  __device__ __forceinline__ u64 offset(u32 j, u64 u) const { return j * per * 120 + unitAt(u); }
};

// secondOf returns the start of the slots for reduced slices. They follow the slots for parts of
// this rank's slice, which begin at first.
__device__ __forceinline__ u64 secondOf(const Call &c, u64 first) { return first + (RANKS - 1) * c.slot; }

template <bool WHOLE>
__device__ __forceinline__ void scatterUnit(const Call &c, const Slices &l, u64 u, u64 &e) {
  Pair x[RANKS - 1];
  bool on[RANKS - 1];
#pragma unroll
  for (int i = 0; i < RANKS - 1; i++) {
    const u32 j = c.peer(i);
    const u64 off = l.offset(j, u);
    on[i] = u < 8 * l.per && l.has(j, u);
    x[i] = take<WHOLE>(c.src + off, u, on[i] ? (s64)(c.bytes - off) : 0);
  }
  later(e);
#pragma unroll
  for (int i = 0; i < RANKS - 1; i++) put(slotAt(c, i, halfOf(c, e)), u, x[i], on[i], e);
}

template <bool WHOLE>
__device__ __forceinline__ void reduceUnit(const Call &c, const Slices &l, u64 u, u64 e, Watch &w, const u64 *scalars) {
  const u64 first = halfOf(c, e), from = c.own() + first;
  const bool on = u < 8 * l.per && l.has(c.rank, u);
  const u64 off = l.offset(c.rank, u);
  const s64 left = on ? (s64)(c.bytes - off) : 0;
  Pair x[RANKS - 1] = {}, all[RANKS];
  const Pair own = take<WHOLE>(c.src + off, u, left);
#pragma unroll
  for (int i = 0; i < RANKS - 1; i++)
    if (on) x[i] = loadPair(from + i * c.slot + 16 * u);
#pragma unroll
  for (int i = 0; i < RANKS - 1; i++) x[i] = arrived(x[i], from + i * c.slot, u, on, e, w);
  inOrder(c, own, x, all);
  const Pair y = reduced(all, scalars);
#pragma unroll
  for (int i = 0; i < RANKS - 1; i++) put(slotAt(c, i, secondOf(c, first)), u, y, on, e);
  give<WHOLE>(c.dst + off, y, u, left);
}

template <bool WHOLE>
__device__ __forceinline__ void gatherUnit(const Call &c, const Slices &l, u64 u, u64 e, Watch &w) {
  const u64 from = c.own() + secondOf(c, halfOf(c, e));
  Pair x[RANKS - 1] = {};
  bool on[RANKS - 1];
#pragma unroll
  for (int i = 0; i < RANKS - 1; i++) {
    on[i] = u < 8 * l.per && l.has(c.peer(i), u);
    if (on[i]) x[i] = loadPair(from + i * c.slot + 16 * u);
  }
#pragma unroll
  for (int i = 0; i < RANKS - 1; i++) {
    const u64 off = l.offset(c.peer(i), u);
    x[i] = arrived(x[i], from + i * c.slot, u, on[i], e, w);
    give<WHOLE>(c.dst + off, x[i], u, on[i] ? (s64)(c.bytes - off) : 0);
  }
}

// twice loops over its units with the three steps one round apart, so that awaited data is already
// in transfer.
template <bool WHOLE>
__device__ __forceinline__ void twice(const Call &c, u64 e, Watch &w) {
  Slices l;
  l.lines = (c.bytes + 119) / 120;
  l.per = (l.lines + RANKS - 1) / RANKS;
  const Span s(c, 8 * l.per);
  u64 scalars[RANKS];
  sendScalar(c, e);
#pragma unroll 1
  for (u64 at = s.at;; at += s.stride) { // the unit to scatter; the previous one is reduced, and the one before that gathered
    if (at < s.padded) scatterUnit<WHOLE>(c, l, at, e);
    if (at == s.at) {
      count(c, e);
      if (at >= s.padded) return;
      takeScalars(c, e, w, scalars);
      continue;
    }
    if (at - s.stride < s.padded) reduceUnit<WHOLE>(c, l, at - s.stride, e, w, scalars);
    if (at == s.at + s.stride) continue;
    gatherUnit<WHOLE>(c, l, at - 2 * s.stride, e, w);
    if (at - s.stride >= s.padded) return;
  }
}
#endif
