package hostheap

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Atomic implements symmetric.Region.
func (r *Region) Atomic(rank int, at int64, a symmetric.Atomic) (uint64, error) {
	if err := CheckAtomic(a); err != nil {
		return 0, r.wrong(a.Op.String(), rank, at, int64(a.DType.Size()), err)
	}
	n := int64(a.DType.Size())
	if err := r.enterWord(a.Op.String(), rank, at, n); err != nil {
		return 0, err
	}
	defer r.heap.gate.Leave()
	var old uint64
	if p := r.at(rank, at); n == 8 {
		old = atomic64((*uint64)(p), a)
	} else {
		old = uint64(atomic32((*uint32)(p), a.Op, uint32(a.Value), uint32(a.Compare)))
	}
	if a.Op != symmetric.OpFetch {
		r.heap.host.Ring(rank, r.off+at, n)
	}
	return old, nil
}

func atomic64(p *uint64, a symmetric.Atomic) uint64 {
	switch a.Op {
	case symmetric.OpSet:
		return atomic.SwapUint64(p, a.Value)
	case symmetric.OpAdd:
		return atomic.AddUint64(p, a.Value) - a.Value
	case symmetric.OpAnd:
		return atomic.AndUint64(p, a.Value)
	case symmetric.OpOr:
		return atomic.OrUint64(p, a.Value)
	case symmetric.OpXor:
		for {
			old := atomic.LoadUint64(p)
			if atomic.CompareAndSwapUint64(p, old, old^a.Value) {
				return old
			}
		}
	case symmetric.OpCompareSwap:
		for {
			old := atomic.LoadUint64(p)
			if old != a.Compare || atomic.CompareAndSwapUint64(p, old, a.Value) {
				return old
			}
		}
	}
	return atomic.LoadUint64(p)
}

func atomic32(p *uint32, op symmetric.AtomicOp, value, compare uint32) uint32 {
	switch op {
	case symmetric.OpSet:
		return atomic.SwapUint32(p, value)
	case symmetric.OpAdd:
		return atomic.AddUint32(p, value) - value
	case symmetric.OpAnd:
		return atomic.AndUint32(p, value)
	case symmetric.OpOr:
		return atomic.OrUint32(p, value)
	case symmetric.OpXor:
		for {
			old := atomic.LoadUint32(p)
			if atomic.CompareAndSwapUint32(p, old, old^value) {
				return old
			}
		}
	case symmetric.OpCompareSwap:
		for {
			old := atomic.LoadUint32(p)
			if old != compare || atomic.CompareAndSwapUint32(p, old, value) {
				return old
			}
		}
	}
	return atomic.LoadUint32(p)
}

// Signal implements symmetric.Region.
func (r *Region) Signal(rank int, at int64, op symmetric.SignalOp, value uint64) error {
	if err := CheckSignal(op); err != nil {
		return r.wrong("signal", rank, at, SignalBytes, err)
	}
	if err := r.enterWord("signal", rank, at, SignalBytes); err != nil {
		return err
	}
	defer r.heap.gate.Leave()
	r.signal(rank, at, op, value)
	return nil
}

// signal updates a checked signal. The update follows all earlier stores of this rank.
func (r *Region) signal(rank int, at int64, op symmetric.SignalOp, value uint64) {
	p := (*uint64)(unsafe.Pointer(r.at(rank, at)))
	if op == symmetric.SignalAdd {
		atomic.AddUint64(p, value)
	} else {
		atomic.StoreUint64(p, value)
	}
	r.heap.host.Ring(rank, r.off+at, SignalBytes)
}

// PutSignal implements symmetric.Region.
func (r *Region) PutSignal(rank int, at int64, src tensor.Buffer, s symmetric.Signal) error {
	return r.putSignal("put-signal", rank, at, src, s)
}

// PutSignalNBI implements symmetric.Region. It is complete when it returns.
func (r *Region) PutSignalNBI(rank int, at int64, src tensor.Buffer, s symmetric.Signal) error {
	return r.putSignal("put-signal nbi", rank, at, src, s)
}

func (r *Region) putSignal(call string, rank int, at int64, src tensor.Buffer, s symmetric.Signal) error {
	sig, ok := s.In.(*Region)
	err := CheckSignal(s.Op)
	if !ok || sig == nil || sig.heap != r.heap {
		err = fmt.Errorf("the signal: %w", symmetric.ErrNotAllocated)
	}
	if err != nil {
		return r.wrong(call, rank, at, src.Bytes(), err)
	}
	if err := r.enterBuffer(call, rank, at, src); err != nil {
		return err
	}
	defer r.heap.gate.Leave()
	if err := sig.enterWord("signal of a put", rank, s.At, SignalBytes); err != nil {
		return err
	}
	defer r.heap.gate.Leave()
	if src.Bytes() > 0 {
		copy(r.bytes(rank)[at:], src.Raw())
	}
	sig.signal(rank, s.At, s.Op, s.Value)
	return nil
}
