package machine_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

// uneven is an epoch in which each rank has rows for its own number of steps, until no rank has
// any.
type uneven struct {
	rows, steps []int // of each rank
	rule        optim.Config
}

func newUneven(ranks int) *uneven {
	return &uneven{
		rows: []int{3, 2, 4, 1}[:ranks], steps: []int{6, 4, 2, 0}[:ranks],
		rule: optim.Config{Name: optim.Momentum, LearningRate: 0.05},
	}
}

// from returns the number of the first row of a rank.
func (u *uneven) from(rank int) int {
	n := 0
	for _, rows := range u.rows[:rank] {
		n += rows
	}
	return n
}

// alone returns parameters and running statistics of a tape machine on the rows of all ranks. Rows
// count while their rank has data.
func (u *uneven) alone() (params, stats []float64, err error) {
	worlds, err := sim.New(1, sim.Config{})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, worlds[0].Close()) }()
	total := u.from(len(u.rows))
	b, err := newBlock(worlds[0].Group, gtensor.Float32, total, true, false)
	if err != nil {
		return nil, nil, err
	}
	if _, err := G.Grad(b.cost, b.params...); err != nil {
		return nil, nil, err
	}
	solver, err := optim.New(u.rule)
	if err != nil {
		return nil, nil, err
	}
	vm := G.NewTapeMachine(b.g)
	defer vm.Close()
	for step := range slices.Max(u.steps) {
		weight := func(i int) float64 {
			for rank, rows := range u.rows {
				if first := u.from(rank); i >= first && i < first+rows && step < u.steps[rank] {
					return 1
				}
			}
			return 0
		}
		err := b.fill(step, 0, total, false, weight)
		if err = errors.Join(err, vm.RunAll(), solver.Step(G.NodesToValueGrads(b.params))); err != nil {
			return nil, nil, err
		}
		vm.Reset()
	}
	params, stats = b.learned()
	return params, stats, nil
}

// joined returns the same on a rank of a world of GPUs. A rank without rows computes with NaN.
func (u *uneven) joined(w *dist.World, cfg machine.Config) (params, stats []float64, err error) {
	me := w.Rank()
	b, err := newBlock(w.Group, gtensor.Float32, u.rows[me], true, false)
	if err != nil {
		return nil, nil, err
	}
	d, err := ddp.Attach(w, b.cost, b.params, ddp.Config{Idle: true})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	join, err := ddp.NewJoin(d)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(join.Close(), err) }()
	cfg.Solver = &u.rule
	vm, err := machine.New(b.g, cfg)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(vm.Close(), err) }()
	for step := 0; ; step++ {
		samples := 0
		if step < u.steps[me] {
			samples = u.rows[me]
		}
		more, err := join.Next(float64(samples))
		if err != nil {
			return nil, nil, err
		}
		if !more {
			if want := slices.Max(u.steps); step != want {
				return nil, nil, fmt.Errorf("%d steps, want %d", step, want)
			}
			break
		}
		weight := func(int) float64 { return float64(min(samples, 1)) }
		first := u.from(me)
		if err := errors.Join(b.fill(step, first, first+u.rows[me], samples == 0, weight), vm.RunAll()); err != nil {
			return nil, nil, fmt.Errorf("step %d: %w", step, err)
		}
	}
	if err := vm.Sync(); err != nil {
		return nil, nil, err
	}
	params, stats = b.learned()
	return params, stats, nil
}

// agrees compares a rank with one machine that has all rows.
func (u *uneven) agrees(w *dist.World, cfg machine.Config, within float64) error {
	wantParams, wantStats, err := u.alone()
	if err != nil {
		return err
	}
	params, stats, err := u.joined(w, cfg)
	if err != nil {
		return err
	}
	if off := max(farthest(params, wantParams), farthest(stats, wantStats)); !(off <= within) || math.IsNaN(off) {
		return fmt.Errorf("parameters or running statistics are off by %g", off)
	}
	return nil
}

// TestRanksThatRunOutOfDataOnTheHost is the GPU test with ranks of the host.
func TestRanksThatRunOutOfDataOnTheHost(t *testing.T) {
	for _, ranks := range []int{1, 2, 4} {
		onRanks(t, ranks, func(w *dist.World) error { return newUneven(ranks).agrees(w, optimized, 2e-5) })
	}
}

// TestRanksThatRunOutOfDataOnGPUs normalizes over the ranks, and has ranks that run out of data.
func TestRanksThatRunOutOfDataOnGPUs(t *testing.T) {
	cases := map[string]func(w *dist.World) error{}
	for name, cfg := range map[string]machine.Config{"graph": {}, "step by step": {NoGraph: true, NoOptimize: true}} {
		cases[name] = func(w *dist.World) error { return newUneven(w.Size()).agrees(w, cfg, 1e-4) }
	}
	onGPUs(t, cases)
}
