package blas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas"
)

// outcome returns the panic of a call, or "".
func outcome(call func()) (panicked string) {
	defer func() {
		if r := recover(); r != nil {
			panicked = fmt.Sprintf("%T %v", r, r)
		}
	}()
	call()
	return ""
}

// mistaken is arguments most of which are wrong in some way, the rest being right. Whole numbers,
// so that right results are equal to the bit.
type mistaken[T real] struct{ r *rand.Rand }

func (a mistaken[T]) dim() int  { return a.r.IntN(6) - 1 }
func (a mistaken[T]) lead() int { return a.r.IntN(8) - 1 }
func (a mistaken[T]) inc() int  { return a.r.IntN(4) }
func (a mistaken[T]) scalar() T { return T(a.r.IntN(4) - 1) }
func (a mistaken[T]) trans() blas.Transpose {
	return []blas.Transpose{'N', 'T', 'C', 'N', 'T', 'X'}[a.r.IntN(6)]
}

func (a mistaken[T]) slice() []T {
	s := make([]T, a.r.IntN(30))
	for i := range s {
		s[i] = T(a.r.IntN(9) - 4)
	}
	return s
}

// upTo returns a contiguous y up to its last element. A gemv may not touch the rest; gonum's Sgemv
// does (TestGonumSgemvStillNeedsHelp).
func upTo[T real](y []T, tA blas.Transpose, m, n, incY int) []T {
	length := n
	if tA == blas.NoTrans {
		length = m
	}
	if incY != 1 || length < 0 {
		return y
	}
	return y[:min(len(y), length)]
}

// checkContract compares thousands of calls with gonum's: the same panic, or the same result.
func checkContract[T real](t *testing.T, got, want level[T], seed uint64) {
	t.Helper()
	a := mistaken[T]{rand.New(rand.NewPCG(seed, seed))}
	panics, results := map[string]int{}, map[string]int{}
	compare := func(name, args string, call func(l level[T], out []T), out []T) {
		t.Helper()
		o1, o2 := slices.Clone(out), slices.Clone(out)
		p1, p2 := outcome(func() { call(got, o1) }), outcome(func() { call(want, o2) })
		if p1 != p2 || !slices.Equal(o1, o2) {
			t.Fatalf("%s%s:\n%q, %v\ngonum: %q, %v", name, args, p1, o1, p2, o2)
		}
		if p1 != "" {
			panics[name]++
		} else {
			results[name]++
		}
	}
	for range 20000 {
		tA, tB, m, n, k := a.trans(), a.trans(), a.dim(), a.dim(), a.dim()
		alpha, beta := a.scalar(), a.scalar()
		lda, ldb, ldc, incX, incY := a.lead(), a.lead(), a.lead(), a.inc(), a.inc()
		x, y, z := a.slice(), a.slice(), a.slice()
		args := fmt.Sprintf("(%c %c m %d n %d k %d alpha %v beta %v ld %d %d %d inc %d %d len %d %d %d)",
			tA, tB, m, n, k, alpha, beta, lda, ldb, ldc, incX, incY, len(x), len(y), len(z))
		compare("gemm", args, func(l level[T], out []T) { l.gemm(tA, tB, m, n, k, alpha, x, lda, y, ldb, beta, out, ldc) }, z)
		compare("gemv", args, func(l level[T], out []T) {
			l.gemv(tA, m, n, alpha, x, lda, y, incX, beta, upTo(out, tA, m, n, incY), incY)
		}, z)
		compare("ger", args, func(l level[T], out []T) { l.ger(m, n, alpha, x, incX, y, incY, out, lda) }, z)
		compare("axpy", args, func(l level[T], out []T) { l.axpy(m, alpha, x, incX, out, incY) }, z)
		compare("scal", args, func(l level[T], out []T) { l.scal(m, alpha, out, incX) }, z)
		compare("dot", args, func(l level[T], _ []T) { l.dot(m, x, incX, y, incY) }, nil)
		if p1, p2 := outcome(func() { got.dot(m, x, incX, y, incY) }), outcome(func() { want.dot(m, x, incX, y, incY) }); p1 == "" && p2 == "" {
			if d, e := got.dot(m, x, incX, y, incY), want.dot(m, x, incX, y, incY); d != e {
				t.Fatalf("dot%s = %v, gonum %v", args, d, e)
			}
		}
	}
	for _, name := range []string{"gemm", "gemv", "ger", "axpy", "scal", "dot"} {
		if panics[name] < 1000 || results[name] < 300 {
			t.Errorf("%s: %d panics and %d results: the arguments do not cover both", name, panics[name], results[name])
		}
	}
}

