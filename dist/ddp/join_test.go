package ddp_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/ops"
)

const joinRate = 0.1

// epoch is the batches of each rank: the numbers of their samples.
type epoch [][][]int

// epochOf gives rank r the given number of batches of rows samples.
func epochOf(rows int, batches ...int) epoch {
	e := make(epoch, len(batches))
	next := 0
	for r, n := range batches {
		for range n {
			e[r] = append(e[r], indices(next, next+rows))
			next += rows
		}
	}
	return e
}

// at is batch i of a rank; nil when it has none.
func (e epoch) at(rank, i int) []int {
	if i < len(e[rank]) {
		return e[rank][i]
	}
	return nil
}

// steps is the samples of all ranks in each step of so many batches.
func (e epoch) steps(batches int) [][]int {
	var all [][]int
	for i := 0; ; i += batches {
		var step []int
		for rank := range e {
			for k := range batches {
				step = append(step, e.at(rank, i+k)...)
			}
		}
		if step == nil {
			return all
		}
		all = append(all, step)
	}
}

// alone is the weights after training on one rank with all samples of each step.
func alone(steps [][]int) ([]float64, error) {
	var current []float64
	for _, samples := range steps {
		m := mlp.make(gtensor.Float64, len(samples), 1)
		at := 0
		for _, p := range m.params {
			at += copy(p.Value().Data().([]float64), current[min(at, len(current)):])
		}
		if _, err := G.Grad(m.cost, m.params...); err != nil {
			return nil, err
		}
		vm := G.NewTapeMachine(m.cost.Graph())
		err := errors.Join(m.let(mlp, samples), vm.RunAll())
		if err == nil {
			err = G.NewVanillaSolver(G.WithLearnRate(joinRate)).Step(G.NodesToValueGrads(m.params))
		}
		if err = errors.Join(err, vm.Close()); err != nil {
			return nil, err
		}
		if current, err = weights(m.params); err != nil {
			return nil, err
		}
	}
	return current, nil
}

// joined is a rank that trains on its batches of an epoch until no rank has any.
type joined struct {
	m    *model
	d    *ddp.DDP
	join *ddp.Join
	vm   G.VM
	rows int
}

func newJoined(w *dist.World, rows int) (*joined, error) {
	k := &joined{m: mlp.make(gtensor.Float64, rows, 1), rows: rows}
	var err error
	if k.d, err = ddp.Attach(w, k.m.cost, k.m.params, ddp.Config{}); err != nil {
		return nil, err
	}
	if k.join, err = ddp.NewJoin(k.d); err != nil {
		return nil, err
	}
	k.vm = G.NewTapeMachine(k.m.cost.Graph())
	return k, nil
}

func (k *joined) close() error { return errors.Join(k.vm.Close(), k.join.Close(), k.d.Close()) }

// run runs the graph on samples, or, without any, on NaN.
func (k *joined) run(samples []int) error {
	defer k.vm.Reset()
	if err := k.m.let(mlp, indices(0, k.rows)); err != nil {
		return err
	}
	if len(samples) > 0 {
		return errors.Join(k.m.let(mlp, samples), k.vm.RunAll())
	}
	x := k.m.x.Value().Data().([]float64)
	for i := range x {
		x[i] = math.NaN()
	}
	return k.vm.RunAll()
}

func (k *joined) solve() error {
	return G.NewVanillaSolver(G.WithLearnRate(joinRate)).Step(k.d.Model())
}

