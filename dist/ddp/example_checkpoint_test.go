package ddp_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// save writes the weights and the state of the solver. All ranks have equal ones, so rank 0 writes
// them. Collective: all ranks.
func save(saver *checkpoint.Saver, step int, weights G.Nodes, solver optim.Solver) error {
	var runs []checkpoint.Run
	add := func(t checkpoint.Tensor, data []float64) {
		t.DType = tensor.F64
		runs = append(runs, checkpoint.Run{Tensor: t, Len: len(data), Data: tensor.Of(data), Replicated: true})
	}
	for i, p := range solver.State().Params {
		w := weights[i].Value()
		add(checkpoint.Tensor{Name: p.Name, Role: checkpoint.Param, Shape: w.Shape()}, w.Data().([]float64))
		for _, s := range p.Slots {
			add(checkpoint.Tensor{
				Name: checkpoint.StateName(p.Name, s.Name), Role: checkpoint.State, Param: p.Name, Slot: s.Name, Shape: p.Shape,
			}, s.F64)
		}
	}
	return saver.Save(checkpoint.Meta{Step: step}, runs)
}

// resume reads the newest whole checkpoint in dir and returns its step; 0 if there is none.
func resume(dir string, weights G.Nodes, solver optim.Solver) (step int, err error) {
	c, err := checkpoint.Open(dir)
	if errors.Is(err, checkpoint.ErrNone) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer c.Close()
	st := optim.State{Name: optim.Adam, Steps: c.Manifest().Step}
	for _, w := range weights {
		data := w.Value().Data().([]float64)
		p := optim.ParamState{Name: w.Name(), Shape: w.Shape(), DType: w.Dtype()}
		for _, slot := range []string{"exp_avg", "exp_avg_sq"} { // of Adam
			s := optim.Slot{Name: slot, F64: make([]float64, len(data))}
			err = errors.Join(err, c.Read(checkpoint.StateName(w.Name(), slot), 0, tensor.Of(s.F64)))
			p.Slots = append(p.Slots, s)
		}
		err = errors.Join(err, c.Read(w.Name(), 0, tensor.Of(data)))
		st.Params = append(st.Params, p)
	}
	return st.Steps, errors.Join(err, solver.SetState(st))
}

// trainTo trains up to a step, from the newest checkpoint in dir, and saves every 10 steps.
func trainTo(world *dist.World, dir string, steps int) float64 {
	defer world.Close()
	data := load(world.Rank(), world.Size())
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(data.rows, 2))
	y := G.NewMatrix(g, G.Float64, G.WithName("y"), G.WithShape(data.rows, 1))
	w := G.NewMatrix(g, G.Float64, G.WithName("w"), G.WithShape(2, 1), G.WithInit(G.Zeroes()))
	cost := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(G.Must(G.Mul(x, w)), y))))))
	weights := G.Nodes{w}
	d := must(ddp.Attach(world, cost, weights, ddp.Config{}))
	solver := must(d.NewSolver(optim.Config{Name: optim.Adam, LearningRate: 0.1}))
	vm := G.NewTapeMachine(g, G.BindDualValues(w))
	defer vm.Close()
	alive, release := world.Context(context.Background()) // ends when a rank dies, and with it every write
	defer release()
	saver := must(checkpoint.New(checkpoint.Options{
		Dir: dir, Keep: 3, Async: true, Rank: world.Rank(), Size: world.Size(), Context: alive,
	}))
	for step := must(resume(dir, weights, solver)) + 1; step <= steps; step++ {
		check(G.Let(x, data.x), G.Let(y, data.y), vm.RunAll(), solver.Step(d.Model()))
		vm.Reset()
		if step%10 == 0 {
			check(save(saver, step, weights, solver))
		}
	}
	check(saver.Close()) // waits for the save that is being written
	return w.Value().Data().([]float64)[1]
}

// ExampleDDP_checkpoint stops two ranks after 20 steps, and goes on to step 50 with four.
func ExampleDDP_checkpoint() {
	dir := must(os.MkdirTemp("", "checkpoints"))
	defer os.RemoveAll(dir)
	for _, run := range []struct{ ranks, steps int }{{2, 20}, {4, 50}} {
		found := make([]float64, run.ranks)
		var ranks sync.WaitGroup
		for r, w := range must(sim.New(run.ranks, sim.Config{})) {
			ranks.Go(func() { found[r] = trainTo(w, dir, run.steps) })
		}
		ranks.Wait()
		fmt.Printf("%d ranks, step %d: w[1] = %.6f\n", run.ranks, run.steps, found[0])
	}
	// Output:
	// 2 ranks, step 20: w[1] = -0.874245
	// 4 ranks, step 50: w[1] = -1.034519
}
