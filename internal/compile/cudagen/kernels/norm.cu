// Batch normalization over (N, C, Spatial). A block has P::Width channels, with P::Lanes threads
// each. P::Splits blocks share the elements of the same channels. Sums have a fixed order. The
// variance is that of differences from the mean, to avoid cancellation; parts are combined as in T.
// Chan et al., "Updating formulae and a pairwise algorithm for computing sample variances", 1979.

// ofChannel returns the sum of x over the lanes of a channel to all of them.
template <class P, class A>
INLINE A ofChannel(A x) {
  if (P::Width == 1) return across<Sum, P::Lanes>(x);
  __shared__ A all[P::Width];
  x = down<Sum, P::Lanes, P::Width>(x);
  if (threadIdx.x < P::Width) all[threadIdx.x] = x;
  __syncthreads();
  return all[threadIdx.x % P::Width];
}

// Channel is the work of a thread.
template <class P>
struct Channel {
  typedef typename P::I I;
  int c, split, group, lane;
  bool in;
  I begin, end; // of the channel's P::Count elements
  INLINE Channel() {
    split = blockIdx.x % P::Splits;
    group = blockIdx.x / P::Splits;
    c = group * P::Width + threadIdx.x % P::Width;
    lane = threadIdx.x / P::Width;
    in = c < P::C;
    begin = (I)split * P::Chunk;
    end = begin + P::Chunk < (I)P::Count ? begin + P::Chunk : (I)P::Count;
    if (!in) end = begin;
  }
  // at returns the offset of element i of the channel.
  INLINE I at(I i) const { return (i / P::Spatial * P::C + c) * P::Spatial + i % P::Spatial; }
};

template <class P, class T, class R, class S, class U, class M, class D, class V, class W>
INLINE void batchNorm(const T *x, const R *oldMean, const S *oldVar, U *y, M *mean, D *rstd, V *newMean, W *newVar,
                      typename P::A *part, u32 *counts) {
  typedef typename P::A A;
  typedef typename P::I I;
  const Channel<P> ch;
  A sum = 0, m2 = 0, count = ch.end - ch.begin;
#pragma unroll 4
  for (I i = ch.begin + ch.lane; i < ch.end; i += P::Lanes) sum += (A)number(x[ch.at(i)]);
  A mid = ofChannel<P>(sum) / count;
#pragma unroll 4
  for (I i = ch.begin + ch.lane; i < ch.end; i += P::Lanes) {
    const A d = (A)number(x[ch.at(i)]) - mid;
    m2 += d * d;
  }
  m2 = ofChannel<P>(m2);
  if (P::Splits > 1) {
    if (ch.in && ch.lane == 0) {
      part[(ch.split * P::C + ch.c) * 2] = mid;
      part[(ch.split * P::C + ch.c) * 2 + 1] = m2;
    }
    if (!lastOf(counts + ch.group, P::Splits)) return;
    if (ch.in && ch.lane == 0) {
      count = P::Chunk;
      mid = part[ch.c * 2];
      m2 = part[ch.c * 2 + 1];
      for (int s = 1; s < P::Splits; s++) {
        const A more = s + 1 < P::Splits ? (A)P::Chunk : (A)((I)P::Count - (I)s * P::Chunk);
        const A d = part[(s * P::C + ch.c) * 2] - mid;
        mid += d * (more / (count + more));
        m2 += part[(s * P::C + ch.c) * 2 + 1] + d * d * (count / (count + more) * more);
        count += more;
      }
    }
  }
  const A var = m2 / (A)P::Count, r = 1 / opSqrt(var + (A)P::Epsilon);
  if (ch.in && ch.lane == 0) {
    put(mean[ch.c], mid);
    put(rstd[ch.c], r);
    put(newMean[ch.c], (A)P::Momentum * (A)number(oldMean[ch.c]) + (A)(1 - P::Momentum) * mid);
    put(newVar[ch.c], (A)P::Momentum * (A)number(oldVar[ch.c]) + (A)(1 - P::Momentum) * (var * (A)P::Unbias));
  }
  if (P::Splits > 1) return;
#pragma unroll 4
  for (I i = ch.begin + ch.lane; i < ch.end; i += P::Lanes) put(y[ch.at(i)], ((A)number(x[ch.at(i)]) - mid) * r);
}

