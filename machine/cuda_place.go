package machine

import (
	"fmt"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/cudaexec"
	"github.com/symgrad/symgrad/internal/lower"
	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/internal/values"
	"github.com/symgrad/symgrad/tensor"
)

// onDevice has the device state of a compiled program.
type onDevice struct {
	exec   *cudaexec.Exec
	arena  tensor.Buffer   // other programs may share it
	params []*stored       // by index of sources; nil for an input that is copied before each run
	duals  []tensor.Buffer // on the host, by index of duals
	late   []float64       // destination of checkLate
}

// loadOnDevice loads the program on the device.
func (c *compiled) loadOnDevice(env program.Env) error {
	m := c.m
	var symmetric []tensor.Buffer
	if c.Exchange != nil {
		symmetric = c.Exchange.Layout.Symmetric
	}
	cfg, err := m.device.config(&m.cfg, symmetric)
	if err != nil {
		return err
	}
	if cfg.Arena, err = m.device.arena(c.Program.Arena); err != nil {
		return err
	}
	cfg.TuneAlone = len(m.all) > 0 // made in a run, perhaps on this rank only, as its batch has another size
	cfg.Before = func() error { return m.device.waitForRanks(c) }
	r, err := cudaexec.New(c.Program, cfg, env)
	if err != nil {
		return err
	}
	x, ok := r.(*cudaexec.Exec)
	if !ok {
		return fmt.Errorf("%w: the runner is a %T%s", ErrDevice, r, closing(r.Close()))
	}
	c.runner, c.gpu = x, &onDevice{exec: x, arena: cfg.Arena, late: make([]float64, 1)}
	return nil
}

// placeOnDevice binds values that stay on the device.
func (c *compiled) placeOnDevice() error {
	d := c.m.device
	for _, f := range c.Fixed {
		if err := c.runner.Bind(f.ID, f.At); err != nil {
			return err
		}
	}
	for _, s := range c.States {
		at := s.At
		if at.Device() == tensor.Host {
			st, err := d.state(c.Program.Values[s.ID].Name, s.At)
			if err != nil {
				return err
			}
			at = st.at
		}
		if err := c.runner.Bind(s.ID, at); err != nil {
			return err
		}
	}
	if err := c.placeParams(); err != nil {
		return err
	}
	if err := c.placeOutputsOnDevice(); err != nil {
		return err
	}
	if err := c.placeDualsOnDevice(); err != nil {
		return err
	}
	if c.Exchange != nil && !c.m.first {
		c.m.clock[1] = uint64(c.Exchange.Layout.Group.Rank() * c.Samples)
	}
	return nil
}

// placeParams binds parameters, including those of Config.Share. Other inputs are copied at each
// run.
func (c *compiled) placeParams() error {
	d := c.m.device
	c.gpu.params = make([]*stored, len(c.Inputs))
	for i, b := range c.Inputs {
		v := &c.Program.Values[b.ID]
		c.sources = append(c.sources, source{Binding: b, gdt: b.Node.Dtype(), dtype: v.DType})
		n := v.Len()
		if b.Slot {
			n = max(values.Size(b.Shape), 1)
		}
		if v.Role != program.Param && d.shared(b.Node, v.DType, n) == nil {
			continue
		}
		s, err := d.param(b.Node, v.DType, n, c.Exchange)
		if err != nil {
			return err
		}
		if !b.Slot { // a part of a bucket is bound with the bucket
			if err := c.runner.Bind(b.ID, s.at); err != nil {
				return err
			}
		}
		c.gpu.params[i] = s
	}
	return nil
}

// placeOutputsOnDevice gives outputs memory on the device, and on the host for their values.
func (c *compiled) placeOutputsOnDevice() error {
	c.values, c.memory = make([]gorgonia.Value, len(c.Outputs)), make([]tensor.Buffer, len(c.Outputs))
	for i, o := range c.Outputs {
		dt := c.Program.Values[o.ID].DType
		n := max(values.Size(o.Shape), 1)
		host, err := c.m.memoryFor(place{o.Node, false}, dt, n)
		if err != nil {
			return fmt.Errorf("output %q: %w", lower.Called(o.Node), err)
		}
		if err := c.setOutput(i, host); err != nil {
			return err
		}
		if o.Slot {
			continue // a part of a bucket, which is bound
		}
		at, err := c.m.device.memoryFor(place{o.Node, false}, dt, n)
		if err != nil {
			return fmt.Errorf("output %q: %w", lower.Called(o.Node), err)
		}
		if err := c.runner.Bind(o.ID, at); err != nil {
			return err
		}
	}
	return nil
}

