// The kernel of KERNEL and PROTOCOL; ENTRY is its name.

#define KERNEL_ONCE 0
#define KERNEL_TWICE 1
#define KERNEL_PULL 2
#define KERNEL_ALL 3
#define KERNEL_SCATTER 4
#define KERNEL_PUSH 5
#define KERNEL_TILE_ALL 6
#define KERNEL_TILE_SCATTER 7
#define KERNEL_COMBINE 8

// All blocks of a launch run at once. Large ones have a multiprocessor of their own, and may use
// all its registers. Blocks of combine wait for no rank.
#if KERNEL == KERNEL_COMBINE
#define BOUNDS MAX_THREADS
#else
#define BOUNDS MAX_THREADS, 1
#endif

extern "C" __global__ void __launch_bounds__(BOUNDS) ENTRY(PARAMETERS) {
  if (local == 0) return; // a launch without work, by which the driver allocates memory for later ones
  awaitPrevious((u32)(who >> 24));
  const Call c = CALL;
  Watch w = {abortWord, 0, false};
#if KERNEL == KERNEL_COMBINE
  addUp(c, lastEpoch(c), w);
#else
  const u64 e = epoch(c);
#if KERNEL == KERNEL_ONCE
  if (((src | dst | srcStride | dstStride) & 7) == 0) {
    once<true>(c, e, w);
  } else {
    once<false>(c, e, w);
  }
#elif KERNEL == KERNEL_TWICE
  if (((src | dst) & 7) == 0) {
    twice<true>(c, e, w);
  } else {
    twice<false>(c, e, w);
  }
#elif KERNEL == KERNEL_TILE_ALL || KERNEL == KERNEL_TILE_SCATTER
  if (((src | dst | srcStride | dstStride) & 15) == 0) {
    tiles<KERNEL == KERNEL_TILE_ALL, true>(c, e, w);
  } else {
    tiles<KERNEL == KERNEL_TILE_ALL, false>(c, e, w);
  }
#else
  __shared__ Meeting m;
  count(c, e);
#if KERNEL == KERNEL_PULL
  if (((src | dst | srcStride | dstStride) & 15) == 0) {
    pull<true>(c, e, w, m);
  } else {
    pull<false>(c, e, w, m);
  }
#elif KERNEL == KERNEL_ALL
  slices<true>(c, e, w, m);
#elif KERNEL == KERNEL_SCATTER
  slices<false>(c, e, w, m);
#else
  push(c, e, w, m);
#endif
#endif
#endif
}
