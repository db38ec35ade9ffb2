package compress

import (
	"slices"

	"github.com/symgrad/symgrad/tensor"
)

// Slots other than the residual: the first Q of a step, and the number of the step, which seeds
// random columns.
const (
	warmSlot = "q"
	stepSlot = "step"
)

// State implements Stateful.
func (x *power[T]) State() []State {
	var all []State
	for _, mx := range x.matrices {
		name := mx.param.Name
		if mx.residual != nil {
			all = append(all, State{
				Param: name, Slot: residualSlot, Shape: slices.Clone(mx.param.Shape), Data: tensor.Of(slices.Clone(mx.residual)), Sum: true,
			})
		}
		all = append(all,
			State{Param: name, Slot: warmSlot, Shape: []int{mx.r, mx.m}, Data: tensor.Of(slices.Clone(mx.q))},
			State{Param: name, Slot: stepSlot, Shape: []int{1}, Data: tensor.Of([]float64{float64(mx.step)})})
	}
	return all
}

// Undo implements Undoer. Q and the number of steps, equal on all ranks, are valid whatever the
// last step was.
func (x *power[T]) Undo() {
	for _, mx := range x.matrices {
		if mx.moved {
			clear(mx.residual)
			mx.moved = false
		}
	}
}

// matrixState is the state of one matrix; nil for missing entries.
type matrixState[T float32 | float64] struct {
	residual []float32
	q        []T
	step     []float64
}

// SetState implements Stateful.
func (x *power[T]) SetState(state []State) error {
	all := make([]matrixState[T], len(x.matrices))
	for i, mx := range x.matrices {
		k, name := &all[i], mx.param.Name
		var err error
		if k.residual, err = restored[float32](state, name, residualSlot, mx.param.Shape...); err != nil {
			return err
		}
		if k.q, err = restored[T](state, name, warmSlot, mx.r, mx.m); err != nil {
			return err
		}
		if k.step, err = restored[float64](state, name, stepSlot, 1); err != nil {
			return err
		}
	}
	for i, mx := range x.matrices {
		k := &all[i]
		clear(mx.residual)
		copy(mx.residual, k.residual)
		clear(mx.q)
		copy(mx.q, k.q)
		mx.step = 0
		if k.step != nil {
			mx.step = uint64(k.step[0])
		}
		mx.seed(x.hook.Seed)
	}
	return nil
}
