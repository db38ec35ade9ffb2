package ddp_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// shardedRun is the weights after some steps of Adam with accumulation or without.
func shardedRun(w *dist.World, dt gtensor.Dtype, cfg ddp.Config, accumulate bool) ([]float64, error) {
	l, err := newLearner(w, wider, dt, 3, cfg, optim.Config{Name: optim.AdamW, LearningRate: 0.01, WeightDecay: 0.01, ClipNorm: 0.5})
	if err != nil {
		return nil, err
	}
	for step := range 5 {
		lo := 100*step + 10*w.Rank()
		if accumulate {
			if err := l.d.NoSync(func() error { return l.run(indices(lo+5, lo+8), 3) }); err != nil {
				return nil, err
			}
		}
		if err := l.run(indices(lo, lo+3), float64(1+w.Rank())); err != nil {
			return nil, err
		}
		if err := l.step(); err != nil {
			return nil, err
		}
	}
	end, err := l.weights()
	return end, errors.Join(err, l.close())
}

// TestWireIsTheSameForEveryStage has the bits of Stage 0 when gradients are sharded.
func TestWireIsTheSameForEveryStage(t *testing.T) {
	for _, cfg := range []ddp.Config{
		{WireDType: tensor.BF16},
		{WireDType: tensor.F16, ErrorFeedback: true},
		{Average: ddp.PreDivide},
		{Average: ddp.PreDivide, WireDType: tensor.BF16, BucketMB: 0.004},
		{Average: ddp.Sum},
	} {
		for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64} {
			for stage := range 3 {
				if stage == 0 {
					continue
				}
				t.Run(fmt.Sprintf("%v/%v/%v/stage %d", cfg.WireDType, cfg.Average, dt, stage), func(t *testing.T) {
					onWorlds(t, someRanks(), func(_ *testing.T, w *dist.World) error {
						plain, c := cfg, cfg
						c.Stage = stage
						want, err := shardedRun(w, dt, plain, false)
						if err != nil {
							return err
						}
						got, err := shardedRun(w, dt, c, false)
						if err == nil && !slices.Equal(got, want) {
							err = fmt.Errorf("weights are off by %g", relative(got, want))
						}
						return err
					})
				})
			}
		}
	}
}

// TestBitsDoNotDependOnChunks compares hooks and averages on two backends, of which one cuts
// everything into small pieces.
func TestBitsDoNotDependOnChunks(t *testing.T) {
	chunked := sharedMemory("shm in chunks", 192)
	for _, cfg := range []ddp.Config{
		{},
		{WireDType: tensor.BF16, ErrorFeedback: true},
		{WireDType: tensor.F16, Stage: 1},
		{Average: ddp.PreDivide},
		{Hook: compress.PowerSGD{Rank: 2}},
		{VirtualRanks: 3},
		{VirtualRanks: 3, Stage: 1, BucketMB: 0.004},
	} {
		t.Run(fmt.Sprintf("%v/%v/%v/%d/%d", cfg.WireDType, cfg.Average, cfg.Hook, cfg.VirtualRanks, cfg.Stage), func(t *testing.T) {
			var ends [2][]float64
			for i, h := range []host{hosts[0], chunked} {
				h.on(t, 3, func(w *dist.World) error {
					end, err := shardedRun(w, gtensor.Float32, cfg, false)
					if w.Rank() == 0 {
						ends[i] = end
					}
					return err
				})
			}
			if len(ends[0]) == 0 || !slices.Equal(ends[0], ends[1]) {
				t.Errorf("weights are off by %g", relative(ends[1], ends[0]))
			}
		})
	}
}

// TestAccumulationWithAWireAndStages checks sums that are rounded in another order with Stage 2,
// where each run is reduced.
func TestAccumulationWithAWireAndStages(t *testing.T) {
	for _, c := range []struct {
		cfg   ddp.Config
		bound float64
	}{
		{ddp.Config{Average: ddp.PreDivide}, 1e-5},
		{ddp.Config{Average: ddp.Sum}, 1e-5},
		{ddp.Config{WireDType: tensor.BF16}, 0.05}, // of Adam, which divides by gradients
		{ddp.Config{WireDType: tensor.F16, Average: ddp.PreDivide, Factor: 4}, 0.02},
	} {
		for stage := 1; stage <= 2; stage++ {
			t.Run(fmt.Sprintf("%v/%v/stage %d", c.cfg.WireDType, c.cfg.Average, stage), func(t *testing.T) {
				sizes := []int{2, 3}
				if invariants.Enabled {
					sizes = someRanks()
				}
				onWorlds(t, sizes, func(_ *testing.T, w *dist.World) error {
					cfg := c.cfg
					want, err := shardedRun(w, gtensor.Float64, cfg, true)
					if err != nil {
						return err
					}
					cfg.Stage = stage
					got, err := shardedRun(w, gtensor.Float64, cfg, true)
					if e := relative(got, want); err == nil && (stage == 1 && e != 0 || !(e <= c.bound)) {
						err = fmt.Errorf("weights are off by %g", e)
					}
					return err
				})
			})
		}
	}
}

