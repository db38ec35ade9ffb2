// Attention and its gradient on tensor cores, without the matrix of scores in memory. A block has
// some queries or keys of a head and scans all of the others in tiles. It fetches the next tile
// meanwhile. Operands are bf16, sums f32; softmax probabilities are rounded to bf16 for their
// products. Tiles whose bias is -inf everywhere are skipped. Every sum has a fixed order.
//
// A warp has 16 rows. For every 8 columns of a tile of sums, thread t has the elements (t/4,
// t%4*2), the one to the right of it, and both of them 8 rows below; see PTX ISA, "Matrix Fragments
// for mma.m16n8k16".
//
// Source: T. Dao, FlashAttention-2, 2023 (order of loops, rescaling of sums at a larger score).

// statTile is the edge of the tiles whose range of bias is known.
static constexpr int statTile = 64;

static constexpr float log2e = 1.4426950408889634f;

INLINE float power2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

INLINE float minusInf() { return __uint_as_float(0xff800000u); }

// pair packs two numbers as bf16, the first one lowest.
INLINE u32 pair(float a, float b) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
  return r;
}

INLINE void putPair(bf16 *to, float a, float b) { *reinterpret_cast<u32 *>(to) = pair(a, b); }
INLINE void putPair(float *to, float a, float b) {
  Vec<float, 2> v;
  v.x[0] = a;
  v.x[1] = b;
  store(to, v);
}

// sharedAt returns an address in shared memory as its instructions take it.
INLINE u32 sharedAt(const void *p) {
  u32 at;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(at) : "l"(p));
  return at;
}

// piece returns the address of 8 numbers of a row of a tile of D columns, from column 8*c on.
// Pieces of 8 rows are in different banks.
template <int D>
INLINE u32 piece(u32 tile, int row, int c) {
  return tile + (u32)(row * D * 2 + (c ^ (D == 32 ? row >> 1 & 3 : row & 7)) * 16);
}

// fetch starts the copy of ROWS rows of D numbers into a tile; all threads of the block take part.
template <int ROWS, int D, int THREADS, class I>
INLINE void fetch(u32 tile, const bf16 *from, I stride) {
#pragma unroll
  for (int n = threadIdx.x; n < ROWS * D / 8; n += THREADS) {
    const int row = n / (D / 8), c = n % (D / 8);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(piece<D>(tile, row, c)), "l"(from + row * stride + c * 8) : "memory");
  }
}

INLINE void fetched() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// arrived waits for all fetches of all threads except the newest LATER groups.
template <int LATER>
INLINE void arrived() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
  __syncthreads();
}

// left loads 16 rows and 16 columns, the k-th, of a tile as a left operand.
template <int D>
INLINE void left(u32 *a, u32 tile, int row, int k) {
  const int lane = threadIdx.x % 32;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(piece<D>(tile, row + lane % 16, 2 * k + lane / 16)));
}

// right loads 16 rows and 16 columns, the k-th, of a tile, transposed: two right operands for 8
// columns of the product each.
template <int D>
INLINE void right(u32 *b, u32 tile, int row, int k) {
  const int lane = threadIdx.x % 32;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(piece<D>(tile, row + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2)));
}

// below loads 16 rows and 16 columns, the n-th, of a tile as stored: two right operands for 8
// columns of the product each.
template <int D>
INLINE void below(u32 *b, u32 tile, int row, int n) {
  const int lane = threadIdx.x % 32;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(piece<D>(tile, row + lane % 16, 2 * n + lane / 16)));
}

