package cublas

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// byColumns computes cublasGemmStridedBatchedEx by the definition in its manual: element (i, j) of
// a matrix is at i + j*ld.
func byColumns(q *columns, alpha, beta float64, a, b, c []float64) {
	at := func(x []float64, op int32, ld, i, j int, base int64) float64 {
		if op == opT {
			i, j = j, i
		}
		return x[base+int64(i+j*ld)]
	}
	for n := range int64(q.batch) {
		for i := range q.m {
			for j := range q.n {
				sum := 0.0
				for k := range q.k {
					sum += at(a, q.transA, q.lda, i, k, n*q.sa) * at(b, q.transB, q.ldb, k, j, n*q.sb)
				}
				p := &c[n*q.sc+int64(i+j*q.ldc)]
				*p = alpha*sum + beta**p
			}
		}
	}
}

// byRows computes Gemm by its definition.
func byRows(g *Gemm, a, b, c []float64) {
	x, y, z := g.extents()
	at := func(m []float64, e extent, trans bool, n, i, j int) float64 {
		if trans {
			i, j = j, i
		}
		return m[int64(n)*e.stride+int64(i*e.ld+j)]
	}
	for n := range g.batch() {
		for i := range g.M {
			for j := range g.N {
				sum := 0.0
				for k := range g.K {
					sum += at(a, x, g.TransA, n, i, k) * at(b, y, g.TransB, n, k, j)
				}
				p := &c[int64(n)*z.stride+int64(i*z.ld+j)]
				*p = g.Alpha*sum + beta(g, *p)
			}
		}
	}
}

// beta is the part of v that stays: nothing with Beta 0, even if v is NaN.
func beta(g *Gemm, v float64) float64 {
	if g.Beta == 0 {
		return 0
	}
	return g.Beta * v
}

// shapes is Gemms of all transpositions, with and without gaps in rows, and batches, with matrices
// that lie one after another and a B that serves all.
func shapes(d DType) []Gemm {
	var list []Gemm
	for i := range 32 {
		g := Gemm{DType: d, M: 5, N: 3, K: 7, TransA: i&1 != 0, TransB: i&2 != 0, Alpha: 2, Beta: 3}
		if i&4 != 0 {
			a, b, c := g.extents()
			g.LDA, g.LDB, g.LDC = a.cols+2, b.cols+3, c.cols+1
		}
		if i&8 != 0 {
			g.Batch = 3
			a, b, c := g.extents()
			g.StrideA, g.StrideC = int64(a.rows*a.ld+1), int64(c.rows*c.ld+2)
			if i&16 != 0 {
				g.StrideB = int64(b.rows * b.ld)
			}
		} else if i&16 != 0 {
			g.M, g.N, g.K, g.LDA, g.LDB, g.LDC = 1, 4, 1, 0, 0, 0
		}
		list = append(list, g)
	}
	return list
}

// integers is n small integers, of which sums of products are exact in any order.
func integers(r *rand.Rand, n int64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(r.IntN(9) - 4)
	}
	return x
}

func TestProductsInColumnsAreThoseInRows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, g := range shapes(F64) {
		q, err := g.columns()
		if err != nil {
			t.Fatalf("%v: %v", &g, err)
		}
		na, nb, nc := g.Bytes()
		a, b, c := integers(r, na/8), integers(r, nb/8), integers(r, nc/8)
		got, want := append([]float64(nil), c...), append([]float64(nil), c...)
		byRows(&g, a, b, want)
		byColumns(&q, g.Alpha, g.Beta, b, a, got) // the library's A is B
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%v: element %d is %v, want %v", &g, i, got[i], want[i])
			}
		}
	}
}

