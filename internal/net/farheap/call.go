package farheap

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/internal/net/wire"
)

// entry is a request of this process that has an answer.
type entry struct {
	to    *batch // nil if the call has given up
	peer  int
	busy  bool
	dst   unsafe.Pointer // of the elements of a get; nil for a value
	step  int            // bytes from one element in dst to the next
	size  int            // bytes of an element
	count int            // elements
}

// batch is the entries of one call, or all non-blocking ones of a heap.
type batch struct {
	left  int
	value uint64
	err   error // the first
}

// answer notes an answer of process from.
func (s *Service) answer(from int, message []byte) bool {
	var a head
	p := &s.peers[from]
	if p.gone != "" || !a.decode(message) || a.verb != verbAnswer {
		return true
	}
	p.acked = max(p.acked, uint64(a.at))
	data := message[headBytes:]
	err := refusal(a.op, data)
	switch {
	case a.entry < entryCount && s.entries[a.entry].busy && s.entries[a.entry].peer == from:
		e := &s.entries[a.entry]
		if err == nil && e.dst != nil && len(data) != e.count*e.size {
			err = fmt.Errorf("%w: an answer of %d B, want %d", dist.ErrInvalid, len(data), e.count*e.size)
		}
		if err == nil && e.to != nil {
			e.fill(data)
			e.to.value = a.value
		}
		s.settle(a.entry, err)
	case err != nil:
		if h := s.heaps[a.heap]; h != nil && h.late == nil {
			h.late = fmt.Errorf("%v to rank %d: %w", a.of, a.target, err)
		}
	}
	return true
}

// fill copies the data of an answer to its destination.
func (e *entry) fill(data []byte) {
	if e.dst == nil || e.count == 0 {
		return
	}
	if e.step == e.size {
		copy(unsafe.Slice((*byte)(e.dst), len(data)), data)
		return
	}
	hostheap.MoveStrided(e.dst, e.step, unsafe.Pointer(unsafe.SliceData(data)), e.size, e.count, e.size)
}

// settle ends an entry.
func (s *Service) settle(i uint32, err error) {
	e := &s.entries[i]
	if b := e.to; b != nil {
		b.left--
		if b.err == nil {
			b.err = err
		}
	}
	*e = entry{}
	s.vacant = append(s.vacant, i)
}

// abandon makes the answers of b's entries have no effect. The lock is held.
func (s *Service) abandon(b *batch) {
	for i := range s.entries {
		if e := &s.entries[i]; e.to == b {
			e.to, e.dst = nil, nil
		}
	}
	*b = batch{}
}

// takeBatch returns an empty batch for a call.
func (s *Service) takeBatch() *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.batches); n > 0 {
		b := s.batches[n-1]
		s.batches = s.batches[:n-1]
		return b
	}
	return &batch{}
}

// pacer is how a call waits: it makes progress itself.
type pacer struct {
	backoff wire.Backoff
	turns   int
	since   time.Time // of the last sign of life; zero for none
}

// eager is the turns between looks at the group and the clock, and how many turns that holds: later
// turns sleep.
const (
	eager      = 64
	eagerTurns = 400
)

// alive notes that the awaited process has done something.
func (t *pacer) alive() { t.since = time.Time{} }

// pause makes progress and waits a little. Errors: why waiting is in vain.
func (t *pacer) pause(h *Heap) error {
	s := h.cfg.Service
	moved := s.w.Progress()
	if s.Progress() || moved {
		t.backoff.Reset()
	} else {
		t.backoff.Pause()
	}
	if t.turns++; t.turns < eagerTurns && t.turns%eager != 0 {
		return nil
	}
	if err := h.failed(); err != nil {
		return err
	}
	now := time.Now()
	switch {
	case t.since.IsZero():
		t.since = now
	case now.Sub(t.since) > h.timeout:
		return fmt.Errorf("%w after %v", dist.ErrTimeout, h.timeout)
	}
	return nil
}

