package save

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
	"github.com/symgrad/symgrad/train/internal/exchange"
)

// Training has the objects of one rank whose tensors are saved. Weights are those of the nodes: the
// caller makes them whole first.
type Training struct {
	Values  *exchange.Values
	DDP     *ddp.DDP
	Params  gorgonia.Nodes // trained and untrained
	Buffers []Buffer       // rank 0's on all ranks
	Solver  optim.Solver
	Scaler  *optim.LossScaler // nil without loss scaling
}

// Buffer is a part of a model that runs change without a gradient.
type Buffer struct {
	Name  string         // in checkpoints; no parameter and no other buffer has it
	Value *gtensor.Dense // float32
}

// local reports whether ranks step by themselves, and have states of their own.
func (t *Training) local() bool { return t.DDP.LocalSteps() > 0 }

// scale returns the factor in the gradients.
func (t *Training) scale() float64 {
	if t.Scaler == nil {
		return 1
	}
	return t.Scaler.Scale()
}

// runs returns this rank's tensors of a checkpoint: its own parts if sharded, else on rank 0 all
// tensors and on the others some.
//
// Collective: all ranks.
func (t *Training) runs(state optim.State, sharded bool) ([]checkpoint.Run, error) {
	all, err := t.weightRuns()
	if err != nil {
		return nil, err
	}
	if state.Steps > 0 && len(state.Params) == 0 {
		return nil, errors.New("the state of the optimizer cannot be read from the device")
	}
	replicated := t.DDP.Plan().Stage == 0 && !t.local()
	for _, p := range state.Params {
		for _, s := range p.Slots {
			r, err := stateRun(p, s)
			if err != nil {
				return nil, err
			}
			if r.Replicated = replicated; t.local() {
				r.Tensor.Name = ownName(p.Name, s.Name, t.Values.World().Rank())
			}
			all = append(all, r)
		}
	}
	if all, err = t.bufferRuns(all); err != nil {
		return nil, err
	}
	if all = append(all, t.hookRuns()...); sharded || t.Values.World().Size() == 1 {
		return withoutEmpty(all), nil
	}
	return t.collected(all)
}

// weightRuns returns the parameters.
func (t *Training) weightRuns() ([]checkpoint.Run, error) {
	all := make([]checkpoint.Run, len(t.Params))
	for i, p := range t.Params {
		b, err := ops.Elements(p.Value())
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", p.Name(), err)
		}
		if !finite(b) { // a resumed run would only fail
			return nil, fmt.Errorf("parameter %s has elements that are not finite: nothing is saved; lower optim.lr, or set optim.clip_norm", p.Name())
		}
		all[i] = checkpoint.Run{
			Tensor: checkpoint.Tensor{Name: p.Name(), Role: checkpoint.Param, DType: b.DType(), Shape: p.Shape()},
			Len:    b.Len(), Data: b, Replicated: true,
		}
	}
	return all, nil
}

// bufferRuns appends the buffers to all.
func (t *Training) bufferRuns(all []checkpoint.Run) ([]checkpoint.Run, error) {
	for _, b := range t.Buffers {
		data := tensor.Of(b.Value.Float32s())
		if !finite(data) {
			return nil, fmt.Errorf("buffer %s has elements that are not finite: nothing is saved; lower optim.lr, or set optim.clip_norm", b.Name)
		}
		all = append(all, checkpoint.Run{
			Tensor: checkpoint.Tensor{Name: b.Name, Role: checkpoint.Buffer, DType: tensor.F32, Shape: b.Value.Shape()},
			Len:    data.Len(), Data: data, Replicated: true,
		})
	}
	return all, nil
}

// finite reports whether all elements are finite; true for dtypes that no parameter has.
func finite(b tensor.Buffer) bool {
	if narrow, err := tensor.Data[float32](b); err == nil {
		return !slices.ContainsFunc(narrow, func(x float32) bool { return x-x != 0 })
	}
	wide, _ := tensor.Data[float64](b)
	return !slices.ContainsFunc(wide, func(x float64) bool { return x-x != 0 })
}

