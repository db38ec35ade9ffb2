// Jacobi's iteration on a strip of rows. The kernel writes the border rows directly into the halos
// of the neighbouring GPUs. device.go launches it.
#include "symgrad.h"
#ifdef HALO_NVSHMEM
#include <nvshmem.h>
#include <nvshmemx.h>
#endif

typedef unsigned long long u64;

// strip has the addresses of a rank's rows; Go's strip describes their layout.
struct strip {
    double *const *cells;  // the two copies, of every rank
    u64 *const *arrived;   // newest iteration of which a piece has arrived: from above, then from below, of every rank
    u64 *change;           // largest change of a point, as the bits of a double, which for numbers >= 0 have the same order
    u64 *late;             // an iteration of which a piece has not arrived; 0 for none
    int rank, ranks, nx, rows;
    int above;             // rows of the rank above
    u64 points;            // in one copy
    bool signals;          // --halo put: the kernel sends rows, with signals
};

// put sends a piece of the row that this block has computed to the neighbours, with --halo device.
// The piece has arrived after the barrier that follows the kernel. All threads of the block call
// put together.
static __device__ void put(const strip &s, int row, u64 k) {
#ifdef HALO_NVSHMEM
    int col = 1 + blockIdx.x * blockDim.x, count = min((int)blockDim.x, s.nx - 1 - col);
    double *to = s.cells[s.rank] + (k % 2) * s.points;
    const double *from = to + (u64)row * s.nx + col;
    __syncthreads(); // the piece is written completely
    if (row == 1 && s.rank > 0) {
        nvshmemx_double_put_nbi_block(to + (u64)(s.above + 1) * s.nx + col, from, count, s.rank - 1);
    }
    if (row == s.rows && s.rank + 1 < s.ranks) {
        nvshmemx_double_put_nbi_block(to + col, from, count, s.rank + 1);
    }
#endif
}

// edge computes a piece of the first or the last row of iteration k. With --halo put it waits for
// the same piece of the neighbour's row, the only part of that row that it reads. It then puts its
// own piece into the neighbour's halo, followed by a signal. A rank with one row serves both
// neighbours at once.
static __device__ void edge(const strip &s, int row, u64 k, bool look, u64 patience, u64 *most) {
    __shared__ bool here;
    int piece = blockIdx.x, pieces = gridDim.x;
    bool up = s.signals && row == 1 && s.rank > 0, down = s.signals && row == s.rows && s.rank + 1 < s.ranks;
    if (threadIdx.x == 0) {
        here = symgrad_read(s.late) == 0 && (!up || symgrad_wait(&s.arrived[s.rank][piece], k - 1, patience)) &&
               (!down || symgrad_wait(&s.arrived[s.rank][pieces + piece], k - 1, patience));
        if (!here) {
            atomicCAS(s.late, 0, k - 1);
        }
    }
    __syncthreads();
    if (!here) {
        return;
    }
    int col = 1 + blockIdx.x * blockDim.x + threadIdx.x;
    if (col < s.nx - 1) {
        u64 to = (k % 2) * s.points, from = ((k + 1) % 2) * s.points;
        const double *old = s.cells[s.rank] + from + (u64)row * s.nx + col;
        double v = 0.25 * ((old[-1] + old[1]) + (old[-s.nx] + old[s.nx]));
        s.cells[s.rank][to + (u64)row * s.nx + col] = v;
        if (up) {
            s.cells[s.rank - 1][to + (u64)(s.above + 1) * s.nx + col] = v;
        }
        if (down) {
            s.cells[s.rank + 1][to + col] = v;
        }
        if (look) {
            atomicMax(most, (u64)__double_as_longlong(fabs(v - old[0])));
        }
    }
    put(s, row, k);
    __syncthreads(); // the piece is written completely
    if (threadIdx.x == 0) {
        if (up) {
            symgrad_signal(&s.arrived[s.rank - 1][pieces + piece], k);
        }
        if (down) {
            symgrad_signal(&s.arrived[s.rank + 1][piece], k);
        }
    }
}

// interior computes every step-th row without a neighbouring rank, starting at row.
static __device__ void interior(const strip &s, int row, int step, u64 k, bool look, u64 *most) {
    int col = 1 + blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= s.nx - 1) {
        return;
    }
    double *to = s.cells[s.rank] + (k % 2) * s.points;
    const double *from = s.cells[s.rank] + ((k + 1) % 2) * s.points;
    double furthest = 0;
    for (; row < s.rows; row += step) {
        const double *old = from + (u64)row * s.nx + col;
        double v = 0.25 * ((old[-1] + old[1]) + (old[-s.nx] + old[s.nx]));
        to[(u64)row * s.nx + col] = v;
        furthest = fmax(furthest, fabs(v - old[0]));
    }
    if (look) {
        atomicMax(most, (u64)__double_as_longlong(furthest));
    }
}

// sweep runs iteration k. A block has a piece of blockDim.x columns; its number in y selects the
// row or rows. Edges have the first numbers, so that they are sent while the rows between them are
// computed. begin is the first number; the interior has interiors blocks.
extern "C" __global__ void sweep(double *const *cells, u64 *const *arrived, u64 *change, u64 *late, int rank, int ranks, int nx,
                                 int rows, int above, u64 points, u64 k, int look, int signals, u64 patience, int begin,
                                 int interiors) {
    strip s = {cells, arrived, change, late, rank, ranks, nx, rows, above, points, signals != 0};
    __shared__ u64 most;
    if (threadIdx.x == 0) {
        most = 0;
    }
    __syncthreads();
    int edges = rows > 1 ? 2 : 1, y = begin + blockIdx.y;
    if (y < edges) {
        edge(s, y == 0 ? 1 : rows, k, look, patience, &most);
    } else {
        interior(s, 2 + y - edges, interiors, k, look, &most);
    }
    if (look) {
        __syncthreads();
        if (threadIdx.x == 0) {
            atomicMax(change, most);
        }
    }
}
