package gpu

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
)

// far joins the ledgers of several hosts. Each host has a ledger of all ranks: the parts of its own
// ranks, and copies of the others. A rank that has announced and compared an operation sends a note
// to one rank of each other host, its courier there. The courier writes the note to the copy, and
// compares it with the announcements of its host's ranks. A rank that announces later compares with
// the copy itself. So at least one of two ranks that differ sees the difference, and then breaks
// the group on all hosts.
//
// Two ranks of different hosts may both queue operations that differ, before a note arrives. A Work
// is done only after the notes of all ranks, so neither rank reports success.
type far struct {
	p     *ledger
	notes dist.Notifier
	ranks [][]int // of each host
	own   int     // this host
	index int     // of this rank among the ranks of its host
	odd   bool    // the control group was found broken, without a note of the reason
}

// Kinds of notes. The numbering is part of the wire format, as are the words that follow.
const (
	noteEntry   = 1 + iota // round, words 1 to 7 of the announcement
	noteMessage            // peer, direction, number, words 1 to 3 of the announcement
	noteFailed             // code, then text
	noteLeft               // the sender has closed its end
	noteDecided            // state of closing
)

func newFar(p *ledger, notes dist.Notifier, hosts []int) *far {
	f := &far{p: p, notes: notes, ranks: make([][]int, slices.Max(hosts)+1), own: hosts[p.rank]}
	for r, h := range hosts {
		f.ranks[h] = append(f.ranks[h], r)
	}
	f.index = slices.Index(f.ranks[f.own], p.rank)
	return f
}

// courier returns the rank of host h that gets this rank's notes. If all have left, it is the first
// of them, which may still wait for others to leave.
func (f *far) courier(h int) int {
	ranks := f.ranks[h]
	for i := range ranks {
		if r := ranks[(f.index+i)%len(ranks)]; f.p.load(r, leftAt) == 0 {
			return r
		}
	}
	return ranks[f.index%len(ranks)]
}

