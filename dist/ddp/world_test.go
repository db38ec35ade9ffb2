package ddp_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/internal/sim"
)

// stepsOf is n, or a tenth of it where the checks of package invariants and the race detector run: they find what they are
// looking for in few steps, and what drifts is found in the other run.
func stepsOf(n int) int {
	if invariants.Enabled {
		return max(n/10, 5)
	}
	return n
}

// someRanks is the sizes of worlds that most tests have, or one of them where stepsOf is few.
func someRanks() []int {
	if invariants.Enabled {
		return []int{3}
	}
	return []int{1, 2, 3, 4}
}

// runRanks runs body on every rank of a world of n ranks, each on a goroutine of its own, and returns the errors by rank.
// A rank closes its world when its body returns, so that none waits for one that has failed.
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
