package ddp_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// signs is a hook as a user writes one: it sends every element as -1, 0 or 1 in an i8, and the
// bucket's largest number in a second round. Unlike an elementwise hook it has two rounds, of two
// dtypes.
type signs struct{ fail int } // Compress fails in this round on rank 1; 0 is never

func (s signs) String() string    { return "signs" }
func (s signs) Elementwise() bool { return false }
func (s signs) Codec(b compress.Bucket) (compress.Codec, error) {
	return &signCodec{s, b, make([]int8, b.Elements)}, nil
}

type signCodec struct {
	signs
	b    compress.Bucket
	sign []int8
}

var errSigns = errors.New("no signs today")

func (c *signCodec) Messages() []compress.Message {
	return []compress.Message{{DType: tensor.I8, Elements: c.b.Elements}, {DType: tensor.F32, Elements: 1}}
}

func (c *signCodec) Compress(round int, share float64, bucket tensor.Buffer, messages []tensor.Buffer) error {
	if c.fail == round+1 && c.b.Rank == 1 {
		return errSigns
	}
	grad, err := tensor.Data[float32](bucket)
	if err != nil {
		return err
	}
	if round == 1 {
		sum, err := tensor.Data[float32](messages[1])
		if err != nil {
			return err
		}
		sum[0] = 0
		for _, x := range grad {
			sum[0] = max(sum[0], float32(share*math.Abs(float64(x))))
		}
		return nil
	}
	to, err := tensor.Data[int8](messages[0])
	if err != nil {
		return err
	}
	for i, x := range grad {
		to[i] = 0
		if x > 0 {
			to[i] = 1
		} else if x < 0 {
			to[i] = -1
		}
	}
	return nil
}

func (c *signCodec) Decompress(bucket tensor.Buffer, messages []tensor.Buffer) error {
	grad, err := tensor.Data[float32](bucket)
	if err != nil {
		return err
	}
	sum, err := tensor.Data[int8](messages[0])
	if err != nil {
		return err
	}
	size, err := tensor.Data[float32](messages[1])
	if err != nil {
		return err
	}
	for i, s := range sum {
		grad[i] = float32(s) * size[0]
	}
	return nil
}

func TestAHookOfTheUsersOwn(t *testing.T) {
	all := ownGradients(t, mlp, gtensor.Float32, uneven(4))
	onWorlds(t, someRanks(), func(_ *testing.T, w *dist.World) error {
		n := w.Size()
		part := uneven(n)[w.Rank()]
		l, err := newLearner(w, mlp, gtensor.Float32, len(part), ddp.Config{Hook: signs{}}, optim.Config{})
		if err != nil {
			return err
		}
		if err := l.run(part, float64(len(part))); err != nil {
			return err
		}
		got, err := gradients(l.d.Model())
		if err != nil {
			return err
		}
		var size float32
		for r, g := range all[:n] {
			largest := 0.0
			for _, x := range g {
				largest = max(largest, float64(float32(r+1)/float32(n*(n+1)/2))*math.Abs(x))
			}
			size += float32(largest)
		}
		for i, x := range got {
			count := 0
			for _, g := range all[:n] {
				if g[i] > 0 {
					count++
				} else if g[i] < 0 {
					count--
				}
			}
			if want := float64(float32(count) * size); math.Abs(x-want) > 1e-6*float64(size) {
				return fmt.Errorf("element %d is %v, want %v", i, x, want)
			}
		}
		elements := int64(l.d.Plan().Buckets[0].Elements)
		if got := l.d.WireBytes(); got != elements+4 {
			return fmt.Errorf("WireBytes is %d, want %d", got, elements+4)
		}
		if err := l.d.SetHookState([]compress.State{{Param: "w0"}}); !errors.Is(err, dist.ErrUnsupported) || l.d.HookState() != nil {
			return fmt.Errorf("state of a hook without state: %v, %w", l.d.HookState(), err)
		}
		return l.close()
	})
}

