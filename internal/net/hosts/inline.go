package hosts

import (
	"runtime"
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
	if turn%scheduleEvery == 0 {
		runtime.Gosched()
	}
	return err
}

// scheduleEvery is the number of operations between two calls of the Go scheduler. Without a call
// for 10 ms, the runtime takes the processor from each call of C, every 20 us.
const scheduleEvery = 256

// queued stands for an operation that does not run on its caller.
var queued dist.Op
