package machine

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// hookPlace has the memory of a hook's gradient at the last run.
type hookPlace struct {
	gradient, reduced tensor.Buffer
	own               tensor.Buffer // if the reducer has no memory for the gradient
	output            int           // index of the output that is the reduced gradient, or -1
}

// hookMemory has the memory of the gradients that a program on the host passes to reducers.
type hookMemory struct {
	c      *compiled
	places []hookPlace
}

// place prepares the memory of gradients.
func (k *hookMemory) place() error {
	k.places = make([]hookPlace, len(k.c.Hooks))
	for i, h := range k.c.Hooks {
		p := &k.places[i]
		p.output = -1
		if h.Reduced != program.None {
			p.output = slices.IndexFunc(k.c.Outputs, func(b lower.Binding) bool { return b.ID == h.Reduced })
		}
		if r, ok := h.Hook.Reducer().(interface{ Rank() int }); ok && !k.c.m.first {
			k.c.m.clock[1] = uint64(r.Rank() * k.c.Samples)
		}
	}
	return k.bind()
}

// bind binds gradients to the memory that their reducers give for the next run.
func (k *hookMemory) bind() error {
	for i, h := range k.c.Hooks {
		p := &k.places[i]
		var gradient, reduced tensor.Buffer
		if r, ok := h.Hook.Reducer().(ops.Placed); ok {
			gradient, reduced = r.Place()
		}
		h.InPlace, h.Placed = !gradient.IsZero(), !reduced.IsZero()
		if !h.InPlace && h.Grad != program.None {
			var err error
			if gradient, err = k.spare(h, p); err != nil {
				return err
			}
		}
		if err := k.bindHook(h, p, gradient, reduced); err != nil {
			return fmt.Errorf("gradient of %q: %w", h.Hook.Param().Name(), err)
		}
	}
	return nil
}

// spareBytes returns the size of the memory that spare allocates for a hook, or 0.
func (k *hookMemory) spareBytes(h *lower.Hook) int64 {
	var gradient, reduced tensor.Buffer
	if r, ok := h.Hook.Reducer().(ops.Placed); ok {
		gradient, reduced = r.Place()
	}
	id := program.None
	switch {
	case h.Grad != program.None && gradient.IsZero():
		id = h.Grad
	case h.Reduced != program.None && reduced.IsZero():
		id = h.Reduced
	default:
		return 0
	}
	return int64(max(values.Size(h.Shape), 1)) * int64(k.c.Program.Values[id].DType.Size())
}

// spare returns memory for a gradient whose reducer has none, allocated at the first call.
func (k *hookMemory) spare(h *lower.Hook, p *hookPlace) (tensor.Buffer, error) {
	if !p.own.IsZero() {
		return p.own, nil
	}
	id := h.Grad
	if id == program.None {
		id = h.Reduced
	}
	var err error
	p.own, err = values.New(k.c.Program.Values[id].DType, max(values.Size(h.Shape), 1))
	return p.own, err
}

func (k *hookMemory) bindHook(h *lower.Hook, p *hookPlace, gradient, reduced tensor.Buffer) error {
	if h.Grad != program.None && p.gradient != gradient {
		if err := k.c.runner.Bind(h.Grad, gradient); err != nil {
			return err
		}
		p.gradient = gradient
	}
	if h.Reduced == program.None {
		return nil
	}
	if reduced.IsZero() {
		var err error
		if reduced, err = k.spare(h, p); err != nil { // Wait copies to it after Start
			return err
		}
	}
	if p.reduced == reduced {
		return nil
	}
	if err := k.c.runner.Bind(h.Reduced, reduced); err != nil {
		return err
	}
	p.reduced = reduced
	if p.output >= 0 {
		return k.c.setOutput(p.output, reduced)
	}
	return nil
}
