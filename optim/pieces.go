package optim

import (
	"fmt"
	"slices"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/tensor"
)

// ParamShape describes a parameter of a model.
type ParamShape struct {
	Name  string // unique; Config.Groups match it
	Shape []int
	DType gtensor.Dtype // gtensor.Float32 or gtensor.Float64
}

// Piece is the part of a parameter that a rank owns, with the memory of its weights and gradients.
// Shapes: Weight and Grad have equal lengths, and the parameter's dtype. A piece starts at a
// multiple of Block, and ends at a multiple or at the parameter's end, so that no two ranks share a
// block.
type Piece struct {
	Name   string // of the parameter
	Shape  []int  // of the whole parameter
	Offset int    // of the first element, in C order
	Weight tensor.Buffer
	Grad   tensor.Buffer
}

// PieceSolver updates the pieces of parameters that a rank owns. The PieceSolvers of all ranks
// together give the result of one Solver for the whole parameters: equal bits in weights, state and
// norms, for any number of ranks. It is not safe for concurrent use.
type PieceSolver interface {
	// Step updates the pieces' weights and zeroes their gradients, unless Config.KeepGradients is
	// set. Collective: all ranks, if Config.ClipNorm, Config.SkipNonFinite or LAMB need sums over
	// all parameters. A step then has one exchange, or two for LAMB with a norm. Errors:
	// ErrNonFinite on all ranks, ErrSwapped, and those of the sum. After an error no weight,
	// gradient or state has changed and the step does not count.
	Step() error

	// LearningRate is the same as Solver's.
	LearningRate() float64
	// SetLearningRate is the same as Solver's.
	SetLearningRate(base float64) error
	// SetGradientScale is the same as Solver's.
	SetGradientScale(scale float64) error
	// Steps is the same as Solver's.
	Steps() int
	// Skipped is the same as Solver's.
	Skipped() int
	// GradNorm is the same as Solver's, over all ranks.
	GradNorm() float64

	// State returns a copy of the rank's state: an entry for every parameter of the model. The
	// slots hold the elements of the rank's piece, and are empty if it has none.
	State() State
	// SetState continues from st. For each parameter of the model, st has a run of elements that
	// covers the rank's piece: the whole parameter's state, or another rank's if that covers it.
	// Errors: ErrMismatch, ErrSwapped; the solver is then unchanged.
	SetState(st State) error

	// SwapAverages exchanges the pieces' weights and their moving averages, like Solver's.
	// Errors: ErrConfig without Config.EMADecay.
	SwapAverages() error
}

// NewPieces returns a PieceSolver for the pieces that a rank owns. params lists all parameters of
// the model, in equal order on every rank. sum adds x over all ranks, element by element, in place;
// it is nil for one rank. Each element of x is nonzero on at most one rank, so any order of
// addition gives equal bits.
//
// Owns: the pieces' memory is the caller's, and must stay where it is; the state is the solver's.
// Errors: ErrConfig; ErrMismatch, naming the parameter, for a piece that breaks the rules of Piece,
// is not within a parameter, or is the second piece of one; ErrUnsupported for memory that is
// shared or not on the host.
func NewPieces(c Config, params []ParamShape, pieces []Piece, sum func(x []float64) error) (PieceSolver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &pieceSolver{}
	s.prepare(c)
	s.exchange = sum
	all, numbers, err := s.paramsOf(params)
	if err == nil {
		err = s.own(all, numbers, pieces)
	}
	if err != nil {
		return nil, fmt.Errorf("%s pieces: %w", c.Name, err)
	}
	return s, nil
}

// pieceSolver is an engine for pieces, which are bound once.
type pieceSolver struct{ engine }

func (s *pieceSolver) Step() error {
	if err := s.step(); err != nil {
		return fmt.Errorf("%s step %d: %w", s.config.Name, s.steps+1, err)
	}
	return nil
}

func (s *pieceSolver) SwapAverages() error {
	if err := s.averages(); err != nil {
		return fmt.Errorf("%s swap averages: %w", s.config.Name, err)
	}
	if s.steps > 0 {
		s.swap()
	}
	return nil
}

func (s *pieceSolver) SetState(st State) error {
	if err := s.setState(st); err != nil {
		return fmt.Errorf("%s set state of %d steps: %w", s.config.Name, st.Steps, err)
	}
	return nil
}

