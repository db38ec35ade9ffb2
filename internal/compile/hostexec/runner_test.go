package hostexec

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/oracle"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loadAndAdd is the code of Out[0] = In[0] + In[1].
var loadAndAdd = []program.Instr{{Op: program.Load, A: 0}, {Op: program.Load, A: 1}, {Op: program.Add, A: 0, B: 1}}

// everything is a program with every kind of step that computes.
func everything() *build {
	b := newBuild()
	b.clock()
	w := program.Window{N: 8, C: 3, H: 10, W: 12, R: 3, S: 3, PadH: 1, PadW: 1, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1, OutH: 10, OutW: 12}
	windowSteps(b, w, 5, tensor.F32)
	x, y := b.value("x", tensor.F32, 300, 200), b.value("y", tensor.F32, 300, 200)
	b.step(&program.Map{Space: []int{300, 200}, Code: append(loadAndAdd, program.Instr{Op: program.Rand, Key: 7}, program.Instr{Op: program.Sin, A: 3}, program.Instr{Op: program.Mul, A: 4, B: 2}), Stores: []int{5}}, views(x, x), views(y))
	b.step(&program.Reduce{Space: []int{300, 200}, Reduced: []bool{true, false}, Code: loadAndAdd}, views(x, y), views(program.View{Value: b.value("s", tensor.F32, 200).Value, Strides: []int{0, 1}}))
	b.step(&program.Reduce{Space: []int{300, 200}, Reduced: []bool{true, true}, Code: loadAndAdd}, views(x, y), views(program.View{Value: b.value("t", tensor.BF16).Value, Strides: []int{0, 0}}))
	b.step(&program.MatMul{Batch: 1, M: 300, N: 300, K: 200, Alpha: 1}, views(matrixView(b, tensor.F32, 1, 300, 200, 0, false, false), matrixView(b, tensor.F32, 1, 200, 300, 0, true, false)), views(matrixView(b, tensor.F32, 1, 300, 300, 0, false, false)))
	p := []int{300, 200, 1}
	packed := func(name string) program.View { return b.value(name, tensor.F32, p...) }
	b.step(&program.Softmax{Outer: 300, Axis: 200, Inner: 1}, views(packed("a")), views(packed("b")))
	b.step(&program.SoftmaxGrad{Outer: 300, Axis: 200, Inner: 1}, views(packed("c"), packed("d")), views(packed("e")))
	b.step(&program.CrossEntropy{Rows: 300, Classes: 200}, views(x, y), views(b.value("loss", tensor.F32), b.value("dx", tensor.F32, 300, 200)))
	index := b.value("index", tensor.I32, 40)
	b.step(&program.Gather{Outer: 1, Axis: 3, Inner: 20, Count: 40}, views(b.value("table", tensor.F32, 1, 3, 20), index), views(b.value("rows", tensor.F32, 1, 40, 20)))
	b.step(&program.GatherGrad{Outer: 1, Axis: 3, Inner: 20, Count: 40}, views(b.value("drows", tensor.F32, 1, 40, 20), index), views(b.value("dtable", tensor.F32, 1, 3, 20)))
	stat := func() program.View { return b.value("stat", tensor.F32, 3) }
	image := func() program.View { return b.value("image", tensor.F32, 8, 3, 120) }
	mean, variance := stat(), stat()
	b.step(&program.BatchNorm{N: 8, C: 3, Spatial: 120, Epsilon: 1e-5, Training: true}, views(image(), mean, variance), views(image(), stat(), stat(), mean, variance))
	b.step(&program.BatchNormGrad{N: 8, C: 3, Spatial: 120, Training: true}, views(image(), image(), stat(), stat()), views(image()))
	return b
}

func TestRunDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	b := everything()
	b.step(&program.Call{Label: "nothing"}, views(b.Steps[0].In[0]), views(b.Steps[0].Out[0]))
	if err := program.Plan(&b.Program); err != nil {
		t.Fatal(err)
	}
	for name, l := range variants() {
		for _, threads := range []int{1, 2} {
			env := program.Env{
				Calls: []func(in, out []tensor.Buffer) error{func(_, _ []tensor.Buffer) error { return nil }},
				Watch: func(int, []tensor.Buffer) error { return nil },
			}
			r, err := load(&b.Program, Config{Threads: threads}, env, l)
			if err != nil {
				t.Fatal(err)
			}
			bindAll(t, r, &b.Program, contents(&b.Program, func() float64 { return 1 }))
			if n := testing.AllocsPerRun(5, func() {
				if err := r.Run(); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%s, %d threads: %v allocations a run", name, threads, n)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestEverythingEqualsTheOracle(t *testing.T) {
	b := everything()
	r := rand.New(rand.NewPCG(1, 2))
	memory := contents(&b.Program, normal(r))
	for i := range b.Values {
		switch b.Values[i].Name {
		case "index":
			numbers(tensor.I32, memory[program.ID(i)], func() float64 { return float64(r.IntN(3)) })
		case "stat":
			numbers(tensor.F32, memory[program.ID(i)], func() float64 { return 1 + r.Float64() })
		}
	}
	agree(t, t, &b.Program, memory, 5e-4) // sums of 200 products, a loss of 300 rows
}

// Values in the arena and constants, in place where the planner puts them so.
func TestArenaAndConstants(t *testing.T) {
	b := newBuild()
	x := b.value("x", tensor.F32, 40, 30)
	temp := func() program.View {
		return b.Whole(b.Add(program.Value{Name: "t", DType: tensor.F32, Shape: []int{40, 30}}))
	}
	data := make([]byte, 4*30)
	numbers(tensor.F32, data, func() float64 { return 2.5 })
	c := b.Whole(b.Add(program.Value{Name: "c", DType: tensor.F32, Shape: []int{30}, Place: program.Constant, Data: data}))
	c.Strides = []int{0, 1}
	last := x
	for range 4 {
		next := temp()
		b.step(&program.Map{Space: []int{40, 30}, Code: loadAndAdd, Stores: []int{2}}, views(last, c), views(next))
		last = next
	}
	b.Values[last.Value].Role = program.Output
	r := rand.New(rand.NewPCG(1, 2))
	agree(t, t, &b.Program, contents(&b.Program, normal(r)), 0)
	if b.Arena > 2*4*40*30+512 {
		t.Errorf("the arena has %d bytes: nothing was reused, and so nothing was tested", b.Arena)
	}
}

// Outs in place, exchanged: both registers are read before one is stored.
func TestMapExchangesItsOperands(t *testing.T) {
	b := newBuild()
	x, y := b.value("x", tensor.F32, 3000), b.value("y", tensor.F32, 3000)
	b.step(&program.Map{Space: []int{3000}, Code: append(loadAndAdd, program.Instr{Op: program.Neg, A: 0}), Stores: []int{1, 0}}, views(x, y), views(x, y))
	b.step(&program.Map{Space: []int{3000}, Code: append(loadAndAdd, program.Instr{Op: program.Mul, A: 0, B: 2}), Stores: []int{2, 3}}, views(x, y), views(x, y))
	r := rand.New(rand.NewPCG(1, 2))
	agree(t, t, &b.Program, contents(&b.Program, normal(r)), 0)
}

// exchanged is a program of a rank with every kind of collective, and steps on both streams around
// them.
func exchanged(n, rank int) *build {
	b := newBuild()
	v := func(name string, n int) program.View { return b.value(name, tensor.F32, n) }
	add := func(stream program.Stream, op program.Op, in, out []program.View, after ...int) int {
		b.step(op, in, out)
		s := &b.Steps[len(b.Steps)-1]
		s.Stream, s.After = stream, after
		return len(b.Steps) - 1
	}
	x := v("x", 12)
	sum := v("sum", 12)
	first := add(program.Compute, &program.Map{Space: []int{12}, Code: loadAndAdd, Stores: []int{2}}, views(x, x), views(sum))
	reduced := add(program.Comm, &program.Collective{Kind: dist.KindAllReduce, Red: dist.Sum}, views(sum), views(sum), first)
	scaled := v("scaled", 12)
	behind := add(program.Comm, &program.Map{Space: []int{12}, Code: loadAndAdd, Stores: []int{2}}, views(sum, sum), views(scaled))
	add(program.Compute, &program.Map{Space: []int{12}, Code: loadAndAdd, Stores: []int{2}}, views(sum, x), views(v("total", 12)), reduced)
	add(program.Compute, &program.Map{Space: []int{12}, Code: loadAndAdd, Stores: []int{2}}, views(scaled, x), views(v("total2", 12)), behind)
	factor := b.value("factor", tensor.F32)
	parts, own := v("parts", 12), 12/n
	mine := program.View{Value: parts.Value, Offset: rank * own, Strides: []int{1}}
	add(program.Comm, &program.Collective{Kind: dist.KindReduceScatter, Red: dist.Sum, Part: own}, views(parts), views(mine))
	add(program.Comm, &program.Map{Space: []int{own}, Code: loadAndAdd, Stores: []int{2}}, views(mine, mine), views(mine))
	add(program.Comm, &program.Collective{Kind: dist.KindAllGather, Part: own}, views(mine), views(parts))
	for _, stream := range []program.Stream{program.Comm, program.Compute} {
		add(stream, &program.Collective{Kind: dist.KindAllReduce, Red: dist.RedOp{Kind: dist.RedPreMulSum}}, views(x, factor), views(v("premul", 12)))
		add(stream, &program.Collective{Kind: dist.KindReduce, Red: dist.Max, Root: 1}, views(x), views(v("reduce", 12)))
		add(stream, &program.Collective{Kind: dist.KindBroadcast, Root: 1}, views(x), views(v("broadcast", 12)))
		add(stream, &program.Collective{Kind: dist.KindAllGather}, views(x), views(v("allgather", 12*n)))
		add(stream, &program.Collective{Kind: dist.KindReduceScatter, Red: dist.Avg}, views(x), views(v("reducescatter", 12/n)))
		add(stream, &program.Collective{Kind: dist.KindAllToAll}, views(x), views(v("alltoall", 12)))
		add(stream, &program.Collective{Kind: dist.KindGather}, views(x), views(v("gather", 12*n)))
		add(stream, &program.Collective{Kind: dist.KindScatter}, views(x), views(v("scatter", 12/n)))
	}
	return b
}

func TestCollectivesEqualTheOracle(t *testing.T) {
	const n = 3
	worlds, err := sim.New(n, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ranks, got := make([]oracle.Rank, n), make([]map[program.ID][]byte, n)
	errs := make(chan error, n)
	for rank := range n {
		b := exchanged(n, rank)
		if err := program.Plan(&b.Program); err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, uint64(rank)))
		ranks[rank] = oracle.Rank{Program: &b.Program, Memory: contents(&b.Program, normal(r))}
		got[rank] = clone(ranks[rank].Memory)
		runner, err := New(&b.Program, Config{Threads: 2}, program.Env{Groups: []*dist.Group{worlds[rank].Group}})
		if err != nil {
			t.Fatal(err)
		}
		bindAll(t, runner, &b.Program, got[rank])
		go func() { errs <- errors.Join(runner.Run(), runner.Wait(), runner.Close()) }()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range worlds {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := oracle.RunRanks(ranks); err != nil {
		t.Fatal(err)
	}
	for rank := range n {
		compareAll(t, fmt.Sprint("rank ", rank), ranks[rank].Program, got[rank], ranks[rank].Memory, 1e-6)
	}
}

// A collective is started in the order of steps, and later steps run before the other ranks reach
// it.
func TestCollectivesOverlapComputation(t *testing.T) {
	worlds, err := sim.New(2, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	calls := []func(in, out []tensor.Buffer) error{
		func(_, _ []tensor.Buffer) error { started <- struct{}{}; return nil },
		func(_, _ []tensor.Buffer) error { <-started; return nil },
	}
	errs := make(chan error, 2)
	for rank := range 2 {
		b := newBuild()
		x := b.value("x", tensor.F32, 4)
		call := program.Step{Name: "call", Op: &program.Call{Func: rank}}
		coll := program.Step{Name: "sum", Op: &program.Collective{Kind: dist.KindAllReduce}, In: views(x), Out: views(x), Stream: program.Comm}
		b.Steps = []program.Step{coll, call} // rank 0 computes while its sum is under way
		if rank == 1 {
			b.Steps = []program.Step{call, coll}
		}
		r, err := New(&b.Program, Config{Threads: 1}, program.Env{Groups: []*dist.Group{worlds[rank].Group}, Calls: calls})
		if err != nil {
			t.Fatal(err)
		}
		bindAll(t, r, &b.Program, contents(&b.Program, func() float64 { return 1 }))
		go func() { errs <- errors.Join(r.Run(), r.Close()) }()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for _, w := range worlds {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

// oneStep is a runner of one Map over x and y, bound.
func oneStep(t *testing.T, env program.Env, steps ...program.Step) (program.Runner, *build) {
	t.Helper()
	b := newBuild()
	x := b.value("x", tensor.F32, 8)
	b.step(&program.Map{Space: []int{8}, Code: loadAndAdd, Stores: []int{2}}, views(x, x), views(b.value("y", tensor.F32, 8)))
	b.Steps = append(b.Steps, steps...)
	r, err := New(&b.Program, Config{Threads: 2}, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, b
}

func TestErrorsNameStepsAndValues(t *testing.T) {
	own := errors.New("no more data")
	call := program.Step{Name: "feed", Op: &program.Call{Label: "feed"}}
	cases := map[string]struct {
		env  program.Env
		want string
		is   error
	}{
		"error of a call": {program.Env{Calls: []func(in, out []tensor.Buffer) error{func(_, _ []tensor.Buffer) error { return own }}}, `step 1 "feed" (call feed): no more data`, own},
		"panic of a call": {program.Env{Calls: []func(in, out []tensor.Buffer) error{func(_, _ []tensor.Buffer) error { panic("boom") }}}, `step 1 "feed" (call feed): BUG: panic: boom`, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, b := oneStep(t, c.env, call)
			bindAll(t, r, &b.Program, contents(&b.Program, func() float64 { return 1 }))
			for range 2 {
				if err := r.Run(); err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("%v, want %q", err, c.want)
				}
			}
		})
	}
}

func TestWatchSeesEachStepAndStopsTheRun(t *testing.T) {
	var seen []string
	stop := errors.New("not a number")
	env := program.Env{
		Calls: []func(in, out []tensor.Buffer) error{func(_, _ []tensor.Buffer) error { t.Error("a step after the stop ran"); return nil }},
		Watch: func(step int, out []tensor.Buffer) error {
			seen = append(seen, fmt.Sprint(step, out))
			return stop
		},
	}
	r, b := oneStep(t, env, program.Step{Name: "feed", Op: &program.Call{}})
	bindAll(t, r, &b.Program, contents(&b.Program, func() float64 { return 1 }))
	if err := r.Run(); !errors.Is(err, stop) || !strings.Contains(err.Error(), `step 0 "s0"`) {
		t.Error(err)
	}
	if fmt.Sprint(seen) != "[0 [f32[8] on host]]" {
		t.Error(seen)
	}
}

func TestBindAndMemoryCheckTheirArguments(t *testing.T) {
	r, b := oneStep(t, program.Env{})
	if err := r.Run(); !errors.Is(err, ErrUnbound) || !strings.Contains(err.Error(), `value 0 "x"`) {
		t.Errorf("run before bind: %v", err)
	}
	if _, err := r.Memory(1); !errors.Is(err, ErrUnbound) {
		t.Errorf("memory before bind: %v", err)
	}
	gpu, err := tensor.FromPointer(tensor.Of(make([]float32, 8)).Pointer(), 8, tensor.F32, tensor.CUDA(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		id program.ID
		b  tensor.Buffer
	}{{-1, tensor.Of(make([]float32, 8))}, {2, tensor.Of(make([]float32, 8))}, {0, tensor.Of(make([]float64, 8))}, {0, tensor.Of(make([]float32, 7))}, {0, gpu}} {
		if err := r.Bind(bad.id, bad.b); err == nil {
			t.Errorf("value %d was bound to %v", bad.id, bad.b)
		}
	}
	memory := contents(&b.Program, func() float64 { return 1.5 })
	bindAll(t, r, &b.Program, memory)
	if err := errors.Join(r.Run(), r.Wait()); err != nil {
		t.Fatal(err)
	}
	y, err := r.Memory(1)
	if err != nil || program.Element(tensor.F32, y.Raw(), 7) != 3 {
		t.Errorf("%v %v", y, err)
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	_, memoryErr := r.Memory(1)
	for _, err := range []error{r.Run(), r.Wait(), r.Bind(0, y), memoryErr} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after close: %v", err)
		}
	}
}

func TestNewRefusesWhatItCannotRun(t *testing.T) {
	b := newBuild()
	x := b.value("x", tensor.F32, 8)
	for name, c := range map[string]struct {
		step program.Step
		cfg  Config
		want string
	}{
		"a view outside":   {program.Step{Op: &program.Map{Space: []int{9}, Code: loadAndAdd, Stores: []int{2}}, In: views(x, x), Out: views(x)}, Config{}, "touches elements 0 to 8 of 8"},
		"no group":         {program.Step{Name: "sum", Op: &program.Collective{Kind: dist.KindAllReduce}, In: views(x), Out: views(x)}, Config{}, `step 0 "sum" (allreduce sum group 0): group 0 of 0`},
		"no function":      {program.Step{Name: "f", Op: &program.Call{Func: 3, Label: "f"}}, Config{}, "function 3 of 0"},
		"negative threads": {program.Step{Op: &program.Call{}}, Config{Threads: -1}, "-1 threads; 0 means"},
	} {
		b.Steps = []program.Step{c.step}
		if r, err := New(&b.Program, c.cfg, program.Env{}); err == nil || r != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestRunnersLeaveNothingBehind(t *testing.T) {
	b := everything()
	for range 50 {
		r, err := New(&b.Program, Config{Threads: 4}, program.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	goleak.VerifyNone(t)
}
