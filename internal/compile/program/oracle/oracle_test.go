package oracle_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/oracle"
	"github.com/symgrad/symgrad/tensor"
)

// operand is an operand of a step, packed.
type operand struct {
	shape []int
	data  []float64
	dt    tensor.DType // zero means F64
}

func of(shape []int, data ...float64) operand { return operand{shape, data, tensor.F64} }

func (o operand) as(dt tensor.DType) operand { return operand{o.shape, o.data, dt} }

func (o operand) value(p *program.Program) program.View {
	id := p.Add(program.Value{Name: "v", DType: o.dt, Shape: o.shape, Place: program.Outside})
	return p.Whole(id)
}

func (o operand) bytes() []byte {
	b := make([]byte, len(o.data)*o.dt.Size())
	for i, x := range o.data {
		program.SetElement(o.dt, b, i, x)
	}
	return b
}

func numbers(dt tensor.DType, b []byte) []float64 {
	all := make([]float64, len(b)/dt.Size())
	for i := range all {
		all[i] = program.Element(dt, b, i)
	}
	return all
}

// near reports whether two numbers are equal except for a few roundings; NaN equals NaN.
func near(got, want float64) bool {
	return got == want || math.Abs(got-want) <= 1e-12*max(1, math.Abs(want)) && !math.IsInf(want, 0) || math.IsNaN(got) && math.IsNaN(want)
}

// runs runs one step and compares its results.
func runs(t *testing.T, op program.Op, in []operand, want ...operand) {
	t.Helper()
	p := &program.Program{Clock: program.None}
	memory := map[program.ID][]byte{}
	s := program.Step{Name: "step", Op: op}
	for _, o := range in {
		v := o.value(p)
		memory[v.Value] = o.bytes()
		s.In = append(s.In, v)
	}
	for _, o := range want {
		v := o.value(p)
		memory[v.Value] = make([]byte, len(o.bytes()))
		s.Out = append(s.Out, v)
	}
	if r, ok := op.(*program.Reduce); ok {
		s.Out[0].Strides = make([]int, len(r.Space))
		s.Out[0].Strides[0] = 1
	}
	p.Steps = []program.Step{s}
	if err := program.Validate(p); err != nil {
		t.Fatal(err)
	}
	if err := oracle.Run(p, memory); err != nil {
		t.Fatal(err)
	}
	for k, o := range want {
		got := numbers(o.dt, memory[s.Out[k].Value])
		for e := range got {
			if !near(got[e], o.data[e]) {
				t.Fatalf("%v: out %d is %v, want %v", op, k, got, o.data)
			}
		}
	}
}

func TestMap(t *testing.T) {
	code := []program.Instr{{Op: program.Load}, {Op: program.Load, A: 1}, {Op: program.Mul, A: 0, B: 1}, {Op: program.Const, Value: 1}, {Op: program.Sub, A: 2, B: 3}}
	runs(t, &program.Map{Space: []int{3}, Code: code, Stores: []int{4, 2}},
		[]operand{of([]int{3}, 1, 2, 3), of([]int{3}, 4, 5, 6)}, of([]int{3}, 3, 9, 17), of([]int{3}, 4, 10, 18))
}

func TestMapRoundsEachRegisterToF32(t *testing.T) {
	code := []program.Instr{{Op: program.Load}, {Op: program.Const, Value: 1}, {Op: program.Add, A: 0, B: 1}, {Op: program.Sub, A: 2, B: 1}}
	in := of([]int{1}, 1e-9)
	runs(t, &program.Map{Space: []int{1}, Code: code, Stores: []int{3}}, []operand{in.as(tensor.F32)}, of([]int{1}, 0).as(tensor.F32))
	runs(t, &program.Map{Space: []int{1}, Code: code, Stores: []int{3}}, []operand{in}, of([]int{1}, 1e-9+1-1))
}

func TestMapConverts(t *testing.T) {
	code := []program.Instr{{Op: program.Load}}
	m := &program.Map{Space: []int{4}, Code: code, Stores: []int{0}}
	in := of([]int{4}, 1.5, -2.75, 3e9, math.NaN())
	runs(t, m, []operand{in}, of([]int{4}, 1, -2, math.MaxInt32, 0).as(tensor.I32))
	runs(t, m, []operand{in}, of([]int{4}, 1, 0, 255, 0).as(tensor.U8))
	half := of([]int{4}, 1+1.0/256, 1+3.0/256, 65520, 1e-8)
	runs(t, m, []operand{half}, of([]int{4}, 1+1.0/256, 1+3.0/256, math.Inf(1), 0).as(tensor.F16))
	half.data = []float64{1 + 1.0/256, 1 + 3.0/256, -2, 0.5}
	runs(t, m, []operand{half}, of([]int{4}, 1, 1+4.0/256, -2, 0.5).as(tensor.BF16))
}

