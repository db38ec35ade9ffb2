package cudagen

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// A case is a program of many steps of one kind. Those of GPU tests are compiled at once.
var cases = []struct {
	name  string
	build func() *builder
}{
	{"scalars", scalarCases},
	{"maps", mapCases},
	{"views", viewCases},
	{"merged", mergedCases},
	{"random", randCases},
	{"reductions", reduceCases},
	{"rows", rowCases},
	{"along", alongCases},
	{"chains", chainCases},
	{"pools", poolCases},
	{"apart", apartCases},
	{"attention", attentionCases},
	{"gathers", gatherCases},
	{"integers", integerCases},
	{"norms", normCases},
	{"convolutions", convCases},
	{"thin", thinCases},
	{"products", productCases},
	{"guards", guardCases},
	{"any", anyCases},
}

var floats = []tensor.DType{tensor.F32, tensor.F64, tensor.F16, tensor.BF16}

// domains are the arguments that an operation is tested on; -3 to 3 for the rest.
var domains = map[program.Scalar]bounds{
	program.Log: {0.01, 9}, program.Log2: {0.01, 9}, program.Log1p: {-0.9, 9}, program.Sqrt: {0, 9}, program.Rsqrt: {0.05, 9},
	program.Inverse: {0.2, 3}, program.Pow: {0.1, 3}, program.Div: {0.3, 3}, program.Exp: {-5, 3}, program.Expm1: {-2, 2},
	program.Ceil: {-9, 9}, program.Floor: {-9, 9},
}

// scalarCases is each operation, and each dtype.
func scalarCases() *builder {
	b := newBuilder("scalars")
	for op := program.Neg; op <= program.Select; op++ {
		bound, ok := domains[op]
		if !ok {
			bound = bounds{-3, 3}
		}
		for _, dt := range []tensor.DType{tensor.F32, tensor.F64} {
			code := []program.Instr{load(0), load(1), load(2), apply(op, 0, 1, 2)}
			if op >= program.Less && op <= program.NotEqual {
				code = []program.Instr{load(0), load(1), load(2), apply(program.Floor, 0), apply(program.Floor, 1), apply(op, 3, 4)}
			}
			in := views(b.whole(dt, bound, 97), b.whole(dt, bound, 97), b.whole(dt, bound, 97))
			b.step(&program.Map{Space: []int{97}, Code: code, Stores: []int{len(code) - 1}}, in, views(b.empty(dt, 97)))
		}
	}
	for _, from := range tensor.DTypes() {
		for _, to := range tensor.DTypes() {
			in := views(b.whole(from, bounds{-300, 300}, 40), b.whole(from, bounds{0, 5}, 40))
			code := []program.Instr{load(0), load(1), apply(program.Add, 0, 1)}
			b.step(&program.Map{Space: []int{40}, Code: code, Stores: []int{2}}, in, views(b.empty(to, 40)))
		}
		b.step(&program.Map{Space: []int{1003}, Code: []program.Instr{load(0)}, Stores: []int{0}},
			views(b.whole(from, bounds{-9e18, 9e18}, 1003)), views(b.empty(from, 1003)))
	}
	return b
}

// mapCases is chains with several Outs, in place, of sizes that are wide and that are not.
func mapCases() *builder {
	b := newBuilder("maps")
	code := []program.Instr{
		load(0), load(1), load(2), constant64(0.9), apply(program.Mul, 0, 3), apply(program.Add, 4, 1), apply(program.Tanh, 5),
		apply(program.Mul, 6, 2), constant64(1e-7), apply(program.Add, 7, 8), apply(program.Sqrt, 3), apply(program.Mul, 9, 10),
	}
	for _, dt := range floats {
		for _, space := range [][]int{{1}, {7}, {512}, {130, 514}, {1 << 19}, {3, 700001}} {
			n := 1
			for _, d := range space {
				n *= d
			}
			scalar := program.View{Value: b.value(dt, bounds{0.5, 1}), Strides: make([]int, len(space))}
			x := b.whole(dt, bounds{-1, 1}, space...)
			in := views(x, b.broadcast(dt, bounds{-1, 1}, space, len(space)-1), scalar)
			b.step(&program.Map{Space: space, Code: code, Stores: []int{5, 11, 0}}, in, views(x, b.empty(dt, space...), b.empty(dt, space...)))
		}
	}
	b.step(&program.Map{Space: []int{0, 5}, Code: []program.Instr{constant64(1)}, Stores: []int{0}}, nil, views(b.empty(tensor.F32, 0, 5)))
	b.step(&program.Map{Space: []int{300, 5}, Code: []program.Instr{constant64(-0.1)}, Stores: []int{0}}, nil, views(b.empty(tensor.F32, 300, 5)))
	return b
}

