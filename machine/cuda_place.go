package machine

import (
	"fmt"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/compile/cudaexec"
	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/tensor"
)

// onDevice is a compiled program on a device.
type onDevice struct {
	*compiled
	exec   *cudaexec.Exec
	arena  tensor.Buffer   // other programs may share it
	params []*stored       // by index of sources; nil for an input that is copied before each run
	duals  []tensor.Buffer // on the host, by index of duals
	late   []float64       // destination of checkLate
}

// loadOnDevice loads c on the device of its machine.
func loadOnDevice(c *compiled, env program.Env) (*onDevice, error) {
	m := c.m
	var symmetric []tensor.Buffer
	if c.Exchange != nil {
		symmetric = c.Exchange.Layout.Symmetric
	}
	cfg, err := m.device.config(&m.cfg, symmetric)
	if err != nil {
		return nil, err
	}
	if cfg.Arena, err = m.device.arena(c.Program.Arena); err != nil {
		return nil, err
	}
	if e := c.Exchange; e != nil && e.Layout.Replicas != nil { // whose group has other heaps
		cfg.HeapGroup = e.Layout.Group
	}
	cfg.TuneAlone = len(m.all) > 0 // made in a run, perhaps on this rank only, as its batch has another size
	cfg.Before = func() error { return m.device.waitForRanks(c) }
	r, err := cudaexec.New(c.Program, cfg, env)
	if err != nil {
		return nil, err
	}
	x, ok := r.(*cudaexec.Exec)
	if !ok {
		return nil, fmt.Errorf("%w: the runner is a %T%s", ErrDevice, r, closing(r.Close()))
	}
	return &onDevice{compiled: c, exec: x, arena: cfg.Arena, late: make([]float64, 1)}, nil
}

// place binds values that stay on the device.
func (on *onDevice) place() error {
	d := on.m.device
	for _, f := range on.Fixed {
		if err := on.runner.Bind(f.ID, f.At); err != nil {
			return err
		}
	}
	for _, s := range on.States {
		at := s.At
		if at.Device() == tensor.Host {
			st, err := d.state(on.Program.Values[s.ID].Name, s.At)
			if err != nil {
				return err
			}
			at = st.at
		}
		if err := on.runner.Bind(s.ID, at); err != nil {
			return err
		}
	}
	if err := on.placeParams(); err != nil {
		return err
	}
	if err := on.placeOutputs(); err != nil {
		return err
	}
	if err := on.placeDuals(); err != nil {
		return err
	}
	if on.Exchange != nil && !on.m.first {
		on.m.clock[1] = uint64(on.Exchange.Layout.Rank * on.Samples)
	}
	return nil
}

// placeParams binds parameters, including those of Config.Share. Other inputs are copied at each
// run.
func (on *onDevice) placeParams() error {
	d := on.m.device
	on.params = make([]*stored, len(on.Inputs))
	for i, b := range on.Inputs {
		v := &on.Program.Values[b.ID]
		on.sources = append(on.sources, source{Binding: b, gdt: b.Node.Dtype(), dtype: v.DType})
		n := v.Len()
		if b.Slot {
			n = max(values.Size(b.Shape), 1)
		}
		if v.Role != program.Param && d.shared(b.Node, v.DType, n) == nil {
			continue
		}
		s, err := d.param(b.Node, v.DType, n, on.Exchange)
		if err != nil {
			return err
		}
		if !b.Slot { // a part of a bucket is bound with the bucket
			if err := on.runner.Bind(b.ID, s.at); err != nil {
				return err
			}
		}
		on.params[i] = s
	}
	return nil
}

// placeOutputs gives outputs memory on the device, and on the host for their values.
func (on *onDevice) placeOutputs() error {
	on.values, on.memory = make([]gorgonia.Value, len(on.Outputs)), make([]tensor.Buffer, len(on.Outputs))
	for i, o := range on.Outputs {
		dt := on.Program.Values[o.ID].DType
		n := max(values.Size(o.Shape), 1)
		host, err := on.m.memory.of(place{o.Node, false}, dt, n)
		if err != nil {
			return fmt.Errorf("output %q: %w", lower.Called(o.Node), err)
		}
		if err := on.setOutput(i, host); err != nil {
			return err
		}
		if o.Slot {
			continue // a part of a bucket, which is bound
		}
		at, err := on.m.device.memoryFor(place{o.Node, false}, dt, n)
		if err != nil {
			return fmt.Errorf("output %q: %w", lower.Called(o.Node), err)
		}
		if err := on.runner.Bind(o.ID, at); err != nil {
			return err
		}
	}
	return nil
}

// placeDuals gives the gradients of parameters with a dual value memory on the device.
func (on *onDevice) placeDuals() error {
	on.duals = make([]tensor.Buffer, len(on.Duals))
	for i, o := range on.Duals {
		v, err := o.Node.Grad()
		if err != nil {
			return fmt.Errorf("gradient of %q: %w", lower.Called(o.Node), err)
		}
		dt := on.Program.Values[o.ID].DType
		if on.duals[i], err = values.Memory(v, dt); err != nil {
			return fmt.Errorf("gradient of %q: %w", lower.Called(o.Node), err)
		}
		at, err := on.m.device.memoryFor(place{o.Node, true}, dt, max(values.Size(o.Shape), 1))
		if err != nil {
			return fmt.Errorf("gradient of %q: %w", lower.Called(o.Node), err)
		}
		if err := on.runner.Bind(o.ID, at); err != nil {
			return err
		}
	}
	return nil
}

// bind binds all inputs: it copies parameters that have new values, and stages other
// inputs.
func (on *onDevice) bind() (resized bool, err error) {
	if on.deposits() == nil { // the program gathers no weights, so all must be current
		if err := on.m.current(); err != nil {
			return false, err
		}
	}
	if on.Exchange.Gathers() {
		err := on.Exchange.DDP.Machine().Adopt()
		if err == nil && on.deposits() == nil { // another machine trains; its update may be in flight
			err = on.Exchange.DDP.Machine().Wait()
		}
		if err != nil {
			return false, err
		}
	}
	if err := on.unshare(); err != nil {
		return false, err
	}
	for i := range on.sources {
		s := &on.sources[i]
		v := s.Node.Value()
		switch {
		case v == nil:
			return false, fmt.Errorf("input %q: %w; give it one with gorgonia.Let", lower.Called(s.Node), ErrNoValue)
		case !values.SameShape(v.Shape(), s.Shape):
			return true, nil
		}
	}
	if err := on.turn(); err != nil {
		return false, err
	}
	for i := range on.sources {
		s := &on.sources[i]
		if st := on.params[i]; st != nil {
			err = on.m.device.refresh(st, s)
		} else {
			err = on.stage(s)
		}
		if err != nil {
			return false, fmt.Errorf("input %q: %w", lower.Called(s.Node), err)
		}
	}
	return false, on.refreshHost()
}

// refreshHost copies other values that the host may have changed since the last run.
func (on *onDevice) refreshHost() error {
	d := on.m.device
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
	if !on.m.cfg.DualValues {
		return nil
	}
	for i, o := range on.Duals {
		at, err := on.runner.Memory(o.ID)
		if err != nil {
			return err
		}
		if err := d.write(at, on.duals[i]); err != nil {
			return err
		}
	}
	return nil
}

// stage copies an input for the next run while the previous one continues.
func (on *onDevice) stage(s *source) error {
	v := s.Node.Value()
	if on.m.cfg.KeepInputs && s.value == v {
		return nil
	}
	room, err := on.exec.Room(s.ID)
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
	return on.exec.Stage(s.ID, room[:to.Bytes()])
}
