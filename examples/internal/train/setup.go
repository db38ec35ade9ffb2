package train

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/settings"
	"github.com/symgrad/symgrad/optim"
)

// trainer is one rank's model with everything that trains it.
type trainer struct {
	w         *dist.World
	job       *job       // the problem, its settings and the flags
	exchanger *exchanger // small collectives on host values
	ends      ends       // contexts that can end this rank

	first             int           // steps made by the run that this one resumes
	steps             int           // of the whole training, with those
	rows              int           // of the graph's batch
	model             *Model        // graph, cost and parameters
	scaled            *scaled       // factor of the loss; nil without loss scaling
	d                 *ddp.DDP      // exchange of gradients
	vm                *vm           // runs the graph
	rule              optim.Config  // the solver's settings
	solver            optim.Solver  // updates the weights
	stepsSinceAverage int           // with ddp.local_steps: steps since the ranks had equal weights
	sampler           *data.Sampler // this rank's samples of each step

	claim         *claim        // of the output folder; nil if the starter of the ranks has it
	rank0Settings rank0Settings // settings of rank 0 that all ranks use
	from          *origin       // checkpoint that the run resumes from; nil for none
	broken        []string      // checkpoints that are not usable, with the reasons
	keeper        *keeper       // saves checkpoints; nil without them
	began         uint64        // number of the last operation before the first step
	ended         uint64        // number of the last operation of the last step
	meter         *meter        // losses and times, summed over the ranks
	spans         *spans        // the timeline of this rank
	timing        *timing       // ends of steps, for --json
	filled        bool          // with --resident: the inputs are filled and stay
}

// newTrainer builds the model for data-parallel training.
//
// Collective: all ranks. Owns: the caller closes the trainer.
func newTrainer(k *exchanger, j *job, e ends) (*trainer, error) {
	w := k.w
	t := &trainer{w: w, exchanger: k, job: j, ends: e, spans: newSpans(w)}
	var err error
	if t.rank0Settings, err = settingsOfRank0(k, j); err != nil {
		return nil, err
	}
	if t.sampler, err = t.newSampler(w.Rank(), w.Size()); err != nil {
		return nil, err
	}
	t.steps = runSteps(j.cfg.Run, t.sampler.Steps())
	t.rule = settings.Solver(j.cfg, j.site.gpu, t.steps, j.threads)
	if err := t.keep(); err != nil {
		return t, err
	}
	if err := t.locate(); err != nil {
		return t, err
	}
	if first := t.rank0Settings.traceFirst; first >= t.steps {
		return t, usageError{fmt.Errorf("log.trace_steps: the timeline starts at step %d, but the run has %d steps, from 0", first, t.steps)}
	}
	if f := j.timing; f.file != "" && f.warmup >= t.steps-t.first {
		return t, Usage("--json: the run has %d steps, all of them warm-up; lower --warmup", t.steps-t.first)
	} else if f.file != "" && f.warmup == 0 && j.site.gpu {
		return t, Usage("--warmup 0: on a GPU the first step loads kernels and times start at its end; use 1 or more")
	}
	if err := t.build(t.from.weights); err != nil {
		return t, err
	}
	if err := t.checkHeap(); err != nil {
		return t, err
	}
	return t, t.restore()
}

// build does the setup that every program of this library needs: model, ddp.Attach instead of
// gorgonia.Grad, machine, solver. values may replace the initial values of the parameters.
func (t *trainer) build(values func(*Model) error) error {
	cfg := t.job.cfg
	exchange, err := settings.Exchange(cfg)
	if err != nil {
		return err
	}
	share := ceilDiv(cfg.Data.GlobalBatch, t.w.Size()) // the largest part of a batch that a rank has
	if t.rows = ceilDiv(share, cfg.Data.AccumSteps); exchange.VirtualRanks > 0 {
		t.rows = ceilDiv(cfg.Data.GlobalBatch, exchange.VirtualRanks)
	}
	if t.model, err = t.job.problem.New(t.rows, nil); err != nil {
		return err
	}
	m := t.model
	if err := checkNames(cfg.Optim, m.Params); err != nil {
		return err
	}
	if err := values(m); err != nil { // before Attach, which broadcasts the values and moves them to their final memory
		return err
	}
	cost, scaled, err := newScaled(cfg.Optim, m.Cost)
	if err != nil {
		return err
	}
	t.scaled = scaled
	if t.d, err = ddp.Attach(t.w, cost, m.Params, exchange); err != nil {
		return err
	}
	c := t.job.machineConfig(cfg.Model.Name)
	if t.job.site.gpu {
		c.Solver, c.KeepInputs = &t.rule, t.job.timing.kept // the update is the last part of each run's graph
	}
	if t.vm, err = t.job.newVM(c, append(gorgonia.Nodes{m.Cost}, t.d.Grads()...)...); err != nil {
		return err
	}
	t.solver, err = t.newSolver()
	return err
}

