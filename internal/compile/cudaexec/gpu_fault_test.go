package cudaexec

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/tensor"
)

// lookup is a program with a Gather of 3 rows of a table of 10, and the sum of them.
func lookup(t testing.TB) (b *builder, index, sum program.ID) {
	t.Helper()
	b = newBuilder("lookup", 10)
	table := b.outside("table", program.Param, -1, 1, 10, 4)
	index = b.p.Add(program.Value{Name: "index", DType: tensor.I32, Shape: []int{3}, Place: program.Outside, Role: program.Input})
	b.memory[index] = numbers(b.r, tensor.I32, 3, 0, 9)
	rows := b.temp("rows", 3, 4)
	sum = b.p.Add(program.Value{Name: "sum", DType: tensor.F32, Shape: []int{4}, Role: program.Output})
	b.step("pick", &program.Gather{Outer: 1, Axis: 10, Inner: 4, Count: 3},
		views(program.View{Value: table, Strides: []int{40, 4, 1}}, b.p.Whole(index)), views(program.View{Value: rows, Strides: []int{12, 4, 1}}))
	b.step("add", &program.Reduce{Space: []int{3, 4}, Reduced: []bool{true, false}, Red: program.Sum, Code: []program.Instr{load(0)}},
		views(b.p.Whole(rows)), views(row(sum)))
	return b.plan(t, false), index, sum
}

func TestIndexOutOfRangeIsAnErrorThatNamesItsStep(t *testing.T) {
	b, index, sum := lookup(t)
	r := newRig(t, b, Config{}, program.Env{}, index)
	good, bad := room(12), room(12)
	for i, k := range []float64{9, 0, 5} {
		program.SetElement(tensor.I32, good, i, k)
		program.SetElement(tensor.I32, bad, i, k)
	}
	program.SetElement(tensor.I32, bad, 1, 10)
	got := room(16)
	for n := range 6 {
		if err := errors.Join(r.Stage(index, good), r.Run(), r.Read(sum, got)); err != nil {
			t.Fatal(err)
		}
		memory := copied(b.memory)
		memory[index] = good
		if _, err := (&builder{p: b.p, loss: sum}).oracleRun(memory); err != nil {
			t.Fatal(err)
		}
		if err := compare("sum", got, memory[sum], 1e-6); err != nil {
			t.Errorf("round %d: %v", n, err)
		}
		if err := errors.Join(r.Stage(index, bad), r.Run()); err != nil {
			t.Fatal(err)
		}
		err := r.Wait()
		if !errors.Is(err, ErrFault) || !strings.Contains(err.Error(), `step 0 "pick"`) || !strings.Contains(err.Error(), "index 10 is not in 0 to 9") {
			t.Errorf("round %d: %v", n, err)
		}
		if err := r.Wait(); err != nil {
			t.Errorf("round %d: told again: %v", n, err)
		}
	}
}

// huge is a program with a value of 4 TiB.
func huge(t testing.TB) *builder {
	t.Helper()
	b := newBuilder("huge", 1)
	small, large := b.temp("small", 16), b.temp("huge", 1<<20, 1<<20)
	fill := []program.Instr{number(1)}
	b.step("one", &program.Map{Space: []int{16}, Code: fill, Stores: []int{0}}, nil, views(b.p.Whole(small)))
	b.step("two", &program.Map{Space: []int{1 << 20, 1 << 20}, Code: fill, Stores: []int{0}}, nil, views(b.p.Whole(large)))
	b.p.Values[small].Role, b.p.Values[large].Role = program.Output, program.Output
	return b.plan(t, false)
}