// viewCases is transposes, slices, broadcasts in the middle, backwards, and addresses that are not
// aligned.
func viewCases() *builder {
	b := newBuilder("views")
	add := []program.Instr{load(0), load(1), apply(program.Sub, 0, 1)}
	pair := func(dt tensor.DType, space []int, x, y program.View) {
		b.step(&program.Map{Space: space, Code: add, Stores: []int{2}}, views(x, y), views(b.empty(dt, space...)))
	}
	one := bounds{-1, 1}
	for _, dt := range floats {
		for _, s := range [][2]int{{5, 3}, {64, 96}, {33, 130}, {700, 500}} {
			m, n := s[0], s[1]
			pair(dt, []int{m, n}, program.View{Value: b.value(dt, one, n, m), Strides: []int{1, m}}, b.whole(dt, one, m, n))
			pair(dt, []int{m, n}, program.View{Value: b.value(dt, one, m, n+8), Offset: 4, Strides: []int{n + 8, 1}},
				program.View{Value: b.value(dt, one, m, 1), Strides: []int{1, 0}})
			pair(dt, []int{m, n}, program.View{Value: b.value(dt, one, m*n+1), Offset: 1, Strides: []int{n, 1}},
				program.View{Value: b.value(dt, one, m, n), Offset: m*n - 1, Strides: []int{-n, -1}})
			b.step(&program.Map{Space: []int{m, n}, Code: []program.Instr{load(0)}, Stores: []int{0}},
				views(b.whole(dt, one, m, n)), views(program.View{Value: b.value(dt, one, n, m), Strides: []int{1, m}}))
		}
		pair(dt, []int{2, 3, 20, 24}, program.View{Value: b.value(dt, one, 2, 20, 24, 3), Strides: []int{20 * 24 * 3, 1, 24 * 3, 3}},
			program.View{Value: b.value(dt, one, 3), Strides: []int{0, 1, 0, 0}})
		pair(dt, []int{4, 40, 6, 36}, program.View{Value: b.value(dt, one, 4, 6, 40, 36), Strides: []int{6 * 40 * 36, 36, 40 * 36, 1}},
			program.View{Value: b.value(dt, one, 4, 36, 6, 40), Strides: []int{36 * 240, 1, 40, 240}})
		pair(dt, []int{6, 2, 32}, program.View{Value: b.value(dt, one, 6, 64), Offset: 32, Strides: []int{64, -32, 1}}, b.whole(dt, one, 6, 2, 32))
		pair(dt, []int{30, 40, 50}, program.View{Value: b.value(dt, one, 50, 40, 30), Strides: []int{1, 30, 1200}},
			program.View{Value: b.value(dt, one, 40, 50), Strides: []int{0, 50, 1}})
	}
	return b
}

// mergedCases is updates as an optimizer makes them, some of which need each other.
func mergedCases() *builder {
	b := newBuilder("merged")
	rate := b.value(tensor.F32, bounds{0.1, 0.2})
	for _, shape := range [][]int{{784, 512}, {512}, {512, 512}, {512}, {512, 10}, {10}, {3, 3}, {1}} {
		adam(b, rate, shape)
	}
	w := b.p.Steps[0].Out[0] // written before
	code := []program.Instr{load(0), apply(program.Neg, 0)}
	b.step(&program.Map{Space: []int{784, 512}, Code: code, Stores: []int{1}}, views(w), views(b.empty(tensor.F32, 784, 512)))
	for range 40 { // more arguments than one kernel takes
		adam(b, rate, []int{24})
	}
	return b
}

