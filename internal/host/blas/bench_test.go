package blas

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas"
)

// BenchmarkGemm is the table of the package comment: gonum and the library that Open finds, with
// one thread and with all.
func BenchmarkGemm(b *testing.B) {
	shapes := []struct{ m, k, n int }{{512, 512, 512}, {128, 784, 512}, {32, 64, 32}}
	run := func(b *testing.B, impl *Implementation) {
		for _, s := range shapes {
			b.Run(fmt.Sprintf("%dx%dx%d", s.m, s.k, s.n), func(b *testing.B) {
				x, y, z := random(1, s.m*s.k), random(2, s.k*s.n), make([]float32, s.m*s.n)
				b.ReportAllocs()
				for b.Loop() {
					impl.Sgemm(blas.NoTrans, blas.NoTrans, s.m, s.n, s.k, 1, x, s.k, y, s.n, 0, z, s.n)
				}
				flop := 2 * float64(s.m) * float64(s.n) * float64(s.k) * float64(b.N)
				b.ReportMetric(flop/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
	b.Run("gonum", func(b *testing.B) { run(b, mustOpen(b, Config{Disable: true})) })
	for _, threads := range slices.Compact([]int{1, runtime.NumCPU()}) {
		impl := mustOpen(b, Config{Threads: threads})
		if impl.Info().Name == "gonum" {
			b.Skipf("no library is installed: %q", impl.Info().Rejected)
		}
		b.Run(fmt.Sprintf("%s/threads=%d", impl.Info().Name, threads), func(b *testing.B) { run(b, impl) })
	}
}

// BenchmarkThresholds is where measuredThresholds has its numbers from: each routine around the
// size from which the library takes it, with one thread.
func BenchmarkThresholds(b *testing.B) {
	for _, s := range known(nil) {
		b.Run(s.Name, func(b *testing.B) {
			impl := takeAll(installedLibrary(b, s, 1))
			b.Run("single", func(b *testing.B) { benchRoutines(b, single(impl), single(impl.Implementation)) })
			b.Run("double", func(b *testing.B) { benchRoutines(b, double(impl), double(impl.Implementation)) })
		})
	}
}

func benchRoutines[T real](b *testing.B, library, gonum level[T]) {
	const tiny = 1e-9 // so that values stay in range however often an update is repeated
	routines := []struct {
		name  string
		sizes []int
		call  func(l level[T], n int, a, x, y []T)
	}{
		{"gemm", []int{4, 8, 16, 32, 128}, func(l level[T], n int, a, x, y []T) {
			l.gemm(blas.NoTrans, blas.NoTrans, n, n, n, 1, a, n, x, n, 0, y, n)
		}},
		{"gemv", []int{32, 128, 1024}, func(l level[T], n int, a, x, y []T) { l.gemv(blas.NoTrans, n, n, 1, a, n, x, 1, 0, y, 1) }},
		{"ger", []int{32, 128, 1024}, func(l level[T], n int, a, x, y []T) { l.ger(n, n, tiny, x, 1, y, 1, a, n) }},
		{"axpy", []int{512, 2048, 65536}, func(l level[T], n int, a, x, y []T) { l.axpy(n, tiny, x, 1, y, 1) }},
		{"scal", []int{512, 2048, 65536}, func(l level[T], n int, a, x, y []T) { l.scal(n, 1+tiny, x, 1) }},
		{"dot", []int{2048, 8192, 65536}, func(l level[T], n int, a, x, y []T) { l.dot(n, x, 1, y, 1) }},
	}
	for _, r := range routines {
		for _, n := range r.sizes {
			elements := n
			if slices.Contains([]string{"gemm", "gemv", "ger"}, r.name) {
				elements = n * n
			}
			a, x, y := whole[T](elements), whole[T](elements), whole[T](elements)
			b.Run(fmt.Sprintf("%s/%d/gonum", r.name, n), func(b *testing.B) {
				for b.Loop() {
					r.call(gonum, n, a, x, y)
				}
			})
			b.Run(fmt.Sprintf("%s/%d/library", r.name, n), func(b *testing.B) {
				for b.Loop() {
					r.call(library, n, a, x, y)
				}
			})
		}
	}
}
