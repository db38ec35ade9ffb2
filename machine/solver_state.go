package machine

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// State implements optim.Solver. It waits for the last step. If the device does not answer, the
// state has no parameters.
func (s *solver) State() optim.State {
	settled := s.settle()
	st := optim.State{Name: s.Config.Name, Steps: s.steps}
	if settled != nil {
		return st
	}
	for _, i := range s.sequence() {
		n := s.Nodes[i]
		p := optim.ParamState{Name: n.Name(), Shape: slices.Clone(s.m.shapes[n]), DType: n.Dtype(), Offset: s.Pieces[i].Offset}
		for k, name := range s.Config.Slots() {
			slot, err := s.readSlot(name, s.States[i][k])
			if err != nil {
				return optim.State{Name: s.Config.Name, Steps: s.steps}
			}
			p.Slots = append(p.Slots, slot)
		}
		st.Params = append(st.Params, p)
	}
	return st
}

// sequence returns the parameters in the order of the last model, or of the graph before the first
// step.
func (s *solver) sequence() []int {
	if len(s.order) == len(s.Nodes) {
		return s.order
	}
	all := make([]int, len(s.Nodes))
	for i := range all {
		all[i] = i
	}
	return all
}

func (s *solver) readSlot(name string, at tensor.Buffer) (optim.Slot, error) {
	slot := optim.Slot{Name: name}
	if at.DType() == tensor.F64 {
		slot.F64 = make([]float64, at.Len())
		return slot, s.m.device.read(tensor.Of(slot.F64), at)
	}
	slot.F32 = make([]float32, at.Len())
	return slot, s.m.device.read(tensor.Of(slot.F32), at)
}

// SetState implements optim.Solver. It finds parameters by name, or else by their index in the last
// model, or in the graph before the first step.
func (s *solver) SetState(st optim.State) error {
	if err := s.setState(st); err != nil {
		return fmt.Errorf("%s set state of %d steps: %w", s.Config.Name, st.Steps, err)
	}
	return nil
}

func (s *solver) setState(st optim.State) error {
	switch {
	case s.m.closed:
		return ErrClosed
	case s.swapped:
		return s.unswapped()
	case st.Name != s.Config.Name:
		return fmt.Errorf("the state is of %q: %w", st.Name, optim.ErrMismatch)
	case st.Steps < 0 || st.Steps > 0 && len(st.Params) == 0:
		return fmt.Errorf("%d steps with %d parameters: %w", st.Steps, len(st.Params), optim.ErrMismatch)
	case len(st.Params) != 0 && len(st.Params) != len(s.Nodes):
		return fmt.Errorf("the state has %d parameters and the graph %d: %w", len(st.Params), len(s.Nodes), optim.ErrMismatch)
	}
	to, err := s.places(st)
	if err != nil {
		return err
	}
	if err := s.settle(); err != nil {
		return err
	}
	for k, p := range st.Params {
		piece := s.Pieces[to[k]]
		if piece.Len == 0 {
			continue
		}
		lo := piece.Offset - p.Offset
		for j, slot := range p.Slots {
			from := tensor.Of(slot.F32)
			if s.States[to[k]][j].DType() == tensor.F64 {
				from = tensor.Of(slot.F64)
			}
			from, err := from.Slice(lo, lo+piece.Len)
			if err != nil {
				return err
			}
			if err := s.m.device.write(s.States[to[k]][j], from); err != nil {
				return err
			}
		}
	}
	return s.count(st.Steps)
}

// places returns the parameter of each part of a state.
func (s *solver) places(st optim.State) ([]int, error) {
	byName := make([]int, 0, len(st.Params))
	for _, p := range st.Params {
		at := -1
		for i, n := range s.Nodes {
			if p.Name != "" && n.Name() == p.Name && !slices.Contains(byName, i) {
				at = i
			}
		}
		if at < 0 {
			byName = s.sequence()
			break
		}
		byName = append(byName, at)
	}
	for k, p := range st.Params {
		if err := s.fits(byName[k], p); err != nil {
			return nil, fmt.Errorf("parameter %d %s: %w", k, p.Name, err)
		}
	}
	return byName, nil
}

