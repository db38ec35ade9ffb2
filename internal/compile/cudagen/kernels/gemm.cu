// Matrix products by tiles in shared memory, if no library does them. Sums have a fixed order.

// gemm computes save(b, m, n, sum over k of left(b, m, k) * right(b, k, n)) for a tile of P::BM by
// P::BN, 4 by 4 results per thread. It loads the next slice of P::BK while it multiplies one.
// P::Splits blocks share the k of a tile, P::Chunk each; the last adds up. Neighbouring threads
// load neighbours along k with P::LeftByK and P::RightByK.
template <class P, class Left, class Right, class Save>
INLINE void gemm(const Left &left, const Right &right, const Save &save, typename P::A *part, u32 *counts) {
  typedef typename P::A A;
  typedef typename P::I I;
  constexpr int BM = P::BM, BN = P::BN, BK = P::BK, T = P::Threads, NA = BM * BK / T, NB = BN * BK / T;
  __shared__ __align__(16) A as[2][BK][BM + 4], bs[2][BK][BN + 4];
  const int split = blockIdx.x % P::Splits, tile = blockIdx.x / P::Splits;
  const I n0 = (I)(tile % P::TilesN) * BN, m0 = (I)(tile / P::TilesN % P::TilesM) * BM;
  const int batch = tile / P::TilesN / P::TilesM;
  const I begin = (I)split * P::Chunk, end = begin + P::Chunk < (I)P::K ? begin + P::Chunk : (I)P::K;
  const int tn = threadIdx.x % (BN / 4) * 4, tm = threadIdx.x / (BN / 4) * 4;
  A sum[4][4] = {}, ra[NA], rb[NB];
  int now = 0;
  for (I k0 = begin - BK; k0 < end; k0 += BK, now ^= 1) {
    if (k0 >= begin) {
#pragma unroll
      for (int j = 0; j < NA; j++) {
        const int e = threadIdx.x + j * T;
        as[now][P::LeftByK ? e % BK : e / BM][P::LeftByK ? e / BK : e % BM] = ra[j];
      }
#pragma unroll
      for (int j = 0; j < NB; j++) {
        const int e = threadIdx.x + j * T;
        bs[now][P::RightByK ? e % BK : e / BN][P::RightByK ? e / BK : e % BN] = rb[j];
      }
      __syncthreads();
    }
    if (k0 + BK < end) {
#pragma unroll
      for (int j = 0; j < NA; j++) {
        const int e = threadIdx.x + j * T;
        const I k = k0 + BK + (P::LeftByK ? e % BK : e / BM), m = m0 + (P::LeftByK ? e / BK : e % BM);
        ra[j] = k < end && m < (I)P::M ? (A)left(batch, m, k) : (A)0;
      }
#pragma unroll
      for (int j = 0; j < NB; j++) {
        const int e = threadIdx.x + j * T;
        const I k = k0 + BK + (P::RightByK ? e % BK : e / BN), n = n0 + (P::RightByK ? e / BK : e % BN);
        rb[j] = k < end && n < (I)P::N ? (A)right(batch, k, n) : (A)0;
      }
    }
    if (k0 >= begin) {
#pragma unroll
      for (int k = 0; k < BK; k++) {
        A x[4], y[4];
#pragma unroll
        for (int j = 0; j < 4; j++) x[j] = as[now][k][tm + j];
#pragma unroll
        for (int j = 0; j < 4; j++) y[j] = bs[now][k][tn + j];
#pragma unroll
        for (int a = 0; a < 4; a++)
#pragma unroll
          for (int b = 0; b < 4; b++) sum[a][b] += x[a] * y[b];
      }
    }
  }
  if (P::Splits > 1) {
    A *own = part + (I)tile * P::Splits * (BM * BN) + threadIdx.x;
#pragma unroll
    for (int j = 0; j < 16; j++) own[split * (BM * BN) + j * T] = sum[j / 4][j % 4];
    if (!lastOf(counts + tile, P::Splits)) return;
#pragma unroll
    for (int j = 0; j < 16; j++) {
      sum[j / 4][j % 4] = 0;
#pragma unroll 4
      for (int s = 0; s < P::Splits; s++) sum[j / 4][j % 4] += own[s * (BM * BN) + j * T];
    }
  }
#pragma unroll
  for (int a = 0; a < 4; a++)
#pragma unroll
    for (int b = 0; b < 4; b++) {
      const I m = m0 + tm + a, n = n0 + tn + b;
      if (m < (I)P::M && n < (I)P::N) save(batch, m, n, sum[a][b]);
    }
}

// Strided is an element of a matrix, or of one of a batch.
template <class P, class T, s64 Batch, s64 Row, s64 Column>
struct Strided {
  const T *p;
  INLINE typename P::A operator()(int batch, typename P::I row, typename P::I column) const {
    return (typename P::A)number(p[batch * Batch + row * Row + column * Column]);
  }
};

template <class P, class T>
struct SaveMatrix {
  T *p;
  INLINE void operator()(int batch, typename P::I m, typename P::I n, typename P::A x) const {
    typedef typename P::A A;
    T &to = p[(s64)batch * P::OutBatch + (s64)m * P::OutM + (s64)n * P::OutN];
    x *= (A)P::Alpha;
    if (P::Beta != 0) x += (A)P::Beta * (A)number(to);
    put(to, x);
  }
};

template <class P, class T, class V, class U>
INLINE void matMul(const T *a, const V *b, U *c, typename P::A *part, u32 *counts) {
  gemm<P>(Strided<P, T, P::LeftBatch, P::LeftM, P::LeftK>{a}, Strided<P, V, P::RightBatch, P::RightK, P::RightN>{b},
          SaveMatrix<P, U>{c}, part, counts);
}
