package ddp_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/internal/long"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// student is trained on a teacher's outputs: a network of one hidden layer, with numbers drawn
// once. Its loss is multiplied by a scale, as with mixed precision.
type student struct {
	*learner
	scale  *G.Node
	scaler *optim.LossScaler
}

// newStudent attaches a student; scaler may be nil.
func newStudent(w *dist.World, rows int, cfg ddp.Config, opt optim.Config, scaler *optim.LossScaler) (*student, error) {
	m := wider.make(gtensor.Float32, rows, uint64(1+w.Rank()))
	s := &student{scaler: scaler}
	s.scale = G.NewScalar(m.cost.Graph(), gtensor.Float32, G.WithName("loss scale"), G.WithValue(float32(1)))
	m.cost = G.Must(G.HadamardProd(m.cost, s.scale))
	d, err := ddp.Attach(w, m.cost, m.params, cfg)
	if err != nil {
		return nil, err
	}
	s.learner = &learner{w: w.Group, m: m, d: d, f: wider, vm: G.NewTapeMachine(m.cost.Graph(), G.BindDualValues(m.params...))}
	s.solver, err = d.NewSolver(opt)
	return s, err
}

// lesson is rows samples of a step for one rank: x, and tanh(x A) B + noise for A and B that never
// change.
func lesson(step, rank, rows int) (x, y *gtensor.Dense) {
	teach := rand.New(rand.NewPCG(99, 0))
	var a [24][6]float64
	var b [6][3]float64
	for i := range a {
		for j := range a[i] {
			a[i][j] = teach.NormFloat64() * 0.4
		}
	}
	for i := range b {
		for j := range b[i] {
			b[i][j] = teach.NormFloat64()
		}
	}
	rng := rand.New(rand.NewPCG(uint64(step), uint64(rank)))
	var xs, ys []float64
	for range rows {
		var in [24]float64
		for i := range in {
			in[i] = rng.NormFloat64()
		}
		var out [3]float64
		for j := range b {
			h := 0.0
			for i, v := range in {
				h += v * a[i][j]
			}
			for k := range out {
				out[k] += math.Tanh(h) * b[j][k]
			}
		}
		xs = append(xs, in[:]...)
		for _, v := range out {
			ys = append(ys, v+0.02*rng.NormFloat64())
		}
	}
	return tensorOf(gtensor.Float32, xs, rows, 24), tensorOf(gtensor.Float32, ys, rows, 3)
}

// study is one step on given samples; spoil may change them first. It returns the loss, without its
// scale.
func (s *student) study(x, y *gtensor.Dense) (float64, error) {
	scale := 1.0
	if s.scaler != nil {
		scale = s.scaler.Scale()
	}
	s.vm.Reset()
	if err := errors.Join(G.Let(s.m.x, x), G.Let(s.m.y, y), G.Let(s.scale, float32(scale)), s.solver.SetGradientScale(1/scale)); err != nil {
		return 0, err
	}
	if err := s.vm.RunAll(); err != nil {
		return 0, err
	}
	loss, err := s.loss()
	if err != nil {
		return 0, err
	}
	skipped := s.solver.Skipped()
	if err := s.step(); err != nil {
		return 0, err
	}
	if s.scaler != nil {
		s.scaler.Update(s.solver.Skipped() > skipped)
	}
	return loss / scale, nil
}

// course is training of some steps, and the mean loss of the last fifty over all ranks.
func course(w *dist.World, steps int, cfg ddp.Config, opt optim.Config, scaler *optim.LossScaler) (float64, error) {
	const rows, last = 8, 50
	s, err := newStudent(w, rows, cfg, opt, scaler)
	if err != nil {
		return 0, err
	}
	sum := []float64{0}
	for step := range steps {
		x, y := lesson(step, w.Rank(), rows)
		loss, err := s.study(x, y)
		if err != nil {
			return 0, fmt.Errorf("step %d: %w", step, err)
		}
		if step >= steps-last {
			sum[0] += loss / last / float64(w.Size())
		}
	}
	if err := s.d.AverageWeights(); err != nil {
		return 0, err
	}
	weights, err := s.weights()
	if err != nil {
		return 0, err
	}
	work, err := w.AllReduce(tensor.Of(sum), tensor.Of(sum), dist.Sum)
	if err == nil {
		err = work.Wait()
	}
	return sum[0], errors.Join(err, agreeOn(w, "weights", weights), s.close())
}

