package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
)

// Every collective is one round. A rank enters it by an announcement: one cache line with up to
// lineBytes of payload, and a word with the number of the round and a hash of all signatures so
// far. Announcing a round confirms that all memory of earlier rounds has been read, so it can be
// reused.
const (
	roundBits = 40
	roundMask = 1<<roundBits - 1
)

// announcer is a rank's rounds: its announcements, and those of the others that it has seen.
type announcer struct {
	waiter
	chain     uint64                // hash of all signatures so far
	slowest   uint64                // minimum of seen
	rings     []unsafe.Pointer      // by rank: its announcements
	seen      []uint64              // by rank: a round that it has announced
	barriered uint64                // the round of the last barrier
	treed     uint64                // steps of dissemination barriers
	differs   bool                  // a rank has a different chain
	signs     [depth]dist.Signature // signatures in this rank's headers
	headers   []header              // of the current call, by rank
}

// begin is round 1, which all ranks have reached.
func (a *announcer) begin() {
	a.waitsFor = -1
	a.round, a.slowest = 1, 1
	// Separate cache lines, so that other ranks of this process do not write to them.
	a.rings, a.seen = lines[unsafe.Pointer](a.size), lines[uint64](a.size)
	for r := range a.rings {
		a.rings[r] = unsafe.Pointer(a.ctl.u64(a.ctl.page(r) + entryAt))
		a.seen[r] = 1
	}
	a.headers = make([]header, a.size)
}

// open begins a round: the entry may then be filled, and announce publishes it.
func (a *announcer) open(hash uint32) error {
	a.enter(hash)
	if a.roomy() {
		return nil
	}
	return a.allReached(a.round - depth + 1)
}

// enter begins a round whose entry may still be in use; roomy reports whether it is certainly
// unused.
func (a *announcer) enter(hash uint32) {
	a.round++
	a.chain = (a.chain*0x9e3779b1 ^ uint64(hash)*0x85ebca6b) >> 3 & (1<<(64-roundBits) - 1)
}

func (a *announcer) roomy() bool { return a.slowest+depth > a.round }

// entry returns the payload of the open round.
func (a *announcer) entry() []byte { return a.ctl.entry(a.rank, a.round) }

// announce publishes the open round, that of op. It records op afterwards, while the announcements
// of the others arrive.
func (a *announcer) announce(op *dist.Op) {
	a.sign(op.Signature())
	a.post()
	op.Posted()
}

// sign stores the signature of the open round, which the others read if ranks disagree. If the
// header already has the same signature, from depth rounds ago, it stays: a header counts for all
// later rounds in its place.
func (a *announcer) sign(s dist.Signature) {
	if old := &a.signs[a.round%depth]; *old != s {
		*old = s
		putSignature(a.ctl.header(a.rank, a.round), s, a.round)
	}
}

// post makes the announcement visible.
func (a *announcer) post() {
	a.publish(word(a.rings[a.rank], a.round), a.chain<<roundBits|a.round)
}

// word returns the word of a ring's announcement of round.
func word(ring unsafe.Pointer, round uint64) *uint64 {
	return (*uint64)(unsafe.Add(ring, round%depth*entryLen+entryWord))
}

// allReached returns when all ranks have announced round, and thus have read earlier rounds. The
// current round is not announced yet, so no rank is more than depth-1 ahead.
func (a *announcer) allReached(round uint64) error {
	if a.slowest >= round {
		return nil
	}
	a.slowest = a.round
	for r := range a.seen {
		if r == a.rank {
			continue
		}
		if a.seen[r] < round {
			if err := a.await(a.ctl.word(r, round), round, r); err != nil {
				return err
			}
			a.seen[r] = round
		}
		a.slowest = min(a.slowest, a.seen[r])
	}
	return nil
}

// meet returns when rank r has announced the current round. It notes in differs if r has a
// different history of operations.
func (a *announcer) meet(r int) error {
	w := word(a.rings[r], a.round)
	if err := a.await(w, a.round, r); err != nil {
		return err
	}
	a.seen[r] = a.round
	if atomic.LoadUint64(w)>>roundBits != a.chain && !a.node.cfg.Unchecked {
		a.differs = true
	}
	return nil
}

// meetAll returns when all ranks have announced the current round with the same history. All ranks
// call it.
func (a *announcer) meetAll() error {
	if a.size > a.node.cfg.flat {
		return a.meetTree()
	}
	return a.meetEach()
}

// meetEach is meetAll that works if only this rank calls it.
func (a *announcer) meetEach() error {
	for i := 1; i < a.size; i++ { // start with the next rank, so that not all wait for one line
		r := a.rank + i
		if r >= a.size {
			r -= a.size
		}
		if err := a.meet(r); err != nil {
			return err
		}
	}
	a.slowest = a.round
	return a.same()
}

// meetAtBarrier is meetAll for a barrier. A rank that sent data directly after the last barrier, as
// the root of a broadcast, leaves this one first, because programs repeat themselves. Its next data
// is then ready when the others leave, or get a core.
func (a *announcer) meetAtBarrier() error {
	first := a.firstOut()
	switch {
	case first < 0 || a.size > a.node.cfg.flat:
		return a.meetAll()
	case a.rank == first:
		if err := a.meetEach(); err != nil {
			return err
		}
		a.finish()
		return nil
	}
	if err := a.meet(first); err != nil {
		return err
	}
	if err := a.same(); err != nil {
		return err
	}
	if err := a.finished(first); err != nil {
		return err
	}
	for r := range a.seen {
		a.seen[r] = a.round
	}
	a.slowest = a.round
	return nil
}

