package train

import (
	"fmt"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/optim"
)

// trainer is one rank's model and what trains it.
type trainer struct {
	w    *dist.World
	job  *job
	talk *talk

	steps   int // of the run
	rows    int // of the graph's batch
	model   *Model
	d       *ddp.DDP
	vm      *vm
	solver  optim.Solver
	sampler *ddp.Sampler

	lead   lead
	meter  *meter
	spans  *spans
	timing *timing
	filled bool // the inputs hold what they are to hold, and stay so
}

// newTrainer builds the model and makes its training data-parallel.
//
// Collective: all ranks. Owns: the caller closes the trainer.
func newTrainer(k *talk, j *job) (*trainer, error) {
	w := k.w
	t := &trainer{w: w, talk: k, job: j, spans: newSpans(w)}
	var err error
	if t.lead, err = follow(k, j); err != nil {
		return nil, err
	}
	if t.sampler, err = t.newSampler(w.Rank(), w.Size()); err != nil {
		return nil, err
	}
	t.steps = runSteps(j.cfg.Run, t.sampler.Steps())
	if first := t.lead.traceFirst; first >= t.steps {
		return nil, usageError{fmt.Errorf("log.trace_steps: the timeline starts at step %d, but the run has %d steps, from 0", first, t.steps)}
	}
	if f := j.timing; f.file != "" && f.warmup >= t.steps {
		return nil, Usage("--json: the run has %d steps, all of them warm-up; lower --warmup", t.steps)
	}
	if err := t.build(); err != nil {
		return nil, err
	}
	return t, t.checkHeap()
}

// build is what a program of one's own does: model, ddp.Attach in place of gorgonia.Grad, machine, solver.
func (t *trainer) build() error {
	cfg := t.job.cfg
	share := ceilDiv(cfg.Data.GlobalBatch, t.w.Size()) // no rank has more of a batch
	t.rows = ceilDiv(share, cfg.Data.AccumSteps)
	var err error
	if t.model, err = t.job.problem.New(t.rows, nil); err != nil {
		return err
	}
	m := t.model
	t.d, err = ddp.Attach(t.w, m.Cost, m.Params, ddp.Config{
		BucketMB:      mebibytes(cfg.DDP.BucketBytes()),
		FirstBucketMB: mebibytes(cfg.DDP.FirstBucketBytes()),
		NoOverlap:     !cfg.DDP.Overlap,
	})
	if err != nil {
		return err
	}
	rule := optimConfig(cfg.Optim, t.steps, t.job.threads)
	c := t.job.machineConfig(cfg.Model.Name)
	if t.job.site.gpu {
		c.Solver, c.KeepInputs = &rule, t.job.timing.kept // the update is the end of each run, in one graph with it
	}
	if t.vm, err = t.job.newVM(c, append(gorgonia.Nodes{m.Cost}, t.d.Grads()...)...); err != nil {
		return err
	}
	t.solver, err = t.vm.newSolver(rule)
	return err
}

// close frees what the trainer has. Idempotent.
func (t *trainer) close() error {
	if t.vm != nil {
		if err := t.vm.Close(); err != nil {
			return err
		}
	}
	if t.d != nil {
		return t.d.Close()
	}
	return nil
}

// checkHeap holds comm.heap_mb against what the buckets need.
func (t *trainer) checkHeap() error {
	limit, need := t.job.cfg.Comm.HeapBytes(), int64(0)
	for _, b := range t.d.Plan().Buckets {
		need += b.Bytes()
	}
	if limit > 0 && need > limit {
		return usageError{fmt.Errorf("comm.heap_mb: the buckets need %d B of the symmetric heap, more than its %d B; set it to 0 for as much as is needed", need, limit)}
	}
	return nil
}

func (t *trainer) newSampler(rank, size int) (*ddp.Sampler, error) {
	cfg := t.job.cfg
	return ddp.NewSampler(ddp.SamplerConfig{
		Samples: t.job.problem.Len(), GlobalBatch: cfg.Data.GlobalBatch, Rank: rank, Size: size,
		Seed: cfg.Run.Seed, Shuffle: cfg.Data.Shuffle, DropLast: cfg.Data.DropLast,
	})
}

// weights is the parameters' tensors.
func (t *trainer) weights() ([]*gtensor.Dense, error) {
	all := make([]*gtensor.Dense, len(t.model.Params))
	for i, p := range t.model.Params {
		d, ok := p.Value().(*gtensor.Dense)
		if !ok {
			return nil, fmt.Errorf("parameter %s: its value is a %T, not a dense tensor", p.Name(), p.Value())
		}
		all[i] = d
	}
	return all, nil
}

// runSteps is the number of optimizer steps of a run whose epochs have epochSteps.
func runSteps(c config.Run, epochSteps int) int {
	steps := c.MaxSteps
	if c.Epochs > 0 && (steps == 0 || c.Epochs*epochSteps < steps) {
		steps = c.Epochs * epochSteps
	}
	return steps
}

// optimConfig is the settings of the solver for a run of so many steps. Those that the rule does not read stay zero, which
// the solver insists on.
func optimConfig(c config.Optim, steps, threads int) optim.Config {
	o := optim.Config{
		Name: c.Name, LearningRate: c.LR, WeightDecay: c.WeightDecay, ClipNorm: c.ClipNorm,
		Schedule:      optim.Schedule{Name: c.Schedule.Name, WarmupSteps: c.Schedule.WarmupSteps},
		KeepGradients: true, // every run overwrites them
		Workers:       threads,
	}
	switch c.Name {
	case optim.Momentum:
		o.Momentum, o.Nesterov = c.Momentum, c.Nesterov
	case optim.Adam, optim.AdamW:
		o.Beta1, o.Beta2, o.Epsilon = c.Beta1, c.Beta2, c.Eps
	}
	switch c.Schedule.Name {
	case optim.Cosine:
		o.Schedule.Steps, o.Schedule.MinLearningRate = c.Schedule.CosineSteps(steps), c.Schedule.MinLR
	case optim.StepDown:
		o.Schedule.Steps, o.Schedule.Gamma = c.Schedule.StepSize, c.Schedule.Gamma
	}
	return o
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }
