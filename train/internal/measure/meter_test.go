package measure

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/train/internal/exchange"
)

// onRanks runs body on n simulated ranks.
func onRanks(t *testing.T, n int, body func(k *exchange.Values) error) {
	t.Helper()
	if err := backend.Simulate(n, backend.Config{}, func(w *dist.World) error { return body(exchange.New(w)) }); err != nil {
		t.Error(err)
	}
}

// The loss of a step is the sum of the ranks' parts, in order, and does not depend on when it is
// shared.
func TestMeterAddsUpOverRanks(t *testing.T) {
	for _, every := range []int{1, 3, 10} {
		onRanks(t, 3, func(k *exchange.Values) error {
			m := New(k, false, "")
			for step := range 10 {
				m.Step(16, 0)
				m.Note(step, float64((step+1)*(k.World().Rank()+1))/8)
				if (step+1)%every == 0 || step == 9 {
					if err := m.Share(); err != nil {
						return err
					}
				}
			}
			for step, loss := range m.losses {
				if want := float64((step+1)*6) / 8; loss != want {
					return fmt.Errorf("loss %d is %v, want %v", step, loss, want)
				}
			}
			if len(m.losses) != 10 || m.Loss() != m.losses[9] || m.samples != 160 || m.SamplesPerSecond() <= 0 {
				return fmt.Errorf("%d losses, the last %v, %d samples", len(m.losses), m.Loss(), m.samples)
			}
			return nil
		})
	}
}

// On GPUs only some losses are read. A checkpoint has the step of its last loss.
func TestCurveKnowsTheStepOfItsLoss(t *testing.T) {
	onRanks(t, 2, func(k *exchange.Values) error {
		m := New(k, false, "")
		for step := 4; step < 20; step += 5 {
			m.Note(step, float64(step))
			if err := m.Share(); err != nil {
				return err
			}
			if kept, first := m.Curve(false, step+1); len(kept) != 1 || kept[0] != float64(2*step) || first != step {
				return fmt.Errorf("%v from step %d, want that of step %d", kept, first, step)
			}
		}
		return nil
	})
}

func TestMeterRefusesALossThatIsNoNumber(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		onRanks(t, 2, func(k *exchange.Values) error {
			m := New(k, false, "")
			for step := range 4 {
				loss := 1.0
				if step == 2 && k.World().Rank() == 1 {
					loss = bad
				}
				m.Note(step, loss)
			}
			if err := m.Share(); err == nil || !strings.Contains(err.Error(), "step 2: the loss is") {
				return fmt.Errorf("error %w", err)
			}
			return nil
		})
	}
}
