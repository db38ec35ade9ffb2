package ddp_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
)

func TestSolversOfShardsRefuseWhatTheyCannotDo(t *testing.T) {
	adam := optim.Config{Name: optim.Adam}
	onRanks(t, 2, func(w *dist.World) error {
		cfg := ddp.Config{Stage: 1, BucketMB: 1.0 / 1024}
		p, err := prepare(w, odd, cfg, 1, adam)
		if err != nil {
			return err
		}
		for _, c := range []struct {
			what string
			err  error
			kind error
			says string
		}{
			{"a second solver", second(p.d, adam), dist.ErrInvalid, "there is one"},
			{"a model that is reversed", p.solver.Step(reversed(p.d.Model())), optim.ErrMismatch, `parameter 0 is not "w0"`},
			{"a model that is too short", p.solver.Step(p.d.Model()[1:]), optim.ErrMismatch, "has 5 parameters and the buckets 6"},
		} {
			if !errors.Is(c.err, c.kind) || !strings.Contains(c.err.Error(), c.says) {
				return fmt.Errorf("%s: %v, want %q", c.what, c.err, c.says)
			}
		}
		for range 2 { // machine 1 binds dual values, which add the runs up
			if err := p.run(indices(0, 3)); err != nil {
				return err
			}
		}
		if err := p.solver.Step(p.d.Model()); !errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), "BindDualValues") {
			return fmt.Errorf("two runs with dual values: %v", err)
		}
		if err := p.close(); err != nil {
			return err
		}
		if err := p.solver.Step(p.d.Model()); !errors.Is(err, dist.ErrClosed) {
			return fmt.Errorf("a step after Close: %v", err)
		}
		if _, err := p.d.NewSolver(adam); !errors.Is(err, dist.ErrClosed) {
			return fmt.Errorf("a solver after Close: %v", err)
		}
		return nil
	})
}

// TestStepsGoOnAfterARunThatFailed has dual values, to which a run without samples has added
// nothing: the step after it is of one run.
func TestStepsGoOnAfterARunThatFailed(t *testing.T) {
	for stage := 1; stage <= 2; stage++ {
		onRanks(t, 2, func(w *dist.World) error {
			p, err := prepare(w, odd, ddp.Config{Stage: stage}, 1, optim.Config{Name: optim.SGD})
			if err != nil {
				return err
			}
			if err := p.step(indices(0, 3)); err != nil {
				return err
			}
			if err := p.d.SetWeight(0); err != nil {
				return err
			}
			if err := p.runAs(indices(0, 3)); !errors.Is(ops.Cause(err), ddp.ErrNoWeight) {
				return fmt.Errorf("the run is %w, want ErrNoWeight", err)
			}
			if err := p.step(indices(3, 6)); err != nil {
				return fmt.Errorf("stage %d, after it: %w", stage, err)
			}
			return p.close()
		})
	}
}

func second(d *ddp.DDP, o optim.Config) error {
	_, err := d.NewSolver(o)
	return err
}

func reversed(model []G.ValueGrad) []G.ValueGrad {
	model = slices.Clone(model)
	slices.Reverse(model)
	return model
}

func TestRanksWithOtherSolversAreTold(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		a, err := attach(w, odd, 3, ddp.Config{Stage: 2}, 0)
		if err != nil {
			return err
		}
		_, err = a.d.NewSolver(optim.Config{Name: optim.SGD, LearningRate: float64(1 + w.Rank())})
		if !errors.Is(err, ddp.ErrPlan) || !strings.Contains(err.Error(), "LearningRate:2") {
			return fmt.Errorf("the error is %v, want ErrPlan with both rates", err)
		}
		_, err = a.d.NewSolver(optim.Config{Name: []string{optim.SGD, "sdg"}[w.Rank()]})
		if want := []error{ddp.ErrPeer, optim.ErrConfig}[w.Rank()]; !errors.Is(err, want) {
			return fmt.Errorf("the error is %v, want %v", err, want)
		}
		if _, err = a.d.NewSolver(optim.Config{Name: optim.SGD, Workers: 1 + w.Rank()}); err != nil {
			return fmt.Errorf("numbers of goroutines may differ: %w", err)
		}
		return a.close()
	})
}

// saved is the state for resuming: the weights of all parameters, and each rank's solver state.
type saved struct {
	weights []float64
	states  []optim.State
}

// trainFrom makes steps from to to of the odd perceptron on three ranks, from start or, without
// that, from the beginning. see, if not nil, checks each rank at the end.
func trainFrom(t *testing.T, start *saved, stage, from, to int, see func(w *dist.World, p *prepared) error) *saved {
	t.Helper()
	const ranks = 3
	end := &saved{states: make([]optim.State, ranks)}
	onRanks(t, ranks, func(w *dist.World) error {
		cfg := ddp.Config{Stage: stage, BucketMB: 2.0 / 1024}
		p, err := prepare(w, odd, cfg, 0, optim.Config{Name: optim.Adam, LearningRate: 0.01, ClipNorm: 1})
		if err != nil {
			return err
		}
		if start != nil {
			if err := errors.Join(give(p.m, start.weights), p.solver.SetState(start.states[w.Rank()])); err != nil {
				return err
			}
		}
		for i := from; i < to; i++ {
			if err := p.step(indices(9*i+3*w.Rank(), 9*i+3*w.Rank()+3)); err != nil {
				return err
			}
		}
		end.states[w.Rank()] = p.solver.State()
		if w.Rank() == 0 {
			if end.weights, err = weights(p.m.params); err != nil {
				return err
			}
		}
		if see != nil {
			if err := see(w, p); err != nil {
				return err
			}
		}
		return p.close()
	})
	return end
}

