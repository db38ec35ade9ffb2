package hostexec

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/host/blas"
	"github.com/symgrad/symgrad/tensor"
	"pgregory.net/rapid"
)

// matrixView is a view over (batch, rows, cols) of a value of its own, as it lies or transposed.
func matrixView(b *build, dt tensor.DType, batch, rows, cols, gap int, transposed, repeated bool) program.View {
	first, second := rows, cols
	if transposed {
		first, second = cols, rows
	}
	size := batch
	if repeated {
		size = 1
	}
	v := b.value("m", dt, size, first, second+gap)
	ld := second + gap
	v.Strides = []int{first * ld, ld, 1}
	if transposed {
		v.Strides = []int{first * ld, 1, ld}
	}
	if repeated {
		v.Strides[0] = 0
	}
	return v
}

func TestProductsEqualTheOracle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBuild()
		sizes := rapid.SampledFrom([]int{0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 14, 15, 16, 17, 29, 31, 32, 33, 48, 63, 65, 100})
		m, n, k := sizes.Draw(rt, "m"), sizes.Draw(rt, "n"), sizes.Draw(rt, "k")
		if rapid.IntRange(0, 7).Draw(rt, "deep") == 0 {
			k = rapid.SampledFrom([]int{319, 320, 321, 700}).Draw(rt, "depth")
		}
		batch := rapid.SampledFrom([]int{1, 1, 1, 2, 5}).Draw(rt, "batch")
		dt := rapid.SampledFrom([]tensor.DType{tensor.F32, tensor.F32, tensor.F32, tensor.F64, tensor.BF16, tensor.F16}).Draw(rt, "dtype")
		gap := rapid.IntRange(0, 3)
		flip := rapid.Bool()
		in := views(
			matrixView(b, dt, batch, m, k, gap.Draw(rt, "gap a"), flip.Draw(rt, "ta"), flip.Draw(rt, "same a")),
			matrixView(b, dt, batch, k, n, gap.Draw(rt, "gap b"), flip.Draw(rt, "tb"), flip.Draw(rt, "same b")),
		)
		out := matrixView(b, dt, batch, m, n, gap.Draw(rt, "gap c"), flip.Draw(rt, "tc"), false)
		alpha := rapid.SampledFrom([]float64{1, 1, 0.5, -0.3}).Draw(rt, "alpha")
		b.step(&program.MatMul{Batch: batch, M: m, N: n, K: k, Alpha: alpha, Beta: float64(rapid.IntRange(0, 1).Draw(rt, "beta"))}, in, views(out))
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		if dt.Size() == 2 { // small integers, which are exact: the product is rounded before it is added
			op := b.Steps[0].Op.(*program.MatMul)
			op.Alpha = 1
			agree(t, rt, &b.Program, contents(&b.Program, func() float64 { return float64(r.IntN(3) - 1) }), 0)
			return
		}
		// A sum of k products of numbers below 4 is within (k+3) u of the sum of their sizes, less
		// than 16 each.
		agree(t, rt, &b.Program, contents(&b.Program, normal(r)), float64(k+3)*0x1p-24*16)
	})
}

// Products of integers are exact, so that rounding cannot hide a wrong element; sizes beyond all
// blocks.
func TestLargeProductsEqualTheOracle(t *testing.T) {
	for _, s := range [][3]int{{200, 700, 90}, {1100, 30, 330}, {1100, 32, 330}, {20, 2100, 400}, {130, 520, 784}} {
		for _, trans := range []int{0, 1, 2, 3} {
			t.Run(fmt.Sprint(s, trans), func(t *testing.T) {
				b := newBuild()
				in := views(
					matrixView(b, tensor.F32, 1, s[0], s[2], 0, trans&1 != 0, false),
					matrixView(b, tensor.F32, 1, s[2], s[1], 0, trans&2 != 0, false),
				)
				b.step(&program.MatMul{Batch: 1, M: s[0], N: s[1], K: s[2], Alpha: 1}, in, views(matrixView(b, tensor.F32, 1, s[0], s[1], 0, false, false)))
				r := rand.New(rand.NewPCG(1, uint64(trans)))
				memory := contents(&b.Program, func() float64 { return float64(r.IntN(9) - 4) })
				want, m := naive(memory[0], memory[1], s, trans), memory[2]
				raw, next := make([]byte, len(m)), 0
				numbers(tensor.F32, raw, func() float64 { next++; return want[next-1] })
				for name, l := range variants() {
					if raceEnabled && l == nil {
						continue // minutes
					}
					for _, threads := range []int{1, 2} {
						if raceEnabled && threads == 1 {
							continue
						}
						clear(m)
						runOnce(t, &b.Program, memory, Config{Threads: threads}, l)
						if bytes.Equal(m, raw) { // compared much faster than numbers
							continue
						}
						for i := range want {
							if x := program.Element(tensor.F32, m, i); x != want[i] {
								t.Fatalf("%s, %d threads: element (%d, %d) is %v, want %v", name, threads, i/s[1], i%s[1], x, want[i])
							}
						}
					}
				}
			})
		}
	}
}

