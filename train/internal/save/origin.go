package save

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/internal/tool/cli"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/train/internal/exchange"
)

// Origin is the checkpoint from which a run resumes. A nil Origin means a new training.
type Origin struct {
	Manifest *checkpoint.Manifest
	Memory   Memory
	Changes  []config.Change // of settings since, after Compare
	c        *checkpoint.Checkpoint
}

// Facts are the settings and the data of a run, which a run that resumes it must share.
type Facts struct {
	Config   *config.Config
	Data     string // digest of the samples
	Schedule optim.Schedule
	Steps    int // of the whole training
}

// Memory returns the part of Memory that f determines.
func (f Facts) Memory() Memory {
	return Memory{Settings: f.Config.Canonical(), Data: f.Data, Schedule: f.Schedule.String(), End: scheduleEnd(f.Schedule)}
}

// Found is rank 0's choice of a checkpoint.
type Found struct {
	Path    string   // "" for a new training
	Skipped []string // why newer checkpoints are not usable
}

// Values of run.resume other than a path.
const (
	resumeAuto = "auto"
	resumeNone = "none"
)

// Find returns the checkpoint that rank 0's settings ask for. restarts is the number of restarts by
// the launcher.
//
// Collective: all ranks. Errors: cli.ErrUsage, on all ranks, for a checkpoint of another run.
func Find(k *exchange.Values, c *config.Config, restarts int) (Found, error) {
	return exchange.FromRank0(k, "checkpoint to resume from", func() (Found, error) { return find(c, restarts) })
}

// Open opens the checkpoint at path, which rank 0 has verified.
//
// Owns: the caller closes it, also after an error if it is not nil.
func Open(path string) (*Origin, error) {
	c, err := checkpoint.OpenAt(path, checkpoint.VerifySizes)
	if err != nil {
		return nil, err
	}
	o := &Origin{c: c, Manifest: c.Manifest()}
	text, ok := o.Manifest.Extra[MemoryKey]
	if !ok {
		return o, fmt.Errorf("checkpoint %s: written by another program: %q is missing", path, MemoryKey)
	}
	if err := json.Unmarshal(text, &o.Memory); err != nil {
		return o, fmt.Errorf("checkpoint %s: %w", path, err)
	}
	return o, nil
}

// Path returns the folder of the checkpoint.
func (o *Origin) Path() string { return o.c.Path() }

// Seek sets a sampler or a loader to the saved position.
func (o *Origin) Seek(s Position) error {
	var at data.Cursor
	if len(o.Manifest.Sampler) == 0 {
		return fmt.Errorf("checkpoint %s has no position in the samples: it was saved without a sampler, so resume it without one", o.Path())
	}
	if err := json.Unmarshal(o.Manifest.Sampler, &at); err != nil {
		return fmt.Errorf("checkpoint %s: position in the samples: %w", o.Path(), err)
	}
	if err := s.Seek(at); err != nil {
		return fmt.Errorf("checkpoint %s: %w", o.Path(), err)
	}
	return nil
}

// find returns the checkpoint that the settings of this rank ask for. After a restart by the
// launcher it prefers the newest one, which the job itself has saved.
func find(c *config.Config, restarts int) (Found, error) {
	newest, skipped, err := newestIn(c.Checkpoint.Dir)
	if err != nil {
		return Found{}, fmt.Errorf("checkpoint.dir: %w", err)
	}
	f := Found{newest.path, skipped}
	switch c.Run.Resume {
	case resumeAuto:
		return f, nil
	case resumeNone:
		f = Found{}
	default:
		c, err := checkpoint.Open(c.Run.Resume)
		if errors.Is(err, checkpoint.ErrNone) {
			return Found{}, cli.Usage("run.resume: %w", err)
		}
		if err != nil {
			return Found{}, fmt.Errorf("run.resume: %w", err)
		}
		path, err := filepath.Abs(c.Path())
		f = Found{path, rejected(c)}
		step := c.Manifest().Step
		if err := errors.Join(err, c.Close()); err != nil || newest.path == "" || newest.step <= step {
			return f, err
		}
	}
	if newest.path != "" && restarts > 0 {
		return Found{newest.path, skipped}, nil
	}
	if newest.path != "" {
		return Found{}, cli.Usage("checkpoint.dir: %s is of another run, or later than run.resume=%s: use an empty folder, or set run.resume=auto to resume from it",
			newest.path, c.Run.Resume)
	}
	return f, nil
}

