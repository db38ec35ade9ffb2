package train

import (
	"context"
	"errors"
	"math"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/settings"
	"github.com/symgrad/symgrad/internal/tool/cli"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/train/internal/exchange"
	"github.com/symgrad/symgrad/train/internal/measure"
	"github.com/symgrad/symgrad/train/internal/output"
	"github.com/symgrad/symgrad/train/internal/report"
	"github.com/symgrad/symgrad/train/internal/save"
	"github.com/symgrad/symgrad/train/internal/timeline"
)

// trainer is a whole training on one rank: a learner, the steps that it takes, and the records of
// them.
type trainer struct {
	*learner
	ends  ends          // contexts that can end this rank
	rank0 rank0Settings // settings of rank 0 that all ranks use

	first   int           // steps made by the run that this one resumes
	steps   int           // of the whole training, with those
	sampler *data.Sampler // this rank's samples of each step

	claim  *output.Claim // of the output folder
	from   *save.Origin  // checkpoint that the run resumes from; nil for none
	broken []string      // checkpoints that are not usable, with the reasons
	keeper *save.Folder  // saves checkpoints; nil without them

	costs  costs          // predicted and measured
	meter  *measure.Meter // losses and times, summed over the ranks
	timing *measure.Steps // ends of steps, for --json

	records   records // metrics of steps and evaluations, on rank 0
	evaluates bool    // the model is evaluated after this step

	profiled *machine.Timeline // of a step, on GPUs after the last
}

// train is a whole run on one rank.
//
// Collective: all ranks. Errors: the failure, on the rank where it happened; on other ranks also
// the number of that rank.
func train(ctx context.Context, w *dist.World, j *job, g *guard) (err error) {
	k := exchange.New(w)
	defer func() { err = errors.Join(err, k.Close()) }()
	if err := exchange.Agree(k, j.facts); err != nil {
		return err
	}
	group, release := w.Context(context.Background())
	defer release()
	t, err := newTrainer(k, j, ends{group: group, signal: ctx})
	if t != nil {
		defer func() { err = errors.Join(err, t.close(err)) }()
	}
	if err != nil {
		return err
	}
	if t.claim = j.claimed; t.claim == nil {
		if t.claim, err = output.OnRank0(k, j.cfg); err != nil {
			return err
		}
	}
	facts := t.report()
	s := facts.Summary()
	if s.WireBytes, err = t.costs.sent(); err != nil {
		return err
	}
	if w.Rank() == 0 {
		if err := j.cfg.Save(j.cfg.OutputDir(), j.origins); err != nil {
			return err
		}
		if err := j.say("%v", t.header(facts)); err != nil {
			return err
		}
	}
	if t.rank0.verify {
		if err := (&verifier{t.learner, t.first}).verify(s); err != nil {
			return err
		}
	}
	t.inputs.filled = false
	if t.keeper != nil {
		g.off() // a signal now ends the loop after a step, without an abort
	}
	if err := t.loop(ctx); err != nil {
		return explained(err, j.cfg)
	}
	if err := t.keeper.Close(); err != nil { // before g.on: a signal must not cost the checkpoint
		return err
	}
	g.on()
	return explained(t.finish(ctx, facts, s), j.cfg)
}

// newTrainer builds the model for data-parallel training.
//
// Collective: all ranks. Owns: the caller closes the trainer.
func newTrainer(k *exchange.Values, j *job, e ends) (*trainer, error) {
	w := k.World()
	t := &trainer{learner: &learner{w: w, values: k, job: j, spans: timeline.New(w)}, ends: e}
	t.costs.learner = t.learner
	var err error
	if t.rank0, err = settingsOfRank0(k, j); err != nil {
		return nil, err
	}
	if t.sampler, err = j.newSampler(w.Rank(), w.Size()); err != nil {
		return nil, err
	}
	t.steps = runSteps(j.cfg.Run, t.sampler.Steps())
	t.rule = settings.Solver(j.cfg, j.site.GPU, t.steps, j.threads)
	if err := t.keep(); err != nil {
		return t, err
	}
	if err := t.locate(); err != nil {
		return t, err
	}
	if first := t.rank0.traceFirst; first >= t.steps {
		return t, cli.Usage("log.trace_steps: the timeline starts at step %d, but the run has %d steps, from 0", first, t.steps)
	}
	if f := j.timing; f.file != "" && f.warmup >= t.steps-t.first {
		return t, cli.Usage("--json: the run has %d steps, all of them warm-up; lower --warmup", t.steps-t.first)
	} else if f.file != "" && f.warmup == 0 && j.site.GPU {
		return t, cli.Usage("--warmup 0: on a GPU the first step loads kernels and times start at its end; use 1 or more")
	}
	if err := t.build(t.from.Weights); err != nil {
		return t, err
	}
	if err := t.checkHeap(); err != nil {
		return t, err
	}
	return t, t.restore()
}

// close frees the trainer after a run that ended with cause. If a peer was lost, it does not wait
// for a checkpoint that cannot be completed. Idempotent.
func (t *trainer) close(cause error) error {
	err := errors.Join(t.records.out.Close(), t.from.Close(), t.claim.Close())
	if launch.ExitCode(cause) == launch.ExitPeerLost {
		err = errors.Join(err, t.keeper.Abandon())
	} else {
		err = errors.Join(err, t.keeper.Close())
	}
	return errors.Join(err, t.learner.close())
}

// report returns the facts of the run for its reports.
func (t *trainer) report() *report.Run {
	j := t.job
	data, model := j.problem.Describe()
	return &report.Run{
		Program: j.program.Name, Config: j.cfg, Origins: j.origins, File: j.source.File, Env: j.env, World: t.w, Site: j.site,
		Threads: j.threads, BLAS: j.blas, Data: data, Model: model, Parameters: t.parameters(), Tensors: len(t.model.Params),
		Steps: t.steps, Rule: t.rule,
	}
}

// header returns the plan of the run.
func (t *trainer) header(facts *report.Run) *report.Header {
	h := &report.Header{
		Run: facts, DDP: t.d, Rows: t.rows, Origin: t.from, Skipped: t.broken, Folder: t.keeper, Claim: t.claim,
	}
	if t.scaled != nil {
		h.Scaler, h.Static = t.scaled.scaler, t.scaled.static
	}
	return h
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
