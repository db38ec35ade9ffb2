package ddp

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// fillOnGPU is fill for shards on GPUs: a machine binds them, and the inputs have no
// elements.
//
// Collective: all ranks.
func (x *shards) fillOnGPU(inputs gorgonia.Nodes) error {
	x.inputs = inputs
	for _, s := range x.d.slots {
		if err := s.spread(); err != nil {
			return fmt.Errorf("parameter %q: %w", s.param.Name(), err)
		}
	}
	if err := x.forget(); err != nil {
		return err
	}
	return x.adopt()
}

// writeOwn copies n elements of a value on the host, from element first on, to this rank's weights
// of b, from element to on.
func (x *shards) writeOwn(b *bucket, to int, value tensor.Buffer, first, n int) error {
	part, err := value.Slice(first, first+n)
	if err != nil {
		return err
	}
	r, at, err := x.d.mem.regionOf(b.mine)
	if err != nil {
		return err
	}
	if err := r.Put(x.d.team.Rank(), at+int64(to*b.dtype.Size()), part); err != nil {
		return err
	}
	return x.d.mem.heap.Quiet()
}

// gatherFromGPUs copies the weights of a bucket to the host, through the memory of its gradients.
//
// Collective: all ranks, while no run is in flight.
func (x *shards) gatherFromGPUs(b *bucket, to tensor.Buffer) error {
	r, at, err := x.d.mem.regionOf(b.buf)
	if err != nil {
		return err
	}
	var work dist.Work
	if work, err = b.gather.AllGather(b.buf, b.mine); err == nil {
		err = work.Wait()
	}
	if err == nil {
		err = r.Get(to, x.d.team.Rank(), at)
	}
	return err
}