// adam adds one update of Adam.
func adam(b *builder, rate program.ID, shape []int) {
	code := []program.Instr{
		load(0), load(1), load(2), load(3), load(4), // w, g, m, v, rate
		constant64(0.9), apply(program.Mul, 2, 5), constant64(0.1), apply(program.Mul, 1, 7), apply(program.Add, 6, 8),
		constant64(0.999), apply(program.Mul, 3, 10), apply(program.Square, 1), constant64(0.001), apply(program.Mul, 12, 13), apply(program.Add, 11, 14),
		apply(program.Sqrt, 15), constant64(1e-8), apply(program.Add, 16, 17), apply(program.Div, 9, 18), apply(program.Mul, 19, 4), apply(program.Sub, 0, 20),
	}
	w, g := b.whole(tensor.F32, bounds{-1, 1}, shape...), b.whole(tensor.F32, bounds{-1, 1}, shape...)
	m, v := b.whole(tensor.F32, bounds{-1, 1}, shape...), b.whole(tensor.F32, bounds{0.1, 1}, shape...)
	r := program.View{Value: rate, Strides: make([]int, len(shape))}
	b.step(&program.Map{Space: shape, Code: code, Stores: []int{21, 9, 15}}, views(w, g, m, v, r), views(w, m, v))
}

// randCases is random numbers, at the clock of a later step on a later rank.
func randCases() *builder {
	b := newBuilder("random")
	b.clock(1<<33+5, 1<<20+3)
	for _, space := range [][]int{{64, 100}, {17, 3}, {1 << 19}} {
		n := space[len(space)-1]
		code := []program.Instr{
			{Op: program.Rand, Key: 0x9e3779b97f4a7c15, PerUnit: n},
			constant64(0.5), apply(program.Less, 0, 1), load(0),
			apply(program.Mul, 2, 3),
			{Op: program.Rand, Key: 3, PerUnit: n},
		}
		for _, dt := range []tensor.DType{tensor.F32, tensor.F64} {
			b.step(&program.Map{Space: space, Code: code, Stores: []int{4, 0, 5}}, views(b.whole(dt, bounds{-1, 1}, space...)),
				views(b.empty(dt, space...), b.empty(dt, space...), b.empty(dt, space...)))
		}
	}
	space := []int{40, 50} // stored transposed, and reduced
	b.step(&program.Map{Space: space, Code: []program.Instr{{Op: program.Rand, Key: 7, PerUnit: 50}}, Stores: []int{0}}, nil,
		views(program.View{Value: b.value(tensor.F32, bounds{}, 50, 40), Strides: []int{1, 40}}))
	b.step(&program.Reduce{Space: space, Reduced: []bool{true, false}, Code: []program.Instr{{Op: program.Rand, Key: 7, PerUnit: 50}}}, nil,
		views(program.View{Value: b.value(tensor.F32, bounds{}, 50), Strides: []int{0, 1}}))
	return b
}

