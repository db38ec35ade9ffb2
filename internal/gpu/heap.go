package gpu

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/symmetric"
)

// Heap is one rank's end of a symmetric heap in the memory of GPUs. It implements symmetric.Heap.
//
// One-sided calls are copies by the device's copy engines, and small kernels, on a stream of the
// heap. Fence and Quiet wait for that stream. Kernels that store through Peer run on the caller's
// stream, and the caller waits for it.
type Heap struct {
	t       *Transport
	slab    *Slab
	gate    hostheap.Gate
	left    atomic.Bool  // closed, after the last access
	borrows atomic.Int32 // number of parts of the group whose engines know the slab

	mu      sync.Mutex // guards the fields below, one call at a time
	rma     *cuda.Stream
	staging *cuda.HostMemory // of strided copies, and the result of an atomic
	args    *cuda.Args
	joined  *cuda.Event
	pending bool // rma may have work

	looking sync.Mutex // guards the fields below
	looks   *cuda.Stream
	seen    *cuda.HostMemory

	book  sync.Mutex // guards arena
	arena *symmetric.Arena
}

const (
	stagingBytes = 64 << 10 // of strided copies; the result of an atomic comes before them
	stagingAt    = 64
	seenBytes    = 4 << 10
)

// Heap implements dist.Transport.
//
// Errors: those of the Allocator; ErrUnsupported without one.
func (t *Transport) Heap(bytes int64) (symmetric.Heap, error) {
	var h *Heap
	err := t.exclusive(&opEntry{sig: dist.Signature{Kind: dist.KindHeap, Count: bytes}}, nil, func([][]byte) (err error) {
		h, err = t.newHeap(bytes)
		return err
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (t *Transport) newHeap(bytes int64) (*Heap, error) {
	if t.cfg.Alloc == nil {
		return nil, fmt.Errorf("%w: this group has no allocator of symmetric memory", dist.ErrUnsupported)
	}
	if bytes > math.MaxInt64-symmetric.MaxAlignment {
		return nil, fmt.Errorf("%w: %d B", symmetric.ErrNoSpace, bytes)
	}
	part := max(bytes+symmetric.MaxAlignment-1, symmetric.MaxAlignment) &^ (symmetric.MaxAlignment - 1)
	arena, err := symmetric.NewArena(part)
	if err != nil {
		return nil, err
	}
	p := &t.member
	if err := p.Agree(t.streams.idle()); err != nil {
		return nil, err
	}
	slab, err := t.cfg.Alloc.Alloc(p, part)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.cfg.Alloc.Name(), err)
	}
	h := &Heap{t: t, slab: slab, arena: arena, gate: hostheap.NewGate()}
	if err = p.Agree(h.allocate()); err == nil {
		if err = t.engines.register(slab); err == nil {
			p.Memory.Add(slab, p.Rank)
			t.heaps.heaps = append(t.heaps.heaps, h)
			return h, nil
		}
	}
	return nil, errors.Join(err, h.dismantle(), t.whole(slab.Free))
}

// allocate makes the heap's own streams and host memory.
func (h *Heap) allocate() error {
	v := h.t.member.Device
	if err := v.Enter(); err != nil {
		return err
	}
	defer v.Leave()
	least, greatest, err := v.PriorityRange()
	if err != nil {
		return err
	}
	if h.rma, err = v.NewStream(greatest); err != nil {
		return err
	}
	if h.looks, err = v.NewStream(least); err != nil {
		return err
	}
	if h.joined, err = v.NewEvent(); err != nil {
		return err
	}
	if h.staging, err = v.AllocHost(stagingAt + stagingBytes); err != nil {
		return err
	}
	if h.seen, err = v.AllocHost(seenBytes); err != nil {
		return err
	}
	h.args, err = newArgs()
	return err
}

// dismantle releases the results of allocate, also after an error in it.
func (h *Heap) dismantle() error {
	v := h.t.member.Device
	if err := v.Enter(); err != nil {
		return err
	}
	defer v.Leave()
	var errs []error
	if h.rma != nil {
		errs = append(errs, h.rma.Close())
	}
	if h.looks != nil {
		errs = append(errs, h.looks.Close())
	}
	if h.joined != nil {
		errs = append(errs, h.joined.Close())
	}
	if h.staging != nil {
		errs = append(errs, h.staging.Close())
	}
	if h.seen != nil {
		errs = append(errs, h.seen.Close())
	}
	return errors.Join(errs...)
}

// Fence implements symmetric.Heap.
func (h *Heap) Fence() error { return h.settle("fence") }

// Quiet implements symmetric.Heap.
func (h *Heap) Quiet() error { return h.settle("quiet") }

func (h *Heap) settle(call string) error {
	err := hostheap.ErrClosed
	if h.gate.Enter() {
		if err = h.t.ledger.broken(); err == nil {
			err = h.transfer(true, func() error { return nil })
		}
		h.gate.Leave()
	}
	if err != nil {
		return fmt.Errorf("%s rank %d/%d: %w", call, h.t.member.Rank, h.t.member.Size, err)
	}
	return nil
}

// Stats implements symmetric.Heap.
func (h *Heap) Stats() symmetric.Stats {
	h.book.Lock()
	defer h.book.Unlock()
	return h.arena.Stats()
}

// Close implements symmetric.Heap. All ranks free the memory together, at the group's next
// collective call that is not an operation, or at its end. Memory of a broken group is left until
// the process ends.
func (h *Heap) Close() error {
	if !h.gate.Close(func() {}) { // Wait checks the gate itself
		return nil
	}
	defer h.left.Store(true)
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.drain(h.rma)
	if h.t.streams.stalled() {
		return nil
	}
	return errors.Join(err, h.dismantle())
}

// transfer runs f, which queues on the heap's stream, and waits for the stream if wait is set.
func (h *Heap) transfer(wait bool, f func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.t.member.Device
	if err := v.Enter(); err != nil {
		return err
	}
	defer v.Leave()
	h.pending = true
	if err := f(); err != nil {
		return err
	}
	if !wait {
		return nil
	}
	err := h.drain(h.rma)
	h.pending = err != nil
	return err
}

// quiesce waits for the heap's queued transfers.
func (h *Heap) quiesce() error {
	h.mu.Lock()
	pending := h.pending
	h.mu.Unlock()
	if !pending {
		return nil
	}
	return h.transfer(true, func() error { return nil })
}

// drain waits until s is idle. Work on s waits for no peer. If it does not end nevertheless, a
// broken group ends the wait.
func (h *Heap) drain(s *cuda.Stream) error {
	began := time.Now()
	for {
		if idle, err := s.Idle(); err != nil || idle {
			return err
		}
		waited := time.Since(began)
		if waited > patience {
			if err := h.t.ledger.broken(); err != nil {
				return err
			}
		}
		Rest(waited)
	}
}

// joinPending makes s wait for the heap's queued transfers. A captured stream cannot wait for work
// outside the capture, so then joinPending itself waits: the transfers wait for no peer.
func (h *Heap) joinPending(s *cuda.Stream, captured bool) error {
	if !h.gate.Enter() {
		return nil
	}
	defer h.gate.Leave()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.pending:
		return nil
	case captured:
		err := h.drain(h.rma)
		h.pending = err != nil
		return err
	}
	return errors.Join(h.rma.Record(h.joined), s.Wait(h.joined))
}

// pinned returns the host address of offset off in m.
func pinned(m *cuda.HostMemory, off int) unsafe.Pointer {
	return unsafe.Pointer(unsafe.SliceData(m.Bytes()[off:]))
}
