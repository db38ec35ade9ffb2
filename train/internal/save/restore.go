package save

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// Restore sets the saved state of solver, loss scaler and gradient compression. The weights are
// already restored.
func (o *Origin) Restore(t *Training) error {
	err := o.restoreSolver(t)
	then := 1.0
	if err == nil {
		then, err = o.restoreScale(t)
	}
	if err == nil {
		err = o.restoreHook(t)
	}
	if err == nil {
		err = t.DDP.ScaleHookState(t.scale() / then * cmp.Or(o.Memory.HookUnit, t.DDP.HookUnit()) / t.DDP.HookUnit())
	}
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", o.Path(), err)
	}
	return nil
}

// restoreScale sets the saved state of the loss scaler, if there is one.
//
// Returns: the saved scale, which the residuals of gradients contain; 1 for none.
func (o *Origin) restoreScale(t *Training) (float64, error) {
	scaler := o.mine(t).Scaler
	if scaler == nil {
		return 1, nil
	}
	var st optim.LossScalerState
	if err := json.Unmarshal(scaler, &st); err != nil {
		return 0, err
	}
	if t.Scaler == nil {
		return st.Scale, nil
	}
	return st.Scale, t.Scaler.SetState(st)
}

// mine returns this rank's saved state if the number of ranks is unchanged, else rank 0's.
func (o *Origin) mine(t *Training) Own {
	w := t.Values.World()
	if all := o.Memory.Own; t.local() && len(all) == w.Size() {
		return all[w.Rank()]
	}
	return Own{o.Manifest.Solver.Steps, o.Manifest.Scaler}
}

// restoreSolver reads this rank's part of the solver's state from the files of all ranks.
func (o *Origin) restoreSolver(t *Training) error {
	steps := o.mine(t).Steps
	if steps == 0 {
		return nil // no state yet
	}
	st := optim.State{Name: o.Manifest.Solver.Name, Steps: steps}
	plan := t.DDP.Plan()
	for _, p := range plan.Params {
		dt, err := p.DType.Gorgonia()
		if err != nil {
			return err
		}
		ps := optim.ParamState{Name: p.Name, Shape: slices.Clone(p.Shape), DType: dt}
		for _, name := range o.slots(p.Name) {
			ps.Slots = append(ps.Slots, optim.Slot{Name: name})
		}
		st.Params = append(st.Params, ps)
	}
	for _, own := range t.DDP.Pieces() {
		p := &st.Params[own.Param]
		p.Offset = own.Offset
		for i := range p.Slots {
			s := &p.Slots[i]
			to := zeros(own.Len, plan.Params[own.Param].DType)
			if err := o.readSlot(t, p.Name, s.Name, own.Offset, to); err != nil {
				return err
			}
			if to.DType() == tensor.F64 {
				s.F64, _ = tensor.Data[float64](to)
			} else {
				s.F32, _ = tensor.Data[float32](to)
			}
		}
	}
	return t.Solver.SetState(st)
}

// slots returns the names of a parameter's state, in the order of optim.Config.Slots: those of the
// rule by name, and the average last.
func (o *Origin) slots(param string) []string {
	var names, last []string
	for _, t := range o.c.Tensors() {
		switch {
		case t.Param != param || slices.Contains(names, t.Slot):
		case t.Role == checkpoint.State:
			names = append(names, t.Slot)
		case t.Role == checkpoint.EMA:
			last = []string{t.Slot}
		}
	}
	slices.Sort(names)
	return append(names, last...)
}

// readSlot reads elements of a solver's slot. If ranks stepped by themselves, each rank reads its
// own state again; with another number of ranks, all read the mean.
func (o *Origin) readSlot(t *Training, param, slot string, offset int, to tensor.Buffer) error {
	c, ranks, w := o.c, o.Manifest.WorldSize, t.Values.World()
	if _, shared := c.Lookup(checkpoint.StateName(param, slot)); shared {
		return c.Read(checkpoint.StateName(param, slot), offset, to)
	}
	if ranks == w.Size() && t.local() {
		return c.Read(ownName(param, slot, w.Rank()), offset, to)
	}
	part := zeros(to.Len(), to.DType())
	for r := range ranks {
		if err := c.Read(ownName(param, slot, r), offset, part); err != nil {
			return err
		}
		if err := addTo(to, part, 1/float64(ranks)); err != nil {
			return err
		}
	}
	return nil
}

// zeros returns n zeros of a parameter's dtype.
func zeros(n int, dt tensor.DType) tensor.Buffer {
	if dt == tensor.F64 {
		return tensor.Of(make([]float64, n))
	}
	return tensor.Of(make([]float32, n))
}

// addTo computes to += factor*x. Both have one length and dtype.
func addTo(to, x tensor.Buffer, factor float64) error {
	if to.DType() == tensor.F64 {
		return addElements[float64](to, x, factor)
	}
	return addElements[float32](to, x, factor)
}

func addElements[T float32 | float64](to, x tensor.Buffer, factor float64) error {
	sum, err := tensor.Data[T](to)
	if err != nil {
		return err
	}
	more, err := tensor.Data[T](x)
	if err != nil {
		return err
	}
	for i := range sum {
		sum[i] += T(factor) * more[i]
	}
	return nil
}

// restoreHook reads the state of the gradient hooks. With as many ranks as before, each rank reads
// its own part of a sum; else rank 0 reads all of it.
func (o *Origin) restoreHook(t *Training) error {
	w := t.Values.World()
	rank, now := w.Rank(), t.DDP.HookState()
	if len(now) == 0 {
		return nil
	}
	moved := o.Manifest.WorldSize != w.Size()
	var all []compress.State
	for _, have := range o.c.Tensors() {
		if have.Role != checkpoint.Residual {
			continue
		}
		sum := have.Name != checkpoint.StateName(have.Param, have.Slot)
		if sum && (moved && rank > 0 || !moved && have.Name != ownName(have.Param, have.Slot, rank)) {
			continue // another rank's part
		}
		resized := func(h compress.State) bool {
			return h.Param == have.Param && h.Slot == have.Slot && !slices.Equal(h.Shape, have.Shape)
		}
		if slices.ContainsFunc(now, resized) {
			continue // of another ddp.powersgd_rank: start from zero
		}
		data := zeros(have.Len(), have.DType)
		if err := o.c.Read(have.Name, 0, data); err != nil {
			return err
		}
		same := func(h compress.State) bool { return h.Param == have.Param && h.Slot == have.Slot }
		if i := slices.IndexFunc(all, same); i >= 0 {
			if err := addTo(all[i].Data, data, 1); err != nil {
				return err
			}
			continue
		}
		all = append(all, compress.State{Param: have.Param, Slot: have.Slot, Shape: have.Shape, Data: data, Sum: sum})
	}
	return t.DDP.SetHookState(all)
}
