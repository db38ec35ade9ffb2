package farheap

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/net/wire"
)

// ServiceBytes is the size of the buffers of a Service: received requests and answers, and those
// that are sent.
const ServiceBytes = 4 * slotCount * slotBytes

// ServiceConfig has the settings of a Service.
type ServiceConfig struct {
	// Tag is the tag of requests; answers have the tag after it. The Service owns both tags.
	Tag uint32
	// Memory is ServiceBytes bytes, aligned to 8, for a library that keeps buffers after a failure.
	// nil means Go memory. Owns: the Service, until the wire is closed.
	Memory []byte
}

// Service is one process's end of all heaps over hosts: it sends their requests and answers those
// of other processes. Its methods may be called from any goroutine.
type Service struct {
	w   wire.Wire
	tag uint32

	mu       sync.Mutex
	asks     ring // requests of other processes
	answers  ring
	requests pool // requests to other processes
	replies  pool // answers to them
	peers    []peer
	entries  []entry
	vacant   []uint32 // entries that no request has
	batches  []*batch // that no call has
	heaps    map[uint32]*Heap
	watchers []*watcher
	closed   bool
}

// peer is the traffic with one process.
type peer struct {
	sent  uint64 // requests to it
	asked uint64 // requests to it that its answers on the way will acknowledge
	acked uint64 // requests to it that are applied

	handled uint64 // requests of it
	told    uint64 // requests of it that are acknowledged

	gone   string // how it was lost; empty while it lives
	left   bool   // it has closed its service: it answers no more
	unsure bool   // it may not have applied all requests before that
}

// unreachable returns the error of requests to process i, or nil.
func (p *peer) unreachable(i int) error {
	switch {
	case p.gone != "":
		return &wire.PeerError{Peer: i, How: p.gone}
	case p.left:
		return fmt.Errorf("%w: process %d has closed its end", dist.ErrClosed, i)
	}
	return nil
}

// NewService returns the service of the process that has this end of a wire.
//
// Owns: the caller closes the service before the wire, and calls Lost from the wire's OnLost.
// Errors: dist.ErrInvalid for a tag that the wire does not have and for wrong Memory.
func NewService(w wire.Wire, cfg ServiceConfig) (*Service, error) {
	info := w.Info()
	if cfg.Tag >= info.Tags-1 {
		return nil, fmt.Errorf("%w: tags %d and %d of a wire with %d", dist.ErrInvalid, cfg.Tag, cfg.Tag+1, info.Tags)
	}
	mem := cfg.Memory
	if mem == nil {
		words := make([]uint64, ServiceBytes/8)
		mem = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), ServiceBytes)
	}
	if len(mem) < ServiceBytes || uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%8 != 0 {
		return nil, fmt.Errorf("%w: %d B of memory for a service: want %d, aligned to 8", dist.ErrInvalid, len(mem), ServiceBytes)
	}
	s := &Service{
		w: w, tag: cfg.Tag, peers: make([]peer, info.Size), entries: make([]entry, entryCount), heaps: map[uint32]*Heap{},
	}
	for i := range s.entries {
		s.vacant = append(s.vacant, uint32(i))
	}
	const part = slotCount * slotBytes
	s.asks.init(mem[:part])
	s.answers.init(mem[part : 2*part])
	s.requests.init(mem[2*part : 3*part])
	s.replies.init(mem[3*part : 4*part])
	for i := range slotCount {
		s.asks.slots[i].listen(w, s.tag)
		s.answers.slots[i].listen(w, s.tag+1)
	}
	return s, nil
}

// Progress handles the messages that have arrived, without waiting, and reports whether it handled
// one. The owner of the wire calls it between calls of the wire's Progress, until all heaps are
// closed on all processes.
func (s *Service) Progress() bool {
	if !s.mu.TryLock() {
		return false // another goroutine is at it
	}
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	moved := s.receive(&s.answers, s.tag+1, s.answer)
	moved = s.receive(&s.asks, s.tag, s.handle) || moved
	s.collect(&s.requests)
	s.collect(&s.replies)
	for _, w := range s.watchers {
		w.check()
	}
	return moved
}