// reduceCases is rows, columns, planes and all, of sums and maxima, fused with a product.
func reduceCases() *builder {
	b := newBuilder("reductions")
	code := []program.Instr{load(0), load(1), apply(program.Mul, 0, 1)}
	for _, c := range []struct {
		space   []int
		reduced []bool
	}{
		{[]int{128, 512}, []bool{true, false}},
		{[]int{128, 10}, []bool{true, false}},
		{[]int{128, 10}, []bool{false, true}},
		{[]int{1000, 513}, []bool{false, true}},
		{[]int{3, 5000}, []bool{false, true}},
		{[]int{40000, 7}, []bool{true, false}},
		{[]int{300, 400}, []bool{true, true}},
		{[]int{700000}, []bool{true}},
		{[]int{8, 6, 14, 14}, []bool{true, false, true, true}},
		{[]int{8, 6, 14, 14}, []bool{false, true, false, false}},
		{[]int{8, 6, 14, 14}, []bool{false, true, false, true}},
		{[]int{5, 0, 3}, []bool{false, true, false}},
		{[]int{9, 1, 3}, []bool{false, true, false}},
		{[]int{1}, []bool{true}},
	} {
		for k, dt := range floats {
			red := []program.Reduction{program.Sum, program.Max}[k%2]
			out := program.View{Strides: make([]int, len(c.space))}
			kept := 1
			for d, size := range slices.Backward(c.space) {
				if !c.reduced[d] {
					out.Strides[d] = kept
					kept *= size
				}
			}
			out.Value = b.value(dt, bounds{7, 7}, kept)
			in := views(b.whole(dt, bounds{-1, 1}, c.space...), b.broadcast(dt, bounds{0, 1}, c.space, len(c.space)-1))
			b.step(&program.Reduce{Space: c.space, Reduced: c.reduced, Red: red, Code: code}, in, views(out))
			out.Value = b.value(dt, bounds{7, 7}, kept)
			b.step(&program.Reduce{Space: c.space, Reduced: c.reduced, Red: 1 - red, Code: code}, in, views(out))
		}
	}
	return b
}

// rowCases is softmax, its gradients, and cross entropy.
func rowCases() *builder {
	b := newBuilder("rows")
	one := bounds{-2, 2}
	for _, dt := range floats {
		for _, s := range some(dt, 3, [][3]int{{2, 300, 1}, {4, 9, 30}, {128, 10, 1}, {6, 77, 1}, {500, 64, 1}, {3, 5000, 1}, {1, 1, 1}}) {
			for _, log := range []bool{false, true} {
				x := func() program.View { return b.whole(dt, one, s[:]...) }
				b.step(&program.Softmax{Outer: s[0], Axis: s[1], Inner: s[2], Log: log}, views(x()), views(x()))
				y := b.whole(dt, bounds{-1, 0}, s[:]...)
				b.step(&program.SoftmaxGrad{Outer: s[0], Axis: s[1], Inner: s[2], Log: log}, views(y, x()), views(x()))
			}
		}
		for _, s := range some(dt, 2, [][2]int{{128, 10}, {700, 65}, {1000, 10}, {5, 3000}}) {
			x := func() program.View { return b.whole(dt, one, s[:]...) }
			targets := b.whole(dt, bounds{0, 1 / float64(s[0]*s[1])}, s[:]...)
			b.step(&program.CrossEntropy{Rows: s[0], Classes: s[1]}, views(x(), targets), views(b.empty(dt), x()))
			b.step(&program.CrossEntropy{Rows: s[0], Classes: s[1]}, views(x(), targets), views(b.empty(dt)))
		}
		for k, s := range some(dt, 2, [][2]int{{128, 10}, {700, 64}, {5, 3000}, {40, 5001}, {1, 1}}) {
			labels := b.whole([]tensor.DType{tensor.I64, tensor.I32}[k%2], bounds{0, float64(s[1])}, s[0])
			if s[0] > 7 {
				program.SetElement(b.p.Values[labels.Value].DType, b.memory[labels.Value], 7, -100)
			}
			number := tensor.F32
			if dt == tensor.F64 {
				number = dt
			}
			op := &program.SparseCrossEntropy{Rows: s[0], Classes: s[1], Ignore: -100, Scale: 0.5}
			smooth := *op
			smooth.Smoothing = 0.1
			weight := b.whole(number, bounds{0.25, 0.25})
			x := b.whole(dt, bounds{-3, 3}, s[:]...)
			b.step(op, views(x, labels, weight), views(b.empty(number), b.empty(dt, s[:]...)))
			b.step(&smooth, views(x, labels, weight), views(b.empty(number)))
			b.step(&smooth, views(x, labels, weight), views(b.empty(number), x)) // in place
		}
	}
	return b
}

