package train

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// restore sets the saved state of solver, loss scaler and gradient compression. The weights are
// already restored.
func (t *trainer) restore() error {
	o := t.from
	if o == nil {
		return nil
	}
	err := t.restoreSolver()
	then := 1.0
	if err == nil {
		then, err = t.restoreScale()
	}
	if err == nil {
		err = t.restoreHook()
	}
	if err == nil {
		err = t.d.ScaleHookState(t.scaled.factorNow() / then * cmp.Or(o.memory.HookUnit, t.d.HookUnit()) / t.d.HookUnit())
	}
	if err != nil {
		err = fmt.Errorf("checkpoint %s: %w", o.c.Path(), err)
	}
	return errors.Join(err, o.close())
}

// restoreScale sets the saved state of the loss scaler, if there is one.
//
// Returns: the saved scale, which the residuals of gradients contain; 1 for none.
func (t *trainer) restoreScale() (float64, error) {
	scaler := t.mine().Scaler
	if scaler == nil {
		return 1, nil
	}
	var st optim.LossScalerState
	if err := json.Unmarshal(scaler, &st); err != nil {
		return 0, err
	}
	if t.scaled == nil {
		return st.Scale, nil
	}
	return st.Scale, t.scaled.scaler.SetState(st)
}

// mine returns this rank's saved state if the number of ranks is unchanged, else rank 0's.
func (t *trainer) mine() own {
	if all := t.from.memory.Own; t.local() && len(all) == t.w.Size() {
		return all[t.w.Rank()]
	}
	return own{t.from.m.Solver.Steps, t.from.m.Scaler}
}

// restoreSolver reads this rank's part of the solver's state from the files of all ranks.
func (t *trainer) restoreSolver() error {
	steps := t.mine().Steps
	if steps == 0 {
		return nil // no state yet
	}
	st := optim.State{Name: t.from.m.Solver.Name, Steps: steps}
	plan := t.d.Plan()
	for _, p := range plan.Params {
		dt, err := p.DType.Gorgonia()
		if err != nil {
			return err
		}
		ps := optim.ParamState{Name: p.Name, Shape: slices.Clone(p.Shape), DType: dt}
		for _, name := range t.rule.WithDefaults().Slots() {
			ps.Slots = append(ps.Slots, optim.Slot{Name: name})
		}
		st.Params = append(st.Params, ps)
	}
	for _, own := range t.d.Pieces() {
		p := &st.Params[own.Param]
		p.Offset = own.Offset
		for i := range p.Slots {
			s := &p.Slots[i]
			to := zeros(own.Len, plan.Params[own.Param].DType)
			if err := t.readSlot(p.Name, s.Name, own.Offset, to); err != nil {
				return err
			}
			if to.DType() == tensor.F64 {
				s.F64, _ = tensor.Data[float64](to)
			} else {
				s.F32, _ = tensor.Data[float32](to)
			}
		}
	}
	return t.solver.SetState(st)
}

// readSlot reads elements of a solver's slot. If ranks stepped by themselves, each rank reads its
// own state again; with another number of ranks, all read the mean.
func (t *trainer) readSlot(param, slot string, offset int, to tensor.Buffer) error {
	c, ranks := t.from.c, t.from.m.WorldSize
	if _, shared := c.Lookup(checkpoint.StateName(param, slot)); shared {
		return c.Read(checkpoint.StateName(param, slot), offset, to)
	}
	if ranks == t.w.Size() && t.local() {
		return c.Read(ownName(param, slot, t.w.Rank()), offset, to)
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
func (t *trainer) restoreHook() error {
	o, rank := t.from, t.w.Rank()
	now := t.d.HookState()
	if len(now) == 0 {
		return nil
	}
	moved := o.m.WorldSize != t.w.Size()
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
	return t.d.SetHookState(all)
}
