package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/train/internal/exchange"
	"github.com/symgrad/symgrad/train/internal/save"
)

// State is the training of a script with a loop of its own, for Save and Resume.
type State struct {
	World  *dist.World
	DDP    *ddp.DDP
	Solver optim.Solver // that updates the weights: of DDP.NewSolver, or of the machine
	// The fields above are required, those below are not.

	Sampler *data.Sampler     // whose position is saved; nil for none
	Loader  *data.Loader      // the same, for samples that are read ahead, without Sampler
	Scaler  *optim.LossScaler // of the loss; nil for none
	Machine *machine.Machine  // that runs the graph; nil for a tape machine
	Keep    int               // number of checkpoints that stay in the folder; 0 means all
	// Extra has JSON texts for other programs, for Manifest.Extra of package checkpoint, such as
	// the configuration of the model. The key "train" is taken.
	Extra map[string]json.RawMessage
}

// Save writes a checkpoint of s after step into dir: weights, and the state of solver, gradient
// compression, sampler and loss scale. Rank 0 writes one file, whatever ddp.Config.Stage is. With
// ddp.Config.LocalSteps it averages the weights first.
//
// Collective: all ranks, between steps. Returns: when the checkpoint is complete. Errors: on all
// ranks; dist.ErrInvalid for a missing field; those of package checkpoint; a weight that is not
// finite, which is not saved.
func Save(dir string, step int, s State) (err error) {
	if err := s.check(); err != nil {
		return err
	}
	k := exchange.New(s.World)
	defer func() { err = errors.Join(err, k.Close()) }()
	t, err := s.training(k)
	if err != nil {
		return err
	}
	meta, runs, err := t.Snapshot(step, save.Memory{}, s.position(), false)
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", step, err)
	}
	meta.Solver.Skipped = s.Solver.Skipped()
	annotate(meta.Extra, s.Extra)
	_, err = exchange.FromRank0(k, "checkpoint", func() (bool, error) { return true, s.write(dir, meta, runs) })
	return err
}

// write writes a checkpoint on rank 0.
func (s State) write(dir string, meta checkpoint.Meta, runs []checkpoint.Run) error {
	alive, release := s.World.Context(context.Background()) // ends when a rank dies
	defer release()
	saver, err := checkpoint.New(checkpoint.Options{Dir: dir, Keep: s.Keep, Size: s.World.Size(), Context: alive})
	if err != nil {
		return err
	}
	return errors.Join(saver.Save(meta, runs), saver.Close())
}

// Resume sets s to the newest complete checkpoint in dir, which any number of ranks may have saved
// with any ddp.Config.Stage. It passes over damaged checkpoints, unless all are.
//
// Collective: all ranks, before the first step. Returns: the step of the checkpoint; 0 if dir has
// no finished checkpoint. Errors: on all ranks, after which s may have some of the saved values;
// dist.ErrInvalid for a missing field; those of package checkpoint; no checkpoint that is whole; a
// parameter with another shape; a sampler or loader, if the checkpoint was saved without one.
func Resume(dir string, s State) (step int, err error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	k := exchange.New(s.World)
	defer func() { err = errors.Join(err, k.Close()) }()
	path, err := exchange.FromRank0(k, "checkpoint to resume from", func() (string, error) { return save.Newest(dir) })
	if err != nil || path == "" {
		return 0, err
	}
	o, err := save.Open(path)
	if o != nil {
		defer func() { err = errors.Join(err, o.Close()) }()
	}
	if err != nil {
		return 0, err
	}
	t, err := s.training(k)
	if err != nil {
		return 0, err
	}
	if at := s.position(); at != nil {
		if err := o.Seek(at); err != nil {
			return 0, err
		}
	}
	if err := o.Weights(t.Params); err != nil {
		return 0, err
	}
	if s.Machine != nil {
		s.Machine.Load()
	}
	if err := o.Restore(t); err != nil {
		return 0, err
	}
	return o.Manifest.Step, nil
}

// check returns an error if a required field is missing, as it is on all ranks of a script.
func (s State) check() error {
	for _, f := range []struct {
		missing bool
		name    string
	}{{s.World == nil, "World"}, {s.DDP == nil, "DDP"}, {s.Solver == nil, "Solver"}} {
		if f.missing {
			return fmt.Errorf("train: %w: State.%s is nil: set World, DDP and Solver", dist.ErrInvalid, f.name)
		}
	}
	if s.Sampler != nil && s.Loader != nil {
		return fmt.Errorf("train: %w: State has a Sampler and a Loader: the position is the loader's, so leave out Sampler", dist.ErrInvalid)
	}
	return nil
}

// position returns the object whose position in the samples is saved, or nil.
func (s State) position() save.Position {
	switch {
	case s.Loader != nil:
		return s.Loader
	case s.Sampler != nil:
		return s.Sampler
	}
	return nil
}

// training returns s as a checkpoint stores it, with whole weights in the nodes.
//
// Collective: all ranks.
func (s State) training(k *exchange.Values) (*save.Training, error) {
	if err := s.DDP.Consolidate(); err != nil {
		return nil, err
	}
	if err := s.DDP.AverageWeights(); err != nil {
		return nil, err
	}
	if s.Machine != nil {
		if err := s.Machine.Sync(); err != nil {
			return nil, err
		}
	}
	t := &save.Training{Values: k, DDP: s.DDP, Solver: s.Solver, Scaler: s.Scaler}
	for _, p := range s.DDP.Model() {
		n, ok := p.(*gorgonia.Node)
		if !ok {
			return nil, fmt.Errorf("parameter %d is a %T, not a node", len(t.Params), p)
		}
		t.Params = append(t.Params, n)
	}
	return t, nil
}
