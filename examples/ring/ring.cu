// The ring for ranks that are GPUs: each kernel writes to the memory of the next GPU by its
// address.
#include "symgrad.h"

typedef unsigned long long u64;

// simple_shift is the kernel of the NVSHMEM manual: every rank writes its number to destination on
// the next rank.
extern "C" __global__ void simple_shift(int *const *destination, int mype, int npes) {
    int peer = (mype + 1) % npes;
    *destination[peer] = mype; // nvshmem_int_p(destination, mype, peer)
}

// shift_signal is simple_shift with a signal after the number. It ends when a number has arrived
// here; late reports a timeout.
extern "C" __global__ void shift_signal(int *const *destination, u64 *const *signal, int mype, int npes, u64 patience, u64 *late) {
    int peer = (mype + 1) % npes;
    *destination[peer] = mype;
    symgrad_signal(signal[peer], 1);
    if (!symgrad_wait(signal[mype], 1, patience)) {
        *late = 1;
    }
}

// pass is one rank's part of so many rounds, in one kernel of one block. It waits for the token,
// checks its numbers, and writes them, each plus one, to the box of the next rank. result[0] is the
// number of wrong numbers, result[1] the hop that did not arrive, plus one.
extern "C" __global__ void pass(long long *const *box, u64 *const *signal, u64 numbers, u64 rounds, int mype, int npes,
                                u64 patience, u64 *result) {
    __shared__ bool here;
    int peer = (mype + 1) % npes;
    u64 bad = 0;
    for (u64 round = 0; round <= rounds; round++) {
        bool last = round == rounds; // the token is back at its start
        if (last && mype > 0) {
            break;
        }
        u64 hops = round * npes + mype; // hops before the token is here
        if (threadIdx.x == 0) {
            here = symgrad_wait(signal[mype], hops, patience);
        }
        __syncthreads();
        if (!here) {
            if (threadIdx.x == 0) {
                result[1] = hops + 1;
            }
            break;
        }
        for (u64 i = threadIdx.x; i < numbers; i += blockDim.x) {
            long long v = box[mype][i];
            bad += v != (long long)hops;
            if (!last) {
                box[peer][i] = v + 1;
            }
        }
        __syncthreads(); // all threads have written before the signal
        if (!last && threadIdx.x == 0) {
            symgrad_signal(signal[peer], hops + 1);
        }
    }
    atomicAdd(&result[0], bad);
}
