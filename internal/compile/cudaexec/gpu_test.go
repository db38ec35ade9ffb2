package cudaexec

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/oracle"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/tensor"
)

// rig is a program on a GPU, with memory for its Outside values.
type rig struct {
	*Exec
	v   *cuda.Device
	ids []program.ID // of bound values, in order
	at  map[program.ID]tensor.Buffer
}

// load loads b's program on v, with all of b's memory bound except skip.
func (b *builder) load(v *cuda.Device, cfg Config, env program.Env, skip ...program.ID) (*rig, error) {
	cfg.Device = v
	x, err := New(b.p, cfg, env)
	if err != nil {
		return nil, err
	}
	r := &rig{Exec: x.(*Exec), v: v, at: map[program.ID]tensor.Buffer{}}
	for _, id := range slices.Sorted(maps.Keys(b.memory)) {
		if id == b.p.Clock || slices.Contains(skip, id) {
			continue
		}
		if err := r.bind(id, b.memory[id]); err != nil {
			return r, err
		}
	}
	return r, nil
}

// bind binds id to new memory with these elements.
func (r *rig) bind(id program.ID, data []byte) error {
	all, err := r.v.AllocBuffer(int64(max(len(data), 1)))
	if err != nil {
		return err
	}
	if r.at[id].IsZero() {
		r.ids = append(r.ids, id)
	} else if err := r.v.FreeBuffer(r.at[id]); err != nil {
		return err
	}
	r.at[id] = all
	if err := r.v.WriteBuffer(all, data); err != nil {
		return err
	}
	val := &r.Program().Values[id]
	buffer, err := bufferAt(uintptr(all.Pointer()), val.Len(), val.DType, r.v.Tensor())
	if err != nil {
		return err
	}
	return r.Bind(id, buffer)
}

// elements returns the current elements of a value.
func (r *rig) elements(id program.ID) ([]byte, error) {
	b, err := r.Memory(id)
	if err != nil {
		return nil, err
	}
	host := room(b.Bytes())
	if len(host) == 0 {
		return host, nil
	}
	return host, r.v.CopyToHost(unsafe.Pointer(&host[0]), uintptr(b.Pointer()), b.Bytes())
}

func (r *rig) close() error {
	errs := []error{r.Close(), r.Close()}
	for _, id := range r.ids {
		errs = append(errs, r.v.FreeBuffer(r.at[id]))
	}
	r.ids = nil
	return errors.Join(errs...)
}

