package machine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// gpuWorlds starts ranks as processes with a GPU each.
func gpuWorlds(cfg backend.Config) conformance.Launch {
	return conformance.Processes(func(ctx context.Context, opt conformance.LaunchOptions) (*dist.World, error) {
		cfg.Device, cfg.StepTimeout, cfg.InitTimeout = backend.CUDADevice, opt.StepTimeout, time.Minute
		return backend.Open(ctx, cfg)
	})
}

// gpuCount skips a test without n GPUs; cudatest.Missing handles less than two. It makes no
// context, as each rank makes its own.
func gpuCount(t *testing.T, n int) {
	t.Helper()
	have := cudatest.Driver(t).Count()
	if have < 2 {
		cudatest.Missing(t, "needs 2 GPUs, there are %d", have)
	}
	if have < n {
		t.Skipf("needs %d GPUs, there are %d; the same test with 2 is what has to run", n, have)
	}
}

// onGPUs runs cases on worlds of 2 and of 4 GPUs, one after the other in one world, as opening a
// world takes longer than a case.
func onGPUs(t *testing.T, cases map[string]func(w *dist.World) error) {
	t.Helper()
	for _, n := range []int{2, 4} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			gpuCount(t, n)
			gpuWorlds(backend.Config{})(t, n, conformance.LaunchOptions{StepTimeout: 20 * time.Second}, func(w *dist.World) error {
				for _, name := range slices.Sorted(maps.Keys(cases)) { // ranks have one order
					if err := cases[name](w); err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
				}
				return nil
			})
		})
	}
}

// gpuParts is the samples of a rank in a batch, in unequal parts.
func gpuParts(rank, ranks, batch int) (first, n int) {
	first = batch * rank * (rank + 1) / (ranks * (ranks + 1))
	return first, batch*(rank+1)*(rank+2)/(ranks*(ranks+1)) - first
}

// gpuTraining has settings of a training on GPUs: batches are cut into parts of equal length, and
// all parts except the last are accumulated.
type gpuTraining struct {
	rule         optim.Config
	cfg          machine.Config
	ddp          ddp.Config
	batch, steps int
	parts        int
	mesh         bool // two rows, whose ranks shard; the ranks of a column replicate

	after func(p *gpuNet, vm *machine.Machine, d *ddp.DDP, s optim.Solver) error // may be nil
}

