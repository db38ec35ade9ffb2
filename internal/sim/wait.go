package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// wait is the kind of event that a rank waits for on a board.
type wait uint8

const (
	forNothing wait = iota
	forMeeting      // all other ranks
	forMoves        // the peers of its posts
	forTurn         // the ranks of a scripted delay
	forEver         // no event: the script has dropped its part
)

// await waits until rank's event has come, or the group is broken.
func (b *board) await(rank int, w wait) error {
	e := &b.ends[rank]
	e.waiting = w
	defer func() { e.waiting = forNothing }()
	if b.satisfied(rank) {
		return nil
	}
	e.expires = time.Now().Add(b.u.cfg.StepTimeout)
	if e.timer == nil {
		e.timer = time.AfterFunc(b.u.cfg.StepTimeout, func() { b.expire(rank) })
	} else {
		e.timer.Reset(b.u.cfg.StepTimeout)
	}
	defer e.timer.Stop()
	for !b.satisfied(rank) && b.broken == nil {
		if err := b.hopeless(rank); err != nil {
			b.fail(err)
			break
		}
		b.changed.Wait()
	}
	if b.satisfied(rank) { // perhaps before the group broke
		return nil
	}
	return b.broken
}

// satisfied reports whether rank's event has come.
func (b *board) satisfied(rank int) bool {
	e := &b.ends[rank]
	switch e.waiting {
	case forMeeting:
		return e.round != b.round
	case forMoves:
		return e.left == 0
	case forTurn:
		return !slices.ContainsFunc(e.after, func(r int) bool { return b.u.begun[b.ranks[r]] < e.now.seq })
	case forEver:
		return false
	}
	return true
}

// needs reports whether rank waits for another rank to do something that it has not done yet.
func (b *board) needs(rank, other int) bool {
	e := &b.ends[rank]
	switch e.waiting {
	case forMeeting:
		return e.round == b.round && !b.ends[other].arrived
	case forMoves:
		return slices.ContainsFunc(e.posts, func(p post) bool { return !p.done && p.op.Peer == other })
	case forTurn:
		return slices.Contains(e.after, other) && b.u.begun[b.ranks[other]] < e.now.seq
	}
	return false
}

// hopeless returns the reason why rank's wait cannot succeed, or nil.
func (b *board) hopeless(rank int) error {
	for r := range b.ends {
		if !b.needs(rank, r) {
			continue
		}
		if b.ends[r].closed {
			return fmt.Errorf("rank %d has closed its end: %w", r, dist.ErrClosed)
		}
		if m := b.ends[rank].deposit.mem; b.ends[rank].waiting == forMeeting && m != nil && m.closed[r] {
			return fmt.Errorf("rank %d has closed heap %d: %w", r, m.number, dist.ErrClosed)
		}
	}
	b.path = append(b.path[:0], rank)
	clear(b.seen)
	if b.cycle(rank) {
		return b.deadlock()
	}
	return nil
}

// cycle searches a path from the last rank of the path to the first, in which each rank waits for
// the next. Each must first finish its current wait, so none ever will. Ranks that the script holds
// are left to the timeout.
func (b *board) cycle(first int) bool {
	last := b.path[len(b.path)-1]
	if w := b.ends[last].waiting; w != forMeeting && w != forMoves || b.satisfied(last) {
		return false
	}
	for r := range b.ends {
		switch {
		case !b.needs(last, r):
			continue
		case r == first:
			return true
		case b.seen[r]:
			continue
		}
		b.seen[r] = true
		b.path = append(b.path, r)
		if b.cycle(first) {
			return true
		}
		b.path = b.path[:len(b.path)-1]
	}
	return false
}

// deadlock describes the cycle in the path.
func (b *board) deadlock() error {
	if len(b.path) == 1 {
		return fmt.Errorf("%w: rank %d %s with a message to itself that has only one half", dist.ErrMismatch,
			b.path[0], b.describe(b.path[0]))
	}
	remedy := ""
	if !slices.ContainsFunc(b.path, func(r int) bool { return b.ends[r].waiting != forMoves }) {
		remedy = "; sends and receives that cross belong in one Batch"
	}
	ranks := slices.Sorted(slices.Values(b.path))
	parts := make([]string, len(ranks))
	for i, r := range ranks {
		parts[i] = fmt.Sprintf("rank %d %s", r, b.describe(r))
	}
	return fmt.Errorf("%w: %s: they wait for each other%s", dist.ErrMismatch, strings.Join(parts, ", "), remedy)
}

// expire is called by a rank's timer; it breaks the group if the rank still waits.
func (b *board) expire(rank int) {
	b.u.mu.Lock()
	defer b.u.mu.Unlock()
	e := &b.ends[rank]
	if b.broken != nil || b.satisfied(rank) || time.Now().Before(e.expires) {
		return
	}
	b.fail(fmt.Errorf("%w after %v waiting for %s", dist.ErrTimeout, b.u.cfg.StepTimeout, b.missing()))
}

// missing names the ranks that others wait for, and the activity of each.
func (b *board) missing() string {
	var parts []string
	for r := range b.ends {
		wanted := b.ends[r].waiting == forEver
		for o := range b.ends {
			wanted = wanted || b.needs(o, r)
		}
		if wanted {
			parts = append(parts, fmt.Sprintf("rank %d, which %s", r, b.describe(r)))
		}
	}
	return strings.Join(parts, ", and ")
}

// describe returns a rank's activity as a predicate: "is in recv #4 from rank 2".
func (b *board) describe(rank int) string {
	e := &b.ends[rank]
	if e.now.kind == dist.KindInvalid {
		switch {
		case e.closed:
			return "has closed its end"
		case e.last == 0:
			return "has begun nothing"
		}
		return fmt.Sprintf("is idle after its #%d", e.last)
	}
	text := "is in " + e.now.kind.String()
	switch {
	case e.now.batched:
		text += fmt.Sprintf(" of group call #%d", e.now.seq)
	case e.now.seq > 0:
		text += fmt.Sprintf(" #%d", e.now.seq)
	}
	switch e.now.kind {
	case dist.KindSend:
		text += fmt.Sprintf(" to rank %d", e.now.peer)
	case dist.KindRecv:
		text += fmt.Sprintf(" from rank %d", e.now.peer)
	}
	return text + e.now.note
}

// hold applies a scripted drop or delay to op. If it returns nil, op may run.
func (b *board) hold(rank int, op *dist.Op, f *fault) error {
	if b.broken != nil {
		return b.broken
	}
	e := &b.ends[rank]
	e.now = activity{kind: op.Kind, peer: op.Peer, seq: op.Seq, note: ", delayed by the script"}
	e.after = f.after
	w := forTurn
	if f.kind == faultDrop {
		e.now.note, w = ", dropped by the script", forEver
	}
	err := b.await(rank, w)
	b.finished(rank, op.Seq)
	return err
}

// Broken returns the error of the broken group, or nil.
func (t *transport) Broken() error {
	t.b.u.mu.Lock()
	defer t.b.u.mu.Unlock()
	return t.b.broken
}

// alone reports whether the board has several ranks and all except one have closed their ends.
func (b *board) alone(rank int) bool {
	open := func(e end) bool { return !e.closed }
	return len(b.ends) > 1 && !slices.ContainsFunc(b.ends[:rank], open) && !slices.ContainsFunc(b.ends[rank+1:], open)
}