func TestErrorFeedbackRefusesMicroBatchesThatAreReducedOneByOne(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		l, err := newLearner(w, wider, gtensor.Float32, 3, ddp.Config{WireDType: tensor.BF16, ErrorFeedback: true, Stage: 2}, optim.Config{})
		if err != nil {
			return err
		}
		err = l.d.NoSync(func() error { return l.run(indices(0, 3), 3) })
		if !errors.Is(ops.Cause(err), dist.ErrUnsupported) || !strings.Contains(err.Error(), "Stage 1") {
			return fmt.Errorf("the run is %w, want ErrUnsupported with a remedy", err)
		}
		return l.close()
	})
}

func TestConfigRefusesWhatExcludesEachOther(t *testing.T) {
	for _, c := range []struct {
		cfg  ddp.Config
		word string
	}{
		{ddp.Config{Stage: 4}, "Stage is 4"},
		{ddp.Config{Stage: -1}, "Stage is -1"},
		{ddp.Config{WireDType: tensor.F64}, "WireDType is f64"},
		{ddp.Config{WireDType: tensor.I8}, "WireDType is i8"},
		{ddp.Config{ErrorFeedback: true}, "ErrorFeedback"},
		{ddp.Config{ErrorFeedback: true, WireDType: tensor.F32}, "ErrorFeedback"},
		{ddp.Config{WireDType: tensor.BF16, Hook: compress.PowerSGD{}}, "exclude each other"},
		{ddp.Config{Hook: compress.Cast{DType: tensor.F32}}, "bf16 or f16"},
		{ddp.Config{Hook: compress.PowerSGD{}, Stage: 1}, "Stage 1"},
		{ddp.Config{Average: 9}, "average(9)"},
		{ddp.Config{Factor: 2}, "Factor is 2"},
		{ddp.Config{Factor: 2, Average: ddp.Sum}, "sum"},
		{ddp.Config{Factor: -2, Average: ddp.PreDivide}, "positive"},
		{ddp.Config{VirtualRanks: -1}, "VirtualRanks is -1"},
		{ddp.Config{VirtualRanks: 4, WireDType: tensor.BF16}, "bf16"},
		{ddp.Config{VirtualRanks: 4, Average: ddp.PreDivide}, "predivide"},
		{ddp.Config{VirtualRanks: 4, Stage: 2}, "Stage is 2"},
		{ddp.Config{LocalSteps: -1}, "LocalSteps is -1"},
		{ddp.Config{LocalSteps: 2, Stage: 1}, "Stage is 1"},
		{ddp.Config{LocalSteps: 2, WireDType: tensor.F16}, "LocalSteps"},
		{ddp.Config{LocalSteps: 2, VirtualRanks: 2}, "LocalSteps"},
		{ddp.Config{LocalSteps: 2, Average: ddp.Sum}, "LocalSteps"},
	} {
		err := c.cfg.Validate()
		if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%+v: %v, want ErrInvalid with %q", c.cfg, err, c.word)
		}
	}
	for _, cfg := range []ddp.Config{
		{Stage: 3},
		{Stage: 2, WireDType: tensor.BF16, ErrorFeedback: true, Average: ddp.PreDivide, Factor: 2},
		{Stage: 1, Hook: compress.Cast{DType: tensor.F16}},
		{Hook: compress.PowerSGD{Rank: 2}, Average: ddp.PreMulSum, Factor: -1},
		{VirtualRanks: 4, Average: ddp.Sum, Stage: 1},
		{LocalSteps: 2, WireDType: tensor.F32},
	} {
		if err := cfg.Validate(); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestAttachRefusesVirtualRanksThatRanksDoNotDivide(t *testing.T) {
	onRanks(t, 3, func(w *dist.World) error {
		m := mlp.make(gtensor.Float32, 3, 1)
		_, err := ddp.Attach(w, m.cost, m.params, ddp.Config{VirtualRanks: 4})
		if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "3 ranks do not divide") {
			return fmt.Errorf("Attach is %w", err)
		}
		return nil
	})
}