// whole is a complete checkpoint.
type whole struct {
	path string
	step int
}

// Newest returns the path of the newest whole checkpoint in dir; "" if dir has no finished one.
//
// Errors: all finished checkpoints are damaged.
func Newest(dir string) (string, error) {
	newest, skipped, err := newestIn(dir)
	if err != nil || newest.path != "" {
		return newest.path, err
	}
	all, _ := checkpoint.List(dir)
	if slices.ContainsFunc(all, func(path string) bool { return !strings.HasSuffix(path, ".tmp") }) {
		err = fmt.Errorf("%s; move them away to begin a new training", strings.Join(skipped, "; "))
	}
	return "", err
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
		return whole{}, nil, err
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

// Compare compares the current settings and data with those of the checkpoint.
//
// Errors: cli.ErrUsage for a different training.
func (o *Origin) Compare(f Facts) error {
	if err := o.compare(f); err != nil {
		return cli.AsUsage(fmt.Errorf("checkpoint %s: %w", o.Path(), err))
	}
	return nil
}

func (o *Origin) compare(f Facts) error {
	if o.Memory.Settings == "" {
		return errors.New("a script wrote it, by train.Save: a run with settings cannot resume from it")
	}
	var err error
	if o.Changes, err = f.Config.Changes(o.Memory.Settings); err != nil {
		return err
	}
	var fixed []string
	scheduled := false
	for _, c := range o.Changes {
		if c.Fixed {
			fixed = append(fixed, c.String())
		}
		scheduled = scheduled || strings.HasPrefix(c.Key, "optim.schedule.") || c.Key == "optim.lr"
	}
	if len(fixed) > 0 {
		return fmt.Errorf("a different training cannot resume from it: %s; restore these settings, or start a new training with run.resume=none and another checkpoint.dir",
			strings.Join(fixed, "; "))
	}
	if now := f.Data; now != o.Memory.Data {
		return fmt.Errorf("data.path: the samples differ: %s before, %s now", o.Memory.Data, now)
	}
	if now := f.Schedule.String(); now != o.Memory.Schedule && !scheduled {
		return fmt.Errorf("optim.schedule: the new length of the run changes it to %s; it was %s; set optim.schedule.total_steps=%d to keep that",
			now, o.Memory.Schedule, o.Memory.End)
	}
	if o.Manifest.Step > f.Steps {
		return fmt.Errorf("run.max_steps: %d steps are done, and the run ends after %d: raise run.max_steps or run.epochs", o.Manifest.Step, f.Steps)
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

// Weights reads parameters into the values of their nodes.
func (o *Origin) Weights(params gorgonia.Nodes) error {
	if o == nil {
		return nil
	}
	for _, p := range params {
		b, err := ops.Elements(p.Value())
		if err != nil {
			return fmt.Errorf("parameter %s: %w", p.Name(), err)
		}
		if have, ok := o.c.Lookup(p.Name()); ok && !slices.Equal(have.Shape, []int(p.Shape())) {
			return fmt.Errorf("checkpoint %s: parameter %s has shape %v, in the model %v", o.Path(), p.Name(), have.Shape, p.Shape())
		}
		if err := o.c.Read(p.Name(), 0, b); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the files. Idempotent.
func (o *Origin) Close() error {
	if o == nil {
		return nil
	}
	return o.c.Close()
}
