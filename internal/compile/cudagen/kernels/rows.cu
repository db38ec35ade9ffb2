// Softmax and cross entropy. Lanes threads have a row. They keep at most Keep numbers each in
// registers, or read them again.

// softmaxOf makes the softmax of a row, or its logarithm, in its lanes' arrays, padded with -inf.
template <int LANES, bool LOG, int N, class A>
INLINE void softmaxOf(A (&x)[N]) {
  A most = Max::none<A>(), sum = 0;
#pragma unroll
  for (int k = 0; k < N; k++) most = Max::join(most, x[k]);
  most = across<Max, LANES>(most);
#pragma unroll
  for (int k = 0; k < N; k++) {
    const A e = opExp(x[k] - most);
    if (!LOG) x[k] = e;
    sum += e;
  }
  sum = across<Sum, LANES>(sum);
  const A last = LOG ? most + opLog(sum) : 1 / sum;
#pragma unroll
  for (int k = 0; k < N; k++) x[k] = LOG ? x[k] - last : x[k] * last;
}

// softmaxGradOf turns x, the gradient of softmaxOf's result y, into that of its input. Missing
// elements are 0.
template <int LANES, bool LOG, int N, class A>
INLINE void softmaxGradOf(const A (&y)[N], A (&x)[N]) {
  A sum = 0;
#pragma unroll
  for (int k = 0; k < N; k++) sum += LOG ? x[k] : x[k] * y[k];
  sum = across<Sum, LANES>(sum);
#pragma unroll
  for (int k = 0; k < N; k++) x[k] = LOG ? x[k] - opExp(y[k]) * sum : y[k] * (x[k] - sum);
}

// softmaxRows works on packed rows of P::Axis elements.
template <class P, class T, class U>
INLINE void softmaxRows(const T *x, U *y) {
  typedef typename P::A A;
  typedef typename P::I I;
  const I row = (I)blockIdx.x * (P::Threads / P::Lanes) + threadIdx.x / P::Lanes;
  const int lane = threadIdx.x % P::Lanes;
  const bool in = row < P::Rows;
  const I at = in ? row * P::Axis : 0;
  if (P::Keep) {
    A kept[P::Keep ? P::Keep : 1];
#pragma unroll
    for (int k = 0; k < P::Keep; k++) {
      const int c = lane + k * P::Lanes;
      kept[k] = c < P::Axis ? (A)number(x[at + c]) : Max::none<A>();
    }
    softmaxOf<P::Lanes, P::Log>(kept);
    if (!in) return;
#pragma unroll
    for (int k = 0; k < P::Keep; k++) {
      const int c = lane + k * P::Lanes;
      if (c < P::Axis) put(y[at + c], kept[k]);
    }
    return;
  }
  A most = Max::none<A>(), sum = 0;
  for (int c = lane; c < P::Axis; c += P::Lanes) most = Max::join(most, (A)number(x[at + c]));
  most = across<Max, P::Lanes>(most);
  for (int c = lane; c < P::Axis; c += P::Lanes) sum += opExp((A)number(x[at + c]) - most);
  sum = across<Sum, P::Lanes>(sum);
  const A last = P::Log ? most + opLog(sum) : 1 / sum;
  if (!in) return;
  for (int c = lane; c < P::Axis; c += P::Lanes) {
    const A a = number(x[at + c]);
    put(y[at + c], P::Log ? a - last : opExp(a - most) * last);
  }
}

// softmaxGradRows works on packed rows of P::Axis elements.
template <class P, class T, class D, class U>
INLINE void softmaxGradRows(const T *y, const D *dy, U *dx) {
  typedef typename P::A A;
  typedef typename P::I I;
  const I row = (I)blockIdx.x * (P::Threads / P::Lanes) + threadIdx.x / P::Lanes;
  const int lane = threadIdx.x % P::Lanes;
  const bool in = row < P::Rows;
  const I at = in ? row * P::Axis : 0;
  A sum = 0;
#pragma unroll 4
  for (int c = lane; c < P::Axis; c += P::Lanes) {
    const A d = number(dy[at + c]);
    sum += P::Log ? d : d * (A)number(y[at + c]);
  }
  sum = across<Sum, P::Lanes>(sum);
  if (!in) return;
#pragma unroll 4
  for (int c = lane; c < P::Axis; c += P::Lanes) {
    const A d = number(dy[at + c]), a = number(y[at + c]);
    put(dx[at + c], P::Log ? d - opExp(a) * sum : a * (d - sum));
  }
}

