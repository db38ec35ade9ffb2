// Convolution and its gradients as matrix products that read their operands in place, without
// im2col. Pixels are those of all images, image by image.

// Filters is the filter (K, C, R, S) as a matrix K by C*R*S.
template <class P, class T>
struct Filters {
  const T *p;
  INLINE typename P::A operator()(int, typename P::I k, typename P::I e) const {
    return (typename P::A)number(p[k * (P::C * P::R * P::S) + e]);
  }
};

// Turned is the filter as a matrix C by K*R*S.
template <class P, class T>
struct Turned {
  const T *p;
  INLINE typename P::A operator()(int, typename P::I c, typename P::I e) const {
    return (typename P::A)number(p[(e / (P::R * P::S) * P::C + c) * (P::R * P::S) + e % (P::R * P::S)]);
  }
};

// Windows is x as a matrix C*R*S by pixels of y.
template <class P, class T>
struct Windows {
  const T *p;
  INLINE typename P::A operator()(int, typename P::I e, typename P::I pixel) const {
    typedef typename P::I I;
    const int s = e % P::S, r = e / P::S % P::R, c = e / (P::R * P::S);
    const int ow = pixel % P::OutW, oh = pixel / P::OutW % P::OutH;
    const I n = pixel / (P::OutW * P::OutH);
    const int h = oh * P::StrideH - P::PadH + r * P::DilationH, w = ow * P::StrideW - P::PadW + s * P::DilationW;
    if (h < 0 || h >= P::H || w < 0 || w >= P::W) return 0;
    return (typename P::A)number(p[((n * P::C + c) * P::H + h) * P::W + w]);
  }
};

// WindowsTurned is x as a matrix pixels of y by C*R*S.
template <class P, class T>
struct WindowsTurned {
  Windows<P, T> x;
  INLINE typename P::A operator()(int b, typename P::I pixel, typename P::I e) const { return x(b, e, pixel); }
};

// Reached is dy as a matrix K*R*S by pixels of x: the gradient that reaches a pixel through an
// element of the filter.
template <class P, class T>
struct Reached {
  const T *p;
  INLINE typename P::A operator()(int, typename P::I e, typename P::I pixel) const {
    typedef typename P::I I;
    const int s = e % P::S, r = e / P::S % P::R, k = e / (P::R * P::S);
    const int w = pixel % P::W, h = pixel / P::W % P::H;
    const I n = pixel / (P::W * P::H);
    const int a = h + P::PadH - r * P::DilationH, b = w + P::PadW - s * P::DilationW;
    const int oh = a / P::StrideH, ow = b / P::StrideW;
    if (a < 0 || b < 0 || a % P::StrideH != 0 || b % P::StrideW != 0 || oh >= P::OutH || ow >= P::OutW) return 0;
    return (typename P::A)number(p[((n * P::Filters + k) * P::OutH + oh) * P::OutW + ow]);
  }
};

// Gradients is dy as a matrix K by pixels of y.
template <class P, class T>
struct Gradients {
  const T *p;
  INLINE typename P::A operator()(int, typename P::I k, typename P::I pixel) const {
    constexpr int plane = P::OutH * P::OutW;
    return (typename P::A)number(p[(pixel / plane * P::Filters + k) * plane + pixel % plane]);
  }
};

// SaveImages stores a matrix channels by pixels as images of P::Channels and P::Plane.
template <class P, class T>
struct SaveImages {
  T *p;
  INLINE void operator()(int, typename P::I m, typename P::I pixel, typename P::A x) const {
    put(p[(pixel / P::Plane * P::Channels + m) * P::Plane + pixel % P::Plane], x);
  }
};

// SaveFilters stores a matrix K by C*R*S.
template <class P, class T>
struct SaveFilters {
  T *p;
  INLINE void operator()(int, typename P::I k, typename P::I e, typename P::A x) const {
    put(p[k * (P::C * P::R * P::S) + e], x);
  }
};

template <class P, class T, class V, class U>
INLINE void conv(const T *x, const V *filter, U *y, typename P::A *part, u32 *counts) {
  gemm<P>(Filters<P, V>{filter}, Windows<P, T>{x}, SaveImages<P, U>{y}, part, counts);
}

template <class P, class D, class V, class U>
INLINE void convGradInput(const D *dy, const V *filter, U *dx, typename P::A *part, u32 *counts) {
  gemm<P>(Turned<P, V>{filter}, Reached<P, D>{dy}, SaveImages<P, U>{dx}, part, counts);
}

template <class P, class T, class D, class U>
INLINE void convGradFilter(const T *x, const D *dy, U *df, typename P::A *part, u32 *counts) {
  gemm<P>(Gradients<P, D>{dy}, WindowsTurned<P, T>{{x}}, SaveFilters<P, U>{df}, part, counts);
}
