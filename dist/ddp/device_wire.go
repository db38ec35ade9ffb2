package ddp

import (
	"errors"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// deviceWire is memory on a GPU for what ranks send of their buckets in a narrower type. A machine casts: see Layout.
type deviceWire struct {
	d     *DDP
	heap  symmetric.Heap
	raw   tensor.Buffer
	wires []tensor.Buffer // by bucket
}

var _ exchanger = (*deviceWire)(nil)

// newDeviceWire takes memory for messages of all buckets, which may be on their way at one time.
//
// Collective: all ranks. Errors: those of Heap and Alloc.
func newDeviceWire(d *DDP) (*deviceWire, error) {
	dt := d.cfg.WireDType
	messages := make([]Message, len(d.buckets))
	for i, b := range d.buckets {
		messages[i] = Message{dt, b.elements}
	}
	x := &deviceWire{d: d}
	bytes := arenaBytes(messages)
	var err error
	if x.heap, err = d.world.Heap(bytes); err != nil {
		return nil, err
	}
	r, err := x.heap.Alloc(bytes)
	if err != nil {
		return nil, errors.Join(err, x.close())
	}
	x.raw = r.Local()
	from := int64(0)
	for _, m := range messages {
		b, err := tensor.FromPointer(unsafe.Add(x.raw.Pointer(), from), m.Elements, m.DType, x.raw.Device())
		if err != nil {
			return nil, errors.Join(err, x.close())
		}
		x.wires = append(x.wires, b)
		from += roundUp(int64(m.Elements) * int64(m.DType.Size()))
	}
	return x, nil
}

func (x *deviceWire) start(*bucket) (dist.Work, error) { return dist.Work{}, x.d.needsMachine() }

func (x *deviceWire) bytes(b *bucket) int64 { return x.wires[b.index].Bytes() }

func (x *deviceWire) close() error { return x.heap.Close() }