// softmaxColumns is softmaxRows for rows that are interleaved P::Inner at a time: each thread has a
// row, and neighbours read neighbours.
template <class P, class T, class U>
INLINE void softmaxColumns(const T *x, U *y) {
  typedef typename P::A A;
  typedef typename P::I I;
  const I row = (I)blockIdx.x * P::Threads + threadIdx.x;
  if (row >= P::Rows) return;
  const I at = row / P::Inner * ((I)P::Inner * P::Axis) + row % P::Inner;
  A most = Max::none<A>(), sum = 0;
#pragma unroll 4
  for (int c = 0; c < P::Axis; c++) most = Max::join(most, (A)number(x[at + (I)c * P::Inner]));
#pragma unroll 4
  for (int c = 0; c < P::Axis; c++) sum += opExp((A)number(x[at + (I)c * P::Inner]) - most);
  const A last = P::Log ? most + opLog(sum) : 1 / sum;
#pragma unroll 4
  for (int c = 0; c < P::Axis; c++) {
    const A a = number(x[at + (I)c * P::Inner]);
    put(y[at + (I)c * P::Inner], P::Log ? a - last : opExp(a - most) * last);
  }
}

// softmaxGradColumns is softmaxGradRows for interleaved rows.
template <class P, class T, class D, class U>
INLINE void softmaxGradColumns(const T *y, const D *dy, U *dx) {
  typedef typename P::A A;
  typedef typename P::I I;
  const I row = (I)blockIdx.x * P::Threads + threadIdx.x;
  if (row >= P::Rows) return;
  const I at = row / P::Inner * ((I)P::Inner * P::Axis) + row % P::Inner;
  A sum = 0;
#pragma unroll 4
  for (int c = 0; c < P::Axis; c++) {
    const A d = number(dy[at + (I)c * P::Inner]);
    sum += P::Log ? d : d * (A)number(y[at + (I)c * P::Inner]);
  }
#pragma unroll 4
  for (int c = 0; c < P::Axis; c++) {
    const A d = number(dy[at + (I)c * P::Inner]), a = number(y[at + (I)c * P::Inner]);
    put(dx[at + (I)c * P::Inner], P::Log ? d - opExp(a) * sum : a * (d - sum));
  }
}

// crossRow returns the loss of a row to all its lanes, and writes its gradient with P::Grad.
template <class P, class T, class W, class D>
INLINE typename P::A crossRow(const T *x, const W *target, D *dx, bool in, int lane) {
  typedef typename P::A A;
  A most = Max::none<A>();
#pragma unroll 4
  for (int c = lane; c < P::Axis; c += P::Lanes) most = Max::join(most, (A)number(x[c]));
  most = across<Max, P::Lanes>(most);
  A sum = 0, weight = 0, loss = 0;
#pragma unroll 4
  for (int c = lane; c < P::Axis; c += P::Lanes) {
    const A a = (A)number(x[c]) - most, t = number(target[c]);
    sum += opExp(a);
    weight += t;
    if (t != 0) loss -= t * a; // a weight of 0 hides an x of -inf
  }
  sum = across<Sum, P::Lanes>(sum);
  weight = across<Sum, P::Lanes>(weight);
  loss = across<Sum, P::Lanes>(loss);
  if (P::Grad && in) {
    const A scale = weight / sum;
#pragma unroll 4
    for (int c = lane; c < P::Axis; c += P::Lanes) put(dx[c], opExp((A)number(x[c]) - most) * scale - (A)number(target[c]));
  }
  return loss + weight * opLog(sum);
}

// crossEntropy adds the losses of rows: in each block, and then in the last block.
template <class P, class T, class W, class U, class D>
INLINE void crossEntropy(const T *x, const W *target, U *loss, D *dx, typename P::A *part, u32 *count) {
  typedef typename P::A A;
  typedef typename P::I I;
  const int lane = threadIdx.x % P::Lanes;
  const int width = P::Threads / P::Lanes;
  A sum = 0;
  for (I first = (I)blockIdx.x * width; first < P::Rows; first += (I)P::Blocks * width) {
    const I row = first + threadIdx.x / P::Lanes;
    const bool in = row < P::Rows;
    const I at = in ? row * P::Axis : 0;
    const A one = crossRow<P>(x + at, target + at, dx + at, in, lane);
    if (in && lane == 0) sum += one;
  }
  sum = across<Sum, P::Threads>(sum);
  if (P::Blocks > 1) {
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
    if (!lastOf(count, P::Blocks)) return;
    sum = 0;
    for (int i = threadIdx.x; i < P::Blocks; i += P::Threads) sum += part[i];
    sum = across<Sum, P::Threads>(sum);
  }
  if (threadIdx.x == 0) put(loss[0], sum);
}

