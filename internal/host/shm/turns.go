package shm

import (
	"sync"

	"github.com/symgrad/symgrad/dist"
)

// turns orders the operations of a group: they run one after the other, on any stream.
type turns struct {
	mu       sync.Locker // the group's lock; guards the fields below
	turned   sync.Cond
	next     uint64 // next turn to assign
	turn     uint64 // running turn
	sleepers int    // goroutines that wait for their turn
	closed   bool
}

func (q *turns) guard(mu sync.Locker) { q.mu, q.turned.L = mu, mu }

// assign returns a new turn. The lock is held.
func (q *turns) assign() uint64 {
	q.next++
	return q.next - 1
}

// take returns when the caller's turn comes. The lock is held.
func (q *turns) take(turn uint64) {
	q.sleepers++
	for q.turn != turn {
		q.turned.Wait()
	}
	q.sleepers--
}

// end passes the turn on. The lock is held.
func (q *turns) end() {
	q.turn++
	if q.sleepers != 0 {
		q.turned.Broadcast()
	}
}

// wait and done are take and end for a caller without the lock.
func (q *turns) wait(turn uint64) {
	q.mu.Lock()
	q.take(turn)
	q.mu.Unlock()
}

func (q *turns) done() {
	q.mu.Lock()
	q.end()
	q.mu.Unlock()
}

// begin assigns a turn to the caller and returns when it comes.
//
// Errors: ErrClosed, without a turn, after close.
func (q *turns) begin() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return dist.ErrClosed
	}
	q.take(q.assign())
	if q.closed { // by an earlier turn
		q.end()
		return dist.ErrClosed
	}
	return nil
}

// close ends the turns after those assigned before. It reports whether they had been closed.
func (q *turns) close() (before bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.take(q.assign())
	before, q.closed = q.closed, true
	q.end()
	return before
}
