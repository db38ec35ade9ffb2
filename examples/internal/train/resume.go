package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// origin is the checkpoint from which a run resumes. nil means a new training.
type origin struct {
	c       *checkpoint.Checkpoint
	m       *checkpoint.Manifest
	memory  memory
	changes []config.Change
}

// found is rank 0's choice of a checkpoint.
type found struct {
	Path    string   // "" for a new training
	Skipped []string // why newer checkpoints are not usable
}

// Values of run.resume other than a path.
const (
	resumeAuto = "auto"
	resumeNone = "none"
)

// locate finds the checkpoint to resume from and sets the first step and the position in the
// samples.
//
// Collective: all ranks. Errors: usageError for settings of a different training.
func (t *trainer) locate() error {
	f, err := fromRank0(t.exchanger, "checkpoint to resume from", t.find)
	if t.broken = f.Skipped; err != nil || f.Path == "" {
		return err
	}
	o := &origin{}
	if o.c, err = checkpoint.OpenAt(f.Path, checkpoint.VerifySizes); err != nil { // rank 0 has verified the checkpoint
		return err
	}
	t.from, o.m = o, o.c.Manifest()
	text, ok := o.m.Extra[memoryKey]
	if !ok {
		return fmt.Errorf("checkpoint %s: written by another program: %q is missing", f.Path, memoryKey)
	}
	if err := json.Unmarshal(text, &o.memory); err != nil {
		return fmt.Errorf("checkpoint %s: %w", f.Path, err)
	}
	if err := t.compare(o); err != nil {
		return usageError{fmt.Errorf("checkpoint %s: %w", f.Path, err)}
	}
	var at data.Cursor
	if err := json.Unmarshal(o.m.Sampler, &at); err != nil {
		return fmt.Errorf("checkpoint %s: position in the samples: %w", f.Path, err)
	}
	if err := t.sampler.Seek(at); err != nil {
		return fmt.Errorf("checkpoint %s: %w", f.Path, err)
	}
	t.first = o.m.Step
	return nil
}

// find returns the checkpoint that this rank's settings ask for. After a restart by the launcher it
// prefers the newest one, which the job itself has saved.
func (t *trainer) find() (found, error) {
	c := t.job.cfg
	newest, skipped, err := newestIn(c.Checkpoint.Dir)
	if err != nil {
		return found{}, err
	}
	f := found{newest.path, skipped}
	switch c.Run.Resume {
	case resumeAuto:
		return f, nil
	case resumeNone:
		f = found{}
	default:
		c, err := checkpoint.Open(c.Run.Resume)
		if errors.Is(err, checkpoint.ErrNone) {
			return found{}, Usage("run.resume: %w", err)
		}
		if err != nil {
			return found{}, fmt.Errorf("run.resume: %w", err)
		}
		path, err := filepath.Abs(c.Path())
		f = found{path, rejected(c)}
		step := c.Manifest().Step
		if err := errors.Join(err, c.Close()); err != nil || newest.path == "" || newest.step <= step {
			return f, err
		}
	}
	if newest.path != "" && t.job.env.Restarts > 0 {
		return found{newest.path, skipped}, nil
	}
	if newest.path != "" {
		return found{}, Usage("checkpoint.dir: %s is of another run, or later than run.resume=%s: use an empty folder, or set run.resume=auto to resume from it",
			newest.path, c.Run.Resume)
	}
	return f, nil
}

// whole is a complete checkpoint.
type whole struct {
	path string
	step int
}

// newestIn returns the newest complete checkpoint in dir, and why newer ones are not usable. It
// returns none for an empty dir.
func newestIn(dir string) (newest whole, skipped []string, err error) {
	if dir == "" {
		return whole{}, nil, nil
	}
	c, err := checkpoint.Open(dir)
	if errors.Is(err, checkpoint.ErrNone) {
		if paths, _ := checkpoint.List(dir); len(paths) > 0 {
			return whole{}, strings.Split(err.Error(), "\n"), nil // none is complete
		}
		return whole{}, nil, nil
	}
	if err != nil {
		return whole{}, nil, fmt.Errorf("checkpoint.dir: %w", err)
	}
	path, err := filepath.Abs(c.Path())
	return whole{path, c.Manifest().Step}, rejected(c), errors.Join(err, c.Close())
}

// rejected returns why newer checkpoints than c are not usable.
func rejected(c *checkpoint.Checkpoint) []string {
	var all []string
	for _, r := range c.Rejected() {
		all = append(all, r.Err.Error())
	}
	return all
}

// compare compares the current settings and data with those of the checkpoint.
func (t *trainer) compare(o *origin) error {
	var err error
	if o.changes, err = t.job.cfg.Changes(o.memory.Settings); err != nil {
		return err
	}
	var fixed []string
	scheduled := false
	for _, c := range o.changes {
		if c.Fixed {
			fixed = append(fixed, c.String())
		}
		scheduled = scheduled || strings.HasPrefix(c.Key, "optim.schedule.") || c.Key == "optim.lr"
	}
	if len(fixed) > 0 {
		return fmt.Errorf("a different training cannot resume from it: %s; restore these settings, or start a new training with run.resume=none and another checkpoint.dir",
			strings.Join(fixed, "; "))
	}
	if now := t.job.problem.Digest(); now != o.memory.Data {
		return fmt.Errorf("data.path: the samples differ: %s before, %s now", o.memory.Data, now)
	}
	if now := t.rule.Schedule.String(); now != o.memory.Schedule && !scheduled {
		return fmt.Errorf("optim.schedule: the new length of the run changes it to %s; it was %s; set optim.schedule.total_steps=%d to keep that",
			now, o.memory.Schedule, o.memory.End)
	}
	if o.m.Step > t.steps {
		return fmt.Errorf("run.max_steps: %d steps are done, and the run ends after %d: raise run.max_steps or run.epochs", o.m.Step, t.steps)
	}
	return nil
}

// scheduleEnd returns the step at which a cosine schedule ends; 0 for other schedules.
func scheduleEnd(s optim.Schedule) int {
	if s.Name != optim.Cosine {
		return 0
	}
	return s.WarmupSteps + s.Steps
}

// weights reads the parameters of m from the checkpoint.
func (o *origin) weights(m *Model) error {
	if o == nil {
		return nil
	}
	all, err := weightsOf(m)
	if err != nil {
		return err
	}
	for i, w := range all {
		b, err := tensor.BufferOf(w)
		if err != nil {
			return fmt.Errorf("parameter %s: %w", m.Params[i].Name(), err)
		}
		name := m.Params[i].Name()
		if have, ok := o.c.Lookup(name); ok && !slices.Equal(have.Shape, []int(w.Shape())) {
			return fmt.Errorf("checkpoint %s: parameter %s has shape %v, in the model %v", o.c.Path(), name, have.Shape, w.Shape())
		}
		if err := o.c.Read(name, 0, b); err != nil {
			return err
		}
	}
	return nil
}

// close closes the files. Idempotent.
func (o *origin) close() error {
	if o == nil {
		return nil
	}
	return o.c.Close()
}

// count sets a meter to the counts of the checkpoint.
func (o *origin) count(m *meter) {
	if o == nil {
		return
	}
	m.samples, m.before, m.rateSamples = o.memory.Samples, o.memory.Samples, o.memory.Samples
	m.losses, m.firstLoss = o.memory.Losses, o.memory.FirstLoss
}
