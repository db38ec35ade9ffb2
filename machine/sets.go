package machine

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/lower"
	"github.com/symgrad/symgrad/internal/values"
)

// executeSets copies the values of gorgonia.Set after a run. It reads all values before it changes
// any.
func (m *Machine) executeSets() error {
	from := make([]gorgonia.Value, len(m.g.Sets))
	for i, s := range m.g.Sets {
		v, err := m.valueForSet(s.From)
		if err != nil {
			return fmt.Errorf("gorgonia.Set of node %q: %w", lower.NameOf(s.To), err)
		}
		from[i] = v
	}
	for i, s := range m.g.Sets {
		if err := m.executeSet(s.To, from[i]); err != nil {
			return fmt.Errorf("gorgonia.Set of node %q: %w", lower.NameOf(s.To), err)
		}
	}
	return nil
}

// valueForSet returns the value of a node after a run: an output's memory, or a copy of an input's.
func (m *Machine) valueForSet(n *gorgonia.Node) (gorgonia.Value, error) {
	if m.device != nil && !m.device.copies {
		if err := m.fetchRead(n); err != nil {
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

// executeSet copies the elements of v to the value of n. A device copies them again before the next
// run.
func (m *Machine) executeSet(n *gorgonia.Node, v gorgonia.Value) error {
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
	if m.device == nil {
		return nil
	}
	if st, ok := m.device.params[n]; ok {
		if st.lent {
			return fmt.Errorf("its memory belongs to Config.Share: set it in that machine")
		}
		st.seen = nil
	}
	for _, c := range m.all {
		for i := range c.sources {
			if c.sources[i].Node == n {
				c.sources[i].value = nil
			}
		}
	}
	return nil
}