func TestMemoryThatIsNotThereIsAnErrorWithTheLargestValues(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	b := huge(t)
	free, _, err := v.Memory()
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(b.p, Config{Device: v}, program.Env{})
	if !errors.Is(err, cuda.ErrMemory) {
		t.Fatalf("got %v, want an ErrMemory", err)
	}
	for _, want := range []string{`program "huge" needs`, `"huge" f32[1048576 1048576], 4398046511104 B`, "free of"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
	if after, _, err := v.Memory(); err != nil || after < free-16<<20 {
		t.Errorf("%d B were free, now %d, %v", free, after, err)
	}
}

func TestWrongBindingsAreRefused(t *testing.T) {
	b := newBuilder("wrong", 2).train(options{batch: 4, dims: []int{3, 4}}).plan(t, true)
	r := newRig(t, b, Config{}, program.Env{}, b.x)
	n := b.p.Values[b.x].Len()
	at := uintptr(1 << 20)
	on := func(at uintptr, n int, dt tensor.DType, d tensor.Device) tensor.Buffer {
		buffer, err := bufferAt(at, n, dt, d)
		if err != nil {
			t.Fatal(err)
		}
		return buffer
	}
	here := r.v.Tensor()
	for _, tt := range []struct {
		id   program.ID
		b    tensor.Buffer
		want error
	}{
		{b.x, on(at, n, tensor.F64, here), dist.ErrDType},
		{b.x, on(at, n-1, tensor.F32, here), dist.ErrCount},
		{b.x, tensor.Of(make([]float32, n)), dist.ErrDevice},
		{b.x, on(at+4, n, tensor.F32, here), dist.ErrInvalid},
		{b.loss, on(at, 1, tensor.F32, here), dist.ErrInvalid},
		{-1, on(at, 1, tensor.F32, here), dist.ErrInvalid},
	} {
		if err := r.Bind(tt.id, tt.b); !errors.Is(err, tt.want) {
			t.Errorf("value %d to %v: %v, want %v", tt.id, tt.b, err, tt.want)
		}
	}
	if _, err := r.Memory(b.x); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("memory of what is not bound: %v", err)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{r.Run(), r.Wait(), r.Bind(b.x, tensor.Buffer{}), r.SetClock(1, 1), r.Read(b.loss, nil), r.Stage(b.x, nil)} {
		if !errors.Is(err, dist.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

func TestWatchSeesEachStep(t *testing.T) {
	b := newBuilder("watched", 3).train(options{batch: 4, dims: []int{3, 5, 2}}).plan(t, true)
	cause := errors.New("not a number")
	var seen []int
	r := newRig(t, b, Config{}, program.Env{Watch: func(step int, out []tensor.Buffer) error {
		seen = append(seen, step)
		for _, o := range out {
			for i := range o.Len() {
				if o.DType() == tensor.F32 && math.IsNaN(program.Element(tensor.F32, o.Raw(), i)) {
					return cause
				}
			}
		}
		return nil
	}})
	if err := trained(b, r, 3); err != nil {
		t.Error(err)
	}
	if len(seen) != 3*len(b.p.Steps) || seen[1] != 1 {
		t.Errorf("%d steps were shown, want %d of 3 runs", len(seen), 3*len(b.p.Steps))
	}
	data := copied(b.memory)[b.x]
	program.SetElement(tensor.F32, data, 0, math.NaN())
	seen = nil
	if err := r.bind(b.x, data); err != nil {
		t.Fatal(err)
	}
	err := r.Run()
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), fmt.Sprintf("step %d ", len(seen)-1)) {
		t.Errorf("NaN in the input: %v after %d steps", err, len(seen))
	}
}

// The driver frees memory when the device has done all queued work, which never happens after the
// death of a rank.
func TestProfileFreesNothingThatAStuckDeviceMayUse(t *testing.T) {
	b := newBuilder("stuck", 2).train(options{batch: 4, dims: []int{3, 4}}).plan(t, true)
	r := newRig(t, b, Config{Eager: true}, program.Env{})
	if err := errors.Join(r.needOwn(), r.Run(), r.Wait()); err != nil {
		t.Fatal(err)
	}
	word, err := r.v.AllocHost(8)
	if err != nil {
		t.Fatal(err)
	}
	dead := errors.New("a rank has died")
	r.cfg.Before = func() error { return dead }
	if err := r.home.Wait64(word.Device(), 1); err != nil {
		t.Fatal(err)
	}
	err = r.stamped(&Timeline{Runs: 1}, false, func(*stamps) {})
	atomic.StoreUint64((*uint64)(word.Pointer()), 1)
	if !errors.Is(err, dead) || !errors.Is(err, ErrStuck) {
		t.Errorf("got %v, want the cause and ErrStuck", err)
	}
	r.cfg.Before = nil
	if err := errors.Join(r.home.Synchronize(), word.Close()); err != nil {
		t.Error(err)
	}
}

func TestProgramsThatAGPUHasNotAreRefused(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	call := &program.Program{Name: "call", Clock: program.None, Steps: []program.Step{{Name: "host", Op: &program.Call{Label: "f"}}}}
	if _, err := New(call, Config{Device: v}, program.Env{}); !errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), `step 0 "host" (call f)`) {
		t.Errorf("a function of the host: %v", err)
	}
	sum := newBuilder("alone", 1)
	sum.ranks = 2
	sum.train(options{batch: 2, dims: []int{2, 2}}).plan(t, true)
	if _, err := New(sum.p, Config{Device: v}, program.Env{}); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "unknown group 0") {
		t.Errorf("a collective without a group: %v", err)
	}
	wrong := newBuilder("library", 1).train(options{batch: 2, dims: []int{2, 2}}).plan(t, true)
	if _, err := New(wrong.p, Config{Device: v, CUBLAS: "/nowhere/libcublas.so.13"}, program.Env{}); err == nil || !strings.Contains(err.Error(), "/nowhere/libcublas.so.13") {
		t.Errorf("a library that is not there: %v", err)
	}
}

