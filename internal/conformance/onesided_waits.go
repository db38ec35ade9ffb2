package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// waits tests every wait and test for words of type T, which the previous rank sets.
func waits[T symmetric.Integer](s *suite, r symmetric.Region) error {
	return errors.Join(comparisons[T](s, r), vectors[T](s, r))
}

// comparisons changes a word, for each of the six, from a value for which it is false to one for
// which it is true.
func comparisons[T symmetric.Integer](s *suite, r symmetric.Region) error {
	ctx, next := context.Background(), (s.rank+1)%s.n
	for _, c := range []struct {
		cmp         symmetric.Comparison
		from, to, v T
	}{
		{symmetric.Eq, 1, 7, 7},
		{symmetric.Ne, 7, 8, 7},
		{symmetric.Gt, 7, 8, 7},
		{symmetric.Ge, 6, 7, 7},
		{symmetric.Lt, 7, 6, 7},
		{symmetric.Le, 8, 7, 7},
		{symmetric.Gt, T(0) - 3, T(0) - 1, T(0) - 2}, // negative numbers, or the largest ones
		{symmetric.Le, 1, min(0, T(0)-1), 0},         // -1, or 0
		{symmetric.Gt, 7, max(8, T(0)-1), 7},         // 8, or the largest one, which is negative if taken for signed
	} {
		if err := errors.Join(symmetric.AtomicSet(r, s.rank, 8, c.from), finish(s.g.Barrier())); err != nil {
			return err
		}
		if ok, err := symmetric.Test(r, 8, c.cmp, c.v); err != nil || ok {
			s.fault("test %v %v %v of %v: %v, %v", c.from, c.cmp, c.v, tensor.TypeOf[T](), ok, err)
		}
		if err := errors.Join(finish(s.g.Barrier()), symmetric.P(r, next, 8, c.to)); err != nil {
			return err
		}
		got, err := symmetric.WaitUntil(ctx, r, 8, c.cmp, c.v)
		if err != nil || got != c.to {
			return fmt.Errorf("wait until %v %v: %v, %w, want %v", c.cmp, c.v, got, err, c.to)
		}
		if ok, err := symmetric.Test(r, 8, c.cmp, c.v); err != nil || !ok {
			s.fault("test %v %v %v of %v: %v, %v", c.to, c.cmp, c.v, tensor.TypeOf[T](), ok, err)
		}
	}
	return finish(s.g.Barrier())
}

// vectors waits for any, some and all of several words.
func vectors[T symmetric.Integer](s *suite, r symmetric.Region) error {
	const count = 6
	ctx, next, size := context.Background(), (s.rank+1)%s.n, int64(tensor.TypeOf[T]().Size())
	set := func(words ...int) error {
		for _, i := range words {
			if err := symmetric.P(r, next, 8+int64(i)*size, T(1)); err != nil {
				return err
			}
		}
		return nil
	}
	s.set(r.Local(), 0)
	if err := finish(s.g.Barrier()); err != nil {
		return err
	}
	some, err := symmetric.TestSome(r, 8, count, symmetric.Ne, T(0), nil)
	anyOf, err2 := symmetric.TestAny(r, 8, count, symmetric.Ne, T(0))
	all, err3 := symmetric.TestAll(r, 8, count, symmetric.Eq, T(0))
	if err := errors.Join(err, err2, err3, finish(s.g.Barrier())); err != nil || len(some) != 0 || anyOf != -1 || !all {
		s.fault("tests of zeros: some %v, any %d, all %v, %v", some, anyOf, all, err)
	}
	if err := set(4); err != nil {
		return err
	}
	if i, err := symmetric.WaitUntilAny(ctx, r, 8, count, symmetric.Ne, T(0)); err != nil || i != 4 {
		return fmt.Errorf("wait for any: %d, %w, want 4", i, err)
	}
	if err := errors.Join(finish(s.g.Barrier()), set(1, 2), finish(s.g.Barrier())); err != nil {
		return err
	}
	if found, err := symmetric.WaitUntilSome(ctx, r, 8, count, symmetric.Ne, T(0), nil); err != nil || !slices.Equal(found, []int{1, 2, 4}) {
		return fmt.Errorf("wait for some: %v, %w, want 1 2 4", found, err)
	}
	if ok, err := symmetric.TestAll(r, 8, count, symmetric.Ne, T(0)); err != nil || ok {
		s.fault("test of all: %v, %v", ok, err)
	}
	if err := errors.Join(finish(s.g.Barrier()), set(0, 3, 5)); err != nil {
		return err
	}
	if err := symmetric.WaitUntilAll(ctx, r, 8, count, symmetric.Ne, T(0)); err != nil {
		return fmt.Errorf("wait for all: %w", err)
	}
	if found, err := symmetric.TestSome(r, 8, count, symmetric.Eq, T(1), nil); err != nil || len(found) != count {
		s.fault("test of some: %v, %v", found, err)
	}
	return finish(s.g.Barrier())
}

