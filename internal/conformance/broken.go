package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// runBroken tests worlds that lose a rank or are aborted.
func runBroken(t *testing.T, o Options, launch Launch) {
	for _, n := range o.worlds(2, 4) {
		for _, c := range []struct {
			name string
			opt  LaunchOptions
			body func(w *dist.World, p *space) error
		}{
			{"Abort", LaunchOptions{StepTimeout: 10 * guard}, abort},
			{"AbortOfPart", LaunchOptions{StepTimeout: 10 * guard}, abortOfPart},
			{"AbortOfWhole", LaunchOptions{StepTimeout: 10 * guard}, abortOfWhole},
			{"Close", LaunchOptions{StepTimeout: 10 * guard}, closeEarly},
			{"CloseInMessage", LaunchOptions{StepTimeout: 10 * guard}, closeInMessage},
			{"CloseTwice", LaunchOptions{}, closeTwice},
			{"Timeout", LaunchOptions{StepTimeout: 2 * time.Second}, timeout},
			{"Death", LaunchOptions{StepTimeout: 10 * guard, Die: &Die{Rank: n - 1, Op: 3}}, death},
		} {
			t.Run(fmt.Sprintf("%s/%d", c.name, n), func(t *testing.T) { launch(t, n, c.opt, o.breaking(c.body)) })
		}
	}
}

// want returns an error unless got matches sentinel and its text contains all words.
func want(what string, got, sentinel error, words ...string) error {
	if !errors.Is(got, sentinel) {
		return fmt.Errorf("%s: error %v, want %v", what, got, sentinel)
	}
	for _, word := range words {
		if !strings.Contains(got.Error(), word) {
			return fmt.Errorf("%s: error %q does not say %q", what, got, word)
		}
	}
	return nil
}

// abort: the last rank aborts while the others wait for it.
func abort(w *dist.World, p *space) error {
	const cause = "the disk is full"
	if w.Rank() == w.Size()-1 {
		if err := w.Abort(errors.New(cause)); err != nil {
			return err
		}
	}
	return errors.Join(
		want("operation during Abort", finish(allReduce(5, dist.Sum)(w.Group, p)), dist.ErrAborted, cause),
		want("operation after Abort", finish(w.Barrier()), dist.ErrAborted, cause),
		noticed(w.Group, dist.ErrAborted, cause))
}

// noticed returns an error unless a rank that starts no operation learns why g is broken.
func noticed(g *dist.Group, sentinel error, words ...string) error {
	ctx, release := g.Context(context.Background())
	defer release()
	select {
	case <-ctx.Done():
	case <-time.After(guard):
		return fmt.Errorf("after %v the context of a broken group has not ended", guard)
	}
	return errors.Join(want("context of a broken group", context.Cause(ctx), sentinel, words...), want("Err of a broken group", g.Err(), sentinel, words...))
}

// abortOfPart: the world works after one of its parts was aborted.
func abortOfPart(w *dist.World, p *space) error {
	g, err := w.Split(0, -w.Rank())
	if err != nil {
		return err
	}
	if g.Rank() == 0 {
		if err := g.Abort(errors.New("no longer needed")); err != nil {
			return err
		}
	}
	return errors.Join(want("operation of the part", finish(g.Barrier()), dist.ErrAborted, "no longer needed"), sums(w.Group, p, 3))
}

// abortOfWhole: a part works after an abort of the world that it was split from. Between GPUs a
// library may end both.
func abortOfWhole(w *dist.World, p *space) error {
	g, err := w.Split(0, -w.Rank())
	if err != nil || w.Device() != tensor.Host {
		return err
	}
	if w.Rank() == 0 {
		if err := w.Abort(errors.New("too many")); err != nil {
			return err
		}
	}
	return errors.Join(want("operation of the world", finish(w.Barrier()), dist.ErrAborted, "too many"), sums(g, p, 3))
}

