package lower

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/internal/long"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// someRanks returns the world sizes of tests by steps: 1 and 3 in short tests, 3 with the race
// detector.
func someRanks() []int {
	if invariants.Enabled {
		return []int{3}
	}
	if long.Enabled() {
		return []int{1, 2, 3}
	}
	return []int{1, 3}
}

// TestStagesBySteps trains some steps with the device programs, with buckets of weights on the
// ranks' host. Weights must equal those of Stage 0 and of the tape machine on all ranks, and states
// must have the length of the pieces.
func TestStagesBySteps(t *testing.T) {
	groups := []optim.Group{{Names: []string{"w1"}, RateScale: 0.5}, {MaxDims: 1, NoWeightDecay: true}}
	steps := long.Times(8, 20)
	if invariants.Enabled { // the race detector needs few
		steps = 4
	}
	whole := parts{steps: steps, weights: func(rank, _ int) []float64 { return []float64{1 + float64(rank)} }}
	idle := fewKilobytes
	idle.Idle = true
	for name, c := range map[string]struct {
		parts
		rule optim.Config
		ddp  ddp.Config
		cfg  Options
	}{
		"sgd":       {whole, optim.Config{Name: optim.SGD, LearningRate: 0.1}, ddp.Config{}, Options{}},
		"momentum":  {whole, optim.Config{Name: optim.Momentum, LearningRate: 0.05, Dampening: 0.3}, ddp.Config{NoOverlap: true}, Options{}},
		"adam":      {whole, optim.Config{Name: optim.Adam, LearningRate: 0.01}, fewKilobytes, Options{}},
		"clip":      {whole, optim.Config{Name: optim.Adam, LearningRate: 0.01, ClipNorm: 0.2}, fewKilobytes, Options{}},
		"adamw":     {whole, optim.Config{Name: optim.AdamW, LearningRate: 0.01, WeightDecay: 0.1, Groups: groups, EMADecay: 0.9}, ddp.Config{}, Options{}},
		"lamb":      {whole, optim.Config{Name: optim.LAMB, LearningRate: 0.01, WeightDecay: 0.01, SkipNonFinite: true}, fewKilobytes, Options{}},
		"plain":     {whole, optim.Config{Name: optim.AdamW, LearningRate: 0.01, WeightDecay: 0.1, ClipValue: 0.01}, fewKilobytes, Options{NoOptimize: true}},
		"lamb, too": {whole, optim.Config{Name: optim.LAMB, LearningRate: 0.01, WeightDecay: 0.01}, ddp.Config{}, Options{NoOptimize: true}},
		"again":     {whole, optim.Config{Name: optim.Adam, LearningRate: 0.01}, fewKilobytes, Options{Recompute: program.RecomputeMost}},
		"parts": {parts{steps: 6, weights: func(rank, step int) []float64 {
			return []float64{2, 1 + float64(rank), 3}[:1+step%3]
		}}, optim.Config{Name: optim.Adam, LearningRate: 0.01}, fewKilobytes, Options{}},
		"idle parts": {parts{steps: 6, idle: true, weights: func(rank, step int) []float64 {
			all := []float64{2, 1, 3}
			all[(rank+step)%3] = 0
			return all
		}}, optim.Config{Name: optim.SGD, LearningRate: 0.1}, idle, Options{}},
	} {
		for _, ranks := range someRanks() {
			t.Run(fmt.Sprintf("%s/%d ranks", name, ranks), func(t *testing.T) {
				host, _ := c.onHost(t, ranks, c.ddp, c.rule)
				want := c.bySteps(t, ranks, c.ddp, c.cfg, c.rule)
				for _, sharded := range stagesOf(c.ddp) {
					stage := sharded.Stage
					got := c.bySteps(t, ranks, sharded, c.cfg, c.rule)
					for rank, n := range got {
						if off := worst(n.values(), want[rank].values()); !(off <= 1e-6) {
							t.Errorf("stage %d, late %v, rank %d: weights are off by %g from Stage 0", stage, sharded.OverlapGather, rank, off)
						}
						if off := worst(n.values(), host[rank]); !(off <= 1e-5) {
							t.Errorf("stage %d, late %v, rank %d: weights are off by %g from the host's", stage, sharded.OverlapGather, rank, off)
						}
					}
					statesAreShared(t, got, want)
				}
			})
		}
	}
}

// stagesOf returns c with each stage.
func stagesOf(c ddp.Config) []ddp.Config {
	var all []ddp.Config
	for stage := 1; stage <= 3; stage++ {
		c.Stage, c.OverlapGather = stage, false
		if all = append(all, c); stage < 3 {
			c.OverlapGather = true
			all = append(all, c)
		}
	}
	return all
}

