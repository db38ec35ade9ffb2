package gpu

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Atomic implements symmetric.Region, by a kernel with system scope.
//
// Errors: those of the interface; ErrUnsupported without a compiler for kernels.
func (r *Region) Atomic(rank int, at int64, a symmetric.Atomic) (uint64, error) {
	n := int64(a.DType.Size())
	if err := hostheap.CheckAtomic(a); err != nil {
		return 0, r.wrong(a.Op.String(), rank, at, n, err)
	}
	if err := r.enterWord(a.Op.String(), rank, at, n); err != nil {
		return 0, err
	}
	h := r.heap
	defer h.gate.Leave()
	var old uint64
	err := h.transfer(true, func() error {
		err := h.t.tools.kernels.launchWord(h.args, h.rma, a.Op, int(n), r.at(rank, at), a.Value, a.Compare, h.staging.Device())
		if err != nil {
			return err
		}
		if err := h.drain(h.rma); err != nil {
			return err
		}
		old = *(*uint64)(pinned(h.staging, 0))
		return nil
	})
	return old, r.failed(a.Op.String(), rank, at, n, err)
}

// Signal implements symmetric.Region.
func (r *Region) Signal(rank int, at int64, op symmetric.SignalOp, value uint64) error {
	if err := hostheap.CheckSignal(op); err != nil {
		return r.wrong("signal", rank, at, hostheap.SignalBytes, err)
	}
	if err := r.enterWord("signal", rank, at, hostheap.SignalBytes); err != nil {
		return err
	}
	defer r.heap.gate.Leave()
	err := r.heap.transfer(false, func() error { return r.queueSignal(rank, at, op, value) })
	return r.failed("signal", rank, at, hostheap.SignalBytes, err)
}

// queueSignal queues the update of a signal on the heap's stream.
func (r *Region) queueSignal(rank int, at int64, op symmetric.SignalOp, value uint64) error {
	h := r.heap
	return h.t.tools.kernels.launchWord(h.args, h.rma, atomicOf(op), hostheap.SignalBytes, r.at(rank, at), value, 0, 0)
}

func atomicOf(op symmetric.SignalOp) symmetric.AtomicOp {
	if op == symmetric.SignalAdd {
		return symmetric.OpAdd
	}
	return symmetric.OpSet
}

// PutSignal implements symmetric.Region.
func (r *Region) PutSignal(rank int, at int64, src tensor.Buffer, s symmetric.Signal) error {
	return r.putSignal("put-signal", rank, at, src, s, true)
}

// PutSignalNBI implements symmetric.Region.
func (r *Region) PutSignalNBI(rank int, at int64, src tensor.Buffer, s symmetric.Signal) error {
	return r.putSignal("put-signal nbi", rank, at, src, s, false)
}

func (r *Region) putSignal(call string, rank int, at int64, src tensor.Buffer, s symmetric.Signal, wait bool) error {
	sig, err := r.enterSignal(call, rank, at, src, s)
	if err != nil {
		return err
	}
	defer r.heap.gate.Leave()
	defer r.heap.gate.Leave()
	err = r.heap.transfer(wait && src.Device() != tensor.Host, func() error {
		if src.Bytes() > 0 {
			if err := r.queuePut(rank, at, src); err != nil {
				return err
			}
		}
		return sig.queueSignal(rank, s.At, s.Op, s.Value)
	})
	return r.failed(call, rank, at, src.Bytes(), err)
}

// enterSignal calls enter for a put of src and for its signal, so the caller must leave the gate
// twice. Returns: the signal's region.
func (r *Region) enterSignal(call string, rank int, at int64, src tensor.Buffer, s symmetric.Signal) (*Region, error) {
	sig := base(s.In)
	err := hostheap.CheckSignal(s.Op)
	if sig == nil || sig.heap != r.heap {
		err = fmt.Errorf("the signal: %w", symmetric.ErrNotAllocated)
	}
	if err != nil {
		return nil, r.wrong(call, rank, at, src.Bytes(), err)
	}
	if err := r.enterBuffer(call, rank, at, src); err != nil {
		return nil, err
	}
	if err := sig.enterWord("signal of a put", rank, s.At, hostheap.SignalBytes); err != nil {
		r.heap.gate.Leave()
		return nil, err
	}
	return sig, nil
}

