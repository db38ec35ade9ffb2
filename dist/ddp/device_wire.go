package ddp

import (
	"errors"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// deviceWire is memory on a GPU for messages in a narrower dtype. The machine casts: see Layout.
type deviceWire struct {
	d     *DDP
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
	x := &deviceWire{d: d}
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

// cut returns the message of each bucket in raw, which has room for places.
func (p *Plan) cut(raw tensor.Buffer, places []compress.Message, at []int) (wires []tensor.Buffer, err error) {
	wires = make([]tensor.Buffer, len(at))
	for i, k := range at {
		from := unsafe.Add(raw.Pointer(), messageBytes(places[:k]))
		if wires[i], err = tensor.FromPointer(from, p.Buckets[i].Elements, places[k].DType, raw.Device()); err != nil {
			return nil, err
		}
	}
	return wires, nil
}

// messages returns the places of messages of a dtype on a GPU, and the index of each bucket's
// place.
func (p *Plan) messages(dt tensor.DType) (places []compress.Message, at []int) {
	for i, b := range p.Buckets {
		k := i
		if p.Stage >= stageGrads {
			k = p.stagingOf(i)
		}
		for len(places) <= k {
			places = append(places, compress.Message{DType: dt})
		}
		places[k].Elements = max(places[k].Elements, b.Elements)
		at = append(at, k)
	}
	return places, at
}

func (x *deviceWire) start(*bucket) (dist.Work, error) { return dist.Work{}, x.d.team.needsMachine() }

func (x *deviceWire) bytes(b *bucket) int64 { return x.wires[b.index].Bytes() }

func (x *deviceWire) close() error { return x.heap.Close() }
