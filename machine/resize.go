package machine

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/lower"
	"github.com/symgrad/symgrad/internal/values"
)

// present returns the shapes of the inputs' values, and whether one differs from the graph.
func (m *Machine) present() (shapes map[*gorgonia.Node][]int, resized bool, err error) {
	shapes = make(map[*gorgonia.Node][]int, len(m.shapes))
	for _, s := range m.now.sources {
		n, built := s.Node, m.shapes[s.Node]
		shapes[n] = built
		v := n.Value()
		if v == nil {
			return nil, false, fmt.Errorf("input %q: %w; give it one with gorgonia.Let", lower.Called(n), ErrNoValue)
		}
		if values.SameShape(v.Shape(), built) {
			continue
		}
		got := slices.Clone([]int(v.Shape()))
		if len(got) != len(built) || m.isParam(n) || values.Size(got) == 0 {
			return nil, false, fmt.Errorf("input %q: its value has %w: %v, and the graph %v", lower.Called(n), ErrShape, got, built)
		}
		shapes[n], resized = got, true
	}
	return shapes, resized, nil
}

func (m *Machine) isParam(n *gorgonia.Node) bool {
	_, ok := m.g.ByNode[n]
	return ok
}

// choose selects the program for the manner of the next run and the last shapes, or makes one.
func (m *Machine) choose() error {
	e := m.now.deposits()
	if e == nil {
		return nil
	}
	run, err := e.DDP.Next()
	if err != nil {
		return err
	}
	if m.as = lower.MannerOf(run); m.as == e.Manner {
		return nil
	}
	for _, c := range m.all {
		if c.Exchange.Manner == m.as && c.isLike(m.now) {
			return m.use(c)
		}
	}
	return m.resize()
}

// isLike reports whether two programs are for inputs of the same shapes.
func (c *compiled) isLike(o *compiled) bool {
	for i := range c.sources {
		if !slices.Equal(c.sources[i].Shape, o.sources[i].Shape) {
			return false
		}
	}
	return true
}

// resize selects the program for the current shapes of inputs, or makes one.
func (m *Machine) resize() error {
	shapes, resized, err := m.present()
	if err != nil {
		return err
	}
	for _, c := range m.all {
		if c.isFor(shapes) {
			return m.use(c)
		}
	}
	if m.cfg.NewBatch == Refuse && resized {
		return m.refusal(shapes)
	}
	c, err := m.rebuild(shapes, resized)
	if err != nil {
		return fmt.Errorf("for %w of inputs: %w", ErrShape, err)
	}
	m.all = append(m.all, c)
	if err := m.use(c); err != nil {
		return err
	}
	return m.bound()
}

// bound discards the oldest program of the current manner if there are too many. It keeps the first
// one.
func (m *Machine) bound() error {
	oldest, n := -1, 0
	for i, c := range m.all {
		if c.manner() != m.as {
			continue
		}
		if n++; oldest < 0 && i > 0 {
			oldest = i
		}
	}
	if n <= maxCompiled {
		return nil
	}
	c := m.all[oldest]
	m.all = slices.Delete(m.all, oldest, oldest+1)
	return m.discard(c)
}

func (m *Machine) refusal(shapes map[*gorgonia.Node][]int) error {
	for _, s := range m.all[0].sources {
		if got, want := shapes[s.Node], m.shapes[s.Node]; !slices.Equal(got, want) {
			return fmt.Errorf("input %q: its value has %w: %v, and the program is for %v; set NewBatch to recompile",
				lower.Called(s.Node), ErrShape, got, want)
		}
	}
	return ErrShape
}

// manner returns the manner of the program's runs.
func (c *compiled) manner() lower.Manner {
	if c.Exchange == nil {
		return lower.WholeBatch
	}
	return c.Exchange.Manner
}

// isFor reports whether a program is for the manner of the next run and for given shapes of inputs.
func (c *compiled) isFor(shapes map[*gorgonia.Node][]int) bool {
	if c.manner() != c.m.as {
		return false
	}
	for _, s := range c.sources {
		if !slices.Equal(s.Shape, shapes[s.Node]) {
			return false
		}
	}
	return true
}

// rebuild is build with Gorgonia's panics as errors.
func (m *Machine) rebuild(shapes map[*gorgonia.Node][]int, resized bool) (c *compiled, err error) {
	if p := values.Try(func() { c, err = m.build(shapes, resized) }); p != nil {
		return nil, p
	}
	return c, err
}

// renew replaces all programs by one for the current settings of ops.
func (m *Machine) renew() error {
	shapes, resized, err := m.present()
	if err != nil {
		return err
	}
	c, err := m.rebuild(shapes, resized)
	if err != nil {
		return err
	}
	old := m.all
	m.all = []*compiled{c}
	errs := []error{m.use(c)}
	for _, o := range old {
		errs = append(errs, m.discard(o))
	}
	return errors.Join(errs...)
}

// discard closes a program, even the one that ran last.
func (m *Machine) discard(c *compiled) error {
	if m.device == nil {
		return c.runner.Close()
	}
	m.device.forget(c)
	if m.solve != nil && m.solve.last == c {
		m.solve.last = nil
	}
	if err := c.runner.Close(); err != nil {
		return err
	}
	for _, o := range m.all {
		if o.gpu.arena == c.gpu.arena {
			return nil
		}
	}
	return m.device.free(c.gpu.arena)
}

// use makes c the current program.
func (m *Machine) use(c *compiled) error {
	m.now = c
	return c.let()
}