func TestNothingLeaks(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	b := newBuilder("leak", 4).train(options{batch: 16, dims: []int{32, 16, 4}, dropout: true}).plan(t, true)
	loss := room(4)
	cycle := func() {
		r, err := b.load(v, Config{}, program.Env{}, b.x)
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if err := errors.Join(r.Stage(b.x, b.memory[b.x]), r.Run()); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(r.Read(b.loss, loss), r.close()); err != nil {
			t.Fatal(err)
		}
	}
	measure := func() int64 {
		free, _, err := v.Memory()
		if err != nil {
			t.Fatal(err)
		}
		return free
	}
	for range 10 {
		cycle()
	}
	before := measure()
	for range 100 {
		cycle()
	}
	// A block of the driver's own pools is 2 MiB; memory that each cycle kept would be fifty times
	// that.
	if after := measure(); after < before-4<<20 {
		t.Errorf("100 cycles of New and Close keep %d B", before-after)
	}
}

func TestProfileMeasuresRunsOfTheGraph(t *testing.T) {
	for _, eager := range []bool{false, true} {
		b := newBuilder("profiled", 5).train(options{batch: 64, dims: []int{128, 256, 10}, dropout: true}).plan(t, true)
		r := newRig(t, b, Config{Eager: eager}, program.Env{})
		tl, err := r.Profile(5)
		if err != nil {
			t.Fatal(err)
		}
		if tl.Graph == eager || tl.Run <= 0 || tl.Marked <= 0 || tl.Compute <= 0 || tl.Compute > tl.Marked || tl.Exposed != 0 || len(tl.Steps) != len(b.p.Steps) {
			t.Errorf("eager %t:\n%s", eager, tl.String())
		}
		for i, s := range tl.Steps {
			if s.Step != i || s.End < s.Start || s.Least < 0 {
				t.Errorf("step %d: %+v", i, s)
			}
		}
		for _, n := range []int{0, -1, mostProfiled + 1} {
			if _, err := r.Profile(n); !errors.Is(err, dist.ErrInvalid) {
				t.Errorf("a profile of %d steps: %v", n, err)
			}
		}
		if err := errors.Join(r.Run(), r.Wait()); err != nil {
			t.Error(err)
		}
	}
}

func TestCaptureThatFailsLeavesTheProgramUsable(t *testing.T) {
	b := newBuilder("blamed", 6).train(options{batch: 8, dims: []int{5, 6, 3}}).plan(t, true)
	r := newRig(t, b, Config{}, program.Env{})
	cause := errors.New("not while a stream captures")
	_, err := r.capture(func(i int) error {
		if i == 2 {
			return cause
		}
		return r.step(i)
	})
	if !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
	if err := trained(b, r, 4); err != nil {
		t.Error(err)
	}
	runs := r.Runs()
	if err := r.blame(cause); !errors.Is(err, cause) || !strings.Contains(err.Error(), "set Eager") || r.Runs() != runs+1 {
		t.Errorf("%v after %d runs, then %d", err, runs, r.Runs())
	}
	loss := room(4)
	if err := errors.Join(r.Run(), r.Read(b.loss, loss)); err != nil || float(loss) == 0 {
		t.Errorf("a run after that: loss %v, %v", float(loss), err)
	}
}
