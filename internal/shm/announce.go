package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/asym"
)

// Every collective is one round. A rank enters it by an announcement: one cache line with up to
// lineBytes of payload, and a word with the number of the round and a hash of all signatures so
// far. Announcing a round confirms that all memory of earlier rounds has been read, so it can be
// reused.
const (
	roundBits = 40
	roundMask = 1<<roundBits - 1
)

// open begins a round: the entry may then be filled, and announce publishes it.
func (t *Transport) open(hash uint32) error {
	t.enter(hash)
	if t.roomy() {
		return nil
	}
	return t.allReached(t.round - depth + 1)
}

// enter begins a round whose entry may still be in use; roomy reports whether it is certainly
// unused.
func (t *Transport) enter(hash uint32) {
	t.round++
	t.chain = (t.chain*0x9e3779b1 ^ uint64(hash)*0x85ebca6b) >> 3 & (1<<(64-roundBits) - 1)
}

func (t *Transport) roomy() bool { return t.slowest+depth > t.round }

// entry returns the payload of the open round.
func (t *Transport) entry() []byte { return t.ctl.entry(t.rank, t.round) }

// announce publishes the open round, that of op. It records op afterwards, while the announcements
// of the others arrive.
func (t *Transport) announce(op *dist.Op) {
	t.sign(op.Signature())
	t.post()
	t.handOut(op)
	op.Posted()
}

// mostHandedOut is the largest size for handOut: from 2 KiB on it costs more than it saves.
const mostHandedOut = 1 << 10

// handOut moves posted data, for which another core waits, to a cache that both share. Measured
// between two ranks, a small operation takes a tenth to a third less time. A barrier would end a
// tenth sooner, but the operation after it would take longer.
func (t *Transport) handOut(op *dist.Op) {
	n := op.Memo >> planBytes
	if n == 0 || n > mostHandedOut || t.size != 2 || t.crowded() || op.Kind == dist.KindBroadcast && t.rank != op.Root {
		return
	}
	asym.Demote(unsafe.Pointer(word(t.rings[t.rank], t.round)), 1)
	if op.Memo&planSlot != 0 {
		asym.Demote(t.parcel(op, t.rank), int(n+63)/64)
	}
}

// sign stores the signature of the open round, which the others read if ranks disagree. If the
// header already has the same signature, from depth rounds ago, it stays: a header counts for all
// later rounds in its place.
func (t *Transport) sign(s dist.Signature) {
	if old := &t.signs[t.round%depth]; *old != s {
		*old = s
		putSignature(t.ctl.header(t.rank, t.round), s, t.round)
	}
}

// post makes the announcement visible.
func (t *Transport) post() {
	t.publish(word(t.rings[t.rank], t.round), t.chain<<roundBits|t.round)
}

// word returns the word of a ring's announcement of round.
func word(ring unsafe.Pointer, round uint64) *uint64 {
	return (*uint64)(unsafe.Add(ring, round%depth*entryLen+entryWord))
}

// allReached returns when all ranks have announced round, and thus have read earlier rounds. The
// current round is not announced yet, so no rank is more than depth-1 ahead.
func (t *Transport) allReached(round uint64) error {
	if t.slowest >= round {
		return nil
	}
	t.slowest = t.round
	for r := range t.seen {
		if r == t.rank {
			continue
		}
		if t.seen[r] < round {
			if err := t.await(t.ctl.word(r, round), round, r); err != nil {
				return err
			}
			t.seen[r] = round
		}
		t.slowest = min(t.slowest, t.seen[r])
	}
	return nil
}

// meet returns when rank r has announced the current round. It notes in differs if r has a
// different history of operations.
func (t *Transport) meet(r int) error {
	w := word(t.rings[r], t.round)
	if err := t.await(w, t.round, r); err != nil {
		return err
	}
	t.seen[r] = t.round
	if atomic.LoadUint64(w)>>roundBits != t.chain && !t.node.cfg.Unchecked {
		t.differs = true
	}
	return nil
}

// meetAll returns when all ranks have announced the current round with the same history. All ranks
// call it.
func (t *Transport) meetAll() error {
	if t.size > t.node.cfg.flat {
		return t.meetTree()
	}
	return t.meetEach()
}

// meetEach is meetAll that works if only this rank calls it.
func (t *Transport) meetEach() error {
	for i := 1; i < t.size; i++ { // start with the next rank, so that not all wait for one line
		r := t.rank + i
		if r >= t.size {
			r -= t.size
		}
		if err := t.meet(r); err != nil {
			return err
		}
	}
	t.slowest = t.round
	return t.same()
}

