package machine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/internal/conformance"
)

// TestExchangesOnGPUsHaveTheBitsOfTheHost compares gradients, states and weights of all
// exchanges of buckets on two GPUs with those of two ranks of the host. Sums of two are the same in
// any order, so any engine has these bits.
func TestExchangesOnGPUsHaveTheBitsOfTheHost(t *testing.T) {
	gpuCount(t, 2)
	gpuWorlds(backend.Config{})(t, 2, conformance.LaunchOptions{StepTimeout: 20 * time.Second}, func(w *dist.World) error {
		for _, c := range exactCases() { // ranks have one order
			want, err := c.on(w.Size(), c.run)
			if err != nil {
				return fmt.Errorf("%s, on the host: %w", c.name, err)
			}
			got, err := c.run(w)
			if err == nil {
				err = got.equal(want[w.Rank()])
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		return nil
	})
}
