package machine_test

import (
	"math/rand/v2"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

func anywhere(r *rand.Rand) float64 { return r.NormFloat64() }
func positive(r *rand.Rand) float64 { return 0.3 + 2*r.Float64() }
func fraction(r *rand.Rand) float64 { return 0.1 + 0.8*r.Float64() }

func dims(d ...int) []int            { return d }
func inputs(shapes ...[]int) [][]int { return shapes }
func broadcasting(op func(a, b *G.Node, left, right []byte) (*G.Node, error), left, right []byte) func([]*G.Node) (*G.Node, error) {
	return func(x []*G.Node) (*G.Node, error) { return op(x[0], x[1], left, right) }
}

func picked(axis int, indices ...int) func([]*G.Node) (*G.Node, error) {
	return func(x []*G.Node) (*G.Node, error) {
		i := G.NewVector(x[0].Graph(), gtensor.Int, G.WithName("indices"), G.WithShape(len(indices)),
			G.WithValue(gtensor.New(gtensor.WithShape(len(indices)), gtensor.WithBacking(indices))))
		return G.ByIndices(x[0], i, axis)
	}
}

func normalized(x []*G.Node) (*G.Node, error) {
	y, _, _, _, err := G.BatchNorm(x[0], x[1], x[2], 0.9, 1e-3)
	return y, err
}

// deriveds is every public function of Gorgonia v0.9.18 that mathematics can differentiate.
var deriveds = slicesOf(
	elementwise(), arithmetic(), products(), reductions(), shapes(), layers(),
	norms(), losses(), conversions(), costs(),
)

func slicesOf(parts ...[]derived) (all []derived) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func elementwise() []derived {
	var all []derived
	for _, f := range []struct {
		name string
		op   func(*G.Node) (*G.Node, error)
		at   func(*rand.Rand) float64
		bad  string
	}{
		{"Abs", G.Abs, anywhere, ""},
		{"Sin", G.Sin, anywhere, ""},
		{"Cos", G.Cos, anywhere, ""},
		{"Exp", G.Exp, anywhere, ""},
		{"Log", G.Log, positive, ""},
		{"Log2", G.Log2, positive, "ops.Grad"},
		{"Neg", G.Neg, anywhere, ""},
		{"Square", G.Square, anywhere, ""},
		{"Sqrt", G.Sqrt, positive, ""},
		{"Inverse", G.Inverse, positive, ""},
		{"InverseSqrt", G.InverseSqrt, positive, "ops.Grad"},
		{"Cube", G.Cube, anywhere, ""},
		{"Tanh", G.Tanh, anywhere, ""},
		{"Sigmoid", G.Sigmoid, anywhere, ""},
		{"Log1p", G.Log1p, positive, ""},
		{"Expm1", G.Expm1, anywhere, ""},
		{"Softplus", G.Softplus, anywhere, ""},
		{"Mish", G.Mish, anywhere, ""},
		{"Rectify", G.Rectify, anywhere, ""},
		{"LeakyRelu", func(x *G.Node) (*G.Node, error) { return G.LeakyRelu(x, 0.1) }, anywhere, ""},
	} {
		for name, shape := range map[string][]int{"": {2, 3}, " of a scalar": {}} {
			all = append(all, derived{name: f.name + name, shapes: inputs(shape), at: f.at, apply: unary(f.op), bad: byWhom{plain: f.bad}})
		}
	}
	return all
}

func arithmetic() []derived {
	var all []derived
	for _, f := range []struct {
		name string
		op   func(a, b *G.Node) (*G.Node, error)
	}{
		{"Add", G.Add},
		{"Sub", G.Sub},
		{"HadamardProd", G.HadamardProd},
		{"HadamardDiv", G.HadamardDiv},
		{"Div", G.Div},
		{"Pow", G.Pow},
	} {
		all = append(all,
			derived{name: f.name, shapes: inputs(dims(2, 3), dims(2, 3)), at: positive, apply: binary(f.op)},
			derived{name: f.name + " of scalars", shapes: inputs(dims(), dims()), at: positive, apply: binary(f.op)},
			derived{name: f.name + " of a scalar and a matrix", shapes: inputs(dims(), dims(2, 3)), at: positive, apply: binary(f.op)},
			derived{name: f.name + " of a vector and a scalar", shapes: inputs(dims(3), dims()), at: positive, apply: binary(f.op)},
		)
	}
	for _, f := range []struct {
		name string
		op   func(a, b *G.Node, left, right []byte) (*G.Node, error)
	}{
		{"BroadcastAdd", G.BroadcastAdd},
		{"BroadcastSub", G.BroadcastSub},
		{"BroadcastHadamardProd", G.BroadcastHadamardProd},
		{"BroadcastHadamardDiv", G.BroadcastHadamardDiv},
		{"BroadcastPow", G.BroadcastPow},
	} {
		all = append(all,
			derived{name: f.name, shapes: inputs(dims(3, 4), dims(1, 4)), at: positive, apply: broadcasting(f.op, nil, []byte{0})},
			derived{name: f.name + " on both sides", shapes: inputs(dims(3, 1), dims(1, 4)), at: positive, apply: broadcasting(f.op, []byte{1}, []byte{0})},
		)
	}
	const noScalars = "Cannot perform"
	return append(all,
		derived{name: "MinBetween", shapes: inputs(dims(2, 3), dims(2, 3)), at: positive, apply: binary(G.MinBetween)},
		derived{name: "MaxBetween", shapes: inputs(dims(2, 3), dims(2, 3)), at: positive, apply: binary(G.MaxBetween)},
		derived{name: "MinBetween of scalars", shapes: inputs(dims(), dims()), at: positive, apply: binary(G.MinBetween), bad: byWhom{tape: noScalars}},
		derived{name: "MaxBetween of scalars", shapes: inputs(dims(), dims()), at: positive, apply: binary(G.MaxBetween), bad: byWhom{tape: noScalars}},
		derived{name: "Auto", shapes: inputs(dims(3, 4), dims(3, 1)), at: positive, apply: binary(func(a, b *G.Node) (*G.Node, error) {
			return G.Auto(G.BroadcastHadamardProd, a, b)
		})},
		derived{name: "Broadcast", shapes: inputs(dims(3, 4), dims(3, 1)), at: positive, apply: binary(func(a, b *G.Node) (*G.Node, error) {
			a, b, err := G.Broadcast(a, b, G.NewBroadcastPattern(nil, []byte{1}))
			if err != nil {
				return nil, err
			}
			return G.HadamardProd(a, b)
		})},
		derived{name: "ReduceAdd", shapes: inputs(dims(3), dims(3), dims(3)), at: anywhere, apply: func(x []*G.Node) (*G.Node, error) { return G.ReduceAdd(x) }},
		derived{name: "ReduceMul", shapes: inputs(dims(3), dims(3), dims(3)), at: anywhere, apply: func(x []*G.Node) (*G.Node, error) { return G.ReduceMul(x) }},
		derived{name: "BinaryXent", shapes: inputs(dims(4)), at: fraction, apply: unary(func(x *G.Node) (*G.Node, error) {
			return G.BinaryXent(x, input64(x.Graph(), "target", []float64{0, 1, 1, 0}, 4))
		})},
	)
}

func products() []derived {
	batched := func(trans ...bool) func([]*G.Node) (*G.Node, error) {
		return binary(func(a, b *G.Node) (*G.Node, error) { return G.BatchedMatMul(a, b, trans...) })
	}
	return []derived{
		{name: "Mul of matrices", shapes: inputs(dims(2, 3), dims(3, 4)), at: anywhere, apply: binary(G.Mul)},
		{name: "Mul of a matrix and a vector", shapes: inputs(dims(2, 3), dims(3)), at: anywhere, apply: binary(G.Mul)},
		{name: "Mul of a vector and a matrix", shapes: inputs(dims(2), dims(2, 3)), at: anywhere, apply: binary(G.Mul)},
		{name: "Mul of vectors", shapes: inputs(dims(3), dims(3)), at: anywhere, apply: binary(G.Mul)},
		{name: "Mul of a column and a row", shapes: inputs(dims(3, 1), dims(1, 4)), at: anywhere, apply: binary(G.Mul)},
		{name: "Mul of a scalar and a matrix", shapes: inputs(dims(), dims(2, 3)), at: anywhere, apply: binary(G.Mul)},
		{name: "OuterProd", shapes: inputs(dims(3), dims(2)), at: anywhere, apply: binary(G.OuterProd), bad: byWhom{plain: "ops.Grad"}},
		{name: "OuterProd of equal lengths", shapes: inputs(dims(3), dims(3)), at: anywhere, apply: binary(G.OuterProd), bad: byWhom{plain: "ops.Grad"}},
		{name: "BatchedMatMul", shapes: inputs(dims(2, 3, 4), dims(2, 4, 5)), at: anywhere, apply: batched()},
		{name: "BatchedMatMul, left transposed", shapes: inputs(dims(2, 4, 3), dims(2, 4, 5)), at: anywhere, apply: batched(true)},
		{name: "BatchedMatMul, right transposed", shapes: inputs(dims(2, 3, 4), dims(2, 5, 4)), at: anywhere, apply: batched(false, true)},
		{name: "BatchedMatMul, both transposed", shapes: inputs(dims(2, 4, 3), dims(2, 5, 4)), at: anywhere, apply: batched(true, true)},
		{name: "Tensordot", shapes: inputs(dims(2, 3, 4), dims(4, 3, 5)), at: anywhere, apply: binary(func(a, b *G.Node) (*G.Node, error) {
			return G.Tensordot([]int{1, 2}, []int{1, 0}, a, b)
		})},
		{name: "Tensordot of matrices", shapes: inputs(dims(2, 3), dims(3, 4)), at: anywhere, apply: binary(func(a, b *G.Node) (*G.Node, error) {
			return G.Tensordot([]int{1}, []int{0}, a, b)
		})},
	}
}

func reductions() []derived {
	sums := []struct {
		name string
		op   func(*G.Node, ...int) (*G.Node, error)
	}{{"Sum", G.Sum}, {"Mean", G.Mean}, {"Max", G.Max}}
	var all []derived
	for _, f := range sums {
		all = append(all,
			derived{name: f.name + " of all", shapes: inputs(dims(2, 3)), at: anywhere, apply: along(f.op)},
			derived{name: f.name + " of the first axis", shapes: inputs(dims(2, 3)), at: anywhere, apply: along(f.op, 0)},
			derived{name: f.name + " of the last axis", shapes: inputs(dims(2, 3)), at: anywhere, apply: along(f.op, 1)},
			derived{name: f.name + " of the middle", shapes: inputs(dims(2, 3, 2)), at: anywhere, apply: along(f.op, 1)},
			derived{name: f.name + " of two axes", shapes: inputs(dims(2, 3, 2)), at: anywhere, apply: along(f.op, 0, 2)},
			derived{name: f.name + " of a vector", shapes: inputs(dims(4)), at: anywhere, apply: along(f.op, 0)},
			derived{name: f.name + " of a column", shapes: inputs(dims(4, 1)), at: anywhere, apply: along(f.op, 1)},
		)
	}
	for name, p := range map[string]int{"Norm 2": 2, "Norm 1": 1, "Norm 3": 3} {
		all = append(all, derived{name: name, shapes: inputs(dims(3, 4)), at: positive, apply: unary(func(x *G.Node) (*G.Node, error) { return G.Norm(x, 1, p) })})
	}
	for name, c := range map[string]struct {
		shape []int
		axes  []int
	}{
		"": {dims(3, 4), nil}, " of the first axis": {dims(3, 4), dims(0)}, " of the last axis": {dims(3, 4), dims(1)}, " in the middle": {dims(2, 3, 4), dims(1)},
		" of a column": {dims(4, 1), nil}, " of a column along 0": {dims(4, 1), dims(0)}, " of a column along 1": {dims(4, 1), dims(1)},
		" of a row": {dims(1, 4), nil}, " of a row along 0": {dims(1, 4), dims(0)}, " of a vector": {dims(4), nil},
	} {
		all = append(all,
			derived{name: "SoftMax" + name, shapes: inputs(c.shape), at: anywhere, apply: along(G.SoftMax, c.axes...)},
			derived{name: "LogSoftMax" + name, shapes: inputs(c.shape), at: anywhere, apply: along(G.LogSoftMax, c.axes...)},
		)
	}
	return append(all,
		derived{name: "LogSumExp of a vector", shapes: inputs(dims(4)), at: positive, apply: unary(func(x *G.Node) (*G.Node, error) { return G.LogSumExp(x, 0) })},
		derived{name: "KeepDims", shapes: inputs(dims(3, 4)), at: anywhere, apply: unary(func(x *G.Node) (*G.Node, error) {
			return G.KeepDims(x, false, func(x *G.Node) (*G.Node, error) { return G.Sum(x, 1) })
		})},
	)
}

func shapes() []derived {
	sliced := func(s ...gtensor.Slice) func([]*G.Node) (*G.Node, error) {
		return unary(func(x *G.Node) (*G.Node, error) { return G.Slice(x, s...) })
	}
	return []derived{
		{name: "Slice of rows", shapes: inputs(dims(4, 3)), at: anywhere, apply: sliced(G.S(1, 3))},
		{name: "Slice of every second row", shapes: inputs(dims(6, 3)), at: anywhere, apply: sliced(G.S(1, 5, 2))},
		{name: "Slice of a column", shapes: inputs(dims(4, 3)), at: anywhere, apply: sliced(nil, G.S(1))},
		{name: "Slice of columns", shapes: inputs(dims(4, 3)), at: anywhere, apply: sliced(nil, G.S(1, 3))},
		{name: "Slice of one row", shapes: inputs(dims(4, 3)), at: anywhere, apply: sliced(G.S(2))},
		{name: "Slice of an element", shapes: inputs(dims(4, 3)), at: anywhere, apply: sliced(G.S(2), G.S(1))},
		{name: "Slice of a vector", shapes: inputs(dims(5)), at: anywhere, apply: sliced(G.S(1, 4))},
		{name: "Concat", shapes: inputs(dims(2, 3), dims(1, 3)), at: anywhere, apply: func(x []*G.Node) (*G.Node, error) { return G.Concat(0, x...) }},
		{name: "Concat in the middle", shapes: inputs(dims(2, 3, 2), dims(2, 1, 2)), at: anywhere, apply: func(x []*G.Node) (*G.Node, error) { return G.Concat(1, x...) }},
		{name: "Unconcat", shapes: inputs(dims(4, 3)), at: anywhere, apply: unary(func(x *G.Node) (*G.Node, error) {
			parts, err := G.Unconcat(x, 0, 2)
			if err != nil {
				return nil, err
			}
			return G.HadamardProd(parts[0], parts[1])
		})},
		{name: "Transpose", shapes: inputs(dims(2, 3)), at: anywhere, apply: unary(func(x *G.Node) (*G.Node, error) { return G.Transpose(x) })},
		{name: "Transpose of three axes", shapes: inputs(dims(2, 3, 4)), at: anywhere, apply: unary(func(x *G.Node) (*G.Node, error) { return G.Transpose(x, 2, 0, 1) })},
		{name: "Reshape", shapes: inputs(dims(2, 3)), at: anywhere, apply: unary(func(x *G.Node) (*G.Node, error) { return G.Reshape(x, gtensor.Shape{3, 2}) })},
		{name: "Ravel", shapes: inputs(dims(2, 3)), at: anywhere, apply: unary(G.Ravel)},
		{name: "ByIndices", shapes: inputs(dims(4, 3)), at: anywhere, apply: picked(0, 2, 0, 2)},
		{name: "ByIndices of a vector", shapes: inputs(dims(4)), at: anywhere, apply: picked(0, 2, 0, 2)},
		{name: "ByIndices of columns", shapes: inputs(dims(4, 3)), at: anywhere, apply: picked(1, 2, 0, 2), bad: byWhom{tape: "op ByIndicesOp{axis=1}: not supported"}},
		{name: "ByIndices of more columns", shapes: inputs(dims(2, 5)), at: anywhere, apply: picked(1, 4, 0, 4, 1, 4, 3), bad: byWhom{tape: "op ByIndicesOp{axis=1}: not supported"}},
		{name: "ByIndices in the middle", shapes: inputs(dims(2, 3, 4)), at: anywhere, apply: picked(1, 2, 0, 2), bad: byWhom{tape: "op ByIndicesOp{axis=1}: not supported"}},
		{name: "ByIndices of three axes", shapes: inputs(dims(3, 2, 2)), at: anywhere, apply: picked(0, 2, 0, 2)},
	}
}

func layers() []derived {
	return []derived{
		{name: "Conv2d", shapes: inputs(dims(2, 2, 5, 5), dims(3, 2, 3, 3)), at: anywhere, apply: binary(func(a, b *G.Node) (*G.Node, error) {
			return G.Conv2d(a, b, gtensor.Shape{3, 3}, []int{1, 1}, []int{2, 1}, []int{1, 1})
		})},
		{name: "Conv1d", shapes: inputs(dims(2, 2, 1, 6), dims(3, 2, 1, 3)), at: anywhere, apply: binary(func(a, b *G.Node) (*G.Node, error) {
			return G.Conv1d(a, b, 3, 1, 1, 1)
		})},
		{name: "Im2Col", shapes: inputs(dims(1, 2, 4, 4)), at: anywhere, apply: unary(func(x *G.Node) (*G.Node, error) {
			return G.Im2Col(x, gtensor.Shape{3, 2}, gtensor.Shape{1, 0}, gtensor.Shape{2, 1}, gtensor.Shape{1, 2})
		})},
		{name: "MaxPool2D", shapes: inputs(dims(2, 2, 4, 4)), at: anywhere, apply: unary(func(x *G.Node) (*G.Node, error) {
			return G.MaxPool2D(x, gtensor.Shape{2, 2}, []int{0, 0}, []int{2, 2})
		})},
		{name: "MaxPool2D, overlapping and padded", shapes: inputs(dims(1, 2, 5, 5)), at: positive, apply: unary(func(x *G.Node) (*G.Node, error) {
			return G.MaxPool2D(x, gtensor.Shape{3, 3}, []int{1, 1}, []int{2, 2})
		})},
		{name: "MaxPool1D", shapes: inputs(dims(1, 2, 1, 6)), at: anywhere, apply: unary(func(x *G.Node) (*G.Node, error) { return G.MaxPool1D(x, 2, 0, 2) })},
		{name: "AveragePool2D", shapes: inputs(dims(2, 2, 4, 4)), at: anywhere, apply: unary(func(x *G.Node) (*G.Node, error) {
			return G.AveragePool2D(x, gtensor.Shape{2, 2}, []int{0, 0}, []int{2, 2})
		}), bad: byWhom{tape: "op AvgPool"}},
		{name: "AveragePool2D of a window that is not square", shapes: inputs(dims(1, 2, 4, 6)), at: anywhere, apply: unary(func(x *G.Node) (*G.Node, error) {
			return G.AveragePool2D(x, gtensor.Shape{2, 3}, []int{0, 0}, []int{2, 3})
		}), bad: byWhom{tape: "op AvgPool"}},
		{name: "AveragePool1D", shapes: inputs(dims(1, 2, 1, 6)), at: anywhere, apply: unary(func(x *G.Node) (*G.Node, error) { return G.AveragePool1D(x, 2, 0, 2) })},
		{name: "GlobalAveragePool2D", shapes: inputs(dims(2, 3, 4, 2)), at: anywhere, apply: unary(G.GlobalAveragePool2D), bad: byWhom{plain: "gorgonia: "}},
		{name: "BatchNorm in training", shapes: inputs(dims(2, 2, 3, 3), dims(1, 2, 1, 1), dims(1, 2, 1, 1)), at: positive, apply: normalized},
		{name: "Dropout of nothing", shapes: inputs(dims(2, 3)), at: anywhere, apply: unary(func(x *G.Node) (*G.Node, error) { return G.Dropout(x, 0) })},
	}
}
