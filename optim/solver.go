package optim

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// Solver is a gorgonia.Solver that can be watched, steered and saved. It is not for use by several
// goroutines at once.
type Solver interface {
	// Step updates every weight of the model from its gradient and zeroes the gradient, unless
	// Config.KeepGradients says otherwise or the gradient is a constant of the graph. Shapes:
	// weight and gradient of a parameter have one shape (dims of size 1 apart) and one dtype,
	// float32 or float64, and are *tensor.Dense with C-order contiguous memory, or *gorgonia.F32 or
	// *gorgonia.F64. Owns: nothing after it returns; state of the solver's own, made at the first
	// step. Errors: ErrMismatch, ErrNoGradient, ErrUnsupported, ErrNonFinite, each naming the
	// parameter; ErrSwapped. After an error no weight, gradient or state has changed and the step
	// does not count.
	gorgonia.Solver

	// LearningRate is the rate of the next step.
	LearningRate() float64
	// SetLearningRate replaces the rate that the schedule starts from.
	// Errors: ErrConfig if it is not finite and at least 0.
	SetLearningRate(base float64) error
	// SetGradientScale makes this and later steps multiply every gradient by scale first, before
	// its norm is taken and clipped: 1/weight for a weighted sum of gradients, 1/loss scale for a
	// scaled loss. It is 1 at the start. Errors: ErrConfig if it is not finite and positive.
	SetGradientScale(scale float64) error
	// Steps is the number of steps made, those before a restored State included.
	Steps() int
	// Skipped is the number of steps that this solver has left out, as Config.SkipNonFinite says.
	Skipped() int
	// GradNorm is the global norm of the scaled gradients of the last Step before clipping, the one
	// that was refused or skipped included; NaN if neither Config.ClipNorm nor Config.SkipNonFinite
	// asks for it, or before the first step.
	GradNorm() float64

	// State is a copy of what SetState needs for going on from here. Swap averages back before.
	State() State
	// SetState makes the solver go on from st, before the first step or at any later time.
	// Errors: ErrMismatch, ErrSwapped, and the solver is as before.
	SetState(st State) error

	// SwapAverages exchanges the weights of the model and their moving averages: once for an
	// evaluation of the averages, and once more to go on. Before the first step, where both are the
	// same, it does nothing. Errors: ErrConfig without Config.EMADecay; those of Step for weights;
	// and nothing has changed.
	SwapAverages(model []gorgonia.ValueGrad) error
}

// New is a Solver for c.
// Errors: ErrConfig.
func New(c Config) (Solver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &solver{}
	s.prepare(c)
	return s, nil
}

// solver is an engine for whole parameters, which each step gives anew.
type solver struct {
	engine
	named bool // params have the names of the model
}

func (s *solver) Step(model []gorgonia.ValueGrad) error {
	defer s.release()
	err := s.bind(model)
	if err == nil {
		err = s.step()
	}
	if err != nil {
		return fmt.Errorf("%s step %d: %w", s.config.Name, s.steps+1, err)
	}
	return nil
}

func (s *solver) SwapAverages(model []gorgonia.ValueGrad) error {
	defer s.release()
	err := s.averages()
	if err == nil && s.steps > 0 {
		if err = s.bindWeights(model); err == nil {
			s.swap()
		}
	}
	if err != nil {
		return fmt.Errorf("%s swap averages: %w", s.config.Name, err)
	}
	return nil
}
