package program

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Example is a small step of one operation.
type Example struct {
	Op      Op
	In, Out []Value // memory of the operands; dtypes and shapes only
	Strides []int   // of Out[0]; nil: those of its shape
	InPlace int     // number of last Outs that are the last Ins
}

// Table returns an example of every operation. A new operation is one entry here and its cases;
// tests name the parts of the compiler that lack a case, and run the examples.
func Table() []Example {
	w := Window{N: 2, C: 3, H: 4, W: 4, R: 2, S: 2, StrideH: 2, StrideW: 2, DilationH: 1, DilationW: 1, OutH: 2, OutW: 2}
	image, filter, result, pooled := f32(2, 3, 4, 4), f32(5, 3, 2, 2), f32(2, 5, 2, 2), f32(2, 3, 2, 2)
	rows, stats := f32(2, 3, 4), f32(3)
	long := Value{DType: tensor.I64, Shape: []int{2, 3}}
	a := Attention{Batch: 2, Heads: 2, M: AttentionTile, N: AttentionTile, Depth: 32, Scale: 0.25}
	head, row := f32(2, 2, AttentionTile, 32), f32(2, 2, AttentionTile)
	square := []Instr{{Op: Load}, {Op: Square}}
	return []Example{
		{Op: &Map{Space: []int{2, 3}, Code: square, Stores: []int{1}}, In: values(f32(2, 3)), Out: values(f32(2, 3))},
		{Op: &Reduce{Space: []int{2, 3}, Reduced: []bool{false, true}, Code: square}, In: values(f32(2, 3)), Out: values(f32(2)), Strides: []int{1, 0}},
		{Op: &Integer{Space: []int{2, 3}, Do: Add}, In: values(long, long), Out: values(long)},
		{Op: &MatMul{Batch: 2, M: 3, N: 4, K: 5, Alpha: 1}, In: values(f32(2, 3, 5), f32(2, 5, 4)), Out: values(f32(2, 3, 4))},
		{Op: &Conv{w, 5}, In: values(image, filter), Out: values(result)},
		{Op: &ConvGradInput{w, 5}, In: values(result, filter), Out: values(image)},
		{Op: &ConvGradFilter{w, 5}, In: values(image, result), Out: values(filter)},
		{Op: &Im2Col{w}, In: values(image), Out: values(f32(2, 2, 2, 12))},
		{Op: &Col2Im{w}, In: values(f32(2, 2, 2, 12)), Out: values(image)},
		{Op: &MaxPool{w}, In: values(image), Out: values(pooled)},
		{Op: &MaxPoolGrad{w}, In: values(image, pooled, pooled), Out: values(image)},
		{Op: &AvgPool{w}, In: values(image), Out: values(pooled)},
		{Op: &AvgPoolGrad{w}, In: values(pooled), Out: values(image)},
		{Op: &Softmax{Outer: 2, Axis: 3, Inner: 4}, In: values(rows), Out: values(rows)},
		{Op: &SoftmaxGrad{Outer: 2, Axis: 3, Inner: 4}, In: values(rows, rows), Out: values(rows)},
		{Op: &Attention{a.Batch, a.Heads, a.M, a.N, a.Depth, a.Scale}, In: values(head, head, head), Out: values(head, row)},
		{Op: &AttentionGrad{a}, In: values(head, head, head, head, row, row), Out: values(head, head, head)},
		{Op: &CrossEntropy{Rows: 2, Classes: 3}, In: values(f32(2, 3), f32(2, 3)), Out: values(f32(), f32(2, 3))},
		{
			Op: &SparseCrossEntropy{Rows: 2, Classes: 3, Ignore: -100, Smoothing: 0.1, Scale: 2},
			In: values(f32(2, 3), indices(2), f32()), Out: values(f32(), f32(2, 3)),
		},
		{Op: &Gather{Outer: 2, Axis: 3, Inner: 4, Count: 5}, In: values(rows, indices(5)), Out: values(f32(2, 5, 4))},
		{Op: &GatherGrad{Outer: 2, Axis: 3, Inner: 4, Count: 5}, In: values(f32(2, 5, 4), indices(5)), Out: values(rows)},
		{
			Op: &BatchNorm{N: 2, C: 3, Spatial: 4, Momentum: 0.5, Epsilon: 0.5, Unbias: 2, Training: true},
			In: values(rows, stats, stats), Out: values(rows, stats, stats, stats, stats), InPlace: 2,
		},
		{Op: &BatchNormGrad{N: 2, C: 3, Spatial: 4, Training: true}, In: values(rows, rows, stats, stats), Out: values(rows)},
		{Op: &Collective{Kind: dist.KindAllReduce, Red: dist.Sum}, In: values(rows), Out: values(rows)},
		{Op: &Call{Label: "copy"}, In: values(rows), Out: values(rows)},
	}
}

func f32(shape ...int) Value { return Value{DType: tensor.F32, Shape: shape} }

func indices(n int) Value { return Value{DType: tensor.I64, Shape: []int{n}} }

func values(v ...Value) []Value { return v }

// Program returns a program whose only step is the example. All its values are Outside.
func (e *Example) Program() *Program {
	p := &Program{Name: e.Op.String(), Clock: None}
	add := func(kind string, all []Value) (views []View) {
		for k, v := range all {
			v.Name, v.Place = fmt.Sprintf("%s %d", kind, k), Outside
			views = append(views, p.Whole(p.Add(v)))
		}
		return views
	}
	in, out := add("in", e.In), add("out", e.Out[:len(e.Out)-e.InPlace])
	out = append(out, in[len(in)-e.InPlace:]...)
	if e.Strides != nil {
		out[0].Strides = e.Strides
	}
	p.Steps = []Step{{Name: "example", Op: e.Op, In: in, Out: out}}
	return p
}
