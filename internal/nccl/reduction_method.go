package nccl

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// reductionMethod is how a reduction of package dist is done.
type reductionMethod uint8

const (
	wayNone   reductionMethod = iota
	wayNative                 // NCCL's own
	wayDivide                 // NCCL's sum, divided afterwards
	wayOrder                  // NCCL's maximum or minimum of integers that order as the floats do
)

// reductionWay is how red over elements of dt is done among n ranks: the table in doc.go.
func reductionWay(dt tensor.DType, red dist.RedKind, n int) reductionMethod {
	switch {
	case dt == tensor.I16 || dt == tensor.U16 || !dt.Valid() || red > dist.RedXor:
		return wayNone
	case red.Bitwise() && n > 1:
		return wayNone
	case n == 1:
		return wayNative // a copy, and premulsum scales
	case dt.IsFloat() && (red == dist.RedMin || red == dist.RedMax):
		return wayOrder // NCCL's own lose a NaN beside a number
	case dt.IsFloat() && red == dist.RedAvg && n&(n-1) != 0 && dt != tensor.F16:
		// NCCL multiplies by 1/n before it adds, which rounds unless n is a power of two. A sum of
		// f16 may overflow where its mean does not, so f16 keeps NCCL's way.
		return wayDivide
	}
	return wayNative
}

// What engines cannot do, as values: Can is asked for every operation, and allocates nothing.
var (
	errNoInt16 = fmt.Errorf("nccl: %w: NCCL has no 16-bit integers to reduce", dist.ErrUnsupported)
	errNoBits  = fmt.Errorf("nccl: %w: NCCL has no and, or and xor; backends cuda and nvshmem have them", dist.ErrUnsupported)
	errKind    = fmt.Errorf("nccl: %w: not an operation on tensors", dist.ErrUnsupported)
	errPromise = fmt.Errorf("nccl: %w: windows serve operations on symmetric memory only, see dist.Group.Symmetric", dist.ErrUnsupported)
	errPlain   = fmt.Errorf("nccl: %w: NCCL has no kernel for it that uses windows; the engine nccl does it", dist.ErrUnsupported)
	errWindows = fmt.Errorf("nccl: %w: no window is registered", dist.ErrUnsupported)
	errLoose   = fmt.Errorf("nccl: %w: a buffer lies in no window, though the operation was promised to be symmetric", dist.ErrInvalid)
	errStream  = fmt.Errorf("nccl: %w: the stream is closed", dist.ErrClosed)
	errUneven  = fmt.Errorf("nccl: %w: before NCCL %v, windows serve parts of a multiple of 8 B; the engine nccl does others", dist.ErrUnsupported, alignVersion)
	errAskew   = fmt.Errorf("nccl: %w: before NCCL %v, windows serve buffers at multiples of 8 B", dist.ErrUnsupported, alignVersion)
	errOneRank = fmt.Errorf("nccl: %w: one rank has no use for windows", dist.ErrUnsupported)
)

// can is what both engines share: nil when the operation can be done among n ranks.
func can(op *dist.Op, n int, noKernels error) error {
	switch op.Kind {
	case dist.KindAllReduce, dist.KindReduce, dist.KindReduceScatter:
		switch reductionWay(op.DType(), op.Red.Kind, n) {
		case wayNone:
			if op.Red.Kind.Bitwise() {
				return errNoBits
			}
			return errNoInt16
		case wayDivide, wayOrder:
			return noKernels
		}
		return nil
	case dist.KindBroadcast, dist.KindAllGather, dist.KindAllToAll, dist.KindGather, dist.KindScatter,
		dist.KindSend, dist.KindRecv, dist.KindBarrier, dist.KindSync:
		return nil
	}
	return errKind
}

// canWindow is what the engine on windows adds for NCCL v: only what NCCL has kernels for that go
// from window to window, or what copy engines do when the policy asks for them (enqueue.cc,
// taskAppend). They can gather and scatter as well, but there a rank without a buffer would choose
// another way than the root.
func canWindow(op *dist.Op, n int, policy CTAPolicy, v Version) error {
	if !op.Symmetric {
		return errPromise
	}
	switch op.Kind {
	case dist.KindAllReduce, dist.KindReduceScatter:
		switch dt := op.DType(); {
		case dt != tensor.F16 && dt != tensor.BF16 && dt != tensor.F32:
		case op.Red.Kind == dist.RedSum, op.Red.Kind == dist.RedAvg && dt != tensor.F16 && n > 1: // windowWay
			return even(op, v)
		}
	case dist.KindAllGather:
		return even(op, v)
	case dist.KindAllToAll:
		if policy == PolicyZero {
			return nil
		}
	}
	return errPlain
}

// even is nil where the ranks' parts begin at multiples of 8 B if the buffer does. Elsewhere
// kernels before alignVersion give wrong results: until 2.28.7 because blocks of one kernel
// disagree on whether parts are aligned (symmetric/all_gather.cuh, reduce_scatter.cuh), and after
// it because loadPack shifts in a word that it never loaded (device/op128.h).
func even(op *dist.Op, v Version) error {
	if v < alignVersion && op.Kind != dist.KindAllReduce && op.Count*op.DType().Size()%8 != 0 {
		return errUneven
	}
	return nil
}

// askew reports whether a buffer of op lies where kernels before alignVersion go wrong. On all
// ranks alike, because symmetric buffers lie at the same offsets of windows, and windows at
// multiples of windowAlignment.
func askew(op *dist.Op, v Version) bool {
	return v < alignVersion && (addr(&op.Src)|addr(&op.Dst))%8 != 0
}

// windowWay is reductionWay where NCCL has only sums that use windows: a mean is a sum that is
// divided.
func windowWay(dt tensor.DType, red dist.RedKind, n int) reductionMethod {
	if red == dist.RedAvg && dt.IsFloat() && n > 1 {
		return wayDivide
	}
	return reductionWay(dt, red, n)
}
