package machine

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/values"
)

// statements executes the statements of a graph, gorgonia.Read and gorgonia.Set, after each run.
type statements struct {
	m       *Machine
	reads   []lower.Read
	sets    []lower.Set
	reading []gorgonia.Value // by reads, values that the machine owns
}

func newStatements(m *Machine) statements {
	return statements{m: m, reads: m.g.Reads, sets: m.g.Sets, reading: make([]gorgonia.Value, len(m.g.Reads))}
}

// execute executes all statements: reads, then sets.
func (t *statements) execute() error {
	for i, r := range t.reads {
		v := r.Node.Value()
		if v == nil {
			return fmt.Errorf("read of %q: %w", lower.Called(r.Node), ErrNoValue)
		}
		if err := t.read(i, r, v); err != nil {
			return fmt.Errorf("read of %q: %w", lower.Called(r.Node), err)
		}
	}
	return t.set()
}

// set copies the values of gorgonia.Set after a run. It reads all values before it changes
// any.
func (t *statements) set() error {
	from := make([]gorgonia.Value, len(t.sets))
	for i, s := range t.sets {
		v, err := t.value(s.From)
		if err != nil {
			return fmt.Errorf("gorgonia.Set of node %q: %w", lower.NameOf(s.To), err)
		}
		from[i] = v
	}
	for i, s := range t.sets {
		if err := t.setNode(s.To, from[i]); err != nil {
			return fmt.Errorf("gorgonia.Set of node %q: %w", lower.NameOf(s.To), err)
		}
	}
	return nil
}

// value returns the value of a node after a run: an output's memory, or a copy of an input's.
func (t *statements) value(n *gorgonia.Node) (gorgonia.Value, error) {
	if t.m.device != nil && !t.m.device.copies {
		if err := t.m.now.gpu.fetchRead(n); err != nil {
			return nil, err
		}
	}
	v := n.Value()
	if v == nil {
		return nil, fmt.Errorf("node %q: %w", lower.NameOf(n), ErrNoValue)
	}
	if n.Op() == nil {
		return values.Packed(v)
	}
	return v, nil
}

// setNode copies the elements of v to the value of n. A device copies them again before the next
// run.
func (t *statements) setNode(n *gorgonia.Node, v gorgonia.Value) error {
	to := n.Value()
	if to == nil {
		return ErrNoValue
	}
	if !values.SameShape(v.Shape(), to.Shape()) {
		return fmt.Errorf("%w: %v, to a value of %v", ErrShape, v.Shape(), to.Shape())
	}
	if err := values.CopyInto(to, v); err != nil {
		return err
	}
	if t.m.device == nil {
		return nil
	}
	if st, ok := t.m.device.params[n]; ok {
		if st.lent {
			return fmt.Errorf("its memory belongs to Config.Share: set it in that machine")
		}
		st.seen = nil
	}
	for _, c := range t.m.all {
		for i := range c.sources {
			if c.sources[i].Node == n {
				c.sources[i].value = nil
			}
		}
	}
	return nil
}

// read stores v for a gorgonia.Read: in a copy the first time, in the same memory later, as the
// tape machine does. A value of another shape gets a new copy.
func (t *statements) read(i int, r lower.Read, v gorgonia.Value) error {
	if *r.Into != nil && *r.Into == t.reading[i] && slices.Equal((*r.Into).Shape(), v.Shape()) {
		dt, err := values.DType(v.Dtype())
		if err != nil {
			return err
		}
		to, err := values.Memory(*r.Into, dt)
		if err != nil {
			return err
		}
		if to.Len() == max(v.Shape().TotalSize(), 1) {
			return values.Copy(to, v)
		}
	}
	own, err := values.Packed(v)
	if err != nil {
		return err
	}
	*r.Into, t.reading[i] = own, own
	return nil
}