// windows is with and without overlap, padding, dilation.
func windows() []program.Window {
	all := []program.Window{
		{N: 3, C: 5, H: 12, W: 14, R: 2, S: 2, StrideH: 2, StrideW: 2, DilationH: 1, DilationW: 1},
		{N: 2, C: 3, H: 11, W: 9, R: 3, S: 3, PadH: 1, PadW: 1, StrideH: 2, StrideW: 1, DilationH: 1, DilationW: 1},
		{N: 2, C: 2, H: 13, W: 13, R: 3, S: 2, PadH: 2, PadW: 0, StrideH: 1, StrideW: 2, DilationH: 2, DilationW: 3},
	}
	for i := range all {
		w := &all[i]
		w.OutH = (w.H+2*w.PadH-w.DilationH*(w.R-1)-1)/w.StrideH + 1
		w.OutW = (w.W+2*w.PadW-w.DilationW*(w.S-1)-1)/w.StrideW + 1
	}
	return all
}

// poolCases is pooling, on numbers of which many are equal, and windows as rows.
func poolCases() *builder {
	b := newBuilder("pools")
	for _, dt := range floats {
		for _, w := range windows() {
			image := b.whole(dt, bounds{-4, 4}, w.N, w.C, w.H, w.W)
			data, size := b.memory[image.Value], b.p.Values[image.Value].Len()
			for i := range size { // small integers: ties
				program.SetElement(dt, data, i, float64(int(program.Element(dt, data, i))))
			}
			result := func() program.View { return b.whole(dt, bounds{-1, 1}, w.N, w.C, w.OutH, w.OutW) }
			like := func() program.View { return b.empty(dt, w.N, w.C, w.H, w.W) }
			y := result()
			b.step(&program.MaxPool{Window: w}, views(image), views(y))
			b.step(&program.MaxPoolGrad{Window: w}, views(image, y, result()), views(like()))
			b.step(&program.AvgPool{Window: w}, views(image), views(result()))
			b.step(&program.AvgPoolGrad{Window: w}, views(result()), views(like()))
			rows := func() program.View { return b.whole(dt, bounds{-1, 1}, w.N, w.OutH, w.OutW, w.C*w.R*w.S) }
			b.step(&program.Im2Col{Window: w}, views(image), views(rows()))
			b.step(&program.Col2Im{Window: w}, views(rows()), views(like()))
		}
	}
	return b
}

// gatherCases is more rows than indices and fewer, in all types of indices.
func gatherCases() *builder {
	b := newBuilder("gathers")
	for i, index := range tensor.DTypes() {
		dt := floats[i%len(floats)]
		for _, s := range [][4]int{{1, 7, 33, 300}, {1, 90, 64, 20}, {3, 50, 1, 9}, {2, 100, 70, 400}} {
			outer, axis, inner, count := s[0], s[1], s[2], s[3]
			indices := b.whole(index, bounds{0, float64(axis) - 1}, count)
			b.step(&program.Gather{Outer: outer, Axis: axis, Inner: inner, Count: count},
				views(b.whole(dt, bounds{-1, 1}, outer, axis, inner), indices), views(b.empty(dt, outer, count, inner)))
			b.step(&program.GatherGrad{Outer: outer, Axis: axis, Inner: inner, Count: count},
				views(b.whole(dt, bounds{-1, 1}, outer, count, inner), indices), views(b.empty(dt, outer, axis, inner)))
		}
	}
	return b
}

