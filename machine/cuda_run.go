package machine

import (
	"errors"
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/lower"
	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/internal/values"
	"github.com/symgrad/symgrad/tensor"
)

// runOnDevice queues a run of the current program, whose inputs are bound.
func (m *Machine) runOnDevice() error {
	c, d := m.now, m.device
	if err := d.dev.Enter(); err != nil {
		return err
	}
	defer d.dev.Leave()
	if err := m.solve.prepare(c); err != nil {
		return err
	}
	if err := c.prepareExchange(); err != nil {
		return err
	}
	err := c.runner.Run()
	c.exchanged(err)
	m.clock[0]++
	if err != nil {
		d.next = m.clock[0] + 1 // the device's clock is unknown: a value unequal to clock[0] makes turn set it
		return err
	}
	d.next++
	if err := m.solve.ran(c); err != nil {
		return err
	}
	if d.copies {
		return m.fetchAll()
	}
	if err := c.checkLate(); err != nil {
		return err
	}
	for _, r := range m.g.Reads {
		if err := m.fetchRead(r.Node); err != nil {
			return err
		}
	}
	return nil
}

// fetchRead copies the value of a gorgonia.Read to the host: an output, or a parameter after the
// run. Other inputs and constants are on the host.
func (m *Machine) fetchRead(n *gorgonia.Node) error {
	if n.Op() != nil && !lower.IsConstant(n) {
		return m.fetchNode(n)
	}
	s, ok := m.device.params[n]
	if !ok {
		return nil
	}
	if err := m.updated(); err != nil {
		return err
	}
	return errors.Join(m.current(), s.fetch(m.device))
}

// fetchAll waits for the last run and copies outputs, gradients and states to the host.
func (m *Machine) fetchAll() error {
	c, d := m.now, m.device
	if err := d.wait(); err != nil {
		return err
	}
	if err := c.checkExchange(); err != nil {
		return err
	}
	for i := range c.Outputs {
		if err := c.fetch(i); err != nil {
			return err
		}
	}
	for i, o := range c.Duals {
		at, err := c.runner.Memory(o.ID)
		if err != nil {
			return err
		}
		if err := d.read(c.gpu.duals[i], at); err != nil {
			return err
		}
	}
	for _, s := range d.list {
		if s.node == nil {
			if err := d.read(s.host, s.at); err != nil {
				return err
			}
		}
	}
	return nil
}

// fetch copies output i, whose run is done, to the host.
func (c *compiled) fetch(i int) error {
	o := &c.Outputs[i]
	host := c.memory[i]
	at, err := c.runner.Memory(o.ID)
	if err == nil && o.Slot {
		at, err = at.Slice(o.Offset, o.Offset+host.Len())
	}
	if err == nil {
		err = c.m.device.read(host, at)
	}
	if err != nil {
		return fmt.Errorf("output %q: %w", lower.Called(o.Node), err)
	}
	return nil
}

// fetchNode copies the value of an output of the last run. It does not wait for later runs.
func (m *Machine) fetchNode(n *gorgonia.Node) error {
	c := m.now
	for i := range c.Outputs {
		o := &c.Outputs[i]
		if o.Node != n {
			continue
		}
		if o.Slot {
			if err := m.device.wait(); err != nil {
				return err
			}
			return c.fetch(i)
		}
		return c.gpu.exec.Read(o.ID, c.memory[i].Raw())
	}
	return fmt.Errorf("node %q: %w: it is not an output of the machine", lower.NameOf(n), ErrNoValue)
}

// Sync copies the results of the last run to the nodes: outputs, gradients and, if the machine
// updates them, parameters. On the CPU, and on a GPU while the host updates the parameters, each
// RunAll does that, and Sync does nothing.
//
// Returns: when the run is done. Errors: those of the run; ErrStale, with OverlapGather of ddp;
// ErrClosed.
func (m *Machine) Sync() error {
	if m.closed {
		return fmt.Errorf("machine %s: %w", m.cfg.Name, ErrClosed)
	}
	if m.device == nil || m.device.copies {
		return nil
	}
	if m.device.current == nil {
		if err := m.current(); err != nil {
			return fmt.Errorf("machine %s: %w", m.cfg.Name, err)
		}
		return nil
	}
	if err := m.fetchAll(); err != nil {
		return fmt.Errorf("machine %s: %w", m.cfg.Name, err)
	}
	if err := m.fetchParams(); err != nil {
		return fmt.Errorf("machine %s: %w", m.cfg.Name, err)
	}
	return nil
}

