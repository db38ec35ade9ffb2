package machine

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/values"
)

// middle has the machines that compute the values of nodes in the middle of a graph.
type middle struct {
	m        *Machine
	machines map[*gorgonia.Node]*Machine
}

// of returns the machine that computes only node n.
func (d *middle) of(n *gorgonia.Node) (*Machine, error) {
	if s, ok := d.machines[n]; ok {
		return s, nil
	}
	if !slices.Contains(d.m.whole.AllNodes(), n) || lower.IsStatement(n) {
		return nil, fmt.Errorf("%w: it is not a node of the graph with a value", ErrNoValue)
	}
	part := d.m.g.Part(d.m.whole, n)
	for _, k := range part.Nodes {
		if lower.NeedsRanks(k) {
			return nil, fmt.Errorf("it needs other ranks, by node %q: name it in Config.Keep", lower.Called(k))
		}
	}
	cfg := d.m.cfg
	cfg.Device, cfg.Solver, cfg.Share, cfg.Keep, cfg.Compute = CPU, nil, nil, nil, ""
	if cfg.Samples == 0 {
		cfg.Samples = d.m.all[0].Samples
	}
	s, err := newPart(cfg, d.m.whole, part, d.m.now.Drops)
	if err != nil {
		return nil, err
	}
	if d.machines == nil {
		d.machines = map[*gorgonia.Node]*Machine{}
	}
	d.machines[n] = s
	return s, nil
}

// newPart returns a machine for a part of a graph. drops has the numbers of dropouts.
func newPart(cfg Config, whole *gorgonia.ExprGraph, part *lower.Parts, drops map[uintptr]int) (*Machine, error) {
	m := newMachine(cfg)
	m.g, m.drops = part, drops
	compile := func() error {
		if err := m.open(whole); err != nil {
			return err
		}
		m.shapes = shapesOf(part)
		return m.compileFirst()
	}
	var err error
	if p := values.Try(func() { err = compile() }); p != nil {
		err = p
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// keepStates returns a function that sets the states of ops to their current elements.
func keepStates(states []lower.State) (restore func()) {
	var all [][]byte
	for _, s := range states {
		all = append(all, slices.Clone(s.At.Raw()))
	}
	return func() {
		for i, s := range states {
			copy(s.At.Raw(), all[i])
		}
	}
}

// close closes the machines of Value.
func (d *middle) close() error {
	var errs []error
	for _, s := range d.machines { // in any order
		errs = append(errs, s.Close())
	}
	d.machines = nil
	return errors.Join(errs...)
}