// normalize is the second pass of batchNorm if several blocks share a channel.
template <class P, class T, class U, class M, class D>
INLINE void normalize(const T *x, U *y, const M *mean, const D *rstd) {
  typedef typename P::A A;
  typedef typename P::I I;
  for (I i = (I)blockIdx.x * P::Threads + threadIdx.x; i < (I)P::Count; i += (I)P::Grid * P::Threads) {
    const int c = i / P::Spatial % P::C;
    put(y[i], ((A)number(x[i]) - (A)number(mean[c])) * (A)number(rstd[c]));
  }
}

// batchNormFixed uses the running mean and variance instead of those of the batch.
template <class P, class T, class R, class S, class U, class M, class D>
INLINE void batchNormFixed(const T *x, const R *runningMean, const S *runningVar, U *y, M *mean, D *rstd) {
  typedef typename P::A A;
  typedef typename P::I I;
  for (I i = (I)blockIdx.x * P::Threads + threadIdx.x; i < (I)P::Count; i += (I)P::Grid * P::Threads) {
    const int c = i / P::Spatial % P::C;
    const A m = number(runningMean[c]), r = 1 / opSqrt((A)number(runningVar[c]) + (A)P::Epsilon);
    put(y[i], ((A)number(x[i]) - m) * r);
    if (i < (I)P::C * P::Spatial && i % P::Spatial == 0) {
      put(mean[c], m);
      put(rstd[c], r);
    }
  }
}

template <class P, class D, class T, class M, class R, class U>
INLINE void batchNormGrad(const D *dy, const T *x, const M *mean, const R *rstd, U *dx, typename P::A *part, u32 *counts) {
  typedef typename P::A A;
  typedef typename P::I I;
  const Channel<P> ch;
  const int c = ch.in ? ch.c : 0;
  const A mid = number(mean[c]), r = number(rstd[c]);
  A sum = 0, product = 0;
#pragma unroll 4
  for (I i = ch.begin + ch.lane; i < ch.end; i += P::Lanes) {
    const A d = number(dy[ch.at(i)]);
    sum += d;
    product += d * ((A)number(x[ch.at(i)]) - mid);
  }
  sum = ofChannel<P>(sum);
  product = ofChannel<P>(product);
  if (P::Splits > 1) {
    if (ch.in && ch.lane == 0) {
      part[(ch.split * P::C + c) * 2] = sum;
      part[(ch.split * P::C + c) * 2 + 1] = product;
    }
    if (!lastOf(counts + ch.group, P::Splits)) return;
    if (ch.in && ch.lane == 0) {
      sum = 0;
      product = 0;
      for (int s = 0; s < P::Splits; s++) {
        sum += part[(s * P::C + c) * 2];
        product += part[(s * P::C + c) * 2 + 1];
      }
      part[(P::Splits * P::C + c) * 2] = sum;
      part[(P::Splits * P::C + c) * 2 + 1] = product;
    }
    return;
  }
  const A a = sum / (A)P::Count, b = product / (A)P::Count * r * r;
#pragma unroll 4
  for (I i = ch.begin + ch.lane; i < ch.end; i += P::Lanes)
    put(dx[ch.at(i)], r * ((A)number(dy[ch.at(i)]) - a - ((A)number(x[ch.at(i)]) - mid) * b));
}

// normalizeGrad is the second pass of batchNormGrad if several blocks share a channel; totals has
// the sums of each.
template <class P, class D, class T, class M, class R, class U>
INLINE void normalizeGrad(const D *dy, const T *x, const M *mean, const R *rstd, U *dx, const typename P::A *totals) {
  typedef typename P::A A;
  typedef typename P::I I;
  for (I i = (I)blockIdx.x * P::Threads + threadIdx.x; i < (I)P::Count; i += (I)P::Grid * P::Threads) {
    const int c = i / P::Spatial % P::C;
    const A r = number(rstd[c]), a = totals[c * 2] / (A)P::Each, b = totals[c * 2 + 1] / (A)P::Each * r * r;
    put(dx[i], r * ((A)number(dy[i]) - a - ((A)number(x[i]) - (A)number(mean[c])) * b));
  }
}

// batchNormGradFixed is the gradient with constant mean and rstd.
template <class P, class D, class T, class M, class R, class U>
INLINE void batchNormGradFixed(const D *dy, const T *, const M *, const R *rstd, U *dx) {
  typedef typename P::A A;
  typedef typename P::I I;
  for (I i = (I)blockIdx.x * P::Threads + threadIdx.x; i < (I)P::Count; i += (I)P::Grid * P::Threads)
    put(dx[i], (A)number(dy[i]) * (A)number(rstd[i / P::Spatial % P::C]));
}
