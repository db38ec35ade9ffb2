package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/hostheap"
	"github.com/symgrad/symgrad/symmetric"
)

// Heap is one rank's end of a symmetric heap in the memory of GPUs. It implements symmetric.Heap.
//
// One-sided calls are copies by the device's engines, and small kernels, on a stream of the heap's
// own; Fence and Quiet wait for it. Stores by kernels through Peer are the caller's to wait for, on
// the stream that has run them.
type Heap struct {
	t       *Transport
	slab    *Slab
	gate    hostheap.Gate
	left    atomic.Bool  // closed, behind the last access
	borrows atomic.Int32 // parts of the group whose engines know the slab

	mu      sync.Mutex // guards what follows, one call at a time
	rma     *cuda.Stream
	staging *cuda.HostMemory // of strided copies, and what an atomic gives
	args    *cuda.Args
	joined  *cuda.Event
	pending bool // rma may have something to do

	looking sync.Mutex // guards what follows
	looks   *cuda.Stream
	seen    *cuda.HostMemory

	book  sync.Mutex // guards arena
	arena *symmetric.Arena
}

const (
	stagingBytes = 64 << 10 // of strided copies; before them the word that an atomic gives
	stagingAt    = 64
	seenBytes    = 4 << 10
)

// Heap implements dist.Transport.
//
// Errors: besides those of the Allocator, ErrUnsupported where there is none.
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
	if err := p.Agree(t.idle()); err != nil {
		return nil, err
	}
	slab, err := t.cfg.Alloc.Alloc(p, part)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.cfg.Alloc.Name(), err)
	}
	h := &Heap{t: t, slab: slab, arena: arena, gate: hostheap.NewGate()}
	if err = p.Agree(h.allocate()); err == nil {
		if err = t.register(slab); err == nil {
			p.Memory.Add(slab, p.Rank)
			t.heaps = append(t.heaps, h)
			return h, nil
		}
	}
	return nil, errors.Join(err, h.dismantle(), t.whole(slab.Free))
}

// whole calls f, which needs all ranks, unless the group is broken: then what f would free is left
// to the process's end.
func (t *Transport) whole(f func() error) error {
	if t.ledger.broken() != nil || f == nil {
		return nil
	}
	return f()
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

// dismantle undoes allocate, as far as it went.
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

// register makes slab known to the engines that must know it. All ranks succeed or none.
func (t *Transport) register(slab *Slab) error {
	for i, e := range t.engines {
		r, ok := e.(Registrar)
		if !ok {
			continue
		}
		own := r.Register(slab)
		err := t.member.Agree(own)
		if err == nil {
			continue
		}
		err = fmt.Errorf("%s: %w", e.Name(), err)
		if own == nil {
			err = errors.Join(err, t.whole(func() error { return r.Unregister(slab) }))
		}
		return errors.Join(err, t.whole(func() error { return unregister(t.engines[:i], slab) }))
	}
	return nil
}

// unregister makes engines forget slab, the last first.
func unregister(engines []Engine, slab *Slab) error {
	var errs []error
	for i := len(engines) - 1; i >= 0; i-- {
		if r, ok := engines[i].(Registrar); ok {
			if err := r.Unregister(slab); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", engines[i].Name(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// A heap is closed by each rank for itself, while its memory, and what libraries know of it, is
// freed by all together: at the next call that is collective anyway, and at the group's end. Until
// then ranks tell each other which of the first heaps they have closed.
const closingsBytes = 8

func (t *Transport) closings() []byte {
	var mask uint64
	for i, h := range t.heaps[:min(len(t.heaps), 64)] {
		if h.left.Load() && h.borrows.Load() == 0 {
			mask |= 1 << i
		}
	}
	return binary.LittleEndian.AppendUint64(make([]byte, 0, 64), mask)
}

// reap frees the heaps that all ranks have closed. all begins with the closings of each. Errors: on
// all ranks alike.
func (t *Transport) reap(all [][]byte) error {
	mask := ^uint64(0)
	for _, b := range all {
		mask &= binary.LittleEndian.Uint64(b[:closingsBytes])
	}
	if mask == 0 || len(t.heaps) == 0 {
		return nil
	}
	var gone, kept []*Heap
	for i, h := range t.heaps {
		if i < 64 && mask>>i&1 != 0 {
			gone = append(gone, h)
		} else {
			kept = append(kept, h)
		}
	}
	t.heaps = kept
	if len(gone) == 0 {
		return nil
	}
	return t.member.Agree(t.freeHeaps(gone)) // else ranks that could free go on to what the others have given up
}

// freeHeaps frees the memory of heaps. Collective.
func (t *Transport) freeHeaps(heaps []*Heap) error {
	var errs []error
	for i := len(heaps) - 1; i >= 0; i-- {
		h := heaps[i]
		errs = append(errs, h.Close(), unregister(t.engines, h.slab))
		t.member.Memory.Remove(h.slab)
		if h.slab.Free != nil {
			errs = append(errs, h.slab.Free())
		}
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

// Close implements symmetric.Heap. The memory itself is freed by all ranks together, at the group's
// next collective call that is no operation, or its end; that of a broken group is left to the end
// of the process.
func (h *Heap) Close() error {
	if !h.gate.Close(func() {}) { // a Wait asks the gate by itself
		return nil
	}
	defer h.left.Store(true)
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.drain(h.rma)
	if h.t.stalled() {
		return nil
	}
	return errors.Join(err, h.dismantle())
}

// transfer runs f, which queues on the heap's stream, and waits for the stream if told to.
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

// quiesce waits for the transfers that the heap has queued.
func (h *Heap) quiesce() error {
	h.mu.Lock()
	pending := h.pending
	h.mu.Unlock()
	if !pending {
		return nil
	}
	return h.transfer(true, func() error { return nil })
}

// drain returns when s has nothing to do. What is on it waits for nobody; should it not end all the
// same, a broken group ends the wait.
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

// joinPending makes s wait for the transfers that the heap has queued. A stream that is captured
// cannot wait for what is not captured, so it waits for them itself: they wait for nobody.
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

// pinned is the host's address of m from off on.
func pinned(m *cuda.HostMemory, off int) unsafe.Pointer {
	return unsafe.Pointer(unsafe.SliceData(m.Bytes()[off:]))
}
