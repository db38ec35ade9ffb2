package ddp

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Imagine is Attach for the plan of a training that will not run: the graph, the Plan and the
// Layout are those of Attach, without memory. Learnables need no values, since only their shapes
// count. Buckets are addresses that must not be read or written. The DDP answers questions about
// itself; then close it.
//
// Collective: all ranks of world, which may be one whose other ranks are not there. Errors: those
// of Attach.
func Imagine(world *dist.World, cost *gorgonia.Node, learnables gorgonia.Nodes, cfg Config) (*DDP, error) {
	return attach(world, cost, learnables, cfg, true)
}

// ready is an error of a DDP that cannot train.
//
// Errors: dist.ErrClosed; dist.ErrInvalid for one that is imagined.
func (d *DDP) ready() error {
	switch {
	case d.closed:
		return dist.ErrClosed
	case d.imagined:
		return fmt.Errorf("%w: it is imagined, and has no memory: use Attach", dist.ErrInvalid)
	}
	return nil
}

// newImagined is the memory of a plan, as addresses.
func newImagined(p *Plan) (*memory, error) {
	m := &memory{where: "no memory", imagined: &addresses{}}
	if err := m.carve(p.areas(), m.imagined.alloc); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// imagineWires finds addresses for messages, which have memory of their own where a program sends
// them: see deviceWire.
func (d *DDP) imagineWires() error {
	dt, a := d.cfg.WireDType, d.mem.imagined
	if dt != tensor.BF16 && dt != tensor.F16 {
		return nil
	}
	places, at := d.plan.messages(dt)
	raw, err := a.alloc(arenaBytes(places))
	if err == nil {
		a.wires, err = d.plan.cut(raw, places, at)
	}
	return err
}

// addresses is memory that is not there.
type addresses struct {
	maps  [][]byte
	wires []tensor.Buffer // of messages, by bucket
}

// alloc takes addresses of so many bytes.
func (a *addresses) alloc(bytes int64) (tensor.Buffer, error) {
	m, err := takeAddresses(bytes)
	if err != nil {
		return tensor.Buffer{}, err
	}
	a.maps = append(a.maps, m)
	return tensor.Of(m), nil
}

// elements is alloc of n elements of a bucket type; of one for none.
func (a *addresses) elements(n int, dt tensor.DType) (tensor.Buffer, error) {
	raw, err := a.alloc(int64(max(n, 1)) * int64(dt.Size()))
	if err != nil {
		return raw, err
	}
	return tensor.FromPointer(raw.Pointer(), n, dt, tensor.Host)
}

func (a *addresses) close() error {
	var errs []error
	for _, m := range a.maps {
		errs = append(errs, giveAddresses(m))
	}
	a.maps = nil
	return errors.Join(errs...)
}