// Products that are deep and small are cut into depths where there are many goroutines. That does
// not show in the bits.
func TestDeepProductsHaveTheBitsOfOneGoroutine(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, s := range [][3]int{{64, 96, 700}, {200, 40, 1300}, {33, 47, 2001}, {128, 160, 1281}} {
		for form := range 8 {
			op := program.MatMul{Batch: 1 + form%2, M: s[0], N: s[1], K: s[2], Alpha: []float64{1, -0.3}[form/2%2], Beta: float64(form % 3 / 2)}
			b := newBuild()
			b.step(&op, views(
				matrixView(b, tensor.F32, op.Batch, s[0], s[2], form, form&1 != 0, false),
				matrixView(b, tensor.F32, op.Batch, s[2], s[1], 0, form&2 != 0, false),
			), views(matrixView(b, tensor.F32, op.Batch, s[0], s[1], form, form&4 != 0, false)))
			memory := contents(&b.Program, normal(r))
			first := bytes.Clone(memory[2])
			runOnce(t, &b.Program, memory, Config{Threads: 1}, best())
			want := bytes.Clone(memory[2])
			for _, threads := range []int{3, 8, 17} {
				k := newMaker(&b.Program, Config{Threads: threads}, program.Env{}, best())
				if phases, err := newMatMul[float32](k, &b.Steps[0], &op); err != nil || !isDeep(phases) {
					t.Fatalf("%v, %d threads: not cut into depths, error %v", op, threads, err)
				}
				copy(memory[2], first)
				runOnce(t, &b.Program, memory, Config{Threads: threads}, best())
				if !bytes.Equal(memory[2], want) {
					t.Errorf("%v, %d threads: other bits than with one", op, threads)
				}
			}
		}
	}
}

func isDeep(phases []phase) bool {
	_, ok := phases[0].task.(*deepMatMul[float32])
	return ok
}

// naive is the product of integer matrices, whose sums are exact in any order.
func naive(a, b []byte, s [3]int, trans int) []float64 {
	m, n, k := s[0], s[1], s[2]
	x, y := make([]float32, m*k), make([]float32, n*k) // rows of a, columns of b
	for i := range m {
		for j := range k {
			at := i*k + j
			if trans&1 != 0 {
				at = j*m + i
			}
			x[i*k+j] = float32(program.Element(tensor.F32, a, at))
		}
	}
	for i := range k {
		for j := range n {
			at := i*n + j
			if trans&2 != 0 {
				at = j*k + i
			}
			y[j*k+i] = float32(program.Element(tensor.F32, b, at))
		}
	}
	c := make([]float64, m*n)
	for i := range m {
		row := x[i*k:][:k]
		for j := range n {
			col, sum := y[j*k:][:k], 0.0
			for l, v := range row {
				sum += float64(v * col[l])
			}
			c[i*n+j] = sum
		}
	}
	return c
}

func runOnce(t testing.TB, p *program.Program, memory map[program.ID][]byte, cfg Config, l *level) {
	t.Helper()
	r, err := load(p, cfg, program.Env{}, l)
	if err != nil {
		t.Fatal(err)
	}
	bindAll(t, r, p, memory)
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// library is the BLAS library of this machine.
func library(t testing.TB, threads int) *blas.Implementation {
	t.Helper()
	impl, err := blas.Open(blas.Config{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	if impl.Info().Name == "gonum" {
		t.Skipf("no BLAS library is installed: %q", impl.Info().Rejected)
	}
	return impl
}

func TestLibraryProductsEqualOurs(t *testing.T) {
	impl := library(t, 1)
	for _, dt := range []tensor.DType{tensor.F32, tensor.F64} {
		for trans := range 8 {
			b := newBuild()
			m, n, k := 40, 70, 50
			b.step(&program.MatMul{Batch: 1, M: m, N: n, K: k, Alpha: 0.5, Beta: float64(trans & 1)}, views(
				matrixView(b, dt, 1, m, k, 3, trans&1 != 0, false), matrixView(b, dt, 1, k, n, 1, trans&2 != 0, false),
			), views(matrixView(b, dt, 1, m, n, 2, trans&4 != 0, false)))
			r := rand.New(rand.NewPCG(1, 2))
			got := contents(&b.Program, normal(r))
			want := clone(got)
			runOnce(t, &b.Program, want, Config{Threads: 1}, best())
			runOnce(t, &b.Program, got, Config{Threads: 1, BLAS: impl}, best())
			compareAll(t, fmt.Sprintf("%v trans %d", dt, trans), &b.Program, got, want, 1e-5)
		}
	}
}