func TestBadArgumentsPanicAsGonumDoes(t *testing.T) {
	eachLibrary(t, 1, func(t *testing.T, impl *Implementation) {
		checkContract(t, single(impl), single(impl.Implementation), 1)
		checkContract(t, double(impl), double(impl.Implementation), 2)
	})
}

func TestNegativeIncrementsPanicAsGonumDoes(t *testing.T) {
	impl := mustOpen(t, Config{Disable: true})
	x, a := make([]float64, 3), make([]float64, 9)
	tests := []struct {
		name string
		call func(b both)
	}{
		{"ger short x", func(b both) { b.Dger(4, 3, 1, x, -1, x, 1, a, 3) }},
		{"ger short y", func(b both) { b.Dger(3, 3, 1, x, 1, x, -2, a, 3) }},
		{"ger short a", func(b both) { b.Dger(3, 3, 1, x, -1, x, -1, a[:8], 3) }},
		{"ger lda", func(b both) { b.Dger(3, 3, 1, x, -1, x, 1, a, 2) }},
		{"ger zero inc", func(b both) { b.Dger(3, 3, 1, x, -1, x, 0, a, 3) }},
		{"ger m", func(b both) { b.Dger(-1, 3, 1, x, -1, x, 1, a, 3) }},
		{"gemv short x", func(b both) { b.Dgemv(blas.NoTrans, 3, 3, 1, a, 3, x, -2, 1, x, 1) }},
		{"axpy short y", func(b both) { b.Daxpy(3, 1, x, 1, x, -2) }},
		{"dot short x", func(b both) { b.Ddot(3, x, -2, x, 1) }},
	}
	for _, tt := range tests {
		got, want := outcome(func() { tt.call(impl) }), outcome(func() { tt.call(impl.Implementation) })
		if got != want || want == "" {
			t.Errorf("%s: %q, gonum %q", tt.name, got, want)
		}
	}
	before := slices.Clone(a)
	impl.Dger(0, 3, 1, nil, -1, x, 1, nil, 3)
	impl.Dger(3, 0, 1, x, -1, nil, -1, nil, 1)
	if !slices.Equal(a, before) {
		t.Error("an empty ger wrote something")
	}
}

// Which calls are foreign is not visible from outside, so it is asked here.
func TestTheLibraryTakesWhatItDoesRight(t *testing.T) {
	impl := takeAll(mustOpen(t, Config{Path: fake(t, "libfake.so")}))
	r := &impl.single
	v := make([]float32, 9)
	gemm := func(tA blas.Transpose, m, n, k int, alpha float32, ld int) bool {
		return r.gemm(tA, blas.Trans, m, n, k, alpha, v, ld, v, ld, 0, v, ld)
	}
	gemv := func(m, n, lda, incX, incY int) bool {
		return r.gemv(blas.ConjTrans, m, n, 1, v, lda, v, incX, 0, v, incY)
	}
	ger := func(m, n, lda, incX, incY int) bool { return r.ger(m, n, 1, v, incX, v, incY, v, lda) }
	axpy := func(n int, alpha float32, incX, incY int) bool { return r.axpy(n, alpha, v, incX, v, incY) }
	scal := func(n int, alpha float32, inc int) bool { return r.scal(n, alpha, v, inc) }
	dot := func(n, incX, incY int) bool { _, ok := r.dot(n, v, incX, v, incY); return ok }
	const huge = math.MaxInt32 + 1
	tests := []struct {
		name       string
		took, want bool
	}{
		{"gemm", gemm(blas.NoTrans, 3, 3, 3, 1, 3), true},
		{"gemm conjugate", gemm(blas.ConjTrans, 2, 3, 3, 1, 3), true},
		{"gemm empty m", gemm(blas.NoTrans, 0, 3, 3, 1, 3), false},
		{"gemm empty k", gemm(blas.NoTrans, 3, 3, 0, 1, 3), false},
		{"gemm alpha 0", gemm(blas.NoTrans, 3, 3, 3, 0, 3), false},
		{"gemm one row of a long stride", gemm(blas.NoTrans, 1, 1, 1, 1, huge), false},
		{"gemm wide", gemm(blas.NoTrans, 3, huge, 3, 1, 3), false},
		{"gemv", gemv(3, 2, 3, 2, 3), true},
		{"gemv backward", gemv(3, 3, 3, -1, 1), false},
		{"gemv one row of a long stride", gemv(1, 1, huge, 1, 1), false},
		{"ger", ger(3, 2, 3, 2, 3), true},
		{"ger backward", ger(3, 3, 3, 1, -1), false},
		{"axpy", axpy(3, 1, 2, 4), true},
		{"axpy alpha 0", axpy(3, 0, 1, 1), false},
		{"axpy backward", axpy(3, 1, -1, 1), false},
		{"axpy one element of a long stride", axpy(1, 1, huge, 1), false},
		{"scal", scal(3, 2, 4), true},
		{"scal alpha 0", scal(3, 0, 1), false},
		{"scal backward", scal(3, 1, -1), false},
		{"dot", dot(3, 2, 4), true},
		{"dot backward", dot(3, 1, -1), false},
		{"dot too long", dot(10, 1, 1), false},
	}
	for _, tt := range tests {
		if tt.took != tt.want {
			t.Errorf("%s: the library took it: %t, want %t", tt.name, tt.took, tt.want)
		}
	}
}