func TestReduce(t *testing.T) {
	code := []program.Instr{{Op: program.Load}, {Op: program.Square, A: 0}}
	in := []operand{of([]int{2, 3}, 1, -2, 3, 4, 0, -1)}
	r := &program.Reduce{Space: []int{2, 3}, Reduced: []bool{false, true}, Code: code}
	runs(t, r, in, of([]int{2}, 14, 17))
	r = &program.Reduce{Space: []int{2, 3}, Reduced: []bool{false, true}, Red: program.Max, Code: code[:1]}
	runs(t, r, in, of([]int{2}, 3, 4))
	empty := &program.Reduce{Space: []int{2, 0}, Reduced: []bool{false, true}, Code: code}
	runs(t, empty, []operand{of([]int{2, 0})}, of([]int{2}, 0, 0))
}

func TestMatMul(t *testing.T) {
	a, b := of([]int{1, 2, 3}, 1, 2, 3, 4, 5, 6), of([]int{1, 3, 2}, 1, 0, 0, 1, 2, -1)
	runs(t, &program.MatMul{Batch: 1, M: 2, N: 2, K: 3, Alpha: 2}, []operand{a, b}, of([]int{1, 2, 2}, 14, -2, 32, -2))
	runs(t, &program.MatMul{Batch: 1, M: 2, N: 2, K: 3, Alpha: 1, Beta: 1}, []operand{a, b}, of([]int{1, 2, 2}, 7, -1, 16, -1))
	runs(t, &program.MatMul{Batch: 1, M: 1, N: 1, Alpha: 1}, []operand{of([]int{1, 1, 0}), of([]int{1, 0, 1})}, of([]int{1, 1, 1}, 0))
}

func TestSoftmaxAndItsGradient(t *testing.T) {
	x := of([]int{1, 3, 1}, 0, math.Log(2), math.Log(5))
	y, logY := of([]int{1, 3, 1}, 0.125, 0.25, 0.625), of([]int{1, 3, 1}, math.Log(0.125), math.Log(0.25), math.Log(0.625))
	runs(t, &program.Softmax{Outer: 1, Axis: 3, Inner: 1}, []operand{x}, y)
	runs(t, &program.Softmax{Outer: 1, Axis: 3, Inner: 1, Log: true}, []operand{x}, logY)
	dy := of([]int{1, 3, 1}, 8, 0, 0)
	runs(t, &program.SoftmaxGrad{Outer: 1, Axis: 3, Inner: 1}, []operand{y, dy}, of([]int{1, 3, 1}, 0.875, -0.25, -0.625))
	runs(t, &program.SoftmaxGrad{Outer: 1, Axis: 3, Inner: 1, Log: true}, []operand{logY, dy}, of([]int{1, 3, 1}, 7, -2, -5))
	far := of([]int{1, 1, 2}, 1e5, -1e5) // along the middle only
	runs(t, &program.Softmax{Outer: 1, Axis: 1, Inner: 2}, []operand{far}, of([]int{1, 1, 2}, 1, 1))
}

func TestCrossEntropy(t *testing.T) {
	x := of([]int{2, 2}, 0, math.Log(3), 1000, 0)
	labels := of([]int{2, 2}, 0.5, 0, 0.5, 0)
	runs(t, &program.CrossEntropy{Rows: 2, Classes: 2}, []operand{x, labels}, of(nil, 0.5*math.Log(4)), of([]int{2, 2}, -0.375, 0.375, 0, 0))
}

func TestSparseCrossEntropy(t *testing.T) {
	x := of([]int{3, 2}, 0, math.Log(3), 5, 6, 1000, 0)
	labels, weight := of([]int{3}, 1, -100, 0), of(nil, 0.5)
	op := &program.SparseCrossEntropy{Rows: 3, Classes: 2, Ignore: -100, Scale: 2}
	runs(t, op, []operand{x, labels, weight}, of(nil, 0.5*math.Log(4.0/3)), of([]int{3, 2}, 0.25, -0.25, 0, 0, 0, 0))

	smooth := *op
	smooth.Smoothing = 0.5 // the loss of row 0: half of log(4/3), and half of log 4 less log(3)/2
	loss := 0.25*math.Log(4.0/3) + 0.25*(math.Log(4)-math.Log(3)/2) + 0.25*500
	runs(t, &smooth, []operand{x, labels, weight}, of(nil, loss), of([]int{3, 2}, 0, 0, 0, 0, 0.25, -0.25))
}

