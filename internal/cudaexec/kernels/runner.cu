// What a runner launches besides the kernels of its program's steps.

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned char u8;

// Copies is what the end of a run copies to the host: sources, bytes of each, and where in a slot each goes.
struct Copies {
  const u8 *from[COPIES];
  u32 bytes[COPIES];
  u32 to[COPIES];
};

// tail ends a run: it copies what the host wants to see to slot *runs % SLOTS of the ring, which is memory of the host, and
// counts the run. clock, if there is one, has the number of the next step then. One block.
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

// stamp notes the time of the device in nanoseconds.
extern "C" __global__ void stamp(u64 *at) {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  *at = t;
}
