package ddp_test

import (
	"errors"
	"fmt"
	"testing"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
)

// TestNothingHappensToWeightsWhileRunsAreOnTheirWay has a machine whose runs return before they are
// done.
func TestNothingHappensToWeightsWhileRunsAreOnTheirWay(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		m := wider.make(gtensor.Float32, 3, 1)
		d, err := ddp.Attach(w, m.cost, m.params, ddp.Config{Stage: 3})
		if err != nil {
			return err
		}
		waits, broken := 0, error(nil)
		stop := d.Machine().Await(func() error { waits++; return broken })
		other := d.Machine().Await(func() error { return nil })
		for i, step := range []struct {
			name string
			do   func() error
			want int
		}{
			{"adopt of nothing", d.Machine().Adopt, 0},
			{"wait", d.Machine().Wait, 1},
			{"consolidate", d.Consolidate, 2},
			{"adopt", d.Machine().Adopt, 3},
		} {
			if err := step.do(); err != nil || waits != step.want {
				return fmt.Errorf("%d, %s: %d waits, want %d: %w", i, step.name, waits, step.want, err)
			}
		}
		broken = errors.New("a run has failed")
		for _, do := range []func() error{d.Machine().Wait, d.Consolidate} {
			if err := do(); !errors.Is(err, broken) {
				return fmt.Errorf("after a run that failed: %w", err)
			}
		}
		if w.Rank() == 1 { // a machine that is closed has no runs
			stop()
		}
		other()
		if err := d.Close(); err != nil || waits != 6-w.Rank() {
			return fmt.Errorf("close: %d waits: %w", waits, err)
		}
		if err := d.Machine().Wait(); !errors.Is(err, dist.ErrClosed) {
			return fmt.Errorf("wait of what is closed: %w", err)
		}
		return nil
	})
}
