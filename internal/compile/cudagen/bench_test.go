package cudagen

import (
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/tensor"
)

// BenchmarkSteps measures launches one after another; small ones show the cost of a launch. Bytes
// are those of Ins and Outs.
func BenchmarkSteps(b *testing.B) {
	one := bounds{-1, 1}
	add := []program.Instr{load(0), load(1), apply(program.Add, 0, 1), constant64(0), apply(program.Maximum, 2, 3)}
	for _, c := range []struct {
		name  string
		build func(x *builder)
	}{
		{"bias and relu 128x512", func(x *builder) { x.chainOf(add, 128, 512) }},
		{"bias and relu 8192x4096", func(x *builder) { x.chainOf(add, 8192, 4096) }},
		{"sum of columns 128x512", func(x *builder) { x.sumOf([]bool{true, false}, 128, 512) }},
		{"sum of columns 16384x1024", func(x *builder) { x.sumOf([]bool{true, false}, 16384, 1024) }},
		{"sum of rows 16384x1024", func(x *builder) { x.sumOf([]bool{false, true}, 16384, 1024) }},
		{"sum of all 4096x4096", func(x *builder) { x.sumOf([]bool{true, true}, 4096, 4096) }},
		{"transpose 4096x4096", func(x *builder) {
			in := program.View{Value: x.value(tensor.F32, one, 4096, 4096), Strides: []int{1, 4096}}
			x.step(&program.Map{Space: []int{4096, 4096}, Code: []program.Instr{load(0)}, Stores: []int{0}}, views(in), views(x.empty(tensor.F32, 4096, 4096)))
		}},
		{"adam of an MLP", func(x *builder) {
			rate := x.value(tensor.F32, one)
			for _, s := range [][]int{{784, 512}, {512}, {512, 512}, {512}, {512, 10}, {10}} {
				adam(x, rate, s)
			}
		}},
		{"softmax 16384x256", func(x *builder) {
			x.step(&program.Softmax{Outer: 16384, Axis: 256, Inner: 1}, views(x.whole(tensor.F32, one, 16384, 256, 1)), views(x.empty(tensor.F32, 16384, 256, 1)))
		}},
		{"cross entropy 128x10", func(x *builder) {
			y := func() program.View { return x.whole(tensor.F32, one, 128, 10) }
			x.step(&program.CrossEntropy{Rows: 128, Classes: 10}, views(y(), y()), views(x.empty(tensor.F32), y()))
		}},
		{"gradient of 4096 of 30000 rows of 256", func(x *builder) {
			x.step(&program.GatherGrad{Outer: 1, Axis: 30000, Inner: 256, Count: 4096},
				views(x.whole(tensor.F32, one, 1, 4096, 256), x.whole(tensor.I32, bounds{0, 29999}, 4096)), views(x.empty(tensor.F32, 1, 30000, 256)))
		}},
		{"max pooling 128x32x28x28", func(x *builder) {
			w := program.Window{N: 128, C: 32, H: 28, W: 28, R: 2, S: 2, StrideH: 2, StrideW: 2, DilationH: 1, DilationW: 1, OutH: 14, OutW: 14}
			x.step(&program.MaxPool{Window: w}, views(x.whole(tensor.F32, one, 128, 32, 28, 28)), views(x.empty(tensor.F32, 128, 32, 14, 14)))
		}},
		{"gradient of max pooling 256x32x28x28", func(x *builder) { x.poolingOf(square(256, 32, 28, 28, 2, 0, 2, 1)) }},
		{"gradient of max pooling 256x64x14x14", func(x *builder) { x.poolingOf(square(256, 64, 14, 14, 2, 0, 2, 1)) }},
		{"convolution 256x1x28x28 by 32x3x3", func(x *builder) {
			w := square(256, 1, 28, 28, 3, 1, 1, 1)
			x.step(&program.Conv{Window: w, K: 32}, views(x.whole(tensor.F32, one, 256, 1, 28, 28), x.whole(tensor.F32, one, 32, 1, 3, 3)),
				views(x.empty(tensor.F32, 256, 32, 28, 28)))
		}},
		{"gradient of 32x3x3 from 256x1x28x28", func(x *builder) {
			w := square(256, 1, 28, 28, 3, 1, 1, 1)
			x.step(&program.ConvGradFilter{Window: w, K: 32}, views(x.whole(tensor.F32, one, 256, 1, 28, 28), x.whole(tensor.F32, one, 256, 32, 28, 28)),
				views(x.empty(tensor.F32, 32, 1, 3, 3)))
		}},
		{"convolution 128x32x28x28 by 64x3x3", func(x *builder) {
			w := program.Window{
				N: 128, C: 32, H: 28, W: 28, R: 3, S: 3, PadH: 1, PadW: 1, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1, OutH: 28, OutW: 28,
			}
			x.step(&program.Conv{Window: w, K: 64}, views(x.whole(tensor.F32, one, 128, 32, 28, 28), x.whole(tensor.F32, one, 64, 32, 3, 3)),
				views(x.empty(tensor.F32, 128, 64, 28, 28)))
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			v := cudatest.Devices(b, 1)[0]
			x := newBuilder("bench")
			c.build(x)
			l := x.load(b, v, x.target())
			l.run(b)
			b.SetBytes(x.bytes())
			for b.Loop() {
				l.launch(b)
			}
			if err := l.s.Synchronize(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// chainOf is code on a matrix and a row, broadcast.
func (b *builder) chainOf(code []program.Instr, shape ...int) {
	b.step(&program.Map{Space: shape, Code: code, Stores: []int{len(code) - 1}},
		views(b.whole(tensor.F32, bounds{-1, 1}, shape...), b.broadcast(tensor.F32, bounds{-1, 1}, shape, 1)), views(b.empty(tensor.F32, shape...)))
}

// sumOf is the sum of a matrix over some axes.
func (b *builder) sumOf(reduced []bool, rows, columns int) {
	out, n := program.View{Strides: []int{0, 0}}, 1
	if !reduced[1] {
		out.Strides[1], n = 1, columns
	} else if !reduced[0] {
		out.Strides[0], n = 1, rows
	}
	out.Value = b.value(tensor.F32, bounds{}, n)
	b.step(&program.Reduce{Space: []int{rows, columns}, Reduced: reduced, Code: []program.Instr{load(0)}},
		views(b.whole(tensor.F32, bounds{-1, 1}, rows, columns)), views(out))
}

// poolingOf is the gradient of a MaxPool.
func (b *builder) poolingOf(w program.Window) {
	x, y := []int{w.N, w.C, w.H, w.W}, []int{w.N, w.C, w.OutH, w.OutW}
	one := bounds{-1, 1}
	b.step(&program.MaxPoolGrad{Window: w}, views(b.whole(tensor.F32, one, x...), b.whole(tensor.F32, one, y...), b.whole(tensor.F32, one, y...)),
		views(b.empty(tensor.F32, x...)))
}

// bytes is how much the steps read and write, each value once for each step.
func (b *builder) bytes() int64 {
	var n int64
	for i := range b.p.Steps {
		for _, v := range append(views(b.p.Steps[i].In...), b.p.Steps[i].Out...) {
			n += b.p.Values[v.Value].Bytes()
		}
	}
	return n
}
