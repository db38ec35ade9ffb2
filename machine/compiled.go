package machine

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// compiled is a program for given shapes of inputs, loaded and with memory.
type compiled struct {
	*lower.Lowered
	m       *Machine
	runner  program.Runner
	gpu     *onDevice // nil on the CPU
	sources []source
	values  []gorgonia.Value // of outputs
	memory  []tensor.Buffer  // of the outputs' values
	apart   []tensor.Buffer  // gradients of parameters with a dual value
	hooks   hookMemory
}

// source is an input and the place of its value at the last run.
type source struct {
	lower.Binding
	gdt   gtensor.Dtype
	dtype tensor.DType
	value gorgonia.Value
	seen  bytesAt       // place of the value when unshare checked it
	at    tensor.Buffer // the bound memory: the value's, or own
	own   tensor.Buffer // for values whose elements are not contiguous
}

// env returns the groups and host functions that the program calls.
func (c *compiled) env() program.Env {
	env := program.Env{Groups: c.Groups}
	for _, f := range c.Calls {
		env.Calls = append(env.Calls, f.Run)
	}
	if c.m.cfg.Watch {
		env.Watch = c.watch
	}
	return env
}

func closing(err error) string {
	if err == nil {
		return ""
	}
	return "; and on close: " + err.Error()
}

// place binds values whose memory never changes: states, outputs, the clock.
func (c *compiled) place() error {
	if c.gpu != nil {
		return c.gpu.place()
	}
	for _, s := range c.States {
		if err := c.runner.Bind(s.ID, s.At); err != nil {
			return err
		}
	}
	if c.Program.Clock != program.None {
		if err := c.runner.Bind(c.Program.Clock, tensor.Of(c.m.clock)); err != nil {
			return err
		}
	}
	for _, b := range c.Inputs {
		dt := c.Program.Values[b.ID].DType
		c.sources = append(c.sources, source{Binding: b, gdt: b.Node.Dtype(), dtype: dt})
	}
	if err := c.placeOutputs(); err != nil {
		return err
	}
	if err := c.placeDuals(); err != nil {
		return err
	}
	return c.hooks.place()
}

// placeOutputs makes the values of outputs. Programs for other shapes share memory of equal length.
func (c *compiled) placeOutputs() error {
	c.values, c.memory = make([]gorgonia.Value, len(c.Outputs)), make([]tensor.Buffer, len(c.Outputs))
	for i, o := range c.Outputs {
		if c.hookOf(o.ID) >= 0 {
			continue // the reducer has the memory: see hookMemory
		}
		dt := c.Program.Values[o.ID].DType
		b, err := c.m.memory.of(place{o.Node, false}, dt, max(values.Size(o.Shape), 1))
		if err != nil {
			return fmt.Errorf("output %q: %w", lower.Called(o.Node), err)
		}
		if err := c.setOutput(i, b); err != nil {
			return err
		}
		if err := c.runner.Bind(o.ID, b); err != nil {
			return err
		}
	}
	return nil
}

// hookOf returns the hook whose reduced gradient is value id, or -1.
func (c *compiled) hookOf(id program.ID) int {
	return slices.IndexFunc(c.Hooks, func(h *lower.Hook) bool { return h.Reduced == id })
}

// setOutput makes b the memory of output i's value.
func (c *compiled) setOutput(i int, b tensor.Buffer) error {
	o := c.Outputs[i]
	v, err := values.Over(b, o.Node.Dtype(), o.Shape, o.Node.IsScalar() && o.Given == nil)
	if err != nil {
		return fmt.Errorf("output %q: %w", lower.Called(o.Node), err)
	}
	c.values[i], c.memory[i] = v, b
	return nil
}

// placeDuals binds the gradients of parameters with a dual value.
func (c *compiled) placeDuals() error {
	for _, d := range c.Duals {
		v, err := d.Node.Grad()
		if err != nil {
			return fmt.Errorf("gradient of %q: %w", lower.Called(d.Node), err)
		}
		b, err := values.Memory(v, c.Program.Values[d.ID].DType)
		if err != nil {
			return fmt.Errorf("gradient of %q: %w", lower.Called(d.Node), err)
		}
		if err := c.runner.Bind(d.ID, b); err != nil {
			return err
		}
		c.apart = append(c.apart, b)
	}
	return nil
}

// changed reports whether an op has changed since the program was made.
func (c *compiled) changed() bool {
	for i := range c.Marks {
		if c.Marks[i].Changed() {
			return true
		}
	}
	return false
}

