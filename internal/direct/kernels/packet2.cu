#if RED != RED_NONE
// An allreduce in two hops: slice j of the data is whole lines, and rank j reduces it and sends it to all. Each half of the
// memory for packets has two slots for each other rank: its part of this rank's slice, and its own slice when it is done.

// Slices is where the lines of each rank begin: per lines for each, as long as there are any.
struct Slices {
  u64 lines, per;

  __device__ __forceinline__ bool has(u32 j, u64 u) const { return j * per + u / 8 < lines; }
  __device__ __forceinline__ u64 offset(u32 j, u64 u) const { return j * per * 120 + unitAt(u); }
};

template <bool WHOLE>
__device__ __forceinline__ void scatterUnit(const Call &c, const Slices &l, u64 u, u64 to, u64 e) {
  Pair x[RANKS];
#pragma unroll
  for (int j = 0; j < RANKS; j++) {
    const u64 off = l.offset(j, u);
    x[j].a = x[j].b = 0;
    if (j != c.rank && u < 8 * l.per && l.has(j, u)) x[j] = take<WHOLE>(c.src + off, u, (s64)(c.bytes - off));
  }
#pragma unroll
  for (int j = 0; j < RANKS; j++) {
    __syncwarp();
    if (j != c.rank && u < 8 * l.per && l.has(j, u)) put(c.base[j] + to + slotOf(c.rank, j) * c.slot, u, x[j], e);
  }
}

template <bool WHOLE>
__device__ __forceinline__ void reduceUnit(const Call &c, const Slices &l, u64 u, u64 from, u64 to, u64 e, Watch &w,
                                           const u64 *scalars) {
  const bool on = u < 8 * l.per && l.has(c.rank, u);
  const u64 off = l.offset(c.rank, u);
  const s64 left = on ? (s64)(c.bytes - off) : 0;
  Pair x[RANKS];
#pragma unroll
  for (int q = 0; q < RANKS; q++) {
    x[q].a = x[q].b = 0;
    if (on) x[q] = q == c.rank ? take<WHOLE>(c.src + off, u, left) : loadPair(from + slotOf(q, c.rank) * c.slot + 16 * u);
  }
#pragma unroll
  for (int q = 0; q < RANKS; q++)
    if (q != c.rank) x[q] = arrived(x[q], from + slotOf(q, c.rank) * c.slot, u, on, e, w);
  const Pair y = reduced(x, scalars);
#pragma unroll
  for (int p = 0; p < RANKS; p++) {
    __syncwarp();
    if (p != c.rank && on) put(c.base[p] + to + slotOf(c.rank, p) * c.slot, u, y, e);
  }
  give<WHOLE>(c.dst + off, y, u, left);
}

template <bool WHOLE>
__device__ __forceinline__ void gatherUnit(const Call &c, const Slices &l, u64 u, u64 from, u64 e, Watch &w) {
  Pair x[RANKS];
#pragma unroll
  for (int q = 0; q < RANKS; q++) {
    x[q].a = x[q].b = 0;
    if (q != c.rank && u < 8 * l.per && l.has(q, u)) x[q] = loadPair(from + slotOf(q, c.rank) * c.slot + 16 * u);
  }
#pragma unroll
  for (int q = 0; q < RANKS; q++) {
    if (q == c.rank) continue;
    const bool on = u < 8 * l.per && l.has(q, u);
    const u64 off = l.offset(q, u);
    x[q] = arrived(x[q], from + slotOf(q, c.rank) * c.slot, u, on, e, w);
    give<WHOLE>(c.dst + off, x[q], u, on ? (s64)(c.bytes - off) : 0);
  }
}

// twice goes through its units with the three steps one round apart, so that what a step waits for is on its way.
template <bool WHOLE>
__device__ __forceinline__ void twice(const Call &c, u64 e, Watch &w) {
  Slices l;
  l.lines = (c.bytes + 119) / 120;
  l.per = (l.lines + RANKS - 1) / RANKS;
  const u64 first = c.area + (e & 1) * c.half, second = first + (RANKS - 1) * c.slot;
  const u64 own = c.of(c.rank);
  const Span s(c, 8 * l.per);
  u64 scalars[RANKS];
  sendScalar(c, e);
  if (s.at < s.padded) scatterUnit<WHOLE>(c, l, s.at, first, e);
  count(c, e);
  if (s.at >= s.padded) return;
  takeScalars(c, e, w, scalars);
  if (s.at + s.stride < s.padded) scatterUnit<WHOLE>(c, l, s.at + s.stride, first, e);
  reduceUnit<WHOLE>(c, l, s.at, own + first, second, e, w, scalars);
  for (u64 u = s.at; u < s.padded; u += s.stride) {
    const u64 next = u + s.stride, after = next + s.stride;
    if (after < s.padded) scatterUnit<WHOLE>(c, l, after, first, e);
    if (next < s.padded) reduceUnit<WHOLE>(c, l, next, own + first, second, e, w, scalars);
    gatherUnit<WHOLE>(c, l, u, own + second, e, w);
  }
}
#endif