// TestRanksWithFewerBatchesJoinTheOthers trains epochs in which ranks have different numbers of
// batches, one of them none.
func TestRanksWithFewerBatchesJoinTheOthers(t *testing.T) {
	for _, batches := range [][]int{{3}, {4, 1}, {0, 3, 2}, {1, 0, 4, 2}} {
		e := epochOf(3, batches...)
		want, err := alone(slices.Concat(e.steps(1), e.steps(1)))
		if err != nil {
			t.Fatal(err)
		}
		onRanks(t, len(batches), func(w *dist.World) error {
			k, err := newJoined(w, 3)
			if err != nil {
				return err
			}
			for range 2 {
				steps := 0
				for ; ; steps++ {
					mine := e.at(w.Rank(), steps)
					more, err := k.join.Next(float64(len(mine)))
					if err != nil {
						return err
					}
					if !more {
						break
					}
					if got := k.join.Samples(); got != float64(len(e.steps(1)[steps])) {
						return fmt.Errorf("step %d has %v samples, want %d", steps, got, len(e.steps(1)[steps]))
					}
					if err := errors.Join(k.run(mine), k.solve()); err != nil {
						return err
					}
				}
				if steps != slices.Max(batches) || k.d.Weight() != 0 {
					return fmt.Errorf("%d steps, then a weight of %v; want %d and 0", steps, k.d.Weight(), slices.Max(batches))
				}
			}
			got, err := weights(k.m.params)
			if err != nil {
				return err
			}
			return errors.Join(near("weights", got, want), k.close())
		})
	}
}

// near compares elements.
func near(what string, got, want []float64) error {
	for i := range want {
		if len(got) != len(want) || !(math.Abs(got[i]-want[i]) <= 1e-12) {
			return fmt.Errorf("%s[%d]: %v, want %v", what, i, got, want)
		}
	}
	return nil
}

// TestRanksJoinInAccumulation has steps of up to two batches on each rank, with a Next for each
// step, and for each run.
func TestRanksJoinInAccumulation(t *testing.T) {
	e := epochOf(2, 5, 2, 0)
	want, err := alone(e.steps(2))
	if err != nil {
		t.Fatal(err)
	}
	for name, train := range map[string]func(k *joined, rank int) error{
		"a step": func(k *joined, rank int) error { return k.bySteps(e, rank) },
		"a run":  func(k *joined, rank int) error { return k.byRuns(e, rank) },
	} {
		t.Run(name, func(t *testing.T) {
			onRanks(t, len(e), func(w *dist.World) error {
				k, err := newJoined(w, 2)
				if err != nil {
					return err
				}
				if err := train(k, w.Rank()); err != nil {
					return err
				}
				got, err := weights(k.m.params)
				if err != nil {
					return err
				}
				return errors.Join(near("weights", got, want), k.close())
			})
		})
	}
}

// bySteps calls Next once for a step. A rank with one batch left runs it alone.
func (k *joined) bySteps(e epoch, rank int) error {
	for i := 0; ; i += 2 {
		first, second := e.at(rank, i), e.at(rank, i+1)
		more, err := k.join.Next(float64(len(first) + len(second)))
		if err != nil || !more {
			return err
		}
		if second != nil {
			if err := k.d.SetWeight(float64(len(first))); err != nil {
				return err
			}
			if err := k.d.NoSync(func() error { return k.run(first) }); err != nil {
				return err
			}
			first = second
		}
		if err := errors.Join(k.d.SetWeight(float64(len(first))), k.run(first), k.solve()); err != nil {
			return err
		}
	}
}

