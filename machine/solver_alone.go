package machine

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/compile/cudaexec"
	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// ownUpdate is the program of a solver whose update is not in the machine's programs.
type ownUpdate struct {
	exec    *cudaexec.Exec
	norm    program.ID
	skipped program.ID
	grads   []program.ID
	to      *cuda.Event // after the machine's run
	back    *cuda.Event // after the update
	bound   *compiled   // its gradients are bound
}

// newOwnUpdate loads the program that updates the parameters of m.
func newOwnUpdate(m *Machine, u *lower.Update) (*ownUpdate, error) {
	d := m.device
	weights := make([]tensor.Buffer, len(u.Nodes))
	for i, n := range u.Nodes {
		dt, err := values.DType(n.Dtype())
		if err != nil {
			return nil, fmt.Errorf("update of %q: %w", lower.Called(n), err)
		}
		st, err := d.param(n, dt, max(values.Size(m.shapes[n]), 1), m.now.Exchange)
		if err != nil {
			return nil, fmt.Errorf("update of %q: %w", lower.Called(n), err)
		}
		weights[i] = st.at
	}
	o := m.cfg.lowering(true)
	o.Name, o.Shapes, o.Update = m.cfg.Name+" update", m.shapes, u
	l, grads, err := lower.UpdateAlone(o, weights)
	if err != nil {
		return nil, err
	}
	cfg, err := d.config(&m.cfg, nil)
	if err != nil {
		return nil, err
	}
	r, err := cudaexec.New(l.Program, cfg, program.Env{})
	if err != nil {
		return nil, err
	}
	own := &ownUpdate{norm: l.Norm, skipped: l.Skipped, grads: grads}
	own.exec, _ = r.(*cudaexec.Exec)
	for _, f := range l.Fixed {
		if err := r.Bind(f.ID, f.At); err != nil {
			return own, err
		}
	}
	if own.to, err = d.dev.NewEvent(); err == nil {
		own.back, err = d.dev.NewEvent()
	}
	return own, err
}

// bind binds the gradients of program c to the update of nodes.
func (o *ownUpdate) bind(c *compiled, nodes gorgonia.Nodes) error {
	if o.bound == c {
		return nil
	}
	if o.bound != nil {
		if err := o.exec.Wait(); err != nil {
			return err
		}
	}
	for i := range nodes {
		at, err := c.gradientOf(i)
		if err == nil {
			err = o.exec.Bind(o.grads[i], at)
		}
		if err != nil {
			return fmt.Errorf("gradient of %q: %w", lower.Called(nodes[i]), err)
		}
	}
	o.bound = c
	return nil
}

// run queues the update after the runs on a stream, which then waits for it. steer sets the rate
// and the scale on the update's stream.
func (o *ownUpdate) run(after *cuda.Stream, steer func(on *cuda.Stream) error) error {
	own := o.exec.Stream()
	if err := errors.Join(after.Record(o.to), own.Wait(o.to)); err != nil {
		return err
	}
	if err := steer(own); err != nil {
		return err
	}
	if err := o.exec.Run(); err != nil {
		return err
	}
	return errors.Join(own.Record(o.back), after.Wait(o.back))
}

// close frees resources that the device does not own.
func (o *ownUpdate) close() error {
	if o == nil {
		return nil
	}
	var errs []error
	if o.exec != nil {
		errs = append(errs, o.exec.Close())
	}
	for _, e := range []*cuda.Event{o.to, o.back} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	return errors.Join(errs...)
}