// Wait implements symmetric.Region.
func (r *Region) Wait(ctx context.Context, w symmetric.Watch) (symmetric.Hit, error) {
	own := r.heap.t.member.Rank
	if ctx == nil {
		return symmetric.Hit{Index: -1}, r.wrong("wait", own, w.At, 0, fmt.Errorf("%w: no context", dist.ErrInvalid))
	}
	if err := r.enterWatch("wait", w); err != nil {
		return symmetric.Hit{Index: -1}, err
	}
	h := r.heap
	defer h.gate.Leave()
	began := time.Now()
	for {
		hit, last, err := r.look(w)
		if err == nil && hit.Index >= 0 {
			return hit, nil
		}
		waited := time.Since(began)
		if err == nil {
			err = r.hopeless(ctx, waited)
		}
		if err != nil {
			n := int64(w.Count) * int64(w.DType.Size())
			return symmetric.Hit{Index: -1}, r.wrong("wait", own, w.At, n, hostheap.Unmet(w, last, err))
		}
		Rest(waited)
	}
}

// hopeless returns the error that ends a wait of this length, or nil if it may go on.
func (r *Region) hopeless(ctx context.Context, waited time.Duration) error {
	t := r.heap.t
	switch {
	case r.heap.gate.Closed():
		return hostheap.ErrClosed
	case r.of.freed.Load():
		return hostheap.ErrFreed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case t.ledger.broken() != nil:
		return t.ledger.broken()
	case waited > t.limit:
		return fmt.Errorf("%w after %v", dist.ErrTimeout, t.limit)
	case t.ledger.alone():
		return fmt.Errorf("all other ranks have closed their ends: %w", dist.ErrClosed)
	}
	return nil
}

// Test implements symmetric.Region.
func (r *Region) Test(w symmetric.Watch) (symmetric.Hit, error) {
	if err := r.enterWatch("test", w); err != nil {
		return symmetric.Hit{Index: -1}, err
	}
	defer r.heap.gate.Leave()
	hit, _, err := r.look(w)
	return hit, r.failed("test", r.heap.t.member.Rank, w.At, int64(w.Count)*int64(w.DType.Size()), err)
}

// enterWatch calls enter for a wait or test.
func (r *Region) enterWatch(call string, w symmetric.Watch) error {
	own, size := r.heap.t.member.Rank, int64(w.DType.Size())
	if err := hostheap.CheckWatch(w, r.off, r.n); err != nil {
		return r.wrong(call, own, w.At, size, err)
	}
	return r.enter(call, own, w.At, int64(w.Count)*size)
}

// look reads the words of w through pinned memory. Returns: the hit, and the last word it read.
func (r *Region) look(w symmetric.Watch) (symmetric.Hit, uint64, error) {
	h := r.heap
	h.looking.Lock()
	defer h.looking.Unlock()
	v := h.t.member.Device
	if err := v.Enter(); err != nil {
		return symmetric.Hit{Index: -1}, 0, err
	}
	defer v.Leave()
	size := w.DType.Size()
	chunk := seenBytes / size
	at := r.at(h.t.member.Rank, w.At)
	var last uint64
	for first := 0; first < w.Count; first += chunk {
		n := min(chunk, w.Count-first)
		err := h.looks.CopyToHost(pinned(h.seen, 0), at+uintptr(first*size), int64(n*size))
		if err == nil {
			err = h.drain(h.looks)
		}
		if err != nil {
			return symmetric.Hit{Index: -1}, last, err
		}
		var i int
		if i, last = scan(h.seen.Bytes()[:n*size], w); i >= 0 {
			if w.All {
				return symmetric.Hit{Index: -1}, last, nil
			}
			return symmetric.Hit{Index: first + i, Bits: last}, last, nil
		}
	}
	if w.All {
		return symmetric.Hit{Index: w.Count - 1, Bits: last}, last, nil
	}
	return symmetric.Hit{Index: -1}, last, nil
}

// scan returns the index of the first word in b that decides, or -1. For w.All that is a word that
// does not match; else one that does. Returns: also that word, or the last one.
func scan(b []byte, w symmetric.Watch) (int, uint64) {
	size := w.DType.Size()
	var bits uint64
	for i := range len(b) / size {
		bits = loadBits(unsafe.Pointer(&b[i*size]), int64(size))
		if w.Cmp.Holds(w.DType, bits, w.Value) != w.All {
			return i, bits
		}
	}
	return -1, bits
}

// alone reports whether the group has other ranks and all of them have closed their ends.
func (p *ledger) alone() bool {
	for r := range p.parts {
		if r != p.rank && p.load(r, leftAt) == 0 {
			return false
		}
	}
	return p.size > 1
}