// byRuns calls Next before each run, of which all ranks make as many, as the comment of Join says.
func (k *joined) byRuns(e epoch, rank int) error {
	next := 0
	load := func() ([]int, float64) {
		mine := e.at(rank, next)
		next++
		return mine, float64(len(mine))
	}
	for {
		more, runs := true, 0
		var mine []int
		err := k.d.NoSync(func() (err error) {
			for ; runs < 1 && more; runs++ {
				var n float64
				mine, n = load()
				if more, err = k.join.Next(n); err != nil || !more {
					return err
				}
				if err = k.run(mine); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil && more {
			var n float64
			mine, n = load()
			more, err = k.join.Next(n)
		}
		if err != nil {
			return err
		}
		if !more && runs == 0 {
			return nil
		}
		if err := errors.Join(k.run(mine), k.solve()); err != nil {
			return err
		}
	}
}

// TestJoinRefusesWhatIsNoNumberOfSamples wants an error before anything is sent.
func TestJoinRefusesWhatIsNoNumberOfSamples(t *testing.T) {
	if _, err := ddp.NewJoin(nil); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("no DDP: %v", err)
	}
	onRanks(t, 1, func(w *dist.World) error {
		k, err := newJoined(w, 2)
		if err != nil {
			return err
		}
		for _, n := range []float64{-1, math.NaN(), math.Inf(1)} {
			if _, err := k.join.Next(n); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "ddp join rank 0/1") {
				return fmt.Errorf("%v samples: %w", n, err)
			}
		}
		if more, err := k.join.Next(2); err != nil || !more {
			return fmt.Errorf("2 samples: %v, %w", more, err)
		}
		if err := k.close(); err != nil {
			return err
		}
		if _, err := k.join.Next(2); !errors.Is(err, dist.ErrClosed) {
			return fmt.Errorf("closed: %w", err)
		}
		return k.join.Close()
	})
}

// TestJoinOfLargeNumbersIsAnError wants it on all ranks.
func TestJoinOfLargeNumbersIsAnError(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		k, err := newJoined(w, 2)
		if err != nil {
			return err
		}
		if _, err := k.join.Next(math.MaxFloat64); !errors.Is(err, dist.ErrInvalid) {
			return fmt.Errorf("the sum overflows: %w", err)
		}
		return k.close()
	})
}

// TestJoinTellsOfADeadPeer has a rank that dies instead of calling Next.
func TestJoinTellsOfADeadPeer(t *testing.T) {
	errs := runRanks(t, 3, sim.Config{}, func(w *dist.World) error {
		k, err := newJoined(w, 2)
		if err != nil {
			return err
		}
		defer k.close()
		if w.Rank() == 1 {
			return errors.New("no more")
		}
		_, err = k.join.Next(1)
		return err
	})
	for _, r := range []int{0, 2} {
		if !errors.Is(errs[r], dist.ErrAborted) || !strings.Contains(errs[r].Error(), "ddp join rank") {
			t.Errorf("rank %d: %v", r, errs[r])
		}
	}
}

// TestStepsIsTheLargestNumberOfBatches tells all ranks.
func TestStepsIsTheLargestNumberOfBatches(t *testing.T) {
	if _, err := ddp.Steps(nil, 1); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("no world: %v", err)
	}
	onRanks(t, 3, func(w *dist.World) error {
		if _, err := ddp.Steps(w, -1); !errors.Is(err, dist.ErrInvalid) {
			return fmt.Errorf("-1 batches: %w", err)
		}
		for _, batches := range [][]int{{2, 7, 0}, {0, 0, 0}, {1 << 40, 3, 1}} {
			got, err := ddp.Steps(w, batches[w.Rank()])
			if err != nil || got != slices.Max(batches) {
				return fmt.Errorf("batches %v: %d steps, %w", batches, got, err)
			}
		}
		return nil
	})
}

// TestAllRanksWithoutDataEndWithoutJoin looks at the other end of a loop, which costs a run: the
// sum of weights is 0.
func TestAllRanksWithoutDataEndWithoutJoin(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		k, err := newJoined(w, 2)
		if err != nil {
			return err
		}
		if err := k.d.SetWeight(0); err != nil {
			return err
		}
		if err := k.run(nil); !errors.Is(ops.Cause(err), ddp.ErrNoWeight) {
			return fmt.Errorf("the run ended with %w", err)
		}
		return k.close()
	})
}

// The exchange of Steps has that name, in errors and in the recorder.
func TestStepsIsCalledSteps(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		if _, err := ddp.Steps(w, 1); err != nil {
			return err
		}
		if all := w.Recorder().Records(); len(all) != 1 || all[0].Name != "ddp steps" {
			return fmt.Errorf("records %+v, want one named ddp steps", all)
		}
		return nil
	})
}