// stateRun returns the solver's slot of a parameter, or of a part of it.
func stateRun(p optim.ParamState, s optim.Slot) (checkpoint.Run, error) {
	dt, err := tensor.FromGorgonia(p.DType)
	if err != nil {
		return checkpoint.Run{}, fmt.Errorf("state %s of parameter %s: %w", s.Name, p.Name, err)
	}
	r := checkpoint.Run{
		Tensor: checkpoint.Tensor{
			Name: checkpoint.StateName(p.Name, s.Name), Role: checkpoint.State, Param: p.Name, Slot: s.Name, DType: dt, Shape: p.Shape,
		},
		Offset: p.Offset, Data: tensor.Of(s.F32),
	}
	if s.Name == averageSlot {
		r.Tensor.Role = checkpoint.EMA
	}
	if dt == tensor.F64 {
		r.Data = tensor.Of(s.F64)
	}
	r.Len = r.Data.Len()
	return r, nil
}

// averageSlot is package optim's slot for the moving average of a weight.
const averageSlot = "ema"

// withoutEmpty drops empty parts, except those of empty tensors.
func withoutEmpty(runs []checkpoint.Run) []checkpoint.Run {
	kept := runs[:0]
	for _, r := range runs {
		if r.Len > 0 || r.Tensor.Len() == 0 {
			kept = append(kept, r)
		}
	}
	return kept
}

// hookRuns returns the state of the gradient hooks: equal on all ranks, or each rank's part of a
// sum.
func (t *Training) hookRuns() []checkpoint.Run {
	var all []checkpoint.Run
	for _, h := range t.DDP.HookState() {
		name := checkpoint.StateName(h.Param, h.Slot)
		if h.Sum {
			name = ownName(h.Param, h.Slot, t.Values.World().Rank())
		}
		all = append(all, checkpoint.Run{
			Tensor: checkpoint.Tensor{
				Name: name, Role: checkpoint.Residual, Param: h.Param, Slot: h.Slot,
				DType: h.Data.DType(), Shape: h.Shape,
			},
			Len: h.Data.Len(), Data: h.Data, Replicated: !h.Sum,
		})
	}
	return all
}

// ownName returns the name of a tensor that differs between ranks: a part of a sum, or solver state
// when ranks step by themselves.
func ownName(param, slot string, rank int) string {
	return checkpoint.StateName(param, fmt.Sprintf("%s-%d", slot, rank))
}

// collected returns the tensors of all ranks, for the single file that rank 0 writes.
//
// Collective: all ranks, with equally many tensors. Returns: on rank 0, distributed tensors are
// complete.
func (t *Training) collected(mine []checkpoint.Run) ([]checkpoint.Run, error) {
	var all []checkpoint.Run
	for _, r := range mine {
		if r.Replicated {
			all = append(all, r)
			continue
		}
		parts, err := exchange.Gather(t.Values, r.Tensor.Name, append(binary.LittleEndian.AppendUint64(nil, uint64(r.Offset)), r.Data.Raw()...))
		if err != nil {
			return nil, err
		}
		whole, err := joinedAll(r.Tensor, parts)
		if err != nil {
			return nil, err
		}
		all = append(all, whole...)
	}
	return all, nil
}

// joinedAll returns the tensor that the ranks' parts form, or one tensor per rank if each has its
// own.
func joinedAll(of checkpoint.Tensor, parts [][]byte) ([]checkpoint.Run, error) {
	if of.Name == checkpoint.StateName(of.Param, of.Slot) {
		r, err := joined(of, parts)
		return []checkpoint.Run{r}, err
	}
	var all []checkpoint.Run
	for rank := range parts {
		of.Name = ownName(of.Param, of.Slot, rank)
		r, err := joined(of, parts[rank:rank+1])
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// joined returns the tensor that parts form. A part is an offset and elements.
func joined(of checkpoint.Tensor, parts [][]byte) (checkpoint.Run, error) {
	whole := tensor.Of(make([]float32, of.Len()))
	if of.DType == tensor.F64 {
		whole = tensor.Of(make([]float64, of.Len()))
	}
	raw, size := whole.Raw(), uint64(of.DType.Size())
	for r, part := range parts {
		at, bytes := binary.LittleEndian.Uint64(part)*size, part[8:]
		if at+uint64(len(bytes)) > uint64(len(raw)) {
			return checkpoint.Run{}, fmt.Errorf("tensor %v: rank %d has %d B from %d on", of, r, len(bytes), at)
		}
		copy(raw[at:], bytes)
	}
	return checkpoint.Run{Tensor: of, Len: of.Len(), Data: whole, Replicated: true}, nil
}