// closeEarly: the last rank closes its end while the others wait for it.
func closeEarly(w *dist.World, p *space) error {
	last := w.Size() - 1
	if err := sums(w.Group, p, 2); err != nil {
		return err
	}
	if w.Rank() == last {
		return w.Close()
	}
	return want("allreduce with a closed rank", finish(allReduce(5, dist.Sum)(w.Group, p)), dist.ErrClosed, fmt.Sprintf("rank %d", last))
}

// closeInMessage: rank 1 sends one message, but rank 0 receives two.
func closeInMessage(w *dist.World, p *space) error {
	switch w.Rank() {
	case 0:
		if err := finish(w.Recv(p.floats(3), 1)); err != nil {
			return err
		}
		return want("recv from a closed rank", finish(w.Recv(p.floats(3), 1)), dist.ErrClosed, "rank 1")
	case 1:
		return finish(w.Send(p.floats(3), 0))
	}
	return nil
}

// closeTwice: Close is idempotent and closes everything made from the group; later calls return
// ErrClosed.
func closeTwice(w *dist.World, _ *space) error {
	g, err := w.Split(0, 0)
	if err != nil {
		return err
	}
	if _, err := g.Heap(1 << 12); err != nil && !errors.Is(err, dist.ErrUnsupported) {
		return err
	}
	if err := finish(w.Barrier()); err != nil {
		return err
	}
	if err := errors.Join(w.Close(), w.Close(), g.Close()); err != nil {
		return err
	}
	_, split := w.Split(0, 0)
	_, heap := w.Heap(1)
	return errors.Join(
		want("barrier after Close", finish(w.Barrier()), dist.ErrClosed),
		want("barrier of a part after Close", finish(g.Barrier()), dist.ErrClosed),
		want("split after Close", split, dist.ErrClosed),
		want("heap after Close", heap, dist.ErrClosed))
}

// timeout: the first and the last rank wait in different groups, each for the other; ranks between
// them wait in both.
func timeout(w *dist.World, _ *space) error {
	var groups [2]*dist.Group
	var barriers [2]dist.Work
	for i := range groups { // first, because a Split on GPUs waits for queued work
		var err error
		if groups[i], err = w.Split(0, w.Rank()); err != nil {
			return err
		}
	}
	last := w.Size() - 1
	for i, away := range []int{last, 0} {
		if w.Rank() == away {
			continue
		}
		var err error
		if barriers[i], err = groups[i].Barrier(); err != nil {
			return err
		}
	}
	var errs []error
	for i, away := range []int{last, 0} {
		if w.Rank() != away {
			what := fmt.Sprintf("barrier for which rank %d does not come", away)
			errs = append(errs, want(what, barriers[i].Wait(), dist.ErrTimeout, fmt.Sprintf("rank %d", away)))
		}
	}
	_ = finish(w.Barrier()) // no rank closes before all have seen their timeouts
	return errors.Join(errs...)
}

// death: the last rank dies in its third operation. All others get the error in that operation and
// in later ones, in the world and in its parts.
func death(w *dist.World, p *space) error {
	victim := w.Size() - 1
	g, err := w.Split(0, -w.Rank())
	if err != nil {
		return err
	}
	if err := sums(w.Group, p, 2); err != nil {
		return err
	}
	began := time.Now()
	third := finish(allReduce(5, dist.Sum)(w.Group, p))
	told := time.Since(began)
	later, part := finish(w.Barrier()), finish(g.Barrier())
	if w.Rank() == victim {
		return nil // any result is fine
	}
	var late error
	if told > guard { // on a busy machine the rank may be slow to reach it; bench/tests.sh limits deaths between GPUs to 5 s
		late = fmt.Errorf("the others learned of the death after %v, want within %v", told, guard)
	}
	return errors.Join(late, noticed(w.Group, dist.ErrAborted, fmt.Sprintf("rank %d died", victim)), named("operation during the death", third, victim), named("later operation", later, victim),
		named("operation of a part", part, 0))
}

// named returns an error unless err is the death of rank.
func named(what string, err error, rank int) error {
	var dead *dist.RankError
	if !errors.As(err, &dead) || dead.Rank != rank {
		return fmt.Errorf("%s: error %v, want the death of rank %d", what, err, rank)
	}
	return want(what, err, dist.ErrAborted)
}
