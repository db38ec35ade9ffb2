package dist

import (
	"context"
	"time"
)

// breakable is a transport that detects a broken group without an operation of the caller.
type breakable interface {
	// Broken returns why the group is broken; nil while it is whole, and after Close. Any goroutine
	// may call it.
	Broken() error
}

// Err returns why the group is broken: the death of a rank, an abort, a timeout. It neither waits
// nor queues anything.
//
// Returns: nil while the group is whole, ErrClosed after Close. Errors: ErrAborted, also by the
// RankError of a rank that died; ErrMismatch, ErrTimeout, ErrClosed.
func (g *Group) Err() error {
	if err := g.c.open(); err != nil {
		return err
	}
	if t, ok := g.c.t.(breakable); ok {
		return t.Broken()
	}
	return nil
}

// pollInterval is the time between two checks of a group: too short for a user to notice, and far
// longer than a check takes.
const pollInterval = 50 * time.Millisecond

// Context returns a context that ends when the group breaks, with Err as its cause, or when parent
// does. Use it for work without operations of the group, such as reading data, or that waits for
// ranks by other means, such as files.
//
// Owns: the caller calls release, which returns when the context's goroutine has ended.
func (g *Group) Context(parent context.Context) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(parent)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		look := time.NewTicker(pollInterval)
		defer look.Stop()
		for {
			if err := g.Err(); err != nil {
				cancel(err)
				return
			}
			select {
			case <-look.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-ended
	}
}

// Notifier is a Transport whose ranks may be on several hosts. Its ranks send each other notes,
// short messages outside the order of operations. Package internal/gpu compares the operations of
// hosts by notes.
type Notifier interface {
	// Hosts returns the host of each rank. Hosts are numbered in the order of their first rank.
	Hosts() []int
	// Notify sends note to a rank and returns. Notes of one rank arrive in order.
	//
	// Owns: note is copied. Errors: ErrInvalid for a rank outside the group, and a long note.
	Notify(rank int, note []byte) error
	// OnNote sets the function that gets the notes for this rank; nil drops them. Calls come one at
	// a time, on any goroutine, and must not wait. After OnNote returns, no earlier function runs.
	OnNote(f func(from int, note []byte))
	// Progress delivers the notes that have arrived. A rank that polls for one calls it; otherwise
	// notes are delivered within some milliseconds.
	Progress()
	// Broken returns why the group is broken; nil while it is whole.
	Broken() error
}

// Notifier returns the group's transport if its ranks may be on several hosts, else nil.
func (g *Group) Notifier() Notifier {
	n, _ := g.c.t.(Notifier)
	return n
}