// placeDualsOnDevice gives the gradients of parameters with a dual value memory on the device.
func (c *compiled) placeDualsOnDevice() error {
	c.gpu.duals = make([]tensor.Buffer, len(c.Duals))
	for i, o := range c.Duals {
		v, err := o.Node.Grad()
		if err != nil {
			return fmt.Errorf("gradient of %q: %w", lower.Called(o.Node), err)
		}
		dt := c.Program.Values[o.ID].DType
		if c.gpu.duals[i], err = values.Memory(v, dt); err != nil {
			return fmt.Errorf("gradient of %q: %w", lower.Called(o.Node), err)
		}
		at, err := c.m.device.memoryFor(place{o.Node, true}, dt, max(values.Size(o.Shape), 1))
		if err != nil {
			return fmt.Errorf("gradient of %q: %w", lower.Called(o.Node), err)
		}
		if err := c.runner.Bind(o.ID, at); err != nil {
			return err
		}
	}
	return nil
}

// bindOnDevice binds all inputs: it copies parameters that have new values, and stages other
// inputs.
func (c *compiled) bindOnDevice() (resized bool, err error) {
	if c.deposits() == nil { // the program gathers no weights, so all must be current
		if err := c.m.current(); err != nil {
			return false, err
		}
	}
	if c.Exchange.Gathers() {
		err := c.Exchange.DDP.Adopt()
		if err == nil && c.deposits() == nil { // another machine trains; its update may be in flight
			err = c.Exchange.DDP.Wait()
		}
		if err != nil {
			return false, err
		}
	}
	if err := c.unshare(); err != nil {
		return false, err
	}
	for i := range c.sources {
		s := &c.sources[i]
		v := s.Node.Value()
		switch {
		case v == nil:
			return false, fmt.Errorf("input %q: %w; give it one with gorgonia.Let", lower.Called(s.Node), ErrNoValue)
		case !values.SameShape(v.Shape(), s.Shape):
			return true, nil
		}
	}
	if err := c.turn(); err != nil {
		return false, err
	}
	for i := range c.sources {
		s := &c.sources[i]
		if st := c.gpu.params[i]; st != nil {
			err = c.m.device.refresh(st, s)
		} else {
			err = c.stage(s)
		}
		if err != nil {
			return false, fmt.Errorf("input %q: %w", lower.Called(s.Node), err)
		}
	}
	return false, c.refreshHost()
}

// refresh copies a parameter to the device if its node has a new value, or always if the host
// updates it.
func (d *device) refresh(st *stored, s *source) error {
	v := s.Node.Value()
	if st.lent || st.seen == v && !d.copies {
		return nil
	}
	if err := d.wait(); err != nil {
		return err
	}
	from, err := values.Memory(v, s.dtype)
	if err != nil {
		return err
	}
	st.seen = v
	return d.write(st.at, from)
}

// refreshHost copies other values that the host may have changed since the last run.
func (c *compiled) refreshHost() error {
	d := c.m.device
	if !d.copies {
		return nil
	}
	for _, s := range d.list {
		if s.node == nil {
			if err := d.write(s.at, s.host); err != nil {
				return err
			}
		}
	}
	if !c.m.cfg.DualValues {
		return nil
	}
	for i, o := range c.Duals {
		at, err := c.runner.Memory(o.ID)
		if err != nil {
			return err
		}
		if err := d.write(at, c.gpu.duals[i]); err != nil {
			return err
		}
	}
	return nil
}

// stage copies an input for the next run while the previous one continues.
func (c *compiled) stage(s *source) error {
	v := s.Node.Value()
	if c.m.cfg.KeepInputs && s.value == v {
		return nil
	}
	room, err := c.gpu.exec.Room(s.ID)
	if err != nil {
		return err
	}
	n := max(values.Size(s.Shape), 1)
	to, err := bufferOver(room, s.dtype, n)
	if err != nil {
		return err
	}
	from, err := values.Memory(v, s.dtype)
	if err == nil {
		copy(to.Raw(), from.Raw())
	} else if d, ok := v.(*gtensor.Dense); ok && !values.IsPlain(d) && d.Dtype() == s.gdt {
		err = values.Compact(to, d)
	}
	if err != nil {
		return err
	}
	s.value = v
	return c.gpu.exec.Stage(s.ID, room[:to.Bytes()])
}
