// Convolution of few channels, and its filter gradient, without a matrix. The window of a few
// pixels is in registers for all filters of a thread, so that y is written, or dy read, once, with
// little other traffic.

// thinWindow loads the part of a channel of x that P::Down by P::Beside neighbouring pixels of y
// see, from element (h0, w0), with zeros outside.
template <class P, class T>
INLINE void thinWindow(typename P::A (&in)[P::Tall][P::Broad], const T *x, int h0, int w0) {
#pragma unroll
  for (int a = 0; a < P::Tall; a++) {
    const int h = h0 + a;
#pragma unroll
    for (int b = 0; b < P::Broad; b++) {
      const int w = w0 + b;
      in[a][b] = 0;
      if (h >= 0 && h < P::H && w >= 0 && w < P::W) in[a][b] = number(x[h * P::W + w]);
    }
  }
}

// thinConv has a thread for P::Beside pixels of a row and P::Slice filters, which are in shared
// memory. Sums have the order of the filter, as in gemm.
template <class P, class T, class V, class U>
INLINE void thinConv(const T *x, const V *filter, U *y) {
  typedef typename P::A A;
  typedef typename P::I I;
  constexpr int taps = P::C * P::R * P::S, quads = (taps + 3) / 4, wide = P::OutW / P::Beside;
  __shared__ __align__(16) A filters[P::Slice][quads * 4];
  const int k0 = blockIdx.x % P::Slices * P::Slice, slice = P::Filters - k0 < P::Slice ? P::Filters - k0 : P::Slice;
  for (int e = threadIdx.x; e < slice * taps; e += P::Threads) filters[e / taps][e % taps] = number(filter[k0 * taps + e]);
  __syncthreads();
  const I i = (I)(blockIdx.x / P::Slices) * P::Threads + threadIdx.x;
  if (i >= (I)P::Count) return;
  const int ow = i % wide * P::Beside, oh = i / wide % P::OutH;
  const I n = i / wide / P::OutH;
  A in[P::C][P::Tall][P::Broad];
#pragma unroll
  for (int c = 0; c < P::C; c++)
    thinWindow<P>(in[c], x + (n * P::C + c) * (P::H * P::W), oh * P::StrideH - P::PadH, ow * P::StrideW - P::PadW);
  U *to = y + ((n * P::Filters + k0) * P::OutH + oh) * P::OutW + ow;
#pragma unroll 2
  for (int k = 0; k < slice; k++, to += P::OutH * P::OutW) {
    A sum[P::Beside] = {};
#pragma unroll
    for (int q = 0; q < quads; q++) {
      const Vec<A, 4> f = load<4>(&filters[k][q * 4]);
#pragma unroll
      for (int j = 0; j < 4 && q * 4 + j < taps; j++) {
        const int e = q * 4 + j, s = e % P::S * P::DilationW, r = e / P::S % P::R * P::DilationH, c = e / (P::R * P::S);
#pragma unroll
        for (int v = 0; v < P::Beside; v++) sum[v] += f.x[j] * in[c][r][v * P::StrideW + s];
      }
    }
    Vec<U, P::Beside> out;
#pragma unroll
    for (int v = 0; v < P::Beside; v++) put(out.x[v], sum[v]);
    store<P::Beside>(to, out);
  }
}

// fold sums each of M numbers over a warp. A lane gets count of the sums in x[0] and on: those of
// number first and on. Each step gives half of the numbers to the lanes D away: at most M + 5
// exchanges, instead of 5*M for one sum at a time. The order of a sum does not change.
template <int M, int D, class A>
INLINE void fold(A *x, int &first, int &count) {
  if constexpr (D > 0) {
    constexpr int half = (M + 1) / 2;
    const bool high = (threadIdx.x & D) != 0;
#pragma unroll
    for (int j = 0; j < half; j++) {
      const A above = j + half < M ? x[j + half] : (A)0;
      x[j] = (high ? above : x[j]) + __shfl_xor_sync(0xffffffffu, high ? x[j] : above, D);
    }
    first += high ? half : 0;
    count = !high ? (count < half ? count : half) : count < half ? 0 : count - half;
    fold<half, D / 2>(x, first, count);
  }
}

// thinGradFilter keeps all elements of P::Slice filters in each thread, as sums over its pixels,
// P::Down of a column at once. A block adds those of its threads. P::Splits blocks share the
// pixels, and the last adds theirs.
template <class P, class T, class D, class U>
INLINE void thinGradFilter(const T *x, const D *dy, U *df, typename P::A *part, u32 *counts) {
  typedef typename P::A A;
  typedef typename P::I I;
  constexpr int taps = P::C * P::R * P::S, all = P::Slice * taps, warps = P::Threads / 32, high = P::OutH / P::Down;
  __shared__ A sums[warps][all];
  const int slice = blockIdx.x % P::Slices, split = blockIdx.x / P::Slices, k0 = slice * P::Slice;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  A sum[all] = {};
  for (I i = (I)split * P::Threads + threadIdx.x; i < (I)P::Count; i += (I)P::Splits * P::Threads) {
    const int ow = i % P::OutW, oh = i / P::OutW % high * P::Down;
    const I n = i / P::OutW / high;
    const D *from = dy + ((n * P::Filters + k0) * P::OutH + oh) * P::OutW + ow;
    A g[P::Slice][P::Down];
#pragma unroll
    for (int k = 0; k < P::Slice; k++)
#pragma unroll
      for (int v = 0; v < P::Down; v++)
        g[k][v] = k0 + k < P::Filters ? (A)number(from[(k * P::OutH + v) * P::OutW]) : (A)0;
#pragma unroll
    for (int c = 0; c < P::C; c++) {
      A in[P::Tall][P::Broad];
      thinWindow<P>(in, x + (n * P::C + c) * (P::H * P::W), oh * P::StrideH - P::PadH, ow * P::StrideW - P::PadW);
#pragma unroll
      for (int k = 0; k < P::Slice; k++)
#pragma unroll
        for (int e = 0; e < P::R * P::S; e++)
#pragma unroll
          for (int v = 0; v < P::Down; v++)
            sum[k * taps + c * P::R * P::S + e] += g[k][v] * in[v * P::StrideH + e / P::S * P::DilationH][e % P::S * P::DilationW];
    }
  }
  int first = 0, count = all;
  fold<all, 16>(sum, first, count);
#pragma unroll
  for (int j = 0; j < (all + 31) / 32; j++)
    if (j < count) sums[warp][first + j] = sum[j];
  __syncthreads();
  part += (I)slice * all * P::Splits;
  for (int e = threadIdx.x; e < all; e += P::Threads) {
    A total = 0;
#pragma unroll
    for (int w = 0; w < warps; w++) total += sums[w][e];
    if (P::Splits > 1)
      part[e * P::Splits + split] = total;
    else if (k0 * taps + e < P::Filters * taps)
      put(df[k0 * taps + e], total);
  }
  if (P::Splits == 1 || !lastOf(counts + slice, P::Splits)) return;
#pragma unroll 4
  for (int e = warp; e < all; e += warps) {
    A total = 0;
#pragma unroll 4
    for (int s = lane; s < P::Splits; s += 32) total += part[e * P::Splits + s];
    total = across<Sum, 32>(total);
    if (lane == 0 && k0 * taps + e < P::Filters * taps) put(df[k0 * taps + e], total);
  }
}