// statesAreShared compares the states of all ranks with those of a rank that has all.
func statesAreShared(t *testing.T, got, want []*lane) {
	t.Helper()
	slots := len(want[0].solve.Config.Slots())
	for i := range want[0].solve.Nodes {
		for k := range slots {
			var all, whole []float32
			total := 0
			for _, n := range got {
				piece := n.solve.Pieces[i]
				if piece.Len == 0 {
					continue
				}
				if piece.Offset != total {
					t.Fatalf("parameter %d: a piece from %d on, want %d", i, piece.Offset, total)
				}
				total += piece.Len
				all = append(all, floats(t, n.solve.States[i][k].Raw())...)
			}
			whole = floats(t, want[0].solve.States[i][k].Raw())
			if off := worst([][]float32{all}, [][]float32{whole}); !(off <= 1e-6) {
				t.Errorf("parameter %d, state %d: %d elements on all ranks, want %d, off by %g", i, k, len(all), len(whole), off)
			}
		}
	}
	for rank, n := range got {
		sum, most := 0, 0
		for _, s := range n.solve.States {
			for _, b := range s {
				sum += b.Len()
			}
		}
		for _, b := range n.d.Plan().Buckets {
			most += b.Shard * slots
		}
		if sum > most {
			t.Errorf("rank %d: states of %d elements, want at most %d", rank, sum, most)
		}
	}
}

func floats(t *testing.T, raw []byte) []float32 {
	t.Helper()
	v := make([]float32, len(raw)/4)
	for i := range v {
		v[i] = float32(program.Element(tensor.F32, raw, i))
	}
	return v
}

// TestStagesArePrograms compares the steps with golden files. Each bucket's gradients are summed
// when ready, a part is updated, and the parts are gathered. With Stage 2 buckets share memory.
// With Stage 3 weights are gathered before use instead of after the update. With OverlapGather the
// next run begins with all gatherings.
func TestStagesArePrograms(t *testing.T) {
	for stage := 1; stage <= 3; stage++ {
		isProgram(t, stage, false)
	}
	isProgram(t, 1, true)
}

func isProgram(t *testing.T, stage int, late bool) {
	t.Helper()
	cfg := fewKilobytes
	cfg.Stage, cfg.OverlapGather = stage, late
	name := fmt.Sprintf("stage %d", stage)
	c := parts{steps: 1, weights: func(int, int) []float64 { return []float64{1} }}
	n := c.bySteps(t, 2, cfg, Options{Name: name}, optim.Config{Name: optim.Adam, LearningRate: 0.01})[0]
	got := n.loaded[WholeBatch].Program.String() + "\n"
	golden := fmt.Sprintf("testdata/stage%d.golden", stage)
	if late {
		golden = fmt.Sprintf("testdata/stage%d-late.golden", stage)
	}
	if f := flag.Lookup("rewrite"); f != nil && f.Value.String() == "true" {
		if err := os.WriteFile(golden, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the program is\n%s\nwant\n%s", got, want)
	}
}

func isKind(s program.Step, k dist.Kind) bool {
	o, ok := s.Op.(*program.Collective)
	return ok && o.Kind == k
}

// TestRanksWithOtherBatchesGatherAlike compares the collectives of ranks that have one sample and
// many.
func TestRanksWithOtherBatchesGatherAlike(t *testing.T) {
	small := ddp.Config{Stage: 1, BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024}
	in2, in3 := small, small
	in2.Stage, in3.Stage = 2, 3
	for _, c := range []ddp.Config{{Stage: 1}, small, {Stage: 2}, in2, {Stage: 3}, in3} {
		var orders [3][]string
		inWorld(t, len(orders), func(w *dist.World) error {
			r, err := newRankGraph([]int{1, 5, 2}[w.Rank()], 0)
			if err != nil {
				return err
			}
			if r.d, err = ddp.Attach(w, r.cost, r.params, c); err != nil {
				return err
			}
			n, err := newLane(r, Options{}, &optim.Config{Name: optim.Adam})
			if err != nil {
				return err
			}
			p, err := n.load(WholeBatch)
			if err != nil {
				return err
			}
			for _, s := range p.Program.Steps {
				if _, ok := s.Op.(*program.Collective); ok {
					orders[w.Rank()] = append(orders[w.Rank()], s.Name)
				}
			}
			return nil
		})
		for rank := 1; rank < len(orders); rank++ {
			if !slices.Equal(orders[rank], orders[0]) {
				t.Errorf("rank %d has %q, rank 0 %q", rank, orders[rank], orders[0])
			}
		}
	}
}

// TestShardedGradientsHaveNoDualValues checks a rejected setting.
func TestShardedGradientsHaveNoDualValues(t *testing.T) {
	inWorld(t, 2, func(w *dist.World) error {
		r, err := newRankGraph(2, 0)
		if err != nil {
			return err
		}
		if r.d, err = ddp.Attach(w, r.cost, r.params, ddp.Config{Stage: 1}); err != nil {
			return err
		}
		if _, err := Graph(Collect(r.g, nil), Options{DualValues: true, DDP: r.d}); !errors.Is(err, dist.ErrUnsupported) {
			return fmt.Errorf("with DualValues: %w", err)
		}
		return nil
	})
}
