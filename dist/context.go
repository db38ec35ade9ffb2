package dist

import (
	"context"
	"time"
)

// breakable is a transport that knows that its group is broken without an operation of the caller.
type breakable interface {
	// Broken is why the group is broken; nil while it is whole, and after Close. Any goroutine may
	// call it.
	Broken() error
}

// Err is why the group is broken: the death of a rank, an abort, a timeout. It waits for nothing
// and queues nothing.
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

// sight is how long a group may be broken until its contexts end: far less than a user notices, far
// more than a look takes.
const sight = 50 * time.Millisecond

// Context is a context that ends when the group breaks, with Err as its cause, or when parent does.
// It is for work that waits for other ranks by other means than the group's operations, or does
// without them for long: files that all write, data that are read.
//
// Owns: the caller calls release, which returns when nothing of the context is left to do.
func (g *Group) Context(parent context.Context) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(parent)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		look := time.NewTicker(sight)
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
