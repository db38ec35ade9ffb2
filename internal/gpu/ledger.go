package gpu

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/asym"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// A ledger is symmetric host memory shared by the ranks of a GPU group. It records the operations
// that each rank has issued, why the group is broken, and which ranks have left. A rank's part has:
//
//	0                  abort page, on the first rank only: code, ready, length, text; closing state
//	pageBytes          words of this rank: wake, left, posted, checked
//	pageBytes + 1024   per peer, message counters: sent, received, compared
//	then               ring of announced operations
//	then               per peer, two rings of messages: sent, received
//
// A rank announces an operation by stores, the last with a full fence, before it queues it. Then it
// reads the others' announcements of the same round. If two ranks differ, at least one sees
// the other's announcement (store, fence, load on both sides). That rank does not queue, and breaks
// the group. A rank waits only if it is a whole ring ahead.
//
// Ranks of several hosts have a ledger on each host: see far.
//
// Fences wait for cache lines that come from other cores. So words that need no fence are published
// without one, and a rank claims the line of its next announcement early (package asym).
const (
	pageBytes = 4096

	verdictCode   = 0 // 0, or kind<<32 | rank
	verdictReady  = 8 // 1 when the text is complete
	verdictLength = 16
	verdictText   = 24
	maxVerdict    = 3072 - verdictText
	closingAt     = 3584 // state<<32 | ranks that have arrived

	wakeAt    = pageBytes       // changes if the watcher must look
	leftAt    = pageBytes + 128 // 1 when the rank has closed its end
	postedAt  = pageBytes + 256 // newest round announced
	checkedAt = pageBytes + 384 // newest round for which this rank has read the others

	countersAt    = pageBytes + 1024
	counterBytes  = 64
	counterSent   = 0
	counterRecvd  = 8
	counterPaired = 16 // offset from a counter to the number of these that this rank has compared
	entryBytes    = 64
	messageBytes  = 32
	ringDepth     = 1024 // operations that a rank can be ahead of another
	messageDepth  = 1024 // messages that one end of a channel can be ahead of the other
	placePrivate  = ^uint64(0)
	placeSlabBits = 48
)

// opEntry is the part of an operation that ranks compare.
type opEntry struct {
	sig       dist.Signature
	symmetric bool
	beside    bool
	along     bool
	src, dst  uint64 // locations, see Transport.place
	extra     int64  // for KindAlloc: the alignment
}

// ledger is this rank's end. It is not safe for concurrent use, except broken, fail and the methods
// of the watcher.
type ledger struct {
	control *dist.Group
	heap    symmetric.Heap // of the ranks of this host
	region  symmetric.Region
	rank    int
	size    int
	compare bool
	limit   time.Duration    // longest wait for a peer
	parts   []unsafe.Pointer // by rank
	home    int              // first rank of this host, which has the abort page
	near    []int            // ranks of this host
	host    *dist.Group      // of these ranks
	far     *far             // nil if this host has all ranks
	layout  ledgerLayout

	round    uint64   // announced by this rank
	slowest  uint64   // a round that all others have checked
	sent     []uint64 // messages announced, by peer
	received []uint64
	end      atomic.Pointer[ending]
	doubt    func() // called before an error of the broken group is returned; may be nil
}

// ending is the error of a broken group.
type ending struct{ err error }

// announce posts c as this rank's next round, and compares it with the others' posts of that round.
//
// Errors: the error of the broken group. It may break now if a rank differs, has left, or is a
// whole ring late.
func (p *ledger) announce(c *opEntry) error {
	if err := p.broken(); err != nil {
		return err
	}
	round := p.round + 1
	if round > ringDepth && p.slowest < round-ringDepth {
		if err := p.catchUp(round - ringDepth); err != nil {
			return err
		}
	}
	e := p.entry(p.rank, round)
	encodeEntry(e, c)
	asym.Store(&e[0], round)
	p.round = round
	atomic.StoreUint64(p.word(p.rank, postedAt), round) // a full fence, like all of sync/atomic
	for r := range p.parts {
		if r == p.rank {
			continue
		}
		if err := p.meet(r, round, e, c); err != nil {
			return err
		}
	}
	asym.Store(p.word(p.rank, checkedAt), round) // the others' lines may still be in transfer
	if p.far != nil {
		p.far.announced(round, e)
	}
	asym.Claim(unsafe.Pointer(p.entry(p.rank, round+1)), 1)
	return nil
}