// normCases is few channels and many, of images and of rows.
func normCases() *builder {
	b := newBuilder("norms")
	for _, dt := range floats {
		stat := dt
		if dt.Size() == 2 {
			stat = tensor.F32
		}
		for _, s := range some(dt, 2, [][3]int{{16, 6, 576}, {128, 300, 1}, {3, 200, 49}, {2, 3, 5}, {700, 5, 1}}) {
			n, c, spatial := s[0], s[1], s[2]
			x := b.whole(dt, bounds{1, 3}, n, c, spatial)
			channel := func() program.View { return b.whole(stat, bounds{0.5, 1.5}, c) }
			like := func() program.View { return b.whole(dt, bounds{-1, 1}, n, c, spatial) }
			mean, rstd, runningMean, runningVar := channel(), channel(), channel(), channel()
			op := program.BatchNorm{N: n, C: c, Spatial: spatial, Momentum: 0.9, Epsilon: 1e-5, Unbias: 1.01}
			b.step(&op, views(x, runningMean, runningVar), views(like(), channel(), channel()))
			training := op
			training.Training = true
			b.step(&training, views(x, runningMean, runningVar), views(like(), mean, rstd, runningMean, runningVar))
			for _, live := range []bool{false, true} {
				b.step(&program.BatchNormGrad{N: n, C: c, Spatial: spatial, Training: live}, views(like(), x, mean, rstd), views(like()))
			}
		}
	}
	return b
}

// convCases is convolutions and their gradients.
func convCases() *builder {
	b := newBuilder("convolutions")
	one := bounds{-0.5, 0.5}
	for _, dt := range floats {
		for i, w := range some(dt, 2, append(windows()[1:], program.Window{
			N: 4, C: 12, H: 16, W: 16, R: 5, S: 5, PadH: 2, PadW: 2, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1, OutH: 16, OutW: 16,
		})) {
			k := []int{1, 40, 70}[i]
			w.C = 12 // fewer would be thin
			image := func() program.View { return b.whole(dt, one, w.N, w.C, w.H, w.W) }
			filter := func() program.View { return b.whole(dt, one, k, w.C, w.R, w.S) }
			result := func() program.View { return b.whole(dt, one, w.N, k, w.OutH, w.OutW) }
			b.step(&program.Conv{Window: w, K: k}, views(image(), filter()), views(result()))
			b.step(&program.ConvGradInput{Window: w, K: k}, views(result(), filter()), views(image()))
			b.step(&program.ConvGradFilter{Window: w, K: k}, views(image(), result()), views(filter()))
		}
	}
	return b
}

// productCases are products of matrices in all layouts.
func productCases() *builder {
	b := newBuilder("products")
	for _, dt := range floats {
		for i, s := range some(dt, 2, [][4]int{{1, 128, 10, 784}, {5, 33, 65, 40}, {1, 1, 1, 3000}, {2, 70, 130, 1}, {3, 17, 5, 0}}) {
			batch, m, n, k := s[0], s[1], s[2], s[3]
			for way := range 4 {
				a, c := b.whole(dt, bounds{-1, 1}, batch, m, k), b.whole(dt, bounds{-1, 1}, batch, k, n)
				if way&1 != 0 {
					a = program.View{Value: b.value(dt, bounds{-1, 1}, batch, k, m), Strides: []int{m * k, 1, m}}
				}
				if way&2 != 0 {
					c = program.View{Value: b.value(dt, bounds{-1, 1}, n, k), Strides: []int{0, 1, k}}
				}
				op := &program.MatMul{Batch: batch, M: m, N: n, K: k, Alpha: []float64{1, 0.5}[i%2], Beta: float64(way % 2)}
				b.step(op, views(a, c), views(b.whole(dt, bounds{-1, 1}, batch, m, n)))
			}
		}
	}
	return b
}

// some returns all of list for f32 and its first n for other types: code from templates does not
// depend on the type.
func some[T any](dt tensor.DType, n int, list []T) []T {
	if dt == tensor.F32 {
		return list
	}
	return list[:n]
}

// caseName is step i for messages.
func caseName(p *program.Program, i int) string {
	s := &p.Steps[i]
	var types []string
	for _, v := range append(slices.Clone(s.In), s.Out...) {
		types = append(types, p.Values[v.Value].DType.String())
	}
	return fmt.Sprintf("step %d %v %v", i, s.Op, types)
}
