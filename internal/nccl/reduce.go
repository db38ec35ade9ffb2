package nccl

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/tensor"
)

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
