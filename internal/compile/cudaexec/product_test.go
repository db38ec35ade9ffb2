package cudaexec

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/cudagen"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cublas"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cudnn"
	"github.com/symgrad/symgrad/tensor"
)

func TestMatricesLieInRowsOrColumns(t *testing.T) {
	for _, tt := range []struct {
		strides    []int
		rows, cols int
		want       string
	}{
		{[]int{0, 5, 1}, 3, 5, "{false 5 0}"},
		{[]int{40, 8, 1}, 3, 5, "{false 8 40}"},
		{[]int{0, 1, 3}, 3, 5, "{true 3 0}"},
		{[]int{7, 1, 9}, 3, 5, "{true 9 7}"},
		{[]int{0, 99, 1}, 1, 5, "{false 5 0}"},
		{[]int{0, 0, 1}, 1, 5, "{false 5 0}"},
		{[]int{0, 1, 99}, 3, 1, "{false 1 0}"},
		{[]int{0, 4, 99}, 3, 1, "{false 4 0}"},
		{[]int{0, 99, 7}, 1, 5, "{true 7 0}"},
		{[]int{0, 0, 0}, 1, 1, "{false 1 0}"},
		{[]int{0, 1, 1}, 1, 1, "{false 1 0}"},
		{[]int{0, 0, 1}, 3, 5, "neither"},
		{[]int{0, 1, 0}, 3, 5, "neither"},
		{[]int{0, 2, 3}, 3, 5, "neither"},
		{[]int{0, 3, 1}, 3, 5, "neither"},
		{[]int{5, 1}, 3, 5, "want 3"},
	} {
		m, err := newMatrix(program.View{Strides: tt.strides}, tt.rows, tt.cols)
		got := fmt.Sprint(m)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%v of %d by %d: %s, want %s", tt.strides, tt.rows, tt.cols, got, tt.want)
		}
	}
}

// asked computes g in plain loops, as cuBLAS would.
func asked(g *cublas.Gemm, a, b, c []float64) {
	at := func(m []float64, trans bool, ld, i, j int) float64 {
		if trans {
			i, j = j, i
		}
		return m[i*ld+j]
	}
	for k := range max(g.Batch, 1) {
		x, y, z := a[k*int(g.StrideA):], b[k*int(g.StrideB):], c[k*int(g.StrideC):]
		for i := range g.M {
			for j := range g.N {
				sum := 0.0
				for l := range g.K {
					sum += at(x, g.TransA, g.LDA, i, l) * at(y, g.TransB, g.LDB, l, j)
				}
				z[i*g.LDC+j] = g.Alpha*sum + g.Beta*z[i*g.LDC+j]
			}
		}
	}
}

// lie is a view of (batch, rows, cols) by rows or columns, with gaps after each row, and the
// elements that it needs.
func lie(id program.ID, batch, rows, cols int, columns, shared bool) (program.View, int) {
	v := program.View{Value: id, Strides: []int{rows*cols + 20, cols, 1}}
	if columns {
		v.Strides = []int{rows*cols + 20, 1, rows}
	}
	if shared {
		v.Strides[0] = 0
	}
	return v, batch * (rows*cols + 20)
}

// The request to cuBLAS means the same as the step, in all layouts of the operands.
func TestProductsMeanTheirStep(t *testing.T) {
	const batch, m, n, k = 3, 4, 5, 6
	for mask := range 16 {
		p := &program.Program{Clock: program.None}
		a, na := lie(0, batch, m, k, mask&1 != 0, mask&8 != 0)
		b, nb := lie(1, batch, k, n, mask&2 != 0, false)
		c, nc := lie(2, batch, m, n, mask&4 != 0, false)
		data := make([][]float64, 3)
		for i, size := range []int{na, nb, nc} {
			p.Add(program.Value{DType: tensor.F64, Shape: []int{size}, Place: program.Outside})
			data[i] = make([]float64, size)
			for j := range data[i] {
				data[i][j] = float64((j*7+i*3)%11 - 5)
			}
		}
		op := &program.MatMul{Batch: batch, M: m, N: n, K: k, Alpha: 2, Beta: 1}
		p.Steps = []program.Step{{Op: op, In: views(a, b), Out: views(c)}}
		want := append([]float64(nil), data[2]...)
		for q := range batch {
			for i := range m {
				for j := range n {
					sum := 0.0
					for l := range k {
						sum += data[0][q*a.Strides[0]+i*a.Strides[1]+l*a.Strides[2]] * data[1][q*b.Strides[0]+l*b.Strides[1]+j*b.Strides[2]]
					}
					o := q*c.Strides[0] + i*c.Strides[1] + j*c.Strides[2]
					want[o] = 2*sum + want[o]
				}
			}
		}
		q, err := newProduct(p, 0, TF32)
		if err != nil {
			t.Fatal(err)
		}
		asked(&q.gemm, data[q.a.slot], data[q.b.slot], data[q.c.slot])
		for i := range want {
			if math.Abs(data[2][i]-want[i]) > 1e-9 {
				t.Fatalf("operands %04b: element %d is %v, want %v, by %+v", mask, i, data[2][i], want[i], q.gemm)
			}
		}
		if q.c.slot != 2 || q.gemm.Compute != cublas.Full || q.align != boundAlign {
			t.Errorf("operands %04b: %+v", mask, q)
		}
	}
}

