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
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/internal/host/shm"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
)

// prepared is a rank's model with its solver.
type prepared struct {
	*attached
	solver optim.Solver
}

func prepare(w *dist.World, f family, cfg ddp.Config, machine int, o optim.Config) (*prepared, error) {
	a, err := attach(w, f, 3, cfg, machine)
	if err != nil {
		return nil, err
	}
	s, err := a.d.NewSolver(o)
	return &prepared{a, s}, err
}

// step is a run over samples and an update.
func (p *prepared) step(samples []int) error {
	if err := p.run(samples); err != nil {
		return err
	}
	return p.solver.Step(p.d.Model())
}

// TestADeadRankIsNamedByTheOthersOfAShardedStep has it die in reductions, in the solver's sums and
// in gathers.
func TestADeadRankIsNamedByTheOthersOfAShardedStep(t *testing.T) {
	for stage := 1; stage <= 2; stage++ {
		numbers := operationsOfAStep(t, stage)
		for _, c := range []struct {
			op    string
			words []string
		}{
			{"reducescatter bucket 0", []string{"ddp step 1 rank", "gradient of", "reducescatter", "bucket 0"}},
			{"reducescatter bucket 2", []string{"ddp step 1 rank", "gradient of", "reducescatter", "bucket 2"}},
			{"allreduce sums of the solver", []string{"ddp solver step 1 rank", "allreduce", "sums of the solver"}},
			{"allgather weights 0", []string{"ddp solver step 1 rank", "allgather", "weights 0"}},
			{"allgather weights 1", []string{"ddp solver step 1 rank", "allgather", "weights 1"}},
		} {
			t.Run(fmt.Sprintf("stage %d/%s", stage, c.op), func(t *testing.T) {
				seq, ok := numbers[c.op]
				if !ok {
					t.Fatalf("no such operation in %v", numbers)
				}
				errs := runRanks(t, 3, sim.Config{Script: fmt.Sprintf("die rank=1 op=%d", seq)}, func(w *dist.World) error {
					p, err := oneStep(w, stage)
					if p == nil || err == nil {
						return errors.Join(err, errors.New("the step succeeded"))
					}
					if again := p.solver.Step(p.d.Model()); !errors.Is(again, dist.ErrAborted) {
						return fmt.Errorf("the step after the error is %v, want ErrAborted", again)
					}
					return errors.Join(ops.Cause(err), p.close())
				})
				for _, r := range []int{0, 2} {
					for _, word := range append(c.words, "rank 1 died", fmt.Sprintf("rank %d/3", r)) {
						if !errors.Is(errs[r], dist.ErrAborted) || !strings.Contains(errs[r].Error(), word) {
							t.Errorf("rank %d: %v, want ErrAborted with %q", r, errs[r], word)
						}
					}
				}
			})
		}
	}
}

// oneStep is a step of the odd perceptron with a solver that clips.
func oneStep(w *dist.World, stage int) (*prepared, error) {
	cfg := ddp.Config{Stage: stage, BucketMB: 1.0 / 1024}
	p, err := prepare(w, odd, cfg, 0, optim.Config{Name: optim.Adam, ClipNorm: 1})
	if err != nil {
		return nil, err
	}
	return p, p.step(indices(0, 3))
}

// operationsOfAStep is the number of each operation of a world of three up to the end of its first
// step.
func operationsOfAStep(t *testing.T, stage int) map[string]uint64 {
	t.Helper()
	numbers := map[string]uint64{}
	onRanks(t, 3, func(w *dist.World) error {
		p, err := oneStep(w, stage)
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			for _, r := range w.Recorder().Records() {
				numbers[fmt.Sprint(r.Signature.Kind, " ", r.Name)] = r.Seq
			}
		}
		return p.close()
	})
	return numbers
}

func TestRanksWithOtherStagesAreTold(t *testing.T) {
	for r, err := range runRanks(t, 3, sim.Config{}, func(w *dist.World) error {
		_, err := attach(w, odd, 3, ddp.Config{Stage: max(w.Rank(), 1)}, 0)
		return err
	}) {
		if !errors.Is(err, ddp.ErrPlan) || !strings.Contains(err.Error(), `rank 0 has "setting Stage: 1", rank 2 has "setting Stage: 2"`) {
			t.Errorf("rank %d: %v, want ErrPlan with the stages", r, err)
		}
	}
}

