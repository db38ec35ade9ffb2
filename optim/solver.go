package optim

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// Solver is a gorgonia.Solver with a learning rate, statistics and state that the caller can read
// and set. It is not safe for concurrent use.
type Solver interface {
	// Step updates every weight of the model from its gradient and zeroes the gradient. With
	// Config.KeepGradients, or for a constant of the graph, the gradient stays.
	//
	// Shapes: weight and gradient of a parameter have equal shapes, except for dims of size 1, and
	// one dtype, float32 or float64. They are *tensor.Dense with C-order contiguous memory, or
	// *gorgonia.F32 or *gorgonia.F64. Owns: nothing of the model after it returns; its own state
	// from the first step. Errors: ErrMismatch, ErrNoGradient, ErrUnsupported, ErrNonFinite, each
	// naming the parameter; ErrSwapped. After an error no weight, gradient or state has changed and
	// the step does not count.
	gorgonia.Solver

	// LearningRate returns the rate of the next step.
	LearningRate() float64
	// SetLearningRate replaces the base rate of the schedule. Errors: ErrConfig if it is negative
	// or not finite.
	SetLearningRate(base float64) error
	// SetGradientScale sets a factor for every gradient of this and later steps, applied before the
	// norm and clipping: 1/weight for a weighted sum of gradients, 1/loss scale for a scaled loss.
	// It is 1 at the start. Errors: ErrConfig if it is not finite and positive.
	SetGradientScale(scale float64) error
	// Steps returns the number of steps made, including those of a restored State.
	Steps() int
	// Skipped returns the number of steps that this solver skipped (see Config.SkipNonFinite).
	Skipped() int
	// GradNorm returns the global norm of the scaled gradients of the last Step before clipping,
	// also if the step failed or was skipped. It is NaN before the first step, and if neither
	// Config.ClipNorm nor Config.SkipNonFinite is set.
	GradNorm() float64

	// State returns a copy of the state for SetState. Swap averages back first.
	State() State
	// SetState continues from st; it may be called at any time. Errors: ErrMismatch, ErrSwapped;
	// the solver is then unchanged.
	SetState(st State) error

	// SwapAverages exchanges the weights of the model and their moving averages: once to evaluate
	// the averages, and once more to continue. Before the first step, where both are equal, it does
	// nothing. Errors: ErrConfig without Config.EMADecay; those of Step for weights; nothing has
	// changed then.
	SwapAverages(model []gorgonia.ValueGrad) error
}

// New returns a Solver for c. Errors: ErrConfig.
func New(c Config) (Solver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &solver{}
	s.prepare(c)
	return s, nil
}

// solver is an engine for whole parameters, which the caller passes to each step.
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
