package dist

import (
	"fmt"

	"github.com/symgrad/symgrad/tensor"
)

// validate checks op against the rules of its kind, cuts its buffers to the elements used, drops
// those that this rank does not use, and sets Count. Nothing has been sent when it returns an
// error.
func (c *core) validate(op *Op, inBatch bool) error {
	n, rank := c.info.Size, c.info.Rank
	if op.Kind.Rooted() && (op.Root < 0 || op.Root >= n) {
		return fmt.Errorf("%w: %d is not in 0 to %d", ErrRoot, op.Root, n-1)
	}
	atRoot := op.Kind.Rooted() && op.Root == rank
	switch op.Kind {
	case KindReduce, KindGather:
		if !atRoot {
			op.Dst = tensor.Buffer{}
		}
	case KindBroadcast, KindScatter:
		if !atRoot {
			op.Src = tensor.Buffer{}
		}
	case KindBarrier, KindSync:
		return nil
	case KindBatch:
		return nil
	}
	if err := c.checkBuffers(op, atRoot); err != nil {
		return err
	}
	if err := c.checkPeer(op, inBatch); err != nil {
		return err
	}
	if err := c.checkCounts(op); err != nil {
		return err
	}
	if err := c.checkAlias(op); err != nil {
		return err
	}
	return c.checkRed(op)
}

// checkBuffers checks presence, dtype and device of the buffers that this rank uses.
func (c *core) checkBuffers(op *Op, atRoot bool) error {
	needSrc := op.Kind != KindRecv && (atRoot || (op.Kind != KindBroadcast && op.Kind != KindScatter))
	needDst := op.Kind != KindSend && (atRoot || (op.Kind != KindReduce && op.Kind != KindGather))
	if needSrc {
		if err := c.checkBuffer("source", &op.Src); err != nil {
			return err
		}
	}
	if needDst {
		if err := c.checkBuffer("destination", &op.Dst); err != nil {
			return err
		}
	}
	if needSrc && needDst && op.Src.DType() != op.Dst.DType() {
		err := fmt.Errorf("%w: source is %v, destination %v", ErrDType, op.Src.DType(), op.Dst.DType())
		if op.Src.IsUntyped() || op.Dst.IsUntyped() {
			err = fmt.Errorf("%w: bytes of a region have no element type, take a view of them, as with region.Local().As", err)
		}
		return err
	}
	return nil
}

func (c *core) checkBuffer(role string, b *tensor.Buffer) error {
	if !b.DType().Valid() {
		return fmt.Errorf("%w: no %s buffer", ErrDType, role)
	}
	if b.Device() != c.info.Device {
		return fmt.Errorf("%w: the %s is on %v, the group on %v", ErrDevice, role, b.Device(), c.info.Device)
	}
	return nil
}

func (c *core) checkPeer(op *Op, inBatch bool) error {
	if !op.Kind.PointToPoint() {
		return nil
	}
	if op.Peer < 0 || op.Peer >= c.info.Size {
		return fmt.Errorf("%w: peer %d is not in 0 to %d", ErrRank, op.Peer, c.info.Size-1)
	}
	if op.Peer == c.info.Rank && !inBatch {
		return fmt.Errorf("%w: peer %d is this rank; send and receive to oneself belong in one Batch", ErrRank, op.Peer)
	}
	return nil
}