// TestAHookThatFailsIsAnErrorThere lets the other ranks have their sums, and none that could be
// taken for a gradient.
func TestAHookThatFailsIsAnErrorThere(t *testing.T) {
	for _, round := range []int{1, 2} {
		onWorlds(t, []int{2}, func(_ *testing.T, w *dist.World) error {
			l, err := newLearner(w, mlp, gtensor.Float32, 3, ddp.Config{Hook: signs{fail: round}}, optim.Config{})
			if err != nil {
				return err
			}
			err = l.run(indices(0, 3), 3)
			switch {
			case w.Rank() == 0 && err != nil:
				return err
			case w.Rank() == 1 && (!errors.Is(ops.Cause(err), errSigns) || !strings.Contains(err.Error(), "bucket 0")):
				return fmt.Errorf("the run is %w, want the hook's error and the bucket", err)
			}
			g, err := gradients(l.d.Model())
			if w.Rank() == 0 && (err != nil || slices.ContainsFunc(g, func(x float64) bool { return !math.IsNaN(x) })) {
				return fmt.Errorf("the gradient without the part of rank 1 is %v (%v), want NaN", g, err)
			}
			return l.close()
		})
	}
}

func TestAttachRefusesHooksThatSayNonsense(t *testing.T) {
	for r, err := range runRanks(t, 2, sim.Config{}, func(w *dist.World) error {
		m := mlp.make(gtensor.Float32, 3, 1)
		_, err := ddp.Attach(w, m.cost, m.params, ddp.Config{Hook: tooMuch{}})
		if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "too much") {
			return fmt.Errorf("Attach is %w", err)
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// tooMuch says that it is elementwise, and sends more than its bucket has.
type tooMuch struct{}

func (tooMuch) String() string                                { return "too much" }
func (tooMuch) Elementwise() bool                             { return true }
func (tooMuch) Codec(compress.Bucket) (compress.Codec, error) { return longCodec{}, nil }

type longCodec struct{ compress.Codec }

func (longCodec) Messages() []compress.Message {
	return []compress.Message{{DType: tensor.F32, Elements: 1 << 20}}
}

// TestHookStateGoesOnWhereItWas trains in one go, and with a stop at which everything is thrown
// away but weights and state.
func TestHookStateGoesOnWhereItWas(t *testing.T) {
	for _, cfg := range []ddp.Config{
		{WireDType: tensor.BF16, ErrorFeedback: true},
		{WireDType: tensor.F16, ErrorFeedback: true, BucketMB: 1.0 / 1024},
		{Hook: compress.PowerSGD{Rank: 1}},
		{Hook: compress.PowerSGD{Rank: 1, NoWarmStart: true}},
		{Hook: compress.PowerSGD{Rank: 1, NoErrorFeedback: true}, BucketMB: 1.0 / 1024},
	} {
		for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64} {
			t.Run(fmt.Sprintf("%v/%v/%v", cfg.WireDType, cfg.Hook, dt), func(t *testing.T) {
				onWorlds(t, []int{1, 2}, func(_ *testing.T, w *dist.World) error {
					want, err := stopAndGo(w, dt, cfg, -1)
					if err != nil {
						return err
					}
					got, err := stopAndGo(w, dt, cfg, 4)
					if err != nil {
						return err
					}
					if !slices.Equal(got, want) {
						return fmt.Errorf("weights are off by %g after a stop", relative(got, want))
					}
					return nil
				})
			})
		}
	}
}

// stopAndGo is the weights after 8 steps, with a new model and all from the given one on.
func stopAndGo(w *dist.World, dt gtensor.Dtype, cfg ddp.Config, stop int) ([]float64, error) {
	sgd := optim.Config{Name: optim.SGD, LearningRate: 0.1}
	l, err := newLearner(w, wider, dt, 3, cfg, sgd)
	if err != nil {
		return nil, err
	}
	for step := range 8 {
		if step == stop {
			next, err := newLearner(w, wider, dt, 3, cfg, sgd)
			if err != nil {
				return nil, err
			}
			for i, p := range l.m.params {
				if err := copyValue(next.m.params[i], p); err != nil {
					return nil, err
				}
			}
			if err := errors.Join(next.d.SetHookState(l.d.HookState()), l.close()); err != nil {
				return nil, err
			}
			l = next
		}
		lo := 10*step + 3*w.Rank()
		if err := l.run(indices(lo, lo+3), 3); err != nil {
			return nil, err
		}
		if err := l.step(); err != nil {
			return nil, err
		}
	}
	all, err := l.weights()
	return all, errors.Join(err, l.close())
}

// TestScaleHookStateFollowsTheLoss has gradients of another scale from the fourth step on: with
// residuals scaled as well, the rest of the training is the same: all factors are powers of 2.
func TestScaleHookStateFollowsTheLoss(t *testing.T) {
	for _, cfg := range []ddp.Config{{WireDType: tensor.BF16, ErrorFeedback: true}, {Hook: compress.PowerSGD{Rank: 1}}} {
		onRanks(t, 2, func(w *dist.World) error {
			ends := make([][]float64, 2)
			for i, scale := range []float64{1, 1.0 / 16} {
				s, err := newStudent(w, 4, cfg, optim.Config{Name: optim.SGD, LearningRate: 0.1}, nil)
				if err != nil {
					return err
				}
				if s.scaler, err = optim.NewLossScaler(optim.LossScalerConfig{Scale: 1, Static: true}); err != nil {
					return err
				}
				for step := range 6 {
					if step == 3 {
						if s.scaler, err = optim.NewLossScaler(optim.LossScalerConfig{Scale: scale, Static: true}); err != nil {
							return err
						}
						if err := s.d.ScaleHookState(scale); err != nil {
							return err
						}
					}
					x, y := lesson(step, w.Rank(), 4)
					if _, err := s.study(x, y); err != nil {
						return err
					}
				}
				if ends[i], err = s.weights(); err != nil {
					return err
				}
				for _, by := range []float64{0, -1, math.NaN(), math.Inf(1)} {
					if err := s.d.ScaleHookState(by); !errors.Is(err, dist.ErrInvalid) {
						return fmt.Errorf("a factor of %v: %w", by, err)
					}
				}
				if err := s.close(); err != nil {
					return err
				}
			}
			if !slices.Equal(ends[0], ends[1]) {
				return fmt.Errorf("weights are off by %g", relative(ends[1], ends[0]))
			}
			return nil
		})
	}
}

// TestAScaleThatStaysTakesNothing has the scale of the loss as it was, which a training says in
// every step.
func TestAScaleThatStaysTakesNothing(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		l, err := newLearner(w, wider, gtensor.Float32, 3, ddp.Config{WireDType: tensor.BF16, ErrorFeedback: true}, optim.Config{})
		if err != nil {
			return err
		}
		err = errors.New("not called")
		if n := testing.AllocsPerRun(10, func() { err = l.d.ScaleHookState(1) }); n > 0 || err != nil {
			return fmt.Errorf("%v allocations: %w", n, err)
		}
		return l.close()
	})
}