// waitEnds: a wait for a value that never comes ends with its context, and when the heap is closed.
func (s *suite) waitEnds(h symmetric.Heap) error {
	r, err := h.Alloc(1024)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	asleep := make(chan error, 1)
	go func() {
		_, err := symmetric.WaitUntil(ctx, r, 0, symmetric.Eq, int32(-5))
		asleep <- err
	}()
	cancel()
	s.expect("wait with a context that ends", <-asleep, context.Canceled)
	_, err = symmetric.WaitUntilAny(ctx, r, 0, 200, symmetric.Eq, int32(-5))
	s.expect("wait with a context that has ended", err, context.Canceled)

	own, err := s.g.Heap(symmetric.Alignment)
	if err != nil {
		return err
	}
	word, err := own.Alloc(8)
	if err != nil {
		return err
	}
	go func() {
		_, err := symmetric.SignalWait(context.Background(), word, 0, symmetric.Ne, 0)
		asleep <- err
	}()
	if err := errors.Join(finish(s.g.Barrier()), own.Close()); err != nil {
		return err
	}
	s.expect("wait in a heap that is closed", <-asleep, dist.ErrClosed)
	return h.Free(r)
}

// RunOneSided tests worlds that break during one-sided calls. A wait ends with an error that says
// why, and ranks that allocate differently all get an error.
func RunOneSided(t *testing.T, launch Launch) {
	t.Helper()
	RunOneSidedWith(t, Options{}, launch)
}

// RunOneSidedWith is RunOneSided with Options: worlds have at most Most ranks instead of 3.
func RunOneSidedWith(t *testing.T, opt Options, launch Launch) {
	t.Helper()
	three := 3
	if opt.Most > 0 {
		three = min(three, opt.Most)
	}
	alone := LaunchOptions{StepTimeout: shortTimeout}
	dying := LaunchOptions{Die: &Die{Rank: 1, Op: 1}}
	for _, c := range []struct {
		name  string
		ranks int
		opt   LaunchOptions
		body  func(w *dist.World) error
	}{
		{"Abort", three, LaunchOptions{}, abortWaits},
		{"Leave", three, LaunchOptions{}, leaveWaits},
		{"Timeout", 1, alone, timeoutOfWait},
		{"Death", three, dying, deathInWaits},
		{"Sizes", three, LaunchOptions{}, disagree("100 B", func(h symmetric.Heap, rank, _ int) (symmetric.Region, error) {
			return h.Alloc(int64(100 * (1 + min(rank, 1)))) // rank 0 differs
		})},
		{"Counts", three, LaunchOptions{}, disagree("8 B", func(h symmetric.Heap, rank, _ int) (symmetric.Region, error) {
			return h.Calloc(int64(1-2*(rank%2)), 8)
		})},
		{"Alignments", three, LaunchOptions{}, disagree("alignment", func(h symmetric.Heap, rank, last int) (symmetric.Region, error) {
			return h.Aligned(1024<<(rank/last), 8) // the last rank differs
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "Timeout" && c.ranks < 2 {
				t.Skipf("ranks that differ need a world of 2, but worlds have at most %d", opt.Most)
			}
			launch(t, c.ranks, c.opt, c.body)
		})
	}
}

// shortTimeout is the step timeout in tests of the step timeout.
const shortTimeout = 50 * time.Millisecond

// signalWord returns a new signal in its own heap.
func signalWord(w *dist.World) (symmetric.Region, error) {
	h, err := w.Heap(symmetric.Alignment)
	if err != nil {
		return nil, err
	}
	return h.Alloc(8)
}

func wait(r symmetric.Region) error {
	_, err := symmetric.SignalWait(context.Background(), r, 0, symmetric.Ge, 1)
	return err
}

// abortWaits: rank 0 aborts while the others wait; later calls on the heap are errors too.
func abortWaits(w *dist.World) error {
	r, err := signalWord(w)
	if errors.Is(err, dist.ErrAborted) && w.Rank() != 0 {
		return nil // still in Alloc
	}
	if err != nil {
		return err
	}
	if w.Rank() == 0 {
		if err := w.Abort(errors.New("no more")); err != nil {
			return err
		}
	}
	if err := want("wait in an aborted group", wait(r), dist.ErrAborted, "no more", "of the region of 8 B"); err != nil {
		return err
	}
	return errors.Join(
		want("put in an aborted group", symmetric.P(r, 0, 0, uint64(1)), dist.ErrAborted),
		want("signal in an aborted group", r.Signal(0, 0, symmetric.SignalSet, 1), dist.ErrAborted),
	)
}

// leaveWaits: no rank that could set the word is left.
func leaveWaits(w *dist.World) error {
	r, err := signalWord(w)
	if err != nil || w.Rank() != 0 {
		return err
	}
	return want("wait for ranks that have left", wait(r), dist.ErrClosed, "rank 0")
}

func timeoutOfWait(w *dist.World) error {
	r, err := signalWord(w)
	if err != nil {
		return err
	}
	if err := want("wait for nothing", wait(r), dist.ErrTimeout, shortTimeout.String()); err != nil {
		return err
	}
	return r.Signal(w.Rank(), 0, symmetric.SignalSet, 1) // the group is intact
}

// deathInWaits: rank 1 dies at a barrier; the others learn of it in a wait.
func deathInWaits(w *dist.World) error {
	r, err := signalWord(w)
	if err != nil {
		return err
	}
	if w.Rank() == 1 {
		return want("barrier of the dying rank", finish(w.Barrier()), dist.ErrAborted)
	}
	return named("wait", wait(r), 1)
}

// disagree returns a body in which ranks call alloc with different arguments.
func disagree(word string, alloc func(h symmetric.Heap, rank, last int) (symmetric.Region, error)) func(w *dist.World) error {
	return func(w *dist.World) error {
		h, err := w.Heap(8 * symmetric.Alignment)
		if err != nil {
			return err
		}
		_, err = alloc(h, w.Rank(), w.Size()-1)
		return want("allocation that differs", err, dist.ErrMismatch, word)
	}
}
