package ddp

import (
	"strconv"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// placer cuts the buckets and slots of a plan from the memory, in the order of the plan.
type placer struct {
	d                     *DDP
	grads, values, shards cursor
}

// place makes the buckets and slots of d's plan.
func place(d *DDP, params, waits gorgonia.Nodes) error {
	x := placer{d, cursor{regions: &d.mem.regions}, cursor{regions: &d.mem.values}, cursor{regions: &d.mem.shards}}
	d.slots = make([]*slot, len(params))
	for i, pb := range d.plan.Buckets {
		name := d.team.prefix + bucketPrefix + strconv.Itoa(i)
		b := &bucket{
			index: i, name: name, dtype: pb.DType, elements: pb.Elements, shard: pb.Shard,
			view: d.team.plainView(name), red: dist.PreMulSumAt(d.mem.scales[typeIndex(pb.DType)]),
		}
		d.buckets = append(d.buckets, b)
		if err := d.stage.place(&x, b); err != nil {
			return err
		}
		for _, j := range pb.Params {
			var err error
			if d.slots[j], err = x.slot(b, j, params[j], waits[j]); err != nil {
				return err
			}
			b.slots = append(b.slots, d.slots[j])
		}
	}
	return nil
}

// slot returns the slot of parameter j in b.
func (x *placer) slot(b *bucket, j int, param, wait *gorgonia.Node) (*slot, error) {
	d := x.d
	q := &d.plan.Params[j]
	s := &slot{d: d, b: b, index: j, n: q.Len(), shape: q.Shape, param: param, wait: wait}
	var err error
	if s.buf, err = b.buf.Slice(q.Offset, q.Offset+s.n); err != nil {
		return nil, err
	}
	if !b.weights.IsZero() {
		if s.weights, err = b.weights.Slice(q.Offset, q.Offset+s.n); err != nil {
			return nil, err
		}
	}
	if !s.scalar() && !d.team.onGPU() && !d.plan.staged() {
		s.view, err = tensor.View(s.buf, q.Shape...)
	}
	return s, err
}