// sparseRow returns the loss of a row with a label to all its lanes, and writes its gradient with
// P::Grad, which may be in the memory of x. The row is read once for the loss and once for the
// gradient; each lane keeps a running maximum and the sum of exponentials less it.
template <class P, class T, class D>
INLINE typename P::A sparseRow(const T *x, D *dx, int label, typename P::A weight, bool in, int lane) {
  typedef typename P::A A;
  A most = Max::none<A>(), sum = 0, total = 0;
  const A chosen = (A)number(x[label < 0 ? 0 : label]);
  for (int c = lane * P::Wide; c < P::Axis; c += P::Lanes * P::Wide) {
    const Vec<T, P::Wide> v = load<P::Wide>(x + c);
    A top = most;
#pragma unroll
    for (int k = 0; k < P::Wide; k++) top = Max::join(top, (A)number(v.x[k]));
    if (top == Max::none<A>()) { // only -inf so far
      if (P::Smooth) total = top;
      continue;
    }
    if (top != most) sum = most == Max::none<A>() ? (A)0 : sum * opExp(most - top);
    most = top;
#pragma unroll
    for (int k = 0; k < P::Wide; k++) {
      const A a = (A)number(v.x[k]);
      sum += opExp(a - most);
      if (P::Smooth) total += a;
    }
  }
  const A top = across<Max, P::Lanes>(most);
  sum = across<Sum, P::Lanes>(most == Max::none<A>() ? (A)0 : sum * opExp(most - top));
  if (P::Smooth) total = across<Sum, P::Lanes>(total);
  if (P::Grad && in) {
    const A scale = weight * (A)P::Scale, share = label < 0 ? (A)0 : scale / sum;
    const A less = P::Smooth && label >= 0 ? scale * (A)(P::Smoothing / P::Axis) : (A)0;
    for (int c = lane * P::Wide; c < P::Axis; c += P::Lanes * P::Wide) {
      const Vec<T, P::Wide> v = load<P::Wide>(x + c);
      Vec<D, P::Wide> to;
#pragma unroll
      for (int k = 0; k < P::Wide; k++) {
        A d = label < 0 ? (A)0 : opExp((A)number(v.x[k]) - top) * share - less;
        if (c + k == label) d -= scale * (A)(1 - P::Smoothing);
        put(to.x[k], d);
      }
      store<P::Wide>(dx + c, to);
    }
  }
  if (label < 0) return 0;
  const A lse = top + opLog(sum);
  A loss = (A)(1 - P::Smoothing) * (lse - chosen);
  if (P::Smooth) loss += (A)P::Smoothing * (lse - total / P::Axis);
  return loss;
}

// sparseCrossEntropy adds the losses of rows as crossEntropy does. A label that is no class is a
// fault, and its row does not count.
template <class P, class T, class K, class W, class U, class D>
INLINE void sparseCrossEntropy(const T *x, const K *labels, const W *weight, U *loss, D *dx, typename P::A *part, u32 *count,
                               u64 *words, u64 step) {
  typedef typename P::A A;
  typedef typename P::I I;
  const int lane = threadIdx.x % P::Lanes;
  const int width = P::Threads / P::Lanes;
  const A factor = (A)number(weight[0]);
  A sum = 0;
  for (I first = (I)blockIdx.x * width; first < P::Rows; first += (I)P::Blocks * width) {
    const I row = first + threadIdx.x / P::Lanes;
    const bool in = row < P::Rows;
    const I at = in ? row * P::Axis : 0;
    int label = -1;
    if (in) {
      const s64 is = whole(number(labels[row]));
      if (is >= 0 && is < P::Axis && is != P::Ignore) label = (int)is;
      else if (is != P::Ignore && lane == 0) fault(words, 1, step, (double)number(labels[row]), row);
    }
    const A one = sparseRow<P>(x + at, dx + at, label, factor, in, lane);
    if (in && lane == 0) sum += one;
  }
  sum = across<Sum, P::Threads>(sum);
  if (P::Blocks > 1) {
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
    if (!lastOf(count, P::Blocks)) return;
    sum = 0;
    for (int i = threadIdx.x; i < P::Blocks; i += P::Threads) sum += part[i];
    sum = across<Sum, P::Threads>(sum);
  }
  if (threadIdx.x == 0) put(loss[0], sum * factor);
}
