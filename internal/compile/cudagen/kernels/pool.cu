// Pooling, one thread for each element of the result, except for windows that do not overlap.
// Gradients are gathered: an element visits its windows, so no sum has several threads.

// PoolPlace is the position of an element of the result.
template <class P>
struct PoolPlace {
  typename P::I image; // n*C + c
  int h, w;
  INLINE PoolPlace(typename P::I i, int height, int width) {
    w = i % width;
    h = i / width % height;
    image = i / width / height;
  }
};

template <class P, class T, class U>
INLINE void maxPool(const T *x, U *y) {
  typedef typename P::A A;
  typedef typename P::I I;
  for (I i = (I)blockIdx.x * P::Threads + threadIdx.x; i < (I)P::Count; i += (I)P::Grid * P::Threads) {
    const PoolPlace<P> p(i, P::OutH, P::OutW);
    const T *from = x + p.image * (P::H * P::W);
    A most = Max::none<A>();
#pragma unroll
    for (int r = 0; r < P::R; r++) {
      const int h = p.h * P::StrideH - P::PadH + r * P::DilationH;
#pragma unroll
      for (int s = 0; s < P::S; s++) {
        const int w = p.w * P::StrideW - P::PadW + s * P::DilationW;
        if (h >= 0 && h < P::H && w >= 0 && w < P::W) most = Max::join(most, (A)number(from[h * P::W + w]));
      }
    }
    put(y[i], most);
  }
}

// firstLargest reports whether no earlier element of the window with corner (h0, w0) equals element
// (h, w).
template <class P, class T>
INLINE bool firstLargest(const T *x, int h0, int w0, int h, int w) {
  typedef typename P::A A;
  const A most = number(x[h * P::W + w]);
  for (int r = 0; r < P::R; r++) {
    const int a = h0 + r * P::DilationH;
    if (a < 0 || a >= P::H) continue;
    for (int s = 0; s < P::S; s++) {
      const int b = w0 + s * P::DilationW;
      if (a == h && b == w) return true;
      if (b >= 0 && b < P::W && (A)number(x[a * P::W + b]) == most) return false;
    }
  }
  return true;
}

template <class P, class T, class V, class D, class U>
INLINE void maxPoolGrad(const T *x, const V *y, const D *dy, U *dx) {
  typedef typename P::A A;
  typedef typename P::I I;
  for (I i = (I)blockIdx.x * P::Threads + threadIdx.x; i < (I)P::Count; i += (I)P::Grid * P::Threads) {
    const PoolPlace<P> p(i, P::H, P::W);
    const T *from = x + p.image * (P::H * P::W);
    const I out = p.image * (P::OutH * P::OutW);
    const A own = number(x[i]);
    A sum = 0;
#pragma unroll
    for (int r = P::R - 1; r >= 0; r--) {
      const int a = p.h + P::PadH - r * P::DilationH, oh = a / P::StrideH;
      if (a < 0 || a % P::StrideH != 0 || oh >= P::OutH) continue;
#pragma unroll
      for (int s = P::S - 1; s >= 0; s--) {
        const int b = p.w + P::PadW - s * P::DilationW, ow = b / P::StrideW;
        if (b < 0 || b % P::StrideW != 0 || ow >= P::OutW) continue;
        const I o = out + oh * P::OutW + ow;
        if ((A)number(y[o]) == own &&
            firstLargest<P>(from, oh * P::StrideH - P::PadH, ow * P::StrideW - P::PadW, p.h, p.w))
          sum += (A)number(dy[o]);
      }
    }
    put(dx[i], sum);
  }
}

// Windows that do not overlap: each element is in at most one, so a thread has P::Beside adjacent
// windows and accesses their elements once, in vectors of a row with P::Vector. There is no padding
// and no dilation.

// readRow loads COUNT neighbouring elements as numbers.
template <class P, int COUNT, class T>
INLINE void readRow(typename P::A *to, const T *from) {
  if constexpr (P::Vector) {
    const Vec<T, COUNT> v = load<COUNT>(from);
#pragma unroll
    for (int j = 0; j < COUNT; j++) to[j] = number(v.x[j]);
  } else {
#pragma unroll
    for (int j = 0; j < COUNT; j++) to[j] = number(from[j]);
  }
}

// writeRow stores COUNT neighbouring elements.
template <class P, int COUNT, class U>
INLINE void writeRow(U *to, const typename P::A *from) {
  if constexpr (P::Vector) {
    Vec<U, COUNT> v;
#pragma unroll
    for (int j = 0; j < COUNT; j++) put(v.x[j], from[j]);
    store<COUNT>(to, v);
  } else {
#pragma unroll
    for (int j = 0; j < COUNT; j++) put(to[j], from[j]);
  }
}

