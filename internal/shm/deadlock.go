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

// lookAround is how long a wait lasts before the rank tells the others of it, and looks whether
// they wait for each other.
const lookAround = 100 * time.Millisecond

// A wait that lasts is posted in the control segment, in the rank's part and beside the counters of
// its channels:
//
//	number     odd while the wait is posted; it changes with every wait
//	peer       the rank that the wait is for; -1 where the channels tell
//	word, want offset in the segment of the word that is waited for, and the count that it has to reach
//	channel    in that of each message that is not done: the number, by the sender or by the receiver
//
// A rank is stuck while its wait is posted and nothing that it waits for has come. Ranks that are
// stuck and wait for each other in a circle can never go on. All of that can be seen from outside:
// a rank that has what it waits for, and only got no core, or is stopped by a debugger, is not
// stuck. A circle that is seen twice, with the same numbers, has been there in between: counters
// only grow, and a number that has not changed says that its rank has not gone on.
const (
	postedAt = entryAt + depth*entryLen // in a rank's part
	numberAt = postedAt
	peerAt   = postedAt + 8
	wordAt   = postedAt + 16
	wantAt   = postedAt + 24

	channelSends    = channelWrote + 64
	channelReceives = channelRead + 64
)

// circle is ranks of which each waits for the next and the last for the first, and the numbers of
// their waits.
type circle struct {
	ranks   []int
	numbers []uint64
}

// posted is what a Transport keeps of its own wait.
type posted struct {
	number  uint64
	word    *uint64 // waited for; nil in an exchange
	want    uint64
	suspect circle // found by the last look
}

func (c *control) posting(rank, at int) *uint64 { return c.u64(c.page(rank) + at) }

// sends and receives are the number of the wait of the rank from, or to, for a message in the
// channel.
func (c *control) sends(from, to int) *uint64 {
	return c.u64(c.channels + (from*c.n+to)*channelBytes + channelSends)
}

func (c *control) receives(from, to int) *uint64 {
	return c.u64(c.channels + (from*c.n+to)*channelBytes + channelReceives)
}

// tell posts the wait of this rank. It changes nothing when the wait is posted already.
func (t *Transport) tell() {
	p := &t.wait
	if p.number%2 == 1 {
		return
	}
	p.number++
	peer, off := int64(-1), int64(0)
	if p.word == nil {
		t.tellMessages()
	} else if off = int64(uintptr(unsafe.Pointer(p.word)) - uintptr(t.ctl.base)); off < 0 || off >= int64(len(t.ctl.mem)) {
		p.number++
		return // another's memory, of which the others know nothing
	} else {
		peer = int64(t.waitsFor)
	}
	atomic.StoreUint64(t.ctl.posting(t.rank, peerAt), uint64(peer))
	atomic.StoreUint64(t.ctl.posting(t.rank, wordAt), uint64(off))
	atomic.StoreUint64(t.ctl.posting(t.rank, wantAt), p.want)
	atomic.StoreUint64(t.ctl.posting(t.rank, numberAt), p.number)
}

func (t *Transport) tellMessages() {
	for i := range t.moves {
		switch m := &t.moves[i]; {
		case m.done():
		case m.op.Kind == dist.KindSend:
			atomic.StoreUint64(t.ctl.sends(t.rank, m.op.Peer), t.wait.number)
		default:
			atomic.StoreUint64(t.ctl.receives(m.op.Peer, t.rank), t.wait.number)
		}
	}
}

// retract takes the wait back, when it is over or before a message moves.
func (t *Transport) retract() {
	if p := &t.wait; p.number%2 == 1 {
		p.number++
		p.suspect = circle{}
		atomic.StoreUint64(t.ctl.posting(t.rank, numberAt), p.number)
	}
}

// stands reports whether the wait of this rank, in an exchange, is posted and no message can move.
func (t *Transport) stands() bool {
	if t.wait.number%2 == 0 {
		return false
	}
	_, _, stuck := t.ctl.stuck(t.rank, nil)
	return stuck
}

// full and empty report whether a channel has room for no chunk, and no chunk.
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

// stuck is the ranks that rank waits for, appended to peers, and the number of its wait, if it is
// stuck.
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

// circleOf is a circle of stuck ranks that rank is in; none when there is none.
func (c *control) circleOf(rank int) circle {
	var found circle
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

// deadlock breaks the group when this rank is in a circle of ranks that wait for each other, which
// it has seen twice.
func (t *Transport) deadlock() error {
	t.tell()
	found, before := t.ctl.circleOf(t.rank), t.wait.suspect
	t.wait.suspect = found
	if len(found.ranks) == 0 || !slices.Equal(found.ranks, before.ranks) || !slices.Equal(found.numbers, before.numbers) {
		return nil
	}
	t.fail(abortMismatch, t.rank, t.describeCircle(found.ranks))
	return t.aborted()
}

// describeCircle names the ranks of a circle in ascending order.
func (t *Transport) describeCircle(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d is in %s, a message to itself that has only one half", t.rank, t.describe(t.rank))
	}
	remedy := "; sends and receives that cross belong in one Batch"
	parts := make([]string, 0, len(ranks))
	for _, r := range slices.Sorted(slices.Values(ranks)) {
		parts = append(parts, fmt.Sprintf("rank %d is in %s", r, t.describe(r)))
		if k, _, _ := unpackState(atomic.LoadUint64(t.ctl.state(r))); !k.PointToPoint() && k != dist.KindBatch {
			remedy = ""
		}
	}
	return strings.Join(parts, ", ") + ": they wait for each other" + remedy
}