// productOf is a MatMul of 2x3 by 3x4 with these types.
func productOf(a, b, c tensor.DType, op program.MatMul) *program.Program {
	p := &program.Program{Clock: program.None}
	for i, dt := range []tensor.DType{a, b, c} {
		p.Add(program.Value{Name: "v", DType: dt, Shape: [][]int{{2, 3}, {3, 4}, {2, 4}}[i], Offset: int64(256 * i)})
	}
	view := func(id program.ID, cols int) program.View { return program.View{Value: id, Strides: []int{0, cols, 1}} }
	p.Steps = []program.Step{{Name: "product", Op: &op, In: views(view(0, 3), view(1, 4)), Out: views(view(2, 4))}}
	return p
}

func TestTypesOfProducts(t *testing.T) {
	op := program.MatMul{Batch: 1, M: 2, N: 4, K: 3, Alpha: 1}
	for _, tt := range []struct {
		a, b, c tensor.DType
		compute Compute
		want    string
	}{
		{tensor.F32, tensor.F32, tensor.F32, F32, "gemm f32 2x4x3 nn"},
		{tensor.F32, tensor.F32, tensor.F32, TF32, "gemm f32 tf32 2x4x3 nn"},
		{tensor.F32, tensor.F32, tensor.F32, BF16, "gemm f32 fast-bf16 2x4x3 nn"},
		{tensor.F32, tensor.F32, tensor.F32, F16, "gemm f32 tf32 2x4x3 nn"},
		{tensor.F16, tensor.F16, tensor.F32, F16, "gemm f16 to f32 2x4x3 nn"},
		{tensor.BF16, tensor.BF16, tensor.BF16, TF32, "gemm bf16 2x4x3 nn"},
		{tensor.F16, tensor.F16, tensor.F32, F32, "gemm f16 to f32 2x4x3 nn"},
		{tensor.F64, tensor.F64, tensor.F64, TF32, "gemm f64 2x4x3 nn"},
	} {
		q, err := newProduct(productOf(tt.a, tt.b, tt.c, op), 0, tt.compute)
		if err != nil || q.gemm.String() != tt.want {
			t.Errorf("%v: %v, %v, want %s", tt, q, err, tt.want)
		}
	}
	for _, types := range [][3]tensor.DType{
		{tensor.F32, tensor.F64, tensor.F32}, {tensor.F64, tensor.F64, tensor.F32}, {tensor.I32, tensor.I32, tensor.I32}, {tensor.F32, tensor.F32, tensor.F16},
	} {
		_, err := newProduct(productOf(types[0], types[1], types[2], op), 0, F32)
		if !errors.Is(err, dl.ErrUnsupported) || !strings.Contains(err.Error(), `step 0 "product"`) {
			t.Errorf("%v: %v", types, err)
		}
	}
}

func TestProductsOfNothing(t *testing.T) {
	if q, err := newProduct(productOf(tensor.F32, tensor.F32, tensor.F32, program.MatMul{Batch: 1, M: 0, N: 4, K: 3}), 0, F32); q != nil || err != nil {
		t.Errorf("a product without elements: %v, %v", q, err)
	}
	q, err := newProduct(productOf(tensor.F32, tensor.F32, tensor.F32, program.MatMul{Batch: 1, M: 2, N: 4, K: 0}), 0, F32)
	if err != nil || q.clear != 32 {
		t.Errorf("a sum of no products: %+v, %v, want 32 B to be cleared", q, err)
	}
	q, err = newProduct(productOf(tensor.F32, tensor.F32, tensor.F32, program.MatMul{Batch: 1, M: 2, N: 4, K: 0, Beta: 1}), 0, F32)
	if err != nil || q.clear != 0 {
		t.Errorf("no products to be added: %+v, %v", q, err)
	}
	for _, tt := range []struct {
		batch   int
		strides []int
		clear   int64 // 0 where it is left to a kernel of ours
	}{
		{1, []int{0, 4, 1}, 32},
		{1, []int{0, 1, 2}, 32},
		{3, []int{8, 4, 1}, 96},
		{3, []int{8, 1, 2}, 96},
		{1, []int{0, 5, 1}, 0},
		{1, []int{0, 1, 3}, 0},
		{1, []int{0, 8, 1}, 0},
		{3, []int{9, 4, 1}, 0},
		{3, []int{8, 6, 1}, 0},
	} {
		p := productOf(tensor.F32, tensor.F32, tensor.F32, program.MatMul{Batch: tt.batch, M: 2, N: 4, K: 0})
		p.Steps[0].Out[0].Strides = tt.strides
		q, err := newProduct(p, 0, F32)
		if tt.clear == 0 && !errors.Is(err, dl.ErrUnsupported) || tt.clear > 0 && (err != nil || q.clear != tt.clear) {
			t.Errorf("a sum of no products to %d times 2 by 4 at strides %v: %+v, %v, want %d B to be cleared", tt.batch, tt.strides, q, err, tt.clear)
		}
	}
}

