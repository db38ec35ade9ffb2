package machinetest

import (
	"fmt"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// NewVM returns a machine for a model. It is closed after the training.
type NewVM func(m *Model) (G.VM, error)

// Tape returns Gorgonia's tape machine, the oracle. After a run each parameter has a gradient
// tensor of its own. The tape machine shares the tensor of one gradient node, which a solver would
// scale and zero for the first parameter before it reads it for the next.
//
// Errors: none.
func Tape(m *Model) (G.VM, error) { return &tape{G.NewTapeMachine(m.Graph), m}, nil }

type tape struct {
	G.VM
	m *Model
}

func (t *tape) RunAll() error {
	if err := t.VM.RunAll(); err != nil {
		return err
	}
	for i, grad := range t.m.Grads {
		p := t.m.Learnables[i]
		own, err := G.CloneValue(grad.Value())
		if err != nil {
			return fmt.Errorf("gradient of %s: %w", p.Name(), err)
		}
		G.WithGrad(own)(p)
	}
	return nil
}

// Options has the settings of trainings and comparisons.
type Options struct {
	Steps       int           // of the training; 0 means 20
	Rows        int           // samples of a batch; 0 means the model's own small number
	DType       gtensor.Dtype // Float32 or Float64; the zero value means Float32
	Probability float64       // of dropout; 0 means 0.5

	// Tolerance bounds the differences of losses, gradients, running statistics and weights: see
	// Differences. 0 means that they must be equal.
	Tolerance float64

	// Solver makes the solver of each training. nil means SGD with momentum, which unlike Adam does
	// not amplify differences of small gradients.
	Solver func() G.Solver

	// Sync is called after each run of the tested machine, before a value is read, to fetch values.
	// nil does nothing.
	Sync func(vm G.VM, m *Model) error

	// Step updates the weights of the tested machine instead of Solver, by the same rule: for a
	// machine with its own solver. nil means Solver.
	Step func(vm G.VM, m *Model) error

	// TruePooling makes the oracle's average pooling divide by the size of the window, including
	// zeros of the padding, with the right gradient. Without it the oracle is Gorgonia's op, which
	// divides by the width of its input.
	TruePooling bool

	// IgnoreStats excludes running statistics of batch normalizations from the comparison.
	IgnoreStats bool
}

// withDefaults returns o with defaults for zero values.
func (o Options) withDefaults() Options {
	if o.Steps == 0 {
		o.Steps = 20
	}
	if o.Solver == nil {
		o.Solver = Momentum
	}
	return o
}

// config returns the settings of a model.
func (o Options) config() Config {
	return Config{Rows: o.Rows, DType: o.DType, Probability: o.Probability}
}

// Momentum is SGD with momentum 0.9 and rate 0.02.
func Momentum() G.Solver { return G.NewMomentum(G.WithLearnRate(0.02), G.WithMomentum(0.9)) }

// Adam is Adam with rate 0.01, and an epsilon of 1e-3, so that a gradient that is zero except for
// rounding changes little.
func Adam() G.Solver { return G.NewAdamSolver(G.WithLearnRate(0.01), G.WithEps(1e-3)) }

// Record has the results of a training. Elements are float64, which holds a float32 exactly.
type Record struct {
	Model   string
	Params  []string      // names of the parameters
	Losses  []float64     // by step
	Grads   [][][]float64 // by step and parameter, before the solver's step
	Weights [][]float64   // by parameter, after the last step
	Stats   [][]float64   // running mean and variance of each batch normalization, after the last step
	Masks   [][][]float64 // by step and dropout: 0 for a dropped element, else 1/(1-p)
	Drawn   []Drawn       // by dropout, over all steps
}

// Train trains a model, with the hooks of the options, and records it. With masks, those of a
// Record, the model must be Masked, and multiplies by them instead of drawing its own.
//
// Owns: the machine of newVM, which it closes. Errors: those of the machine and the solver, with
// model and step.
func Train(m *Model, newVM NewVM, o Options, masks [][][]float64) (r *Record, err error) {
	o = o.withDefaults()
	r = &Record{Model: m.Name}
	for _, p := range m.Learnables {
		r.Params = append(r.Params, p.Name())
	}
	vm, err := newVM(m)
	if err != nil {
		return nil, fmt.Errorf("model %s: new machine: %w", m.Name, err)
	}
	defer func() {
		if closeErr := vm.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("model %s: close: %w", m.Name, closeErr)
		}
	}()
	solver := o.Solver()
	for step := range o.Steps {
		if err := m.Feed(step); err != nil {
			return nil, err
		}
		if masks != nil {
			if err := m.SetMasks(masks[step]); err != nil {
				return nil, err
			}
		}
		if err := r.step(m, vm, solver, o); err != nil {
			return nil, fmt.Errorf("model %s: step %d: %w", m.Name, step, err)
		}
	}
	return r, r.finish(m)
}

