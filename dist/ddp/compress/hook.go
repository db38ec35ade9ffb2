// Package compress makes the messages of a bucket of gradients smaller: Cast rounds them to a
// narrower dtype, PowerSGD sends matrices of low rank, and both can feed errors back. It needs
// buckets as values only. Package ddp sums the messages over the ranks: see Config.Hook there.
package compress

import (
	"fmt"
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
// sums. Cast and PowerSGD are hooks. A program may implement these two interfaces itself.
type Hook interface {
	// String returns name and settings: "powersgd rank 4". It must be equal on all ranks.
	String() string
	// Elementwise reports whether a bucket has one message, whose i-th element encodes the bucket's
	// i-th. Only then can gradients be sharded: a rank gets its run of both.
	Elementwise() bool
	// Codec makes the codec of one bucket. All ranks call it for the same buckets, in the same
	// order.
	Codec(b Bucket) (Codec, error)
}

// Bucket is the bucket that a Codec is for.
type Bucket struct {
	Index    int // in Plan.Buckets of package ddp
	DType    tensor.DType
	Elements int
	Params   []Param // in the order of their offsets
	Rank     int     // of this rank in the group
	Ranks    int
}

// Param is one parameter of a bucket.
type Param struct {
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
	State() []State
	// SetState is the inverse. Missing entries get their first value; entries of other buckets are
	// ignored.
	SetState([]State) error
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

// State is the state of a hook for one parameter.
type State struct {
	Param string
	Slot  string // "residual", "q"
	Shape []int
	Data  tensor.Buffer // F32 or F64, in C order, on the host
	// Sum is set for a rank's part of a sum over the ranks. Otherwise all ranks hold the same
	// value.
	Sum bool
}

// Len returns the number of elements.
func (p Param) Len() int {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// sized is a Hook that knows the messages of its Codec, and the bytes of its state, without making
// one.
type sized interface {
	sizes(b Bucket) (messages []Message, kept int64)
}

// Sizes returns the messages of a hook's Codec for a bucket, and the bytes of its state.
func Sizes(hook Hook, b Bucket) (messages []Message, kept int64, err error) {
	if s, ok := hook.(sized); ok {
		messages, kept = s.sizes(b)
		return messages, kept, nil
	}
	codec, err := hook.Codec(b)
	if err != nil {
		return nil, 0, err
	}
	if c, ok := codec.(Stateful); ok {
		for _, s := range c.State() {
			kept += s.Data.Bytes()
		}
	}
	return codec.Messages(), kept, nil
}

// restored returns the data of an entry of T and of the given shape, or nil if it is missing.
func restored[T float32 | float64](state []State, param, slot string, shape ...int) ([]T, error) {
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