// receive passes the messages of a ring, in order, to handle, as long as that takes them.
func (s *Service) receive(r *ring, tag uint32, handle func(from int, message []byte) bool) bool {
	moved := false
	for range slotCount {
		m := &r.slots[r.next]
		if !m.req.Done() {
			break
		}
		from, n, err := m.req.Result()
		var lost *wire.PeerError
		switch {
		case err == nil:
			if !handle(from, m.buf[:n]) {
				return moved
			}
		case errors.As(err, &lost):
			s.lose(lost.Peer, lost.How)
		case errors.Is(err, wire.ErrClosed) || errors.Is(err, wire.ErrCanceled):
			s.closed = true
			return moved
		}
		m.listen(s.w, tag)
		r.next = (r.next + 1) % slotCount
		moved = true
	}
	return moved
}

// collect notes the outcome of messages that are sent.
func (s *Service) collect(p *pool) {
	if p.busy == 0 {
		return
	}
	for i := range p.slots {
		s.collectSlot(p, &p.slots[i])
	}
}

func (s *Service) collectSlot(p *pool, m *slot) {
	if !m.busy || !m.req.Done() {
		return
	}
	m.busy = false
	p.busy--
	if _, _, err := m.req.Result(); err != nil {
		how := err.Error()
		var lost *wire.PeerError
		if errors.As(err, &lost) {
			how = lost.How
		}
		s.lose(m.peer, how)
	}
}

// Lost ends all requests to a process that is gone, and drops its messages. The owner of the wire
// calls it from OnLost and after Lose.
func (s *Service) Lost(peer int, how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if peer >= 0 && peer < len(s.peers) {
		s.lose(peer, how)
	}
}

func (s *Service) lose(peer int, how string) {
	p := &s.peers[peer]
	if p.gone != "" {
		return
	}
	p.gone = how
	s.giveUpOn(peer)
}

// Left ends all requests to a process that has told that it closes its service. Its own requests,
// which may still be on their way, are applied. The owner of the wire calls it.
func (s *Service) Left(peer int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if peer >= 0 && peer < len(s.peers) && !s.peers[peer].left {
		s.peers[peer].left = true
		s.giveUpOn(peer)
	}
}

// giveUpOn ends all requests to a process that answers no more.
func (s *Service) giveUpOn(peer int) {
	p := &s.peers[peer]
	p.unsure = p.acked < p.sent
	p.acked, p.asked = p.sent, p.sent
	for i := range s.entries {
		if e := &s.entries[i]; e.busy && e.peer == peer {
			s.settle(uint32(i), p.unreachable(peer))
		}
	}
}

// Close ends the service. Calls of heaps that are open end with dist.ErrClosed. Messages that were
// sent before still arrive. Idempotent.
func (s *Service) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for i := range slotCount {
		s.w.Cancel(&s.asks.slots[i].req)
		s.w.Cancel(&s.answers.slots[i].req)
	}
	return nil
}

// slot is a buffer with one message. Its data is aligned to 8.
type slot struct {
	req  wire.Request
	buf  []byte
	peer int
	busy bool // in a pool: sent, and not collected
}

// data is the space after the header.
func (m *slot) data() []byte { return m.buf[headBytes:] }

func (m *slot) listen(w wire.Wire, tag uint32) { w.Recv(&m.req, wire.AnyPeer, tag, m.buf) }

// ring is receives of one tag, which end in this order.
type ring struct {
	slots [slotCount]slot
	next  int // the oldest
}

func (r *ring) init(mem []byte) {
	for i := range r.slots {
		r.slots[i].buf = mem[i*slotBytes : (i+1)*slotBytes : (i+1)*slotBytes]
	}
}

// pool is buffers of messages to send.
type pool struct {
	slots [slotCount]slot
	next  int
	busy  int
}

func (p *pool) init(mem []byte) {
	for i := range p.slots {
		p.slots[i].buf = mem[i*slotBytes : (i+1)*slotBytes : (i+1)*slotBytes]
	}
}

// free returns a buffer that no message uses, or nil.
func (s *Service) free(p *pool) *slot {
	for range slotCount {
		m := &p.slots[p.next]
		s.collectSlot(p, m)
		if !m.busy {
			return m
		}
		p.next = (p.next + 1) % slotCount
	}
	return nil
}

// send sends the header and n bytes of data of a free buffer.
func (s *Service) send(p *pool, m *slot, peer int, tag uint32, h *head, n int) {
	h.encode(m.buf)
	m.peer, m.busy = peer, true
	p.busy++
	p.next = (p.next + 1) % slotCount
	s.w.Send(&m.req, peer, tag, m.buf[:headBytes+n])
}
