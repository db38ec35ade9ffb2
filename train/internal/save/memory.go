package save

import (
	"encoding/json"
	"fmt"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/train/internal/exchange"
	"github.com/symgrad/symgrad/train/internal/measure"
)

// Memory is the state of a run in a checkpoint that is neither a tensor nor a field of package
// checkpoint.
type Memory struct {
	Settings  string        `json:"settings"` // config.Canonical
	Data      string        `json:"data"`     // Problem.Digest
	Samples   int           `json:"samples"`  // used for training so far
	Losses    measure.Curve `json:"losses"`   // of the last steps; with log.losses of all steps from FirstLoss on
	FirstLoss int           `json:"first_loss"`
	Schedule  string        `json:"schedule"` // learning rate schedule, with the length that follows from the run's
	End       int           `json:"end"`      // steps of that length; 0 if it does not depend on the run
	Own       []Own         `json:"own,omitempty"`

	HookUnit float64 `json:"hook_unit,omitempty"` // ddp.DDP.HookUnit; 0 means the current one
}

// Own is the state of a single rank when ranks step by themselves: one rank may skip a step that
// others make.
type Own struct {
	Steps  int             `json:"steps"` // made by its solver
	Scaler json.RawMessage `json:"scaler,omitempty"`
}

// owns returns the state of each rank, by rank; nil if it is equal on all ranks.
//
// Collective: all ranks.
func (t *Training) owns(steps int, scaler json.RawMessage) ([]Own, error) {
	if !t.local() {
		return nil, nil
	}
	text, err := json.Marshal(Own{steps, scaler})
	if err != nil {
		return nil, err
	}
	parts, err := exchange.Gather(t.Values, "steps of each rank", text)
	if err != nil {
		return nil, err
	}
	all := make([]Own, len(parts))
	for r, part := range parts {
		if err := json.Unmarshal(part, &all[r]); err != nil {
			return nil, fmt.Errorf("steps of rank %d: %w", r, err)
		}
	}
	return all, nil
}

// Position is the object that knows the place in the order of samples: a Sampler, or a Loader that
// reads ahead of one.
type Position interface {
	// Cursor returns the place of the next batch.
	Cursor() data.Cursor
	// Seek makes the batch at c the next.
	Seek(c data.Cursor) error
}

// Snapshot returns the state of the training after step: m with all that the objects of t know, and
// this rank's tensors, see runs. The caller adds the settings.
//
// Collective: all ranks.
func (t *Training) Snapshot(step int, m Memory, at Position, sharded bool) (checkpoint.Meta, []checkpoint.Run, error) {
	state := t.Solver.State()
	meta := checkpoint.Meta{Step: step, Stage: t.DDP.Plan().Stage, Solver: checkpoint.Solver{Name: state.Name, Steps: state.Steps}}
	runs, err := t.runs(state, sharded)
	if err != nil {
		return meta, nil, err
	}
	parts := []part{{&meta.Random, random{step}}}
	if at != nil {
		parts = append(parts, part{&meta.Sampler, at.Cursor()})
	}
	if t.Scaler != nil {
		parts = append(parts, part{&meta.Scaler, t.Scaler.State()})
	}
	for _, p := range parts {
		if *p.to, err = json.Marshal(p.value); err != nil {
			return meta, nil, err
		}
	}
	if m.Own, err = t.owns(state.Steps, meta.Scaler); err != nil {
		return meta, nil, err
	}
	m.HookUnit = t.DDP.HookUnit()
	text, err := json.Marshal(m)
	meta.Extra = map[string]json.RawMessage{MemoryKey: text}
	return meta, runs, err
}

// part is a value of a Meta.
type part struct {
	to    *json.RawMessage
	value any
}

// MemoryKey names Memory in a checkpoint.
const MemoryKey = "train"

// random is the state of all random numbers. They depend only on the seed, the step and the
// sample's index in the batch.
type random struct {
	Clock int `json:"clock"`
}