template <class P, class T, class U>
INLINE void maxPoolApart(const T *x, U *y) {
  typedef typename P::A A;
  typedef typename P::I I;
  constexpr int columns = P::Beside * P::S;
  const I i = (I)blockIdx.x * P::Threads + threadIdx.x;
  if (i >= (I)P::Count) return;
  const PoolPlace<P> p(i, P::OutH, P::OutW / P::Beside);
  const T *from = x + (p.image * P::H + p.h * P::R) * P::W + p.w * columns;
  A most[P::Beside], row[columns];
#pragma unroll
  for (int j = 0; j < P::Beside; j++) most[j] = Max::none<A>();
#pragma unroll
  for (int r = 0; r < P::R; r++) {
    readRow<P, columns>(row, from + r * P::W);
#pragma unroll
    for (int j = 0; j < columns; j++) most[j / P::S] = Max::join(most[j / P::S], row[j]);
  }
  writeRow<P, P::Beside>(y + i * P::Beside, most);
}

// maxPoolGradApart computes y, the largest element of the window, instead of reading it. A NaN
// equals no element. Elements after the last window get zeros.
template <class P, class T, class D, class U>
INLINE void maxPoolGradApart(const T *x, const D *dy, U *dx) {
  typedef typename P::A A;
  typedef typename P::I I;
  constexpr int columns = P::Beside * P::S, down = (P::H + P::R - 1) / P::R, wide = (P::W + columns - 1) / columns;
  constexpr bool whole = P::OutH == down && P::OutW == wide * P::Beside;
  const I i = (I)blockIdx.x * P::Threads + threadIdx.x;
  if (i >= (I)P::Count) return;
  const PoolPlace<P> p(i, down, wide);
  const I at = (p.image * P::H + p.h * P::R) * P::W + p.w * columns;
  if (!whole && (p.h >= P::OutH || p.w * P::Beside >= P::OutW)) {
    for (int r = 0; r < P::R && p.h * P::R + r < P::H; r++)
      for (int j = 0; j < columns && p.w * columns + j < P::W; j++) put(dx[at + r * P::W + j], (A)0);
    return;
  }
  A own[P::R][columns], most[P::Beside], gives[P::Beside];
  readRow<P, P::Beside>(gives, dy + (p.image * P::OutH + p.h) * P::OutW + p.w * P::Beside);
#pragma unroll
  for (int r = 0; r < P::R; r++) readRow<P, columns>(own[r], x + at + r * P::W);
#pragma unroll
  for (int j = 0; j < P::Beside; j++) most[j] = Max::none<A>();
#pragma unroll
  for (int r = 0; r < P::R; r++)
#pragma unroll
    for (int j = 0; j < columns; j++) most[j / P::S] = Max::join(most[j / P::S], own[r][j]);
#pragma unroll
  for (int r = 0; r < P::R; r++) {
#pragma unroll
    for (int j = 0; j < columns; j++) {
      const bool first = own[r][j] == most[j / P::S];
      own[r][j] = first ? gives[j / P::S] : (A)0;
      if (first) gives[j / P::S] = 0;
    }
    writeRow<P, columns>(dx + at + r * P::W, own[r]);
  }
}

template <class P, class T, class U>
INLINE void avgPool(const T *x, U *y) {
  typedef typename P::A A;
  typedef typename P::I I;
  for (I i = (I)blockIdx.x * P::Threads + threadIdx.x; i < (I)P::Count; i += (I)P::Grid * P::Threads) {
    const PoolPlace<P> p(i, P::OutH, P::OutW);
    const T *from = x + p.image * (P::H * P::W);
    A sum = 0;
#pragma unroll
    for (int r = 0; r < P::R; r++) {
      const int h = p.h * P::StrideH - P::PadH + r * P::DilationH;
#pragma unroll
      for (int s = 0; s < P::S; s++) {
        const int w = p.w * P::StrideW - P::PadW + s * P::DilationW;
        if (h >= 0 && h < P::H && w >= 0 && w < P::W) sum += (A)number(from[h * P::W + w]);
      }
    }
    put(y[i], sum / (A)(P::R * P::S));
  }
}

template <class P, class D, class U>
INLINE void avgPoolGrad(const D *dy, U *dx) {
  typedef typename P::A A;
  typedef typename P::I I;
  for (I i = (I)blockIdx.x * P::Threads + threadIdx.x; i < (I)P::Count; i += (I)P::Grid * P::Threads) {
    const PoolPlace<P> p(i, P::H, P::W);
    const D *from = dy + p.image * (P::OutH * P::OutW);
    A sum = 0;
#pragma unroll
    for (int r = P::R - 1; r >= 0; r--) {
      const int a = p.h + P::PadH - r * P::DilationH, oh = a / P::StrideH;
      if (a < 0 || a % P::StrideH != 0 || oh >= P::OutH) continue;
#pragma unroll
      for (int s = P::S - 1; s >= 0; s--) {
        const int b = p.w + P::PadW - s * P::DilationW, ow = b / P::StrideW;
        if (b < 0 || b % P::StrideW != 0 || ow >= P::OutW) continue;
        sum += (A)number(from[oh * P::OutW + ow]);
      }
    }
    put(dx[i], sum / (A)(P::R * P::S));
  }
}
