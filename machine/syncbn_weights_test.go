package machine_test

import (
	"errors"
	"fmt"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/ops"
)

// TestSyncBatchNormOfSmallWeights has rows whose weights sum to a little more than 1: the running
// variance must not be divided by that small excess.
func TestSyncBatchNormOfSmallWeights(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		b := &block{g: G.NewGraph(), dt: gtensor.Float64}
		x := G.NewMatrix(b.g, b.dt, G.WithName("x"), G.WithShape(3, 2), G.WithValue(b.tensor([]float64{0, 1, 2, 3, 4, 8}, 3, 2)))
		rows := G.NewVector(b.g, b.dt, G.WithName("rows"), G.WithShape(3), G.WithValue(b.tensor([]float64{0.3334, 0.3334, 0.3334}, 3)))
		y, norm, err := ops.SyncBatchNorm(w.Group, x, nil, nil, ops.BatchNormConfig{Momentum: 1, Rows: rows})
		if err != nil {
			return err
		}
		m, err := machine.New(b.g, optimized, y)
		if err != nil {
			return err
		}
		if err := errors.Join(m.RunAll(), m.Close()); err != nil {
			return err
		}
		_, variance := norm.Stats()
		if got := numbers(variance); !(farthest(got, []float64{8.0 / 3, 26.0 / 3}) <= 1e-12) {
			return fmt.Errorf("the running variance is %v", got)
		}
		return nil
	})
}
