package hosts

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/net/wire"
)

// awaited is the condition of a wait. All parts that are set must hold.
type awaited struct {
	round uint64          // all ranks have posted this exchange; 0 for none
	near  bool            // only those of this host
	sends []*wire.Request // these are done
	recvs []*wire.Request // these are done: data of the hosts in layout.far
	moves *moves          // these messages are done
	one   *wire.Request   // this message is done
	peer  int             // its other end, a rank of the group; -1 for any

	seen int  // hosts or ranks that have been seen, in order
	got  uint // bits of recvs that have landed
}

// await waits until a holds.
//
// Errors: why the group is broken; ErrTimeout of dist after the step timeout, which breaks the
// group and names the missing ranks; ErrClosed for a rank that closed its end.
func (t *Transport) await(a *awaited) error {
	if a.local(t) {
		for range nearSpins {
			if t.posted(a) {
				return nil
			}
		}
	} else {
		t.p.waits.Add(1)
		t.p.waiting.Add(1)
		defer t.p.waiting.Add(-1)
	}
	var pause wire.Backoff
	var began time.Time
	for {
		done, err := t.holds(a)
		if done || err != nil {
			return err
		}
		if !a.local(t) && t.p.progress() {
			pause.Reset()
			continue
		}
		if pause.Pauses()%checkTurns == blockTurns {
			t.op.Blocks()
			t.p.handle()
			now := time.Now()
			if began.IsZero() {
				began = now
			}
			if err := t.check(a, now.Sub(began)); err != nil {
				return err
			}
		}
		pause.Pause()
	}
}

// local reports whether a waits for ranks of this host only. The leader waits for the others, and
// the process's goroutine receives the news meanwhile.
func (a *awaited) local(t *Transport) bool {
	return a.round != 0 && (a.near || !t.l.leads)
}

// Turns of a wait without progress. A turn takes about a microsecond at first.
const (
	nearSpins  = 500 // for ranks of this host: a few nanoseconds each
	blockTurns = 30  // until other goroutines may use the group
	checkTurns = 100 // between two looks for reasons to end the wait
)

// holds reports whether a holds.
func (t *Transport) holds(a *awaited) (bool, error) {
	for _, r := range a.sends {
		if !r.Done() {
			return false, nil
		}
	}
	for i, r := range a.recvs {
		if a.got&(1<<i) != 0 {
			continue
		}
		if !r.Done() {
			return false, nil
		}
		if _, _, err := r.Result(); err != nil {
			return false, t.wireError(err)
		}
		a.got |= 1 << i
		t.landed(t.l.far[i])
	}
	if a.round != 0 {
		if !t.posted(a) {
			return false, nil
		}
	}
	if a.moves != nil {
		return a.moves.advance()
	}
	if a.one != nil {
		if !a.one.Done() {
			return false, nil
		}
		if _, _, err := a.one.Result(); err != nil {
			return false, t.wireError(err)
		}
	}
	return true, nil
}

// posted reports whether all ranks of a have posted its exchange.
func (t *Transport) posted(a *awaited) bool {
	ranks := len(t.ranks)
	if a.near {
		ranks = len(t.l.members[t.l.host])
	}
	for ; a.seen < ranks; a.seen++ {
		if r := t.nth(a, a.seen); atomic.LoadUint64(t.board.posted(r)) < a.round {
			return false
		}
	}
	return true
}

// nth returns the i-th rank of a.
func (t *Transport) nth(a *awaited, i int) int {
	if a.near {
		return t.l.members[t.l.host][i]
	}
	return i
}

// check looks for reasons to end a wait: the group is broken, a rank is gone, time is over.
func (t *Transport) check(a *awaited, waited time.Duration) error {
	if err := t.Broken(); err != nil && !t.completes() {
		return err
	}
	if err := t.inner.broken(time.Now()); err != nil {
		t.lostNear(err)
		return t.Broken()
	}
	missing := t.missing(a)
	for _, r := range missing {
		if t.peers.left(r, a, t.round) {
			if err := t.Broken(); err != nil { // which rank r has told before
				return err
			}
			return closedEnd(r)
		}
		if a.moves == nil && t.peers.stuck(r) {
			err := fmt.Errorf("%w on the operation: rank %d waits for a message of rank %d, which is in %v",
				dist.ErrMismatch, r, t.rank, t.now.Kind)
			t.breakAll(err)
			return err
		}
	}
	if waited > t.p.cfg.StepTimeout {
		return t.late(missing)
	}
	if a.moves != nil && waited > hintAfter {
		a.moves.hint()
	}
	return nil
}

