// Bandwidth of the links between GPUs for each kind of access, without flags and meetings.
// TestFloor launches one kernel on each GPU at the same time.
typedef unsigned long long u64;
typedef unsigned int u32;

struct Quad {
  u32 a, b, c, d;
};

__device__ __forceinline__ Quad read16(u64 p) {
  Quad x;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x.a), "=r"(x.b), "=r"(x.c), "=r"(x.d) : "l"(p));
  return x;
}

__device__ __forceinline__ void write16(u64 p, Quad x) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x.a), "r"(x.b), "r"(x.c), "r"(x.d) : "memory");
}

__device__ __forceinline__ Quad read8(u64 p) {
  Quad x = {0, 0, 0, 0};
  asm volatile("ld.global.L1::no_allocate.v2.b32 {%0, %1}, [%2];" : "=r"(x.a), "=r"(x.b) : "l"(p));
  return x;
}

__device__ __forceinline__ void write8(u64 p, Quad x) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(p), "r"(x.a), "r"(x.b) : "memory");
}

// peer0 to peer2 are the addresses of this rank's area in the memory of each peer, and peers is the
// number of peers. local is as much memory of this rank. bytes are for each peer.
#define FLOOR_PARAMETERS u64 peer0, u64 peer1, u64 peer2, u64 peers, u64 local, u64 bytes, u64 passes, u64 chunk

__device__ __forceinline__ u64 choose(u64 i, u64 peer0, u64 peer1, u64 peer2) { return i == 0 ? peer0 : i == 1 ? peer1 : peer2; }

#define READ 0    /* loads from peers */
#define WRITE 1   /* stores to peers */
#define SEND 2    /* loads here, stores to peers */
#define FETCH 3   /* loads from peers, stores here */
#define TWOSHOT 4 /* loads from peers and here, stores of the sum to both */

template <int MODE, int DEPTH, int WIDTH>
__device__ __forceinline__ void go(FLOOR_PARAMETERS) {
  const u64 size = (u64)blockDim.x * DEPTH * WIDTH, n = bytes / size * peers;
  u32 sum = 0;
  for (u64 pass = 0; pass < passes; pass++) {
    for (u64 i = blockIdx.x; i < n; i += gridDim.x) {
      const u64 off = i / peers * size + threadIdx.x * WIDTH;
      const u64 there = choose(i % peers, peer0, peer1, peer2) + off, here = local + i % peers * bytes + off;
      Quad x[DEPTH], y[DEPTH];
#pragma unroll
      for (int k = 0; k < DEPTH; k++) {
        const u64 o = (u64)k * blockDim.x * WIDTH;
        if (MODE == READ || MODE == FETCH || MODE == TWOSHOT) x[k] = WIDTH == 16 ? read16(there + o) : read8(there + o);
        if (MODE == SEND || MODE == TWOSHOT) y[k] = WIDTH == 16 ? read16(here + o) : read8(here + o);
      }
#pragma unroll
      for (int k = 0; k < DEPTH; k++) {
        const u64 o = (u64)k * blockDim.x * WIDTH;
        Quad z = MODE == SEND ? y[k] : x[k];
        if (MODE == WRITE) z.a = z.b = z.c = z.d = (u32)(i + pass);
        if (MODE == TWOSHOT) z.a += y[k].a, z.b += y[k].b, z.c += y[k].c, z.d += y[k].d;
        if (MODE == READ) sum += z.a ^ z.b ^ z.c ^ z.d;
        if (MODE == FETCH || MODE == TWOSHOT) WIDTH == 16 ? write16(here + o, z) : write8(here + o, z);
        if (MODE == WRITE || MODE == SEND || MODE == TWOSHOT) WIDTH == 16 ? write16(there + o, z) : write8(there + o, z);
      }
    }
  }
  if (MODE == READ && sum == 0x9e3779b9u) write8(local, Quad{sum, sum, sum, sum}); // keeps the compiler from removing the loads
}

#define KERNEL(name, mode, depth, width)                                                      \
  extern "C" __global__ void __launch_bounds__(512) name##_##depth##_##width(FLOOR_PARAMETERS) { \
    go<mode, depth, width>(peer0, peer1, peer2, peers, local, bytes, passes, chunk);           \
  }
#define KERNELS(name, mode) KERNEL(name, mode, 1, 16) KERNEL(name, mode, 4, 16) KERNEL(name, mode, 8, 16) KERNEL(name, mode, 8, 8)
KERNELS(read, READ)
KERNELS(write, WRITE)
KERNELS(send, SEND)
KERNELS(fetch, FETCH)
KERNELS(twoshot, TWOSHOT)

#ifdef BULK
// Bulk copies, by one thread of each warp, which has BUFFERS of chunk bytes in shared memory and a
// barrier for each.
#define BUFFERS 4

__device__ __forceinline__ u32 sharedAddress(const void *p) {
  u32 a;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(p));
  return a;
}

__device__ __forceinline__ void startLoad(u32 to, u64 from, u32 n, u32 barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(n) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(n),
               "r"(barrier)
               : "memory");
}

__device__ __forceinline__ void awaitLoad(u32 barrier, u32 parity) {
  u32 done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
}

__device__ __forceinline__ void startStore(u64 to, u32 from, u32 n) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(n) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

template <int MODE>
__device__ __forceinline__ void bulk(FLOOR_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char shared[];
  const u32 warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const u32 buffers = sharedAddress(shared) + 1024 + warp * BUFFERS * (u32)chunk, barriers = sharedAddress(shared) + warp * BUFFERS * 8;
  if (threadIdx.x % 32 != 0) return;
  for (int k = 0; k < BUFFERS; k++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + 8 * k) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
  const u64 n = bytes / chunk * peers, step = (u64)gridDim.x * warps, first = (u64)blockIdx.x + gridDim.x * warp;
  const u64 rounds = first < n ? (n - first + step - 1) / step : 0, all = rounds * passes;
  for (u64 j = 0; j < all + BUFFERS / 2; j++) { // a load begins half the buffers before its store
    if (j < all) {
      const u64 i = first + j % rounds * step, off = i / peers * chunk;
      const u64 there = choose(i % peers, peer0, peer1, peer2) + off, here = local + i % peers * bytes + off;
      if (MODE != READ) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(BUFFERS / 2 - 1) : "memory");
      if (MODE != WRITE) startLoad(buffers + j % BUFFERS * (u32)chunk, MODE == SEND ? here : there, (u32)chunk, barriers + 8 * (j % BUFFERS));
    }
    if (j < BUFFERS / 2) continue;
    const u64 g = j - BUFFERS / 2;
    const u64 i = first + g % rounds * step, off = i / peers * chunk;
    const u64 there = choose(i % peers, peer0, peer1, peer2) + off, here = local + i % peers * bytes + off;
    if (MODE != WRITE) awaitLoad(barriers + 8 * (g % BUFFERS), g / BUFFERS & 1);
    if (MODE != READ) startStore(MODE == FETCH ? here : there, buffers + g % BUFFERS * (u32)chunk, (u32)chunk);
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

#define BULK_KERNEL(name, mode)                                                       \
  extern "C" __global__ void __launch_bounds__(512) bulk_##name(FLOOR_PARAMETERS) {   \
    bulk<mode>(peer0, peer1, peer2, peers, local, bytes, passes, chunk);              \
  }
BULK_KERNEL(read, READ)
BULK_KERNEL(write, WRITE)
BULK_KERNEL(send, SEND)
BULK_KERNEL(fetch, FETCH)
#endif
