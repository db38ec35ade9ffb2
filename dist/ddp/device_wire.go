package ddp

import (
	"errors"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// deviceWire is memory on a GPU for messages in a narrower dtype. The machine casts: see Layout.
type deviceWire struct {
	plain
	heap  symmetric.Heap
	raw   tensor.Buffer
	wires []tensor.Buffer // by bucket
}

var _ exchanger = (*deviceWire)(nil)

// newDeviceWire allocates messages for all buckets, which may be in flight at once; with Stage 2,
// one for each staging buffer.
//
// Collective: all ranks. Errors: those of Heap and Alloc.
func newDeviceWire(d *DDP) (*deviceWire, error) {
	dt := d.cfg.WireDType
	places, at := d.plan.messages(dt)
	x := &deviceWire{plain: plain{d}}
	bytes := messageBytes(places)
	var err error
	if x.heap, err = d.team.Heap(bytes); err != nil {
		return nil, err
	}
	r, err := x.heap.Alloc(bytes)
	if err != nil {
		return nil, errors.Join(err, x.close())
	}
	x.raw = r.Local()
	if x.wires, err = d.plan.cut(x.raw, places, at); err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

func (x *deviceWire) start(*bucket) (dist.Work, error) { return dist.Work{}, x.d.team.needsMachine() }

func (x *deviceWire) bytes(b *bucket) int64 { return x.wires[b.index].Bytes() }

func (x *deviceWire) memory() int64 { return x.raw.Bytes() }

func (x *deviceWire) close() error { return x.heap.Close() }
