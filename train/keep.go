package train

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/internal/cli"
	"github.com/symgrad/symgrad/train/internal/exchange"
)

// keeper saves checkpoints. A nil keeper saves none.
type keeper struct {
	saver   *checkpoint.Saver
	dir     string
	every   int   // steps between checkpoints; 0 means only at the end
	sharded bool  // each rank writes its own part
	written []int // steps of the checkpoints saved by this run
}

// keep opens and locks the folder of checkpoints, with the settings of rank 0.
//
// Collective: all ranks. Errors: a *checkpoint.LockedError on all ranks if another run saves there.
func (t *trainer) keep() error {
	if !t.rank0Settings.keep {
		return nil
	}
	k := &keeper{every: t.rank0Settings.keepEvery}
	places, err := exchange.FromRank0(t.exchanger, "folder of checkpoints", func() (places, error) { return t.locked(k) })
	if k.saver != nil {
		t.keeper = k // closed even after an error
	}
	if places.Locked != nil {
		err = errors.Join(err, places.Locked)
	}
	if err == nil && k.saver == nil {
		k.saver, err = checkpoint.New(t.keeps(places))
	}
	if err != nil {
		return fmt.Errorf("checkpoint.dir: %w", err)
	}
	k.dir, k.sharded = places.Dir, places.Sharded
	t.keeper = k
	return nil
}

// locked opens the folder on rank 0. It reports a folder locked by another run in places, for all
// ranks.
func (t *trainer) locked(k *keeper) (places, error) {
	p, err := t.places()
	if err != nil {
		return p, err
	}
	k.saver, err = checkpoint.New(t.keeps(p))
	if errors.As(err, &p.Locked) {
		return p, nil
	}
	return p, err
}

// keeps returns the options of this rank's saver.
func (t *trainer) keeps(p places) checkpoint.Options {
	return checkpoint.Options{
		Dir: p.Dir, Keep: p.Keep, Async: p.Async, Sharded: p.Sharded,
		Rank: t.w.Rank(), Size: t.w.Size(), Timeout: t.job.cfg.Comm.TimeoutStep, Session: p.Session,
		Context: t.ends.group, Stop: t.ends.signal,
	}
}

// places are rank 0's settings of the folder.
type places struct {
	Dir, Session   string
	Keep           int
	Async, Sharded bool
	Locked         *checkpoint.LockedError // nil unless another run saves there
}

// places returns rank 0's settings, with a name for this start of the program.
//
// Errors: cli.ErrUsage if the folder is itself a checkpoint.
func (t *trainer) places() (p places, err error) {
	c := t.job.cfg.Checkpoint
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

// due reports whether to save a checkpoint after step of steps.
func (k *keeper) due(step, steps int) bool {
	return k != nil && (step == steps || k.every > 0 && step%k.every == 0)
}

// close waits for unfinished writes. Idempotent.
func (k *keeper) close() error {
	if k == nil {
		return nil
	}
	return k.saver.Close()
}

// abandon is close without waiting, for a failed run. Idempotent.
func (k *keeper) abandon() error {
	if k == nil {
		return nil
	}
	return k.saver.Abandon()
}

// forgiven returns err, unless it only says that an older checkpoint cannot be removed. That is a
// warning, and the training continues.
func (t *trainer) forgiven(err error) error {
	old, failed := (*checkpoint.PruneError)(nil), (*checkpoint.SaveError)(nil)
	if !errors.As(err, &old) || errors.As(err, &failed) {
		return err
	}
	return t.say("warning    %v\n", old)
}

// path returns the path of the checkpoint of a step.
func (k *keeper) path(step int) string {
	return filepath.Join(k.dir, fmt.Sprintf("step-%08d", step))
}

// last waits until the last checkpoint is complete on all ranks.
//
// Collective: all ranks. Returns: its path.
func (t *trainer) last() (string, error) {
	k := t.keeper
	if err := t.forgiven(k.saver.Wait()); err != nil {
		return "", err
	}
	return k.path(k.written[len(k.written)-1]), exchange.Done(t.w.Barrier())
}
