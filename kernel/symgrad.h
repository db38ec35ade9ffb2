// Signals between GPUs, for kernels of package kernel.
#ifndef SYMGRAD_H
#define SYMGRAD_H

// symgrad_signal sets a signal of any rank. A reader of it sees all earlier writes of this thread,
// to any rank.
static __device__ __forceinline__ void symgrad_signal(unsigned long long *word, unsigned long long v) {
    asm volatile("fence.acq_rel.sys;\n\tst.relaxed.sys.u64 [%0], %1;" ::"l"(word), "l"(v) : "memory");
}

// symgrad_signal_add adds to a signal of any rank, atomically.
static __device__ __forceinline__ void symgrad_signal_add(unsigned long long *word, unsigned long long v) {
    asm volatile("fence.acq_rel.sys;\n\tred.relaxed.sys.add.u64 [%0], %1;" ::"l"(word), "l"(v) : "memory");
}

// symgrad_read returns the value of a signal. Writes before it was set are then visible to this
// thread.
static __device__ __forceinline__ unsigned long long symgrad_read(const unsigned long long *word) {
    unsigned long long v;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(v) : "l"(word) : "memory");
    return v;
}

// symgrad_now returns the GPU's clock in nanoseconds. Its steps are up to a microsecond.
static __device__ __forceinline__ unsigned long long symgrad_now() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

// symgrad_wait returns true when the signal is v or more, and false after ns nanoseconds.
static __device__ __forceinline__ bool symgrad_wait(const unsigned long long *word, unsigned long long v, unsigned long long ns) {
    if (symgrad_read(word) >= v) {
        return true;
    }
    unsigned long long begin = symgrad_now();
    while (symgrad_read(word) < v) {
        if (symgrad_now() - begin > ns) {
            return symgrad_read(word) >= v;
        }
    }
    return true;
}

#endif
