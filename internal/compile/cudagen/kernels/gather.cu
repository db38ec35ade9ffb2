// Rows by index, and their gradients.

// rowOf returns an index as a row number, or -1, with a fault, if the row does not exist.
template <class P, class K>
INLINE int rowOf(K index, u64 *words, u64 step) {
  const s64 x = whole(number(index));
  if (x >= 0 && x < P::Axis) return (int)x;
  fault(words, 1, step, (double)number(index));
  return -1;
}

// gatherRows copies bits, P::Wide elements at once.
template <class P, class T, class K>
INLINE void gatherRows(const T *x, const K *indices, T *y, u64 *words, u64 step) {
  typedef typename P::I I;
  const int inner = P::Inner / P::Wide;
  for (I i = (I)blockIdx.x * P::Threads + threadIdx.x; i < (I)P::Count; i += (I)P::Grid * P::Threads) {
    const int at = i % inner * P::Wide, k = i / inner % P::Indices;
    const I outer = i / inner / P::Indices;
    const int row = rowOf<P>(indices[k], words, step);
    Vec<T, P::Wide> v = {};
    if (row >= 0) v = load<P::Wide>(x + (outer * P::Axis + row) * P::Inner + at);
    store<P::Wide>(y + i * P::Wide, v);
  }
}

// List is the positions, in ascending order, of a row in a part of the indices.
template <int Threads>
struct List {
  int places[Threads];
  int warps[Threads / 32];
  int count;
};

// find lists the positions from first on, one per thread of the block, whose index is row.
template <class P, class K>
INLINE void find(List<P::Threads> &list, const K *indices, int first, int row, u64 *words, u64 step, bool check) {
  const int k = first + threadIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  bool match = false;
  if (k < P::Indices) {
    const s64 x = whole(number(indices[k]));
    match = x == row;
    if (check && (x < 0 || x >= P::Axis)) fault(words, 1, step, (double)number(indices[k]));
  }
  const u32 votes = __ballot_sync(0xffffffffu, match);
  __syncthreads(); // all threads have read the previous list
  if (lane == 0) list.warps[warp] = __popc(votes);
  __syncthreads();
  int at = __popc(votes & ((1u << lane) - 1)), count = 0;
#pragma unroll
  for (int w = 0; w < P::Threads / 32; w++) {
    if (w < warp) at += list.warps[w];
    count += list.warps[w];
  }
  if (match) list.places[at] = k;
  if (threadIdx.x == 0) list.count = count;
  __syncthreads();
}

// gatherGradRows has a block for P::Columns of a row of the result. Each block scans all indices;
// dy is read once. With P::ByRow the row is the block's number. Otherwise it is the row of an
// index, and the block ends if an earlier index has the same row. That scans less if there are more
// rows than indices, but the other rows must be zeros already. P::Lanes threads share a row in a
// fixed order.
template <class P, class D, class K, class U>
INLINE void gatherGradRows(const D *dy, const K *indices, U *dx, u64 *words, u64 step) {
  typedef typename P::A A;
  typedef typename P::I I;
  __shared__ List<P::Threads> list;
  const int parts = (P::Inner + P::Columns - 1) / P::Columns;
  const int part = blockIdx.x % parts, number_ = blockIdx.x / parts % P::Groups;
  const I outer = blockIdx.x / parts / P::Groups;
  const int column = part * P::Columns + threadIdx.x % P::Columns, lane = threadIdx.x / P::Columns;
  const bool check = blockIdx.x == 0 || !P::ByRow;
  int row = number_, begin = 0;
  if (!P::ByRow) {
    row = rowOf<P>(indices[number_], words, step);
    if (row < 0) return;
    begin = number_ / P::Threads * P::Threads;
  }
  A sum = 0;
  for (int first = 0; first < P::Indices; first += P::Threads) {
    find<P>(list, indices, first, row, words, step, check && P::ByRow);
    if (!P::ByRow && first <= begin && list.count > 0 && list.places[0] < number_) return;
    if (column < P::Inner) {
#pragma unroll 4
      for (int j = lane; j < list.count; j += P::Lanes)
        sum += (A)number(dy[(outer * P::Indices + list.places[j]) * P::Inner + column]);
    }
  }
  sum = down<Sum, P::Lanes, P::Columns>(sum);
  if (lane == 0 && column < P::Inner) put(dx[(outer * P::Axis + row) * P::Inner + column], sum);
}

// zeros zeros the result of a gradient.
template <class P, class U>
INLINE void zeros(U *dx) {
  typedef typename P::I I;
  for (I i = (I)blockIdx.x * P::Threads + threadIdx.x; i < (I)P::Count; i += (I)P::Grid * P::Threads) put(dx[i], 0.0f);
}
