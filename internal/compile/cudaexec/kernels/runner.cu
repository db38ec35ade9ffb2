// Kernels that a runner launches in addition to those of its program's steps.

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

// Copies are the copies to the host at the end of a run: source, bytes, and offset in the slot.
struct Copies {
  const u8 *from[COPIES];
  u32 bytes[COPIES];
  u32 to[COPIES];
};

// tail ends a run: it makes the copies c to slot *runs % SLOTS of the ring, which is host memory,
// and counts the run. It sets clock, if any, to the number of the next step. One block.
extern "C" __global__ void tail(u64 *clock, u64 *runs, u8 *ring, u64 slotBytes, Copies c) {
  u8 *slot = ring + *runs % SLOTS * slotBytes;
  for (int k = 0; k < COPIES; k++) {
    const u8 *from = c.from[k];
    u8 *to = slot + c.to[k];
    const u32 n = c.bytes[k];
    if (((u64)from & 3) == 0 && (n & 3) == 0) {
      for (u32 i = threadIdx.x; i < n / 4; i += blockDim.x) {
        ((volatile u32 *)to)[i] = ((const volatile u32 *)from)[i];
      }
    } else {
      for (u32 i = threadIdx.x; i < n; i += blockDim.x) ((volatile u8 *)to)[i] = ((const volatile u8 *)from)[i];
    }
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0) return;
  *runs += 1;
  if (clock) clock[0] += 1;
}

// stamp writes the time of the device in nanoseconds.
extern "C" __global__ void stamp(u64 *at) {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  *at = t;
}

// transposed writes the transpose of from, which has rows rows, to to, which has cols rows. ldFrom
// and ldTo are the elements from one row to the next. A block transposes a tile of EDGE by EDGE
// elements through shared memory, so that a warp reads and writes adjacent elements. Rows of the
// tile are a word longer, so that a column spreads over banks. Each thread issues all its loads at
// once.
template <class T> static __device__ void transposed(const T *__restrict__ from, T *__restrict__ to, u64 rows, u64 cols, u64 ldFrom, u64 ldTo) {
  const u32 down = THREADS / 32, ups = EDGE / down, acrosses = EDGE / 32;
  __shared__ T tile[EDGE][EDGE + (sizeof(T) < 4 ? 4 / sizeof(T) : 1)];
  const u32 across = (u32)((cols + EDGE - 1) / EDGE);
  const u64 row = (u64)(blockIdx.x / across) * EDGE, col = (u64)(blockIdx.x % across) * EDGE;
  const u32 x = threadIdx.x % 32, y = threadIdx.x / 32;
  T held[ups][acrosses];
#pragma unroll
  for (u32 i = 0; i < ups; i++) {
#pragma unroll
    for (u32 j = 0; j < acrosses; j++) {
      const u64 r = row + y + i * down, c = col + x + j * 32;
      held[i][j] = r < rows && c < cols ? from[r * ldFrom + c] : T(0);
    }
  }
#pragma unroll
  for (u32 i = 0; i < ups; i++) {
#pragma unroll
    for (u32 j = 0; j < acrosses; j++) tile[y + i * down][x + j * 32] = held[i][j];
  }
  __syncthreads();
#pragma unroll
  for (u32 i = 0; i < ups; i++) {
#pragma unroll
    for (u32 j = 0; j < acrosses; j++) {
      const u64 r = row + x + j * 32, c = col + y + i * down;
      if (r < rows && c < cols) to[c * ldTo + r] = tile[x + j * 32][y + i * down];
    }
  }
}

// transpose2, transpose4 and transpose8 are transposed for elements of 2, 4 and 8 bytes.
extern "C" __global__ void transpose2(const u16 *from, u16 *to, u64 rows, u64 cols, u64 ldFrom, u64 ldTo) {
  transposed<u16>(from, to, rows, cols, ldFrom, ldTo);
}

extern "C" __global__ void transpose4(const u32 *from, u32 *to, u64 rows, u64 cols, u64 ldFrom, u64 ldTo) {
  transposed<u32>(from, to, rows, cols, ldFrom, ldTo);
}

extern "C" __global__ void transpose8(const u64 *from, u64 *to, u64 rows, u64 cols, u64 ldFrom, u64 ldTo) {
  transposed<u64>(from, to, rows, cols, ldFrom, ldTo);
}
