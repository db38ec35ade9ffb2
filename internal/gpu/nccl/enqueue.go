package nccl

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

func addr(b *tensor.Buffer) uintptr { return uintptr(b.Pointer()) }

// enqueue queues op on s. The lock is held, the context is current, and Can returned nil.
func (c *Comm) enqueue(op *dist.Op, t *tools, by func(tensor.DType, dist.RedKind, int) reductionMethod, s *cuda.Stream) error {
	if s.Handle() == 0 {
		return errStream // NCCL would take the default stream
	}
	if op.Kind == dist.KindBarrier || op.Kind == dist.KindSync {
		return c.allReduce(t.word, t.word, 1, typeU32, opSum, s.Handle())
	}
	if op.Count == 0 {
		return nil // on all ranks
	}
	dt := op.DType()
	if op.Kind.Reduces() {
		switch by(dt, op.Red.Kind, c.size) {
		case methodOrder:
			return c.ordered(op, t, s)
		case methodDivide:
			return c.divided(op, t, s)
		}
		red := redOps[op.Red.Kind]
		switch {
		case c.size == 1 && op.Red.Kind != dist.RedPreMulSum:
			red = opSum // a copy; NCCL's mean multiplies by 1 even here, which changes a NaN's bits
		case op.Red.Kind == dist.RedPreMulSum:
			var err error
			if red, err = c.redOps.premulsum(c, &op.Red.Scalar, dtypes[dt]); err != nil {
				return err
			}
		}
		return c.reduction(op, dtypes[dt], red, s.Handle())
	}
	return c.move(op, dt, s.Handle())
}

// reduction queues a reduction of NCCL's.
func (c *Comm) reduction(op *dist.Op, dtype, red int32, stream uintptr) error {
	dst, src := addr(&op.Dst), addr(&op.Src)
	switch op.Kind {
	case dist.KindAllReduce:
		return c.allReduce(dst, src, op.Count, dtype, red, stream)
	case dist.KindReduce:
		return c.reduce(dst, src, op.Count, dtype, red, op.Root, stream)
	}
	return c.reduceScatter(dst, src, op.Count, dtype, red, stream)
}

// move queues an operation that only copies.
func (c *Comm) move(op *dist.Op, dt tensor.DType, stream uintptr) error {
	dst, src, dtype := addr(&op.Dst), addr(&op.Src), dtypes[dt]
	switch op.Kind {
	case dist.KindBroadcast:
		if c.rank != op.Root {
			src = dst
		}
		return c.broadcast(dst, src, op.Count, dtype, op.Root, stream)
	case dist.KindAllGather:
		return c.allGather(dst, src, op.Count, dtype, stream)
	case dist.KindAllToAll:
		return c.allToAll(dst, src, op.Count, dtype, dt.Size(), stream)
	case dist.KindGather:
		return c.gather(dst, src, op.Count, dtype, dt.Size(), op.Root, stream)
	case dist.KindScatter:
		return c.scatter(dst, src, op.Count, dtype, dt.Size(), op.Root, stream)
	case dist.KindSend:
		return c.send(src, op.Count, dtype, op.Peer, stream)
	case dist.KindRecv:
		return c.recv(dst, op.Count, dtype, op.Peer, stream)
	}
	return errKind
}

// divided queues a mean as a sum and one division by the number of ranks, as in package dist.
func (c *Comm) divided(op *dist.Op, t *tools, s *cuda.Stream) error {
	dt := op.DType()
	if err := c.reduction(op, dtypes[dt], opSum, s.Handle()); err != nil {
		return err
	}
	if op.Dst.IsZero() {
		return nil // another rank is the root
	}
	return t.divideBy(addr(&op.Dst), dt, op.Count, c.size, s)
}

// ordered queues a minimum or maximum of floats as one of integers in the same order, piece by
// piece through the staging memory. A NaN is the largest for a maximum and the smallest for a
// minimum, so that it wins.
func (c *Comm) ordered(op *dist.Op, t *tools, s *cuda.Stream) error {
	dt := op.DType()
	elem, rows, key, keyBytes := dt.Size(), 1, int32(typeI32), 4
	if dt == tensor.F64 {
		key, keyBytes = typeI64, 8
	}
	if op.Kind == dist.KindReduceScatter {
		rows = c.size
	}
	largest := op.Red.Kind == dist.RedMax
	red := redOps[op.Red.Kind]
	dst, src, at := addr(&op.Dst), addr(&op.Src), t.staging
	for first, piece := 0, stagingBytes/(keyBytes*rows); first < op.Count; first += piece {
		n := min(piece, op.Count-first)
		if err := t.encodeTo(at, src+uintptr(first*elem), dt, n, rows, op.Count, largest, s); err != nil {
			return err
		}
		own := at // location of the result
		var err error
		switch op.Kind {
		case dist.KindAllReduce:
			err = c.allReduce(at, at, n, key, red, s.Handle())
		case dist.KindReduce:
			err = c.reduce(at, at, n, key, red, op.Root, s.Handle())
		default:
			own += uintptr(c.rank * n * keyBytes)
			err = c.reduceScatter(own, at, n, key, red, s.Handle())
		}
		if err != nil {
			return err
		}
		if op.Dst.IsZero() {
			continue
		}
		if err := t.decodeTo(dst+uintptr(first*elem), own, dt, n, s); err != nil {
			return err
		}
	}
	return nil
}

// AllReduce queues on s the reduction of src over the ranks to dst on all of them, as NCCL does it.
// It is for communicators without a group of package dist.
//
// Shapes: as dist.Group.AllReduce. Collective: all ranks, same order. Returns: when queued. Owns:
// dst and src belong to the communicator until s has passed the call. Errors: dist.ErrInvalid;
// dist.ErrUnsupported for reductions that NCCL lacks or computes differently from package dist;
// *Error.
func (c *Comm) AllReduce(dst, src tensor.Buffer, red dist.RedOp, s *cuda.Stream) error {
	dt := src.DType()
	switch {
	case !dt.Valid() || dst.DType() != dt:
		return fmt.Errorf("nccl: allreduce: %w: source is %v, destination %v", dist.ErrDType, dt, dst.DType())
	case dst.Len() < src.Len():
		return fmt.Errorf("nccl: allreduce: %w: destination has %d elements, %d are needed", dist.ErrCount, dst.Len(), src.Len())
	case red.Kind == dist.RedPreMulSum && red.Scalar.DType != dt:
		return fmt.Errorf("nccl: allreduce: %w: the scalar is %v, the elements are %v", dist.ErrDType, red.Scalar.DType, dt)
	case methodOf(dt, red.Kind, c.size) != methodNative:
		return fmt.Errorf("nccl: allreduce: %w: NCCL has no %v of %v that agrees with package dist", dist.ErrUnsupported, red, dt)
	}
	op := dist.Op{Kind: dist.KindAllReduce, Red: red, Count: src.Len(), Dst: dst, Src: src}
	return c.with(func() error { return c.enqueue(&op, nil, methodOf, s) })
}