func TestGatherAndItsGradient(t *testing.T) {
	table, index := of([]int{1, 3, 2}, 1, 2, 3, 4, 5, 6), of([]int{4}, 2, 0, 2, 1).as(tensor.I64)
	runs(t, &program.Gather{Outer: 1, Axis: 3, Inner: 2, Count: 4}, []operand{table, index}, of([]int{1, 4, 2}, 5, 6, 1, 2, 5, 6, 3, 4))
	dy := of([]int{1, 4, 2}, 1, 2, 3, 4, 5, 6, 7, 8)
	runs(t, &program.GatherGrad{Outer: 1, Axis: 3, Inner: 2, Count: 4}, []operand{dy, index}, of([]int{1, 3, 2}, 3, 4, 7, 8, 6, 8))
}

func TestIndexOutOfRangeIsNamed(t *testing.T) {
	p := &program.Program{Clock: program.None}
	a, i, out := of([]int{1, 3, 2}).value(p), of([]int{1}).value(p), of([]int{1, 1, 2}).value(p)
	p.Steps = []program.Step{{Name: "embedding", Op: &program.Gather{Outer: 1, Axis: 3, Inner: 2, Count: 1}, In: views(a, i), Out: views(out)}}
	memory := map[program.ID][]byte{a.Value: make([]byte, 48), i.Value: of(nil, 3).bytes(), out.Value: make([]byte, 16)}
	err := oracle.Run(p, memory)
	if err == nil || !strings.Contains(err.Error(), `"embedding"`) || !strings.Contains(err.Error(), "index 0 is 3; there are 3 rows") {
		t.Errorf("got %v", err)
	}
}

func TestBatchNormAndItsGradient(t *testing.T) {
	c := []int{1}
	x := of([]int{2, 1, 2}, 1, 3, 5, 7) // mean 4, variance 5
	r := 1 / math.Sqrt(5)
	in := []operand{x, of(c, 10), of(c, 20)}
	train := &program.BatchNorm{N: 2, C: 1, Spatial: 2, Momentum: 0.75, Unbias: 4.0 / 3, Training: true}
	runs(t, train, in, of([]int{2, 1, 2}, -3*r, -r, r, 3*r), of(c, 4), of(c, r), of(c, 8.5), of(c, 15+5.0/3))
	eval := &program.BatchNorm{N: 2, C: 1, Spatial: 2, Epsilon: 5}
	runs(t, eval, in, of([]int{2, 1, 2}, -1.8, -1.4, -1, -0.6), of(c, 10), of(c, 0.2))

	dy := of([]int{2, 1, 2}, 1, 0, 0, 0)
	grad := []operand{dy, x, of(c, 4), of(c, r)}
	// dx = r/4 * (4*dy - sum(dy) - xhat*sum(dy*xhat)), with xhat = (-3, -1, 1, 3) * r
	want := make([]float64, 4)
	for i, hat := range []float64{-3 * r, -r, r, 3 * r} {
		want[i] = r / 4 * (4*dy.data[i] - 1 - hat*(-3*r))
	}
	runs(t, &program.BatchNormGrad{N: 2, C: 1, Spatial: 2, Training: true}, grad, of([]int{2, 1, 2}, want...))
	runs(t, &program.BatchNormGrad{N: 2, C: 1, Spatial: 2}, grad, of([]int{2, 1, 2}, r, 0, 0, 0))
}

