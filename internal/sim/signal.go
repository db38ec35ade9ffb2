package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// Ring implements hostheap.Host.
func (h *host) Ring(rank int, _, _ int64) {
	if h.mem.asleep[rank].Load() == 0 {
		return
	}
	h.t.b.u.mu.Lock()
	defer h.t.b.u.mu.Unlock()
	h.t.b.changed.Broadcast()
}

// Await implements hostheap.Host: it checks after every change on the board.
func (h *host) Await(ctx context.Context, _, _ int64, done, leave func() bool) error {
	b := h.t.b
	look := func() {
		b.u.mu.Lock()
		defer b.u.mu.Unlock()
		b.changed.Broadcast()
	}
	defer context.AfterFunc(ctx, look)()
	limit := b.u.cfg.StepTimeout
	expires := time.Now().Add(limit)
	defer time.AfterFunc(limit, look).Stop()

	asleep := &h.mem.asleep[h.t.rank]
	asleep.Add(1) // before the check, because a writer looks for sleepers after its write
	defer asleep.Add(-1)
	b.u.mu.Lock()
	defer b.u.mu.Unlock()
	for !done() && !leave() {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case b.broken != nil:
			return b.broken
		case b.alone(h.t.rank):
			return fmt.Errorf("all other ranks have closed their ends: %w", dist.ErrClosed)
		case !time.Now().Before(expires):
			return fmt.Errorf("%w after %v", dist.ErrTimeout, limit)
		}
		b.changed.Wait()
	}
	return nil
}
