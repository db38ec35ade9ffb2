package hosts

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/internal/net/farheap"
	"github.com/symgrad/symgrad/symmetric"
)

// heaps is this process's part in the symmetric heaps of all groups. One service handles the
// requests of all of them, with tags of its own on the wire. Every goroutine that polls the wire
// also polls the service.
type heaps struct {
	service atomic.Pointer[farheap.Service] // nil before the first heap
	served  atomic.Int64                    // time of the last message about a heap, in ns

	mu     sync.Mutex
	open   []*farHeap
	nextID uint32
}

// serve returns the service, which it makes before the first heap.
func (p *process) serve() (*farheap.Service, error) {
	p.heaps.mu.Lock()
	defer p.heaps.mu.Unlock()
	if s := p.heaps.service.Load(); s != nil {
		return s, nil
	}
	s, err := farheap.NewService(p.w, farheap.ServiceConfig{Tag: channelHeap})
	if err == nil {
		p.heaps.service.Store(s)
	}
	return s, err
}

// progress moves messages and requests of heaps, without waiting, and reports whether it did.
func (p *process) progress() bool {
	moved := p.w.Progress()
	if s := p.heaps.service.Load(); s != nil && s.Progress() {
		p.heaps.served.Store(time.Now().UnixNano())
		return true
	}
	return moved
}

// served returns the time of the last message about a heap.
func (p *process) served() time.Time { return time.Unix(0, p.heaps.served.Load()) }

// numberHeap returns the first number that no heap of this process has had, which is at least
// least.
func (p *process) numberHeap(least uint32) uint32 {
	p.heaps.mu.Lock()
	defer p.heaps.mu.Unlock()
	p.heaps.nextID = max(p.heaps.nextID, least)
	return p.heaps.nextID
}

// flush completes the one-sided calls of this process on the heaps of all groups. Errors: those of
// the heaps of t; other groups have their own.
func (p *process) flush(t *Transport) error {
	p.heaps.mu.Lock()
	open := slices.Clone(p.heaps.open)
	p.heaps.mu.Unlock()
	var errs []error
	for _, h := range open {
		if err := h.Flush(); h.t == t {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Heap implements dist.Transport.
func (t *Transport) Heap(bytes int64) (symmetric.Heap, error) {
	var h symmetric.Heap
	err := t.exclusive(dist.KindHeap, func() (err error) {
		h, err = t.newHeap(bytes)
		return err
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (t *Transport) newHeap(bytes int64) (symmetric.Heap, error) {
	sig := dist.Signature{Kind: dist.KindHeap, Count: bytes, Root: -1}
	if err := t.meet(&exchange{own: header{sig: sig, c: int64(t.p.numberHeap(0))}}); err != nil {
		return nil, err
	}
	var id int64
	for r := range t.ranks {
		id = max(id, t.headerOf(r).c)
	}
	t.p.numberHeap(uint32(id) + 1)
	if err := hostheap.CheckHeap(bytes, len(t.ranks)); err != nil {
		return nil, err
	}
	h, err := t.makeHeap(bytes, uint32(id))
	if err = t.agree(err); err != nil {
		if h != nil {
			err = errors.Join(err, h.Close())
		}
		return nil, err
	}
	return h, nil
}

// makeHeap makes this rank's end of a heap.
//
// Collective: the ranks of this host.
func (t *Transport) makeHeap(bytes int64, id uint32) (symmetric.Heap, error) {
	inner, err := t.inner.Heap(bytes)
	if err != nil {
		return nil, err
	}
	service, err := t.p.serve()
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	near := t.l.members[t.l.host]
	h, err := farheap.New(farheap.Config{
		Service: service, ID: id, Bytes: bytes, Inner: inner, Rank: t.rank, Size: len(t.ranks),
		Near: func(rank int) (int, bool) {
			i, ok := slices.BinarySearch(near, rank)
			return i, ok
		},
		Process: func(rank int) int { return t.ranks[rank] },
		Failed:  t.Broken, Reason: t.awaitReason, Alone: t.alone,
		Agree: func(sig dist.Signature, alignment int64, do func() error) error {
			return t.allocate(header{sig: sig, a: alignment, b: int64(id)}, do)
		},
		Barrier:     func() error { return t.meet(&exchange{own: syncHeader}) },
		StepTimeout: t.p.cfg.StepTimeout,
	})
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	far := &farHeap{h, t}
	t.p.heaps.mu.Lock()
	t.p.heaps.open = append(t.p.heaps.open, far)
	t.p.heaps.mu.Unlock()
	return far, nil
}

// syncHeader is the call of an exchange without data.
var syncHeader = header{sig: dist.Signature{Kind: dist.KindSync, Root: -1}}

// headerOf returns the header of rank in the last exchange.
func (t *Transport) headerOf(rank int) header {
	var h header
	h.get(t.board.header(t.round, rank))
	return h
}

// allocate compares a call on a heap between ranks, and then calls do, in one turn.
func (t *Transport) allocate(own header, do func() error) error {
	return t.exclusive(own.sig.Kind, func() error {
		if err := t.meet(&exchange{own: own}); err != nil {
			return err
		}
		first := t.headerOf(0)
		for r := range t.ranks {
			h := t.headerOf(r)
			var err error
			switch {
			case h.b != first.b:
				err = fmt.Errorf("%w on the heap: rank 0 has %v in heap %d, rank %d in heap %d", dist.ErrMismatch, own.sig.Kind, first.b, r, h.b)
			case h.a != first.a:
				err = fmt.Errorf("%w on the alignment: rank 0 wants %d, rank %d wants %d", dist.ErrMismatch, first.a, r, h.a)
			default:
				continue
			}
			t.fail(err)
			return err
		}
		return do()
	})
}

// alone returns an error if all other ranks have closed their ends, and nil otherwise.
func (t *Transport) alone() error {
	if len(t.ranks) == 1 || !t.peers.allClosed(t.rank) {
		return nil
	}
	return fmt.Errorf("%w: all other ranks have closed their ends", dist.ErrClosed)
}

// farHeap is a heap of a group on several hosts.
type farHeap struct {
	*farheap.Heap
	t *Transport
}

// Close implements symmetric.Heap. It completes this rank's calls first, because a peer may wait
// for the last one.
func (h *farHeap) Close() error {
	_ = h.Flush() // a rank that has closed its heap may have refused a call
	of := &h.t.p.heaps
	of.mu.Lock()
	of.open = slices.DeleteFunc(of.open, func(o *farHeap) bool { return o == h })
	of.mu.Unlock()
	return h.Heap.Close()
}
