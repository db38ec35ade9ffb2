package nccl

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// reductionMethod says how a reduction of package dist is done.
type reductionMethod uint8

const (
	methodNone   reductionMethod = iota
	methodNative                 // NCCL's own
	methodDivide                 // NCCL's sum, then a division
	methodOrder                  // NCCL's maximum or minimum of integers in the order of the floats
)

// methodOf returns the method of red over elements of dt among n ranks: the table in doc.go.
func methodOf(dt tensor.DType, red dist.RedKind, n int) reductionMethod {
	switch {
	case dt == tensor.I16 || dt == tensor.U16 || !dt.Valid() || red > dist.RedXor:
		return methodNone
	case red.Bitwise() && n > 1:
		return methodNone
	case n == 1:
		return methodNative // a copy, and premulsum scales
	case dt.IsFloat() && (red == dist.RedMin || red == dist.RedMax):
		return methodOrder // NCCL's own drop a NaN if the other operand is a number
	case dt.IsFloat() && red == dist.RedAvg && n&(n-1) != 0 && dt != tensor.F16:
		// NCCL multiplies by 1/n before it adds, which rounds unless n is a power of two. A sum of
		// f16 may overflow though its mean does not, so f16 keeps NCCL's mean.
		return methodDivide
	}
	return methodNative
}

// Errors of Can as values: Can is called for every operation, and allocates nothing.
var (
	errNoInt16 = fmt.Errorf("nccl: %w: NCCL has no 16-bit integers to reduce", dist.ErrUnsupported)
	errNoBits  = fmt.Errorf("nccl: %w: NCCL has no and, or and xor; backends cuda and nvshmem have them", dist.ErrUnsupported)
	errKind    = fmt.Errorf("nccl: %w: not an operation on tensors", dist.ErrUnsupported)
	errPromise = fmt.Errorf("nccl: %w: windows serve operations on symmetric memory only, see dist.Hints.Symmetric", dist.ErrUnsupported)
	errPlain   = fmt.Errorf("nccl: %w: NCCL has no kernel for it that uses windows; the engine nccl does it", dist.ErrUnsupported)
	errWindows = fmt.Errorf("nccl: %w: no window is registered", dist.ErrUnsupported)
	errLoose   = fmt.Errorf("nccl: %w: a buffer is in no window, though the operation was promised to be symmetric", dist.ErrInvalid)
	errStream  = fmt.Errorf("nccl: %w: the stream is closed", dist.ErrClosed)
	errUneven  = fmt.Errorf("nccl: %w: before NCCL %v, windows serve parts of a multiple of 8 B; the engine nccl does others", dist.ErrUnsupported, alignVersion)
	errAskew   = fmt.Errorf("nccl: %w: before NCCL %v, windows serve buffers at multiples of 8 B", dist.ErrUnsupported, alignVersion)
	errHosts   = fmt.Errorf("nccl: %w: the ranks are on several hosts, and windows are used on one: use engine nccl", dist.ErrUnsupported)
	errOneRank = fmt.Errorf("nccl: %w: one rank has no use for windows", dist.ErrUnsupported)
)

// can returns nil if both engines can do the operation among n ranks.
func can(op *dist.Op, n int, noKernels error) error {
	switch op.Kind {
	case dist.KindAllReduce, dist.KindReduce, dist.KindReduceScatter:
		switch methodOf(op.DType(), op.Red.Kind, n) {
		case methodNone:
			if op.Red.Kind.Bitwise() {
				return errNoBits
			}
			return errNoInt16
		case methodDivide, methodOrder:
			return noKernels
		}
		return nil
	case dist.KindBroadcast, dist.KindAllGather, dist.KindAllToAll, dist.KindGather, dist.KindScatter,
		dist.KindSend, dist.KindRecv, dist.KindBarrier, dist.KindSync:
		return nil
	}
	return errKind
}

// canWindow returns nil if window kernels of NCCL v can do op, or copy engines if the policy is
// PolicyZero (enqueue.cc, taskAppend). Copy engines can gather and scatter as well. But a rank
// without a buffer would then choose another algorithm than the root.
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

// even returns nil if the ranks' parts begin at multiples of 8 B whenever the buffer does.
// Otherwise kernels before alignVersion give wrong results. Until 2.28.7 blocks of one kernel
// disagree on whether parts are aligned (symmetric/all_gather.cuh, reduce_scatter.cuh). Later,
// loadPack shifts in a word that it never loaded (device/op128.h).
func even(op *dist.Op, v Version) error {
	if v < alignVersion && op.Kind != dist.KindAllReduce && op.Count*op.DType().Size()%8 != 0 {
		return errUneven
	}
	return nil
}

// askew reports whether a buffer of op has an alignment that kernels before alignVersion get wrong.
// All ranks get the same answer: symmetric buffers have equal offsets in windows, and windows begin
// at multiples of windowAlignment.
func askew(op *dist.Op, v Version) bool {
	return v < alignVersion && (addr(&op.Src)|addr(&op.Dst))%8 != 0
}

// windowMethodOf is methodOf for windows, where NCCL has only sums: a mean is a sum and a division.
func windowMethodOf(dt tensor.DType, red dist.RedKind, n int) reductionMethod {
	if red == dist.RedAvg && dt.IsFloat() && n > 1 {
		return methodDivide
	}
	return methodOf(dt, red, n)
}