func TestAllReduceAndOthersOverRanks(t *testing.T) {
	tests := []struct {
		op program.Collective

		out  []int
		want [2][]float64
	}{
		{op: program.Collective{Kind: dist.KindAllReduce}, want: [2][]float64{{11, 22, 33, 44}, {11, 22, 33, 44}}},
		{op: program.Collective{Kind: dist.KindAllReduce, Red: dist.Avg}, want: [2][]float64{{5.5, 11, 16.5, 22}, {5.5, 11, 16.5, 22}}},
		{op: program.Collective{Kind: dist.KindAllReduce, Red: dist.PreMulSum(0.5)}, want: [2][]float64{{5.5, 11, 16.5, 22}, {5.5, 11, 16.5, 22}}},
		{op: program.Collective{Kind: dist.KindAllReduce, Red: dist.Max}, want: [2][]float64{{10, 20, 30, 40}, {10, 20, 30, 40}}},
		{op: program.Collective{Kind: dist.KindBroadcast, Root: 1}, want: [2][]float64{{10, 20, 30, 40}, {10, 20, 30, 40}}},
		{op: program.Collective{Kind: dist.KindReduce, Root: 1}, want: [2][]float64{{0, 0, 0, 0}, {11, 22, 33, 44}}},
		{op: program.Collective{Kind: dist.KindReduceScatter}, out: []int{2}, want: [2][]float64{{11, 22}, {33, 44}}},
		{op: program.Collective{Kind: dist.KindAllGather}, out: []int{8}, want: [2][]float64{{1, 2, 3, 4, 10, 20, 30, 40}, {1, 2, 3, 4, 10, 20, 30, 40}}},
		{op: program.Collective{Kind: dist.KindAllToAll}, want: [2][]float64{{1, 2, 10, 20}, {3, 4, 30, 40}}},
		{op: program.Collective{Kind: dist.KindScatter}, out: []int{2}, want: [2][]float64{{1, 2}, {3, 4}}},
		{op: program.Collective{Kind: dist.KindGather}, out: []int{8}, want: [2][]float64{{1, 2, 3, 4, 10, 20, 30, 40}, {0, 0, 0, 0, 0, 0, 0, 0}}},
	}
	for _, c := range tests {
		p := &program.Program{Clock: program.None}
		out := c.out
		if out == nil {
			out = []int{4}
		}
		from, to := of([]int{4}, 1, 2, 3, 4), of(out, make([]float64, out[0])...)
		a, b := from.value(p), to.value(p)
		p.Steps = []program.Step{{Op: &c.op, In: views(a), Out: views(b)}}
		tens := of([]int{4}, 10, 20, 30, 40)
		ranks := []oracle.Rank{
			{Program: p, Memory: map[program.ID][]byte{a.Value: from.bytes(), b.Value: to.bytes()}},
			{Program: p, Memory: map[program.ID][]byte{a.Value: tens.bytes(), b.Value: to.bytes()}},
		}
		if err := oracle.RunRanks(ranks); err != nil {
			t.Fatalf("%v: %v", &c.op, err)
		}
		for r := range ranks {
			if got := numbers(tensor.F64, ranks[r].Memory[b.Value]); !slices.Equal(got, c.want[r]) {
				t.Errorf("%v: rank %d has %v, want %v", &c.op, r, got, c.want[r])
			}
		}
	}
}

func TestRandIsTheSameForAnyNumberOfRanks(t *testing.T) {
	// Four samples of three elements on one rank, and two on each of two.
	draw := func(samples, first uint64) []float64 {
		p := &program.Program{}
		p.Clock = p.Add(program.Value{Name: "clock", DType: tensor.U64, Shape: []int{2}, Place: program.Outside})
		n := int(samples) * 3
		out := of([]int{n}).as(tensor.F32).value(p)
		code := []program.Instr{{Op: program.Rand, Key: 7, PerUnit: 3}}
		p.Steps = []program.Step{{Op: &program.Map{Space: []int{n}, Code: code, Stores: []int{0}}, Out: views(out)}}
		memory := map[program.ID][]byte{out.Value: make([]byte, 4*n), p.Clock: operand{nil, []float64{5, float64(first)}, tensor.U64}.bytes()}
		if err := program.Validate(p); err != nil {
			t.Fatal(err)
		}
		if err := oracle.Run(p, memory); err != nil {
			t.Fatal(err)
		}
		return numbers(tensor.F32, memory[out.Value])
	}
	all := draw(4, 8)
	if two := append(draw(2, 8), draw(2, 10)...); !slices.Equal(all, two) {
		t.Errorf("one rank draws %v, two draw %v", all, two)
	}
	for i, x := range all {
		if x < 0 || x >= 1 || slices.Contains(all[:i], x) {
			t.Errorf("draws %v", all)
		}
	}
}

func TestCallGetsTheMemoryOfItsOperands(t *testing.T) {
	p := &program.Program{Clock: program.None}
	a, b := of([]int{2}).value(p), of([]int{2}).value(p)
	p.Steps = []program.Step{{Op: &program.Call{Func: 0, Label: "swap"}, In: views(a), Out: views(b)}}
	memory := map[program.ID][]byte{a.Value: of(nil, 1, 2).bytes(), b.Value: of(nil, 0, 0).bytes()}
	swap := func(in, out []tensor.Buffer) error {
		from, err := tensor.Data[float64](in[0])
		if err != nil {
			return err
		}
		to, err := tensor.Data[float64](out[0])
		if err == nil {
			to[0], to[1] = from[1], from[0]
		}
		return err
	}
	err := oracle.RunRanks([]oracle.Rank{{Program: p, Memory: memory, Calls: []func(in, out []tensor.Buffer) error{swap}}})
	if got := numbers(tensor.F64, memory[b.Value]); err != nil || !slices.Equal(got, []float64{2, 1}) {
		t.Errorf("got %v, %v", got, err)
	}
	if err := oracle.Run(p, memory); err == nil || !strings.Contains(err.Error(), "function 0 of 0") {
		t.Errorf("without functions: %v", err)
	}
}
