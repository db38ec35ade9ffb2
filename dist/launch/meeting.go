package launch

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/symgrad/symgrad/dist"
)

// errOver is the reply to a rank that returns to a store with a single meeting.
var errOver = errors.New("this meeting is over")

// errTaken is the error of a launcher whose node another one has, which may be lost.
var errTaken error = &refusal{"another launcher has this node", dist.ErrInvalid}

// errLeft is the error of ranks that wait for rank, which has left.
func errLeft(rank int) error {
	return &dist.RankError{Rank: rank, How: "it left before all ranks had come"}
}

// meeting is one rendezvous of a job's ranks: they join, share a table, and leave. A rank that
// closes its world and opens another joins the next meeting, whose table is empty.
type meeting struct {
	*table
	joined []bool
	absent int           // ranks that have not joined
	met    chan struct{} // closed when absent is 0
	left   int           // ranks that have said goodbye
	quit   error         // why the meeting fails although all have joined; constant once met is closed
}

// wait returns when all ranks have joined.
//
// Errors: dist.RankError for a rank that died, will not join, or left before all had joined; ctx's.
func (m *meeting) wait(ctx context.Context) error {
	select {
	case <-m.met:
		return m.quit
	case <-m.failed:
		select {
		case <-m.met: // met came first: a rank may leave as soon as all have joined
			return m.quit
		default:
			return m.table.err()
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// roster tracks the meeting of each rank.
type roster struct {
	mu       sync.Mutex
	noun     string           // a member: "rank" or "node"
	once     bool             // serve a single meeting
	present  []bool           // has joined a meeting and not left it
	joins    []int            // number of meetings joined
	gone     []string         // end of its process, if it has ended
	meetings map[int]*meeting // by number, until all ranks have left
	cause    error            // why Gets fail
	failed   chan struct{}    // closed when there is a cause
	closed   bool
}

func newRoster(size int, once bool) *roster {
	return &roster{
		noun: "rank", once: once, present: make([]bool, size), joins: make([]int, size), gone: make([]string, size), meetings: map[int]*meeting{},
		failed: make(chan struct{}),
	}
}

// join adds rank to its next meeting.
func (r *roster) join(rank int) (*meeting, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed || (r.once && r.joins[rank] > 0 && !r.present[rank]):
		return nil, errOver
	case r.present[rank] && r.noun == "node":
		return nil, fmt.Errorf("node %d has joined already: two launchers have this --node-rank: %w", rank, errTaken)
	case r.present[rank]:
		return nil, fmt.Errorf("rank %d has joined already: two processes of this job have one rank, or one meets again before closing its store: %w",
			rank, dist.ErrInvalid)
	}
	m := r.meetingLocked(r.joins[rank])
	r.joins[rank]++
	r.present[rank] = true
	m.joined[rank] = true
	if m.absent--; m.absent == 0 {
		if cause := m.table.err(); cause != nil {
			m.quit = cause
		}
		close(m.met)
	}
	return m, nil
}

func (r *roster) meetingLocked(number int) *meeting {
	if m := r.meetings[number]; m != nil {
		return m
	}
	size := len(r.joins)
	m := &meeting{table: newTable(), joined: make([]bool, size), absent: size, met: make(chan struct{})}
	r.meetings[number] = m
	if r.cause != nil {
		m.fail(r.cause)
	}
	for rank, how := range r.gone {
		if how != "" && r.joins[rank] <= number {
			m.fail(&dist.RankError{Rank: rank, How: how})
		}
	}
	return m
}

// leave ends rank's part in m, which it joined. If others have not joined yet, the meeting ends at
// once. An earlier cause of failure stays, since rank leaves because of it.
func (r *roster) leave(rank int, m *meeting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.absent > 0 {
		m.fail(errLeft(rank))
	}
	r.leaveLocked(rank, m)
}

// giveUp is leave for a rank that has waited too long. It fails the meeting only once all have
// joined; until then the error of waiting ranks should name the missing ones.
func (r *roster) giveUp(rank int, m *meeting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.absent > 0 && m.quit == nil {
		m.quit = errLeft(rank)
	}
	r.leaveLocked(rank, m)
}

func (r *roster) leaveLocked(rank int, m *meeting) {
	r.present[rank] = false
	if m.left++; m.left == len(r.joins) {
		delete(r.meetings, r.joins[rank]-1)
	}
}

// vanish records that rank is lost. Its successor waits for the next store.
func (r *roster) vanish(rank int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.present[rank] = false
}

// exit records that the process of rank has ended with code 0 and will join no more meetings. If it
// has not left its meeting, that counts as a death.
func (r *roster) exit(rank int, how string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.present[rank] {
		r.failLocked(&dist.RankError{Rank: rank, How: how + " without leaving"})
		return
	}
	r.gone[rank] = how + " without joining"
	for _, m := range r.meetings { // in any order: each is notified separately
		if !m.joined[rank] {
			m.fail(&dist.RankError{Rank: rank, How: r.gone[rank]})
		}
	}
}

// fail makes all Gets of all meetings fail with cause. The first cause stays.
func (r *roster) fail(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failLocked(cause)
}

func (r *roster) failLocked(cause error) {
	if r.cause != nil {
		return
	}
	r.cause = cause
	close(r.failed)
	for _, m := range r.meetings {
		m.fail(cause)
	}
}

// close rejects later joins and ends all waits.
func (r *roster) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.failLocked(errStoreClosed)
}

// missing returns the ranks that have not joined m.
func (r *roster) missing(m *meeting) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ranks []int
	for rank, joined := range m.joined {
		if !joined {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// broken returns why Gets fail, or nil.
func (r *roster) broken() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cause
}