func TestAttachComparesTheSettingsOfTheWire(t *testing.T) {
	for _, c := range []struct {
		cfg  ddp.Config
		word string // "" where ranks may differ
	}{
		{ddp.Config{Average: ddp.PreMulSum, WireDType: tensor.F16}, "f16"},
		{ddp.Config{Average: ddp.PreMulSum, WireDType: tensor.BF16, ErrorFeedback: true}, "bf16 with error feedback"},
		{ddp.Config{Average: ddp.PreMulSum, Hook: compress.PowerSGD{Rank: 3}}, "powersgd rank 3 seed 0"},
		{ddp.Config{Average: ddp.Sum, WireDType: tensor.BF16}, "Average: sum"},
		{ddp.Config{Average: ddp.PreMulSum, WireDType: tensor.BF16, Stage: 1}, "Stage: 1"},
		{ddp.Config{LocalSteps: 3}, "none"},
		{ddp.Config{VirtualRanks: 2}, "none"},
		{ddp.Config{Average: ddp.PreMulSum, WireDType: tensor.BF16, Factor: 3}, ""},
		{ddp.Config{Average: ddp.PreMulSum, Hook: compress.Cast{DType: tensor.BF16}}, ""}, // another way to say it
	} {
		t.Run(fmt.Sprintf("%v/%v", c.word, c.cfg.Factor), func(t *testing.T) {
			onRanks(t, 2, func(w *dist.World) error {
				cfg := ddp.Config{Average: ddp.PreMulSum, WireDType: tensor.BF16}
				if w.Rank() == 1 {
					cfg = c.cfg
				}
				m := mlp.make(gtensor.Float32, 3, 1)
				d, err := ddp.Attach(w, m.cost, m.params, cfg)
				if c.word == "" {
					return errors.Join(err, d.Close())
				}
				if !errors.Is(err, ddp.ErrPlan) || !strings.Contains(err.Error(), c.word) {
					return fmt.Errorf("Attach is %w, want ErrPlan with %q", err, c.word)
				}
				return nil
			})
		})
	}
}

// TestAPeerThatIsGoneIsAnErrorOfTheStep has rank 1 leave in the second step, whatever is done to
// buckets.
func TestAPeerThatIsGoneIsAnErrorOfTheStep(t *testing.T) {
	for _, cfg := range []ddp.Config{
		{WireDType: tensor.BF16},
		{Average: ddp.PreDivide},
		{Hook: compress.PowerSGD{Rank: 1}},
		{VirtualRanks: 2},
		{WireDType: tensor.F16, Stage: 1},
	} {
		for _, h := range hosts {
			t.Run(fmt.Sprintf("%s/%v/%v/%v/%d", h.name, cfg.WireDType, cfg.Average, cfg.Hook, cfg.VirtualRanks), func(t *testing.T) {
				worlds, err := h.make(2)
				if err != nil {
					t.Fatal(err)
				}
				var ranks sync.WaitGroup
				for r, w := range worlds {
					ranks.Go(func() {
						defer w.Close()
						l, err := newLearner(w, wider, gtensor.Float32, 3, cfg, optim.Config{})
						if err == nil {
							err = l.run(indices(0, 3), 3)
						}
						if r == 1 && err == nil {
							_ = w.Abort(errors.New("rank 1 has had enough"))
						}
						if err == nil {
							err = l.run(indices(0, 3), 3)
						}
						if !errors.Is(ops.Cause(err), dist.ErrAborted) || !strings.Contains(err.Error(), "had enough") {
							t.Errorf("rank %d: the run is %v, want ErrAborted and why", r, err)
						}
						if err := l.close(); err != nil {
							t.Errorf("rank %d: close: %v", r, err)
						}
					})
				}
				ranks.Wait()
			})
		}
	}
}

// TestCloseAfterTheWorldIsClosed has nothing left to free.
func TestCloseAfterTheWorldIsClosed(t *testing.T) {
	for _, cfg := range []ddp.Config{{WireDType: tensor.BF16}, {VirtualRanks: 2}, {LocalSteps: 2}, {Average: ddp.Sum}} {
		onRanks(t, 2, func(w *dist.World) error {
			l, err := newLearner(w, mlp, gtensor.Float32, 3, cfg, optim.Config{})
			if err != nil {
				return err
			}
			if err := l.run(indices(0, 3), 3); err != nil {
				return err
			}
			if err := w.Close(); err != nil {
				return err
			}
			if err := l.run(indices(0, 3), 3); !errors.Is(ops.Cause(err), dist.ErrClosed) {
				return fmt.Errorf("the run is %w, want ErrClosed", err)
			}
			return l.close()
		})
	}
}
