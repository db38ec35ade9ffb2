package optim

import (
	"fmt"
	"slices"

	gtensor "gorgonia.org/tensor"
)

// State is all that a Solver remembers between steps. Learning rate, gradient scale and the other settings are not
// part of it: they come with the Config and the setters.
type State struct {
	Name   string       // the rule that it belongs to, Config.Name
	Steps  int          // steps made
	Params []ParamState // in the order of the model; empty before the first step
}

// ParamState is the part of one parameter.
type ParamState struct {
	Name  string // of the node; "" if it has none. Not compared.
	Shape []int
	DType gtensor.Dtype // gtensor.Float32 or gtensor.Float64
	Slots []Slot        // none for SGD
}

// Slot is one number kept for every element of a parameter, in C order. Names are those of PyTorch's optimizer state:
// momentum_buffer, exp_avg, exp_avg_sq, max_exp_avg_sq.
type Slot struct {
	Name string
	F32  []float32 // if the parameter is float32
	F64  []float64 // if it is float64
}

func (s *solver) State() State {
	st := State{Name: s.config.Name, Steps: s.steps}
	names := s.rule.slots()
	for i := range s.params {
		p := &s.params[i]
		ps := ParamState{Name: p.name, Shape: slices.Clone(p.shape), DType: p.dtype}
		for k, name := range names {
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
	switch {
	case st.Name != s.config.Name:
		return fmt.Errorf("the state is of %q: %w", st.Name, ErrMismatch)
	case st.Steps < 0 || st.Steps > 0 && len(st.Params) == 0:
		return fmt.Errorf("%d steps with %d parameters: %w", st.Steps, len(st.Params), ErrMismatch)
	case s.params != nil && len(st.Params) != 0 && len(st.Params) != len(s.params):
		return fmt.Errorf("the state has %d parameters and the model %d: %w", len(st.Params), len(s.params), ErrMismatch)
	}
	var params []param
	for i, ps := range st.Params {
		p, err := s.restore(ps)
		if err != nil {
			return fmt.Errorf("parameter %d%v: %w", i, &p, err)
		}
		if s.params != nil && (p.dtype != s.params[i].dtype || !sameOrder(p.shape, s.params[i].shape)) {
			return fmt.Errorf("parameter %d%v %v is%v %v in the model: %w", i, &p, p.dtype, &s.params[i], s.params[i].dtype, ErrMismatch)
		}
		params = append(params, p)
	}
	s.adopt(params)
	s.steps = st.Steps
	return nil
}

// restore is the parameter that ps describes, with a copy of its slots. On an error it is good for naming only.
func (s *solver) restore(ps ParamState) (param, error) {
	p := param{name: ps.Name, shape: slices.Clone(ps.Shape), dtype: ps.DType}
	names := s.rule.slots()
	switch {
	case p.dtype != gtensor.Float32 && p.dtype != gtensor.Float64:
		return p, fmt.Errorf("dtype %v: use float32 or float64: %w", p.dtype, ErrMismatch)
	case slices.ContainsFunc(p.shape, func(d int) bool { return d < 0 }):
		return p, fmt.Errorf("negative dimension: %w", ErrMismatch)
	case len(ps.Slots) != len(names):
		return p, fmt.Errorf("%d slots, %s keeps %d: %w", len(ps.Slots), s.config.Name, len(names), ErrMismatch)
	}
	size := shapeSize(p.shape)
	for k, slot := range ps.Slots {
		given := len(slot.F32)
		if p.dtype == gtensor.Float64 {
			given = len(slot.F64)
		}
		if slot.Name != names[k] || given != size {
			return p, fmt.Errorf("slot %d is %q with %d %v elements: it must be %q with %d: %w", k, slot.Name, given, p.dtype, names[k], size, ErrMismatch)
		}
	}
	p.allocate(names)
	for k, slot := range ps.Slots {
		if p.dtype == gtensor.Float32 {
			copy(p.f32.slots[k], slot.F32)
		} else {
			copy(p.f64.slots[k], slot.F64)
		}
	}
	return p, nil
}