// hintAfter is the time after which a rank that waits for a message tells its peer. A peer that
// waits for this rank in another operation then knows that both wait forever.
const hintAfter = 200 * time.Millisecond

// missing returns the ranks that a waits for.
func (t *Transport) missing(a *awaited) []int {
	var ranks []int
	if a.round != 0 {
		for r := range t.ranks {
			if (!a.near || t.l.hostOf[r] == t.l.host) && atomic.LoadUint64(t.board.posted(r)) < a.round {
				ranks = append(ranks, r)
			}
		}
	}
	for i, r := range a.recvs {
		if !r.Done() {
			ranks = append(ranks, t.l.members[t.l.far[i]]...)
		}
	}
	for i, r := range a.sends {
		if !r.Done() {
			ranks = append(ranks, t.l.members[t.l.far[i]][0])
		}
	}
	if a.moves != nil {
		ranks = a.moves.peers(ranks)
	}
	if a.one != nil && a.peer >= 0 {
		ranks = append(ranks, a.peer)
	}
	return ranks
}

// late breaks the group because ranks are missing after the step timeout.
func (t *Transport) late(missing []int) error {
	names := make([]string, 0, len(missing))
	for _, r := range missing {
		names = append(names, fmt.Sprintf("rank %d", r))
	}
	err := fmt.Errorf("%w after %v: %v waits for %s", dist.ErrTimeout, t.p.cfg.StepTimeout, t.now.Kind, strings.Join(names, ", "))
	t.breakAll(err)
	return t.Broken()
}

// wireError returns the error of the group for one of a request, which breaks the group.
func (t *Transport) wireError(err error) error {
	var gone *wire.PeerError
	if errors.As(err, &gone) {
		t.p.lost(gone.Peer, gone.How, true)
		t.failFor(gone.Peer, gone.How) // another goroutine may know of the death, and not have come to t
		r := slices.Index(t.ranks, gone.Peer)
		if broken := t.Broken(); broken == nil && r >= 0 && t.peers.closed(r) {
			return t.leftIn(r)
		}
	}
	if broken := t.Broken(); broken != nil {
		return broken
	}
	err = fmt.Errorf("%w: %w", dist.ErrAborted, err)
	t.breakAll(err)
	return err
}

// wait waits for a message from or to a rank; -1 for any.
func (t *Transport) wait(r *wire.Request, peer int) error {
	if r.Pending() {
		return t.await(&awaited{one: r, peer: peer})
	}
	if _, _, err := r.Result(); err != nil {
		return t.wireError(err)
	}
	return nil
}

// newsAfter is the time after which the news of a broken group have come to all ranks.
const newsAfter = time.Second

// inside returns the error of the group for one of the ranks of this host. If another rank of the
// host broke the group, the reason comes to this one as a message.
func (t *Transport) inside(err error) error {
	if err == nil {
		return nil
	}
	if errors.As(err, new(*dist.RankError)) {
		t.lostNear(err)
	}
	return t.awaitReason(fmt.Errorf("ranks of this host: %w", err))
}

// awaitReason returns why the group is broken, which another rank reports soon. It breaks the group
// because of err if none does.
func (t *Transport) awaitReason(err error) error {
	for end := time.Now().Add(newsAfter); t.Broken() == nil; {
		if time.Now().After(end) {
			t.breakAll(fmt.Errorf("%w: %w", dist.ErrAborted, err))
		}
		time.Sleep(time.Millisecond)
	}
	return t.Broken()
}

// drop ends the messages of a chain after an error, and waits a moment for those that have begun
// to arrive.
func (t *Transport) drop() {
	for i := range t.slots {
		t.p.w.Cancel(&t.slots[i].in)
		t.p.w.Cancel(&t.slots[i].back)
	}
	for _, r := range t.flows {
		t.p.w.Cancel(r)
	}
	t.quiet()
}
