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
	if err := g.open(); err != nil {
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
