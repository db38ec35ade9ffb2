package train

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/train/internal/save"
)

// keep opens the folder of checkpoints, if rank 0 wants some.
//
// Collective: all ranks. Errors: a *checkpoint.LockedError on all ranks if another run saves there.
func (t *trainer) keep() (err error) {
	if !t.rank0.keep {
		return nil
	}
	c := t.job.cfg
	t.keeper, err = save.NewFolder(t.values, save.Options{
		Checkpoint: c.Checkpoint, Every: t.rank0.keepEvery, Timeout: c.Comm.TimeoutStep,
		Group: t.ends.group, Signal: t.ends.signal,
		Warn: func(old error) error { return t.job.say("warning    %v\n", old) },
	})
	return err
}

// locate finds the checkpoint to resume from and sets the first step and the position in the
// samples.
//
// Collective: all ranks. Errors: cli.ErrUsage for settings of a different training.
func (t *trainer) locate() error {
	found, err := save.Find(t.values, t.job.cfg, t.job.env.Restarts)
	if t.broken = found.Skipped; err != nil || found.Path == "" {
		return err
	}
	if t.from, err = save.Open(found.Path); err != nil {
		return err
	}
	if err := t.from.Compare(t.facts()); err != nil {
		return err
	}
	t.first = t.from.Manifest.Step
	return t.from.Seek(t.sampler)
}

// facts returns the facts that a run that resumes this one must share.
func (t *trainer) facts() save.Facts {
	return save.Facts{Config: t.job.cfg, Data: t.job.problem.Digest(), Schedule: t.rule.Schedule, Steps: t.steps}
}

// state returns the training as a checkpoint stores it.
func (t *trainer) state() *save.Training {
	s := &save.Training{
		Values: t.values, DDP: t.d, Params: t.model.Params, Solver: t.solver,
	}
	if t.scaled != nil {
		s.Scaler = t.scaled.scaler
	}
	return s
}

// restore sets the saved state of all except the weights, which are already restored.
func (t *trainer) restore() error {
	if t.from == nil {
		return nil
	}
	return errors.Join(t.from.Restore(t.state()), t.from.Close())
}

// save writes a checkpoint of the state after step.
//
// Collective: all ranks.
func (t *trainer) save(step int) error {
	if err := t.whole(); err != nil {
		return err
	}
	m := t.facts().Memory()
	m.Samples = t.meter.Samples()
	m.Losses, m.FirstLoss = t.meter.Curve(t.rank0.losses, step)
	meta, runs, err := t.state().Snapshot(step, m, t.sampler, t.keeper.Sharded())
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", step, err)
	}
	meta.Solver.Skipped = t.skipped()
	if p, ok := own(t.job.problem).(Annotated); ok {
		annotate(meta.Extra, p.Annotations())
	}
	meta.Config, meta.ConfigHash, meta.PlanHash = t.job.cfg.String(), t.job.cfg.Hash(), t.planHash()
	return t.keeper.Save(meta, runs)
}

// annotate adds the values of a problem or a script to those of this package.
func annotate(extra, more map[string]json.RawMessage) {
	for key, text := range more {
		if _, taken := extra[key]; !taken {
			extra[key] = text
		}
	}
}

// skipped returns the number of skipped steps, including those of resumed runs.
func (t *trainer) skipped() int {
	n := t.solver.Skipped()
	if t.from != nil {
		n += t.from.Manifest.Solver.Skipped
	}
	return n
}
