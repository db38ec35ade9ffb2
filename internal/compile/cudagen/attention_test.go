package cudagen

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/tensor"
)

// heads is a view of (batch, heads, rows, depth) of a new value in which the heads of a row are
// neighbours, as products make them, or of one packed.
func (b *builder) heads(dt tensor.DType, bound bounds, together bool, batch, heads, rows, depth int) program.View {
	if !together {
		return b.whole(dt, bound, batch, heads, rows, depth)
	}
	id := b.value(dt, bound, batch, rows, heads, depth)
	return program.View{Value: id, Strides: []int{rows * heads * depth, depth, heads * depth, 1}}
}

// masked returns a bias with tiles of zeros, tiles of a mask, and tiles with both and with other
// numbers, and the kind of each tile. A finite mask comes first in each row, and is all of some
// rows.
func (b *builder) masked(m, n int, mask float64) []program.View {
	bias := b.whole(tensor.F32, bounds{-1, 1}, m, n)
	for i := range m {
		for j := range n {
			switch {
			case b.memory == nil:
			case j > i+64, !math.IsInf(mask, 0) && (j < 65 || i%16 == 5):
				program.SetElement(tensor.F32, b.memory[bias.Value], i*n+j, mask)
			case j < 64:
				program.SetElement(tensor.F32, b.memory[bias.Value], i*n+j, 0)
			}
		}
	}
	const edge = program.AttentionTile
	all := views(bias)
	for _, code := range [][]program.Instr{{load(0)}, {load(0), apply(program.Abs, 0)}} {
		out := b.empty(tensor.F32, m/edge, n/edge)
		b.step(&program.Reduce{Space: []int{m / edge, edge, n / edge, edge}, Reduced: []bool{false, true, false, true}, Red: program.Max, Code: code},
			views(program.View{Value: bias.Value, Strides: []int{edge * n, n, edge, 1}}),
			views(program.View{Value: out.Value, Strides: []int{n / edge, 0, 1, 0}}))
		all = append(all, out)
	}
	return all
}

// attend adds an Attention and its gradient, with results of one type. A mask of 0 is none.
func (b *builder) attend(op program.Attention, dt tensor.DType, mask float64, together bool) {
	two := bounds{-2, 2}
	rows := func(dt tensor.DType, n int) program.View {
		return b.heads(dt, two, together, op.Batch, op.Heads, n, op.Depth)
	}
	q, k, v, g := rows(tensor.BF16, op.M), rows(tensor.BF16, op.N), rows(tensor.BF16, op.N), rows(tensor.BF16, op.M)
	var bias []program.View
	if mask != 0 {
		bias = b.masked(op.M, op.N, mask)
	}
	out, lse, delta := rows(dt, op.M), b.empty(tensor.F32, op.Batch, op.Heads, op.M), b.empty(tensor.F32, op.Batch, op.Heads, op.M)
	b.step(&op, append(views(q, k, v), bias...), views(out, lse))
	if mask == 0 {
		b.step(&op, views(q, k, v), views(rows(dt, op.M)))
	}
	space := []int{op.Batch, op.Heads, op.M, op.Depth}
	b.step(&program.Reduce{
		Space: space, Reduced: []bool{false, false, false, true}, Red: program.Sum, Code: []program.Instr{load(0), load(1), apply(program.Mul, 0, 1)},
	}, views(out, g), views(program.View{Value: delta.Value, Strides: append(delta.Strides[:3:3], 0)}))
	grad := &program.AttentionGrad{Attention: op}
	b.step(grad, append(views(q, k, v, g, lse, delta), bias...), views(rows(dt, op.M), rows(tensor.F32, op.N), rows(dt, op.N)))
}

// attentionCases is each depth, with a bias and without, and with masks that are numbers.
func attentionCases() *builder {
	b := newBuilder("attention")
	for i, op := range []program.Attention{
		{Batch: 2, Heads: 2, M: 128, N: 192, Depth: 64, Scale: 0.125},
		{Batch: 1, Heads: 3, M: 64, N: 128, Depth: 32, Scale: 0.3},
		{Batch: 1, Heads: 1, M: 128, N: 64, Depth: 128, Scale: 0.09},
		{Batch: 1, Heads: 1, M: 192, N: 192, Depth: 64, Scale: 0.2},
		{Batch: 2, Heads: 1, M: 64, N: 128, Depth: 128, Scale: 0.05},
		{Batch: 1, Heads: 2, M: 128, N: 64, Depth: 32, Scale: 0.25},
	} {
		for _, mask := range []float64{0, math.Inf(-1)} {
			b.attend(op, []tensor.DType{tensor.BF16, tensor.F32}[i%2], mask, mask != 0 == (i%2 == 0))
		}
	}
	b.attend(program.Attention{Batch: 1, Heads: 2, M: 128, N: 192, Depth: 64, Scale: 0.125}, tensor.F32, -math.MaxFloat32, true)
	b.attend(program.Attention{Batch: 1, Heads: 2, M: 64, N: 128, Depth: 32, Scale: 1}, tensor.F32, -math.MaxFloat32, false)
	return b
}

// Operands of sums are rounded to bf16 first, so a number may be off by the rounding of the largest
// parts of its sum.
func TestAttentionIsAsExactAsItsOperands(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	b := attentionCases()
	want := b.expect(t)
	l := b.load(t, v, b.target())
	l.run(t)
	for i := range b.p.Steps {
		for j, out := range b.p.Steps[i].Out {
			val := &b.p.Values[out.Value]
			got := l.read(t, l.at[out.Value], val.Bytes())
			off, all := 0.0, 1e-30
			for e := range val.Len() {
				x, y := program.Element(val.DType, got, e), program.Element(val.DType, want[out.Value], e)
				if x != y || !math.IsInf(y, 0) {
					off += (x - y) * (x - y)
					all += y * y
				}
			}
			if r := math.Sqrt(off / all); !(r < 5e-3) {
				t.Errorf("%s: out %d is off by %.2g of itself", caseName(b.p, i), j, r)
			}
		}
	}
}

// Blocks take as many heads at once as fit into a cache. Here all have the same rows, and so the
// same bits in all results.
func TestAttentionOfMoreHeadsThanACacheHolds(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	b := newBuilder("attention")
	op := program.Attention{Batch: 3, Heads: 200, M: 128, N: 64, Depth: 128, Scale: 0.1}
	rows := func(n int) program.View {
		one := b.whole(tensor.BF16, bounds{-2, 2}, n, op.Depth)
		return program.View{Value: one.Value, Strides: []int{0, 0, op.Depth, 1}}
	}
	q, k, val, g := rows(op.M), rows(op.N), rows(op.N), rows(op.M)
	sums := func() program.View { return b.empty(tensor.F32, op.Batch, op.Heads, op.M) }
	empty := func(n int) program.View { return b.empty(tensor.F32, op.Batch, op.Heads, n, op.Depth) }
	lse, delta := sums(), b.whole(tensor.F32, bounds{0, 0}, op.Batch, op.Heads, op.M)
	b.step(&op, views(q, k, val), views(empty(op.M), lse))
	b.step(&program.AttentionGrad{Attention: op}, views(q, k, val, g, lse, delta), views(empty(op.M), empty(op.N), empty(op.N)))
	l := b.load(t, v, b.target())
	l.run(t)
	for i := range b.p.Steps {
		for j, out := range b.p.Steps[i].Out {
			bytes := b.p.Values[out.Value].Bytes()
			got, each := l.read(t, l.at[out.Value], bytes), int(bytes)/(op.Batch*op.Heads)
			if !slices.ContainsFunc(got[:each], func(x byte) bool { return x != 0 }) {
				t.Errorf("%s: out %d is zeros", caseName(b.p, i), j)
			}
			for h := each; h < len(got); h += each {
				if !slices.Equal(got[h:h+each], got[:each]) {
					t.Errorf("%s: out %d of head %d is another one than that of head 0", caseName(b.p, i), j, h/each)
					break
				}
			}
		}
	}
}

func TestAttentionThatNoKernelDoes(t *testing.T) {
	for want, change := range map[string]func(op *program.Attention, p *program.Program, target *Target){
		"rows of 48":    func(op *program.Attention, _ *program.Program, _ *Target) { op.Depth = 48 },
		"32 by 64":      func(op *program.Attention, _ *program.Program, _ *Target) { op.M = 32 },
		"in 0 is f32":   func(_ *program.Attention, p *program.Program, _ *Target) { p.Values[0].DType = tensor.F32 },
		"out 0 is f64":  func(_ *program.Attention, p *program.Program, _ *Target) { p.Values[3].DType = tensor.F64 },
		"sm_75 has no ": func(_ *program.Attention, _ *program.Program, target *Target) { target.Arch = 75 },
	} {
		b := newBare("refused")
		op := &program.Attention{Batch: 1, Heads: 1, M: 64, N: 64, Depth: 64, Scale: 1}
		rows := func() program.View { return b.whole(tensor.BF16, bounds{-1, 1}, 1, 1, 64, 64) }
		b.step(op, views(rows(), rows(), rows()), views(rows()))
		target := b.target()
		change(op, b.p, &target)
		if _, _, err := Generate(b.p, target); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
