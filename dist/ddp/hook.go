package ddp

import (
	"fmt"
	"math"
	"slices"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Hook sends less than a bucket's gradients. The ranks add up messages, of any length and dtype,
// and each rank makes its gradient from the sums. A Hook has settings, and no state; the Codec of a
// bucket has the state.
//
// Convergence is the hook's affair: ddp adds in rank order and gives all ranks the same sums, no
// more. Cast and PowerSGD are hooks; a hook of one's own on a host is these two interfaces.
type Hook interface {
	// String returns name and settings: "powersgd rank 4". It must be equal on all ranks.
	String() string
	// Elementwise reports whether a bucket has one message, of whose elements the i-th stands for
	// the bucket's i-th. Only then can gradients be sharded: a rank then gets a run of the sum, and
	// of the bucket.
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
	Params   []HookParam // in the order in which they lie
	Rank     int         // of this rank in the world
	Ranks    int
}

// HookParam is one parameter of a bucket.
type HookParam struct {
	Name   string
	Shape  []int // empty for a scalar
	Offset int   // of its first element in the bucket
}

// Message is the message of a rank in one round: Elements of DType, summed in rank order.
type Message struct {
	DType    tensor.DType
	Elements int
}

// Codec is a Hook at work on one bucket. Its methods are called in stream order, on one goroutine
// at a time, and keep none of the buffers they get. They run while the backward pass does, and must
// not allocate in every step.
//
// A step is
//
//	for r := range rounds { Compress(r, ...); message[r] = sum over the ranks of message[r] }
//	Decompress(...)
type Codec interface {
	// Messages returns the messages, round by round. It is called once, and equal on all ranks.
	Messages() []Message
	// Compress writes messages[round], of a gradient that is factor times the elements of bucket:
	// the share of this rank, so that sums over the ranks give the gradient. Messages of earlier
	// rounds hold the sums. It may change bucket, which is the same in all rounds of a step. After
	// an error, which this rank's run returns, the other ranks get NaN for sums of floating-point
	// numbers.
	Compress(round int, factor float64, bucket tensor.Buffer, messages []tensor.Buffer) error
	// Decompress writes the gradient to bucket, from messages that hold the sums. With gradients
	// that are sharded, bucket and messages[0] are this rank's run of them. Every rank must come to
	// the same bits.
	Decompress(bucket tensor.Buffer, messages []tensor.Buffer) error
}

// Stateful is a Codec that keeps something from one step to the next, which belongs in a
// checkpoint.
type Stateful interface {
	Codec
	// State returns a copy of the state.
	State() []HookState
	// SetState is the inverse. State without a name in it is reset; names of other buckets are
	// ignored.
	SetState([]HookState) error
}

// Undoer is a Stateful that can undo its last step, which was not made because a gradient is not
// finite, in this bucket or another, or because it ended in an error. The residuals of such a step
// would be in all later ones.
type Undoer interface {
	Stateful
	// Undo removes the gradients of the last step from the state; earlier state may be lost. It is
	// called between steps and, after an error, not on all ranks: state that is equal on all ranks
	// must not change.
	Undo()
}

// HookState is the state of a hook for one parameter.
type HookState struct {
	Param string
	Slot  string // "residual", "q"
	Shape []int
	Data  tensor.Buffer // F32 or F64, in C order, on the host
	// Sum means that the state is the sum over the ranks, and this is a rank's part; otherwise all
	// ranks have the same.
	Sum bool
}

// HookState returns the state of the hook on this rank, in the order of the Plan, for a checkpoint.
// Call it between steps. To resume on another number of ranks, add up entries with Sum and give the
// sum to one rank. If HookUnit differs, call ScaleHookState with the old unit divided by the new
// one.
//
// Not collective. Returns nil when the hook keeps nothing.
func (d *DDP) HookState() []HookState {
	x, ok := d.wire.(*hooked)
	if !ok {
		return nil
	}
	d.settle()
	x.judge(d.run.running) // as after a run that failed on the way
	var all []HookState
	for _, l := range x.lines {
		if c, ok := l.codec.(Stateful); ok {
			all = append(all, c.State()...)
		}
	}
	return all
}

// HookUnit returns the factor by which entries of HookState with Sum are in units of the gradient:
// 1, except for an Average of PreDivide, whose divisor depends on the number of ranks. Not
// collective.
func (d *DDP) HookUnit() float64 {
	return d.cfg.Average.rest(float64(d.world.Size()), d.cfg.Factor)
}

// SetHookState gives the hook the result of HookState, by name of parameter; other state is reset.
//
// Not collective. Errors: dist.ErrInvalid for an entry of no parameter, of several that have one
// name, or of another shape; dist.ErrUnsupported for entries where the hook keeps nothing.
func (d *DDP) SetHookState(state []HookState) error {
	x, ok := d.wire.(*hooked)
	if !ok && len(state) == 0 {
		return nil
	}
	if !ok || !x.stateful() && len(state) > 0 {
		return fmt.Errorf("ddp hook state rank %d/%d: %w: %d entries, and the attached hook has no state; attach with the hook of the entries",
			d.world.Rank(), d.world.Size(), dist.ErrUnsupported, len(state))
	}
	if err := d.checkHookState(state); err != nil {
		return fmt.Errorf("ddp hook state rank %d/%d: %w", d.world.Rank(), d.world.Size(), err)
	}
	d.settle()
	x.begin() // the state of the last step is replaced
	for _, l := range x.lines {
		if c, ok := l.codec.(Stateful); ok {
			if err := c.SetState(state); err != nil {
				return fmt.Errorf("ddp hook state rank %d/%d %s: %w", d.world.Rank(), d.world.Size(), l.b.name, err)
			}
		}
	}
	return nil
}

// ScaleHookState multiplies the hook's residuals of gradients by a factor: new/old, on all ranks,
// when the scale of the loss has changed, since residuals are in units of the gradients. Call it
// between steps.
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
			return fmt.Errorf("%w: %s of %q, which is no parameter that is trained", dist.ErrInvalid, s.Slot, s.Param)
		case named > 1:
			return fmt.Errorf("%w: %s of %q, and %d parameters are named that; give each a name of its own with gorgonia.WithName",
				dist.ErrInvalid, s.Slot, s.Param, named)
		}
	}
	return nil
}

// restored is the data of an entry of T and of the given shape; nil where there is none.
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

// Len is the number of elements.
func (p HookParam) Len() int {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	return n
}
