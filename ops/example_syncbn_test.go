package ops_test

import (
	"fmt"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
)

// The batch has the numbers 0, 2, 4 and 6 of one channel: rank 0 has one of them, rank 1 three and
// a row that does not count. Both ranks normalize with the mean 3 and the variance 5 of all four.
func ExampleSyncBatchNorm() {
	lines := make([][]string, 2)
	errs, err := runRanks(2, func(w *dist.World) error {
		batch := [][]float32{{0}, {2, 4, 6, 99}}[w.Rank()]
		counts := [][]float32{{1}, {1, 1, 1, 0}}[w.Rank()]
		n := len(batch)
		g := gorgonia.NewGraph()
		x := gorgonia.NewMatrix(g, gtensor.Float32, gorgonia.WithName("x"), gorgonia.WithShape(n, 1),
			gorgonia.WithValue(gtensor.New(gtensor.WithShape(n, 1), gtensor.WithBacking(batch))))
		rows := gorgonia.NewVector(g, gtensor.Float32, gorgonia.WithName("rows"), gorgonia.WithShape(n),
			gorgonia.WithValue(gtensor.New(gtensor.WithShape(n), gtensor.WithBacking(counts))))

		y, norm, err := ops.SyncBatchNorm(w.Group, x, nil, nil, ops.BatchNormConfig{Rows: rows})
		if err != nil {
			return err
		}
		vm := gorgonia.NewTapeMachine(g)
		defer vm.Close()
		if err := vm.RunAll(); err != nil {
			return err
		}
		mean, variance := norm.Stats()
		lines[w.Rank()] = []string{
			fmt.Sprintf("rank %d: y = %.3f", w.Rank(), y.Value().Data()),
			fmt.Sprintf("rank %d: running mean %.3f, variance %.3f", w.Rank(), mean.Data(), variance.Data()),
		}
		return nil
	})
	for _, rank := range lines {
		for _, line := range rank {
			fmt.Println(line)
		}
	}
	fmt.Println(errs, err)
	// Output:
	// rank 0: y = [-1.342]
	// rank 0: running mean [0.300], variance [1.567]
	// rank 1: y = [-0.447 0.447 1.342 0.000]
	// rank 1: running mean [0.300], variance [1.567]
	// [<nil> <nil>] <nil>
}