// give lets the parameters have the values that all has of them.
func give(m *model, all []float64) error {
	for _, p := range m.params {
		n := p.Shape().TotalSize()
		if err := G.Let(p, tensorOf(p.Dtype(), all[:n], p.Shape()...)); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// TestStatesOfShardsAreRunsOfTheWhole goes on from the state of a training without sharding, and
// from that of shards.
func TestStatesOfShardsAreRunsOfTheWhole(t *testing.T) {
	want := trainFrom(t, nil, 0, 0, 6, nil).weights
	whole := trainFrom(t, nil, 0, 0, 3, nil)
	if got := trainFrom(t, whole, 1, 3, 6, nil).weights; !slices.Equal(got, want) {
		t.Errorf("from the whole state: weights are off by %g", relative(got, want))
	}
	parts := trainFrom(t, nil, 2, 0, 3, func(w *dist.World, p *prepared) error {
		s := p.solver.State()
		for _, own := range p.d.Pieces() {
			q := s.Params[own.Param]
			if q.Offset != own.Offset || len(q.Slots) != 2 || len(q.Slots[0].F64) != own.Len {
				return fmt.Errorf("the state of %s has elements from %d on, want %+v", q.Name, q.Offset, own)
			}
			if !slices.Equal(q.Slots[0].F64, whole.states[0].Params[own.Param].Slots[0].F64[own.Offset:own.Offset+own.Len]) {
				return fmt.Errorf("the state of %s is not what it is without sharding", q.Name)
			}
		}
		return nil
	})
	if got := trainFrom(t, parts, 2, 3, 6, nil).weights; !slices.Equal(got, want) {
		t.Errorf("from the state of shards: weights are off by %g", relative(got, want))
	}
}

// TestARunThatIsRefusedLeavesNothingInDualValues has a step that is not made, whose run must not
// count as one that dual values have added up.
func TestARunThatIsRefusedLeavesNothingInDualValues(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		p, err := prepare(w, odd, ddp.Config{Stage: 1}, 1, optim.Config{Name: optim.SGD, ClipNorm: math.Inf(1)})
		if err != nil {
			return err
		}
		x, y := odd.samples(p.m.x.Dtype(), indices(0, 3))
		if err := errors.Join(x.Memset(math.NaN()), G.Let(p.m.x, x), G.Let(p.m.y, y), p.vm.RunAll()); err != nil {
			return err
		}
		if err := p.solver.Step(p.d.Model()); !errors.Is(err, optim.ErrNonFinite) {
			return fmt.Errorf("a step of NaN: %v", err)
		}
		return errors.Join(p.step(indices(0, 3)), p.close())
	})
}

func TestShardedSolversRefuseDualValuesThatAreKept(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		p, err := prepare(w, odd, ddp.Config{Stage: 1}, 1, optim.Config{Name: optim.SGD, KeepGradients: true})
		if err != nil {
			return err
		}
		if err := p.step(indices(0, 3)); !errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), "KeepGradients") {
			return fmt.Errorf("a step: %v", err)
		}
		return p.close()
	})
}

// TestSolversOfShardsWantReducedGradients has steps where nodes would have no gradients, or zeros:
// before any run, and after one inside NoSync. The accumulated gradients must survive.
func TestSolversOfShardsWantReducedGradients(t *testing.T) {
	var want []float64
	for stage := range 4 {
		onRanks(t, 2, func(w *dist.World) error {
			p, err := prepare(w, odd, ddp.Config{Stage: stage}, 0, optim.Config{Name: optim.SGD, LearningRate: 0.1})
			if err != nil {
				return err
			}
			if err := p.solver.Step(p.d.Model()); !errors.Is(err, optim.ErrNoGradient) {
				return fmt.Errorf("stage %d: a step before any run: %v", stage, err)
			}
			if err := p.d.NoSync(func() error { return p.run(indices(0, 3)) }); err != nil {
				return err
			}
			if err := p.solver.Step(p.d.Model()); stage > 0 && (!errors.Is(err, optim.ErrNoGradient) || !strings.Contains(err.Error(), "NoSync")) {
				return fmt.Errorf("stage %d: a step behind a run inside NoSync: %v", stage, err)
			}
			if err := errors.Join(p.step(indices(3, 6)), p.d.Consolidate(), p.close()); err != nil {
				return err
			}
			got, err := weights(p.m.params)
			if w.Rank() == 0 && stage == 0 {
				want = got
			}
			if w.Rank() == 0 && !(relative(got, want) <= 1e-14) {
				return fmt.Errorf("stage %d: weights are off by %g", stage, relative(got, want))
			}
			return err
		})
	}
}
