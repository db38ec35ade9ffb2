package farheap

import (
	"fmt"

	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Atomic implements symmetric.Region.
func (r *Region) Atomic(rank int, at int64, a symmetric.Atomic) (uint64, error) {
	n := int64(a.DType.Size())
	if err := hostheap.CheckAtomic(a); err != nil {
		return 0, r.wrong(a.Op.String(), rank, at, n, err)
	}
	if err := r.enterWord(a.Op.String(), rank, at, n); err != nil {
		return 0, err
	}
	h, err := r.heap, error(nil)
	var old uint64
	if inner := h.near[rank]; inner >= 0 {
		old, err = h.whole.Atomic(inner, r.off+at, a)
	} else {
		old, err = h.fetch(rank, head{
			verb: verbAtomic, dtype: a.DType, op: uint8(a.Op), at: r.off + at, value: a.Value, other: a.Compare,
		})
	}
	return old, r.done(a.Op.String(), rank, at, n, err)
}

// Signal implements symmetric.Region.
func (r *Region) Signal(rank int, at int64, op symmetric.SignalOp, value uint64) error {
	const n = hostheap.SignalBytes
	if err := hostheap.CheckSignal(op); err != nil {
		return r.wrong("signal", rank, at, n, err)
	}
	if err := r.enterWord("signal", rank, at, n); err != nil {
		return err
	}
	h, err := r.heap, error(nil)
	if inner := h.near[rank]; inner >= 0 {
		err = h.whole.Signal(inner, r.off+at, op, value)
	} else {
		err = h.tell(rank, head{verb: verbSignal, op: uint8(op), at: r.off + at, value: value})
	}
	return r.done("signal", rank, at, n, err)
}

// PutSignal implements symmetric.Region.
func (r *Region) PutSignal(rank int, at int64, src tensor.Buffer, s symmetric.Signal) error {
	return r.putSignal("put-signal", rank, at, src, s)
}

// PutSignalNBI implements symmetric.Region. src may be changed when it returns.
func (r *Region) PutSignalNBI(rank int, at int64, src tensor.Buffer, s symmetric.Signal) error {
	return r.putSignal("put-signal nbi", rank, at, src, s)
}

func (r *Region) putSignal(call string, rank int, at int64, src tensor.Buffer, s symmetric.Signal) error {
	sig, ok := s.In.(*Region)
	err := hostheap.CheckSignal(s.Op)
	if !ok || sig == nil || sig.heap != r.heap {
		err = fmt.Errorf("the signal: %w", symmetric.ErrNotAllocated)
	}
	if err != nil {
		return r.wrong(call, rank, at, src.Bytes(), err)
	}
	if err := r.enterBuffer(call, rank, at, src); err != nil {
		return err
	}
	if err := sig.enterWord("signal of a put", rank, s.At, hostheap.SignalBytes); err != nil {
		r.heap.gate.Leave()
		return err
	}
	defer r.heap.gate.Leave()
	h := r.heap
	if inner := h.near[rank]; inner >= 0 {
		s.In, s.At = h.whole, sig.off+s.At
		err = h.whole.PutSignal(inner, r.off+at, src, s)
	} else {
		err = h.putFar(rank, r.off+at, src, head{
			verb: verbPutSignal, op: uint8(s.Op), stride: sig.off + s.At, value: s.Value,
		})
	}
	return r.done(call, rank, at, src.Bytes(), err)
}