func TestSetHookStateRefuses(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		for _, cfg := range []ddp.Config{{WireDType: tensor.BF16, ErrorFeedback: true}, {Hook: compress.PowerSGD{Rank: 1}}} {
			l, err := newLearner(w, wider, gtensor.Float32, 3, cfg, optim.Config{})
			if err != nil {
				return err
			}
			before := fmt.Sprint(l.d.HookState())
			for _, c := range []struct {
				s    compress.State
				want error
			}{
				{compress.State{Param: "nobody", Slot: "residual", Data: tensor.Of([]float32{1})}, dist.ErrInvalid},
				{compress.State{Param: "w0", Slot: "residual", Data: tensor.Of([]float32{1})}, dist.ErrCount},
				{compress.State{Param: "w0", Slot: "residual", Data: tensor.Of(make([]float64, 24*40))}, dist.ErrDType},
			} {
				if err := l.d.SetHookState([]compress.State{c.s}); !errors.Is(err, c.want) {
					return fmt.Errorf("state of %q: %w, want %w", c.s.Param, err, c.want)
				}
				if after := fmt.Sprint(l.d.HookState()); after != before {
					return fmt.Errorf("a refused state was kept")
				}
			}
			if err := l.close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestHookStateOfAnotherShapeIsRefused has as many elements as the parameter.
func TestHookStateOfAnotherShapeIsRefused(t *testing.T) {
	for _, cfg := range []ddp.Config{{WireDType: tensor.BF16, ErrorFeedback: true}, {Hook: compress.PowerSGD{Rank: 1}}} {
		onRanks(t, 1, func(w *dist.World) error {
			l, err := newLearner(w, wider, gtensor.Float32, 3, cfg, optim.Config{})
			if err != nil {
				return err
			}
			state := l.d.HookState()
			if err := l.d.SetHookState(state); err != nil {
				return err
			}
			i := slices.IndexFunc(state, func(s compress.State) bool { return s.Sum && len(s.Shape) == 2 && s.Shape[0] != s.Shape[1] })
			slices.Reverse(state[i].Shape)
			if err := l.d.SetHookState(state); !errors.Is(err, dist.ErrCount) {
				return fmt.Errorf("state of shape %v is %w, want ErrCount", state[i].Shape, err)
			}
			return l.close()
		})
	}
}
