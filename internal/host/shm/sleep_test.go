package shm

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// sleepers is a world whose ranks sleep at once until they are woken: a lost wake-up hangs.
func sleepers(t *testing.T, n int, body func(w *dist.World) error) {
	t.Helper()
	ends, err := Local(n, memoryOfTests(), Config{ChunkBytes: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range ends {
		tr := end.(*worldTransport).Transport
		tr.spins, tr.node.spins, tr.node.yields, tr.node.poll = spinsShared, spinsShared, 1, time.Hour
	}
	if err := errors.Join(wrap(ends, body)...); err != nil {
		t.Error(err)
	}
}

func TestNoRankThatSleepsInAnOperationIsMissed(t *testing.T) {
	for _, n := range []int{2, 3, 8} {
		sleepers(t, n, func(w *dist.World) error {
			tiny, large := tensor.Of(make([]float32, 2)), tensor.Of(make([]float32, 3000))
			got := tensor.Of(make([]float32, 3000))
			next, last := (w.Rank()+1)%n, (w.Rank()+n-1)%n
			for i := range 1000 / n {
				for _, err := range []error{
					done(w.Barrier()),
					done(w.AllReduce(tiny, tiny, dist.Max)),
					done(w.Broadcast(tiny, tiny, i%n)),
					done(w.AllReduce(large, large, dist.Max)),
					done(w.Batch(func(b *dist.Group) error {
						_, err1 := b.Send(large, next)
						_, err2 := b.Recv(got, last)
						return errors.Join(err1, err2)
					})),
				} {
					if err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
}

func TestNoRankThatSleepsOnASignalIsMissed(t *testing.T) {
	const n, rounds = 4, 1000
	sleepers(t, n, func(w *dist.World) error {
		h, err := w.Heap(1 << 12)
		if err != nil {
			return err
		}
		signal, err := h.Alloc(8)
		if err != nil {
			return err
		}
		for round := range uint64(rounds) {
			if w.Rank() > 0 || round > 0 { // rank 0 begins
				want := round + 1
				if w.Rank() == 0 {
					want = round // of the round before
				}
				if _, err := symmetric.SignalWait(context.Background(), signal, 0, symmetric.Ge, want); err != nil {
					return err
				}
			}
			if err := signal.Signal((w.Rank()+1)%n, 0, symmetric.SignalSet, round+1); err != nil {
				return err
			}
		}
		return done(w.Barrier())
	})
}

// A put wakes the rank whose memory it changes: the bells of the others do not ring.
func TestASignalWakesNoOtherRank(t *testing.T) {
	ends, err := Local(3, memoryOfTests(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(wrap(ends, func(w *dist.World) error {
		heap, err := w.Heap(1 << 12)
		if err != nil {
			return err
		}
		signal, err := heap.Alloc(8)
		if err != nil {
			return err
		}
		var h *Heap
		for _, x := range *ends[w.Rank()].(*worldTransport).node.heaps.Load() {
			h = x
		}
		if w.Rank() == 0 {
			for r := 1; r < 3; r++ { // as if both slept
				atomic.AddUint64(h.bells[r].asleep(), 1)
				defer atomic.AddUint64(h.bells[r].asleep(), ^uint64(0))
			}
			if err := signal.Signal(1, 0, symmetric.SignalSet, 1); err != nil {
				return err
			}
			if rung := atomic.LoadUint64(h.bells[1].of(0, 8)); rung != 1 {
				t.Errorf("the bell of rank 1 rang %d times, want once", rung)
			}
			if rung := atomic.LoadUint64(h.bells[2].of(0, 8)) + atomic.LoadUint64(h.bells[2].wide()); rung != 0 {
				t.Errorf("the bells of rank 2 rang %d times", rung)
			}
		}
		return done(w.Barrier())
	})...)
	if err != nil {
		t.Error(err)
	}
}

// A caller that keeps its processor while it sleeps stops neither a collection nor another
// goroutine.
func TestSleeperThatKeepsItsProcessorStopsNobody(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	var word [2]uint64 // with the count of sleepers
	var ended atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !ended.Load() {
			futexWait(&word[0], 0, time.Hour, true)
		}
	})
	for atomic.LoadUint64(waiters(&word[0])) == 0 {
		runtime.Gosched()
	}
	for range 3 {
		runtime.GC()
	}
	ended.Store(true)
	atomic.StoreUint64(&word[0], 1)
	futexWake(&word[0])
	wg.Wait()
}

// Few ranks yield often before they sleep, many seldom; ranks that are goroutines leave their
// processors to each other.
func TestHowRanksThatShareCoresWait(t *testing.T) {
	for _, c := range []struct{ ranks, cores, want int }{
		{1, 1, yields},
		{8, 2, yields},
		{9, 2, yieldsMany},
		{64, 2, yieldsMany},
		{64, 16, yields},
	} {
		if got := yieldsOf(c.ranks, c.cores); got != c.want {
			t.Errorf("%d ranks on %d cores yield %d times, want %d", c.ranks, c.cores, got, c.want)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	many := cores() + 1
	if nd := newNode(Config{}.withDefaults(), 0, many, nil, nil); !nd.holds {
		t.Error("a caller with a process of its own releases its processor")
	}
	runtime.GOMAXPROCS(1)
	if nd := newNode(Config{}.withDefaults(), 0, many, nil, nil); nd.holds {
		t.Error("a caller keeps the only processor")
	}
	ends, err := Local(many, memoryOfTests(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range ends {
		if end.(*worldTransport).node.holds {
			t.Error("a goroutine rank keeps its processor")
		}
		if err := end.Close(); err != nil {
			t.Error(err)
		}
	}
}
