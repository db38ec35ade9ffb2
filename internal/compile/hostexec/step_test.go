package hostexec

import (
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/host/blas"
	"github.com/symgrad/symgrad/tensor"
)

// network is the program of a training step of a perceptron: layers with biases, ReLU between them,
// cross entropy, and Adam.
func network(batch int, sizes ...int) *build {
	b := newBuild()
	state := func(shape ...int) [4]program.View { // weight, gradient, moments
		return [4]program.View{b.value("w", tensor.F32, shape...), b.value("g", tensor.F32, shape...), b.value("m", tensor.F32, shape...), b.value("v", tensor.F32, shape...)}
	}
	matrix := func(v program.View, transposed bool) program.View {
		shape := b.Values[v.Value].Shape
		v.Strides = []int{shape[0] * shape[1], shape[1], 1}
		if transposed {
			v.Strides = []int{shape[0] * shape[1], 1, shape[1]}
		}
		return v
	}
	matmul := func(m, n, k int, x, y, z program.View) {
		b.step(&program.MatMul{Batch: 1, M: m, N: n, K: k, Alpha: 1}, views(x, y), views(z))
	}
	value := func(shape ...int) program.View { return b.value("t", tensor.F32, shape...) }
	x, targets := []program.View{value(batch, sizes[0])}, value(batch, sizes[len(sizes)-1])
	var w, bias [][4]program.View
	relu := []program.Instr{{Op: program.Load, A: 0}, {Op: program.Load, A: 1}, {Op: program.Add, A: 0, B: 1}, {Op: program.Const}, {Op: program.Maximum, A: 2, B: 3}}
	for i := range len(sizes) - 1 {
		in, out := sizes[i], sizes[i+1]
		w, bias = append(w, state(in, out)), append(bias, state(out))
		y, z := value(batch, out), value(batch, out)
		matmul(batch, out, in, matrix(x[i], false), matrix(w[i][0], false), matrix(y, false))
		row := bias[i][0]
		row.Strides = []int{0, 1}
		code, store := relu, 4
		if i == len(sizes)-2 {
			code, store = relu[:3], 2
		}
		b.step(&program.Map{Space: []int{batch, out}, Code: code, Stores: []int{store}}, views(y, row), views(z))
		x = append(x, z)
	}
	last := len(sizes) - 1
	d := value(batch, sizes[last])
	b.step(&program.CrossEntropy{Rows: batch, Classes: sizes[last]}, views(x[last], targets), views(value(), d))
	for i := last - 1; i >= 0; i-- {
		in, out := sizes[i], sizes[i+1]
		matmul(in, out, batch, matrix(x[i], true), matrix(d, false), matrix(w[i][1], false))
		b.step(&program.Reduce{Space: []int{batch, out}, Reduced: []bool{true, false}, Code: loadAndAdd[:1]}, views(d), views(program.View{Value: bias[i][1].Value, Strides: []int{0, 1}}))
		if i > 0 {
			dx, next := value(batch, in), value(batch, in)
			matmul(batch, in, out, matrix(d, false), matrix(w[i][0], true), matrix(dx, false))
			b.step(&program.Map{Space: []int{batch, in}, Code: []program.Instr{{Op: program.Load, A: 0}, {Op: program.Load, A: 1}, {Op: program.Const}, {Op: program.Greater, A: 0, B: 2}, {Op: program.Mul, A: 1, B: 3}}, Stores: []int{4}}, views(x[i], dx), views(next))
			d = next
		}
	}
	for i := range w {
		for _, s := range [][4]program.View{w[i], bias[i]} {
			b.step(&program.Map{Space: b.Values[s[0].Value].Shape, Code: adam(), Stores: []int{21, 12, 16}}, views(s[:]...), views(s[0], s[2], s[3]))
		}
	}
	return b
}

func TestStepOfANetworkEqualsTheOracle(t *testing.T) {
	b := network(13, 20, 33, 5)
	i := 0
	agree(t, t, &b.Program, contents(&b.Program, func() float64 { i++; return float64(i%17)/40 + 0.01 }), 1e-5)
}

// BenchmarkStep is a step of a 784-512-512-10 perceptron on 128 samples, Adam included.
func BenchmarkStep(b *testing.B) {
	for _, threads := range []int{1, 2} {
		for name, l := range variants() {
			if l == nil {
				continue
			}
			b.Run(fmt.Sprintf("%s/threads=%d", name, threads), func(b *testing.B) {
				run(b, benchRunner(b, &network(128, 784, 512, 512, 10).Program, Config{Threads: threads}, l))
			})
			b.Run(fmt.Sprintf("%s/library/threads=%d", name, threads), func(b *testing.B) {
				var impl *blas.Implementation = library(b, threads)
				run(b, benchRunner(b, &network(128, 784, 512, 512, 10).Program, Config{Threads: threads, BLAS: impl}, l))
			})
		}
	}
}