// step runs one step of a training.
func (r *Record) step(m *Model, vm G.VM, solver G.Solver, o Options) error {
	defer vm.Reset()
	if err := vm.RunAll(); err != nil {
		return err
	}
	if o.Sync != nil {
		if err := o.Sync(vm, m); err != nil {
			return err
		}
	}
	if err := r.note(m); err != nil {
		return err
	}
	if o.Step != nil {
		return o.Step(vm, m)
	}
	return solver.Step(G.NodesToValueGrads(m.Learnables))
}

// note records loss, gradients and masks.
func (r *Record) note(m *Model) error {
	loss, err := elements(m.Cost.Value())
	if err != nil {
		return fmt.Errorf("cost: %w", err)
	}
	if len(loss) != 1 {
		return fmt.Errorf("the cost has %d elements, want 1", len(loss))
	}
	grads := make([][]float64, len(m.Learnables))
	for i, p := range m.Learnables {
		v, err := p.Grad()
		if err == nil {
			grads[i], err = elements(v)
		}
		if err != nil {
			return fmt.Errorf("gradient of %s: %w", p.Name(), err)
		}
		if got, want := len(grads[i]), p.Shape().TotalSize(); got != want {
			return fmt.Errorf("gradient of %s: %d elements, want %d", p.Name(), got, want)
		}
	}
	masks := make([][]float64, len(m.Drops))
	if r.Drawn == nil {
		r.Drawn = make([]Drawn, len(m.Drops))
	}
	for i, d := range m.Drops {
		if masks[i], err = r.Drawn[i].mask(d); err != nil {
			return fmt.Errorf("dropout %d: %w", i, err)
		}
	}
	r.Losses, r.Grads, r.Masks = append(r.Losses, loss[0]), append(r.Grads, grads), append(r.Masks, masks)
	return nil
}

// finish records weights and statistics after the last step.
func (r *Record) finish(m *Model) error {
	for _, p := range m.Learnables {
		w, err := elements(p.Value())
		if err != nil {
			return fmt.Errorf("model %s: weights of %s: %w", m.Name, p.Name(), err)
		}
		r.Weights = append(r.Weights, w)
	}
	for i, op := range m.Norms {
		mean, variance := op.Stats()
		for _, v := range []gtensor.Tensor{mean, variance} {
			s, err := elements(v)
			if err != nil {
				return fmt.Errorf("model %s: statistics of batch normalization %d: %w", m.Name, i, err)
			}
			r.Stats = append(r.Stats, s)
		}
	}
	return nil
}

// elements returns a copy of the elements of a value, in C order.
func elements(v G.Value) ([]float64, error) {
	if v == nil {
		return nil, fmt.Errorf("no value")
	}
	if t, ok := v.(*gtensor.Dense); ok && (t.RequiresIterator() || t.IsView() && !t.IsScalar()) {
		v = t.Materialize()
	}
	switch data := v.Data().(type) {
	case float64:
		return []float64{data}, nil
	case float32:
		return []float64{float64(data)}, nil
	case []float64:
		return append([]float64(nil), data...), nil
	case []float32:
		all := make([]float64, len(data))
		for i, x := range data {
			all[i] = float64(x)
		}
		return all, nil
	default:
		return nil, fmt.Errorf("elements are %T, want float32 or float64", data)
	}
}
