package conformance

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// LaunchOptions has a test's requirements for a new world.
type LaunchOptions struct {
	StepTimeout time.Duration // longest wait for a peer; 0 means the backend's default
	Die         *Die          // a death to cause; nil for none
}

// Die is the death of a rank. The rank ends like a killed process when it would run operation Op of
// the world's group, counted from 1.
type Die struct {
	Rank int
	Op   uint64
}

// Launch runs body concurrently on every rank of a new world of n ranks, closes the world on every
// rank, and fails t on any error of body or Close. If opt.Die is set, a launch that cannot let
// ranks die skips t with the reason. A launch that kills the rank's process need not run the rest
// of body there.
type Launch func(t *testing.T, n int, opt LaunchOptions, body func(w *dist.World) error)

// sizes returns the world sizes that every backend must support.
func sizes() []int { return []int{1, 2, 3, 4, 7} }

// Run runs the whole suite on a backend with default Options.
func Run(t *testing.T, launch Launch) {
	t.Helper()
	RunWith(t, Options{}, launch)
}

// RunWith runs the whole suite on a backend: every part of Suite on a new world of every size. With
// default sizes and streams it then runs the worlds that break.
func RunWith(t *testing.T, opt Options, launch Launch) {
	t.Helper()
	ranks := opt.Ranks
	if len(ranks) == 0 {
		ranks = opt.upTo(sizes()...)
	}
	for _, n := range ranks {
		if opt.OneWorld {
			t.Run(fmt.Sprintf("Suite/%d", n), func(t *testing.T) {
				launch(t, n, LaunchOptions{}, func(w *dist.World) error { return Suite(w, opt) })
			})
			continue
		}
		for _, p := range parts {
			t.Run(fmt.Sprintf("%s/%d", p.name, n), func(t *testing.T) {
				made := p.foreseen(opt, n)
				launch(t, n, LaunchOptions{}, func(w *dist.World) error { return runPart(w, opt, p, made()) })
			})
		}
	}
	if len(opt.Ranks) > 0 || opt.Blocking {
		return
	}
	RunBreaking(t, opt, launch)
}

// RunBreaking runs the worlds that break: ranks that differ, abort, leave early or come too late.
func RunBreaking(t *testing.T, opt Options, launch Launch) {
	t.Helper()
	t.Run("Mismatch", func(t *testing.T) { runMismatches(t, opt, launch) })
	t.Run("Broken", func(t *testing.T) { runBroken(t, opt, launch) })
}

// RunHeap runs the checks of symmetric heaps, which are a part of Suite, on worlds of every size.
func RunHeap(t *testing.T, opt Options, launch Launch) {
	t.Helper()
	ranks := opt.Ranks
	if len(ranks) == 0 {
		ranks = opt.upTo(sizes()...)
	}
	for _, p := range parts {
		for _, n := range ranks {
			if p.name != "Heap" {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", p.name, n), func(t *testing.T) {
				launch(t, n, LaunchOptions{}, func(w *dist.World) error { return runPart(w, opt, p, nil) })
			})
		}
	}
}

// upTo returns the sizes up to Most.
func (o Options) upTo(sizes ...int) []int {
	if o.Most <= 0 {
		return sizes
	}
	return slices.DeleteFunc(sizes, func(n int) bool { return n > o.Most })
}

// worlds returns the sizes of worlds that break: those of upTo, or only the largest if opening a
// world is slow.
func (o Options) worlds(sizes ...int) []int {
	all := o.upTo(sizes...)
	if o.OneWorld && len(all) > 0 {
		return all[len(all)-1:]
	}
	return all
}

// breaking adds memory of the world's device to body. A broken world may still use the memory, so
// device memory is left to the end of the process: a few blocks.
func (o Options) breaking(body func(w *dist.World, p *space) error) func(w *dist.World) error {
	return func(w *dist.World) error {
		p := o.space(w.Group)
		err := body(w, p)
		return errors.Join(err, p.failed())
	}
}

// Drive is the second half of a Launch, for goroutine ranks with open worlds: it runs body on each
// of worlds, closes it, and fails t on errors.
func Drive(t *testing.T, worlds []*dist.World, body func(w *dist.World) error) {
	t.Helper()
	var ranks sync.WaitGroup
	errs := make([]error, len(worlds))
	for r, w := range worlds {
		ranks.Go(func() { errs[r] = errors.Join(body(w), w.Close()) })
	}
	ranks.Wait()
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func (o Options) litmus(w *dist.World, rounds int) error {
	var errs []error
	for _, c := range litmusTests {
		if c.ranks <= w.Size() {
			errs = append(errs, runLitmus(w, o, c, rounds))
		}
	}
	return errors.Join(errs...)
}
