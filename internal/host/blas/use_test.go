package blas

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
	"gorgonia.org/tensor"
)

var _ tensor.BLAS = (*Implementation)(nil)

func random(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, seed))
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

func TestGoroutinesCallSideBySide(t *testing.T) {
	eachLibrary(t, 2, func(t *testing.T, impl *Implementation) {
		const m, n, k = 33, 65, 129
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				a, b := random(uint64(g), m*k), random(uint64(g)+100, k*n)
				want := make([]float32, m*n)
				impl.Sgemm(blas.NoTrans, blas.NoTrans, m, n, k, 1, a, k, b, n, 0, want, n)
				dot := impl.Sdot(m*k, a, 1, a, 1)
				for round := range 30 {
					c := make([]float32, m*n)
					impl.Sgemm(blas.NoTrans, blas.NoTrans, m, n, k, 1, a, k, b, n, 0, c, n)
					if !slices.Equal(c, want) {
						t.Errorf("goroutine %d round %d: another product", g, round)
						return
					}
					if d := impl.Sdot(m*k, a, 1, a, 1); d != dot {
						t.Errorf("goroutine %d round %d: dot %v, first %v", g, round, d, dot)
						return
					}
					if round%10 == g {
						runtime.GC()
					}
				}
			})
		}
		wg.Wait()
	})
}

// The arrays of the innermost calls start out on a stack that moves as it grows; the callee must
// see them at one place.
func TestOperandsOnTheStack(t *testing.T) {
	eachLibrary(t, 1, func(t *testing.T, impl *Implementation) {
		var deeper func(depth int) float32
		deeper = func(depth int) float32 {
			var a, b, c [16]float32
			for i := range a {
				a[i], b[i] = float32(i), float32(depth)
			}
			if depth > 0 {
				c[0] = deeper(depth - 1)
			}
			impl.Sgemm(blas.NoTrans, blas.NoTrans, 4, 4, 4, 1, a[:], 4, b[:], 4, 1, c[:], 4)
			return c[0]
		}
		done := make(chan float32)
		go func() { done <- deeper(500) }()
		// Each level adds (0+1+2+3) times its depth.
		if got, want := <-done, float32(6*500*501/2); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestResultsRepeatToTheBit(t *testing.T) {
	for _, threads := range []int{1, 2} {
		t.Run(fmt.Sprintf("threads=%d", threads), func(t *testing.T) {
			eachLibrary(t, threads, func(t *testing.T, impl *Implementation) {
				sameAddress := impl.info.Name == "mkl" || impl.info.Outdated()
				repeat(t, single(impl), sameAddress)
				repeat(t, double(impl), sameAddress)
			})
		})
	}
}

// repeat computes the same with operands at other addresses and alignments in each round.
// sameAddress is for a library that gives equal bits only for equal alignments.
func repeat[T real](t *testing.T, l level[T], sameAddress bool) {
	t.Helper()
	const m, n, k, long = 70, 300, 257, 100_000
	elements := func(seed uint64, n int) []T {
		v := make([]T, n)
		for i, x := range random(seed, n) {
			v[i] = T(x)
		}
		return v
	}
	a0, b0, x0 := elements(1, m*k), elements(2, k*n), elements(3, long)
	var first map[string][]T
	for round := range 16 {
		place := func(v []T) []T { return append(make([]T, round, round+len(v)), v...)[round:] }
		a, b, x := place(a0), place(b0), place(x0)
		if sameAddress {
			a, b, x = a0, b0, x0
		}
		c, y, z := place(make([]T, m*n)), place(make([]T, k)), place(x0)
		l.gemm(blas.NoTrans, blas.NoTrans, m, n, k, 1, a, k, b, n, 0, c, n)
		l.gemv(blas.Trans, m, k, 1, a, k, x, 1, 0, y, 1)
		l.axpy(long, 0.3, x, 1, z, 1)
		l.scal(long, 0.7, z, 1)
		result := map[string][]T{"gemm": c, "gemv": y, "axpy and scal": z, "dot": {l.dot(long, x, 1, x, 1)}}
		if round == 0 {
			first = result
		}
		for _, name := range []string{"gemm", "gemv", "axpy and scal", "dot"} {
			if !slices.Equal(result[name], first[name]) {
				t.Errorf("round %d: %s differs from the first round's", round, name)
			}
		}
	}
}

func TestCallsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops a share of what is put back under the race detector")
	}
	perThread := fake(t, "libfake.so", `-DOPENBLAS="OpenBLAS 0.3.21 USE_OPENMP"`, "-DOPENMP", "-DPER_THREAD")
	check := func(t *testing.T, impl *Implementation) {
		const n = 8
		a, b, c := make([]float64, n*n), make([]float64, n*n), make([]float64, n*n)
		calls := map[string]func(){
			"gemm": func() { impl.Dgemm(blas.NoTrans, blas.Trans, n, n, n, 1, a, n, b, n, 0, c, n) },
			"gemv": func() { impl.Dgemv(blas.NoTrans, n, n, 1, a, n, b, 1, 0, c, 1) },
			"ger":  func() { impl.Dger(n, n, 1, a, 1, b, 1, c, n) },
			"axpy": func() { impl.Daxpy(n, 1, a, 1, b, 1) },
			"scal": func() { impl.Dscal(n, 2, a, 1) },
		}
		for name, call := range calls {
			if allocs := testing.AllocsPerRun(200, call); allocs != 0 {
				t.Errorf("%s: %v allocations a call, want 0", name, allocs)
			}
		}
	}
	eachLibrary(t, 1, check)
	t.Run("threads set at each call", func(t *testing.T) {
		check(t, takeAll(mustOpen(t, Config{Path: perThread, Threads: 1})))
	})
}

func TestTensorUsesIt(t *testing.T) {
	impl := mustOpen(t, Config{Path: fake(t, "libfake.so")})
	calls := observe(t, impl.Info().Path).calls
	before := tensor.WhichBLAS()
	tensor.Use(impl)
	defer tensor.Use(before)

	const n = 32
	a := tensor.New(tensor.WithShape(n, n), tensor.WithBacking(random(1, n*n)))
	b := tensor.New(tensor.WithShape(n, n), tensor.WithBacking(random(2, n*n)))
	count := calls()
	got, err := a.MatMul(b)
	if err != nil {
		t.Fatal(err)
	}
	if calls() == count {
		t.Error("the product did not reach the library")
	}
	tensor.Use(gonum.Implementation{})
	want, err := a.MatMul(b)
	if err != nil {
		t.Fatal(err)
	}
	// Both are within (k+3) u of the exact sums of products, none of which is beyond 32 times the
	// largest square.
	const limit = 2.1 * (n + 3) * 0x1p-24 * n * 16
	for i, w := range want.Data().([]float32) {
		if diff := got.Data().([]float32)[i] - w; diff > limit || diff < -limit {
			t.Fatalf("element %d: off by %v, bound %v", i, diff, limit)
		}
	}
}
