package shm

import (
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// reducer is the sums of an operation, and the addresses of their sources and destinations.
type reducer struct {
	srcs      []unsafe.Pointer // by rank
	dsts      []unsafe.Pointer
	scalars   []uint64 // by rank
	kernel    reduce.Kernel
	kernelFor kernelKey
}

type kernelKey struct {
	dt  tensor.DType
	red dist.RedKind
}

func (d *reducer) init(n int) {
	// Separate cache lines, so that other ranks of this process do not write to them.
	places := lines[unsafe.Pointer](2 * n)
	d.srcs, d.dsts, d.scalars = places[:n], places[n:], lines[uint64](n)
}

// sum reduces n elements of d.srcs in rank order and stores them to all dsts.
func (d *reducer) sum(op *dist.Op, dsts []unsafe.Pointer, n int, how reduce.How) {
	if d.kernelFor != (kernelKey{op.DType(), op.Red.Kind}) {
		d.kernelFor = kernelKey{op.DType(), op.Red.Kind}
		d.kernel = reduce.For(op.DType(), op.Red.Kind)
	}
	d.kernel(dsts, d.srcs, n, d.scalars, how)
}