// setState first restores into copies of the parameters, so that a state that does not fit changes
// nothing.
func (s *pieceSolver) setState(st State) error {
	if err := s.checkState(st); err != nil {
		return err
	}
	params := slices.Clone(s.params)
	for i := range params {
		p := &params[i]
		if len(st.Params) == 0 { // of a solver that has made no step
			p.f32.slots, p.f64.slots = nil, nil
			p.allocate(s.slots)
			continue
		}
		ps := st.Params[i]
		if ps.DType != p.dtype || !sameOrder(ps.Shape, p.shape) {
			return fmt.Errorf("parameter %d %s %v %s is%v %v in the model: %w",
				i, ps.Name, gtensor.Shape(ps.Shape), dtypeText(ps.DType), p, p.dtype, ErrMismatch)
		}
		if err := s.restore(p, ps); err != nil {
			return fmt.Errorf("parameter %d%v: %w", i, p, err)
		}
	}
	s.params, s.steps = params, st.Steps
	return nil
}

// paramsOf returns the parameters of a model, without owned elements, and their numbers by name.
func (s *pieceSolver) paramsOf(shapes []ParamShape) ([]param, map[string]int, error) {
	if len(shapes) == 0 {
		return nil, nil, fmt.Errorf("the model has no parameters: %w", ErrMismatch)
	}
	params, numbers, total := make([]param, len(shapes)), map[string]int{}, 0
	for i, sh := range shapes {
		p := &params[i]
		*p = param{name: sh.Name, shape: slices.Clone(sh.Shape), dtype: sh.DType, group: s.config.group(sh.Name, sh.Shape)}
		if p.dtype != gtensor.Float32 && p.dtype != gtensor.Float64 {
			return nil, nil, fmt.Errorf("parameter %d%v: dtype %s: use float32 or float64: %w", i, p, dtypeText(p.dtype), ErrUnsupported)
		}
		var err error
		if total, err = addShape(total, sh.Shape); err != nil {
			return nil, nil, fmt.Errorf("parameter %d%v: %w", i, p, err)
		}
		if k, twice := numbers[sh.Name]; twice {
			return nil, nil, fmt.Errorf("parameters %d and %d are both named %q: pieces need names of their own: %w", k, i, sh.Name, ErrMismatch)
		}
		numbers[sh.Name] = i
	}
	return params, numbers, nil
}

// own binds the pieces and makes their state.
func (s *pieceSolver) own(params []param, numbers map[string]int, pieces []Piece) error {
	for _, piece := range pieces {
		i, ok := numbers[piece.Name]
		if !ok {
			return fmt.Errorf("piece of %q: the model has no such parameter: %w", piece.Name, ErrMismatch)
		}
		if err := params[i].own(piece); err != nil {
			return fmt.Errorf("piece of parameter %d%v: %d elements from %d on: %w", i, &params[i], piece.Weight.Len(), piece.Offset, err)
		}
	}
	for i := range params {
		if s.config.KeepGradients {
			params[i].zero = zeroNever
		}
		params[i].allocate(s.slots)
	}
	if err := s.checkOverlap(params); err != nil {
		return err
	}
	s.adopt(params)
	return nil
}

// own makes piece the owned part of p.
func (p *param) own(piece Piece) error {
	size, n := shapeSize(p.shape), piece.Weight.Len()
	end := piece.Offset + n // once they are known to fit
	switch {
	case !slices.Equal(piece.Shape, p.shape):
		return fmt.Errorf("the piece has shape %v: %w", gtensor.Shape(piece.Shape), ErrMismatch)
	case p.count > 0:
		return fmt.Errorf("the rank has another piece, from %d to %d: %w", p.first, p.first+p.count, ErrMismatch)
	case piece.Offset < 0 || piece.Offset > size-n:
		return fmt.Errorf("the parameter has %d: %w", size, ErrMismatch)
	case piece.Offset%Block != 0 || end%Block != 0 && end != size:
		return fmt.Errorf("cut between blocks of %d elements: %w", Block, ErrMismatch)
	case piece.Grad.Len() != n || piece.Grad.DType() != piece.Weight.DType():
		return fmt.Errorf("weight is %v and gradient is %v: %w", piece.Weight, piece.Grad, ErrMismatch)
	}
	if n == 0 {
		return nil
	}
	p.first, p.count = piece.Offset, n
	var err error
	if p.dtype == gtensor.Float32 {
		err = borrow(&p.f32, piece)
	} else {
		err = borrow(&p.f64, piece)
	}
	return err
}

// borrow takes the memory of a piece, for the life of the solver.
func borrow[T float](m *memory[T], piece Piece) error {
	for _, f := range []struct {
		from tensor.Buffer
		to   *[]T
	}{{piece.Weight, &m.weight}, {piece.Grad, &m.grad}} {
		if f.from.Device() != tensor.Host {
			return fmt.Errorf("%v: use host memory: %w", f.from, ErrUnsupported)
		}
		x, err := tensor.Data[T](f.from)
		if err != nil {
			return fmt.Errorf("%w: %w", err, ErrMismatch)
		}
		*f.to = x
	}
	return nil
}
