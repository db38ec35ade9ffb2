// im2col copies each window to a row, and col2im adds rows back. One thread makes each result, so
// sums have a fixed order.

template <class P, class T, class U>
INLINE void im2col(const T *x, U *rows) {
  typedef typename P::I I;
  for (I i = (I)blockIdx.x * P::Threads + threadIdx.x; i < (I)P::Count; i += (I)P::Grid * P::Threads) {
    const I pixel = i / (P::C * P::R * P::S);
    const int e = i % (P::C * P::R * P::S), s = e % P::S, r = e / P::S % P::R, c = e / (P::R * P::S);
    const int ow = pixel % P::OutW, oh = pixel / P::OutW % P::OutH;
    const I n = pixel / (P::OutW * P::OutH);
    const int h = oh * P::StrideH - P::PadH + r * P::DilationH, w = ow * P::StrideW - P::PadW + s * P::DilationW;
    const bool in = h >= 0 && h < P::H && w >= 0 && w < P::W;
    typename P::A a = 0;
    if (in) a = number(x[((n * P::C + c) * P::H + h) * P::W + w]);
    put(rows[i], a);
  }
}

template <class P, class T, class U>
INLINE void col2im(const T *rows, U *x) {
  typedef typename P::A A;
  typedef typename P::I I;
  for (I i = (I)blockIdx.x * P::Threads + threadIdx.x; i < (I)P::Count; i += (I)P::Grid * P::Threads) {
    const int w = i % P::W, h = i / P::W % P::H, c = i / (P::W * P::H) % P::C;
    const I n = i / (P::W * P::H) / P::C;
    A sum = 0;
    for (int r = P::R - 1; r >= 0; r--) {
      const int a = h + P::PadH - r * P::DilationH, oh = a / P::StrideH;
      if (a < 0 || a % P::StrideH != 0 || oh >= P::OutH) continue;
      for (int s = P::S - 1; s >= 0; s--) {
        const int b = w + P::PadW - s * P::DilationW, ow = b / P::StrideW;
        if (b < 0 || b % P::StrideW != 0 || ow >= P::OutW) continue;
        sum += (A)number(rows[((n * P::OutH + oh) * P::OutW + ow) * (P::C * P::R * P::S) + (c * P::R + r) * P::S + s]);
      }
    }
    put(x[i], sum);
  }
}
