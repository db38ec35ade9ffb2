package train

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/examples/internal/rank"
)

// keeper leaves checkpoints. A nil one leaves none.
type keeper struct {
	saver   *checkpoint.Saver
	dir     string
	every   int   // steps between two; 0 means none but the last
	sharded bool  // each rank writes its part
	written []int // steps of those saved by this run
}

// keep opens the folder of checkpoints, as rank 0 says, which locks it.
//
// Collective: all ranks. Errors: a *checkpoint.LockedError on all ranks if another run saves there.
func (t *trainer) keep() error {
	if !t.lead.keep {
		return nil
	}
	k := &keeper{every: t.lead.keepEvery}
	places, err := fromRank0(t.talk, "folder of checkpoints", func() (places, error) { return t.locked(k) })
	if k.saver != nil {
		t.keeper = k // which is closed whatever comes
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

// locked opens the folder on rank 0. One that another run has is no error of this rank alone.
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

// keeps is how this rank saves.
func (t *trainer) keeps(p places) checkpoint.Options {
	return checkpoint.Options{
		Dir: p.Dir, Keep: p.Keep, Async: p.Async, Sharded: p.Sharded,
		Rank: t.w.Rank(), Size: t.w.Size(), Timeout: t.job.cfg.Comm.TimeoutStep, Session: p.Session,
		Context: t.ends.group, Stop: t.ends.signal,
	}
}

// places is rank 0's description of the folder.
type places struct {
	Dir, Session   string
	Keep           int
	Async, Sharded bool
	Locked         *checkpoint.LockedError // nil unless another run saves there
}

// places is rank 0's settings, with a name for this start of the program.
//
// Errors: usageError for the folder of one checkpoint.
func (t *trainer) places() (p places, err error) {
	c := t.job.cfg.Checkpoint
	p = places{Keep: c.Keep, Async: c.Async, Sharded: c.Sharded}
	if p.Dir, err = filepath.Abs(c.Dir); err != nil {
		return p, err
	}
	if checkpoint.Is(p.Dir) {
		return p, Usage("%s is, or is called like, the folder of one checkpoint: name the folder that it is in, or set run.resume to it and name another",
			p.Dir)
	}
	session := make([]byte, 8)
	_, _ = rand.Read(session) // never fails
	p.Session = hex.EncodeToString(session)
	return p, nil
}

// due reports whether a checkpoint is to be left after so many steps of all.
func (k *keeper) due(step, steps int) bool {
	return k != nil && (step == steps || k.every > 0 && step%k.every == 0)
}

// close waits for the present save. Idempotent.
func (k *keeper) close() error {
	if k == nil {
		return nil
	}
	return k.saver.Close()
}

// abandon is close for a run that has failed and cannot wait. Idempotent.
func (k *keeper) abandon() error {
	if k == nil {
		return nil
	}
	return k.saver.Abandon()
}

// forgiven returns an error of a save, unless it only means that an older checkpoint cannot be
// removed: it then prints a warning, and the training continues.
func (t *trainer) forgiven(err error) error {
	old, failed := (*checkpoint.PruneError)(nil), (*checkpoint.SaveError)(nil)
	if !errors.As(err, &old) || errors.As(err, &failed) {
		return err
	}
	return t.say("warning    %v\n", old)
}

// path is where the checkpoint of a step is.
func (k *keeper) path(step int) string {
	return filepath.Join(k.dir, fmt.Sprintf("step-%08d", step))
}

// last waits until the last checkpoint is whole, on all ranks.
//
// Collective: all ranks. Returns: where it is.
func (t *trainer) last() (string, error) {
	k := t.keeper
	if err := t.forgiven(k.saver.Wait()); err != nil {
		return "", err
	}
	return k.path(k.written[len(k.written)-1]), rank.Done(t.w.Barrier())
}
