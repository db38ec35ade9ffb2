package machine

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/compile/hostexec"
	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/values"
)

// maxCompiled is the most programs for other shapes that are kept for each manner.
const maxCompiled = 8

// programs has the compiled programs of a machine, by shapes of inputs and manner of run.
type programs struct {
	m     *Machine
	now   *compiled
	all   []*compiled     // the first has the graph's own shapes
	as    lower.Manner    // of the next run
	drops map[uintptr]int // numbers of dropouts that are given; may be nil
}

// present returns the shapes of the inputs' values, and whether one differs from the graph.
func (p *programs) present() (shapes map[*gorgonia.Node][]int, resized bool, err error) {
	shapes = make(map[*gorgonia.Node][]int, len(p.m.shapes))
	for _, s := range p.now.sources {
		n, built := s.Node, p.m.shapes[s.Node]
		shapes[n] = built
		v := n.Value()
		if v == nil {
			return nil, false, fmt.Errorf("input %q: %w; give it one with gorgonia.Let", lower.Called(n), ErrNoValue)
		}
		if values.SameShape(v.Shape(), built) {
			continue
		}
		got := slices.Clone([]int(v.Shape()))
		if len(got) != len(built) || p.m.g.IsParam(n) || values.Size(got) == 0 {
			return nil, false, fmt.Errorf("input %q: its value has %w: %v, and the graph %v", lower.Called(n), ErrShape, got, built)
		}
		shapes[n], resized = got, true
	}
	return shapes, resized, nil
}

// choose selects the program for the manner of the next run and the last shapes, or makes one.
func (p *programs) choose() error {
	e := p.now.deposits()
	if e == nil {
		return nil
	}
	run, err := e.DDP.Machine().Next()
	if err != nil {
		return err
	}
	if p.as = lower.MannerOf(run); p.as == e.Manner {
		return nil
	}
	for _, c := range p.all {
		if c.Exchange.Manner == p.as && c.isLike(p.now) {
			return p.use(c)
		}
	}
	return p.resize()
}

// resize selects the program for the current shapes of inputs, or makes one.
func (p *programs) resize() error {
	shapes, resized, err := p.present()
	if err != nil {
		return err
	}
	for _, c := range p.all {
		if c.isFor(shapes) {
			return p.use(c)
		}
	}
	if p.m.cfg.NewBatch == Refuse && resized {
		return p.refusal(shapes)
	}
	c, err := p.rebuild(shapes, resized)
	if err != nil {
		return fmt.Errorf("for %w of inputs: %w", ErrShape, err)
	}
	p.all = append(p.all, c)
	if err := p.use(c); err != nil {
		return err
	}
	return p.bound()
}

// bound discards the oldest program of the current manner if there are too many. It keeps the first
// one.
func (p *programs) bound() error {
	oldest, n := -1, 0
	for i, c := range p.all {
		if c.manner() != p.as {
			continue
		}
		if n++; oldest < 0 && i > 0 {
			oldest = i
		}
	}
	if n <= maxCompiled {
		return nil
	}
	c := p.all[oldest]
	p.all = slices.Delete(p.all, oldest, oldest+1)
	return p.discard(c)
}

func (p *programs) refusal(shapes map[*gorgonia.Node][]int) error {
	for _, s := range p.all[0].sources {
		if got, want := shapes[s.Node], p.m.shapes[s.Node]; !slices.Equal(got, want) {
			return fmt.Errorf("input %q: its value has %w: %v, and the program is for %v; set NewBatch to recompile",
				lower.Called(s.Node), ErrShape, got, want)
		}
	}
	return ErrShape
}

// rebuild is build with Gorgonia's panics as errors.
func (p *programs) rebuild(shapes map[*gorgonia.Node][]int, resized bool) (c *compiled, err error) {
	if panicked := values.Try(func() { c, err = p.build(shapes, resized) }); panicked != nil {
		return nil, panicked
	}
	return c, err
}

// renew replaces all programs by one for the current settings of ops.
func (p *programs) renew() error {
	shapes, resized, err := p.present()
	if err != nil {
		return err
	}
	c, err := p.rebuild(shapes, resized)
	if err != nil {
		return err
	}
	old := p.all
	p.all = []*compiled{c}
	errs := []error{p.use(c)}
	for _, o := range old {
		errs = append(errs, p.discard(o))
	}
	return errors.Join(errs...)
}

// discard closes a program, even the one that ran last.
func (p *programs) discard(c *compiled) error {
	if p.m.device == nil {
		return c.runner.Close()
	}
	p.m.device.forget(c)
	if p.m.solve != nil && p.m.solve.last == c {
		p.m.solve.last = nil
	}
	if err := c.runner.Close(); err != nil {
		return err
	}
	for _, o := range p.all {
		if o.gpu.arena == c.gpu.arena {
			return nil
		}
	}
	return p.m.device.free(c.gpu.arena)
}

// use makes c the current program.
func (p *programs) use(c *compiled) error {
	p.now = c
	return c.let()
}

// build compiles and loads the graph for inputs of given shapes.
func (p *programs) build(shapes map[*gorgonia.Node][]int, resized bool) (*compiled, error) {
	c, err := p.program(shapes, resized)
	if err != nil {
		return nil, err
	}
	if p.m.device != nil {
		if c.gpu, err = loadOnDevice(c, c.env()); err == nil {
			c.runner = c.gpu.exec
		}
	} else {
		c.runner, err = hostexec.New(c.Program, p.onHost(), c.env())
	}
	if err != nil {
		return nil, err
	}
	if err := c.place(); err != nil {
		return nil, fmt.Errorf("%w%s", err, closing(c.runner.Close()))
	}
	return c, nil
}

// program compiles the graph for inputs of given shapes without loading it.
func (p *programs) program(shapes map[*gorgonia.Node][]int, resized bool) (*compiled, error) {
	l, err := lower.Graph(p.m.g, p.options(shapes, resized))
	if err != nil {
		return nil, err
	}
	c := &compiled{Lowered: l, m: p.m}
	c.hooks.c = c
	return c, nil
}

// options returns the settings of lowering for inputs of given shapes.
func (p *programs) options(shapes map[*gorgonia.Node][]int, resized bool) lower.Options {
	o := p.m.cfg.lowering(p.m.device != nil)
	o.Shapes, o.Resized, o.Drops, o.DDP, o.Manner = shapes, resized, p.drops, p.m.ddp, p.as
	if p.m.device != nil && p.m.cfg.Solver != nil {
		o.Update = p.m.solve.Update
	}
	return o
}

// onHost returns the settings of programs on the host.
func (p *programs) onHost() hostexec.Config {
	return hostexec.Config{Threads: p.m.cfg.Threads, BLAS: p.m.blas}
}
