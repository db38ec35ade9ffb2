package shm

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
)

// lookAround is the length of a wait after which the rank posts it, and checks for a deadlock.
const lookAround = 100 * time.Millisecond

// A long wait is posted in the control segment, in the rank's part and next to the counters of its
// channels:
//
//	number     odd while the wait is posted; it changes with every wait
//	peer       the awaited rank; -1 for messages, whose channels say more
//	word, want offset in the segment of the awaited word, and the count that it must reach
//	channel    of each unfinished message: the number, set by its sender or receiver
//
// A rank is stuck while its wait is posted and nothing that it waits for has arrived. Stuck ranks
// that wait for each other in a cycle can never go on. All of that is visible from outside. A rank
// whose data has arrived, but that has no core or is stopped by a debugger, is not stuck. A cycle
// seen twice with the same numbers has existed in between: counters only grow, and an unchanged
// number means that its rank has not gone on.
const (
	postedAt = entryAt + depth*entryLen // in a rank's part
	numberAt = postedAt
	peerAt   = postedAt + 8
	wordAt   = postedAt + 16
	wantAt   = postedAt + 24

	channelSends    = channelWrote + 64
	channelReceives = channelRead + 64
)

// cycle lists ranks that each wait for the next, the last for the first, and the numbers of the
// waits.
type cycle struct {
	ranks   []int
	numbers []uint64
}

// posted is the present wait of a Transport.
type posted struct {
	number  uint64
	word    *uint64 // awaited; nil in an exchange
	want    uint64
	suspect cycle // found by the last check
}

func (c *control) posting(rank, at int) *uint64 { return c.u64(c.page(rank) + at) }

// sends and receives return the number of the wait of rank from, or to, for a message in the
// channel.
func (c *control) sends(from, to int) *uint64 {
	return c.u64(c.channels + (from*c.n+to)*channelBytes + channelSends)
}

func (c *control) receives(from, to int) *uint64 {
	return c.u64(c.channels + (from*c.n+to)*channelBytes + channelReceives)
}

// postWait posts the wait of this rank, unless it is posted already.
func (w *waiter) postWait() {
	p := &w.wait
	if p.number%2 == 1 {
		return
	}
	p.number++
	peer, off := int64(-1), int64(0)
	if p.word == nil {
		w.postMessages()
	} else if off = int64(uintptr(unsafe.Pointer(p.word)) - uintptr(w.ctl.base)); off < 0 || off >= int64(len(w.ctl.mem)) {
		p.number++
		return // a word outside of the control segment, which peers cannot check
	} else {
		peer = int64(w.waitsFor)
	}
	atomic.StoreUint64(w.ctl.posting(w.rank, peerAt), uint64(peer))
	atomic.StoreUint64(w.ctl.posting(w.rank, wordAt), uint64(off))
	atomic.StoreUint64(w.ctl.posting(w.rank, wantAt), p.want)
	atomic.StoreUint64(w.ctl.posting(w.rank, numberAt), p.number)
}

func (w *waiter) postMessages() {
	for i := range w.moves {
		switch m := &w.moves[i]; {
		case m.done():
		case m.op.Kind == dist.KindSend:
			atomic.StoreUint64(w.ctl.sends(w.rank, m.op.Peer), w.wait.number)
		default:
			atomic.StoreUint64(w.ctl.receives(m.op.Peer, w.rank), w.wait.number)
		}
	}
}

// retract ends the posting, after the wait or before a message moves.
func (w *waiter) retract() {
	if p := &w.wait; p.number%2 == 1 {
		p.number++
		p.suspect = cycle{}
		atomic.StoreUint64(w.ctl.posting(w.rank, numberAt), p.number)
	}
}

// waitPosted reports whether this rank's wait in an exchange is posted and no message can move.
func (w *waiter) waitPosted() bool {
	if w.wait.number%2 == 0 {
		return false
	}
	_, _, stuck := w.ctl.stuck(w.rank, nil)
	return stuck
}

