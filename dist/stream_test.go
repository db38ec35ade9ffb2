package dist_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// runner calls its function with the tag of the operation.
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

// Many more operations than the first ring holds are queued while the worker is held up, in two
// bursts so that the ring wraps around before it grows.
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

// A stream on which everything fails keeps a bounded number of errors; a Work whose error is gone
// still fails.
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

// With as many failures as a stream keeps, and then more, work that succeeded before, between the
// first failures or after them has not failed.
func TestSuccessAmongFailuresStaysSuccess(t *testing.T) {
	const kept = 1024
	s := stream(t)
	fail := runner(func(tag uint64) error { return fmt.Errorf("operation %d: %w", tag, errTest) })
	succeed := runner(func(uint64) error { return nil })
	before := submit(t, s, succeed, 0)
	failed := []dist.Work{submit(t, s, fail, 0)}
	between := submit(t, s, succeed, 0)
	for i := uint64(1); i < kept; i++ {
		failed = append(failed, submit(t, s, fail, i))
	}
	after := submit(t, s, succeed, 0)
	if err := s.Synchronize(); err != nil {
		t.Fatal(err)
	}
	for what, w := range map[string]dist.Work{"before": before, "between": between, "after": after} {
		if err := w.Wait(); err != nil {
			t.Errorf("work %s the failures: %v", what, err)
		}
	}
	for i, w := range failed {
		if err := w.Wait(); err == nil || err.Error() != fmt.Sprintf("operation %d: made for the test", i) {
			t.Errorf("failure %d: %v", i, err)
		}
	}
	more := submit(t, s, fail, kept) // one error has to go: the oldest but one answers with the oldest
	if err := more.Wait(); err == nil || err.Error() != "operation 1024: made for the test" {
		t.Errorf("newest failure: %v", err)
	}
	if err := failed[1].Wait(); err == nil || err.Error() != "operation 0: made for the test" {
		t.Errorf("failure whose error is gone: %v", err)
	}
	if err := errors.Join(before.Wait(), after.Wait()); err != nil {
		t.Errorf("successes once an error has gone: %v", err)
	}
}

// A Join of work of the same stream, which is done when the Join's turn comes, cannot block it.
func TestJoinOfTheOwnStream(t *testing.T) {
	s := stream(t)
	gate := make(chan struct{})
	w := submit(t, s, func(uint64) error { <-gate; return nil }, 1)
	if err := s.Join(w); err != nil {
		t.Fatal(err)
	}
	after := submit(t, s, func(uint64) error { return nil }, 2)
	close(gate)
	if err := after.Wait(); err != nil || !w.Done() {
		t.Errorf("error %v, joined work done: %v", err, w.Done())
	}
}

// A chain through three streams runs in its order, although it is queued from the end.
func TestJoinsChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := [3]*dist.HostStream{dist.NewHostStream(), dist.NewHostStream(), dist.NewHostStream()}
		gate := make(chan struct{})
		var order []int
		last := submit(t, streams[0], func(uint64) error { <-gate; order = append(order, 0); return nil }, 1)
		for i, s := range streams[1:] {
			if err := s.Join(last); err != nil {
				t.Fatal(err)
			}
			last = submit(t, s, func(uint64) error { order = append(order, i+1); return nil }, 1)
		}
		synctest.Wait() // every worker waits
		if len(order) != 0 || last.Done() {
			t.Errorf("ran before what was joined: %v", order)
		}
		close(gate)
		if err := last.Wait(); err != nil || !slices.Equal(order, []int{0, 1, 2}) {
			t.Errorf("order %v, error %v", order, err)
		}
		for _, s := range streams {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// queue is a stream's book-keeping of a backend's own: tickets up to done are done.
type queue struct{ done uint64 }

func (q *queue) Await(ticket uint64) error {
	if ticket > q.done {
		return fmt.Errorf("ticket %d: %w", ticket, errTest)
	}
	return nil
}

func (q *queue) Finished(ticket uint64) bool { return ticket <= q.done }

func TestWorkOfABackendAsksItsQueue(t *testing.T) {
	q := &queue{done: 4}
	early, late := dist.NewWork(q, 4), dist.NewWork(q, 5)
	if !early.Done() || early.Wait() != nil {
		t.Errorf("ticket 4: done %v, error %v", early.Done(), early.Wait())
	}
	if err := late.Wait(); late.Done() || !errors.Is(err, errTest) {
		t.Errorf("ticket 5: done %v, error %v", late.Done(), err)
	}
}

func TestWorkTellsItsTicket(t *testing.T) {
	s := dist.NewHostStream()
	defer s.Close()
	if q, n := dist.NewWork(s, 7).Ticket(); q != dist.Queue(s) || n != 7 {
		t.Errorf("ticket %d of %v", n, q)
	}
	if q, _ := (dist.Work{}).Ticket(); q != nil {
		t.Errorf("the zero Work has a queue: %v", q)
	}
}