// newRig is load for a test that ends with it.
func newRig(t testing.TB, b *builder, cfg Config, env program.Env, skip ...program.ID) *rig {
	t.Helper()
	v := cudatest.Devices(t, 1)[0]
	cudatest.Compiler(t)
	r, err := b.load(v, cfg, env, skip...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// oracleRun is one run of the program on the host; it gives the loss.
func (b *builder) oracleRun(memory map[program.ID][]byte) (float64, error) {
	if err := oracle.Run(b.p, memory); err != nil {
		return 0, err
	}
	loss := program.Element(tensor.F32, memory[b.loss], 0)
	if c, ok := memory[b.p.Clock]; ok && b.p.Clock != program.None {
		program.SetElement(tensor.U64, c, 0, program.Element(tensor.U64, c, 0)+1)
	}
	return loss, nil
}

// copied is a copy of all memory.
func copied(memory map[program.ID][]byte) map[program.ID][]byte {
	all := map[program.ID][]byte{}
	for id, m := range memory {
		c := room(int64(len(m)))
		copy(c, m)
		all[id] = c
	}
	return all
}

// compare reports the first element of a f32 value that is not the one of want, to within
// tolerance.
func compare(name string, got, want []byte, tolerance float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d B, want %d", name, len(got), len(want))
	}
	for i := range len(want) / 4 {
		g, w := program.Element(tensor.F32, got, i), program.Element(tensor.F32, want, i)
		if math.Abs(g-w) > tolerance*(1+math.Abs(w)) || math.IsNaN(g) != math.IsNaN(w) {
			return fmt.Errorf("%s: element %d is %v, want %v", name, i, g, w)
		}
	}
	return nil
}

// float is the first element of a f32 value.
func float(b []byte) float64 { return program.Element(tensor.F32, b, 0) }

// trained runs r several times, compares each loss and in the end all Outside values with the
// oracle.
func trained(b *builder, r *rig, runs int) error { return trainedWithin(b, r, runs, 1e-5, 1e-4) }

// trainedWithin is trained with bounds of its own for losses and values.
func trainedWithin(b *builder, r *rig, runs int, lossBound, bound float64) error {
	memory := copied(b.memory)
	loss := room(4)
	for n := range runs {
		want, err := b.oracleRun(memory)
		if err != nil {
			return err
		}
		if err := errors.Join(r.Run(), r.Read(b.loss, loss)); err != nil {
			return err
		}
		if got := float(loss); math.Abs(got-want) > lossBound*(1+math.Abs(want)) {
			return fmt.Errorf("run %d: loss %v, want %v", n, got, want)
		}
	}
	if err := r.Wait(); err != nil {
		return err
	}
	for _, id := range r.ids {
		got, err := r.elements(id)
		if err == nil {
			err = compare(valueName(b.p, id), got, memory[id], bound)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestRandomProgramsGiveWhatTheOracleSays(t *testing.T) {
	for seed := range uint64(4) {
		for _, cfg := range []Config{{}, {Eager: true}, {CUBLAS: Without, CUDNN: Without}, {Deterministic: true}} {
			t.Run(fmt.Sprintf("seed %d eager %t blas %q", seed, cfg.Eager, cfg.CUBLAS), func(t *testing.T) {
				b := newBuilder("random", seed)
				b.train(randomOptions(b.r)).plan(t, !cfg.Deterministic)
				if err := trained(b, newRig(t, b, cfg, program.Env{}), 6); err != nil {
					t.Errorf("%v\n%v", err, b.p)
				}
			})
		}
	}
}

// Where a sum of the device and of the oracle lie on two sides of a number halfway between two of
// bf16 or f16, they are rounded apart.
func TestNarrowProductsLearn(t *testing.T) {
	for _, cfg := range []Config{{Compute: BF16}, {Compute: BF16, Tune: true}, {Compute: BF16, CUBLAS: Without}, {Compute: F16}, {Compute: F16, CUBLAS: Without}} {
		b := newBuilder("narrow", 3)
		b.p.Narrow, b.p.NarrowTo = 1, tensor.BF16
		if cfg.Compute == F16 {
			b.p.NarrowTo = tensor.F16
		}
		b.train(options{batch: 32, dims: []int{64, 32, 8}}).plan(t, true)
		narrow := 0
		for i := range b.p.Values {
			if b.p.Values[i].DType == b.p.NarrowTo {
				narrow++
			}
		}
		if narrow < 5 {
			t.Errorf("%d values of %v", narrow, b.p.NarrowTo)
		}
		if err := trainedWithin(b, newRig(t, b, cfg, program.Env{}), 4, 1e-3, 1e-2); err != nil {
			t.Errorf("tune %t, blas %q: %v", cfg.Tune, cfg.CUBLAS, err)
		}
	}
}

// Weight gradients are computed during the products of the backward pass, by cuBLAS, by kernels of
// our own, and with copies of operands, step by step and in a graph.
func TestWhatIsAsideTrains(t *testing.T) {
	for _, cfg := range []Config{{}, {Eager: true}, {Tune: true, turns: turnAlways}, {CUBLAS: Without}} {
		b := newBuilder("aside", 5)
		b.p.Aside = true
		b.train(options{batch: 48, dims: []int{64, 80, 72, 8}}).plan(t, true)
		products := 0
		for i := range b.p.Steps {
			if _, ok := b.p.Steps[i].Op.(*program.MatMul); ok && b.p.Steps[i].Stream == program.Side {
				products++
			}
		}
		r := newRig(t, b, cfg, program.Env{})
		if products != 3 || r.streams[program.Side] == r.streams[program.Compute] {
			t.Errorf("%d products are aside, want 3", products)
		}
		if err := trained(b, r, 8); err != nil {
			t.Errorf("eager %t, tune %t, blas %q: %v\n%v", cfg.Eager, cfg.Tune, cfg.CUBLAS, err, b.p)
		}
	}
}

func TestTunedProductsAreProducts(t *testing.T) {
	for _, turns := range []turning{turnWhereFaster, turnAlways} {
		b := newBuilder("tuned", 1).train(options{batch: 32, dims: []int{64, 32, 8}}).plan(t, true)
		if err := trained(b, newRig(t, b, Config{Tune: true, turns: turns}, program.Env{}), 4); err != nil {
			t.Errorf("turns %d: %v", turns, err)
		}
	}
}

func TestReplaysGiveTheBitsOfSteps(t *testing.T) {
	b := newBuilder("bits", 2).train(options{batch: 48, dims: []int{70, 50, 10}, dropout: true}).plan(t, true)
	var results [2][][]byte
	for k, eager := range []bool{true, false} {
		r := newRig(t, b, Config{Eager: eager, Deterministic: true}, program.Env{})
		for range 7 {
			if err := r.Run(); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Wait(); err != nil {
			t.Fatal(err)
		}
		if graphs := len(r.graphs.list); eager && graphs != 0 || !eager && graphs != 1 {
			t.Errorf("eager %t: %d graphs", eager, graphs)
		}
		for _, id := range append(slices.Clone(r.ids), b.loss) {
			e, err := r.elements(id)
			if err != nil {
				t.Fatal(err)
			}
			results[k] = append(results[k], e)
		}
	}
	for i := range results[0] {
		if !bytes.Equal(results[0][i], results[1][i]) {
			t.Errorf("value number %d of those compared has other bits in a replay", i)
		}
	}
}

func TestMemoryThatIsBoundAnewIsUsed(t *testing.T) {
	b := newBuilder("bound", 3).train(options{batch: 8, dims: []int{5, 7, 3}}).plan(t, true)
	r := newRig(t, b, Config{}, program.Env{})
	memory, loss := copied(b.memory), room(4)
	var inputs [2]tensor.Buffer
	var data [2][]byte
	for i := range inputs {
		data[i] = numbers(b.r, tensor.F32, b.p.Values[b.x].Len(), -1, 1)
		all, err := r.v.AllocBuffer(int64(len(data[i])))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(r.Wait(), r.v.FreeBuffer(all)); err != nil {
				t.Error(err)
			}
		}()
		if err := r.v.WriteBuffer(all, data[i]); err != nil {
			t.Fatal(err)
		}
		if inputs[i], err = bufferAt(uintptr(all.Pointer()), len(data[i])/4, tensor.F32, r.v.Tensor()); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 9 {
		memory[b.x] = data[n%2]
		want, err := b.oracleRun(memory)
		if err := errors.Join(err, r.Bind(b.x, inputs[n%2]), r.Run(), r.Read(b.loss, loss)); err != nil {
			t.Fatal(err)
		}
		if got := float(loss); math.Abs(got-want) > 1e-5*(1+want) {
			t.Errorf("run %d: loss %v, want %v", n, got, want)
		}
	}
	if n := len(r.graphs.list); n != 2 {
		t.Errorf("two inputs in turn have made %d graphs", n)
	}
}

func TestStagedInputsGoToTheirRuns(t *testing.T) {
	b := newBuilder("staged", 4).train(options{batch: 16, dims: []int{300, 20, 4}}).plan(t, true)
	r := newRig(t, b, Config{}, program.Env{}, b.x, b.target)
	if err := r.Run(); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("a run without inputs: %v", err)
	}
	memory, loss := copied(b.memory), room(4)
	var want []float64
	check := func(run int) {
		if err := r.ReadRun(uint64(run), b.loss, loss); err != nil {
			t.Fatalf("run %d: %v", run, err)
		}
		if got, w := float(loss), want[run-1]; math.Abs(got-w) > 1e-5*(1+w) {
			t.Errorf("run %d: loss %v, want %v", run, got, w)
		}
	}
	const runs = 20
	for n := 1; n <= runs; n++ {
		memory[b.x] = numbers(b.r, tensor.F32, b.p.Values[b.x].Len(), -1, 1)
		err := r.Stage(b.x, memory[b.x])
		if n%3 == 1 { // the other one stays as it was
			memory[b.target] = numbers(b.r, tensor.F32, b.p.Values[b.target].Len(), 0, 0.1)
			pinned, e := r.Room(b.target)
			copy(pinned, memory[b.target])
			err = errors.Join(err, e, r.Stage(b.target, pinned))
		}
		if err := errors.Join(err, r.Run()); err != nil {
			t.Fatal(err)
		}
		l, err := b.oracleRun(memory)
		if err != nil {
			t.Fatal(err)
		}
		if want = append(want, l); n > 2 {
			check(n - 2)
		}
	}
	check(runs - 1)
	check(runs)
	if r.Runs() != runs || len(r.graphs.list) != 2 {
		t.Errorf("%d runs and %d graphs, want %d and 2", r.Runs(), len(r.graphs.list), runs)
	}
	for _, wrong := range []error{
		r.ReadRun(runs-ringSlots, b.loss, loss), r.ReadRun(runs+1, b.loss, loss), r.Read(b.loss, make([]byte, 8)),
		r.Stage(b.x, loss), r.Stage(b.loss, loss), r.Stage(99999, loss), r.ReadRun(runs-1, b.x, loss),
	} {
		if !errors.Is(wrong, dist.ErrInvalid) {
			t.Errorf("got %v, want an ErrInvalid", wrong)
		}
	}
}

// A program may be fed by turns from the host and from memory of the device, as for training and
// for tests.
func TestInputBoundAndStagedByTurnsTakesMemoryOnce(t *testing.T) {
	b := newBuilder("turns", 4).train(options{batch: 16, dims: []int{30, 20, 4}}).plan(t, true)
	r := newRig(t, b, Config{}, program.Env{})
	own, err := r.Memory(b.x)
	if err != nil {
		t.Fatal(err)
	}
	memory, loss := copied(b.memory), room(4)
	for n := range 12 {
		memory[b.x] = b.memory[b.x]
		err := r.Bind(b.x, own)
		if n%4 > 1 {
			memory[b.x] = numbers(b.r, tensor.F32, b.p.Values[b.x].Len(), -1, 1)
			err = errors.Join(err, r.Stage(b.x, memory[b.x]))
		}
		want, e := b.oracleRun(memory)
		if err := errors.Join(err, e, r.Run(), r.Read(b.loss, loss)); err != nil {
			t.Fatal(err)
		}
		if got := float(loss); math.Abs(got-want) > 1e-5*(1+want) {
			t.Errorf("run %d: loss %v, want %v", n, got, want)
		}
	}
	if n := len(r.stage.list); n != 1 {
		t.Errorf("memory of %d staged inputs, want that of one", n)
	}
}

func TestClockMovesOnInReplays(t *testing.T) {
	b := newBuilder("clock", 5).train(options{batch: 32, dims: []int{9, 40, 5}, dropout: true}).plan(t, true)
	memory, loss := copied(b.memory), room(4)
	r := newRig(t, b, Config{}, program.Env{})
	for n := range 8 {
		if n == 0 || n == 5 {
			step, sample := uint64(100*n), uint64(7+n)
			program.SetElement(tensor.U64, memory[b.p.Clock], 0, float64(step))
			program.SetElement(tensor.U64, memory[b.p.Clock], 1, float64(sample))
			if err := r.SetClock(step, sample); err != nil {
				t.Fatal(err)
			}
		}
		want, err := b.oracleRun(memory)
		if err := errors.Join(err, r.Run(), r.Read(b.loss, loss)); err != nil {
			t.Fatal(err)
		}
		if got := float(loss); math.Abs(got-want) > 1e-5*(1+want) {
			t.Errorf("run %d: loss %v, want %v", n, got, want)
		}
	}
}

func TestReplayAllocatesNothing(t *testing.T) {
	b := newBuilder("allocations", 6).train(options{batch: 8, dims: []int{6, 6, 3}, dropout: true}).plan(t, true)
	r := newRig(t, b, Config{}, program.Env{}, b.x)
	loss := room(4)
	var err error
	run := func() {
		err = errors.Join(err, r.Stage(b.x, b.memory[b.x]), r.Run(), r.Read(b.loss, loss))
	}
	for range 6 {
		run()
	}
	if n := testing.AllocsPerRun(100, run); n != 0 || err != nil {
		t.Errorf("%v allocations in a run, %v", n, err)
	}
}
