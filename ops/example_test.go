package ops_test

import (
	"fmt"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
)

// A linear layer whose weight is divided among two ranks by output units. Each rank multiplies with
// its part. AllGather joins the outputs, and its gradient, a ReduceScatter, gives each rank the
// gradient of its own part.
func Example_columnParallelLinear() {
	weight := []float64{1, 2, 3, 4, 5, 6, 7, 8} // (out 4, in 2)
	rows := make([][]string, 2)
	errs, err := runRanks(2, func(w *dist.World) error {
		g := gorgonia.NewGraph()
		part := weight[w.Rank()*4 : (w.Rank()+1)*4] // (out 2, in 2)
		wr := gorgonia.NewMatrix(g, gtensor.Float64, gorgonia.WithName("w"),
			gorgonia.WithValue(gtensor.New(gtensor.WithShape(2, 2), gtensor.WithBacking(part))), gorgonia.WithShape(2, 2))
		x := gorgonia.NewMatrix(g, gtensor.Float64, gorgonia.WithName("x"), // (in 2, batch 1)
			gorgonia.WithValue(gtensor.New(gtensor.WithShape(2, 1), gtensor.WithBacking([]float64{1, 10}))), gorgonia.WithShape(2, 1))

		h := gorgonia.Must(gorgonia.Mul(wr, x))
		y, err := ops.AllGather(w.Group, h)
		if err != nil {
			return err
		}
		// Every rank has the whole output and the whole loss; the gradient is that of the sum of
		// both ranks' costs.
		cost := gorgonia.Must(gorgonia.Mean(y))
		grads, err := gorgonia.Grad(cost, wr)
		if err != nil {
			return err
		}
		vm := gorgonia.NewTapeMachine(g)
		defer vm.Close()
		if err := vm.RunAll(); err != nil {
			return err
		}
		rows[w.Rank()] = []string{
			fmt.Sprintf("rank %d: y = %v", w.Rank(), y.Value().Data()),
			fmt.Sprintf("rank %d: dL/dw = %v", w.Rank(), grads[0].Value().Data()),
		}
		return nil
	})
	for _, r := range rows {
		for _, line := range r {
			fmt.Println(line)
		}
	}
	fmt.Println(errs, err)
	// Output:
	// rank 0: y = [21 43 65 87]
	// rank 0: dL/dw = [0.5 5 0.5 5]
	// rank 1: y = [21 43 65 87]
	// rank 1: dL/dw = [0.5 5 0.5 5]
	// [<nil> <nil>] <nil>
}

// The gradient of a pipeline of two stages. Rank 0 has no loss: the token of its Send is its cost.
func ExampleSend() {
	var grad any
	errs, err := runRanks(2, func(w *dist.World) error {
		g := gorgonia.NewGraph()
		x := gorgonia.NewVector(g, gtensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(3),
			gorgonia.WithValue(gtensor.New(gtensor.WithBacking([]float64{1, 2, 3}))))
		var cost *gorgonia.Node
		if w.Rank() == 0 {
			token, err := ops.Send(w.Group, gorgonia.Must(gorgonia.Square(x)), 1)
			if err != nil {
				return err
			}
			cost = token
		} else {
			h, err := ops.Recv(w.Group, x, 0, gtensor.Float64, 3)
			if err != nil {
				return err
			}
			cost = gorgonia.Must(gorgonia.Sum(h)) // sum(x^2) of rank 0
		}
		grads, err := gorgonia.Grad(cost, x)
		if err != nil {
			return err
		}
		vm := gorgonia.NewTapeMachine(g)
		defer vm.Close()
		if err := vm.RunAll(); err != nil {
			return err
		}
		if w.Rank() == 0 {
			grad = grads[0].Value().Data()
		}
		return nil
	})
	fmt.Println(grad, errs, err)
	// Output:
	// [2 4 6] [<nil> <nil>] <nil>
}