// TestWeightsOfNodesAreTheBuckets looks at where values are, gives one away and takes it back, and
// closes.
func TestWeightsOfNodesAreTheBuckets(t *testing.T) {
	sgd := optim.Config{Name: optim.SGD, LearningRate: 0.5}
	for stage := 1; stage <= 2; stage++ {
		onRanks(t, 3, func(w *dist.World) error {
			p, err := prepare(w, odd, ddp.Config{Stage: stage, BucketMB: 1.0 / 1024}, 0, sgd)
			if err != nil {
				return err
			}
			w0 := p.m.params[0]
			home := w0.Value().Uintptr()
			if err := p.step(indices(0, 3)); err != nil {
				return err
			}
			if w0.Value().Uintptr() != home {
				return errors.New("a step moved the weights")
			}
			ones := make([]float64, w0.Shape().TotalSize())
			for i := range ones {
				ones[i] = 1
			}
			if err := G.Let(w0, tensorOf(gtensor.Float64, ones, w0.Shape()...)); err != nil {
				return err
			}
			if err := p.step(indices(3, 6)); err != nil {
				return err
			}
			if w0.Value().Uintptr() != home {
				return errors.New("weights that the program gave were not moved in")
			}
			got, err := elements(w0.Value())
			if err != nil {
				return err
			}
			changed := 0
			for _, x := range got {
				if x < 0.9 || x > 1.1 {
					return fmt.Errorf("a weight is %g, and was 1", x)
				}
				if x != 1 {
					changed++
				}
			}
			if changed < len(got)/2 {
				return fmt.Errorf("%d of %d weights were trained", changed, len(got))
			}
			if err := p.close(); err != nil {
				return err
			}
			after, err := elements(w0.Value())
			if w0.Value().Uintptr() == home || !slices.Equal(after, got) {
				return fmt.Errorf("Close left weights in the bucket, or changed them (%v)", err)
			}
			return err
		})
	}
}

// TestWeightsThatWentWithTheWorldAreMissed closes the world first.
func TestWeightsThatWentWithTheWorldAreMissed(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		a, err := attach(w, odd, 3, ddp.Config{Stage: 1}, 0)
		if err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		if err := a.close(); !errors.Is(err, dist.ErrClosed) || !strings.Contains(err.Error(), "6 parameters") {
			return fmt.Errorf("Close is %v, want ErrClosed", err)
		}
		left, err := elements(a.m.params[0].Value())
		if err != nil || left[0] == left[0] {
			return fmt.Errorf("the weight is %v (%v), want NaN", left[0], err)
		}
		return nil
	})
}

// broken is a hook that makes Attach fail when weights have been moved.
type broken struct{}

func (broken) String() string                                { return "broken" }
func (broken) Elementwise() bool                             { return true }
func (broken) Codec(compress.Bucket) (compress.Codec, error) { return nil, errors.New("no codec") }

func TestAnAttachThatFailsLeavesNodesTheirWeights(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		m := odd.make(gtensor.Float32, 3, 1)
		before, err := weights(m.params)
		if err != nil {
			return err
		}
		if _, err := ddp.Attach(w, m.cost, m.params, ddp.Config{Stage: 2, Hook: broken{}}); err == nil || !strings.Contains(err.Error(), "no codec") {
			return fmt.Errorf("Attach is %v", err)
		}
		if err := w.Close(); err != nil {
			return err
		}
		after, err := weights(m.params)
		if err != nil || !slices.Equal(after, before) {
			return fmt.Errorf("other weights (%v)", err)
		}
		return nil
	})
}

