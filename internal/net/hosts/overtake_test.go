package hosts_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/net/hosts"
	"github.com/symgrad/symgrad/internal/net/wire/fake"
	"github.com/symgrad/symgrad/symmetric"
)

// slowRounds delays the messages of exchanges to the last host, so that others overtake them.
func slowRounds(_, to, bytes int) time.Duration {
	if to >= 2 && bytes%64 == 0 {
		return 20 * time.Millisecond
	}
	return 0
}

// TestAbortDoesNotOvertakeASplit: rank 0 aborts the world after a Split, which the others still
// complete.
func TestAbortDoesNotOvertakeASplit(t *testing.T) {
	worlds := open(t, 4, layouts["halves"], hosts.Config{}, fake.Config{Delay: slowRounds})
	conformance.Drive(t, worlds, func(w *dist.World) error {
		part, err := w.Split(0, 0)
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			if err := w.Abort(errors.New("enough")); err != nil {
				return err
			}
		}
		if err := finish(w.Barrier()); !errors.Is(err, dist.ErrAborted) {
			return fmt.Errorf("error %w, want %w", err, dist.ErrAborted)
		}
		return finish(part.Barrier())
	})
}

// late is a transport whose Heap waits a moment, or until the channel is closed.
type late struct {
	dist.Transport
	until <-chan struct{}
}

func (l late) Heap(bytes int64) (symmetric.Heap, error) {
	h, err := l.Transport.Heap(bytes)
	select {
	case <-l.until:
	case <-time.After(50 * time.Millisecond):
	}
	return h, err
}

// TestAbortDoesNotOvertakeOpen: rank 0 aborts the world as soon as it is open, and rank 3 opens it
// late.
func TestAbortDoesNotOvertakeOpen(t *testing.T) {
	aborted := make(chan struct{})
	parties, _ := parties(t, 4, layouts["halves"], hosts.Config{}, fake.Config{Delay: slowRounds})
	parties[3].Inner = late{parties[3].Inner, aborted}
	openAll(t, parties, hosts.Config{}, func(w *dist.World) error {
		if w.Rank() == 0 {
			if err := w.Abort(errors.New("enough")); err != nil {
				return err
			}
			close(aborted)
		}
		err := finish(w.Barrier())
		if !errors.Is(err, dist.ErrAborted) {
			err = fmt.Errorf("error %w, want %w", err, dist.ErrAborted)
		} else {
			err = nil
		}
		return errors.Join(err, w.Close())
	})
}
