// The kernel that KERNEL names. Each is compiled by itself, when it is first needed.

#define KERNEL_ONCE 0
#define KERNEL_TWICE 1
#define KERNEL_PULL 2
#define KERNEL_ALL 3
#define KERNEL_SCATTER 4
#define KERNEL_PUSH 5

extern "C" __global__ void __launch_bounds__(MAX_THREADS) entry(PARAMETERS) {
  const Call c = CALL;
  const u64 e = epoch(c);
  Watch w = {abortWord, 0, false};
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
#else
  __shared__ Meeting m;
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
  finish(c, e);
}