// fetchParams copies the parameters to the values of their nodes.
func (m *Machine) fetchParams() error {
	d := m.device
	if err := m.solve.wait(); err != nil {
		return err
	}
	if err := m.current(); err != nil {
		return err
	}
	for _, s := range d.list {
		if s.node == nil || s.lent || s.seen == nil {
			continue
		}
		if err := s.fetch(d); err != nil {
			return err
		}
	}
	return nil
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

// Load makes the next run use the current values of the parameters' nodes. It is needed only after
// elements were changed in place while the machine updates the parameters. New values of nodes are
// noticed without it.
func (m *Machine) Load() {
	if m.device == nil {
		return
	}
	for _, s := range m.device.list {
		s.seen = nil
	}
}

// Scalar returns the element of an output with one element after the last run, and sets the node's
// Value. On a GPU it waits for that run only, and later runs can be queued meanwhile.
//
// Errors: ErrNoValue for a node that is not an output or has more elements; those of the run.
func (m *Machine) Scalar(n *gorgonia.Node) (float64, error) {
	if m.closed {
		return 0, fmt.Errorf("machine %s: %w", m.cfg.Name, ErrClosed)
	}
	if m.device != nil && !m.device.copies {
		if err := m.fetchNode(n); err != nil {
			return 0, fmt.Errorf("machine %s: %w", m.cfg.Name, err)
		}
	}
	v := n.Value()
	if v == nil || v.Shape().TotalSize() > 1 {
		return 0, fmt.Errorf("machine %s: node %q: %w of one element", m.cfg.Name, lower.NameOf(n), ErrNoValue)
	}
	x, err := values.Number(v)
	if err != nil {
		return 0, fmt.Errorf("machine %s: node %q: %w", m.cfg.Name, lower.NameOf(n), err)
	}
	return x, nil
}

// deposits returns the exchange of a program that computes gradients, even if it only accumulates
// them; else nil.
func (c *compiled) deposits() *lower.Exchange {
	if e := c.Exchange; e != nil && e.Begun {
		return e
	}
	return nil
}

// exchanges returns the exchange of a program that communicates; else nil.
func (c *compiled) exchanges() *lower.Exchange {
	if e := c.Exchange; e != nil && e.Sum != program.None {
		return e
	}
	return nil
}

// prepareExchange sets this rank's weights on the device.
func (c *compiled) prepareExchange() error {
	e := c.deposits()
	if e == nil {
		return c.m.current() // the program gathers no weights, so all must be current
	}
	run, err := e.DDP.Next()
	if err != nil {
		return err
	}
	if as := lower.MannerOf(run); as != e.Manner {
		return fmt.Errorf("%w: the next run is a %v, and the last program is for a %v: make one run without NoSync, and do not profile inside NoSync",
			dist.ErrInvalid, as, e.Manner)
	}
	if e.DDP.Take(c.m) {
		c.m.device.forgetWords(e.Layout.Weights[:])
	}
	for i, at := range e.Layout.Weights {
		if !e.Manner.Reads(i) {
			continue
		}
		if err := c.m.device.set(c.gpu.exec.Stream(), at, math.Float64bits(run.Weights[i])); err != nil {
			return err
		}
	}
	return nil
}

// exchanged reports the result of queueing a run to the DDP.
func (c *compiled) exchanged(err error) {
	if e := c.deposits(); e != nil {
		e.DDP.Ran(err)
	}
}

// checkExchange checks the sum of the weights of the last run.
func (c *compiled) checkExchange() error {
	e := c.exchanges()
	if e == nil {
		return nil
	}
	sum := make([]float64, 1)
	if err := c.gpu.exec.Read(e.Sum, tensor.Of(sum).Raw()); err != nil {
		return err
	}
	return e.DDP.CheckSum(sum[0])
}

// late is how many runs old an error result is when it is read, so that the host need not wait.
const late = 3

// checkLate checks the sum of the weights of the run that is late runs older than the newest. That
// run is usually done, so that the host need not wait.
func (c *compiled) checkLate() error {
	e, x := c.exchanges(), c.gpu.exec
	if e == nil || x.Runs() <= late {
		return nil
	}
	if err := x.ReadRun(x.Runs()-late, e.Sum, tensor.Of(c.gpu.late).Raw()); err != nil {
		return err
	}
	return e.DDP.CheckSum(c.gpu.late[0])
}

// current returns ErrStale if the weights are not those of the last update.
func (m *Machine) current() error {
	if d := m.ddp; d != nil && d.Stale() {
		return fmt.Errorf("%w: call Consolidate of the DDP, on all ranks, first", ErrStale)
	}
	return nil
}