func TestAlignmentIsThatOfAllOperands(t *testing.T) {
	p := productOf(tensor.F32, tensor.F32, tensor.F32, program.MatMul{})
	p.Values[1].Offset, p.Values[2].Place = 64, program.Outside
	s := &p.Steps[0]
	for _, tt := range []struct{ offset, want int }{{0, 64}, {8, 32}, {1, 4}, {1024, 64}} {
		s.Out[0].Offset = tt.offset
		if got := alignOf(p, s.In[0], s.In[1], s.Out[0]); got != tt.want {
			t.Errorf("an offset of %d elements: %d, want %d", tt.offset, got, tt.want)
		}
	}
}

func TestConvolutionsAreAskedForAsTheyAre(t *testing.T) {
	w := program.Window{N: 2, C: 3, H: 8, W: 9, R: 3, S: 2, PadH: 1, PadW: 0, StrideH: 2, StrideW: 1, DilationH: 1, DilationW: 2, OutH: 4, OutW: 7}
	p := &program.Program{Clock: program.None}
	for range 3 {
		p.Add(program.Value{DType: tensor.F32, Shape: []int{1000}})
	}
	view := func(id program.ID) program.View { return program.View{Value: id, Offset: int(id), Strides: []int{1}} }
	cfg := &Config{Compute: BF16, Deterministic: true}
	for pass, op := range map[cudnn.Pass]program.Op{
		cudnn.Forward: &program.Conv{Window: w, K: 5}, cudnn.BackwardData: &program.ConvGradInput{Window: w, K: 5},
		cudnn.BackwardFilter: &program.ConvGradFilter{Window: w, K: 5},
	} {
		p.Steps = []program.Step{{Op: op, In: views(view(0), view(1)), Out: views(view(2))}}
		c := newConvolution(p, 0, cfg)
		want := "conv f32 tf32 2x3x8x9 * 5x3x3x2 pad 1x0 stride 2x1 dilation 1x2"
		if c == nil || c.desc.String() != want || c.desc.Passes != pass || !c.desc.Deterministic || c.b != (argument{1, 4}) {
			t.Errorf("%v: %+v, want %s", op, c, want)
		}
	}
	further := w
	further.OutH = 5 // padded more at the end than at the beginning
	p.Steps = []program.Step{{Op: &program.Conv{Window: further, K: 5}, In: views(view(0), view(1)), Out: views(view(2))}}
	if c := newConvolution(p, 0, cfg); c != nil {
		t.Errorf("cuDNN is asked for what it does not do: %v", c.desc)
	}
	p.Steps[0].Op, p.Values[0].DType = &program.Conv{Window: w, K: 5}, tensor.F16
	if c := newConvolution(p, 0, cfg); c != nil {
		t.Errorf("cuDNN is asked for two types: %v", c.desc)
	}
	p.Steps[0].Op = &program.Map{}
	if c := newConvolution(p, 0, cfg); c != nil {
		t.Errorf("a map is a convolution: %v", c.desc)
	}
}

// A library is not opened for a program whose convolutions all go to our kernels, even if its path
// is given.
func TestThinConvolutionsAreNotAskedFor(t *testing.T) {
	w := program.Window{N: 2, C: 1, H: 8, W: 8, R: 3, S: 3, PadH: 1, PadW: 1, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1, OutH: 8, OutW: 8}
	p := &program.Program{Clock: program.None}
	for range 3 {
		p.Add(program.Value{DType: tensor.F32, Shape: []int{1000}})
	}
	view := func(id program.ID) program.View { return program.View{Value: id, Strides: []int{1}} }
	for _, op := range []program.Op{&program.Conv{Window: w, K: 5}, &program.ConvGradFilter{Window: w, K: 5}} {
		p.Steps = append(p.Steps, program.Step{Op: op, In: views(view(0), view(1)), Out: views(view(2))})
	}
	on := []program.Stream{program.Compute, program.Compute}
	if v, err := newConvolutions(p, on, &Config{CUDNN: filepath.Join(t.TempDir(), "libcudnn.so")}, nil); v != nil || err != nil {
		t.Errorf("convolutions %v, %v, want none", v, err)
	}
}

