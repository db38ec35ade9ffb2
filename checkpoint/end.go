package checkpoint

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// endPatience is the time that a call waits, after the end of Options.Context, for a save in the
// background that is also ending. The save's error has more detail, but a write that the disk
// blocks must not block the caller.
const endPatience = time.Second

// stopPatience is the time that rank 0 waits, after the end of Options.Stop, for files that do not
// grow.
const stopPatience = 2 * time.Second

// flushBytes is the number of bytes between two flushes of a file. The last flush is then short,
// and a file that does not grow belongs to a rank that does not write.
const flushBytes = 64 << 20

// cause returns the cause of the end of Options.Context, or nil before its end.
func (s *Saver) cause() error {
	if c := s.o.Context; c != nil && c.Err() != nil {
		return context.Cause(c)
	}
	return nil
}

// causeSoon is cause after a short wait: another rank may have noticed the end before this one.
func (s *Saver) causeSoon() error {
	if s.o.Context == nil {
		return nil
	}
	late := time.NewTimer(endPatience)
	defer late.Stop()
	select {
	case <-s.o.Context.Done():
	case <-late.C:
	}
	return s.cause()
}

// done returns a channel that is closed at the end of c; nil without a context.
func done(c context.Context) <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.Done()
}

// await returns when the save in the background has ended, or endPatience after the end of
// Options.Context.
//
// Errors: that of the save, or the context's cause.
func (s *Saver) await() error {
	select {
	case <-s.running:
		return nil
	case <-done(s.o.Context):
	}
	late := time.NewTimer(endPatience)
	defer late.Stop()
	select {
	case <-s.running:
		return nil
	case <-late.C:
		return fmt.Errorf("checkpoint: rank %d: a save is still being written: %w", s.o.Rank, context.Cause(s.o.Context))
	}
}

// ending writes to a file until the Saver's context ends.
type ending struct {
	file
	s *Saver
}

func (e ending) Write(p []byte) (int, error) {
	if err := e.s.cause(); err != nil {
		return 0, err
	}
	return e.file.Write(p)
}

// stall watches the files of the ranks that rank 0 waits for, after Options.Stop has ended.
type stall struct {
	sizes []int64
	since time.Time // time of the last change; zero before the end of Stop
}

// check returns an error if Options.Stop has ended and the files of the missing ranks have not
// grown for stopPatience.
func (s *Saver) check(w *stall, staging string, missing []int) error {
	stop := s.o.Stop
	if stop == nil || stop.Err() == nil {
		return nil
	}
	sizes := []int64{int64(len(missing))}
	for _, rank := range missing {
		name := fileName(rank, s.files(), s.o.Sharded)
		for _, name := range []string{name, temporaryName(name)} {
			n, err := s.sys.Size(filepath.Join(staging, name))
			if err != nil {
				n = -1
			}
			sizes = append(sizes, n)
		}
	}
	if now := time.Now(); w.since.IsZero() || !slices.Equal(sizes, w.sizes) {
		w.sizes, w.since = sizes, now
	} else if now.Sub(w.since) > stopPatience {
		return fmt.Errorf("%w: rank %s has written nothing for %v: is it alive, and does it see %s? rank 0 stops waiting: %w",
			ErrTimeout, ranksText(missing), stopPatience, s.o.Dir, context.Cause(stop))
	}
	return nil
}
