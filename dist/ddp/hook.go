package ddp

import (
	"fmt"
	"math"
	"slices"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Hook is a method to send less than a bucket's gradients. Ranks sum messages, of any length and
// dtype, and each rank makes its gradient from the sums. A Hook holds settings only; the state of a
// bucket is in its Codec.
//
// The hook is responsible for convergence: ddp only adds in rank order and gives all ranks the same
// sums. Cast and PowerSGD are hooks. On the host a program may implement these two interfaces
// itself.
type Hook interface {
	// String returns name and settings: "powersgd rank 4". It must be equal on all ranks.
	String() string
	// Elementwise reports whether a bucket has one message, whose i-th element encodes the bucket's
	// i-th. Only then can gradients be sharded: a rank gets its run of both.
	Elementwise() bool
	// Codec makes the codec of one bucket. All ranks call it for the same buckets, in the same
	// order.
	Codec(b HookBucket) (Codec, error)
}

// HookBucket is the bucket that a Codec is for.
type HookBucket struct {
	Index    int // in Plan.Buckets
	DType    tensor.DType
	Elements int
	Params   []HookParam // in the order of their offsets
	Rank     int         // of this rank in the world
	Ranks    int
}

// HookParam is one parameter of a bucket.
type HookParam struct {
	Name   string
	Shape  []int // empty for a scalar
	Offset int   // of its first element in the bucket
}

// Message describes one round: Elements of DType, summed over the ranks in rank order.
type Message struct {
	DType    tensor.DType
	Elements int
}

// Codec encodes and decodes one bucket. Its methods are called in stream order, on one goroutine at
// a time, and must not keep the buffers. They run during the backward pass, and must not allocate
// in every step.
//
// A step is
//
//	for r := range rounds { Compress(r, ...); message[r] = sum over the ranks of message[r] }
//	Decompress(...)
type Codec interface {
	// Messages returns the messages by round. It is called once; all ranks return the same.
	Messages() []Message
	// Compress writes messages[round] for factor times the elements of bucket, this rank's share;
	// the gradient is the sum of all shares. messages of earlier rounds hold the sums. It may
	// change bucket, which is the same in all rounds of a step. If it returns an error, this rank's
	// run does, and the others get NaN for sums of floating-point numbers.
	Compress(round int, factor float64, bucket tensor.Buffer, messages []tensor.Buffer) error
	// Decompress writes the gradient to bucket, from the sums in messages. With sharded gradients,
	// bucket and messages[0] are this rank's run of them. Every rank must get the same bits.
	Decompress(bucket tensor.Buffer, messages []tensor.Buffer) error
}

// Stateful is a Codec with state that lasts from step to step and belongs in a checkpoint.
type Stateful interface {
	Codec
	// State returns a copy of the state.
	State() []HookState
	// SetState is the inverse. Missing entries get their first value; entries of other buckets are
	// ignored.
	SetState([]HookState) error
}

// Undoer is a Stateful that can undo its last step. A step is undone if it failed, or if a gradient
// in any bucket is not finite; its traces would otherwise stay in all later steps.
type Undoer interface {
	Stateful
	// Undo removes the gradients of the last step from the state; earlier state may be lost too. It
	// is called between steps and, after an error, not on all ranks: state that is equal on all
	// ranks must not change.
	Undo()
}

// HookState is the state of a hook for one parameter.
type HookState struct {
	Param string
	Slot  string // "residual", "q"
	Shape []int
	Data  tensor.Buffer // F32 or F64, in C order, on the host
	// Sum is set for a rank's part of a sum over the ranks. Otherwise all ranks hold the same
	// value.
	Sum bool
}

// HookState returns the hook's state on this rank, in the order of the Plan, for checkpoints. Call
// it between steps. To resume on another number of ranks, add up the entries with Sum and give the
// result to one rank. If HookUnit then differs, ScaleHookState by the old unit divided by the new.
//
// Not collective. Returns nil when the hook has no state.
func (d *DDP) HookState() []HookState {
	x, ok := d.wire.(*hooked)
	if !ok {
		return nil
	}
	d.settle()
	x.judge(d.run.running) // as after a failed run
	var all []HookState
	for _, l := range x.lines {
		if c, ok := l.codec.(Stateful); ok {
			all = append(all, c.State()...)
		}
	}
	return all
}

// HookUnit returns the factor that converts entries of HookState with Sum to units of the gradient.
// It is 1, except for an Average of PreDivide, whose divisor depends on the number of ranks. Not
// collective.
func (d *DDP) HookUnit() float64 {
	return d.cfg.Average.rest(float64(d.world.Size()), d.cfg.Factor)
}

// SetHookState sets the hook's state to entries of HookState, by parameter name. Missing entries
// get their first value.
//
// Not collective. Errors: dist.ErrInvalid for an entry of an unknown parameter, of a name that
// several share, or of another shape; dist.ErrUnsupported for entries if the hook has no state.
func (d *DDP) SetHookState(state []HookState) error {
	x, ok := d.wire.(*hooked)
	if !ok && len(state) == 0 {
		return nil
	}
	if !ok || !x.stateful() && len(state) > 0 {
		return fmt.Errorf("ddp hook state rank %d/%d: %w: %d entries, and this DDP's hook has no state; attach with the hook that saved them",
			d.world.Rank(), d.world.Size(), dist.ErrUnsupported, len(state))
	}
	if err := d.checkHookState(state); err != nil {
		return fmt.Errorf("ddp hook state rank %d/%d: %w", d.world.Rank(), d.world.Size(), err)
	}
	d.settle()
	x.begin() // replaces the state of the last step
	for _, l := range x.lines {
		if c, ok := l.codec.(Stateful); ok {
			if err := c.SetState(state); err != nil {
				return fmt.Errorf("ddp hook state rank %d/%d %s: %w", d.world.Rank(), d.world.Size(), l.b.name, err)
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
			d.world.Rank(), d.world.Size(), dist.ErrInvalid, by)
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

// checkHookState rejects state of an unknown parameter, or of a name that several parameters share.
func (d *DDP) checkHookState(state []HookState) error {
	for _, s := range state {
		named := 0
		for _, p := range d.plan.Params {
			if p.Name == s.Param {
				named++
			}
		}
		switch {
		case named == 0:
			return fmt.Errorf("%w: %s of unknown parameter %q", dist.ErrInvalid, s.Slot, s.Param)
		case named > 1:
			return fmt.Errorf("%w: %s of %q, the name of %d parameters; give each its own name with gorgonia.WithName",
				dist.ErrInvalid, s.Slot, s.Param, named)
		}
	}
	return nil
}

// restored returns the data of an entry of T and of the given shape, or nil if it is missing.
func restored[T float32 | float64](state []HookState, param, slot string, shape ...int) ([]T, error) {
	for _, s := range state {
		if s.Param != param || s.Slot != slot {
			continue
		}
		data, err := tensor.Data[T](s.Data)
		if err != nil {
			return nil, fmt.Errorf("%s of %q: %w: %w", slot, param, dist.ErrDType, err)
		}
		if n := gtensor.Shape(shape).TotalSize(); len(data) != n || !slices.Equal(s.Shape, shape) {
			return nil, fmt.Errorf("%s of %q: %w: %d elements of shape %v, want %d of %v",
				slot, param, dist.ErrCount, len(data), gtensor.Shape(s.Shape), n, gtensor.Shape(shape))
		}
		return data, nil
	}
	return nil, nil
}

// Len returns the number of elements.
func (p HookParam) Len() int {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	return n
}
