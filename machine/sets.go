package machine

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/values"
)

// set is a gorgonia.Set: after each run the value of from is copied to to.
type set struct {
	to, from *gorgonia.Node
}

// check rejects a graph without any effect, and statements that cannot be executed.
func (g *graph) check() error {
	if len(g.nodes)+len(g.sets) == 0 {
		return errNoNodes
	}
	for _, s := range g.sets {
		switch {
		case s.to == nil || s.from == nil:
			return fmt.Errorf("a gorgonia.Set needs two nodes")
		case s.to.Op() != nil:
			return fmt.Errorf("gorgonia.Set of node %q: it is computed by the op %v; only an input can be set", nameOf(s.to), s.to.Op())
		case s.to.Dtype() != s.from.Dtype() || !values.SameShape(s.from.Shape(), s.to.Shape()):
			return fmt.Errorf("gorgonia.Set of node %q, a %v%v, to %q, a %v%v: types and shapes must agree",
				nameOf(s.to), s.to.Dtype(), s.to.Shape(), nameOf(s.from), s.from.Dtype(), s.from.Shape())
		}
	}
	return nil
}

// executeSets copies the values of gorgonia.Set after a run. It reads all values before it changes
// any.
func (m *Machine) executeSets() error {
	from := make([]gorgonia.Value, len(m.g.sets))
	for i, s := range m.g.sets {
		v, err := m.valueForSet(s.from)
		if err != nil {
			return fmt.Errorf("gorgonia.Set of node %q: %w", nameOf(s.to), err)
		}
		from[i] = v
	}
	for i, s := range m.g.sets {
		if err := m.executeSet(s.to, from[i]); err != nil {
			return fmt.Errorf("gorgonia.Set of node %q: %w", nameOf(s.to), err)
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
		return nil, fmt.Errorf("node %q: %w", nameOf(n), ErrNoValue)
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
			if c.sources[i].node == n {
				c.sources[i].value = nil
			}
		}
	}
	return nil
}
