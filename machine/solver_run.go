package machine

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/cudaexec"
	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// Step implements optim.Solver.
func (s *solver) Step(model []gorgonia.ValueGrad) error {
	if err := s.step(model); err != nil {
		return fmt.Errorf("%s step %d: %w", s.Config.Name, s.steps+1, err)
	}
	return nil
}

func (s *solver) step(model []gorgonia.ValueGrad) error {
	if err := s.match(model); err != nil || s.alone == nil {
		return err
	}
	if err := s.unswapped(); err != nil {
		return err
	}
	m, d := s.m, s.m.device
	if m.closed {
		return ErrClosed
	}
	if d.current == nil {
		return fmt.Errorf("nothing has run: %w", optim.ErrNoGradient)
	}
	if err := s.alone.bind(m.now, s.Nodes); err != nil {
		return err
	}
	if err := d.dev.Enter(); err != nil {
		return err
	}
	defer d.dev.Leave()
	if err := s.alone.run(d.current.Stream(), s.steer); err != nil {
		return err
	}
	s.steps++
	return s.judge(s.alone.exec, s.alone.norm, s.alone.skipped, late)
}

// match compares a model with the parameters of the graph.
func (s *solver) match(model []gorgonia.ValueGrad) error {
	if len(model) != len(s.Nodes) {
		return fmt.Errorf("the model has %d parameters and the graph gradients of %d: %w", len(model), len(s.Nodes), optim.ErrMismatch)
	}
	if s.order == nil {
		s.order = make([]int, 0, len(s.Nodes))
	}
	s.order = s.order[:0]
	for i, vg := range model {
		n, ok := vg.(*gorgonia.Node)
		at := -1
		if ok {
			at = slices.Index(s.Nodes, n)
		}
		if at < 0 || slices.Contains(s.order, at) {
			s.order = s.order[:0]
			return fmt.Errorf("parameter %d: %w: it is not a parameter of the graph, or a repeated one", i, optim.ErrMismatch)
		}
		s.order = append(s.order, at)
	}
	return nil
}

// steer sets the rate and the gradient scale for the next step.
func (s *solver) steer(on *cuda.Stream) error {
	d := s.m.device
	return errors.Join(
		d.set(on, s.Words[0], math.Float64bits(s.LearningRate())),
		d.set(on, s.Words[1], math.Float64bits(s.scale)))
}

// judge checks the norm of an earlier run, if norms are measured. age is 0 for the newest.
func (s *solver) judge(x *cudaexec.Exec, norm, skipped program.ID, age uint64) error {
	if norm == program.None || x.Runs() <= age {
		return nil
	}
	to := tensor.Of(s.wide).Raw()
	if skipped != program.None {
		if err := x.ReadRun(x.Runs()-age, skipped, to); err != nil {
			return err
		}
		s.steps -= int(s.wide[0] - s.skipped)
		s.skipped = s.wide[0]
	}
	if err := x.ReadRun(x.Runs()-age, norm, to); err != nil {
		return err
	}
	if s.norm = s.wide[0]; skipped == program.None && (math.IsNaN(s.norm) || math.IsInf(s.norm, 0)) {
		return fmt.Errorf("the gradients of %d steps before have norm %v; the update was skipped: %w", age, s.norm, optim.ErrNonFinite)
	}
	return nil
}

// unswapped returns an error while the parameters hold their averages.
func (s *solver) unswapped() error {
	if s.swapped {
		return fmt.Errorf("the weights are averages: swap them back: %w", optim.ErrSwapped)
	}
	return nil
}

// prepare prepares a run that includes the update.
func (s *solver) prepare(c *compiled) error {
	if s == nil || s.alone != nil || c.manner().Local() {
		return nil
	}
	if err := s.unswapped(); err != nil {
		return err
	}
	return s.steer(c.gpu.exec.Stream())
}

// ran counts such a run after it was queued.
func (s *solver) ran(c *compiled) error {
	if s == nil || s.alone != nil || c.manner().Local() {
		return nil
	}
	s.last = c
	s.steps++
	return s.judge(c.gpu.exec, c.Norm, c.Skipped, late)
}

// wait waits for all updates.
func (s *solver) wait() error {
	if s == nil {
		return nil
	}
	var x *cudaexec.Exec
	norm, skipped := program.None, program.None
	switch {
	case s.alone != nil:
		x, norm, skipped = s.alone.exec, s.alone.norm, s.alone.skipped
	case s.last != nil:
		x, norm, skipped = s.last.gpu.exec, s.last.Norm, s.last.Skipped
	}
	if x == nil || s.steps == 0 && s.skipped == 0 {
		return nil
	}
	if err := s.m.device.wait(); err != nil { // waits for the runs before or with the updates, which detect dead ranks
		return err
	}
	if s.alone != nil {
		if err := x.Wait(); err != nil {
			return err
		}
	}
	return s.judge(x, norm, skipped, 0)
}

// close frees resources that the device does not own.
func (s *solver) close() error {
	if s == nil {
		return nil
	}
	return s.alone.close()
}