// multiply adds a product of 16 by 16 by 8 to c.
INLINE void multiply(float *c, const u32 *a, const u32 *b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// rounded rounds sums of 16 rows and 16 columns, the k-th, to a left operand.
INLINE void rounded(u32 *a, const float (*c)[4], int k) {
  a[0] = pair(c[2 * k][0], c[2 * k][1]);
  a[1] = pair(c[2 * k][2], c[2 * k][3]);
  a[2] = pair(c[2 * k + 1][0], c[2 * k + 1][1]);
  a[3] = pair(c[2 * k + 1][2], c[2 * k + 1][3]);
}

// scores adds to s the products of 16 rows, whose left operands are a, with COLS rows of a tile.
template <int COLS, int D>
INLINE void scores(float (*s)[4], const u32 (*a)[4], u32 tile) {
#pragma unroll
  for (int k = 0; k < D / 16; k++)
#pragma unroll
    for (int j = 0; j < COLS / 16; j++) {
      u32 b[4];
      right<D>(b, tile, j * 16, k);
      multiply(s[2 * j], a[k], b);
      multiply(s[2 * j + 1], a[k], b + 2);
    }
}

// scoresOf is scores for 16 rows of a tile, from row on.
template <int COLS, int D>
INLINE void scoresOf(float (*s)[4], u32 rows, int row, u32 tile) {
#pragma unroll
  for (int k = 0; k < D / 16; k++) {
    u32 a[4];
    left<D>(a, rows, row, k);
#pragma unroll
    for (int j = 0; j < COLS / 16; j++) {
      u32 b[4];
      right<D>(b, tile, j * 16, k);
      multiply(s[2 * j], a, b);
      multiply(s[2 * j + 1], a, b + 2);
    }
  }
}

// weigh adds to o the products of 16 rows of COLS sums with a tile of COLS rows.
template <int COLS, int D>
INLINE void weigh(float (*o)[4], const float (*s)[4], u32 tile) {
#pragma unroll
  for (int k = 0; k < COLS / 16; k++) {
    u32 a[4];
    rounded(a, s, k);
#pragma unroll
    for (int n = 0; n < D / 16; n++) {
      u32 b[4];
      below<D>(b, tile, k * 16, n);
      multiply(o[2 * n], a, b);
      multiply(o[2 * n + 1], a, b + 2);
    }
  }
}

// lefts loads the left operands of 16 rows of a tile.
template <int D>
INLINE void lefts(u32 (*a)[4], u32 tile, int row) {
#pragma unroll
  for (int k = 0; k < D / 16; k++) left<D>(a[k], tile, row, k);
}

template <int N>
INLINE void zero(float (*c)[4]) {
#pragma unroll
  for (int j = 0; j < N; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) c[j][e] = 0.0f;
}

// write writes 16 rows of D sums; to is the address of this thread's first ones.
template <int D, class T, class I>
INLINE void writeRows(T *to, I stride, const float (*c)[4], float first, float second) {
#pragma unroll
  for (int j = 0; j < D / 8; j++) {
    putPair(to + j * 8, c[j][0] * first, c[j][1] * first);
    putPair(to + 8 * stride + j * 8, c[j][2] * second, c[j][3] * second);
  }
}

// Place is the head and tile of a block, and the elements of its threads.
template <class S>
struct Place {
  int head, batch, inBatch; // of all heads, of the batch, among the heads of that
  int tile;
  int warp, row, col;

  // Blocks that run at once share S::Group heads, whose tiles stay in the cache. Tiles with most
  // work come first: the last ones if scores of later keys are masked.
  INLINE Place(int tiles, bool lastFirst) {
    const int group = blockIdx.x / (S::Group * tiles), in = blockIdx.x % (S::Group * tiles);
    const int left = S::Batch * S::Heads - group * S::Group, size = left < S::Group ? left : S::Group;
    head = group * S::Group + in % size;
    batch = head / S::Heads;
    inBatch = head % S::Heads;
    tile = in / size;
    if (lastFirst) tile = tiles - 1 - tile;
    warp = threadIdx.x / 32;
    row = warp * 16 + threadIdx.x % 32 / 4;
    col = threadIdx.x % 4 * 2;
  }
};

// addBias adds the bias, divided by the scale, to scores. The bias is -inf or at least
// S::LeastBias. From this thread's first score, that of row i and column j is at[i*stepRow +
// j*stepCol].
template <int COLS, class S, class I>
INLINE void addBias(float (*s)[4], const float *at, I stepRow, I stepCol) {
#pragma unroll
  for (int j = 0; j < COLS / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const float b = at[(I)(e / 2 * 8) * stepRow + (I)(j * 8 + e % 2) * stepCol];
      s[j][e] += (b < (float)S::LeastBias && b != minusInf() ? (float)S::LeastBias : b) * (float)(1 / S::Scale);
    }
}

// attention computes the output of ROWS queries, and the logarithms of their exponential sums.
template <class S, class T>
INLINE void attention(const bf16 *q, const bf16 *k, const bf16 *v, const float *bias, const float *top, const float *far, T *out, float *lse) {
  typedef typename S::I I;
  constexpr int D = S::Depth, ROWS = S::Threads / 2, COLS = S::Step, TILES = S::N / COLS;
  constexpr u32 SIZE = COLS * D * 2;
  constexpr float SCALE = (float)S::Scale * log2e;
  extern __shared__ Vec<u32, 4> tiles[];
  const u32 own = sharedAt(tiles), base = own + ROWS * D * 2;
  const Place<S> p(S::M / ROWS, true);
  const int first = p.tile * ROWS;
  q += p.batch * (I)S::QBatch + p.inBatch * (I)S::QHead + first * (I)S::QRow;
  k += p.batch * (I)S::KBatch + p.inBatch * (I)S::KHead;
  v += p.batch * (I)S::VBatch + p.inBatch * (I)S::VHead;
  const auto stat = [&](int n) { return first / statTile * (S::N / statTile) + n * COLS / statTile; };
  const auto next = [&](int n) {
    while (S::Biased && n < TILES && top[stat(n)] == minusInf()) n++;
    return n;
  };
  const auto begin = [&](int n, int buffer) {
    if (n < TILES) {
      fetch<COLS, D, S::Threads>(base + buffer * 2 * SIZE, k + n * COLS * (I)S::KRow, (I)S::KRow);
      fetch<COLS, D, S::Threads>(base + buffer * 2 * SIZE + SIZE, v + n * COLS * (I)S::VRow, (I)S::VRow);
    }
    fetched();
  };
  fetch<ROWS, D, S::Threads>(own, q, (I)S::QRow);
  fetched();
  int n = next(0), buffer = 0;
  begin(n, 0);
  arrived<1>();
  u32 a[D / 16][4];
  lefts<D>(a, own, p.warp * 16);
  float o[D / 8][4], most[2] = {minusInf(), minusInf()}, sum[2] = {0.0f, 0.0f};
  zero<D / 8>(o);
  while (n < TILES) {
    const int after = next(n + 1);
    begin(after, buffer ^ 1);
    arrived<1>();
    const u32 kt = base + buffer * 2 * SIZE, vt = kt + SIZE;
    float s[COLS / 8][4];
    zero<COLS / 8>(s);
    scores<COLS, D>(s, a, kt);
    if (S::Biased && far[stat(n)] != 0.0f) addBias<COLS, S, I>(s, bias + (I)(first + p.row) * S::N + n * COLS + p.col, S::N, 1);
    float less[2];
    bool grown = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float largest = most[h];
#pragma unroll
      for (int j = 0; j < COLS / 8; j++) largest = fmaxf(largest, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      const float from = largest == minusInf() ? 0.0f : largest * SCALE;
      grown = grown || largest != most[h];
      less[h] = largest == most[h] ? 1.0f : power2(most[h] * SCALE - from); // which would be off by the rounding of from
      most[h] = largest;
      float more = 0.0f;
#pragma unroll
      for (int j = 0; j < COLS / 8; j++)
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; e++) more += s[j][e] = power2(s[j][e] * SCALE - from);
      sum[h] = sum[h] * less[h] + more;
    }
    if (__any_sync(0xffffffffu, grown))
#pragma unroll
      for (int j = 0; j < D / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[j][e] *= less[e / 2];
    weigh<COLS, D>(o, s, vt);
    __syncthreads();
    n = after;
    buffer ^= 1;
  }
  sum[0] = across<Sum, 4>(sum[0]);
  sum[1] = across<Sum, 4>(sum[1]);
  out += p.batch * (I)S::OBatch + p.inBatch * (I)S::OHead + (first + p.row) * (I)S::ORow + p.col;
  writeRows<D>(out, (I)S::ORow, o, 1.0f / sum[0], 1.0f / sum[1]);
  if (S::Keeps && p.col < 4) {
    const int h = p.col / 2;
    lse[(I)p.head * S::M + first + p.row + h * 8] = (h ? most[1] : most[0]) * (float)S::Scale + logf(h ? sum[1] : sum[0]);
  }
}

// attentionGradKeys computes the gradients of ROWS keys and of their values.
template <class S, class T, class U>
INLINE void attentionGradKeys(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *dout, const float *lse, const float *delta,
                              const float *bias, const float *top, const float *far, T *dk, U *dv) {
  typedef typename S::I I;
  constexpr int D = S::Depth, ROWS = S::Threads / 2, COLS = S::Step, TILES = S::M / COLS;
  constexpr u32 OWN = ROWS * D * 2, SIZE = COLS * D * 2;
  constexpr float SCALE = (float)S::Scale * log2e;
  extern __shared__ Vec<u32, 4> tiles[];
  const u32 own = sharedAt(tiles), base = own + 2 * OWN;
  const Place<S> p(S::N / ROWS, false);
  const int first = p.tile * ROWS;
  q += p.batch * (I)S::QBatch + p.inBatch * (I)S::QHead;
  dout += p.batch * (I)S::GBatch + p.inBatch * (I)S::GHead;
  k += p.batch * (I)S::KBatch + p.inBatch * (I)S::KHead + first * (I)S::KRow;
  v += p.batch * (I)S::VBatch + p.inBatch * (I)S::VHead + first * (I)S::VRow;
  lse += (I)p.head * S::M + p.col;
  delta += (I)p.head * S::M + p.col;
  const auto stat = [&](int n) { return n * COLS / statTile * (S::N / statTile) + first / statTile; };
  const auto next = [&](int n) {
    while (S::Biased && n < TILES && top[stat(n)] == minusInf()) n++;
    return n;
  };
  const auto begin = [&](int n, int buffer) {
    if (n < TILES) {
      fetch<COLS, D, S::Threads>(base + buffer * 2 * SIZE, q + n * COLS * (I)S::QRow, (I)S::QRow);
      fetch<COLS, D, S::Threads>(base + buffer * 2 * SIZE + SIZE, dout + n * COLS * (I)S::GRow, (I)S::GRow);
    }
    fetched();
  };
  fetch<ROWS, D, S::Threads>(own, k, (I)S::KRow);
  fetch<ROWS, D, S::Threads>(own + OWN, v, (I)S::VRow);
  int n = next(0), buffer = 0;
  begin(n, 0);
  float sk[D / 8][4], sv[D / 8][4];
  zero<D / 8>(sk);
  zero<D / 8>(sv);
  while (n < TILES) {
    const int after = next(n + 1);
    begin(after, buffer ^ 1);
    arrived<1>();
    const u32 qt = base + buffer * 2 * SIZE, gt = qt + SIZE;
    float s[COLS / 8][4], g[COLS / 8][4];
    zero<COLS / 8>(s);
    zero<COLS / 8>(g);
    scoresOf<COLS, D>(s, own, p.warp * 16, qt); // registers for their operands would be too many
    scoresOf<COLS, D>(g, own + OWN, p.warp * 16, gt);
    if (S::Biased && far[stat(n)] != 0.0f) addBias<COLS, S, I>(s, bias + (I)(n * COLS + p.col) * S::N + first + p.row, 1, S::N);
#pragma unroll
    for (int j = 0; j < COLS / 8; j++) {
      const Vec<float, 2> l = load<2>(lse + n * COLS + j * 8), d = load<2>(delta + n * COLS + j * 8);
#pragma unroll
      for (int e = 0; e < 4; e++) {
        s[j][e] = power2(s[j][e] * SCALE - l.x[e % 2] * log2e);
        g[j][e] = s[j][e] * (g[j][e] - d.x[e % 2]);
      }
    }
    weigh<COLS, D>(sv, s, gt);
    weigh<COLS, D>(sk, g, qt);
    __syncthreads();
    n = after;
    buffer ^= 1;
  }
  dk += p.batch * (I)S::DKBatch + p.inBatch * (I)S::DKHead + (first + p.row) * (I)S::DKRow + p.col;
  dv += p.batch * (I)S::DVBatch + p.inBatch * (I)S::DVHead + (first + p.row) * (I)S::DVRow + p.col;
  writeRows<D>(dk, (I)S::DKRow, sk, (float)S::Scale, (float)S::Scale);
  writeRows<D>(dv, (I)S::DVRow, sv, 1.0f, 1.0f);
}

// attentionGradQueries computes the gradients of ROWS queries.
template <class S, class T>
INLINE void attentionGradQueries(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *dout, const float *lse, const float *delta,
                                 const float *bias, const float *top, const float *far, T *dq) {
  typedef typename S::I I;
  constexpr int D = S::Depth, ROWS = S::Threads / 2, COLS = S::Step, TILES = S::N / COLS;
  constexpr u32 OWN = ROWS * D * 2, SIZE = COLS * D * 2;
  constexpr float SCALE = (float)S::Scale * log2e;
  extern __shared__ Vec<u32, 4> tiles[];
  const u32 own = sharedAt(tiles), base = own + 2 * OWN;
  const Place<S> p(S::M / ROWS, true);
  const int first = p.tile * ROWS;
  q += p.batch * (I)S::QBatch + p.inBatch * (I)S::QHead + first * (I)S::QRow;
  dout += p.batch * (I)S::GBatch + p.inBatch * (I)S::GHead + first * (I)S::GRow;
  k += p.batch * (I)S::KBatch + p.inBatch * (I)S::KHead;
  v += p.batch * (I)S::VBatch + p.inBatch * (I)S::VHead;
  const auto stat = [&](int n) { return first / statTile * (S::N / statTile) + n * COLS / statTile; };
  const auto next = [&](int n) {
    while (S::Biased && n < TILES && top[stat(n)] == minusInf()) n++;
    return n;
  };
  const auto begin = [&](int n, int buffer) {
    if (n < TILES) {
      fetch<COLS, D, S::Threads>(base + buffer * 2 * SIZE, k + n * COLS * (I)S::KRow, (I)S::KRow);
      fetch<COLS, D, S::Threads>(base + buffer * 2 * SIZE + SIZE, v + n * COLS * (I)S::VRow, (I)S::VRow);
    }
    fetched();
  };
  fetch<ROWS, D, S::Threads>(own, q, (I)S::QRow);
  fetch<ROWS, D, S::Threads>(own + OWN, dout, (I)S::GRow);
  fetched();
  int n = next(0), buffer = 0;
  begin(n, 0);
  float l[2], d[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    l[h] = lse[(I)p.head * S::M + first + p.row + h * 8] * log2e;
    d[h] = delta[(I)p.head * S::M + first + p.row + h * 8];
  }
  arrived<1>();
  u32 qa[D / 16][4], ga[D / 16][4];
  lefts<D>(qa, own, p.warp * 16);
  lefts<D>(ga, own + OWN, p.warp * 16);
  float sq[D / 8][4];
  zero<D / 8>(sq);
  while (n < TILES) {
    const int after = next(n + 1);
    begin(after, buffer ^ 1);
    arrived<1>();
    const u32 kt = base + buffer * 2 * SIZE, vt = kt + SIZE;
    float s[COLS / 8][4], g[COLS / 8][4];
    zero<COLS / 8>(s);
    zero<COLS / 8>(g);
    scores<COLS, D>(s, qa, kt);
    scores<COLS, D>(g, ga, vt);
    if (S::Biased && far[stat(n)] != 0.0f) addBias<COLS, S, I>(s, bias + (I)(first + p.row) * S::N + n * COLS + p.col, S::N, 1);
#pragma unroll
    for (int j = 0; j < COLS / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) g[j][e] = power2(s[j][e] * SCALE - l[e / 2]) * (g[j][e] - d[e / 2]);
    weigh<COLS, D>(sq, g, kt);
    __syncthreads();
    n = after;
    buffer ^= 1;
  }
  dq += p.batch * (I)S::DQBatch + p.inBatch * (I)S::DQHead + (first + p.row) * (I)S::DQRow + p.col;
  writeRows<D>(dq, (I)S::DQRow, sq, (float)S::Scale, (float)S::Scale);
}
