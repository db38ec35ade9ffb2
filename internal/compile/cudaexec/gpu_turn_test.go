package cudaexec

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/oracle"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/tensor"
)

// gradient is a program of one product AᵀB, of A with K rows of M and B with K rows of N elements.
type gradient struct {
	dt         tensor.DType
	m, n, k    int
	gapA, gapB int  // elements between rows
	offset     int  // of A, in elements
	columns    bool // C lies in columns
}

// gradients is products of which each can have a transposed copy of an operand.
var gradients = []gradient{
	{dt: tensor.F32, m: 72, n: 136, k: 40},
	{dt: tensor.F32, m: 136, n: 72, k: 40},
	{dt: tensor.F32, m: 131, n: 197, k: 33, gapA: 6, gapB: 3},
	{dt: tensor.F32, m: 197, n: 131, k: 33, gapA: 1, gapB: 2, offset: 3},
	{dt: tensor.F32, m: 100, n: 65, k: 37, columns: true},
	{dt: tensor.F64, m: 70, n: 90, k: 35, gapA: 1},
	{dt: tensor.F16, m: 66, n: 130, k: 37, gapA: 3, offset: 1},
	{dt: tensor.BF16, m: 130, n: 64, k: 48, gapB: 8},
}

// build gives the program, and the values A, B and C.
func (g *gradient) build(t testing.TB) (b *builder, ids [3]program.ID) {
	b = newBuilder("gradient", 11)
	lda, ldb := g.m+g.gapA, g.n+g.gapB
	for i, shape := range [][]int{{g.offset + g.k*lda}, {g.k * ldb}, {g.m, g.n}} {
		ids[i] = b.p.Add(program.Value{Name: "ABC"[i : i+1], DType: g.dt, Shape: shape, Place: program.Outside, Role: program.State})
		b.memory[ids[i]] = room(b.p.Values[ids[i]].Bytes())
	}
	c := program.View{Value: ids[2], Strides: []int{0, g.n, 1}}
	if g.columns {
		c.Strides = []int{0, 1, g.m}
	}
	b.step("dw", &program.MatMul{Batch: 1, M: g.m, N: g.n, K: g.k, Alpha: 1}, views(
		program.View{Value: ids[0], Offset: g.offset, Strides: []int{0, 1, lda}}, program.View{Value: ids[1], Strides: []int{0, ldb, 1}},
	), views(c))
	return b.plan(t, false), ids
}

// digits fills b's A and B with whole numbers whose products and sums are exact in all types.
func digits(b *builder, ids [3]program.ID, seed int) {
	for _, id := range ids[:2] {
		v := &b.p.Values[id]
		for j := range v.Len() {
			program.SetElement(v.DType, b.memory[id], j, float64((j*7+j/5+seed+int(id))%5-2))
		}
	}
}

// turnedRig loads b, and needs cuBLAS.
func turnedRig(t testing.TB, b *builder, cfg Config) *rig {
	t.Helper()
	cfg.Tune = true
	r := newRig(t, b, cfg, program.Env{})
	if r.mul == nil {
		cudatest.Missing(t, "no cuBLAS")
	}
	return r
}

