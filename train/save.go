package train

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
	"github.com/symgrad/symgrad/train/internal/exchange"
	"github.com/symgrad/symgrad/train/internal/measure"
)

// memory is the state of a run in a checkpoint that is neither a tensor nor a field of package
// checkpoint.
type memory struct {
	Settings  string        `json:"settings"` // config.Canonical
	Data      string        `json:"data"`     // Problem.Digest
	Samples   int           `json:"samples"`  // used for training so far
	Losses    measure.Curve `json:"losses"`   // of the last steps; with log.losses of all steps from FirstLoss on
	FirstLoss int           `json:"first_loss"`
	Schedule  string        `json:"schedule"` // learning rate schedule, with the length that follows from the run's
	End       int           `json:"end"`      // steps of that length; 0 if it does not depend on the run
	Own       []own         `json:"own,omitempty"`

	HookUnit float64 `json:"hook_unit,omitempty"` // ddp.DDP.HookUnit; 0 means the current one
}

// own is the state of a single rank when ranks step by themselves: one rank may skip a step that
// others make.
type own struct {
	Steps  int             `json:"steps"` // made by its solver
	Scaler json.RawMessage `json:"scaler,omitempty"`
}

// owns returns the state of each rank, by rank; nil if it is equal on all ranks.
//
// Collective: all ranks.
func (t *trainer) owns(steps int, scaler json.RawMessage) ([]own, error) {
	if !t.local() {
		return nil, nil
	}
	text, err := json.Marshal(own{steps, scaler})
	if err != nil {
		return nil, err
	}
	parts, err := exchange.Gather(t.exchanger, "steps of each rank", text)
	if err != nil {
		return nil, err
	}
	all := make([]own, len(parts))
	for r, part := range parts {
		if err := json.Unmarshal(part, &all[r]); err != nil {
			return nil, fmt.Errorf("steps of rank %d: %w", r, err)
		}
	}
	return all, nil
}

// save writes a checkpoint of the state after step.
//
// Collective: all ranks.
func (t *trainer) save(step int) error {
	if err := t.whole(); err != nil {
		return err
	}
	state := t.solver.State()
	if state.Steps > 0 && len(state.Params) == 0 {
		return fmt.Errorf("checkpoint of step %d: the state of the optimizer cannot be read from the device", step)
	}
	m := memory{
		Settings: t.job.cfg.Canonical(), Data: t.job.problem.Digest(), Samples: t.meter.Samples(),
		Schedule: t.rule.Schedule.String(), End: scheduleEnd(t.rule.Schedule), HookUnit: t.d.HookUnit(),
	}
	m.Losses, m.FirstLoss = t.meter.Curve(t.rank0Settings.losses, step)
	runs, err := t.runs(state)
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", step, err)
	}
	meta := checkpoint.Meta{
		Step: step, Stage: t.job.cfg.Shard.Stage, Config: t.job.cfg.String(), ConfigHash: t.job.cfg.Hash(), PlanHash: t.planHash(),
		Solver: checkpoint.Solver{Name: state.Name, Steps: state.Steps, Skipped: t.skipped()},
	}
	var scaler any
	if t.scaled != nil {
		scaler = t.scaled.scaler.State()
	}
	for _, part := range []struct {
		to    *json.RawMessage
		value any
	}{{&meta.Sampler, t.sampler.Cursor()}, {&meta.Random, random{step}}, {&meta.Scaler, scaler}} {
		if part.value == nil {
			continue
		}
		if *part.to, err = json.Marshal(part.value); err != nil {
			return fmt.Errorf("checkpoint of step %d: %w", step, err)
		}
	}
	if m.Own, err = t.owns(state.Steps, meta.Scaler); err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", step, err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", step, err)
	}
	meta.Extra = map[string]json.RawMessage{memoryKey: text}
	if err := t.forgiven(t.keeper.saver.Save(meta, runs)); err != nil {
		return err
	}
	t.keeper.written = append(t.keeper.written, step)
	return nil
}

// skipped returns the number of skipped steps, including those of resumed runs.
func (t *trainer) skipped() int {
	n := t.solver.Skipped()
	if t.from != nil {
		n += t.from.m.Solver.Skipped
	}
	return n
}

// memoryKey names memory in a checkpoint.
const memoryKey = "train"

// random is the state of all random numbers. They depend only on the seed, the step and the
// sample's index in the batch.
type random struct {
	Clock int `json:"clock"`
}

// runs returns this rank's tensors of a checkpoint.
//
// Collective: all ranks.
func (t *trainer) runs(state optim.State) ([]checkpoint.Run, error) {
	all, err := t.weightRuns()
	if err != nil {
		return nil, err
	}
	replicated := t.job.cfg.Shard.Stage == 0 && !t.local()
	for _, p := range state.Params {
		for _, s := range p.Slots {
			r, err := stateRun(p, s)
			if err != nil {
				return nil, err
			}
			if r.Replicated = replicated; t.local() {
				r.Tensor.Name = ownName(p.Name, s.Name, t.w.Rank())
			}
			all = append(all, r)
		}
	}
	if all = append(all, t.hookRuns()...); t.keeper.sharded || t.w.Size() == 1 {
		return withoutEmpty(all), nil
	}
	return t.collected(all)
}

// weightRuns returns the parameters.
func (t *trainer) weightRuns() ([]checkpoint.Run, error) {
	weights, err := t.weights()
	if err != nil {
		return nil, err
	}
	all := make([]checkpoint.Run, len(weights))
	for i, w := range weights {
		b, err := tensor.BufferOf(w)
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", t.model.Params[i].Name(), err)
		}
		if !finite(b) { // a resumed run would only fail
			return nil, fmt.Errorf("parameter %s has elements that are not finite: nothing is saved; lower optim.lr, or set optim.clip_norm", t.model.Params[i].Name())
		}
		all[i] = checkpoint.Run{
			Tensor: checkpoint.Tensor{Name: t.model.Params[i].Name(), Role: checkpoint.Param, DType: b.DType(), Shape: w.Shape()},
			Len:    b.Len(), Data: b, Replicated: true,
		}
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
func (t *trainer) hookRuns() []checkpoint.Run {
	var all []checkpoint.Run
	for _, h := range t.d.HookState() {
		name := checkpoint.StateName(h.Param, h.Slot)
		if h.Sum {
			name = ownName(h.Param, h.Slot, t.w.Rank())
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

// local reports whether ranks step by themselves.
func (t *trainer) local() bool { return t.job.cfg.DDP.LocalSteps > 1 }

// collected returns the tensors of all ranks, for the single file that rank 0 writes.
//
// Collective: all ranks, with equally many tensors. Returns: on rank 0, distributed tensors are
// complete.
func (t *trainer) collected(mine []checkpoint.Run) ([]checkpoint.Run, error) {
	var all []checkpoint.Run
	for _, r := range mine {
		if r.Replicated {
			all = append(all, r)
			continue
		}
		parts, err := exchange.Gather(t.exchanger, r.Tensor.Name, append(binary.LittleEndian.AppendUint64(nil, uint64(r.Offset)), r.Data.Raw()...))
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

// joined returns the tensor formed by parts, each of which is an offset and elements.
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
