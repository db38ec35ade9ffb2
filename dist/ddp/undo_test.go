package ddp_test

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
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// forked is x A + tanh(x) B: with x of 1e20 the gradient of A overflows in float32, and that of B
// is finite and huge.
var forked = family{name: "forked", in: []int{24}, out: 30, layers: func(b *build, x *G.Node) *G.Node {
	near := G.Must(G.Mul(G.Must(G.Tanh(x)), b.param("b", 24, 30)))
	return G.Must(G.Add(G.Must(G.Mul(x, b.param("a", 24, 30))), near))
}}

// forks is forked in buckets of their own, with a hook that keeps something.
var forks = []ddp.Config{
	{WireDType: tensor.BF16, ErrorFeedback: true},
	{WireDType: tensor.F16, ErrorFeedback: true, Stage: 1},
	{WireDType: tensor.BF16, ErrorFeedback: true, Stage: 2},
	{WireDType: tensor.BF16, ErrorFeedback: true, Stage: 3},
	{Hook: compress.PowerSGD{Rank: 2}},
	{Hook: compress.PowerSGD{Rank: 2, NoWarmStart: true}},
}

const forkBytes = 24 * 30 * 4

// forkLearner is a rank of forked.
func forkLearner(w *dist.World, cfg ddp.Config, opt optim.Config) (*learner, error) {
	cfg.BucketMB = float64(forkBytes) / (1 << 20)
	l, err := newLearner(w, forked, gtensor.Float32, 3, cfg, opt)
	if err == nil && len(l.d.Plan().Buckets) != 2 {
		err = fmt.Errorf("%d buckets, want 2", len(l.d.Plan().Buckets))
	}
	return l, err
}

// train makes steps on samples of this rank from a number on.
func (l *learner) train(from, steps int) error {
	for i := range steps {
		lo := 100*(from+i) + 3*l.w.Rank()
		if err := errors.Join(l.run(indices(lo, lo+3), 3), l.step()); err != nil {
			return err
		}
	}
	return nil
}

// overflow is a run with gradients that are not finite: inputs of the last rank are 1e20.
func (l *learner) overflow() error {
	l.vm.Reset()
	if err := l.m.let(forked, indices(3*l.w.Rank(), 3*l.w.Rank()+3)); err != nil {
		return err
	}
	if l.w.Rank() == l.w.Size()-1 {
		x := l.m.x.Value().Data().([]float32)
		for i := range x {
			x[i] = 1e20
		}
	}
	return l.vm.RunAll()
}

// kept returns a hook's state of a parameter in a slot, as float64.
func kept(state []compress.State, param, slot string) ([]float64, error) {
	for _, s := range state {
		if s.Param == param && s.Slot == slot {
			wide := make([]float64, s.Data.Len())
			return wide, tensor.Convert(tensor.Of(wide), s.Data)
		}
	}
	return nil, fmt.Errorf("there is no %s of %s", slot, param)
}

