package dist_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
)

func TestContextEndsWithTheGroup(t *testing.T) {
	mine, abort := errors.New("mine"), errors.New("enough")
	for name, c := range map[string]struct {
		end  func(w *dist.World, cancel context.CancelCauseFunc) error
		want error
	}{
		"abort":  {func(w *dist.World, _ context.CancelCauseFunc) error { return w.Abort(abort) }, dist.ErrAborted},
		"close":  {func(w *dist.World, _ context.CancelCauseFunc) error { return w.Close() }, dist.ErrClosed},
		"parent": {func(_ *dist.World, cancel context.CancelCauseFunc) error { cancel(mine); return nil }, mine},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				worlds, err := sim.New(2, sim.Config{})
				if err != nil {
					t.Fatal(err)
				}
				parent, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				ctx, release := worlds[0].Context(parent)
				if err := worlds[0].Err(); ctx.Err() != nil || err != nil {
					t.Errorf("the group is whole, and its context ended: %v, %v", context.Cause(ctx), err)
				}
				if err := c.end(worlds[0], cancel); err != nil {
					t.Error(err)
				}
				<-ctx.Done()
				if got := context.Cause(ctx); !errors.Is(got, c.want) {
					t.Errorf("cause %v, want %v", got, c.want)
				}
				release()
				for _, w := range worlds {
					_ = w.Close() // whatever an aborted one says
				}
			})
		})
	}
}

// A released context ends without a trace; the group goes on.
func TestReleasedContextLeavesTheGroup(t *testing.T) {
	inWorld(t, 2, func(w *dist.World) error {
		ctx, release := w.Context(context.Background())
		release()
		release()
		if ctx.Err() == nil {
			t.Error("the context has not ended")
		}
		work, err := w.Barrier()
		return errors.Join(err, work.Wait(), w.Err())
	})
}
