package direct

import "github.com/symgrad/symgrad/dist"

// copies reports whether op only moves data in a group of one: one operand is its own reduction,
// except for a factor.
func copies(op *dist.Op) bool { return !op.Kind.Reduces() || op.Red.Kind != dist.RedPreMulSum }

// aloneBlocks is the most blocks of a launch in a group of one: about two waves of the largest
// GPUs. For more data the threads do more.
const aloneBlocks = 1024

// aloneShape returns the shape of a launch in a group of one: 16 bytes a thread, up to limit
// blocks.
func aloneShape(bytes uint64, limit int) Shape {
	const most = 16 * MaxThreads
	return Shape{Blocks: int(min(max((bytes+most-1)/most, 1), uint64(limit))), Threads: MaxThreads}
}
