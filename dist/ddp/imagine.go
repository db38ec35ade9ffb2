package ddp

import (
	"errors"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Imagine is Attach without memory, for a training that is only planned: graph, Plan and Layout are
// those of Attach. Learnables need no values, only shapes. Buckets are addresses that must not be
// read or written. The DDP can be inspected and closed.
//
// Collective: all ranks of the group, which may be without other processes. Errors: those of
// Attach.
func Imagine(on dist.Members, cost *gorgonia.Node, learnables gorgonia.Nodes, cfg Config) (*DDP, error) {
	return attach(on, cost, learnables, cfg, true)
}

// newImagined returns the memory of a plan, as addresses.
func newImagined(p *Plan) (*memory, error) {
	m := &memory{where: "no memory", imagined: &addresses{}}
	if err := m.carve(p.areas(), m.imagined.alloc); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// addresses is reserved address space without memory.
type addresses struct{ maps [][]byte }

// alloc reserves so many bytes.
func (a *addresses) alloc(bytes int64) (tensor.Buffer, error) {
	m, err := takeAddresses(bytes)
	if err != nil {
		return tensor.Buffer{}, err
	}
	a.maps = append(a.maps, m)
	return tensor.Of(m), nil
}

// elements reserves n elements of a bucket type, at least one.
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
