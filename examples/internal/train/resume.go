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
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// origin is the checkpoint that a run goes on from. A nil one is the beginning.
type origin struct {
	c       *checkpoint.Checkpoint
	m       *checkpoint.Manifest
	memory  memory
	changes []config.Change
}

// found is rank 0's description of it.
type found struct {
	Path    string   // "" for the beginning
	Skipped []string // faults of newer ones
}

// The settings of run.resume that are no path.
const (
	resumeAuto = "auto"
	resumeNone = "none"
)

// locate finds the checkpoint from which the run resumes, and begins there: number of steps, order
// of samples.
//
// Collective: all ranks. Errors: usageError for settings that make another training of it.
func (t *trainer) locate() error {
	f, err := fromRank0(t.talk, "checkpoint to resume from", t.find)
	if t.broken = f.Skipped; err != nil || f.Path == "" {
		return err
	}
	o := &origin{}
	if o.c, err = checkpoint.OpenAt(f.Path, checkpoint.VerifySizes); err != nil { // rank 0 has looked at all of it
		return err
	}
	t.from, o.m = o, o.c.Manifest()
	text, ok := o.m.Extra[memoryKey]
	if !ok {
		return fmt.Errorf("checkpoint %s: it is of another program: it has no %q", f.Path, memoryKey)
	}
	if err := json.Unmarshal(text, &o.memory); err != nil {
		return fmt.Errorf("checkpoint %s: %w", f.Path, err)
	}
	if err := t.compare(o); err != nil {
		return usageError{fmt.Errorf("checkpoint %s: %w", f.Path, err)}
	}
	var at ddp.Cursor
	if err := json.Unmarshal(o.m.Sampler, &at); err != nil {
		return fmt.Errorf("checkpoint %s: place among the samples: %w", f.Path, err)
	}
	if err := t.sampler.Seek(at); err != nil {
		return fmt.Errorf("checkpoint %s: %w", f.Path, err)
	}
	t.first = o.m.Step
	return nil
}

// find returns the checkpoint that the settings of this rank ask for.
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
	if newest.path != "" {
		return found{}, Usage("checkpoint.dir: %s is of another run, or later than run.resume=%s: name an empty folder, or set run.resume to auto to go on from there",
			newest.path, c.Run.Resume)
	}
	return f, nil
}

// whole is a checkpoint with nothing missing.
type whole struct {
	path string
	step int
}

// newestIn returns the newest whole checkpoint in dir, and the faults of newer ones; none for an
// empty dir.
func newestIn(dir string) (newest whole, skipped []string, err error) {
	if dir == "" {
		return whole{}, nil, nil
	}
	c, err := checkpoint.Open(dir)
	if errors.Is(err, checkpoint.ErrNone) {
		if paths, _ := checkpoint.List(dir); len(paths) > 0 {
			return whole{}, strings.Split(err.Error(), "\n"), nil // none of them is whole
		}
		return whole{}, nil, nil
	}
	if err != nil {
		return whole{}, nil, fmt.Errorf("checkpoint.dir: %w", err)
	}
	path, err := filepath.Abs(c.Path())
	return whole{path, c.Manifest().Step}, rejected(c), errors.Join(err, c.Close())
}

// rejected is the checkpoints that were passed over for c, and why.
func rejected(c *checkpoint.Checkpoint) []string {
	var all []string
	for _, r := range c.Rejected() {
		all = append(all, r.Err.Error())
	}
	return all
}

// compare holds the settings and data of now against those of then.
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
		return fmt.Errorf("another training cannot go on from it: %s; leave that as it was, or start anew with run.resume=none and another checkpoint.dir",
			strings.Join(fixed, "; "))
	}
	if now := t.job.problem.Digest(); now != o.memory.Data {
		return fmt.Errorf("data.path: it is of other samples: %s before, %s now", o.memory.Data, now)
	}
	if now := t.rule.Schedule.String(); now != o.memory.Schedule && !scheduled {
		return fmt.Errorf("optim.schedule: with another length of the run it is %s, and was %s; set optim.schedule.total_steps=%d for the one before",
			now, o.memory.Schedule, o.memory.End)
	}
	if o.m.Step > t.steps {
		return fmt.Errorf("run.max_steps: it has made %d steps, and the run ends after %d: raise run.max_steps or run.epochs", o.m.Step, t.steps)
	}
	return nil
}

// scheduleEnd is the step at which a cosine ends; 0 for other schedules.
func scheduleEnd(s optim.Schedule) int {
	if s.Name != optim.Cosine {
		return 0
	}
	return s.WarmupSteps + s.Steps
}

// weights gives the parameters of m their values.
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

// count gives a meter the earlier counts.
func (o *origin) count(m *meter) {
	if o == nil {
		return
	}
	m.samples, m.before, m.rateSamples = o.memory.Samples, o.memory.Samples, o.memory.Samples
	m.losses, m.firstLoss = o.memory.Losses, o.memory.FirstLoss
}
