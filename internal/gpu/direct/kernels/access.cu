// Loads, stores and fences. All memory order is here, so that the other files are plain C++. PTX
// ISA 8.x, "Memory consistency model": a relaxed access of system scope is one access for each
// 64-bit element of a vector. It is never torn, and never comes from the L1 cache.

typedef unsigned long long u64;
typedef long long s64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

struct Pair {
  u64 a, b;
};

// loadPair and storePair have system scope, for words that another GPU accesses concurrently.
__device__ __forceinline__ Pair loadPair(u64 p) {
  Pair x;
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];" : "=l"(x.a), "=l"(x.b) : "l"(p) : "memory");
  return x;
}

__device__ __forceinline__ void storePair(u64 p, Pair x) {
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(p), "l"(x.a), "l"(x.b) : "memory");
}

__device__ __forceinline__ u64 loadWord(u64 p) {
  u64 x;
  asm volatile("ld.relaxed.sys.global.b64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
  return x;
}

// acquireWord is loadWord with acquire order: stores before the word that it reads become visible.
// Unlike a fence it does not wait for this thread's own pending accesses.
__device__ __forceinline__ u64 acquireWord(u64 p) {
  u64 x;
  asm volatile("ld.acquire.sys.global.b64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
  return x;
}

__device__ __forceinline__ void storeWord(u64 p, u64 x) {
  asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}

// fence is an acquire, and a release of the accesses of this thread and of those it met at a block
// barrier.
__device__ __forceinline__ void fence() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// read and write access data that no other GPU accesses in conflict between two meetings.
__device__ __forceinline__ Pair read16(u64 p) {
  Pair x;
  asm volatile("ld.global.L1::no_allocate.v2.b64 {%0, %1}, [%2];" : "=l"(x.a), "=l"(x.b) : "l"(p));
  return x;
}

__device__ __forceinline__ u64 read8(u64 p) {
  u64 x;
  asm volatile("ld.global.b64 %0, [%1];" : "=l"(x) : "l"(p));
  return x;
}

__device__ __forceinline__ u32 read4(u64 p) {
  u32 x;
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(x) : "l"(p));
  return x;
}

__device__ __forceinline__ u32 read2(u64 p) {
  u16 x;
  asm volatile("ld.global.b16 %0, [%1];" : "=h"(x) : "l"(p));
  return x;
}

__device__ __forceinline__ u32 read1(u64 p) {
  u32 x;
  asm volatile("ld.global.u8 %0, [%1];" : "=r"(x) : "l"(p));
  return x;
}

__device__ __forceinline__ void write16(u64 p, Pair x) {
  asm volatile("st.global.v2.b64 [%0], {%1, %2};" ::"l"(p), "l"(x.a), "l"(x.b) : "memory");
}

__device__ __forceinline__ void write8(u64 p, u64 x) {
  asm volatile("st.global.b64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}

__device__ __forceinline__ void write4(u64 p, u32 x) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

__device__ __forceinline__ void write2(u64 p, u32 x) {
  asm volatile("st.global.b16 [%0], %1;" ::"l"(p), "h"((u16)x) : "memory");
}

__device__ __forceinline__ void write1(u64 p, u32 x) {
  asm volatile("st.global.u8 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

// later keeps the compiler from using x before all earlier accesses are issued. x itself may be
// pending.
__device__ __forceinline__ void later(u64 &x) { asm volatile("" : "+l"(x)::"memory"); }

__device__ __forceinline__ float halfToFloat(u16 h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}

__device__ __forceinline__ u16 floatToHalf(float f) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