// meetAtBarrier is meetAll for a barrier. A rank that sent data directly after the last barrier, as
// the root of a broadcast, leaves this one first, because programs repeat themselves. Its next data
// is then ready when the others leave, or get a core.
func (t *Transport) meetAtBarrier() error {
	first := t.firstOut()
	switch {
	case first < 0 || t.size > t.node.cfg.flat:
		return t.meetAll()
	case t.rank == first:
		if err := t.meetEach(); err != nil {
			return err
		}
		t.finish()
		return nil
	}
	if err := t.meet(first); err != nil {
		return err
	}
	if err := t.same(); err != nil {
		return err
	}
	if err := t.finished(first); err != nil {
		return err
	}
	for r := range t.seen {
		t.seen[r] = t.round
	}
	t.slowest = t.round
	return nil
}

// firstOut returns the rank that leaves this round's barrier first, or -1, and notes the round for
// the next barrier. It is called once per barrier.
func (t *Transport) firstOut() int {
	after := t.barriered + 1
	t.barriered = t.round
	if t.round-after < depth { // its signature is still there; for consecutive barriers it is this one's
		if s := t.signs[after%depth]; s.Kind == dist.KindBroadcast || s.Kind == dist.KindScatter {
			return int(s.Root)
		}
	}
	return -1
}

// same returns an error if a rank has a different history.
func (t *Transport) same() error {
	if t.differs {
		return t.disagree()
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
func (t *Transport) meetTree() error {
	err := t.disseminate(func(from int) error {
		if atomic.LoadUint64(t.ctl.word(from, t.round))>>roundBits != t.chain && !t.node.cfg.Unchecked {
			return t.disagree()
		}
		return nil
	})
	if err != nil {
		return err
	}
	for r := range t.seen {
		t.seen[r] = t.round
	}
	t.slowest = t.round
	return nil
}

// disseminate is a barrier. In step k a rank signals rank+2^k and waits for rank-2^k, and thus for
// all ranks that rank-2^k has waited for. heard is called for every rank that this one waits for
// directly, before the next signal.
func (t *Transport) disseminate(heard func(from int) error) error {
	for step := 1; step < t.size; step *= 2 {
		t.treed++
		t.publish(t.ctl.tree(t.rank), t.treed)
		from := (t.rank - step + t.size) % t.size
		if err := t.await(t.ctl.tree(from), t.treed, from); err != nil {
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
func (t *Transport) close() error {
	if t.size > t.node.cfg.flat {
		return t.disseminate(nil)
	}
	t.finish()
	for i := 1; i < t.size; i++ {
		if err := t.finished((t.rank + i) % t.size); err != nil {
			return err
		}
	}
	return nil
}

// finish publishes that this rank has finished the round; finished waits for another rank's finish.
func (t *Transport) finish() { t.publish(t.ctl.flag(t.rank), t.round) }

func (t *Transport) finished(r int) error { return t.await(t.ctl.flag(r), t.round, r) }

// barrier is a round without a payload.
func (t *Transport) barrier() error {
	if err := t.open(1); err != nil {
		return err
	}
	t.sign(dist.Signature{Kind: dist.KindBarrier, Root: -1})
	t.post()
	return t.meetAll()
}

// agree is the round of a call that is not a collective of dist: it exchanges headers into
// t.headers.
func (t *Transport) agree(own *header) error {
	if err := t.open(uint32(own.sig.Kind)<<8 | 1); err != nil {
		return err
	}
	own.round = t.round
	own.put(t.ctl.header(t.rank, t.round))
	t.signs[t.round%depth] = own.sig
	t.post()
	if err := t.meetAll(); err != nil {
		return err
	}
	for r := range t.headers {
		t.headers[r].get(t.ctl.header(r, t.round))
	}
	for r := 1; r < t.size; r++ {
		if t.headers[r].sig != t.headers[0].sig {
			return t.disagree()
		}
	}
	return nil
}

// disagree breaks the group with an error that names the oldest differing operation. This rank has
// signed the round.
func (t *Transport) disagree() error {
	err := t.difference()
	t.ctl.fail(abortMismatch, t.rank, err.Error())
	return err
}

func (t *Transport) difference() error {
	oldest := uint64(1)
	if t.round > depth {
		oldest = t.round - depth + 1
	}
	for round := oldest; round <= t.round; round++ {
		first := -1
		var a header
		for r := range t.size {
			if r != t.rank && !t.ctl.announced(r, t.round) {
				continue // not arrived yet
			}
			var h header
			h.get(t.ctl.header(r, round))
			switch {
			case h.round > round: // it has gone on
			case first < 0:
				first, a = r, h
			case h.sig != a.sig && round < t.round:
				return fmt.Errorf("%w, %d operations ago", dist.Differ(first, a.sig, r, h.sig), t.round-round)
			case h.sig != a.sig:
				return dist.Differ(first, a.sig, r, h.sig)
			}
		}
	}
	return fmt.Errorf("%w on an operation more than %d ago", dist.ErrMismatch, depth)
}

// pointer returns the address of the first byte.
func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
