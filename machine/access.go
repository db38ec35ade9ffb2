package machine

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/values"
)

// Let is gorgonia.Let for an input whose value may have another number of samples than in the
// graph. The node gets the value's shape. The value is not copied: a run reads its memory, which
// may change when RunAll has returned. On a GPU, RunAll copies it once, to pinned memory, and the
// copy to the device overlaps the run before.
//
// Errors: ErrShape for a value with another number of axes; those of gorgonia.Let.
func (m *Machine) Let(n *gorgonia.Node, be any) error {
	if be == nil {
		return fmt.Errorf("machine %s: let %q: %w", m.cfg.Name, lower.Called(n), ErrNoValue)
	}
	if v, ok := be.(gorgonia.Value); ok && !n.IsScalar() && !n.Shape().Eq(v.Shape()) {
		if err := values.Try(func() { gorgonia.WithShape(slices.Clone([]int(v.Shape()))...)(n) }); err != nil {
			return fmt.Errorf("machine %s: let %q: %w than the node's: %w", m.cfg.Name, lower.Called(n), ErrShape, err)
		}
	}
	if err := gorgonia.Let(n, be); err != nil {
		return fmt.Errorf("machine %s: let %q: %w", m.cfg.Name, lower.Called(n), err)
	}
	return nil
}

// Set gives input a the current value of node b, as the tape machine's Set does. It is a copy, so
// that later runs do not change it.
//
// Errors: ErrNoValue if b has no value, which a node in the middle of a graph has only with
// Config.Keep; those of Let.
func (m *Machine) Set(a, b *gorgonia.Node) error {
	v := b.Value()
	if v == nil {
		return fmt.Errorf("machine %s: set %q to %q: the latter has %w; name it in Config.Keep", m.cfg.Name, lower.Called(a), lower.Called(b), ErrNoValue)
	}
	own, err := values.Packed(v)
	if err != nil {
		return fmt.Errorf("machine %s: set %q to %q: %w", m.cfg.Name, lower.Called(a), lower.Called(b), err)
	}
	return m.Let(a, own)
}

// Value returns the value of any node for the current inputs and parameters. After a run these are
// the run's, except for parameters that Config.Solver has updated since. For nodes without a value
// from the machine, the first call compiles the part of the graph that the node needs, on the CPU.
// Each call computes that part. Config.Keep costs less for a value that is read after each run.
//
// Random numbers are those of the last run. Running statistics do not change.
//
// Collective: no; a node that needs other ranks is an error. Returns: when the value is computed.
// Owns: the value is a copy, which is the caller's. Errors: ErrNoValue with the node or an input;
// those of New and RunAll; ErrClosed.
func (m *Machine) Value(n *gorgonia.Node) (gorgonia.Value, error) {
	if m.closed {
		return nil, fmt.Errorf("machine %s: %w", m.cfg.Name, ErrClosed)
	}
	v, err := m.value(n)
	if err != nil {
		return nil, fmt.Errorf("machine %s: value of %q: %w", m.cfg.Name, lower.Called(n), err)
	}
	return v, nil
}

func (m *Machine) value(n *gorgonia.Node) (gorgonia.Value, error) {
	if err := m.Sync(); err != nil {
		return nil, err
	}
	if n.IsVar() || lower.IsConstant(n) || slices.Contains(m.g.Outputs, n) {
		if n.Value() == nil {
			return nil, ErrNoValue
		}
		return values.Packed(n.Value())
	}
	s, err := m.middle.of(n)
	if err != nil {
		return nil, err
	}
	s.clock[0], s.clock[1], s.first = max(m.clock[0], 1)-1, m.clock[1], true
	restore := keepStates(s.now.States)
	err = s.runAll()
	restore()
	if err != nil {
		return nil, err
	}
	return values.Packed(n.Value())
}