// full and empty report whether a channel has no room for a chunk, and whether it has no chunk.
func (c *control) full(from, to int) bool {
	read := atomic.LoadUint64(c.read(from, to))
	return atomic.LoadUint64(c.wrote(from, to))-read == ringDepth
}

// lending reports whether the receiver has not yet read the message that the sender lends: see
// lend.
func (c *control) lending(from, to int) bool {
	read := atomic.LoadUint64(c.read(from, to))
	return atomic.LoadUint64(c.lent(from, to)) > read
}

func (c *control) empty(from, to int) bool {
	read := atomic.LoadUint64(c.read(from, to))
	return atomic.LoadUint64(c.wrote(from, to)) == read
}

// stuck reports whether rank is stuck. It appends the ranks that rank waits for to peers, and
// returns the number of the wait.
func (c *control) stuck(rank int, peers []int) (_ []int, number uint64, stuck bool) {
	number = atomic.LoadUint64(c.posting(rank, numberAt))
	if number%2 == 0 {
		return peers, 0, false
	}
	if peer := int64(atomic.LoadUint64(c.posting(rank, peerAt))); peer >= 0 {
		off, want := atomic.LoadUint64(c.posting(rank, wordAt)), atomic.LoadUint64(c.posting(rank, wantAt))
		if off >= uint64(len(c.mem)) || peer >= int64(c.n) || atomic.LoadUint64(c.u64(int(off)))&roundMask >= want {
			return peers, 0, false
		}
		peers = append(peers, int(peer))
	} else {
		for p := range c.n {
			sends := atomic.LoadUint64(c.sends(rank, p)) == number
			receives := atomic.LoadUint64(c.receives(p, rank)) == number
			if sends && !c.full(rank, p) && !c.lending(rank, p) || receives && !c.empty(p, rank) {
				return peers, 0, false
			}
			if sends || receives {
				peers = append(peers, p)
			}
		}
	}
	return peers, number, atomic.LoadUint64(c.posting(rank, numberAt)) == number
}

// cycleOf returns a cycle of stuck ranks that contains rank, or an empty one.
func (c *control) cycleOf(rank int) cycle {
	var found cycle
	seen := make([]bool, c.n)
	var search func(r int) bool
	search = func(r int) bool {
		peers, number, stuck := c.stuck(r, nil)
		if !stuck {
			return false
		}
		found.ranks, found.numbers = append(found.ranks, r), append(found.numbers, number)
		for _, p := range peers {
			if p == rank {
				return true
			}
			if !seen[p] {
				seen[p] = true
				if search(p) {
					return true
				}
			}
		}
		found.ranks, found.numbers = found.ranks[:len(found.ranks)-1], found.numbers[:len(found.numbers)-1]
		return false
	}
	search(rank)
	return found
}

// deadlock breaks the group if this rank has now seen the same cycle twice.
func (w *waiter) deadlock() error {
	w.postWait()
	found, before := w.ctl.cycleOf(w.rank), w.wait.suspect
	w.wait.suspect = found
	if len(found.ranks) == 0 || !slices.Equal(found.ranks, before.ranks) || !slices.Equal(found.numbers, before.numbers) {
		return nil
	}
	w.ctl.fail(abortMismatch, w.rank, w.describeCycle(found.ranks))
	return w.ctl.aborted()
}

// describeCycle names the ranks of a cycle in ascending order.
func (w *waiter) describeCycle(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d is in %s, a message to itself that has only one half", w.rank, w.ctl.describe(w.rank))
	}
	remedy := "; sends and receives that cross belong in one Batch"
	parts := make([]string, 0, len(ranks))
	for _, r := range slices.Sorted(slices.Values(ranks)) {
		parts = append(parts, fmt.Sprintf("rank %d is in %s", r, w.ctl.describe(r)))
		if k, _, _ := unpackState(atomic.LoadUint64(w.ctl.state(r))); !k.PointToPoint() && k != dist.KindBatch {
			remedy = ""
		}
	}
	return strings.Join(parts, ", ") + ": they wait for each other" + remedy
}
