package save

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/internal/tool/cli"
	"github.com/symgrad/symgrad/train/internal/exchange"
)

// Folder is the folder in which a run saves checkpoints. A nil Folder is that of a run that saves
// none.
type Folder struct {
	o       Options
	saver   *checkpoint.Saver
	dir     string
	sharded bool  // each rank writes its own part
	written []int // steps of the checkpoints saved by this run
}

// Options are the settings of a Folder.
type Options struct {
	Checkpoint    config.Checkpoint
	Every         int               // steps between checkpoints, of rank 0; 0 means only at the end
	Timeout       time.Duration     // for the files of other ranks
	Group, Signal context.Context   // end after a death or an abort, and after a signal
	Warn          func(error) error // reports that an older checkpoint cannot be removed
}

// NewFolder opens and locks the folder, with the settings of rank 0.
//
// Collective: all ranks. Owns: the caller closes the folder, also after an error if it is not nil.
// Errors: a *checkpoint.LockedError on all ranks if another run saves there.
func NewFolder(k *exchange.Values, o Options) (*Folder, error) {
	f := &Folder{o: o}
	at, err := exchange.FromRank0(k, "folder of checkpoints", func() (places, error) { return f.lock(k) })
	if at.Locked != nil {
		err = errors.Join(err, at.Locked)
	}
	if err == nil && f.saver == nil {
		f.saver, err = checkpoint.New(f.options(k, at))
	}
	f.dir, f.sharded = at.Dir, at.Sharded
	switch {
	case err == nil:
		return f, nil
	case f.saver == nil:
		f = nil
	}
	return f, fmt.Errorf("checkpoint.dir: %w", err)
}

// lock opens the folder on rank 0. It reports a folder locked by another run in places, for all
// ranks.
func (f *Folder) lock(k *exchange.Values) (places, error) {
	at, err := placesOf(f.o.Checkpoint)
	if err != nil {
		return at, err
	}
	f.saver, err = checkpoint.New(f.options(k, at))
	if errors.As(err, &at.Locked) {
		return at, nil
	}
	return at, err
}

// options returns the options of this rank's saver.
func (f *Folder) options(k *exchange.Values, p places) checkpoint.Options {
	return checkpoint.Options{
		Dir: p.Dir, Keep: p.Keep, Async: p.Async, Sharded: p.Sharded,
		Rank: k.World().Rank(), Size: k.World().Size(), Timeout: f.o.Timeout, Session: p.Session,
		Context: f.o.Group, Stop: f.o.Signal,
	}
}

// places are rank 0's settings of the folder.
type places struct {
	Dir, Session   string
	Keep           int
	Async, Sharded bool
	Locked         *checkpoint.LockedError // nil unless another run saves there
}

// placesOf returns the settings, with a name for this start of the program.
//
// Errors: cli.ErrUsage if the folder is itself a checkpoint.
func placesOf(c config.Checkpoint) (p places, err error) {
	p = places{Keep: c.Keep, Async: c.Async, Sharded: c.Sharded}
	if p.Dir, err = filepath.Abs(c.Dir); err != nil {
		return p, err
	}
	if checkpoint.Is(p.Dir) {
		return p, cli.Usage("%s is a single checkpoint, or is named like one: use its parent folder, or set run.resume to it and checkpoint.dir to another folder",
			p.Dir)
	}
	session := make([]byte, 8)
	_, _ = rand.Read(session) // never fails
	p.Session = hex.EncodeToString(session)
	return p, nil
}

// Due reports whether to save a checkpoint after step of steps.
func (f *Folder) Due(step, steps int) bool {
	return f != nil && (step == steps || f.o.Every > 0 && step%f.o.Every == 0)
}

// Sharded reports whether each rank writes its own part of a checkpoint.
func (f *Folder) Sharded() bool { return f.sharded }

// Save writes a checkpoint.
//
// Collective: all ranks.
func (f *Folder) Save(meta checkpoint.Meta, runs []checkpoint.Run) error {
	if err := f.forgiven(f.saver.Save(meta, runs)); err != nil {
		return err
	}
	f.written = append(f.written, meta.Step)
	return nil
}

// Close waits for unfinished writes. Idempotent.
func (f *Folder) Close() error {
	if f == nil {
		return nil
	}
	return f.forgiven(f.saver.Close())
}

// Abandon is Close without waiting, for a failed run. Idempotent.
func (f *Folder) Abandon() error {
	if f == nil {
		return nil
	}
	return f.saver.Abandon()
}

// forgiven returns err, unless it only says that an older checkpoint cannot be removed. That is a
// warning, and the training continues.
func (f *Folder) forgiven(err error) error {
	old, failed := (*checkpoint.PruneError)(nil), (*checkpoint.SaveError)(nil)
	if !errors.As(err, &old) || errors.As(err, &failed) {
		return err
	}
	return f.o.Warn(old)
}

// Last waits until the last checkpoint is complete on all ranks.
//
// Collective: all ranks. Returns: its path.
func (f *Folder) Last(k *exchange.Values) (string, error) {
	if err := f.forgiven(f.saver.Wait()); err != nil {
		return "", err
	}
	return f.Path(f.written[len(f.written)-1]), exchange.Done(k.World().Barrier())
}

// Path returns the path of the checkpoint of a step.
func (f *Folder) Path(step int) string {
	return filepath.Join(f.dir, fmt.Sprintf("step-%08d", step))
}

// Dir returns the folder's path.
func (f *Folder) Dir() string { return f.dir }

// Written returns the steps of the checkpoints that this run has saved.
func (f *Folder) Written() []int {
	if f == nil {
		return nil
	}
	return f.written
}

// Unlocked returns why no lock keeps other runs from saving here; nil if a lock does.
func (f *Folder) Unlocked() error { return f.saver.Unlocked() }
