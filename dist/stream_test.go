package dist_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// runner does what its function says with the tag of the operation.
type runner func(tag uint64) error

func (r runner) Run(_ *dist.Op, tag uint64) error { return r(tag) }

// submit queues tag for run.
func submit(t testing.TB, s *dist.HostStream, run runner, tag uint64) dist.Work {
	t.Helper()
	w, err := s.Submit(run, dist.Op{Kind: dist.KindSync, Seq: tag}, tag)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func stream(t testing.TB) *dist.HostStream {
	t.Helper()
	s := dist.NewHostStream()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Many more operations than the first ring holds are queued while the worker is held up, in two bursts so that the ring
// wraps around before it grows.
func TestStreamKeepsOrderWhileItsRingGrows(t *testing.T) {
	s := stream(t)
	gate := make(chan struct{})
	var ran []uint64 // written by the worker only, read after Synchronize
	run := runner(func(tag uint64) error {
		if tag == 0 || tag == 40 {
			<-gate
		}
		ran = append(ran, tag)
		return nil
	})
	for i := range uint64(50) {
		submit(t, s, run, i)
	}
	gate <- struct{}{}
	for i := uint64(50); i < 1000; i++ {
		submit(t, s, run, i)
	}
	gate <- struct{}{}
	if err := s.Synchronize(); err != nil {
		t.Fatal(err)
	}
	if len(ran) != 1000 || !slices.IsSorted(ran) {
		t.Errorf("%d operations ran, in order: %v", len(ran), slices.IsSorted(ran))
	}
}

func TestWorkTellsWhenAndHowItEnds(t *testing.T) {
	s := stream(t)
	gate := make(chan struct{})
	run := runner(func(tag uint64) error {
		<-gate
		if tag == 2 {
			return errTest
		}
		return nil
	})
	works := []dist.Work{submit(t, s, run, 0), submit(t, s, run, 1), submit(t, s, run, 2), submit(t, s, run, 3)}
	for i, w := range works {
		if w.Done() {
			t.Errorf("operation %d is done before it ran", i)
		}
	}
	gate <- struct{}{}
	if err := works[0].Wait(); err != nil || !works[0].Done() {
		t.Errorf("first: error %v, done %v", err, works[0].Done())
	}
	if works[1].Done() {
		t.Error("second is done with the first")
	}
	close(gate)
	for _, i := range []int{3, 2, 1, 2} { // in any order, and again
		err := works[i].Wait()
		if want := i == 2; errors.Is(err, errTest) != want {
			t.Errorf("operation %d: error %v", i, err)
		}
	}
}

func TestZeroWorkIsDone(t *testing.T) {
	var w dist.Work
	if !w.Done() || w.Wait() != nil {
		t.Error("the zero Work is not done")
	}
}

// A stream on which everything fails keeps a bounded number of errors; a Work whose error is gone still fails.
func TestOldFailuresAreNotForgotten(t *testing.T) {
	s := stream(t)
	fail := runner(func(tag uint64) error { return fmt.Errorf("operation %d: %w", tag, errTest) })
	works := make([]dist.Work, 3000)
	for i := range works {
		works[i] = submit(t, s, fail, uint64(i))
	}
	good := submit(t, s, func(uint64) error { return nil }, 0)
	for i, w := range works {
		if err := w.Wait(); !errors.Is(err, errTest) {
			t.Fatalf("operation %d: error %v", i, err)
		}
	}
	if err := works[2999].Wait(); err.Error() != "operation 2999: made for the test" {
		t.Errorf("newest: %v", err)
	}
	if err := works[0].Wait(); err.Error() != "operation 0: made for the test" {
		t.Errorf("oldest: %v", err)
	}
	if err := good.Wait(); err != nil {
		t.Errorf("the operation after them: %v", err)
	}
}

func TestJoinMakesLaterWorkWait(t *testing.T) {
	first, second := stream(t), stream(t)
	gate := make(chan struct{})
	var order []string
	slow := submit(t, first, func(uint64) error { <-gate; order = append(order, "first"); return errTest }, 1)
	if err := second.Join(slow); err != nil {
		t.Fatal(err)
	}
	after := submit(t, second, func(uint64) error { order = append(order, "second"); return nil }, 1)
	if after.Done() {
		t.Error("work after the join is done before what was joined")
	}
	close(gate)
	if err := after.Wait(); err != nil {
		t.Errorf("work after the join has the error of what was joined: %v", err)
	}
	if !slices.Equal(order, []string{"first", "second"}) {
		t.Errorf("order %v", order)
	}
	if err := slow.Wait(); !errors.Is(err, errTest) {
		t.Errorf("joined work: error %v", err)
	}
}

func TestJoinOfDoneWorkIsNothing(t *testing.T) {
	s := dist.NewHostStream()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Join(dist.Work{}); err != nil {
		t.Errorf("join of the zero Work on a closed stream: %v", err)
	}
}

func TestCloseRunsWhatIsQueuedThenRefuses(t *testing.T) {
	s := dist.NewHostStream()
	other := stream(t)
	gate, ran := make(chan struct{}), 0
	for i := range uint64(100) {
		submit(t, s, func(uint64) error { <-gate; ran++; return nil }, i)
	}
	pending := submit(t, other, func(uint64) error { <-gate; return nil }, 1)
	var closers sync.WaitGroup
	for range 3 { // idempotent, and from several goroutines
		closers.Go(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	close(gate)
	closers.Wait()
	if ran != 100 {
		t.Errorf("%d of 100 operations ran before Close returned", ran)
	}
	if _, err := s.Submit(runner(nil), dist.Op{}, 0); !errors.Is(err, dist.ErrClosed) {
		t.Errorf("submit after Close: %v", err)
	}
	if err := pending.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := s.Synchronize(); err != nil {
		t.Errorf("synchronize after Close: %v", err)
	}
}

func TestJoinOfPendingWorkOnAClosedStream(t *testing.T) {
	s, other := dist.NewHostStream(), stream(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	w := submit(t, other, func(uint64) error { <-gate; return nil }, 1)
	if err := s.Join(w); !errors.Is(err, dist.ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
	close(gate)
}

func TestHostStreamIsOnTheHost(t *testing.T) {
	if d := stream(t).Device(); d != tensor.Host {
		t.Errorf("device %v", d)
	}
}

func TestSubmitDoesNotAllocate(t *testing.T) {
	s := stream(t)
	run := dist.Runner(runner(func(uint64) error { return nil }))
	round := func() {
		var last dist.Work
		for i := range uint64(50) {
			last, _ = s.Submit(run, dist.Op{}, i)
		}
		if err := last.Wait(); err != nil {
			t.Error(err)
		}
	}
	round()
	if n := testing.AllocsPerRun(50, round); n != 0 {
		t.Errorf("%v allocations for 50 operations", n)
	}
}

func TestStreamFromManyGoroutines(t *testing.T) {
	s := stream(t)
	var sum uint64
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for i := range uint64(100) {
				w, err := s.Submit(runner(func(tag uint64) error { sum += tag; return nil }), dist.Op{}, i)
				if err == nil && i%10 == 0 {
					err = w.Wait()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	if err := s.Synchronize(); err != nil || sum != 8*4950 {
		t.Errorf("sum %d, error %v", sum, err)
	}
}

func BenchmarkSubmitAndWait(b *testing.B) {
	s := stream(b)
	run := dist.Runner(runner(func(uint64) error { return nil }))
	b.ReportAllocs()
	for b.Loop() {
		w, err := s.Submit(run, dist.Op{}, 0)
		if err == nil {
			err = w.Wait()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