// Every kernel of whole programs finds its arguments, and the programs of the tests on GPUs are
// ones that train.
func TestProgramsOfTheTestsAreWhole(t *testing.T) {
	for seed := range uint64(8) {
		b := newBuilder("random", seed)
		b.train(randomOptions(b.r)).plan(t, seed%2 == 0)
		own := make([]bool, len(b.p.Steps))
		for i := range own {
			own[i] = seed%3 == 0
		}
		_, steps, err := cudagen.Generate(b.p, cudagen.Target{SMs: 132, MaxThreads: 2048, Arch: 90, Own: own})
		if err != nil {
			t.Fatal(err)
		}
		l := newLayout(b.p, steps)
		kernels := 0
		for i := range steps {
			for k := range steps[i].Kernels {
				if _, err := resolve(b.p, &l, i, &steps[i].Kernels[k]); err != nil {
					t.Error(err)
				}
				kernels++
			}
			if q, ok := b.p.Steps[i].Op.(*program.MatMul); ok {
				if _, err := newProduct(b.p, i, F32); err != nil {
					t.Errorf("%v: %v", q, err)
				}
			}
		}
		memory := copied(b.memory)
		first, err := b.oracleRun(memory)
		if err != nil {
			t.Fatal(err)
		}
		last := first
		for range 10 {
			if last, err = b.oracleRun(memory); err != nil {
				t.Fatal(err)
			}
		}
		if kernels < 3 || math.IsNaN(last) || last == first {
			t.Errorf("seed %d: %d kernels, loss from %v to %v\n%v", seed, kernels, first, last, b.p)
		}
	}
	b, _, _ := lookup(t)
	if _, _, err := cudagen.Generate(b.p, cudagen.Target{}); err != nil {
		t.Error(err)
	}
}

func TestClockIsWhatRandomNumbersNeed(t *testing.T) {
	b := newBuilder("clock", 1).train(options{batch: 2, dims: []int{2, 2, 2}, dropout: true}).plan(t, false)
	if c, err := clockOf(b.p); err != nil || c != b.p.Clock {
		t.Errorf("got %d, %v, want %d", c, err, b.p.Clock)
	}
	b.p.Clock = b.x
	if _, err := clockOf(b.p); err == nil || !strings.Contains(err.Error(), `"activation0"`) || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("a clock that is none: %v", err)
	}
	b = newBuilder("none", 1).train(options{batch: 2, dims: []int{2, 2}}).plan(t, false)
	b.p.Clock = 0 // the value of programs without a clock
	if c, err := clockOf(b.p); err != nil || c != program.None {
		t.Errorf("a program without random numbers has clock %d, %v", c, err)
	}
}

func TestConfigsThatCannotBe(t *testing.T) {
	v := new(cuda.Device)
	for _, cfg := range []Config{
		{},
		{Device: v, Compute: 9},
		{Device: v, Tune: true, Deterministic: true},
		{Device: v, Arena: tensor.Of([]byte{1})},
		{Device: v, Symmetric: []tensor.Buffer{{}}},
	} {
		if _, err := New(&program.Program{}, cfg, program.Env{}); err == nil || !strings.Contains(err.Error(), "invalid argument") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	for _, c := range []Compute{F32, TF32, BF16, F16} {
		if got, err := ParseCompute(c.String()); got != c || err != nil {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
	if _, err := ParseCompute("f8"); err == nil || !strings.Contains(err.Error(), "f32, tf32, bf16, f16") {
		t.Errorf("f8: %v", err)
	}
}

func TestMemoryInHeapsIsKnown(t *testing.T) {
	v := new(cuda.Device)
	at := func(p uintptr, n int) tensor.Buffer {
		b, err := bufferAt(p, n, tensor.U8, v.Tensor())
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	cfg := Config{Device: v, Symmetric: []tensor.Buffer{at(1<<20, 4096), at(1<<24, 256)}}
	for _, tt := range []struct {
		b    tensor.Buffer
		want bool
	}{
		{at(1<<20, 4096), true}, {at(1<<20+4095, 1), true}, {at(1<<20+4095, 2), false}, {at(1<<20-1, 2), false}, {at(1<<24+16, 100), true}, {at(1<<24+256, 1), false},
	} {
		if got := cfg.symmetric(tt.b); got != tt.want {
			t.Errorf("%v at %#x: %t", tt.b, tt.b.Pointer(), got)
		}
	}
}