func TestWordsAreInTheOrderOfTheHeader(t *testing.T) {
	g := Gemm{DType: BF16, Out: F32, M: 5, N: 3, K: 7, TransA: true, LDA: 8, LDB: 9, LDC: 10}
	const h, alpha, beta, a, b, c = 100, 101, 102, 103, 104, 105
	minus1 := ^uintptr(0)
	for batch, want := range map[int][]uintptr{
		// handle, transa, transb, m, n, k, alpha, A type lda, B type ldb, beta, C type ldc,
		// compute, algo
		0: {h, 0, 1, 3, 5, 7, alpha, b, 14, 9, a, 14, 8, beta, c, 0, 10, 68, minus1},
		4: {h, 0, 1, 3, 5, 7, alpha, b, 14, 9, 63, a, 14, 8, 56, beta, c, 0, 10, 50, 4, 68, minus1},
	} {
		g.Batch, g.StrideA, g.StrideB, g.StrideC = batch, 56, 63, 50
		q, err := g.columns()
		if err != nil {
			t.Fatal(err)
		}
		var w [23]uintptr
		n := q.words(&w, h, alpha, beta, a, b, c)
		if n != len(want) {
			t.Fatalf("batch %d: %d words, want %d", batch, n, len(want))
		}
		for i := range want {
			if w[i] != want[i] {
				t.Errorf("batch %d: word %d is %d, want %d", batch, i, w[i], want[i])
			}
		}
	}
}

func TestScalarsAreAsTheLibraryReadsThem(t *testing.T) {
	if got := scalar(0.1, typeF32); got != uint64(math.Float32bits(0.1)) {
		t.Errorf("float: %#x", got)
	}
	if got := scalar(0.1, typeF64); got != math.Float64bits(0.1) {
		t.Errorf("double: %#x", got)
	}
}

func TestGemmsThatCannotBeAreRefused(t *testing.T) {
	good := Gemm{DType: F32, M: 5, N: 3, K: 7}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(g *Gemm)
		why    string
	}{
		"no type":        {func(g *Gemm) { g.DType = 0 }, "unknown element type"},
		"compute":        {func(g *Gemm) { g.DType, g.Compute = F64, TF32 }, "compute tf32 is for elements of f32, not of f64"},
		"M":              {func(g *Gemm) { g.M = 0 }, "at least 1"},
		"N":              {func(g *Gemm) { g.N = -1 }, "at least 1"},
		"K":              {func(g *Gemm) { g.K = 0 }, "at least 1"},
		"batch":          {func(g *Gemm) { g.Batch = -1 }, "at least 1"},
		"too large":      {func(g *Gemm) { g.K = math.MaxInt32 + 1 }, "more than 2147483647"},
		"LDA":            {func(g *Gemm) { g.LDA = 6 }, "A 7 of 6"},
		"LDA transposed": {func(g *Gemm) { g.TransA, g.LDA = true, 4 }, "A 5 of 4"},
		"LDB":            {func(g *Gemm) { g.LDB = 2 }, "B 3 of 2"},
		"LDB transposed": {func(g *Gemm) { g.TransB, g.LDB = true, 6 }, "B 7 of 6"},
		"LDC":            {func(g *Gemm) { g.LDC = 2 }, "C 3 of 2"},
		"negative LD":    {func(g *Gemm) { g.LDC = -3 }, "C 3 of -3"},
		"C shared":       {func(g *Gemm) { g.Batch, g.StrideA, g.StrideB = 2, 35, 21 }, "more than 0 for C"},
		"back":           {func(g *Gemm) { g.Batch, g.StrideA, g.StrideC = 2, -35, 15 }, "no negative ones"},
		"f64 to f32":     {func(g *Gemm) { g.DType, g.Out = F64, F32 }, "C of f32 from elements of f64"},
		"f32 to f16":     {func(g *Gemm) { g.Out = F16 }, "C of f16 from elements of f32"},
	} {
		g := good
		c.change(&g)
		err := g.Validate()
		if !errors.Is(err, cuda.ErrInvalid) || !strings.HasPrefix(err.Error(), "cublas: ") || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: error %v, want ErrInvalid with %q", name, err, c.why)
		}
		if _, other := g.columns(); other == nil || other.Error() != err.Error() {
			t.Errorf("%s: columns says %v", name, other)
		}
	}
}

