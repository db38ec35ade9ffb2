package optim

import "errors"

var (
	// ErrConfig is returned by Config.Validate, New and the setters of a Solver when a
	// hyperparameter is out of range, or has no effect on the chosen rule.
	ErrConfig = errors.New("invalid optimizer config")

	// ErrMismatch is returned by Step and SetState when the parameters differ from those of the
	// solver's state, or a gradient from its weight, in number, shape or dtype.
	ErrMismatch = errors.New("parameters do not match")

	// ErrNoGradient is returned by Step when a parameter has no weight or no gradient yet.
	ErrNoGradient = errors.New("no gradient")

	// ErrUnsupported is returned by Step when a value is not contiguous float32 or float64 memory
	// of its own.
	ErrUnsupported = errors.New("unsupported value")

	// ErrNonFinite is returned by Step when the norm of the gradients is NaN or infinite, if
	// Config.ClipNorm measures it and Config.SkipNonFinite does not skip the step.
	ErrNonFinite = errors.New("gradient norm is not finite")

	// ErrSwapped is returned by Step and SetState while the weights hold their averages, after
	// SwapAverages.
	ErrSwapped = errors.New("weights are swapped with their averages")
)