// note returns a note of a kind and words.
func note(kind byte, words ...uint64) []byte {
	b := make([]byte, 1, 1+8*len(words))
	b[0] = kind
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// send sends a note to the courier on host h. An error means a broken control group, which check
// finds.
func (f *far) send(h int, b []byte) {
	_ = f.notes.Notify(f.courier(h), b)
}

// spread sends a note to the other hosts.
func (f *far) spread(b []byte) {
	for h := range f.ranks {
		if h != f.own {
			f.send(h, b)
		}
	}
}

// announced reports this rank's announcement e of round.
func (f *far) announced(round uint64, e *[entryBytes / 8]uint64) {
	f.spread(note(noteEntry, round, e[1], e[2], e[3], e[4], e[5], e[6], e[7]))
}

// posted reports this rank's announcement m of message k with peer to the host of peer.
func (f *far) posted(peer int, out bool, k uint64, m *[messageBytes / 8]uint64) {
	for h, ranks := range f.ranks {
		if h != f.own && slices.Contains(ranks, peer) {
			f.send(h, note(noteMessage, uint64(peer), bit(out), k, m[1], m[2], m[3]))
		}
	}
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// mostFailedText is the most bytes of a reason in a note.
const mostFailedText = 900

// failed reports why the group is broken. All ranks of the other hosts get it, because a courier
// may have left.
func (f *far) failed(code uint64, text string) {
	b := append(note(noteFailed, code), text[:min(len(text), mostFailedText)]...)
	for h, ranks := range f.ranks {
		if h == f.own {
			continue
		}
		for _, r := range ranks {
			_ = f.notes.Notify(r, b)
		}
	}
}

// left reports that this rank has closed its end.
func (f *far) left() { f.spread(note(noteLeft)) }

// decided reports how the group closes to all ranks of the other hosts.
func (f *far) decided(state uint64) {
	for h, ranks := range f.ranks {
		if h == f.own {
			continue
		}
		for _, r := range ranks {
			_ = f.notes.Notify(r, note(noteDecided, state))
		}
	}
}

// compared waits until this rank's newest operation was compared with those of all ranks. On one
// host, ranks that have exchanged data since have compared it.
//
// Errors: those of poll.
func (p *ledger) compared() error {
	if p.far == nil || !p.compare {
		return nil
	}
	round := p.round
	return p.poll(func() bool { return p.met(round) }, p.whereabouts)
}

// progress delivers notes that have arrived. It returns true.
func (f *far) progress() bool {
	f.notes.Progress()
	return true
}

// close ends the delivery of notes.
func (f *far) close() { f.notes.OnNote(nil) }

// check breaks the group if the control group is broken. The note with the reason may still be on
// its way, so only the second check counts; the death of a rank has no note.
func (f *far) check() {
	err := f.notes.Broken()
	if err == nil || errors.Is(err, dist.ErrClosed) {
		return
	}
	if f.odd || errors.As(err, new(*dist.RankError)) {
		_ = f.p.settle(err)
	}
	f.odd = true
}

// deposit writes a note of rank r, of another host, to the copy of its part, and compares it.
func (f *far) deposit(r int, b []byte) {
	p := f.p
	words := make([]uint64, 0, 8)
	for rest := b[1:]; len(rest) >= 8 && len(words) < 8; rest = rest[8:] {
		words = append(words, binary.LittleEndian.Uint64(rest))
	}
	switch {
	case b[0] == noteEntry && len(words) == 8:
		f.depositEntry(r, words)
	case b[0] == noteMessage && len(words) == 6:
		f.depositMessage(r, words)
	case b[0] == noteFailed && len(words) > 0:
		p.record(words[0], string(b[9:]))
	case b[0] == noteLeft:
		if atomic.SwapUint64(p.word(r, leftAt), 1) == 0 {
			p.arrive()
		}
		p.wakeAll()
	case b[0] == noteDecided && len(words) == 1:
		if words[0] == closingTogether { // notes of ranks that have left may come later than this one
			for q := range p.parts {
				if !slices.Contains(p.near, q) {
					atomic.StoreUint64(p.word(q, leftAt), 1)
				}
			}
		}
		for {
			now := atomic.LoadUint64(p.word(p.home, closingAt))
			if now>>32 != closingOpen || atomic.CompareAndSwapUint64(p.word(p.home, closingAt), now, words[0]<<32|now&(1<<32-1)) {
				return
			}
		}
	}
}

// depositEntry writes an announcement of rank r, and compares it with those of this host's ranks.
func (f *far) depositEntry(r int, words []uint64) {
	p := f.p
	round := words[0]
	e := p.entry(r, round)
	copy(e[1:], words[1:])
	atomic.StoreUint64(&e[0], round)
	if p.load(r, postedAt) < round {
		atomic.StoreUint64(p.word(r, postedAt), round) // a full fence, as in announce
	}
	for _, a := range p.near {
		own := p.entry(a, round)
		if p.compare && atomic.LoadUint64(&own[0]) == round && !sameEntries(own, e) {
			x, y := decodeEntry(own), decodeEntry(e)
			_ = p.fail(endMismatch, a, difference(a, &x, r, &y))
			return
		}
		if f.overtaken(a, r) != nil {
			return
		}
	}
	if p.load(r, checkedAt) < round {
		atomic.StoreUint64(p.word(r, checkedAt), round)
	}
}

// overtaken breaks the group if rank a of this host has a message with rank r, and r has announced
// a later collective instead.
func (f *far) overtaken(a, r int) error {
	p := f.p
	for _, out := range [...]bool{true, false} {
		k := atomic.LoadUint64(p.counter(r, a, !out)) + 1
		if atomic.LoadUint64(p.counter(a, r, out)) < k {
			continue
		}
		if m := p.message(a, r, out, k); atomic.LoadUint64(&m[0]) == k {
			if err := p.pair(a, r, out, k, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// depositMessage writes an announcement of rank r of a message with a rank of this host, and
// compares it with that of its peer.
func (f *far) depositMessage(r int, words []uint64) {
	p := f.p
	peer, out, k := int(words[0]), words[1] == 1, words[2]
	if !slices.Contains(p.near, peer) {
		return
	}
	m := p.message(r, peer, out, k)
	m[1], m[2], m[3] = words[3], words[4], words[5]
	atomic.StoreUint64(&m[0], k)
	count := p.counter(r, peer, out)
	atomic.StoreUint64(count, k)
	own := p.message(peer, r, !out, k)
	if atomic.LoadUint64(&own[0]) == k && p.pair(peer, r, !out, k, own) != nil {
		return
	}
	if p.compare && p.load(peer, postedAt) > m[3] && atomic.LoadUint64(p.counter(peer, r, !out)) < k {
		if p.pair(r, peer, out, k, m) != nil {
			return
		}
	}
	atomic.StoreUint64((*uint64)(unsafe.Pointer(pairedOf(count))), k)
}
