package direct

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
)

// copies reports whether op, in a group of one, moves its data and no more: one operand is its own
// reduction, but for a factor.
func copies(op *dist.Op) bool { return !op.Kind.Reduces() || op.Red.Kind != dist.RedPreMulSum }

// copy queues an operation that copies: nothing in place, nor for a barrier, whose stream keeps the
// order.
func (s *state) copy(op *dist.Op, l *call, stream *cuda.Stream) error {
	if l.src == l.dst {
		return nil
	}
	if err := stream.Copy(l.dst, l.src, int64(l.span.block)); err != nil {
		return s.fail(op, err)
	}
	return nil
}

// aloneBlocks is the most blocks of a launch in a group of one: about two waves of the largest
// GPUs. Threads have more to do beyond that.
const aloneBlocks = 1024

// aloneShape is the shape of a launch in a group of one, for so many bytes: 16 of them a thread, up
// to limit blocks.
func aloneShape(bytes uint64, limit int) Shape {
	const most = 16 * MaxThreads
	return Shape{Blocks: int(min(max((bytes+most-1)/most, 1), uint64(limit))), Threads: MaxThreads}
}
