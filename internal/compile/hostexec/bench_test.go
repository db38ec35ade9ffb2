package hostexec

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/host/blas"
	"github.com/symgrad/symgrad/tensor"
	gblas "gonum.org/v1/gonum/blas"
)

// runner of a program whose Outside values hold small numbers.
func benchRunner(b *testing.B, p *program.Program, cfg Config, l *level) program.Runner {
	b.Helper()
	r, err := load(p, cfg, program.Env{}, l)
	if err != nil {
		b.Fatal(err)
	}
	i := 0
	bindAll(b, r, p, contents(p, func() float64 { i++; return float64(i%7)/8 - 0.3 }))
	if err := r.Run(); err != nil {
		b.Fatal(err)
	}
	return r
}

func run(b *testing.B, r program.Runner) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Run(); err != nil {
			b.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkMatMul is the same products by this package, by gonum and by the library that is
// installed.
func BenchmarkMatMul(b *testing.B) {
	shapes := []struct {
		m, n, k int
		ta, tb  bool
	}{
		{128, 512, 784, false, false},
		{784, 512, 128, true, false},
		{128, 784, 512, false, true},
		{128, 10, 512, false, false},
		{512, 512, 512, false, false},
		{32, 32, 64, false, false},
		{1024, 1024, 1024, false, false},
		{256, 256, 2048, true, false},
		{128, 32, 128, true, false},
		{128, 32, 128, false, false},
		{2048, 256, 1024, false, true},
	}
	crews := []int{1, 2}
	if n := runtime.NumCPU(); n > 2 {
		crews = append(crews, n)
	}
	for _, s := range shapes {
		name := fmt.Sprintf("%dx%dx%d,ta=%v,tb=%v", s.m, s.n, s.k, s.ta, s.tb)
		flop := 2 * float64(s.m) * float64(s.n) * float64(s.k)
		rate := func(b *testing.B) {
			b.ReportMetric(flop*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		}
		for _, threads := range crews {
			for _, l := range []string{"avx512", "avx2"} {
				v, ok := variants()[l]
				if !ok {
					continue
				}
				b.Run(fmt.Sprintf("%s/ours/%s/threads=%d", name, l, threads), func(b *testing.B) {
					t := newBuild()
					t.step(&program.MatMul{Batch: 1, M: s.m, N: s.n, K: s.k, Alpha: 1}, views(
						matrixView(t, tensor.F32, 1, s.m, s.k, 0, s.ta, false), matrixView(t, tensor.F32, 1, s.k, s.n, 0, s.tb, false),
					), views(matrixView(t, tensor.F32, 1, s.m, s.n, 0, false, false)))
					run(b, benchRunner(b, &t.Program, Config{Threads: threads}, v))
					rate(b)
				})
			}
		}
		x, y, z := make([]float32, s.m*s.k), make([]float32, s.k*s.n), make([]float32, s.m*s.n)
		foreign := func(b *testing.B, impl *blas.Implementation) {
			ta, tb, lda, ldb := gblas.NoTrans, gblas.NoTrans, s.k, s.n
			if s.ta {
				ta, lda = gblas.Trans, s.m
			}
			if s.tb {
				tb, ldb = gblas.Trans, s.k
			}
			for i := range x {
				x[i] = 0.5
			}
			for b.Loop() {
				impl.Sgemm(ta, tb, s.m, s.n, s.k, 1, x, lda, y, ldb, 0, z, s.n)
			}
			rate(b)
		}
		b.Run(name+"/gonum", func(b *testing.B) {
			impl, err := blas.Open(blas.Config{Disable: true})
			if err != nil {
				b.Fatal(err)
			}
			foreign(b, impl)
		})
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/library/threads=%d", name, threads), func(b *testing.B) { foreign(b, library(b, threads)) })
		}
	}
}

type scene struct {
	name  string
	bytes int64 // that are read or written, each once
	build *build
}

func mapScene(name string, space []int, code []program.Instr, stores []int, ins, outs []program.View, b *build) scene {
	b.step(&program.Map{Space: space, Code: code, Stores: stores}, ins, outs)
	bytes := int64(0)
	for i := range b.Values {
		bytes += b.Values[i].Bytes()
	}
	return scene{name, bytes, b}
}

// adam is the code of an Adam step of w, g, m, v.
func adam() []program.Instr {
	i := func(op program.Scalar, a, b int) program.Instr { return program.Instr{Op: op, A: a, B: b} }
	c := func(x float64) program.Instr { return program.Instr{Op: program.Const, Value: x} }
	return []program.Instr{
		i(program.Load, 0, 0), i(program.Load, 1, 0), i(program.Load, 2, 0), i(program.Load, 3, 0), // w g m v
		c(0.9), c(0.1), c(0.999), c(0.001), c(1e-8), c(1e-3),
		i(program.Mul, 2, 4), i(program.Mul, 1, 5), i(program.Add, 10, 11), // 12 m
		i(program.Mul, 3, 6), i(program.Square, 1, 0), i(program.Mul, 14, 7), i(program.Add, 13, 15), // 16 v
		i(program.Sqrt, 16, 0), i(program.Add, 17, 8), i(program.Div, 12, 18), i(program.Mul, 19, 9), i(program.Sub, 0, 20), // 21 w
	}
}

func mapScenes() []scene {
	const m, n = 512, 1024
	i := func(op program.Scalar, a, b int) program.Instr { return program.Instr{Op: op, A: a, B: b} }
	load := func(k int) []program.Instr {
		var code []program.Instr
		for j := range k {
			code = append(code, i(program.Load, j, 0))
		}
		return code
	}
	sp := []int{m, n}
	v := func(b *build) program.View { return b.value("v", tensor.F32, m, n) }
	var all []scene
	b := newBuild()
	all = append(all, mapScene("add", sp, append(load(2), i(program.Add, 0, 1)), []int{2}, views(v(b), v(b)), views(v(b)), b))
	b = newBuild()
	bias := b.value("b", tensor.F32, n)
	bias.Strides = []int{0, 1}
	all = append(all, mapScene("biasrelu", sp, append(load(2), i(program.Add, 0, 1), program.Instr{Op: program.Const}, i(program.Maximum, 2, 3)), []int{4}, views(v(b), bias), views(v(b)), b))
	b = newBuild()
	all = append(all, mapScene("relugrad", sp, append(load(2), program.Instr{Op: program.Const}, i(program.Greater, 0, 2), i(program.Mul, 1, 3)), []int{4}, views(v(b), v(b)), views(v(b)), b))
	b = newBuild()
	w, mm, vv := v(b), v(b), v(b)
	all = append(all, mapScene("adam", sp, adam(), []int{21, 12, 16}, views(w, v(b), mm, vv), views(w, mm, vv), b))
	for name, op := range map[string]program.Scalar{"exp": program.Exp, "tanh": program.Tanh} {
		b = newBuild()
		all = append(all, mapScene(name, sp, append(load(1), i(op, 0, 0)), []int{1}, views(v(b)), views(v(b)), b))
	}
	b = newBuild()
	t := b.value("t", tensor.F32, n, m)
	t.Strides = []int{1, m}
	all = append(all, mapScene("transpose", sp, load(1), []int{0}, views(t), views(v(b)), b))
	b = newBuild()
	b.clock()
	all = append(all, mapScene("dropout", sp, append(load(1), program.Instr{Op: program.Rand, Key: 3, PerUnit: n}, program.Instr{Op: program.Const, Value: 0.5}, i(program.Less, 1, 2), i(program.Mul, 0, 3)), []int{4}, views(v(b)), views(v(b)), b))
	b = newBuild()
	all = append(all, mapScene("fromhalf", sp, load(1), []int{0}, views(b.value("h", tensor.BF16, m, n)), views(v(b)), b))
	return all
}

func BenchmarkMap(b *testing.B) { scenes(b, mapScenes()) }

func scenes(b *testing.B, all []scene) {
	for _, s := range all {
		for _, threads := range []int{1, 2} {
			for _, name := range []string{"avx512", "avx2", "plain"} {
				l, ok := variants()[name]
				if !ok || name == "plain" && threads > 1 {
					continue
				}
				b.Run(fmt.Sprintf("%s/%s/threads=%d", s.name, name, threads), func(b *testing.B) {
					b.SetBytes(s.bytes)
					run(b, benchRunner(b, &s.build.Program, Config{Threads: threads}, l))
				})
			}
		}
	}
}

func BenchmarkReduce(b *testing.B) {
	var all []scene
	for name, reduced := range map[string][]bool{"last": {false, true}, "first": {true, false}, "all": {true, true}} {
		for _, space := range [][]int{{512, 1024}, {128, 512}, {128, 10}} {
			t := newBuild()
			x := t.value("x", tensor.F32, space...)
			y := program.View{Value: t.value("y", tensor.F32, space...).Value, Strides: []int{0, 0}}
			if !reduced[0] {
				y.Strides[0] = 1
			}
			if !reduced[1] {
				y.Strides[1] = 1
			}
			t.step(&program.Reduce{Space: space, Reduced: reduced, Code: loadAndAdd[:1]}, views(x), views(y))
			all = append(all, scene{fmt.Sprintf("%s/%dx%d", name, space[0], space[1]), int64(4 * space[0] * space[1]), t})
		}
	}
	scenes(b, all)
}

func BenchmarkImages(b *testing.B) {
	var all []scene
	w := program.Window{N: 64, C: 8, H: 12, W: 12, R: 5, S: 5, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1, OutH: 8, OutW: 8}
	p := program.Window{N: 64, C: 8, H: 24, W: 24, R: 2, S: 2, StrideH: 2, StrideW: 2, DilationH: 1, DilationW: 1, OutH: 12, OutW: 12}
	for k, name := range []string{"conv", "convgradinput", "convgradfilter", "im2col", "col2im"} {
		t := newBuild()
		windowSteps(t, w, 16, tensor.F32)
		t.Steps = t.Steps[k : k+1]
		all = append(all, scene{name, 1, t})
	}
	for k, name := range []string{"maxpool", "maxpoolgrad", "avgpool", "avgpoolgrad"} {
		t := newBuild()
		windowSteps(t, p, 16, tensor.F32)
		t.Steps = t.Steps[5+k : 6+k]
		all = append(all, scene{name, 1, t})
	}
	t := newBuild()
	t.step(&program.CrossEntropy{Rows: 128, Classes: 10}, views(t.value("x", tensor.F32, 128, 10), t.value("t", tensor.F32, 128, 10)), views(t.value("l", tensor.F32), t.value("d", tensor.F32, 128, 10)))
	all = append(all, scene{"crossentropy", 1, t})
	t = newBuild()
	t.step(&program.Softmax{Outer: 512, Axis: 64, Inner: 1}, views(t.value("x", tensor.F32, 512, 64, 1)), views(t.value("t", tensor.F32, 512, 64, 1)))
	all = append(all, scene{"softmax", 1, t})
	t = newBuild()
	image := func() program.View { return t.value("i", tensor.F32, 64, 8, 576) }
	stat := func() program.View { return t.value("s", tensor.F32, 8) }
	t.step(&program.BatchNorm{N: 64, C: 8, Spatial: 576, Epsilon: 1e-5, Training: true}, views(image(), stat(), stat()), views(image(), stat(), stat(), stat(), stat()))
	t.Steps[0].Out[3], t.Steps[0].Out[4] = t.Steps[0].In[1], t.Steps[0].In[2]
	all = append(all, scene{"batchnorm", 1, t})
	scenes(b, all)
}