func TestThresholdsDivideTheWork(t *testing.T) {
	impl := mustOpen(t, Config{Path: fake(t, "libfake.so")})
	r, least := &impl.single, thresholds{gemm: 27, gemv: 9, ger: 9, axpy: 3, scal: 3, dot: 3}
	r.least = least
	v := make([]float32, 9)
	for n, want := range map[int]bool{2: false, 3: true} {
		_, dot := r.dot(n, v, 1, v, 1)
		took := []bool{
			r.gemm(blas.NoTrans, blas.NoTrans, 3, 3, n, 1, v, 3, v, 3, 0, v, 3),
			r.gemv(blas.NoTrans, 3, n, 1, v, 3, v, 1, 0, v, 1),
			r.ger(n, 3, 1, v, 1, v, 1, v, 3),
			r.axpy(n, 1, v, 1, v, 1),
			r.scal(n, 1, v, 1),
			dot,
		}
		for i, name := range []string{"gemm", "gemv", "ger", "axpy", "scal", "dot"} {
			if took[i] != want {
				t.Errorf("%s of %d: the library took it: %t, want %t", name, n, took[i], want)
			}
		}
	}
	for _, name := range []string{"openblas", "blis", "mkl", "blas"} {
		s, d := measuredThresholds(name)
		if s.gemm <= 0 || d.gemm <= 0 || s.gemm > 1<<20 || d.gemm > 1<<20 {
			t.Errorf("%s: thresholds %+v, %+v: a product of 128³ has to go to the library", name, s, d)
		}
	}
}

// C and y may hold anything, memory that was never written included, when beta is zero.
func TestBetaZeroNeverReadsTheOutput(t *testing.T) {
	nan := math.NaN()
	eachLibrary(t, 1, func(t *testing.T, impl *Implementation) {
		for _, n := range []int{3, 40, 150} {
			a, x := make([]float64, n*n), make([]float64, n)
			c, y := slices.Repeat([]float64{nan}, n*n), slices.Repeat([]float64{nan}, n)
			for i := range n {
				a[i*n+i], x[i] = 2, float64(i)
			}
			impl.Dgemm(blas.NoTrans, blas.Trans, n, n, n, 1, a, n, a, n, 0, c, n)
			impl.Dgemv(blas.NoTrans, n, n, 1, a, n, x, 1, 0, y, 1)
			for i := range n {
				if c[i*n+i] != 4 || y[i] != 2*float64(i) || c[(i*n+n+n-1)%(n*n)] != c[(i*n+n+n-1)%(n*n)] {
					t.Fatalf("n %d: C[%d,%d] = %v, y[%d] = %v", n, i, i, c[i*n+i], i, y[i])
				}
			}
			if i := slices.IndexFunc(c, math.IsNaN); i >= 0 {
				t.Fatalf("n %d: C has a NaN at %d", n, i)
			}
		}
	})
}
