package machine

import (
	"errors"
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/tensor"
)

// run queues a run of the current program, whose inputs are bound.
func (on *onDevice) run() error {
	d := on.m.device
	if err := d.dev.Enter(); err != nil {
		return err
	}
	defer d.dev.Leave()
	if err := d.reloaded(); err != nil {
		return err
	}
	if err := on.m.solve.prepare(on.compiled); err != nil {
		return err
	}
	if err := on.prepareExchange(); err != nil {
		return err
	}
	err := on.runner.Run()
	on.exchanged(err)
	on.m.clock[0]++
	if err != nil {
		d.next = on.m.clock[0] + 1 // the device's clock is unknown: a value unequal to clock[0] makes turn set it
		return err
	}
	d.next++
	if err := on.m.solve.ran(on.compiled); err != nil {
		return err
	}
	if d.copies {
		return on.fetchAll()
	}
	if err := on.checkLate(); err != nil {
		return err
	}
	for _, r := range on.m.g.Reads {
		if err := on.fetchRead(r.Node); err != nil {
			return err
		}
	}
	return nil
}

// fetchRead copies the value of a gorgonia.Read to the host: an output, or a parameter after the
// run. Other inputs and constants are on the host.
func (on *onDevice) fetchRead(n *gorgonia.Node) error {
	if n.Op() != nil && !lower.IsConstant(n) {
		return on.fetchNode(n)
	}
	s, ok := on.m.device.params[n]
	if !ok {
		return nil
	}
	if err := on.m.updated(); err != nil {
		return err
	}
	return errors.Join(on.m.current(), s.fetch(on.m.device))
}

// fetchAll waits for the last run and copies outputs, gradients and states to the host.
func (on *onDevice) fetchAll() error {
	d := on.m.device
	if err := d.wait(); err != nil {
		return err
	}
	if err := on.checkExchange(); err != nil {
		return err
	}
	for i := range on.Outputs {
		if err := on.fetch(i); err != nil {
			return err
		}
	}
	for i, o := range on.Duals {
		at, err := on.runner.Memory(o.ID)
		if err != nil {
			return err
		}
		if err := d.read(on.duals[i], at); err != nil {
			return err
		}
	}
	for _, s := range d.list {
		if s.node == nil && !d.reload { // after Load the host has the newer states
			if err := d.read(s.host, s.at); err != nil {
				return err
			}
		}
	}
	return nil
}

// fetch copies output i, whose run is done, to the host.
func (on *onDevice) fetch(i int) error {
	o := &on.Outputs[i]
	host := on.memory[i]
	at, err := on.runner.Memory(o.ID)
	if err == nil && o.Slot {
		at, err = at.Slice(o.Offset, o.Offset+host.Len())
	}
	if err == nil {
		err = on.m.device.read(host, at)
	}
	if err != nil {
		return fmt.Errorf("output %q: %w", lower.Called(o.Node), err)
	}
	return nil
}

// fetchNode copies the value of an output of the last run. It does not wait for later runs.
func (on *onDevice) fetchNode(n *gorgonia.Node) error {
	for i := range on.Outputs {
		o := &on.Outputs[i]
		if o.Node != n {
			continue
		}
		if o.Slot {
			if err := on.m.device.wait(); err != nil {
				return err
			}
			return on.fetch(i)
		}
		return on.exec.Read(o.ID, on.memory[i].Raw())
	}
	return fmt.Errorf("node %q: %w: it is not an output of the machine", lower.NameOf(n), ErrNoValue)
}

// prepareExchange sets this rank's weights on the device.
func (on *onDevice) prepareExchange() error {
	e := on.deposits()
	if e == nil {
		return on.m.current() // the program gathers no weights, so all must be current
	}
	run, err := e.DDP.Machine().Next()
	if err != nil {
		return err
	}
	if as := lower.MannerOf(run); as != e.Manner {
		return fmt.Errorf("%w: the next run is a %v, and the last program is for a %v: make one run without NoSync, and do not profile inside NoSync",
			dist.ErrInvalid, as, e.Manner)
	}
	if e.DDP.Machine().Take(on.m) {
		on.m.device.forgetWords(e.Layout.Weights[:])
	}
	for i, at := range e.Layout.Weights {
		if !e.Manner.Reads(i) {
			continue
		}
		if err := on.m.device.set(on.exec.Stream(), at, math.Float64bits(run.Weights[i])); err != nil {
			return err
		}
	}
	return nil
}

// exchanged reports the result of queueing a run to the DDP.
func (on *onDevice) exchanged(err error) {
	if e := on.deposits(); e != nil {
		e.DDP.Machine().Ran(err)
	}
}

// checkExchange checks the sum of the weights of the last run.
func (on *onDevice) checkExchange() error {
	e := on.exchanges()
	if e == nil {
		return nil
	}
	sum := make([]float64, 1)
	if err := on.exec.Read(e.Sum, tensor.Of(sum).Raw()); err != nil {
		return err
	}
	return e.DDP.Machine().CheckSum(sum[0])
}

// late is how many runs old an error result is when it is read, so that the host need not wait.
const late = 3

// checkLate checks the sum of the weights of the run that is late runs older than the newest. That
// run is usually done, so that the host need not wait.
func (on *onDevice) checkLate() error {
	e, x := on.exchanges(), on.exec
	if e == nil || x.Runs() <= late {
		return nil
	}
	if err := x.ReadRun(x.Runs()-late, e.Sum, tensor.Of(on.late).Raw()); err != nil {
		return err
	}
	return e.DDP.Machine().CheckSum(on.late[0])
}

// turn makes on's program the current one, after the previous program.
func (on *onDevice) turn() error {
	d, x := on.m.device, on.exec
	if d.current != x {
		if err := d.follow(on.compiled); err != nil {
			return err
		}
		d.next = on.m.clock[0] + 1 // differs from the clock, so that it is set
	}
	if d.next != on.m.clock[0] || d.sample != on.m.clock[1] {
		if err := x.SetClock(on.m.clock[0], on.m.clock[1]); err != nil {
			return err
		}
		d.next, d.sample = on.m.clock[0], on.m.clock[1]
	}
	return d.from.quiet()
}
