package ddp_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
)

// gatheredModel is a rank's odd perceptron with Stage 3, one bucket a layer.
func gatheredModel(w *dist.World) (*attached, error) {
	return attach(w, odd, 3, ddp.Config{Stage: 3, BucketMB: 5.0 / 1024, FirstBucketMB: 5.0 / 1024}, 0)
}

// TestGatheredLearnablesHaveNoElements checks their values, the errors of code that needs elements,
// and the values of Consolidate.
func TestGatheredLearnablesHaveNoElements(t *testing.T) {
	want, err := weights(odd.make(gtensor.Float64, 3, 1).params) // rank 0's
	if err != nil {
		t.Fatal(err)
	}
	onRanks(t, 3, func(w *dist.World) error {
		a, err := gatheredModel(w)
		if err != nil {
			return err
		}
		empty := func(when string) error {
			for _, p := range a.m.params {
				if v := p.Value(); v.MemSize() != 0 || v.Data() != nil || !v.Shape().Eq(p.Shape()) || !strings.Contains(fmt.Sprint(v), "sharded") {
					return fmt.Errorf("%s: %q has value %v of %d B", when, p.Name(), v, v.MemSize())
				}
			}
			return nil
		}
		if err := empty("at the start"); err != nil {
			return err
		}
		if err := a.run(indices(3*w.Rank(), 3*w.Rank()+3)); err != nil {
			return err
		}
		for name, s := range map[string]G.Solver{"vanilla": G.NewVanillaSolver(), "adam": G.NewAdamSolver()} {
			if err := s.Step(a.d.Model()); err == nil {
				return fmt.Errorf("gorgonia's %s took a step with gradients that are elsewhere", name)
			}
		}
		if s, err := optim.New(optim.Config{Name: optim.SGD}); err != nil || s.Step(a.d.Model()) == nil {
			return fmt.Errorf("optim's SGD took a step with gradients that are elsewhere (%v)", err)
		}
		if err := a.d.Consolidate(); err != nil {
			return err
		}
		if got, err := weights(a.m.params); err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("the whole weights are off by %g (%v)", relative(got, want), err)
		}
		if err := a.run(indices(0, 3)); err != nil {
			return err
		}
		if err := empty("after the next run"); err != nil {
			return err
		}
		m := a.d.Memory()
		if shard := m.Params; shard*3 < int64(len(want))*8 || shard*3 > int64(len(want))*8+3*4*256*8 || m.Grads != shard {
			return fmt.Errorf("%v for %d weights on 3 ranks", m, len(want))
		}
		if err := a.d.Close(); err != nil {
			return err
		}
		if err := a.run(indices(0, 3)); !errors.Is(ops.Cause(err), dist.ErrClosed) {
			return fmt.Errorf("a run after Close: %v, want ErrClosed", err)
		}
		if err := a.d.Consolidate(); !errors.Is(err, dist.ErrClosed) {
			return fmt.Errorf("Consolidate after Close: %v, want ErrClosed", err)
		}
		return a.vm.Close()
	})
}

// TestGatheredWeightsAreThoseThatNodesWereGiven lets nodes anew, as one that reads a checkpoint
// does, and changes whole values in place.
func TestGatheredWeightsAreThoseThatNodesWereGiven(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		a, err := gatheredModel(w)
		if err != nil {
			return err
		}
		fresh := odd.make(gtensor.Float64, 3, 7)
		for i, p := range a.m.params {
			if err := G.Let(p, fresh.params[i].Value()); err != nil {
				return err
			}
		}
		for round := range 2 {
			want, err := weights(fresh.params)
			if err != nil {
				return err
			}
			if err := a.run(indices(0, 3)); err != nil {
				return err
			}
			cost, err := elements(a.m.cost.Value())
			if err != nil {
				return err
			}
			if err := a.d.Consolidate(); err != nil {
				return err
			}
			if got, err := weights(a.m.params); err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("round %d: the weights are off by %g (%v)", round, relative(got, want), err)
			}
			alone, err := costAlone(fresh)
			if err != nil || cost[0] != alone {
				return fmt.Errorf("round %d: the cost is %v, want %v (%v)", round, cost[0], alone, err)
			}
			for _, m := range []*model{a.m, fresh} {
				m.params[1].Value().(*gtensor.Dense).Data().([]float64)[3] += 0.5
			}
		}
		return a.close()
	})
}