// Products with a transposed copy equal the oracle's exactly, in the first run and in replays, for
// elements of all sizes and all layouts of operands. Their memory is in the footprint.
func TestProductsOfTransposedCopiesAreExact(t *testing.T) {
	for _, g := range gradients {
		for _, compute := range []Compute{F32, TF32} {
			t.Run(fmt.Sprintf("%+v %v", g, compute), func(t *testing.T) {
				b, ids := g.build(t)
				plain := turnedRig(t, b, Config{Compute: compute, turns: turnNever})
				r := turnedRig(t, b, Config{Compute: compute, turns: turnAlways})
				turn := r.mul.steps[0].turned
				if turn == nil || plain.mul.steps[0].turned != nil {
					t.Fatalf("turns %+v and %+v, want one and none", turn, plain.mul.steps[0].turned)
				}
				_, _, without, _ := plain.Footprint()
				if _, _, with, _ := r.Footprint(); with-without != aligned(turn.bytes()) || turn.bytes() < int64(min(g.m, g.n)*g.k*g.dt.Size()) {
					t.Errorf("scratch of %d B and %d B without the copy, which has %d B", with, without, turn.bytes())
				}
				for run := range 4 {
					digits(b, ids, run)
					for _, id := range ids[:2] {
						if err := r.v.WriteBuffer(r.at[id], b.memory[id]); err != nil {
							t.Fatal(err)
						}
					}
					if err := oracle.Run(b.p, b.memory); err != nil {
						t.Fatal(err)
					}
					if err := r.Run(); err != nil {
						t.Fatal(err)
					}
					if err := r.Wait(); err != nil {
						t.Fatal(err)
					}
					if got, err := r.elements(ids[2]); err != nil || !bytes.Equal(got, b.memory[ids[2]]) {
						t.Fatalf("run %d by %v: not what the oracle says, %v", run, r.mul.steps[0].plan, err)
					}
				}
			})
		}
	}
}

// The faster of two variants is kept, and small products never have a copy.
func TestTurnsAreTakenWhereTheyWereFaster(t *testing.T) {
	for _, g := range []gradient{{dt: tensor.F32, m: 1024, n: 1024, k: 1024}, {dt: tensor.F32, m: 64, n: 1024, k: 64}} {
		b, ids := g.build(t)
		digits(b, ids, 1)
		q := turnedRig(t, b, Config{Compute: TF32}).mul.steps[0]
		if q.plan == nil || q.plan.Took() <= 0 {
			t.Fatalf("%v was not timed", &q.gemm)
		}
		t.Log(q.plan)
		if q.turned != nil && (!canPay(&q.gemm) || q.plan.Desc().Gemm != q.turned.gemm) || q.turned == nil && q.plan.Desc().Gemm != q.gemm {
			t.Errorf("turn %+v with plan %v", q.turned, q.plan)
		}
	}
}

// Graphs of several products that share the memory for copies equal the oracle.
func TestProductsShareTheMemoryForCopies(t *testing.T) {
	b := newBuilder("shared", 12).train(options{batch: 37, dims: []int{65, 34, 50, 9}}).plan(t, true)
	r := turnedRig(t, b, Config{turns: turnAlways})
	var most int64
	at := map[uintptr]int{}
	for _, q := range r.mul.steps {
		if q != nil && q.turned != nil {
			at[q.turned.at]++
			most = max(most, aligned(q.turned.bytes()))
		}
	}
	if at[r.mul.copies] != 3 || len(at) != 1 || r.mul.scratch() != most {
		t.Errorf("copies of %d B at %v, want 3 at one place of %d B", r.mul.scratch(), at, most)
	}
	if err := trained(b, r, 6); err != nil {
		t.Error(err)
	}
}

// BenchmarkWeightGradient is AᵀB of 4096 by 512 and 512 by 4096 elements in TF32, with the copy and
// without.
func BenchmarkWeightGradient(b *testing.B) {
	for _, way := range []struct {
		name  string
		turns turning
	}{{"as it is", turnNever}, {"transposed copy", turnAlways}, {"tuned", turnWhereFaster}} {
		b.Run(way.name, func(b *testing.B) {
			g := gradient{dt: tensor.F32, m: 4096, n: 4096, k: 512}
			p, ids := g.build(b)
			digits(p, ids, 1)
			r := turnedRig(b, p, Config{Compute: TF32, turns: way.turns})
			b.Log(r.mul.steps[0].plan)
			t, err := r.Profile(20)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(t.Run.Nanoseconds())/1e3, "µs/run")
			for b.Loop() {
				if err := r.Run(); err != nil {
					b.Fatal(err)
				}
			}
			if err := r.Wait(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