// meet compares this rank's newest round with the announcements of rank r.
func (p *ledger) meet(r int, round uint64, own *[entryBytes / 8]uint64, c *opEntry) error {
	if theirs := p.entry(r, round); p.compare && atomic.LoadUint64(&theirs[0]) == round && !sameEntries(own, theirs) {
		d := decodeEntry(theirs)
		return p.fail(endMismatch, p.rank, difference(p.rank, c, r, &d))
	}
	if p.load(r, leftAt) != 0 && p.load(r, postedAt) < round {
		return p.fail(endClosed, r, closedText(r))
	}
	if !p.compare {
		return nil
	}
	for _, out := range [...]bool{true, false} { // r has announced a message earlier than this rank
		k := p.received[r]
		if !out {
			k = p.sent[r]
		}
		if atomic.LoadUint64(p.counter(r, p.rank, out)) <= k {
			continue
		}
		if m := p.message(r, p.rank, out, k+1); atomic.LoadUint64(&m[0]) == k+1 && m[3] < round {
			return p.fail(endMismatch, p.rank, fmt.Sprintf("%v on the order: rank %d is in %v, rank %d in a %v with rank %d",
				dist.ErrMismatch, p.rank, c.sig.Kind, r, direction(out), p.rank))
		}
	}
	return nil
}

func direction(out bool) dist.Kind {
	if out {
		return dist.KindSend
	}
	return dist.KindRecv
}

func closedText(r int) string {
	return fmt.Sprintf("rank %d has closed its end: %v", r, dist.ErrClosed)
}

// post announces a message with peer and compares it with the peer's announcement, if that exists.
//
// Returns: its number in its channel, from 1. Errors: those of announce.
func (p *ledger) post(peer int, out bool, dt tensor.DType, count int) (uint64, error) {
	if err := p.broken(); err != nil {
		return 0, err
	}
	mine := p.received
	if out {
		mine = p.sent
	}
	k := mine[peer] + 1
	if k > messageDepth {
		if err := p.catchUpWith(peer, out, k-messageDepth); err != nil {
			return 0, err
		}
	}
	m := p.message(p.rank, peer, out, k)
	m[1], m[2], m[3] = uint64(count), uint64(dt), p.round
	asym.Store(&m[0], k)
	mine[peer] = k
	count64 := p.counter(p.rank, peer, out)
	atomic.StoreUint64(count64, k) // a fence, as in announce
	if err := p.pair(p.rank, peer, out, k, m); err != nil {
		return 0, err
	}
	asym.Store(pairedOf(count64), k)
	if p.far != nil {
		p.far.posted(peer, out, k, m)
	}
	return k, nil
}

// pairedOf returns the counter of compared messages that belongs to a counter of announced ones.
func pairedOf(counter *uint64) *uint64 {
	return (*uint64)(unsafe.Add(unsafe.Pointer(counter), counterPaired))
}

// catchUpWith waits until peer has compared message k of this rank, so that its slot can be reused.
func (p *ledger) catchUpWith(peer int, out bool, k uint64) error {
	there := pairedOf(p.counter(peer, p.rank, !out))
	if atomic.LoadUint64(there) >= k {
		return nil
	}
	return p.poll(func() bool { return atomic.LoadUint64(there) >= k }, func() string {
		return fmt.Sprintf("rank %d is %d messages late", peer, messageDepth)
	})
}

