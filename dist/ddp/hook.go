package ddp

import (
	"fmt"
	"math"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp/compress"
)

// stater is an exchanger with the state of a hook.
type stater interface {
	// stateful reports whether there is any.
	stateful() bool
	// state returns a copy, in the order of the Plan. No operation is in flight.
	state() ([]compress.State, error)
	// setState is the inverse. Missing entries get their first value.
	setState(state []compress.State) error
}

// HookState returns the hook's state on this rank, in the order of the Plan, for checkpoints. Call
// it between steps. To resume on another number of ranks, add up the entries with Sum and give the
// result to one rank. If HookUnit then differs, ScaleHookState by the old unit divided by the new.
//
// Not collective. Returns nil when the hook has no state.
func (d *DDP) HookState() []compress.State {
	x, ok := d.wire.(stater)
	if !ok || !x.stateful() {
		return nil
	}
	all, err := x.state()
	if err != nil { // the group is broken, and the next run says so
		d.cfg.Log.Error("ddp: the state of the hook cannot be read", "rank", d.team.Rank(), "error", err)
	}
	return all
}

// HookUnit returns the factor that converts entries of HookState with Sum to units of the gradient.
// It is 1, except for an Average of PreDivide, whose divisor depends on the number of ranks. Not
// collective.
func (d *DDP) HookUnit() float64 {
	return d.cfg.Average.rest(float64(d.team.total()), d.cfg.Factor)
}

// SetHookState sets the hook's state to entries of HookState, by parameter name. Missing entries
// get their first value.
//
// Not collective. Errors: dist.ErrInvalid for an entry of an unknown parameter, of a name that
// several share, or of another shape; dist.ErrUnsupported for entries if the hook has no state.
func (d *DDP) SetHookState(state []compress.State) error {
	x, ok := d.wire.(stater)
	stateful := ok && x.stateful()
	if !stateful && len(state) == 0 {
		return nil
	}
	if !stateful {
		return fmt.Errorf("ddp hook state rank %d/%d: %w: %d entries, and this DDP's hook has no state; attach with the hook that saved them",
			d.team.Rank(), d.team.Size(), dist.ErrUnsupported, len(state))
	}
	if err := d.plan.checkHookState(state); err != nil {
		return fmt.Errorf("ddp hook state rank %d/%d: %w", d.team.Rank(), d.team.Size(), err)
	}
	if err := x.setState(state); err != nil {
		return fmt.Errorf("ddp hook state rank %d/%d: %w", d.team.Rank(), d.team.Size(), err)
	}
	return nil
}

func (x *hooked) state() ([]compress.State, error) {
	x.d.settle()
	x.judge(x.d.run.running) // as after a failed run
	var all []compress.State
	for _, l := range x.codings {
		if c, ok := l.codec.(compress.Stateful); ok {
			all = append(all, c.State()...)
		}
	}
	return all, nil
}

func (x *hooked) setState(state []compress.State) error {
	x.d.settle()
	x.forget() // replaces the state of the last step
	for _, l := range x.codings {
		if c, ok := l.codec.(compress.Stateful); ok {
			if err := c.SetState(state); err != nil {
				return fmt.Errorf("%s: %w", l.b.name, err)
			}
		}
	}
	return nil
}

// ScaleHookState multiplies the hook's residuals by a factor: new/old, on all ranks, when the scale
// of the loss has changed, since residuals are in units of gradients. Call it between steps.
//
// Not collective. Errors: dist.ErrInvalid for a factor that is not positive and finite; those of
// SetHookState.
func (d *DDP) ScaleHookState(by float64) error {
	if !(by > 0) || math.IsInf(by, 1) {
		return fmt.Errorf("ddp hook state rank %d/%d: %w: a factor of %v, want one that is positive and finite",
			d.team.Rank(), d.team.Size(), dist.ErrInvalid, by)
	}
	if by == 1 {
		return nil // as in nearly all steps: the state may be as large as the model
	}
	state := d.HookState()
	if len(state) == 0 {
		return nil
	}
	for _, s := range state {
		if s.Sum {
			if err := multiply(s.Data, by); err != nil {
				return err
			}
		}
	}
	return d.SetHookState(state)
}
