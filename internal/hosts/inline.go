package hosts

import (
	"sync"

	"github.com/symgrad/symgrad/dist"
)

// Guard implements dist.Inliner. The transport has a lock of its own.
func (t *Transport) Guard(sync.Locker) {}

// Inline implements dist.Inliner.
func (t *Transport) Inline(op *dist.Op) error {
	t.turns.mu.Lock()
	turn := t.turns.next
	ahead := turn != t.turns.turn
	if !t.turns.closed {
		t.turns.next++
	}
	closed := t.turns.closed
	t.turns.mu.Unlock()
	if closed {
		return dist.ErrClosed
	}
	if ahead {
		op.Blocks()
		t.turns.take(turn)
	}
	t.op = op
	err := t.run(op)
	t.op = &queued
	op.Resume()
	t.turns.end()
	return err
}

// queued stands for an operation that does not run on its caller.
var queued dist.Op