// TestTheTimelineOfAShardedStepHasGathers also checks the exposed time.
func TestTheTimelineOfAShardedStepHasGathers(t *testing.T) {
	onRanks(t, 3, func(w *dist.World) error {
		p, err := prepare(w, odd, ddp.Config{Stage: 2, BucketMB: 1.0 / 1024}, 0, optim.Config{Name: optim.SGD})
		if err != nil {
			return err
		}
		for step := range 3 {
			if err := p.step(indices(0, 3)); err != nil {
				return err
			}
			line := p.d.Timeline()
			if n := len(p.d.Plan().Buckets); line.Step != step+1 || len(line.Buckets) != n || len(line.Gathers) != n || n < 3 {
				return fmt.Errorf("step %d: the timeline is %+v", step, line)
			}
			for i, g := range line.Gathers {
				b := line.Buckets[i]
				if b.Bucket != i || g.Bucket != i || b.Started == 0 || b.Ended < b.Started || g.Started < b.Ended || line.End < g.Ended || g.Bytes != b.Bytes {
					return fmt.Errorf("step %d, bucket %d: reduced %+v, gathered %+v, end %v", step, i, b, g, line.End)
				}
			}
			if exposed, part := p.d.ExposedComm(); exposed <= 0 || exposed > line.End-line.BackwardStart || part < 0 || part > 1 {
				return fmt.Errorf("step %d: %v exposed, %v of %v", step, exposed, part, line.Period)
			}
		}
		return p.close()
	})
}

// TestStageTwoHasNoGradientsAtItsNodes reads zeros, in every machine, and no accumulation by dual
// values.
func TestStageTwoHasNoGradientsAtItsNodes(t *testing.T) {
	for machine := range machines {
		onRanks(t, 2, func(w *dist.World) error {
			a, err := attach(w, odd, 3, ddp.Config{Stage: 2}, machine)
			if err != nil {
				return err
			}
			for range 2 {
				if err := a.run(indices(0, 3)); err != nil {
					return err
				}
				if g := a.grads(); len(g) != 2436 || slices.ContainsFunc(g, func(x float64) bool { return x != 0 }) {
					return fmt.Errorf("%d elements of gradients, not all of them zeros", len(g))
				}
			}
			return a.close()
		})
	}
}

// TestStageOneHasReducedGradientsInItsPieces compares them with those of Stage 0.
func TestStageOneHasReducedGradientsInItsPieces(t *testing.T) {
	var want []float64
	for stage := range 2 {
		onRanks(t, 3, func(w *dist.World) error {
			a, err := attach(w, odd, 3, ddp.Config{Stage: stage, BucketMB: 1.0 / 1024}, 0)
			if err != nil {
				return err
			}
			if err := a.run(indices(3*w.Rank(), 3*w.Rank()+3)); err != nil {
				return err
			}
			got, plan := a.grads(), a.d.Plan()
			if stage == 0 {
				if w.Rank() == 0 {
					want = got
				}
				return a.close()
			}
			for _, own := range a.d.Pieces() {
				at := own.Offset
				for _, q := range plan.Params[:own.Param] {
					at += q.Len()
				}
				if !slices.Equal(got[at:at+own.Len], want[at:at+own.Len]) {
					return fmt.Errorf("piece %+v is not the reduced gradient", own)
				}
			}
			return a.close()
		})
	}
}

// TestAShardedSolverTouchesNothingOfAClosedWorld has memory that is unmapped with the world.
func TestAShardedSolverTouchesNothingOfAClosedWorld(t *testing.T) {
	for stage := 1; stage <= 3; stage++ {
		ends, err := shm.Local(1, shm.Mapped, shm.Config{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := dist.NewWorld(ends[0], dist.LocalInfo{Size: 1}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := newLearner(w, mlp, gtensor.Float32, 3, ddp.Config{Stage: stage}, optim.Config{Name: optim.SGD, EMADecay: 0.5})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.run(indices(0, 3), 3), l.step(), l.run(indices(0, 3), 3)); err != nil {
			t.Fatal(err)
		}
		own := tensorOf(gtensor.Float32, make([]float64, 60), 6, 10)
		if err := errors.Join(w.Close(), G.Let(l.m.params[0], own)); err != nil {
			t.Fatal(err)
		}
		if err := l.step(); !errors.Is(err, dist.ErrClosed) {
			t.Errorf("stage %d: Step is %v, want ErrClosed", stage, err)
		}
		if err := l.solver.SwapAverages(l.d.Model()); !errors.Is(err, dist.ErrClosed) {
			t.Errorf("stage %d: SwapAverages is %v, want ErrClosed", stage, err)
		}
		if err := l.d.Consolidate(); stage == 3 && !errors.Is(err, dist.ErrClosed) {
			t.Errorf("Consolidate is %v, want ErrClosed", err)
		}
		if err := l.close(); stage < 3 && !errors.Is(err, dist.ErrClosed) {
			t.Errorf("stage %d: Close is %v, want ErrClosed", stage, err)
		}
	}
}