// reserve waits until a request to rank may be sent. It returns with the lock held, unless there is
// an error: a buffer and, for a batch, an entry.
func (h *Heap) reserve(rank int, b *batch) (*slot, uint32, error) {
	s, peer := h.cfg.Service, h.process[rank]
	var t pacer
	for {
		s.mu.Lock()
		m, err := s.admit(peer, b != nil)
		if m != nil {
			return m, s.enter(peer, b), nil
		}
		s.mu.Unlock()
		if err == nil {
			err = t.pause(h)
		}
		if err != nil {
			return nil, 0, h.named(err)
		}
	}
}

// admit returns a buffer if a request to peer may be sent now, or nil.
func (s *Service) admit(peer int, answered bool) (*slot, error) {
	p := &s.peers[peer]
	switch {
	case s.closed:
		return nil, fmt.Errorf("the service: %w", dist.ErrClosed)
	case p.unreachable(peer) != nil:
		return nil, p.unreachable(peer)
	case p.sent-p.acked >= window || answered && len(s.vacant) == 0:
		return nil, nil
	}
	return s.free(&s.requests), nil
}

// enter makes an entry of b; noEntry without a batch.
func (s *Service) enter(peer int, b *batch) uint32 {
	if b == nil {
		return noEntry
	}
	i := s.vacant[len(s.vacant)-1]
	s.vacant = s.vacant[:len(s.vacant)-1]
	s.entries[i] = entry{to: b, peer: peer, busy: true}
	b.left++
	return i
}

// request sends a request in a reserved buffer, with n bytes of data, and releases the lock.
func (h *Heap) request(m *slot, rank int, q head, n int) {
	s, peer := h.cfg.Service, h.process[rank]
	q.heap, q.target = h.cfg.ID, uint32(rank)
	p := &s.peers[peer]
	p.sent++
	if q.verb.answered() {
		p.asked = p.sent
	}
	s.send(&s.requests, m, peer, s.tag, &q, n)
	s.mu.Unlock()
}

// finish waits for the answers of a call's batch, and gives the batch back.
func (h *Heap) finish(b *batch) (uint64, error) {
	s := h.cfg.Service
	err := h.settled(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.abandon(b)
	} else {
		err = b.err
	}
	value := b.value
	*b = batch{}
	s.batches = append(s.batches, b)
	return value, h.named(err)
}

// settled waits until b has no entries left. Errors: why waiting is in vain.
func (h *Heap) settled(b *batch) error {
	s := h.cfg.Service
	var t pacer
	for last := -1; ; {
		s.mu.Lock()
		left := b.left
		closed := s.closed
		s.mu.Unlock()
		switch {
		case left == 0:
			return nil
		case closed:
			return fmt.Errorf("the service: %w", dist.ErrClosed)
		case left != last:
			last = left
			t.alive()
		}
		if err := t.pause(h); err != nil {
			return err
		}
	}
}

// applied waits until peer has applied the requests that it has been asked to acknowledge.
func (h *Heap) applied(peer int) error {
	s := h.cfg.Service
	s.mu.Lock()
	want := s.peers[peer].asked
	s.mu.Unlock()
	var t pacer
	for last := uint64(0); ; {
		s.mu.Lock()
		p := s.peers[peer]
		closed := s.closed
		s.mu.Unlock()
		switch {
		case p.gone != "" || p.unsure:
			return p.unreachable(peer)
		case p.acked >= want:
			return nil
		case closed:
			return fmt.Errorf("the service: %w", dist.ErrClosed)
		case p.acked != last:
			last = p.acked
			t.alive()
		}
		if err := t.pause(h); err != nil {
			return err
		}
	}
}

// named returns err with the rank of a process that is gone. The error of the group comes first, as
// it may say more.
func (h *Heap) named(err error) error {
	var lost *wire.PeerError
	if !errors.As(err, &lost) {
		return err
	}
	if failed := h.failed(); failed != nil {
		return failed
	}
	for rank, peer := range h.process {
		if peer == lost.Peer && h.near[rank] < 0 {
			return &dist.RankError{Rank: rank, How: lost.How}
		}
	}
	return err
}