// bind binds all inputs. It reports whether one has another shape than the program's.
func (c *compiled) bind() (resized bool, err error) {
	if c.gpu != nil {
		return c.gpu.bind()
	}
	if d := c.m.sharded; d != nil {
		if err := d.Machine().Adopt(); err != nil {
			return false, err
		}
	}
	if err := c.unshare(); err != nil {
		return false, err
	}
	for i := range c.sources {
		s := &c.sources[i]
		fits, err := c.source(s)
		if err != nil {
			return false, fmt.Errorf("input %q: %w", lower.Called(s.Node), err)
		}
		if !fits {
			return true, nil
		}
	}
	return false, c.hooks.bind()
}

// source binds one input. It reports whether its shape is the program's.
func (c *compiled) source(s *source) (fits bool, err error) {
	v := s.Node.Value()
	if v == nil {
		return false, fmt.Errorf("%w; give it one with gorgonia.Let", ErrNoValue)
	}
	if !values.SameShape(v.Shape(), s.Shape) {
		return false, nil
	}
	at, err := values.Memory(v, s.dtype)
	if err != nil {
		d, ok := v.(*gtensor.Dense)
		if !ok || values.IsPlain(d) || v.Dtype() != s.gdt {
			return false, err
		}
		if at, err = s.copied(d); err != nil {
			return false, err
		}
	}
	s.value = v
	if s.at == at {
		return true, nil
	}
	s.at = at
	return true, c.runner.Bind(s.ID, at)
}

// copied copies the elements of d to memory of the machine.
func (s *source) copied(d *gtensor.Dense) (tensor.Buffer, error) {
	if err := s.makeOwn(); err != nil {
		return s.own, err
	}
	return s.own, values.Compact(s.own, d)
}

func (s *source) makeOwn() (err error) {
	if s.own.IsZero() {
		s.own, err = values.New(s.dtype, max(values.Size(s.Shape), 1))
	}
	return err
}

// let gives output nodes their values if they have others. It makes new tensor headers, because
// Gorgonia recycles those of values that it unbinds.
func (c *compiled) let() error {
	for i, o := range c.Outputs {
		if o.Node.Value() == c.values[i] && c.values[i] != nil {
			continue
		}
		if c.memory[i].IsZero() {
			continue // its reducer has not set a place yet
		}
		if c.adopt(i) {
			continue
		}
		if err := c.setOutput(i, c.memory[i]); err != nil {
			return err
		}
		if v := c.values[i]; !o.Node.IsScalar() && !o.Node.Shape().Eq(v.Shape()) {
			if err := values.Try(func() { gorgonia.WithShape(slices.Clone([]int(v.Shape()))...)(o.Node) }); err != nil {
				return fmt.Errorf("output %q: %w", lower.Called(o.Node), err)
			}
		}
		if err := o.Let(c.values[i]); err != nil {
			return fmt.Errorf("output %q: %w", lower.Called(o.Node), err)
		}
	}
	return nil
}

// adopt makes the node's value that of output i if both have the same memory, which happens when
// programs of a machine alternate.
func (c *compiled) adopt(i int) bool {
	v := c.Outputs[i].Node.Value()
	if c.gpu == nil || v == nil || c.values[i] == nil || v.Dtype() != c.values[i].Dtype() || !v.Shape().Eq(c.values[i].Shape()) {
		return false
	}
	at, err := values.Memory(v, c.memory[i].DType())
	if err != nil || at != c.memory[i] {
		return false
	}
	c.values[i] = v
	return true
}

// watch returns an error if a result of a step has a NaN.
func (c *compiled) watch(step int, out []tensor.Buffer) error {
	for _, b := range out {
		if i := nanIn(b); i >= 0 {
			return fmt.Errorf("element %d of the result is %w, first at node %q", i, ErrNaN, c.Program.Steps[step].Name)
		}
	}
	return nil
}

// nanIn returns the index of the first NaN, or -1.
func nanIn(b tensor.Buffer) int {
	if x, err := tensor.Data[float32](b); err == nil {
		return slices.IndexFunc(x, func(v float32) bool { return v != v })
	}
	if x, err := tensor.Data[float64](b); err == nil {
		return slices.IndexFunc(x, math.IsNaN)
	}
	return -1
}

// gradientOf returns the memory of the gradient of parameter i after a run.
func (c *compiled) gradientOf(i int) (tensor.Buffer, error) {
	for _, o := range c.Duals {
		if o.Param == i {
			return c.runner.Memory(o.ID)
		}
	}
	for _, o := range c.Outputs {
		if o.Param != i && o.Node != c.m.g.Params[i].Grad {
			continue
		}
		at, err := c.runner.Memory(o.ID)
		if err == nil && o.Slot {
			return at.Slice(o.Offset, o.Offset+max(values.Size(o.Shape), 1))
		}
		return at, err
	}
	return tensor.Buffer{}, fmt.Errorf("it is not computed: pass it to New as an output: %w", optim.ErrNoGradient)
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