// newSolver returns the solver: on a GPU the machine's, else the one of ddp, which handles sharded
// weights and states.
func (t *trainer) newSolver() (optim.Solver, error) {
	if t.job.site.gpu {
		return t.vm.compiled.NewSolver(t.rule)
	}
	return t.d.NewSolver(t.rule)
}

// close frees the trainer after a run that ended with cause. If a peer was lost, it does not wait
// for a checkpoint that cannot be completed. Idempotent.
func (t *trainer) close(cause error) error {
	err := errors.Join(t.from.close(), t.claim.close())
	if launch.ExitCode(cause) == launch.ExitPeerLost {
		err = errors.Join(err, t.keeper.abandon())
	} else {
		err = errors.Join(err, t.keeper.close())
	}
	if t.vm != nil {
		if closing := t.vm.Close(); closing != nil { // the last run may still use the rest
			return errors.Join(err, closing)
		}
	}
	if t.d != nil {
		err = errors.Join(err, t.d.Close())
	}
	return err
}

// checkHeap compares comm.heap_mb with the need of the buckets.
func (t *trainer) checkHeap() error {
	room := t.d.Plan().Room(t.job.site.gpu)
	limit, need := t.job.cfg.Comm.HeapBytes(), room.Grads+room.Params+room.Staging+room.Scalars
	if limit > 0 && need > limit {
		return usageError{fmt.Errorf("comm.heap_mb: the buckets need %d B of the symmetric heap, more than its %d B; set it to 0, which reserves as much as needed", need, limit)}
	}
	return nil
}

// planHash identifies the layout of parameters in buckets.
func (t *trainer) planHash() string {
	sum := sha256.Sum256([]byte(t.d.String()))
	return hex.EncodeToString(sum[:])
}

// whole updates the values of the model's parameters to the full weights after the last step.
//
// Collective: all ranks, between runs.
func (t *trainer) whole() error {
	if err := t.d.Consolidate(); err != nil { // with shard.stage=3, and with shard.overlap_gather
		return err
	}
	if err := t.vm.sync(); err != nil {
		return err
	}
	if t.stepsSinceAverage > 0 { // averaging twice would round twice
		if err := t.d.AverageWeights(); err != nil {
			return err
		}
		t.stepsSinceAverage = 0
	}
	return nil
}

func (t *trainer) newSampler(rank, size int) (*data.Sampler, error) {
	cfg := t.job.cfg
	return data.NewSampler(data.SamplerConfig{
		Samples: t.job.problem.Len(), GlobalBatch: cfg.Data.GlobalBatch, Rank: rank, Size: size,
		Seed: cfg.Run.Seed, Shuffle: cfg.Data.Shuffle, DropLast: cfg.Data.DropLast,
	})
}

// weights returns the parameters' tensors.
func (t *trainer) weights() ([]*gtensor.Dense, error) { return weightsOf(t.model) }

func weightsOf(m *Model) ([]*gtensor.Dense, error) {
	all := make([]*gtensor.Dense, len(m.Params))
	for i, p := range m.Params {
		d, ok := p.Value().(*gtensor.Dense)
		if !ok {
			return nil, fmt.Errorf("parameter %s: its value is a %T, not a dense tensor", p.Name(), p.Value())
		}
		all[i] = d
	}
	return all, nil
}

// runSteps returns the number of optimizer steps of a run with epochSteps steps per epoch.
func runSteps(c config.Run, epochSteps int) int {
	steps := c.MaxSteps
	if steps == 0 {
		steps = math.MaxInt
	}
	if c.Epochs > 0 && c.Epochs <= steps/epochSteps { // the smaller of the two limits, without overflow
		steps = c.Epochs * epochSteps
	}
	return steps
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