// step makes the runs of one step, with parts of rows samples that start at number first.
func (g *gpuTraining) step(p *gpuNet, d *ddp.DDP, vm *machine.Machine, step, first, rows int) error {
	once := func(part int) error {
		return errors.Join(p.feed(step, first+part*rows), vm.RunAll())
	}
	if g.parts > 1 {
		err := d.NoSync(func() error {
			for part := range g.parts - 1 {
				if err := once(part); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return once(g.parts - 1)
}

// run trains on a rank's parts of batches, and returns the rank's weights and last loss.
func (g *gpuTraining) run(w *dist.World) (weights [][]float32, loss float64, err error) {
	first, rows := gpuParts(w.Rank(), w.Size(), g.batch)
	rows /= g.parts
	p, err := makeGPUNet(rows)
	if err != nil {
		return nil, 0, err
	}
	on, cfg := dist.Members(w), g.ddp
	if g.mesh {
		if on, cfg.Replicas, err = w.Split2D(w.Size() / 2); err != nil {
			return nil, 0, err
		}
	}
	d, err := ddp.Attach(on, p.cost, p.params, cfg)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	vm, err := machine.New(p.g, g.cfg, append(gorgonia.Nodes{p.cost}, d.Grads()...)...)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(vm.Close(), err) }()
	var s optim.Solver
	if s, err = vm.NewSolver(g.rule); err != nil {
		return nil, 0, err
	}
	if err := d.SetWeight(float64(rows)); err != nil {
		return nil, 0, err
	}
	for step := range g.steps {
		if err := g.step(p, d, vm, step, first, rows); err != nil {
			return nil, 0, fmt.Errorf("step %d: %w", step, err)
		}
		if err := s.Step(d.Model()); err != nil {
			return nil, 0, fmt.Errorf("step %d: %w", step, err)
		}
	}
	if loss, err = vm.Scalar(p.cost); err != nil {
		return nil, 0, err
	}
	if err := g.stale(vm, d); err != nil {
		return nil, 0, err
	}
	if err := errors.Join(d.Consolidate(), vm.Sync()); err != nil {
		return nil, 0, err
	}
	if g.after != nil {
		err = g.after(p, vm, d, s)
	}
	return p.weights(), loss, err
}

// stale checks that weights that are not gathered yet are reported as stale.
func (g *gpuTraining) stale(vm *machine.Machine, d *ddp.DDP) error {
	if !g.ddp.OverlapGather {
		return nil
	}
	if err := vm.Sync(); !errors.Is(err, machine.ErrStale) || !d.Machine().Stale() {
		return fmt.Errorf("before the weights are gathered: %w, want ErrStale", err)
	}
	return nil
}

// TestRanksOnGPUsLearnWhatOneDoes compares ranks that have parts of a batch with the tape machine
// on the whole batch, over 20 steps.
func TestRanksOnGPUsLearnWhatOneDoes(t *testing.T) {
	small := ddp.Config{BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024}
	cases := map[string]func(w *dist.World) error{}
	for name, tt := range map[string]struct {
		within   bool
		training gpuTraining
	}{
		"within": {true, gpuTraining{rule: optim.Config{Name: optim.Adam, LearningRate: 0.01}}},
		"apart":  {false, gpuTraining{rule: optim.Config{Name: optim.Momentum, LearningRate: 0.05, ClipNorm: 0.5}}},
		"plain":  {true, gpuTraining{rule: optim.Config{Name: optim.SGD, LearningRate: 0.1}, cfg: machine.Config{NoOptimize: true, NoGraph: true}}},
	} {
		cases[name] = func(w *dist.World) error {
			g := tt.training
			g.ddp, g.batch, g.steps, g.parts = small, 60, 20, 1
			if tt.within {
				g.cfg.Solver = &g.rule
			}
			return g.hold(w, gpuTolerance)
		}
	}
	onGPUs(t, cases)
}

// TestMicroBatchesOnGPUsAreOneBatch accumulates three parts of each rank's batch, over 20 steps,
// and compares with the tape machine on the whole batch.
func TestMicroBatchesOnGPUsAreOneBatch(t *testing.T) {
	small := ddp.Config{BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024}
	cases := map[string]func(w *dist.World) error{}
	for name, tt := range map[string]struct {
		within   bool
		training gpuTraining
	}{
		"within":  {true, gpuTraining{rule: optim.Config{Name: optim.Adam, LearningRate: 0.01}, ddp: small}},
		"clipped": {true, gpuTraining{rule: optim.Config{Name: optim.Momentum, LearningRate: 0.05, ClipNorm: 0.5}}},
		"apart":   {false, gpuTraining{rule: optim.Config{Name: optim.Adam, LearningRate: 0.01}, ddp: small}},
		"idle":    {true, gpuTraining{rule: optim.Config{Name: optim.SGD, LearningRate: 0.1}, ddp: ddp.Config{Idle: true}}},
		"plain":   {true, gpuTraining{rule: optim.Config{Name: optim.SGD, LearningRate: 0.1}, cfg: machine.Config{NoOptimize: true, NoGraph: true}}},
	} {
		cases[name] = func(w *dist.World) error {
			g := tt.training
			g.batch, g.steps, g.parts = 180, 20, 3
			if tt.within {
				g.cfg.Solver = &g.rule
			}
			return g.hold(w, gpuTolerance)
		}
	}
	onGPUs(t, cases)
}

// off trains, and returns the distance of the weights to those of one rank on the host with the
// whole batch.
func (g *gpuTraining) off(w *dist.World) (float64, error) {
	want, _, err := gpuAlone(g.batch, g.steps, g.rule)
	if err != nil {
		return 0, err
	}
	got, loss, err := g.run(w)
	if err != nil {
		return 0, err
	}
	if math.IsNaN(loss) {
		return 0, errors.New("the loss is no number")
	}
	return gpuWorst(got, want), nil
}

// hold compares the weights with those of one rank on the host with the whole batch.
func (g *gpuTraining) hold(w *dist.World, limit float64) error {
	off, err := g.off(w)
	if err == nil && !(off <= limit) {
		err = fmt.Errorf("weights differ by %v", off)
	}
	return err
}

// TestStagesOnGPUsLearnWhatOneRankDoes trains with Stages 1 to 3 over 20 steps. It compares weights
// with the tape machine on the whole batch, states with the pieces, and averages swapped twice with
// the weights.
func TestStagesOnGPUsLearnWhatOneRankDoes(t *testing.T) {
	small := ddp.Config{BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024}
	cases := map[string]func(w *dist.World) error{}
	for name, g := range map[string]gpuTraining{
		"adam":   {rule: optim.Config{Name: optim.Adam, LearningRate: 0.01}, ddp: small, parts: 1},
		"sgd":    {rule: optim.Config{Name: optim.SGD, LearningRate: 0.1}, parts: 1},
		"clip":   {rule: optim.Config{Name: optim.Momentum, LearningRate: 0.05, ClipNorm: 0.5}, ddp: small, parts: 1},
		"adamw":  {rule: optim.Config{Name: optim.AdamW, LearningRate: 0.01, WeightDecay: 0.1, EMADecay: 0.9}, ddp: small, parts: 1},
		"lamb":   {rule: optim.Config{Name: optim.LAMB, LearningRate: 0.01, WeightDecay: 0.01, SkipNonFinite: true}, ddp: small, parts: 1},
		"parts":  {rule: optim.Config{Name: optim.Adam, LearningRate: 0.01}, ddp: small, parts: 3},
		"eager":  {rule: optim.Config{Name: optim.Adam, LearningRate: 0.01}, ddp: small, parts: 1, cfg: machine.Config{NoGraph: true, NoOptimize: true}},
		"as one": {rule: optim.Config{Name: optim.Adam, LearningRate: 0.01}, ddp: ddp.Config{NoOverlap: true}, parts: 1},
	} {
		cases[name] = func(w *dist.World) error {
			for i, stage := range []int{1, 2, 3, 1, 2} {
				g := g
				g.batch, g.steps, g.cfg.Solver, g.after = 180, 20, &g.rule, gpuPieces
				g.ddp.Stage, g.ddp.OverlapGather = stage, i > 2
				if err := g.hold(w, gpuTolerance); err != nil {
					return fmt.Errorf("stage %d, gathered by the next run %v: %w", stage, i > 2, err)
				}
			}
			return nil
		}
	}
	onGPUs(t, cases)
}

// TestNarrowBucketsOnGPUsLearn sums gradients as bf16 and f16, of whole batches and of parts, and
// compares weights with those of the tape machine, within the rounding errors of 20 steps.
func TestNarrowBucketsOnGPUsLearn(t *testing.T) {
	const within = 2e-2
	cases := map[string]func(w *dist.World) error{}
	for name, g := range map[string]gpuTraining{
		"bf16":          {ddp: ddp.Config{WireDType: tensor.BF16}, parts: 1},
		"f16":           {ddp: ddp.Config{WireDType: tensor.F16, BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024}, parts: 1},
		"bf16, parts":   {ddp: ddp.Config{WireDType: tensor.BF16, Idle: true}, parts: 3},
		"bf16, stage 1": {ddp: ddp.Config{WireDType: tensor.BF16, BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024, Stage: 1}, parts: 1},
		"bf16, stage 2": {ddp: ddp.Config{WireDType: tensor.BF16, BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024, Stage: 2}, parts: 3},
		"f16, stage 3":  {ddp: ddp.Config{WireDType: tensor.F16, BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024, Stage: 3}, parts: 1},
		"f16, stage 1":  {ddp: ddp.Config{WireDType: tensor.F16, Stage: 1}, parts: 3},
	} {
		cases[name] = func(w *dist.World) error {
			g := g
			g.rule, g.batch, g.steps = optim.Config{Name: optim.SGD, LearningRate: 0.1}, 180, 20
			g.cfg.Solver = &g.rule
			off, err := g.off(w)
			if err == nil && (!(off <= within) || off == 0) {
				err = fmt.Errorf("weights differ by %v", off)
			}
			return err
		}
	}
	onGPUs(t, cases)
}

// gpuPieces checks a rank's state, sets it again, and swaps weights and averages twice.
func gpuPieces(p *gpuNet, vm *machine.Machine, d *ddp.DDP, s optim.Solver) error {
	st := s.State()
	if len(st.Params) != len(p.params) {
		return fmt.Errorf("the state has %d parameters, want %d", len(st.Params), len(p.params))
	}
	pieces := make([]ddp.Piece, len(st.Params)) // by name, which are those of the plan
	for _, own := range d.Pieces() {
		name := d.Plan().Params[own.Param].Name
		pieces[slices.IndexFunc(st.Params, func(q optim.ParamState) bool { return q.Name == name })] = own
	}
	for i, q := range st.Params {
		for _, slot := range q.Slots {
			if len(slot.F32) != pieces[i].Len || q.Offset != pieces[i].Offset {
				return fmt.Errorf("%s of %s has %d elements from %d on, the piece is %+v", slot.Name, q.Name, len(slot.F32), q.Offset, pieces[i])
			}
		}
	}
	if err := s.SetState(st); err != nil {
		return err
	}
	before := p.weights()
	for swaps := range 2 {
		err := s.SwapAverages(d.Model())
		if errors.Is(err, optim.ErrConfig) {
			return nil // none are kept
		}
		if err = errors.Join(err, vm.Sync(), d.Consolidate()); err != nil {
			return err
		}
		if off := gpuWorst(p.weights(), before); (off == 0) != (swaps == 1) {
			return fmt.Errorf("after %d swaps weights differ by %v from what they were", swaps+1, off)
		}
	}
	return nil
}

// TestGraphsOfGPUWorldsRunOnTheirGPUs checks settings that do not fit together.
func TestGraphsOfGPUWorldsRunOnTheirGPUs(t *testing.T) {
	gpuCount(t, 2)
	gpuWorlds(backend.Config{})(t, 2, conformance.LaunchOptions{StepTimeout: 20 * time.Second}, func(w *dist.World) error {
		p, err := makeGPUNet(4)
		if err != nil {
			return err
		}
		d, err := ddp.Attach(w, p.cost, p.params, ddp.Config{})
		if err != nil {
			return err
		}
		if _, err := machine.New(p.g, machine.Config{Device: machine.CPU}); !errors.Is(err, machine.ErrDevice) {
			return fmt.Errorf("a machine on the host: %w", err)
		}
		if err := p.feed(0, 0); err != nil {
			return err
		}
		tape := gorgonia.NewTapeMachine(p.g)
		err = tape.RunAll()
		if err == nil || !strings.Contains(err.Error(), "package machine") {
			return fmt.Errorf("the tape machine: %w", err)
		}
		if err := tape.Close(); err != nil {
			return err
		}
		vm, err := machine.New(p.g, machine.Config{})
		if err != nil {
			return err
		}
		if err := d.SetWeight(0); err != nil {
			return err
		}
		if err := vm.RunAll(); !errors.Is(err, ddp.ErrNoWeight) {
			return fmt.Errorf("weights that sum to 0: %w", err)
		}
		if err := d.SetWeight(1); err != nil {
			return err
		}
		if err := vm.RunAll(); err != nil {
			return err
		}
		return errors.Join(vm.Close(), d.Close())
	})
}
