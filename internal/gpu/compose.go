package gpu

import (
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// how is the composition around an engine that cannot do an operation as it is. The package comment
// has the table.
type how uint8

const (
	plain   how = iota
	asSum       // a barrier is a sum of one word
	asBytes     // copies of a type that a library lacks
	scaled      // an average is a sum, divided afterwards
	premul      // a premulsum is a product to the destination, summed in place
)

// hows returns the possible compositions of op, by its kind and type.
func (k *dispatcher) hows(op *dist.Op) []how {
	half := op.DType() == tensor.F16 || op.DType() == tensor.BF16 // libraries round the sum, so a later kernel rounds twice
	switch {
	case op.Kind == dist.KindBarrier || op.Kind == dist.KindSync:
		return []how{asSum}
	case !op.Kind.Reduces():
		return []how{asBytes}
	case half || !k.kernels:
		return nil
	case op.Red.Kind == dist.RedAvg:
		return []how{scaled}
	case op.Red.Kind == dist.RedPreMulSum && op.Kind == dist.KindAllReduce:
		return []how{premul}
	}
	return nil
}

// compose sets to to the operation that an engine gets for op. It returns false if h does not fit
// op.
func (k *dispatcher) compose(to, op *dist.Op, h how) bool {
	*to = *op
	switch h {
	case asSum:
		to.Kind, to.Red, to.Count, to.Dst, to.Src, to.Symmetric = dist.KindAllReduce, dist.Sum, 1, k.word, k.word, false
	case asBytes:
		size := op.DType().Size()
		var ok, ok2 bool
		to.Dst, ok = asU8(op.Dst)
		to.Src, ok2 = asU8(op.Src)
		to.Count = op.Count * size
		return ok && ok2 && size > 1
	case scaled:
		to.Red = dist.Sum
	case premul:
		to.Red, to.Src = dist.Sum, op.Dst
	}
	return true
}

// asU8 returns b as bytes.
func asU8(b tensor.Buffer) (tensor.Buffer, bool) {
	if b.IsZero() {
		return b, true
	}
	bytes, err := tensor.FromPointer(b.Pointer(), int(b.Bytes()), tensor.U8, b.Device())
	return bytes, err == nil
}

// local is the engine of a group of one without package direct: copies, scaled for a premulsum.
type local struct{ w *tools }

// Name implements Engine.
func (l *local) Name() string { return "local" }

// Can implements Engine.
func (l *local) Can(op *dist.Op) error {
	if op.Kind.Reduces() && op.Red.Kind == dist.RedPreMulSum {
		return l.w.kernels.err
	}
	return nil // messages to oneself are copied without an engine
}

// Enqueue implements Engine.
func (l *local) Enqueue(op *dist.Op, s *cuda.Stream) error {
	if op.Kind.Reduces() && op.Red.Kind == dist.RedPreMulSum {
		return l.w.scale(op.Dst, op.Src, &op.Red.Scalar, s)
	}
	if op.Dst.IsZero() || op.Src.IsZero() || tensor.Same(op.Dst, op.Src) {
		return nil
	}
	return s.Copy(address(op.Dst), address(op.Src), op.Src.Bytes())
}

// Failed implements Engine.
func (l *local) Failed() error { return nil }

// Abort implements Engine. Nothing waits.
func (l *local) Abort() {}

// Split implements Engine. The transport of the part makes its own.
func (l *local) Split(*Member) (Engine, error) { return nil, nil }

// Close implements Engine.
func (l *local) Close() error { return nil }

// address returns the address of b on its device.
func address(b tensor.Buffer) uintptr { return uintptr(unsafe.Pointer(b.Pointer())) }