func TestGemmsSayWhatTheyAre(t *testing.T) {
	g := Gemm{DType: F32, M: 128, N: 512, K: 784, TransB: true}
	if got := g.String(); got != "gemm f32 128x512x784 nt" {
		t.Error(got)
	}
	g = Gemm{DType: BF16, Out: F32, Compute: Pedantic, M: 1, N: 2, K: 3, TransA: true, Batch: 4}
	if got := g.String(); got != "gemm bf16 to f32 pedantic 1x2x3 tn batch 4" {
		t.Error(got)
	}
}

func TestMatricesReachAsFarAsTheirLastElement(t *testing.T) {
	g := Gemm{DType: F16, Out: F32, M: 2, N: 3, K: 5, LDA: 8, Batch: 3, StrideA: 100, StrideC: 6}
	a, b, c := g.Bytes()
	if a != (2*100+8+5)*2 || b != 15*2 || c != (2*6+6)*4 {
		t.Errorf("%d, %d and %d B", a, b, c)
	}
}

// A handle that was closed, or that never was, refuses before it calls anything.
func TestClosedHandlesRefuse(t *testing.T) {
	h := &Handle{}
	g := Gemm{DType: F32, M: 1, N: 1, K: 1, Alpha: 1}
	_, plan := h.NewPlan(PlanDesc{Gemm: g})
	for name, err := range map[string]error{
		"gemm": h.Gemm(&g, 256, 256, 256), "stream": h.SetStream(nil), "workspace": h.SetWorkspace(0, 0), "math": h.SetMathMode(MathTF32),
		"plan": plan,
	} {
		if !errors.Is(err, ErrClosed) || !errors.Is(err, cuda.ErrClosed) {
			t.Errorf("%s: error %v, want ErrClosed", name, err)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if err := h.SetMathMode(99); !errors.Is(err, cuda.ErrInvalid) {
		t.Errorf("error %v, want ErrInvalid", err)
	}
	h.handle = 1
	if err := h.Gemm(&g, 256, 0, 256); !errors.Is(err, cuda.ErrInvalid) || !strings.Contains(err.Error(), "B at 0x0") {
		t.Errorf("error %v, want ErrInvalid that says what is missing", err)
	}
	if err := h.SetWorkspace(100, 1<<20); !errors.Is(err, cuda.ErrInvalid) {
		t.Errorf("error %v, want ErrInvalid", err)
	}
}

func TestWorkspacesAreThoseThatNVIDIARecommends(t *testing.T) {
	for major, want := range map[int]int64{7: 4 << 20, 8: 4 << 20, 9: 32 << 20, 10: 32 << 20} {
		if got := recommended(major); got != want {
			t.Errorf("compute capability %d: %d B, want %d B", major, got, want)
		}
	}
}

// The host's half of a call: the library's is tested where there is one.
func TestArgumentsAllocateNothing(t *testing.T) {
	g := Gemm{DType: F32, M: 5, N: 3, K: 7, Batch: 2, StrideA: 35, StrideC: 15, Alpha: 1}
	d := PlanDesc{Gemm: g, Epilogue: Bias}
	o := Operands{A: 256, B: 512, C: 768, Bias: 1024}
	h := &Handle{}
	var bad error
	allocs := testing.AllocsPerRun(100, func() {
		q, err := g.columns()
		if n := q.words(&h.args, 1, 2, 3, 4, 5, 6); err != nil || n != 23 {
			bad = errors.Join(err, errors.New("wrong number of words"))
		}
		if err := d.fits(o); err != nil {
			bad = err
		}
	})
	if bad != nil || allocs != 0 && !raceEnabled {
		t.Errorf("%v allocations, error %v", allocs, bad)
	}
}
