package machine

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/tensor"
)

// swap swaps two buffers on the device through the host, as it happens rarely and between runs.
func (d *device) swap(a, b tensor.Buffer) error {
	n := min(a.Len(), b.Len())
	one, err := values.New(a.DType(), n)
	if err != nil {
		return err
	}
	other, err := values.New(b.DType(), n)
	if err != nil {
		return err
	}
	if err := errors.Join(d.read(one, a), d.read(other, b)); err != nil {
		return err
	}
	return errors.Join(d.write(a, other), d.write(b, one))
}

// stored is a tensor that stays on the device between runs, and its counterpart on the host.
type stored struct {
	name string
	node *gorgonia.Node // node of the parameter; nil for a state
	host tensor.Buffer  // of a state
	at   tensor.Buffer
	lent bool           // owned by another machine
	seen gorgonia.Value // the node's value at the last copy
}

// fetch copies a parameter to the value of its node.
func (s *stored) fetch(d *device) error {
	to, err := values.Memory(s.node.Value(), s.at.DType())
	if err == nil {
		err = d.read(to, s.at)
	}
	if err != nil {
		return fmt.Errorf("parameter %q: %w", s.name, err)
	}
	s.seen = s.node.Value()
	return nil
}

// placeMemory is memory on the host that lasts as long as the machine.
type placeMemory map[place]tensor.Buffer

// of returns the memory of p. Programs for other shapes share memory of equal length.
func (k placeMemory) of(p place, dt tensor.DType, n int) (tensor.Buffer, error) {
	if b, ok := k[p]; ok && b.DType() == dt && b.Len() == n {
		return b, nil
	}
	b, err := values.New(dt, n)
	if err != nil {
		return b, err
	}
	if _, ok := k[p]; !ok {
		k[p] = b
	}
	return b, nil
}

// place is the use of a block of memory: the value of a node, or the dual value of a parameter.
type place struct {
	node *gorgonia.Node
	dual bool
}
