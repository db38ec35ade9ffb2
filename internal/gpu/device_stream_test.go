package gpu

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

// held is work of the host that ends when let is closed.
func held(t *testing.T) (w dist.Work, let chan struct{}) {
	t.Helper()
	host := dist.NewHostStream()
	let = make(chan struct{})
	w, err := host.Do(func() error { <-let; return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-let:
		default: // the test has ended early
			close(let)
		}
		_ = host.Close()
	})
	return w, let
}

func newTestStream(t *testing.T, v *cuda.Device) *Stream {
	t.Helper()
	s, err := NewStream(v)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStreamsJoinWorkOfHostAndDevice(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	a, b := newTestStream(t, v), newTestStream(t, v)
	w, let := held(t)
	if err := a.Join(w); err != nil {
		t.Fatal(err)
	}
	behind, err := a.Mark()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Join(behind); err != nil {
		t.Fatal(err)
	}
	last, err := b.Mark()
	if err != nil {
		t.Fatal(err)
	}
	host := dist.NewHostStream()
	defer host.Close()
	if err := host.Join(last); err != nil {
		t.Fatal(err)
	}
	after, err := host.Do(func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if behind.Done() || last.Done() || after.Done() {
		t.Error("work is done that is joined to work which is not")
	}
	close(let)
	if err := errors.Join(after.Wait(), last.Wait(), behind.Wait(), b.Join(behind), a.Join(w)); err != nil {
		t.Error(err)
	}
}

func TestForeignStreamIsWrapped(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	own := newTestStream(t, v)
	s := Wrap(v, own.Handle())
	w, err := s.Mark()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Wait(), s.Close(), own.Synchronize()); err != nil {
		t.Error(err)
	}
	if s.Handle() == own.Handle() {
		t.Error("a wrapped stream still has its handle after Close")
	}
}

func TestWaitIsPreciseRightAfterStart(t *testing.T) {
	for _, precise := range []bool{false, true} {
		onGPUs(t, 1, func(c *Config) { c.Precise = precise }, func(m member) error {
			s, ok := m.Stream().(*Stream)
			if !ok {
				return errors.New("the group's stream is not of a GPU")
			}
			w, let := held(t)
			first, err := m.Barrier()
			if err == nil && !precise {
				err = first.Wait()
			}
			if err != nil {
				return err
			}
			if err := s.Join(w); err != nil {
				return err
			}
			second, err := m.Barrier()
			if err != nil {
				return err
			}
			err = first.Wait()
			if second.Done() {
				err = errors.Join(err, errors.New("work is done behind a wait that is not over"))
			}
			close(let)
			return errors.Join(err, second.Wait(), first.Wait())
		})
	}
}

func TestOperationsOfTwoStreamsKeepTheirOrder(t *testing.T) {
	onGPUs(t, 1, nil, func(m member) error {
		second, err := NewStream(m.v)
		if err != nil {
			return err
		}
		const steps = 300
		x, free, err := m.upload(tensor.Of([]int64{1}))
		if err != nil {
			return err
		}
		for i := range steps {
			g := m.Group
			if i/3%2 == 1 {
				g = m.On(second)
			}
			if _, err := g.AllReduce(x, x, dist.PreMulSum(int64(3))); err != nil {
				return err
			}
		}
		got := make([]int64, 1)
		err = errors.Join(m.Stream().Synchronize(), second.Synchronize(), m.download(tensor.Of(got), x))
		power := int64(1)
		for range steps {
			power *= 3
		}
		if err == nil && got[0] != power {
			err = fmt.Errorf("%d operations on two streams: %d, want %d", steps, got[0], power)
		}
		host := dist.NewHostStream()
		defer host.Close()
		_, wrong := m.On(host).Barrier()
		return errors.Join(err, second.Close(), free(), want(wrong, dist.ErrDevice))
	})
}

func TestManyWorksAreWaitedForInAnyOrder(t *testing.T) {
	onGPUs(t, 1, nil, func(m member) error {
		var works [3 * firstTickets]dist.Work
		for i := range works {
			w, err := m.Barrier()
			if err != nil {
				return err
			}
			works[i] = w
		}
		for k := range works {
			i := (k*77 + 13) % len(works)
			if err := works[i].Wait(); err != nil || !works[i].Done() {
				return fmt.Errorf("operation %d: done %v, %w", i, works[i].Done(), err)
			}
		}
		return nil
	})
}

func TestCapturedOperationsAreReplayed(t *testing.T) {
	onGPUs(t, 1, nil, func(m member) error {
		s, _ := m.Stream().(*Stream)
		x, free, err := m.upload(tensor.Of([]int32{1}))
		if err != nil {
			return err
		}
		g, err := s.Capture(func() error {
			for range 2 {
				w, err := m.AllReduce(x, x, dist.PreMulSum(int32(2)))
				if err != nil || !w.Done() {
					return fmt.Errorf("captured: done %v, %w", w.Done(), err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		exec, err := g.Instantiate()
		if err != nil {
			return err
		}
		for range 3 {
			if err := exec.Launch(s.CUDA()); err != nil {
				return err
			}
		}
		got := make([]int32, 1)
		err = errors.Join(s.Synchronize(), m.download(tensor.Of(got), x), exec.Close(), g.Close(), free())
		if err == nil && got[0] != 64 {
			err = fmt.Errorf("three replays of two doublings: %d, want 64", got[0])
		}
		cause := errors.New("the caller's own")
		_, failed := s.Capture(func() error { return cause })
		return errors.Join(err, want(failed, cause), finish(m.Barrier()))
	})
}

func TestGroupForgetsStreamsThatAreClosed(t *testing.T) {
	onGPUs(t, 1, nil, func(m member) error {
		for range 10 {
			s, err := NewStream(m.v)
			if err != nil {
				return err
			}
			if err := errors.Join(finish(m.On(s).Barrier()), s.Close()); err != nil {
				return err
			}
		}
		if n := len(m.t.streams.list); n > 2 {
			return fmt.Errorf("the group keeps %d streams, none of which is open", n)
		}
		return nil
	})
}

func TestOperationsAreTimed(t *testing.T) {
	onGPUs(t, 1, func(c *Config) { c.Timing = true }, func(m member) error {
		const bytes = 64 << 20
		x, free, err := m.upload(tensor.Of(make([]byte, bytes)))
		if err != nil {
			return err
		}
		y, free2, err := m.upload(tensor.Of(make([]byte, bytes)))
		if err != nil {
			return err
		}
		w, err := m.AllReduce(y, x, dist.Sum)
		if err != nil {
			return err
		}
		took, err := w.Elapsed()
		if err != nil {
			return err
		}
		one := inMilliseconds(took)
		all, err := TimeOp(m.Stream(), func() error {
			_, err := m.AllReduce(y, x, dist.Sum)
			return err
		})
		if err == nil && (one <= 0.001 || one > 1000 || all <= 0.001 || all > 1000) {
			err = fmt.Errorf("a copy of %d B took %v ms and %v ms", bytes, one, all)
		}
		return errors.Join(err, free(), free2())
	})
}

func TestStartAllocatesNothing(t *testing.T) {
	onGPUs(t, 1, nil, func(m member) error {
		x, free, err := m.upload(tensor.Of(make([]float32, 256)))
		if err != nil {
			return err
		}
		y, free2, err := m.upload(tensor.Of(make([]float32, 256)))
		if err != nil {
			return err
		}
		run := func() {
			w, e := m.AllReduce(y, x, dist.Sum)
			err = errors.Join(err, e)
			_ = w
		}
		for range 3 * sparseMarks {
			run()
		}
		if err := m.Stream().Synchronize(); err != nil {
			return err
		}
		if n := testing.AllocsPerRun(sparseMarks/2, run); n != 0 {
			err = errors.Join(err, fmt.Errorf("%v allocations to start an operation", n))
		}
		return errors.Join(err, m.Stream().Synchronize(), free(), free2())
	})
}

// closed is an engine of a group of one with a cached launch that can no longer be launched.
type closed struct {
	local
	kept   *cuda.Kept
	queued int
}

func (c *closed) Name() string                           { return "closed" }
func (c *closed) Kept(*dist.Op, *cuda.Stream) *cuda.Kept { return c.kept }
func (c *closed) Forget()                                {}
func (c *closed) Enqueue(op *dist.Op, s *cuda.Stream) error {
	c.queued++
	return c.local.Enqueue(op, s)
}

func TestWhatCannotBeLaunchedAgainIsQueuedAnew(t *testing.T) {
	e := new(closed)
	only := func(c *Config) {
		c.Make = func(*Member) ([]Engine, error) { return []Engine{e}, nil }
		c.Choose.First = true
	}
	onGPUs(t, 1, only, func(m member) error {
		var err error
		if e.kept, err = cudatest.Kernel(t, m.v, `extern "C" __global__ void nothing() {}`, "nothing").Keep(cuda.Launch{}, nil); err != nil {
			return err
		}
		if err := e.kept.Close(); err != nil {
			return err
		}
		x, free, err := m.upload(tensor.Of([]float32{1, 2, 3}))
		if err != nil {
			return err
		}
		for queued, f := range []func(y tensor.Buffer) (dist.Work, error){
			func(y tensor.Buffer) (dist.Work, error) { return m.AllReduce(y, x, dist.Sum) },
			func(y tensor.Buffer) (dist.Work, error) {
				return m.Batch(func(g *dist.Group) error {
					_, err := g.AllReduce(y, x, dist.Sum)
					return err
				})
			},
		} {
			y, free, err := m.upload(tensor.Of(make([]float32, 3)))
			if err != nil {
				return err
			}
			got := make([]float32, 3)
			if err := errors.Join(finish(f(y)), m.download(tensor.Of(got), y), free()); err != nil {
				return err
			}
			if e.queued != queued+1 || !slices.Equal(got, []float32{1, 2, 3}) {
				return fmt.Errorf("after operation %d the engine has queued %d, and the result is %v", queued+1, e.queued, got)
			}
		}
		return free()
	})
}

// busyKernel keeps each of its blocks busy for a while.
const busyKernel = `extern "C" __global__ void busy(long long cycles) {
  long long begin = clock64();
  while (clock64() - begin < cycles) {}
}`

// A long kernel on a stream of default priority does not delay a later operation of a group: blocks
// of the stream with the greater priority go first.
func TestComputingDoesNotDelayCommunication(t *testing.T) {
	onGPUs(t, 1, nil, func(m member) error {
		busy := cudatest.Kernel(t, m.v, busyKernel, "busy")
		x, free, err := m.upload(tensor.Of(make([]float32, 1<<16)))
		if err != nil {
			return err
		}
		if err := finish(m.AllReduce(x, x, dist.PreMulSum(float32(2)))); err != nil { // loads the kernel
			return err
		}
		compute, err := NewStream(m.v)
		if err != nil {
			return err
		}
		args, err := cuda.NewArgs(1)
		if err != nil {
			return err
		}
		args.I64(100_000)
		if err := busy.Launch(compute.CUDA(), cuda.Launch{Grid: [3]uint32{1 << 20, 1, 1}, Block: [3]uint32{1024, 1, 1}}, args); err != nil {
			return err
		}
		err = finish(m.AllReduce(x, x, dist.PreMulSum(float32(2))))
		idle, e := compute.CUDA().Idle()
		if idle {
			err = errors.Join(err, errors.New("the operation was done only behind the long kernel"))
		}
		return errors.Join(err, e, compute.Close(), free())
	})
}

// onOneGPU runs body in a group of one.
func onOneGPU(b *testing.B, body func(m member)) {
	b.Helper()
	v := cudatest.Devices(b, 1)[0]
	worlds, err := sim.New(1, sim.Config{})
	if err != nil {
		b.Fatal(err)
	}
	t, err := Open(Config{Device: v, Control: worlds[0].Group, Make: func(*Member) ([]Engine, error) { return nil, nil }})
	if err != nil {
		b.Fatal(err)
	}
	g, err := dist.NewGroup(t, 0)
	if err != nil {
		b.Fatal(err)
	}
	body(member{g, t, v, func() {}})
	if err := g.Close(); err != nil {
		b.Error(err)
	}
}

// BenchmarkStart measures an operation's cost for its caller, and the driver's cost of a copy.
func BenchmarkStart(b *testing.B) {
	onOneGPU(b, func(m member) {
		x, free, err := m.upload(tensor.Of(make([]float32, 256)))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, err := m.AllReduce(x, x, dist.Sum); err != nil { // in place: nothing to copy
				b.Fatal(err)
			}
		}
		if err := errors.Join(m.Stream().Synchronize(), free()); err != nil {
			b.Fatal(err)
		}
	})
}

// Events after pending work cannot be reused; all others are.
func TestEventsAreUsedAgain(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	s := newTestStream(t, v)
	const marks = 300
	mark := func() {
		for range marks {
			if _, err := s.Mark(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 5 {
		w, let := held(t)
		if err := s.Join(w); err != nil {
			t.Fatal(err)
		}
		mark()
		close(let)
		mark()
		if err := s.Synchronize(); err != nil {
			t.Fatal(err)
		}
		mark()
	}
	if err := s.Synchronize(); err != nil {
		t.Fatal(err)
	}
	if n := len(s.spare) + len(s.marks); n > 3*marks+2*sweptMarks {
		t.Errorf("%d events, where at most %d marks wait at a time", n, 3*marks)
	}
}
