package ddp

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// fillShardsOfGPU is fillShards for shards on GPUs: a machine binds them, and the inputs have no
// elements.
//
// Collective: all ranks.
func (d *DDP) fillShardsOfGPU(inputs gorgonia.Nodes) error {
	d.inputs = inputs
	for _, s := range d.slots {
		if err := s.spread(); err != nil {
			return fmt.Errorf("parameter %q: %w", s.param.Name(), err)
		}
	}
	if err := d.forget(); err != nil {
		return err
	}
	return d.adopt()
}

// spread copies rank 0's value of the parameter to the nodes of all ranks, through the memory of
// the bucket.
//
// Collective: all ranks.
func (s *slot) spread() error {
	host, err := valueMemory(s.param.Value())
	if err != nil {
		return err
	}
	r, at, err := s.d.mem.regionOf(s.buf)
	if err != nil {
		return err
	}
	me := s.d.team.Rank()
	if err = r.Put(me, at, host); err == nil {
		err = s.d.mem.heap.Quiet()
	}
	if err != nil {
		return err
	}
	work, err := s.d.team.plainView(s.param.Name()).spread(s.buf)
	if err == nil {
		err = work.Wait()
	}
	if err == nil {
		err = r.Get(host, me, at)
	}
	return err
}

// writeOwn copies n elements of a value on the host, from element first on, to this rank's weights
// of b, from element to on.
func (d *DDP) writeOwn(b *bucket, to int, value tensor.Buffer, first, n int) error {
	part, err := value.Slice(first, first+n)
	if err != nil {
		return err
	}
	r, at, err := d.mem.regionOf(b.mine)
	if err != nil {
		return err
	}
	if err := r.Put(d.team.Rank(), at+int64(to*b.dtype.Size()), part); err != nil {
		return err
	}
	return d.mem.heap.Quiet()
}

// gatherFromGPUs copies the weights of a bucket to the host, through the memory of its gradients.
//
// Collective: all ranks, while no run is in flight.
func (d *DDP) gatherFromGPUs(b *bucket, to tensor.Buffer) error {
	r, at, err := d.mem.regionOf(b.buf)
	if err != nil {
		return err
	}
	var work dist.Work
	if work, err = b.gather.AllGather(b.buf, b.mine); err == nil {
		err = work.Wait()
	}
	if err == nil {
		err = r.Get(to, d.team.Rank(), at)
	}
	return err
}