// TestTrainingConverges compares the losses of settings that change gradients with those of plain
// data parallelism, on the same samples.
func TestTrainingConverges(t *testing.T) {
	if !long.Enabled() {
		t.Skip(long.Reason)
	}
	const steps = 600
	adam := optim.Config{Name: optim.Adam, LearningRate: 3e-3}
	sgd := optim.Config{Name: optim.SGD, LearningRate: 0.2}
	scaled := adam
	scaled.SkipNonFinite = true
	for _, c := range []struct {
		name  string
		cfg   ddp.Config
		opt   optim.Config
		scale bool
		bound float64 // of the loss, as a multiple of that of the zero Config; skipped steps count
	}{
		{"bf16", ddp.Config{WireDType: tensor.BF16}, adam, false, 1.02},
		{"bf16 with error feedback", ddp.Config{WireDType: tensor.BF16, ErrorFeedback: true}, adam, false, 1.02},
		{"f16 with a loss scale", ddp.Config{WireDType: tensor.F16}, scaled, true, 1.1},
		{"powersgd", ddp.Config{Hook: compress.PowerSGD{Rank: 4}}, sgd, false, 1.1},
		{"powersgd of rank 1 with Adam", ddp.Config{Hook: compress.PowerSGD{Rank: 1}}, adam, false, 1.5},
		{"local sgd", ddp.Config{LocalSteps: 8}, sgd, false, 1.3}, // of weights between two averages
	} {
		t.Run(c.name, func(t *testing.T) {
			onRanks(t, 2, func(w *dist.World) error {
				plain := c.opt
				want, err := course(w, steps, ddp.Config{}, plain, nil)
				if err != nil {
					return err
				}
				var scaler *optim.LossScaler
				if c.scale {
					if scaler, err = optim.NewLossScaler(optim.LossScalerConfig{Scale: 1 << 30, Interval: 100}); err != nil {
						return err
					}
				}
				got, err := course(w, steps, c.cfg, c.opt, scaler)
				if err != nil {
					return err
				}
				first, err := course(w, 50, ddp.Config{}, plain, nil)
				if err != nil {
					return err
				}
				t.Logf("loss %.6f, plain %.6f, at first %.6f", got, want, first)
				if !(got <= c.bound*want) || !(got < first/3) {
					return fmt.Errorf("the loss is %g, want at most %g times that of plain training, %g, and less than a third of %g at first",
						got, c.bound, want, first)
				}
				if scaler != nil && (scaler.Scale() >= 1<<30 || scaler.Scale() <= 1) {
					return fmt.Errorf("the loss scale is %v: it did not settle", scaler.Scale())
				}
				return nil
			})
		})
	}
}

// TestStepsThatAreNotFiniteAreLeftOutByAllRanks has a NaN, and numbers too large for f16, on one
// rank only.
func TestStepsThatAreNotFiniteAreLeftOutByAllRanks(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   ddp.Config
		spoil float64 // factor of one sample of the last rank
	}{
		{"NaN", ddp.Config{}, math.NaN()},
		{"NaN in many buckets", ddp.Config{BucketMB: 1.0 / 1024}, math.NaN()},
		{"NaN by bf16", ddp.Config{WireDType: tensor.BF16, ErrorFeedback: true}, math.NaN()},
		{"overflow of f16", ddp.Config{WireDType: tensor.F16}, 1e7},
		{"overflow of f16 with error feedback", ddp.Config{WireDType: tensor.F16, ErrorFeedback: true}, 1e7},
		{"NaN by powersgd", ddp.Config{Hook: compress.PowerSGD{Rank: 1}}, math.NaN()},
		{"NaN of a virtual rank", ddp.Config{VirtualRanks: 12}, math.NaN()},
		{"NaN with Stage 1", ddp.Config{Stage: 1}, math.NaN()},
		{"overflow of f16 with Stage 1", ddp.Config{Stage: 1, WireDType: tensor.F16}, 1e7},
		{"overflow of f16 with Stage 2", ddp.Config{Stage: 2, WireDType: tensor.F16}, 1e7},
	} {
		t.Run(c.name, func(t *testing.T) {
			onWorlds(t, someRanks(), func(_ *testing.T, w *dist.World) error {
				adam := optim.Config{Name: optim.Adam, LearningRate: 0.01, SkipNonFinite: true}
				s, err := newStudent(w, 4, c.cfg, adam, nil)
				if err != nil {
					return err
				}
				for step := range 4 {
					before, err := s.weights()
					if err != nil {
						return err
					}
					x, y := lesson(step, w.Rank(), 4)
					if step == 2 && w.Rank() == w.Size()-1 {
						y.Data().([]float32)[5] *= float32(c.spoil)
					}
					for range max(c.cfg.VirtualRanks/w.Size(), 1) - 1 {
						if err := s.d.NoSync(func() error {
							s.vm.Reset()
							return errors.Join(G.Let(s.m.x, x), G.Let(s.m.y, y), s.vm.RunAll())
						}); err != nil {
							return err
						}
					}
					if _, err := s.study(x, y); err != nil {
						return err
					}
					after, err := s.weights()
					if err != nil {
						return err
					}
					if changed := relative(after, before) != 0; changed != (step != 2) {
						return fmt.Errorf("step %d: weights changed: %v", step, changed)
					}
					if err := agreeOn(w, "weights", after); err != nil {
						return fmt.Errorf("step %d: %w", step, err)
					}
				}
				if got := s.solver.Skipped(); got != 1 {
					return fmt.Errorf("%d steps were skipped, want 1", got)
				}
				return s.close()
			})
		})
	}
}