// costAlone is the cost of samples 0 to 3 by gorgonia alone.
func costAlone(m *model) (float64, error) {
	if err := m.let(odd, indices(0, 3)); err != nil {
		return 0, err
	}
	vm := G.NewTapeMachine(m.cost.Graph())
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		return 0, err
	}
	cost, err := elements(m.cost.Value())
	if err != nil {
		return 0, err
	}
	return cost[0], nil
}

// TestOtherReadersOfGatheredParameters has gorgonia.Read of a parameter, and a node that is no part
// of the cost.
func TestOtherReadersOfGatheredParameters(t *testing.T) {
	want, err := elements(odd.make(gtensor.Float64, 3, 1).params[2].Value())
	if err != nil {
		t.Fatal(err)
	}
	onRanks(t, 2, func(w *dist.World) error {
		m := odd.make(gtensor.Float64, 3, 1)
		var read, double G.Value
		G.Read(m.params[2], &read)
		hooked, err := ddp.Param(m.params[2])
		if err != nil {
			return err
		}
		G.Read(G.Must(G.Add(hooked, m.params[2])), &double)
		d, err := ddp.Attach(w, m.cost, m.params, ddp.Config{Stage: 3})
		if err != nil {
			return err
		}
		a := &attached{w, m, d, G.NewTapeMachine(m.cost.Graph()), odd}
		if err := a.run(indices(0, 3)); err != nil {
			return err
		}
		one, err := elements(read)
		if err != nil || !slices.Equal(one, want) {
			return fmt.Errorf("what was read is off by %g (%v)", relative(one, want), err)
		}
		two, err := elements(double)
		for i := range two {
			two[i] /= 2
		}
		if err != nil || !slices.Equal(two, want) {
			return fmt.Errorf("half of twice the parameter is off by %g (%v)", relative(two, want), err)
		}
		return a.close()
	})
}

// TestADeadRankInAGatherIsNamed has a rank that dies in the gathering of weights, in the forward
// pass and in Consolidate.
func TestADeadRankInAGatherIsNamed(t *testing.T) {
	const attached = 1 + 6           // the plan and 6 parameters
	const groups = 4                 // w0, b0 and others, w1, w2 and b2
	const step = groups + 1 + groups // gathers, weights, buckets
	for _, c := range []struct {
		name string
		op   int
		say  []string
	}{
		{"first", attached + 1, []string{"allgather", `"weights 3"`}},
		{"last", attached + groups, []string{"allgather", `"weights 0"`}},
		{"in the second step", attached + step + 2, []string{"allgather", `"weights 2"`}},
		{"a bucket", attached + groups + 2, []string{"reducescatter", `"bucket 0"`, "ddp step 1"}},
		{"whole values", attached + 2*step + 1, []string{"allgather", "consolidate"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			errs := runRanks(t, 3, sim.Config{Script: fmt.Sprintf("die rank=1 op=%d", c.op)}, func(w *dist.World) error {
				a, err := gatheredModel(w)
				if err != nil {
					return err
				}
				for range 2 {
					if err = a.run(indices(0, 3)); err != nil {
						break
					}
				}
				if err == nil {
					err = a.d.Consolidate()
				}
				return errors.Join(ops.Cause(err), a.close())
			})
			for _, r := range []int{0, 2} {
				if !errors.Is(errs[r], dist.ErrAborted) || !strings.Contains(errs[r].Error(), "rank 1 died") {
					t.Errorf("rank %d: %v, want that rank 1 died", r, errs[r])
				}
				for _, word := range append(c.say, fmt.Sprintf("rank %d/3", r)) {
					if !strings.Contains(errs[r].Error(), word) {
						t.Errorf("rank %d: %v, want %q in it", r, errs[r], word)
					}
				}
			}
		})
	}
}
