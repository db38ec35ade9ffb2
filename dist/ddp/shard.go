package ddp

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// The stages of sharding, Config.Stage. Each includes those before it.
const (
	stageState  = 1 // a rank has only the solver's state of its own pieces
	stageGrads  = 2 // the same for gradients
	stageParams = 3 // the same for parameters
)

// Piece is the run of a parameter that one rank owns and updates.
type Piece struct {
	Param  int // index in Plan.Params
	Offset int // of its first element in the parameter, a multiple of optim.Block
	Len    int // elements
}

// valueOver returns a value of v's type and shape whose elements are b.
func valueOver(b tensor.Buffer, v gorgonia.Value) (gorgonia.Value, error) {
	if d, ok := v.(*gtensor.Dense); ok && !d.Shape().IsScalar() {
		return tensor.View(b, slices.Clone([]int(d.Shape()))...)
	}
	if b.DType() == tensor.F64 {
		return (*gorgonia.F64)(b.Pointer()), nil
	}
	return (*gorgonia.F32)(b.Pointer()), nil
}

// rehome moves the weights of all parameters into the buckets of weights, if any: the nodes' values
// become views of them. It moves values again that the program has set since.
func (d *DDP) rehome() error {
	switch {
	case d.plan.gathers():
		return d.shards.adopt()
	case d.team.onGPU(): // broadcastValues has copied them, and a machine copies values that are let anew
		return nil
	}
	for _, s := range d.slots {
		if s.weights.IsZero() {
			continue
		}
		if err := s.rehome(); err != nil {
			return fmt.Errorf("parameter %q: %w", s.param.Name(), err)
		}
	}
	return nil
}

// rehome copies the node's value to its bucket, unless it is there, and sets the node's value to a
// view of that.
func (s *slot) rehome() error {
	v := s.param.Value()
	if v == nil {
		return fmt.Errorf("%w: its node has lost its value", dist.ErrInvalid)
	}
	from, err := valueMemory(v)
	if err != nil {
		return err
	}
	if tensor.Same(from, s.weights) {
		return nil
	}
	if from.DType() != s.weights.DType() || from.Len() != s.weights.Len() {
		return fmt.Errorf("%w: its value is %v, want %v", dist.ErrCount, from, s.weights)
	}
	copy(s.weights.Raw(), from.Raw())
	home, err := valueOver(s.weights, v)
	if err != nil {
		return err
	}
	return gorgonia.Let(s.param, home)
}

// moveOut gives the nodes copies of their weights. If gone, the memory is freed, and copies are
// NaN.
//
// Errors: dist.ErrClosed if weights are lost.
func (d *DDP) moveOut(gone bool) error {
	if d.plan.gathers() {
		return d.shards.forget()
	}
	lost := 0
	for _, s := range d.slots {
		if s == nil || s.weights.IsZero() {
			continue
		}
		out, err := s.moveOut(gone)
		if err != nil {
			return fmt.Errorf("parameter %q: %w", s.param.Name(), err)
		}
		if out && gone {
			lost++
		}
	}
	if lost > 0 {
		return fmt.Errorf("ddp close rank %d/%d: %w: the weights of %d parameters were in buckets of the world; close the DDP before its world",
			d.team.Rank(), d.team.Size(), dist.ErrClosed, lost)
	}
	return nil
}

// moveOut reports whether the node's value was in the bucket.
func (s *slot) moveOut(gone bool) (bool, error) {
	v := s.param.Value()
	if v == nil {
		return false, nil
	}
	from, err := valueMemory(v)
	if err != nil || !tensor.Same(from, s.weights) {
		return false, err
	}
	var own tensor.Buffer
	if s.weights.DType() == tensor.F64 {
		own, err = ownCopy[float64](s.weights, gone)
	} else {
		own, err = ownCopy[float32](s.weights, gone)
	}
	if err != nil {
		return false, err
	}
	home, err := valueOver(own, v)
	if err != nil {
		return false, err
	}
	return true, gorgonia.Let(s.param, home)
}

// ownCopy returns a copy of b on the Go heap, or NaNs if gone, when b cannot be read.
func ownCopy[T float32 | float64](b tensor.Buffer, gone bool) (tensor.Buffer, error) {
	own := make([]T, b.Len())
	if gone {
		for i := range own {
			own[i] = T(math.NaN())
		}
		return tensor.Of(own), nil
	}
	from, err := tensor.Data[T](b)
	copy(own, from)
	return tensor.Of(own), err
}