// begunAnew returns an error if now holds traces of an undone step; before is the state before it.
// PowerSGD has kept all of a, which overflowed.
func begunAnew(w *dist.World, cfg ddp.Config, before, now []compress.State) error {
	for _, param := range []string{"a", "b"} {
		got, err := kept(now, param, "residual")
		if err != nil {
			return err
		}
		want := make([]float64, len(got))
		if cfg.Hook != nil && param == "a" {
			if want, err = kept(before, param, "residual"); err != nil {
				return err
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("residual of %s: %v, want %v", param, got[:4], want[:4])
		}
		if cfg.Hook == nil {
			continue
		}
		q, err := kept(now, param, "q")
		if err != nil {
			return err
		}
		if slices.ContainsFunc(q, func(x float64) bool { return !(math.Abs(x) <= 10) }) {
			return fmt.Errorf("q of %s: %v", param, q)
		}
		if err := agreeOn(w, "q of "+param, q); err != nil {
			return err
		}
	}
	return nil
}

// TestSkippedStepLeavesNothingWithHooks has a step with gradients that overflow on one rank, and
// trains on. The rest is as without that step, with the residuals that it used restarted at 0.
func TestSkippedStepLeavesNothingWithHooks(t *testing.T) {
	for _, cfg := range forks {
		for _, opt := range []optim.Config{
			{Name: optim.SGD, LearningRate: 0.01, SkipNonFinite: true},
			{Name: optim.SGD, LearningRate: 0.01, ClipNorm: 1}, // for which it is an error
		} {
			t.Run(fmt.Sprintf("%v %v stage %d/skip %v", cfg.WireDType, cfg.Hook, cfg.Stage, opt.SkipNonFinite), func(t *testing.T) {
				onRanks(t, 2, func(w *dist.World) error {
					got, state, err := acrossAnOverflow(w, cfg, opt)
					if err != nil {
						return err
					}
					l, err := forkLearner(w, cfg, opt)
					if err != nil {
						return err
					}
					if err := errors.Join(l.train(1, 4), l.d.SetHookState(state), l.train(5, 4)); err != nil {
						return err
					}
					want, err := l.whole()
					if err == nil && !slices.Equal(got, want) {
						err = fmt.Errorf("weights are off by %g", relative(got, want))
					}
					return errors.Join(err, l.close())
				})
			})
		}
	}
}

// acrossAnOverflow returns the weights after four steps, an undone one, and four steps, and the
// state after the undone one.
func acrossAnOverflow(w *dist.World, cfg ddp.Config, opt optim.Config) ([]float64, []compress.State, error) {
	l, err := forkLearner(w, cfg, opt)
	if err != nil {
		return nil, nil, err
	}
	if err := l.train(1, 4); err != nil {
		return nil, nil, err
	}
	before := l.d.HookState()
	if r, err := kept(before, "b", "residual"); err != nil || !slices.ContainsFunc(r, func(x float64) bool { return x != 0 }) {
		return nil, nil, fmt.Errorf("nothing is kept of b: %w", err)
	}
	if err := l.overflow(); err != nil {
		return nil, nil, err
	}
	err = l.step()
	if opt.SkipNonFinite && (err != nil || l.solver.Skipped() != 1) || !opt.SkipNonFinite && !errors.Is(err, optim.ErrNonFinite) {
		return nil, nil, fmt.Errorf("the step is %w, %d are left out", err, l.solver.Skipped())
	}
	zeroGrads(l.m.params) // after an error they are the program's affair
	state := l.d.HookState()
	if err := errors.Join(begunAnew(w, cfg, before, state), l.train(5, 4)); err != nil {
		return nil, nil, err
	}
	all, err := l.whole()
	return all, state, errors.Join(err, l.close())
}

// whole is the weights, all of them.
func (l *learner) whole() ([]float64, error) {
	if err := l.d.Consolidate(); err != nil {
		return nil, err
	}
	return l.weights()
}

// TestStepWithoutWeightKeepsWhatIsKept is a run for nothing, which sends nothing.
func TestStepWithoutWeightKeepsWhatIsKept(t *testing.T) {
	for _, cfg := range forks {
		onRanks(t, 2, func(w *dist.World) error {
			l, err := forkLearner(w, cfg, optim.Config{Name: optim.SGD, LearningRate: 0.01})
			if err != nil {
				return err
			}
			if err := l.train(1, 3); err != nil {
				return err
			}
			before := fmt.Sprint(l.d.HookState())
			if err := l.run(indices(0, 3), 0); !errors.Is(ops.Cause(err), ddp.ErrNoWeight) {
				return fmt.Errorf("the run is %w, want ErrNoWeight", err)
			}
			if after := fmt.Sprint(l.d.HookState()); after != before {
				return errors.New("what is kept has changed")
			}
			return l.close()
		})
	}
}

// TestFailedRunLeavesNothingWithHooks fails in the middle of the backward pass, when some buckets
// have been sent.
func TestFailedRunLeavesNothingWithHooks(t *testing.T) {
	boom := errors.New("boom")
	onRanks(t, 2, func(w *dist.World) error {
		fail := false
		f := gated(func() error {
			if fail {
				return boom
			}
			return nil
		})
		cfg := ddp.Config{WireDType: tensor.BF16, ErrorFeedback: true, BucketMB: 1.0 / 1024}
		l, err := newLearner(w, f, gtensor.Float64, 3, cfg, optim.Config{Name: optim.SGD, LearningRate: 0.01})
		if err != nil {
			return err
		}
		if err := l.train(1, 2); err != nil {
			return err
		}
		before := l.d.HookState()
		fail = true
		if err := l.run(indices(0, 3), 3); !errors.Is(ops.Cause(err), boom) {
			return fmt.Errorf("the run is %w, want boom", err)
		}
		fail = false
		after := l.d.HookState()
		for _, s := range before {
			want, err := kept(before, s.Param, s.Slot)
			if err != nil {
				return err
			}
			got, err := kept(after, s.Param, s.Slot)
			if err != nil {
				return err
			}
			if sent := s.Param != "w0" && s.Param != "b0"; sent {
				clear(want)
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("residual of %s: %v, want %v", s.Param, got, want)
			}
		}
		zeroGrads(l.m.params)
		return errors.Join(l.train(3, 2), l.close())
	})
}

// stumbling is a Cast whose Decompress fails while *fail is set.
type stumbling struct {
	compress.Cast
	fail *bool
}

var errStumbled = errors.New("stumbled")

func (s stumbling) Codec(b compress.Bucket) (compress.Codec, error) {
	c, err := s.Cast.Codec(b)
	if err != nil {
		return nil, err
	}
	return stumblingCodec{c.(compress.Undoer), s.fail}, nil
}

type stumblingCodec struct {
	compress.Undoer
	fail *bool
}

func (c stumblingCodec) Decompress(bucket tensor.Buffer, messages []tensor.Buffer) error {
	if *c.fail {
		return errStumbled
	}
	return c.Undoer.Decompress(bucket, messages)
}

// TestFailedDecompressLeavesNothingWithHooks fails after the last sum: that step is undone too.
func TestFailedDecompressLeavesNothingWithHooks(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		fail := false
		hook := stumbling{compress.Cast{DType: tensor.BF16, ErrorFeedback: true}, &fail}
		l, err := newLearner(w, forked, gtensor.Float32, 3, ddp.Config{Hook: hook}, optim.Config{Name: optim.SGD, LearningRate: 0.01})
		if err != nil {
			return err
		}
		if err := l.train(1, 2); err != nil {
			return err
		}
		fail = true
		if err := l.run(indices(0, 3), 3); !errors.Is(ops.Cause(err), errStumbled) {
			return fmt.Errorf("the run is %w, want that it stumbled", err)
		}
		fail = false
		for _, s := range l.d.HookState() {
			left, err := kept(l.d.HookState(), s.Param, s.Slot)
			if err != nil || slices.ContainsFunc(left, func(x float64) bool { return x != 0 }) {
				return fmt.Errorf("residual of %s: %v (%v), want zeros", s.Param, left, err)
			}
		}
		zeroGrads(l.m.params)
		return errors.Join(l.train(3, 2), l.close())
	})
}

// TestAStepBehindARunWithoutWeightsHasNoGradient also has residuals, where it is the bucket that
// fails.
func TestAStepBehindARunWithoutWeightsHasNoGradient(t *testing.T) {
	for _, cfg := range []ddp.Config{{Stage: 1}, {Stage: 2, WireDType: tensor.BF16, ErrorFeedback: true}} {
		onRanks(t, 2, func(w *dist.World) error {
			l, err := newLearner(w, mlp, gtensor.Float32, 3, cfg, optim.Config{Name: optim.SGD})
			if err != nil {
				return err
			}
			if err := l.run(indices(0, 3), 0); err == nil {
				return errors.New("a run without weights is no error")
			}
			if err := l.step(); !errors.Is(err, optim.ErrNoGradient) {
				return fmt.Errorf("Step is %w, want ErrNoGradient", err)
			}
			return l.close()
		})
	}
}
