package machine

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/internal/program/draft"
	"github.com/symgrad/symgrad/internal/values"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// hookPlace has the memory of a hook's gradient at the last run.
type hookPlace struct {
	gradient, reduced tensor.Buffer
	own               tensor.Buffer // if the reducer has no memory for the gradient
	output            int           // index of the output that is the reduced gradient, or -1
}

// placeHooks prepares the memory of gradients.
func (c *compiled) placeHooks() error {
	c.places = make([]hookPlace, len(c.hooks))
	for i, h := range c.hooks {
		p := &c.places[i]
		p.output = -1
		if h.reduced != program.None {
			p.output = slices.IndexFunc(c.outputs, func(b binding) bool { return b.id == h.reduced })
		}
		if r, ok := h.hook.Reducer().(interface{ Rank() int }); ok && !c.m.first {
			c.m.clock[1] = uint64(r.Rank() * c.samples)
		}
	}
	return c.bindHooks()
}

// bindHooks binds gradients to the memory that their reducers give for the next run.
func (c *compiled) bindHooks() error {
	for i, h := range c.hooks {
		p := &c.places[i]
		var gradient, reduced tensor.Buffer
		if r, ok := h.hook.Reducer().(ops.Placed); ok {
			gradient, reduced = r.Place()
		}
		h.inPlace, h.placed = !gradient.IsZero(), !reduced.IsZero()
		if !h.inPlace && h.grad != program.None {
			var err error
			if gradient, err = c.spare(h, p); err != nil {
				return err
			}
		}
		if err := c.bindHook(h, p, gradient, reduced); err != nil {
			return fmt.Errorf("gradient of %q: %w", h.hook.Param().Name(), err)
		}
	}
	return nil
}

// spareBytes returns the size of the memory that spare allocates for a hook, or 0.
func (c *compiled) spareBytes(h *hook) int64 {
	var gradient, reduced tensor.Buffer
	if r, ok := h.hook.Reducer().(ops.Placed); ok {
		gradient, reduced = r.Place()
	}
	id := program.None
	switch {
	case h.grad != program.None && gradient.IsZero():
		id = h.grad
	case h.reduced != program.None && reduced.IsZero():
		id = h.reduced
	default:
		return 0
	}
	return int64(max(draft.SizeOf(h.shape), 1)) * int64(c.p.Values[id].DType.Size())
}

// spare returns memory for a gradient whose reducer has none, allocated at the first call.
func (c *compiled) spare(h *hook, p *hookPlace) (tensor.Buffer, error) {
	if !p.own.IsZero() {
		return p.own, nil
	}
	id := h.grad
	if id == program.None {
		id = h.reduced
	}
	var err error
	p.own, err = values.New(c.p.Values[id].DType, max(draft.SizeOf(h.shape), 1))
	return p.own, err
}

func (c *compiled) bindHook(h *hook, p *hookPlace, gradient, reduced tensor.Buffer) error {
	if h.grad != program.None && p.gradient != gradient {
		if err := c.runner.Bind(h.grad, gradient); err != nil {
			return err
		}
		p.gradient = gradient
	}
	if h.reduced == program.None {
		return nil
	}
	if reduced.IsZero() {
		var err error
		if reduced, err = c.spare(h, p); err != nil { // Wait copies to it after Start
			return err
		}
	}
	if p.reduced == reduced {
		return nil
	}
	if err := c.runner.Bind(h.reduced, reduced); err != nil {
		return err
	}
	p.reduced = reduced
	if p.output >= 0 {
		return c.setOutput(p.output, reduced)
	}
	return nil
}
