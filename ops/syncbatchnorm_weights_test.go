package ops_test

import (
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
)

// TestSyncBatchNormOfSmallWeights has rows with a total weight of about 1, where rounding decides.
// The running variance is still that of the rows, and not a quotient by almost zero.
func TestSyncBatchNormOfSmallWeights(t *testing.T) {
	for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64} {
		for name, weight := range map[string]float64{"as a mean": 1.0 / 3, "a little more": 0.3334, "less than two rows": 0.6} {
			onRanks(t, 1, func(w *dist.World) error {
				g := gorgonia.NewGraph()
				x := input(g, dt, "x", []float64{0, 1, 2, 3, 4, 8}, 3, 2)
				rows := input(g, dt, "rows", []float64{weight, weight, weight}, 3)
				_, norm, err := ops.SyncBatchNorm(w.Group, x, nil, nil, ops.BatchNormConfig{Momentum: 1, Rows: rows})
				if err != nil {
					return err
				}
				if err := run(g); err != nil {
					return err
				}
				_, variance := norm.Stats()
				got, err := floats(variance)
				if err != nil {
					return err
				}
				return near(name, got, []float64{8.0 / 3, 26.0 / 3}, 1e-6)
			})
		}
	}
}