// checkCounts sets op.Count and cuts the buffers, by the rules of NCCL as nccl4py checks them.
func (c *core) checkCounts(op *Op) error {
	n, src, dst := c.info.Size, op.Src.Len(), op.Dst.Len()
	needDst := dst // elements written
	switch op.Kind {
	case KindAllReduce, KindReduce, KindAllGather, KindGather:
		op.Count = src
		needDst = src
		if op.Kind == KindAllGather || op.Kind == KindGather {
			needDst = n * src
		}
	case KindReduceScatter, KindAllToAll:
		if src%n != 0 {
			return fmt.Errorf("%w: source has %d elements, which %d ranks do not divide", ErrCount, src, n)
		}
		op.Count = src / n
		needDst = op.Count
		if op.Kind == KindAllToAll {
			needDst = src
		}
	case KindBroadcast, KindScatter:
		op.Count = dst
		needSrc := dst
		if op.Kind == KindScatter {
			needSrc = n * dst
		}
		if !op.Src.IsZero() && src != needSrc {
			return fmt.Errorf("%w: source has %d elements, the %d of the destination need %d", ErrCount, src, dst, needSrc)
		}
	case KindSend:
		op.Count = src
	case KindRecv:
		op.Count = dst
	}
	if !op.Dst.IsZero() {
		if dst < needDst {
			return fmt.Errorf("%w: destination has %d elements, %d are needed", ErrCount, dst, needDst)
		}
		op.Dst, _ = op.Dst.Slice(0, needDst)
	}
	return nil
}

// checkAlias allows disjoint buffers and the one overlap that is in place for the kind; see
// reference/NCCL "in-place operations". Offsets are elements of Op.Count.
func (c *core) checkAlias(op *Op) error {
	if op.Src.IsZero() || op.Dst.IsZero() || !tensor.Overlap(op.Src, op.Dst) {
		return nil
	}
	lo := c.info.Rank * op.Count
	where := func() string { return "the same buffer" } // only for the error
	var err error
	a, b := op.Src, op.Dst
	switch op.Kind {
	case KindAllGather, KindGather:
		where = func() string { return fmt.Sprintf("source at element %d of destination", lo) }
		b, err = b.Slice(lo, lo+op.Count)
	case KindReduceScatter, KindScatter:
		where = func() string { return fmt.Sprintf("destination at element %d of source", lo) }
		a, err = a.Slice(lo, lo+op.Count)
	case KindAllToAll:
		return fmt.Errorf("%w: alltoall cannot work in place; source and destination must be disjoint", ErrAlias)
	}
	if err != nil {
		return err
	}
	if !tensor.Same(a, b) {
		return fmt.Errorf("%w: source and destination overlap; in place means %s", ErrAlias, where())
	}
	return nil
}

func (c *core) checkRed(op *Op) error {
	if !op.Kind.Reduces() {
		return nil
	}
	if op.Red.Kind > RedXor {
		return fmt.Errorf("%w: unknown reduction %v", ErrInvalid, op.Red)
	}
	if (op.Src.IsUntyped() || op.Dst.IsUntyped()) && !op.Red.Kind.Bitwise() {
		return fmt.Errorf("%w: bytes of a region have no element type to take the %v of: take a view of them, such as "+
			"region.Local().As(tensor.F32), or As(tensor.U8) where they are numbers", ErrDType, op.Red)
	}
	if op.Red.Kind.Bitwise() && op.DType().IsFloat() {
		return fmt.Errorf("%w: %v of %v: bitwise reductions need integers, or untyped bytes", ErrDType, op.Red, op.DType())
	}
	if op.Red.Kind != RedPreMulSum {
		return nil
	}
	s := op.Red.Scalar
	switch {
	case s.DType != op.DType():
		return fmt.Errorf("%w: premulsum scalar is %v, the buffers %v", ErrDType, s.DType, op.DType())
	case s.At.IsZero():
		return nil
	case s.At.DType() != s.DType:
		return fmt.Errorf("%w: premulsum scalar is %v, its memory %v", ErrDType, s.DType, s.At.DType())
	case s.At.Len() != 1:
		return fmt.Errorf("%w: premulsum scalar has %d elements, not 1", ErrCount, s.At.Len())
	case s.At.Device() != c.info.Device:
		return fmt.Errorf("%w: the premulsum scalar is on %v, the group on %v", ErrDevice, s.At.Device(), c.info.Device)
	case tensor.Overlap(s.At, op.Dst):
		return fmt.Errorf("%w: the premulsum scalar is in the destination, and might be read after that is written", ErrAlias)
	}
	return nil
}
