package sim_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onEach runs body on every rank of a world of n ranks and closes it.
func onEach(t testing.TB, n int, cfg sim.Config, body func(w *dist.World) error) {
	t.Helper()
	worlds, err := sim.New(n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var ranks sync.WaitGroup
	for _, w := range worlds {
		ranks.Go(func() {
			if err := errors.Join(body(w), w.Close()); err != nil {
				t.Errorf("rank %d: %v", w.Rank(), err)
			}
		})
	}
	ranks.Wait()
}

func finish(w dist.Work, err error) error {
	if err != nil {
		return err
	}
	return w.Wait()
}

func TestWorldSaysWhatItIs(t *testing.T) {
	worlds, err := sim.New(3, sim.Config{TraceEntries: 7})
	if err != nil {
		t.Fatal(err)
	}
	for r, w := range worlds {
		if w.Rank() != r || w.Size() != 3 || w.Backend() != "sim" || w.Device() != tensor.Host {
			t.Errorf("rank %d: %d/%d on %v by %q", r, w.Rank(), w.Size(), w.Device(), w.Backend())
		}
		if l := w.Local(); l != (dist.LocalInfo{Rank: r, Size: 3, Nodes: 1, Launcher: "none", Job: "sim"}) {
			t.Errorf("rank %d: local %+v", r, l)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWrongSettingsAreRefused(t *testing.T) {
	for what, cfg := range map[string]sim.Config{
		"timeout": {StepTimeout: -1}, "trace entries": {TraceEntries: -1}, "script line 1": {Script: "sleep"},
	} {
		_, err := sim.New(2, cfg)
		_, ends := sim.Transports(2, cfg)
		for _, err := range []error{err, ends, cfg.Validate(2)} {
			if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), what) {
				t.Errorf("%+v: error %v, want ErrInvalid that names the %s", cfg, err, what)
			}
		}
	}
}

// Groups, heaps and timers of a world leave no memory or goroutines, however often they are made.
func TestThousandWorldsLeaveNothingBehind(t *testing.T) {
	cycle := func() {
		onEach(t, 2, sim.Config{TraceEntries: 4}, func(w *dist.World) error {
			g, err := w.Split(0, -w.Rank())
			if err != nil {
				return err
			}
			h, err := g.Heap(1 << 10)
			if err != nil {
				return err
			}
			if _, err := h.Alloc(100); err != nil {
				return err
			}
			return finish(g.Barrier())
		})
	}
	cycle()
	before := runtime.NumGoroutine()
	for range 1000 {
		cycle()
	}
	// A goroutine whose work is done may not have ended yet.
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

func TestStartNeedsAHostStream(t *testing.T) {
	onEach(t, 1, sim.Config{}, func(w *dist.World) error {
		_, err := w.On(gpuStream{}).Barrier()
		if !errors.Is(err, dist.ErrDevice) {
			return fmt.Errorf("error %v, want ErrDevice", err)
		}
		return finish(w.Barrier())
	})
}

// gpuStream is a stream that is not of the host.
type gpuStream struct{ dist.Stream }

func (gpuStream) Device() tensor.Device { return tensor.CUDA(0) }

func TestOperationOfAClosedStreamIsRefusedAndTakesNoTurn(t *testing.T) {
	onEach(t, 2, sim.Config{}, func(w *dist.World) error {
		s := dist.NewHostStream()
		if err := s.Close(); err != nil {
			return err
		}
		if _, err := w.On(s).Barrier(); !errors.Is(err, dist.ErrClosed) {
			return fmt.Errorf("error %v, want ErrClosed", err)
		}
		return finish(w.Barrier())
	})
}

// Two groups may be used at once from two goroutines; on each, operations keep their order.
func TestGroupsProgressIndependently(t *testing.T) {
	onEach(t, 4, sim.Config{}, func(w *dist.World) error {
		x, y, err := w.Split2D(2)
		if err != nil {
			return err
		}
		var both sync.WaitGroup
		errs := make([]error, 2)
		for i, g := range []*dist.Group{x, y} {
			both.Go(func() {
				for k := range 200 {
					v := []int32{int32(k)}
					if err := finish(g.AllReduce(tensor.Of(v), tensor.Of(v), dist.Sum)); err != nil || v[0] != int32(2*k) {
						errs[i] = fmt.Errorf("step %d: %v, error %w", k, v, err)
						return
					}
				}
			})
		}
		both.Wait()
		return errors.Join(errs...)
	})
}

// Sizes that wrap around when they are rounded, or that Go cannot make, are refused, and the group
// stays whole.
func TestHeapLargerThanAnyMemoryIsAnErrorOnAllRanks(t *testing.T) {
	for _, bytes := range []int64{math.MaxInt64, math.MaxInt64 - symmetric.Alignment, 1 << 62, 1 << 48} {
		onEach(t, 2, sim.Config{}, func(w *dist.World) error {
			if h, err := w.Heap(bytes); !errors.Is(err, symmetric.ErrNoSpace) {
				return fmt.Errorf("heap %v of %d B: error %w, want ErrNoSpace", h, bytes, err)
			}
			return finish(w.Barrier())
		})
	}
}

func TestRegionAfterFreeAndClose(t *testing.T) {
	onEach(t, 2, sim.Config{}, func(w *dist.World) error {
		h, err := w.Heap(4096)
		if err != nil {
			return err
		}
		one, err := h.Alloc(8)
		if err != nil {
			return err
		}
		two, err := h.Alloc(8)
		if err != nil {
			return err
		}
		if err := h.Free(one); err != nil {
			return err
		}
		word := tensor.Of([]byte{1})
		_, peer := one.Peer(0)
		for what, err := range map[string]error{"put": one.Put(0, 0, word), "get": one.Get(word, 0, 0), "peer": peer} {
			if !errors.Is(err, symmetric.ErrNotAllocated) {
				return fmt.Errorf("%s after Free: error %w, want ErrNotAllocated", what, err)
			}
		}
		if err := finish(w.Barrier()); err != nil {
			return err
		}
		if err := h.Close(); err != nil {
			return err
		}
		_, peer = two.Peer(0)
		for what, err := range map[string]error{
			"put": two.Put(0, 0, word), "get": two.Get(word, 0, 0), "peer": peer, "fence": h.Fence(), "quiet": h.Quiet(), "free": h.Free(two),
		} {
			if !errors.Is(err, dist.ErrClosed) {
				return fmt.Errorf("%s after Close: error %w, want ErrClosed", what, err)
			}
		}
		if b := two.Local(); b.Len() != 0 {
			return fmt.Errorf("local part after Close: %v, want nothing", b)
		}
		return nil
	})
}

// An operation allocates nothing once the world has warmed up: this is the model for backends that
// must be fast.
func TestOperationsDoNotAllocate(t *testing.T) {
	onEach(t, 1, sim.Config{}, func(w *dist.World) error {
		x := tensor.Of(make([]float32, 100))
		var failed error
		allocs := testing.AllocsPerRun(100, func() {
			if err := finish(w.AllReduce(x, x, dist.Sum)); err != nil {
				failed = err
			}
		})
		if allocs > 0 {
			return fmt.Errorf("%v allocations for an allreduce", allocs)
		}
		return failed
	})
}

// Bytes are those of one rank's buffer.
func BenchmarkAllReduce(b *testing.B) {
	for _, n := range []int{1, 2, 4} {
		for _, count := range []int{256, 1 << 18} {
			b.Run(fmt.Sprintf("%d/%dB", n, 4*count), func(b *testing.B) {
				b.SetBytes(int64(4 * count))
				b.ReportAllocs()
				onEach(b, n, sim.Config{}, func(w *dist.World) error {
					x := tensor.Of(make([]float32, count))
					for range b.N {
						if err := finish(w.AllReduce(x, x, dist.Sum)); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}
