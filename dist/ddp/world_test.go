package ddp_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/internal/long"
	"github.com/symgrad/symgrad/internal/sim"
)

// stepsOf returns n in long tests and a quarter of it in short ones. With invariants or the race
// detector it is a tenth, which is enough for these to find errors.
func stepsOf(n int) int {
	if invariants.Enabled {
		return max(n/10, 5)
	}
	return long.Times(max(n/4, 5), n)
}

// someRanks is the sizes of worlds of most tests. Short tests have one rank, and a number that
// is no power of two.
func someRanks() []int {
	if invariants.Enabled {
		return []int{3}
	}
	if long.Enabled() {
		return []int{1, 2, 3, 4}
	}
	return []int{1, 3}
}

// runRanks runs body on every rank of a world of n ranks, each on a goroutine of its own, and
// returns the errors by rank. A rank closes its world when its body returns, so that none waits for
// one that has failed.
func runRanks(t *testing.T, n int, cfg sim.Config, body func(w *dist.World) error) []error {
	t.Helper()
	worlds, err := sim.New(n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, n)
	var ranks sync.WaitGroup
	for r, w := range worlds {
		ranks.Go(func() {
			if errs[r] = body(w); errs[r] != nil {
				_ = w.Abort(fmt.Errorf("rank %d: %w", r, errs[r]))
			}
			errs[r] = errors.Join(errs[r], w.Close())
		})
	}
	ranks.Wait()
	return errs
}

// onRanks is runRanks for bodies that must not fail.
func onRanks(t *testing.T, n int, body func(w *dist.World) error) {
	t.Helper()
	for r, err := range runRanks(t, n, sim.Config{}, body) {
		if err != nil {
			t.Errorf("rank %d/%d: %v", r, n, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}