// fits compares the state of a parameter with its slots.
func (s *solver) fits(i int, p optim.ParamState) error {
	names := s.Config.Slots()
	if p.DType != s.Nodes[i].Dtype() || len(p.Slots) != len(names) {
		return fmt.Errorf("it is %v with %d slots, want %v with %d: %w", p.DType, len(p.Slots), s.Nodes[i].Dtype(), len(names), optim.ErrMismatch)
	}
	piece := s.Pieces[i]
	for k, slot := range p.Slots {
		n := len(slot.F32) + len(slot.F64)
		if slot.Name != names[k] || (len(slot.F64) > 0) != (s.States[i][k].DType() == tensor.F64) && n > 0 && piece.Len > 0 {
			return fmt.Errorf("slot %d is %q with %d elements, want %q with %d: %w", k, slot.Name, n, names[k], piece.Len, optim.ErrMismatch)
		}
		if size := max(values.Size(s.m.shapes[s.Nodes[i]]), 1); p.Offset < 0 || p.Offset > size-n {
			return fmt.Errorf("slot %d %q has %d elements from %d on, of %d: %w", k, slot.Name, n, p.Offset, size, optim.ErrMismatch)
		}
		if err := covers(p, n, piece); err != nil && piece.Len > 0 {
			return fmt.Errorf("slot %d %q: %w", k, slot.Name, err)
		}
	}
	return nil
}

// SwapAverages implements optim.Solver.
func (s *solver) SwapAverages(model []gorgonia.ValueGrad) error {
	if err := s.swapAverages(model); err != nil {
		return fmt.Errorf("%s swap averages: %w", s.Config.Name, err)
	}
	return nil
}

func (s *solver) swapAverages(model []gorgonia.ValueGrad) error {
	if s.Config.EMADecay == 0 {
		return fmt.Errorf("no averages are kept: set EMADecay: %w", optim.ErrConfig)
	}
	if err := s.match(model); err != nil {
		return err
	}
	if err := s.settle(); err != nil || s.steps == 0 {
		return err
	}
	if e := s.m.now.Exchange; e.Gathers() {
		if err := e.DDP.Machine().Adopt(); err != nil {
			return err
		}
	}
	for i, n := range s.Nodes {
		own, err := s.ownAt(i)
		if err == nil && !own.IsZero() {
			err = s.m.device.swap(own, s.States[i][len(s.States[i])-1])
		}
		if err != nil {
			return fmt.Errorf("parameter %q: %w", lower.Called(n), err)
		}
	}
	s.swapped = !s.swapped
	if e := s.m.now.Exchange; e != nil {
		return e.DDP.Machine().GatherWeights()
	}
	return nil
}

// ownAt returns the device memory of the piece of a parameter that this rank updates; the zero
// Buffer for none.
func (s *solver) ownAt(i int) (tensor.Buffer, error) {
	n, piece := s.Nodes[i], s.Pieces[i]
	if piece.Len == 0 {
		return tensor.Buffer{}, nil
	}
	if e := s.m.now.Exchange; e.Gathers() {
		bucket, from := e.InShard(n, piece)
		return e.Layout.Own[bucket].Slice(from, from+piece.Len)
	}
	p, ok := s.m.device.params[n]
	if !ok {
		return tensor.Buffer{}, fmt.Errorf("it is not on the device: %w", optim.ErrMismatch)
	}
	return p.at.Slice(piece.Offset, piece.Offset+piece.Len)
}

// covers returns an error if the elements of a parameter's state do not include a piece.
func covers(p optim.ParamState, n int, piece ddp.Piece) error {
	if p.Offset <= piece.Offset && piece.Offset+piece.Len <= p.Offset+n {
		return nil
	}
	return fmt.Errorf("it has elements %d to %d, and %d to %d are wanted: %w",
		p.Offset, p.Offset+n, piece.Offset, piece.Offset+piece.Len, optim.ErrMismatch)
}