// firstOut returns the rank that leaves this round's barrier first, or -1, and notes the round for
// the next barrier. It is called once per barrier.
func (a *announcer) firstOut() int {
	after := a.barriered + 1
	a.barriered = a.round
	if a.round-after < depth { // its signature is still there; for consecutive barriers it is this one's
		if s := a.signs[after%depth]; s.Kind == dist.KindBroadcast || s.Kind == dist.KindScatter {
			return int(s.Root)
		}
	}
	return -1
}

// same returns an error if a rank has a different history.
func (a *announcer) same() error {
	if a.differs {
		return a.disagree()
	}
	return nil
}

// flatRanks is the largest number of ranks for which every rank reads the words of all others.
// Larger groups pass the information on in log2(n) steps, as in the dissemination barrier of
// Hensgen, Finkel and Manber (1988). On 16 cores of one socket the flat form was 5 to 10 times
// faster for 9, 12 and 15 ranks: lines are read in parallel, while steps wait for each other.
const flatRanks = 64

// meetTree stops at a different history, so that no rank that depends on this one's news uses data
// of the differing rank.
func (a *announcer) meetTree() error {
	err := a.disseminate(func(from int) error {
		if atomic.LoadUint64(a.ctl.word(from, a.round))>>roundBits != a.chain && !a.node.cfg.Unchecked {
			return a.disagree()
		}
		return nil
	})
	if err != nil {
		return err
	}
	for r := range a.seen {
		a.seen[r] = a.round
	}
	a.slowest = a.round
	return nil
}

// disseminate is a barrier. In step k a rank signals rank+2^k and waits for rank-2^k, and thus for
// all ranks that rank-2^k has waited for. heard is called for every rank that this one waits for
// directly, before the next signal.
func (a *announcer) disseminate(heard func(from int) error) error {
	for step := 1; step < a.size; step *= 2 {
		a.treed++
		a.publish(a.ctl.tree(a.rank), a.treed)
		from := (a.rank - step + a.size) % a.size
		if err := a.await(a.ctl.tree(from), a.treed, from); err != nil {
			return err
		}
		if heard == nil {
			continue
		}
		if err := heard(from); err != nil {
			return err
		}
	}
	return nil
}

// close ends a round in which ranks access each other's memory: it returns when all have finished.
func (a *announcer) close() error {
	if a.size > a.node.cfg.flat {
		return a.disseminate(nil)
	}
	a.finish()
	for i := 1; i < a.size; i++ {
		if err := a.finished((a.rank + i) % a.size); err != nil {
			return err
		}
	}
	return nil
}

// finish publishes that this rank has finished the round; finished waits for another rank's finish.
func (a *announcer) finish() { a.publish(a.ctl.flag(a.rank), a.round) }

func (a *announcer) finished(r int) error { return a.await(a.ctl.flag(r), a.round, r) }

// barrier is a round without a payload.
func (a *announcer) barrier() error {
	if err := a.open(1); err != nil {
		return err
	}
	a.sign(dist.Signature{Kind: dist.KindBarrier, Root: -1})
	a.post()
	return a.meetAll()
}

// agree is the round of a call that is not a collective of dist: it exchanges headers into
// t.headers.
func (a *announcer) agree(own *header) error {
	if err := a.open(uint32(own.sig.Kind)<<8 | 1); err != nil {
		return err
	}
	own.round = a.round
	own.put(a.ctl.header(a.rank, a.round))
	a.signs[a.round%depth] = own.sig
	a.post()
	if err := a.meetAll(); err != nil {
		return err
	}
	for r := range a.headers {
		a.headers[r].get(a.ctl.header(r, a.round))
	}
	for r := 1; r < a.size; r++ {
		if a.headers[r].sig != a.headers[0].sig {
			return a.disagree()
		}
	}
	return nil
}

// disagree breaks the group with an error that names the oldest differing operation. This rank has
// signed the round.
func (a *announcer) disagree() error {
	err := a.difference()
	a.ctl.fail(abortMismatch, a.rank, err.Error())
	return err
}

func (a *announcer) difference() error {
	oldest := uint64(1)
	if a.round > depth {
		oldest = a.round - depth + 1
	}
	for round := oldest; round <= a.round; round++ {
		first := -1
		var sig dist.Signature
		for r := range a.size {
			if r != a.rank && !a.ctl.announced(r, a.round) {
				continue // not arrived yet
			}
			var h header
			h.get(a.ctl.header(r, round))
			switch {
			case h.round > round: // it has gone on
			case first < 0:
				first, sig = r, h.sig
			case h.sig != sig && round < a.round:
				return fmt.Errorf("%w, %d operations ago", dist.Differ(first, sig, r, h.sig), a.round-round)
			case h.sig != sig:
				return dist.Differ(first, sig, r, h.sig)
			}
		}
	}
	return fmt.Errorf("%w on an operation more than %d ago", dist.ErrMismatch, depth)
}

// pointer returns the address of the first byte.
func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
