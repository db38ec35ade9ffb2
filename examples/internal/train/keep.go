package train

import (
	"crypto/rand"
	"encoding/hex"
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

// keep opens the folder of checkpoints, as rank 0 says.
//
// Collective: all ranks.
func (t *trainer) keep() error {
	if !t.lead.keep {
		return nil
	}
	places, err := fromRank0(t.talk, "folder of checkpoints", t.places)
	if err != nil {
		return err
	}
	c := t.job.cfg
	k := &keeper{dir: places.Dir, every: t.lead.keepEvery}
	k.saver, err = checkpoint.New(checkpoint.Options{
		Dir: places.Dir, Keep: places.Keep, Async: places.Async, Sharded: places.Sharded,
		Rank: t.w.Rank(), Size: t.w.Size(), Timeout: c.Comm.TimeoutStep, Session: places.Session,
	})
	if err != nil {
		return fmt.Errorf("checkpoint.dir: %w", err)
	}
	k.sharded = places.Sharded
	t.keeper = k
	return nil
}

// places is what rank 0 says of the folder.
type places struct {
	Dir, Session   string
	Keep           int
	Async, Sharded bool
}

// places is rank 0's settings, with a name for this start of the program.
func (t *trainer) places() (p places, err error) {
	c := t.job.cfg.Checkpoint
	p = places{Keep: c.Keep, Async: c.Async, Sharded: c.Sharded}
	if p.Dir, err = filepath.Abs(c.Dir); err != nil {
		return p, err
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

// close waits for what is being written. Idempotent.
func (k *keeper) close() error {
	if k == nil {
		return nil
	}
	return k.saver.Close()
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
	if err := k.saver.Wait(); err != nil {
		return "", err
	}
	return k.path(k.written[len(k.written)-1]), rank.Done(t.w.Barrier())
}
