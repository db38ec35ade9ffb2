package optim

import (
	"fmt"
	"slices"

	gtensor "gorgonia.org/tensor"
)

// State is the state of a solver between steps. The learning rate, gradient scale and other
// settings are not part of it: set them by Config and the setters.
type State struct {
	Name   string       // the rule, Config.Name
	Steps  int          // steps made
	Params []ParamState // in the order of the model; empty before the first step of a Solver
}

// ParamState is the state of one parameter, or of a run of its elements.
type ParamState struct {
	Name   string        // of the node, or "". Not compared.
	Shape  []int         // of the whole parameter
	DType  gtensor.Dtype // gtensor.Float32 or gtensor.Float64
	Offset int           // first element of Slots, in C order
	Slots  []Slot        // of one length; none for SGD
}

// Slot holds one number for each element from ParamState.Offset on, in C order. Names are those of
// PyTorch's optimizer state: momentum_buffer, exp_avg, exp_avg_sq, max_exp_avg_sq; and ema, the
// moving average of the weight.
type Slot struct {
	Name string
	F32  []float32 // for a float32 parameter
	F64  []float64 // for a float64 parameter
}

// len returns the number of elements of the slots in p's dtype; 0 without slots.
func (ps ParamState) len() int {
	switch {
	case len(ps.Slots) == 0:
		return 0
	case ps.DType == gtensor.Float32:
		return len(ps.Slots[0].F32)
	}
	return len(ps.Slots[0].F64)
}

func (e *engine) State() State {
	st := State{Name: e.config.Name, Steps: e.steps}
	for i := range e.params {
		p := &e.params[i]
		ps := ParamState{Name: p.name, Shape: slices.Clone(p.shape), DType: p.dtype, Offset: p.first}
		for k, name := range e.slots {
			slot := Slot{Name: name}
			if p.dtype == gtensor.Float32 {
				slot.F32 = slices.Clone(p.f32.slots[k])
			} else {
				slot.F64 = slices.Clone(p.f64.slots[k])
			}
			ps.Slots = append(ps.Slots, slot)
		}
		st.Params = append(st.Params, ps)
	}
	return st
}

func (s *solver) SetState(st State) error {
	if err := s.setState(st); err != nil {
		return fmt.Errorf("%s set state of %d steps: %w", s.config.Name, st.Steps, err)
	}
	return nil
}

func (s *solver) setState(st State) error {
	if err := s.checkState(st); err != nil {
		return err
	}
	var params []param
	total := 0
	for i, ps := range st.Params {
		p := param{name: ps.Name, shape: slices.Clone(ps.Shape), dtype: ps.DType, count: shapeSize(ps.Shape)}
		var err error
		if total, err = addShape(total, ps.Shape); err == nil {
			err = s.restore(&p, ps)
		}
		if err != nil {
			return fmt.Errorf("parameter %d%v: %w", i, &p, err)
		}
		if s.params != nil && (p.dtype != s.params[i].dtype || !sameOrder(p.shape, s.params[i].shape)) {
			return fmt.Errorf("parameter %d%v %v is%v %v in the model: %w", i, &p, p.dtype, &s.params[i], s.params[i].dtype, ErrMismatch)
		}
		params = append(params, p)
	}
	s.adopt(params)
	s.steps, s.named = st.Steps, false
	return nil
}

// checkState makes the checks of a state that need no parameter.
func (e *engine) checkState(st State) error {
	switch {
	case e.swapped:
		return fmt.Errorf("the weights are averages: swap them back: %w", ErrSwapped)
	case st.Name != e.config.Name:
		return fmt.Errorf("the state is of %q: %w", st.Name, ErrMismatch)
	case st.Steps < 0 || st.Steps > 0 && len(st.Params) == 0:
		return fmt.Errorf("%d steps with %d parameters: %w", st.Steps, len(st.Params), ErrMismatch)
	case e.params != nil && len(st.Params) != 0 && len(st.Params) != len(e.params):
		return fmt.Errorf("the state has %d parameters and the model %d: %w", len(st.Params), len(e.params), ErrMismatch)
	}
	return nil
}

// restore gives p, whose shape and dtype are the state's, new slots with its owned elements.
func (e *engine) restore(p *param, ps ParamState) error {
	switch {
	case p.dtype != gtensor.Float32 && p.dtype != gtensor.Float64:
		return fmt.Errorf("dtype %s: use float32 or float64: %w", dtypeText(p.dtype), ErrMismatch)
	case len(ps.Slots) != len(e.slots):
		return fmt.Errorf("%d slots, %s keeps %d: %w", len(ps.Slots), e.config.Name, len(e.slots), ErrMismatch)
	}
	for k, slot := range ps.Slots {
		given := len(slot.F32)
		if p.dtype == gtensor.Float64 {
			given = len(slot.F64)
		}
		covers := ps.Offset >= 0 && p.first >= ps.Offset && p.first+p.count <= ps.Offset+given
		if slot.Name != e.slots[k] || p.count > 0 && !covers || given != ps.len() {
			return fmt.Errorf("slot %d is %q with %d %v elements from %d on: it must be %q with %d from %d on, or more: %w",
				k, slot.Name, given, p.dtype, ps.Offset, e.slots[k], p.count, p.first, ErrMismatch)
		}
	}
	if size := shapeSize(p.shape); ps.Offset < 0 || ps.Offset > size-ps.len() {
		return fmt.Errorf("%d elements from %d on are not in a parameter of %d: %w", ps.len(), ps.Offset, size, ErrMismatch)
	}
	p.f32.slots, p.f64.slots = nil, nil
	p.allocate(e.slots)
	for k, slot := range ps.Slots {
		switch lo := p.first - ps.Offset; {
		case p.count == 0:
		case p.dtype == gtensor.Float32:
			copy(p.f32.slots[k], slot.F32[lo:])
		default:
			copy(p.f64.slots[k], slot.F64[lo:])
		}
	}
	return nil
}

// dtypeText returns a dtype for errors: an unset one has no text of its own.
func dtypeText(dt gtensor.Dtype) string {
	if dt.Type == nil {
		return "none"
	}
	return fmt.Sprint(dt)
}