// pair compares message k of rank, which is m, with the peer's announcement.
func (p *ledger) pair(rank, peer int, out bool, k uint64, m *[messageBytes / 8]uint64) error {
	theirs := p.message(peer, rank, !out, k)
	switch {
	case atomic.LoadUint64(&theirs[0]) == k:
		if !p.compare || m[1] == theirs[1] && m[2] == theirs[2] && m[3] == theirs[3] {
			return nil
		}
		from, to, s, r := rank, peer, m, theirs
		if !out {
			from, to, s, r = peer, rank, theirs, m
		}
		text := fmt.Sprintf("%v on a message: rank %d sends %v[%d], rank %d receives %v[%d]", dist.ErrMismatch,
			from, tensor.DType(s[2]), s[1], to, tensor.DType(r[2]), r[1])
		if s[3] != r[3] {
			text += fmt.Sprintf("; the send comes after %d collectives, the receive after %d", s[3], r[3])
		}
		return p.fail(endMismatch, p.rank, text)
	case p.load(peer, leftAt) != 0 && atomic.LoadUint64(p.counter(peer, rank, !out)) < k:
		return p.fail(endClosed, peer, closedText(peer))
	case p.compare && p.load(peer, postedAt) > m[3] && atomic.LoadUint64(p.counter(peer, rank, !out)) < k:
		d := decodeEntry(p.entry(peer, m[3]+1))
		return p.fail(endMismatch, p.rank, fmt.Sprintf("%v on the order: rank %d is in a %v with rank %d, rank %d in %v",
			dist.ErrMismatch, rank, direction(out), peer, peer, d.sig.Kind))
	}
	return nil
}

// met reports whether all ranks have announced round and found no difference. Having announced it
// is not enough: a rank that sees a difference may be about to report it.
func (p *ledger) met(round uint64) bool {
	return p.checked(round) || p.far != nil && p.far.progress() && p.checked(round)
}

func (p *ledger) checked(round uint64) bool {
	for r := range p.parts {
		if p.load(r, checkedAt) < round {
			return false
		}
	}
	return true
}

// paired reports whether peer has announced its end of message k and found no difference.
func (p *ledger) paired(peer int, out bool, k uint64) bool {
	there := pairedOf(p.counter(peer, p.rank, !out))
	return atomic.LoadUint64(there) >= k || p.far != nil && p.far.progress() && atomic.LoadUint64(there) >= k
}

// catchUp waits until all others have checked round, so that its slot can be reused.
func (p *ledger) catchUp(round uint64) error {
	slowest := func() uint64 {
		least := p.round
		for r := range p.parts {
			if r != p.rank {
				least = min(least, p.load(r, checkedAt))
			}
		}
		return least
	}
	err := p.poll(func() bool {
		p.slowest = slowest()
		return p.slowest >= round
	}, p.whereabouts)
	return err
}

// poll waits until done returns true: it spins, yields, then sleeps.
//
// Errors: the error of the broken group; ErrTimeout after the step timeout, which breaks the group.
// Its text ends with state().
func (p *ledger) poll(done func() bool, state func() string) error {
	var since time.Time
	for turn := 0; !done(); turn++ {
		if err := p.broken(); err != nil {
			return err
		}
		if p.far != nil {
			p.far.progress()
		}
		if turn < 100 { // a look at the clock takes longer than one at memory
			continue
		}
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		waited := now.Sub(since)
		if waited > p.limit {
			return p.fail(endTimeout, p.rank, fmt.Sprintf("%v: after %v rank %d still waits: %s",
				dist.ErrTimeout, p.limit, p.rank, state()))
		}
		Rest(waited)
	}
	return nil
}

// whereabouts describes the ranks that have not announced this rank's newest round.
func (p *ledger) whereabouts() string { return p.missing(p.round) }

func (p *ledger) missing(round uint64) string {
	text := ""
	for r := range p.parts {
		posted := p.load(r, postedAt)
		if posted >= round {
			continue
		}
		if text != "" {
			text += ", "
		}
		if posted == 0 {
			text += fmt.Sprintf("rank %d has issued nothing", r)
			continue
		}
		d := decodeEntry(p.entry(r, posted))
		text += fmt.Sprintf("rank %d has issued %d of %d operations, the last %v", r, posted, round, d.sig.Kind)
	}
	if text == "" {
		return "all ranks have issued it, but the device has not finished it"
	}
	return text
}

// close frees the region.
func (p *ledger) close() error {
	if p.far != nil {
		p.far.close()
	}
	return p.heap.Close()
}
