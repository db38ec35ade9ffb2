package machine

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/compile/cudaexec"
	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// solver is an optim.Solver whose steps run on a device, in a program of its own or in the
// machine's.
type solver struct {
	*lower.Update
	m     *Machine
	base  float64
	scale float64
	steps int // made, according to the host, which learns of skipped ones a few runs later
	norm  float64

	skipped float64 // steps, according to the host
	swapped bool    // the parameters hold their averages

	order []int      // by parameter of the last model, the index in nodes; nil before the first
	wide  []float64  // destination of the norm
	alone *ownUpdate // nil if the steps are in the machine's programs
	last  *compiled  // the program of the machine that updated last; may be nil
}

// newSolver returns a solver with the states of all parameters on the device.
func newSolver(m *Machine, c optim.Config) (*solver, error) {
	s := &solver{
		Update: lower.NewUpdate(m.g, c, m.cfg.DualValues, m.shapes, m.ddp),
		m:      m, scale: 1, norm: math.NaN(), wide: make([]float64, 1),
	}
	s.base = s.Config.LearningRate
	if err := s.Allocate(m.g, m.device.alloc); err != nil {
		return s, err
	}
	return s, s.count(0)
}

// count sets the number of steps made. No run may be in flight.
func (s *solver) count(steps int) error {
	s.steps = steps
	t := float64(steps)
	for i, x := range []float64{math.Pow(s.Config.Beta1, t), math.Pow(s.Config.Beta2, t), t} {
		if err := s.m.device.write(s.Words[2+i], tensor.Of([]float64{x})); err != nil {
			return err
		}
	}
	return nil
}

// Step implements optim.Solver.
func (s *solver) Step(model []gorgonia.ValueGrad) error {
	err := s.step(model)
	if err == nil && s.alone != nil {
		err = s.stepped()
	}
	if err != nil {
		return fmt.Errorf("%s step %d: %w", s.Config.Name, s.steps+1, err)
	}
	return nil
}

// stepped reports an update to a DDP with LocalSteps. Weights of skipped steps do not count there,
// so it waits for the update if it may be skipped.
func (s *solver) stepped() error {
	if s == nil || s.m.ddp == nil || s.m.ddp.LocalSteps() == 0 {
		return nil
	}
	before := s.skipped
	if s.waits() {
		if err := s.wait(); err != nil {
			return err
		}
	}
	return s.m.ddp.Machine().Stepped(s.skipped > before)
}

// within is stepped for an update that is a part of a run.
func (s *solver) within(c *compiled) error {
	if s == nil || s.alone != nil || c.manner().Local() {
		return nil
	}
	return s.stepped()
}

// waits reports whether stepped waits for each update.
func (s *solver) waits() bool {
	return s.Config.SkipNonFinite && s.m.ddp != nil && s.m.ddp.LocalSteps() > 0
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
	if s.waits() {
		return nil
	}
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
	if s.waits() {
		return nil
	}
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

// LearningRate implements optim.Solver.
func (s *solver) LearningRate() float64 { return s.Config.Schedule.Rate(s.base, s.steps) }

// SetLearningRate implements optim.Solver.
func (s *solver) SetLearningRate(base float64) error {
	if !(base >= 0) || math.IsInf(base, 1) {
		return fmt.Errorf("%s: learning rate %v: it must be finite and at least 0: %w", s.Config.Name, base, optim.ErrConfig)
	}
	s.base = base
	return nil
}

// SetGradientScale implements optim.Solver.
func (s *solver) SetGradientScale(scale float64) error {
	if !(scale > 0) || math.IsInf(scale, 1) {
		return fmt.Errorf("%s: gradient scale %v: it must be finite and positive: %w", s.Config.Name, scale, optim.ErrConfig)
	}
	s.scale = scale
	return nil
}

// settle waits for the last step. Non-finite gradients are no error.
func (s *solver) settle() error {
	if s.m.closed {
		return ErrClosed
	}
	return butNonFinite(s.wait())
}

// Steps implements optim.Solver. It does not wait, so it may include steps that the last three runs
// skipped.
func (s *solver) Steps() int { return s.steps }

// Skipped implements optim.Solver. It does not wait, so it may lack steps that the last three runs
// skipped.
func (s *solver) Skipped() int { return int(s.skipped) }

// GradNorm implements optim.Solver. It waits for the last step.
func (s *solver) GradNorm() float64 {
	if s.Config.ClipNorm == 0 && !s.Config.SkipNonFinite || s.settle() != nil {
		return math.NaN()
	}
	return s.norm
}

// butNonFinite returns err, or nil for ErrNonFinite: that step was skipped, a later Step or Sync
// reports it, and the data on the device are valid.
func butNonFinite(err error) error {
	if errors.Is(err, optim.ErrNonFinite) {
		return nil
	}
	return err
}
