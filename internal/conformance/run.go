package conformance

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// LaunchOptions is what a test asks of a fresh world.
type LaunchOptions struct {
	StepTimeout time.Duration // longest wait for a peer; 0 means the backend's default
	Die         *Die          // a death to bring about; nil for none
}

// Die is the death of a rank: it ends, as a killed process does, when it would run its operation Op of the world's group,
// counted from 1.
type Die struct {
	Rank int
	Op   uint64
}

// Launch runs body on every rank of a fresh world of n ranks, at the same time, closes the world on every rank, and fails
// t on any error of body or Close. A launch that cannot let ranks die skips t, with the reason, when opt.Die is set; one
// that kills the process of the rank need not run the rest of body there.
type Launch func(t *testing.T, n int, opt LaunchOptions, body func(w *dist.World) error)

// sizes is the worlds that every backend must manage.
var sizes = []int{1, 2, 3, 4, 7}

// Run takes a backend through the whole suite with default Options.
func Run(t *testing.T, launch Launch) {
	t.Helper()
	RunWith(t, Options{}, launch)
}

// RunWith takes a backend through the whole suite: every part of Suite on a fresh world of every size, then, for default
// sizes and streams, the worlds that break.
func RunWith(t *testing.T, opt Options, launch Launch) {
	t.Helper()
	ranks := opt.Ranks
	if len(ranks) == 0 {
		ranks = sizes
	}
	for _, n := range ranks {
		for _, p := range parts {
			t.Run(fmt.Sprintf("%s/%d", p.name, n), func(t *testing.T) {
				launch(t, n, LaunchOptions{}, func(w *dist.World) error { return runPart(w, opt, p) })
			})
		}
	}
	if len(opt.Ranks) > 0 || opt.Blocking {
		return
	}
	t.Run("Mismatch", func(t *testing.T) { runMismatches(t, launch) })
	t.Run("Broken", func(t *testing.T) { runBroken(t, launch) })
}

// Drive is a Launch once the worlds are open, for ranks that are goroutines: it runs body on each of worlds, closes it, and
// fails t on errors.
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
