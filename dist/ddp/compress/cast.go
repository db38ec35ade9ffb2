package compress

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// Cast is the hook of Config.WireDType: messages are BF16 or F16. This rank's share of a gradient,
// rounded to the gradient's dtype, is rounded to the message's, to nearest, ties to even. The sum
// over the ranks is in float32, in rank order, and rounded once to the message's dtype.
//
// So a gradient is off by at most u (|p_1| + ... + |p_n| + |g|), with p_r the ranks' shares, g
// their sum and u 2^-8 for BF16 and 2^-11 for F16. F16 overflows from 65520 on and rounds numbers
// up to 2^-25 to 0; a loss scale avoids that. Rounding errors are lost, and repeat in each step if
// a gradient hardly changes. With ErrorFeedback they are added to the next step's gradient: the sum
// of a rank's messages over all steps is then off by the rounding of one step (Karimireddy et al.,
// Error Feedback Fixes SignSGD and other Gradient Compression Schemes, ICML 2019). The rounding of
// the sum itself, equal on all ranks, is not kept. After a step with a gradient that is not finite,
// on any rank, residuals restart at 0.
type Cast struct {
	DType         tensor.DType // BF16 or F16
	ErrorFeedback bool         // takes 4 bytes for each element, on every rank
}

// Validate checks c.
//
// Errors: dist.ErrDType.
func (c Cast) Validate() error {
	if c.DType != tensor.BF16 && c.DType != tensor.F16 {
		return fmt.Errorf("cast to %v: %w: want bf16 or f16", c.DType, dist.ErrDType)
	}
	return nil
}

// String returns "bf16" or "bf16 with error feedback".
func (c Cast) String() string {
	if c.ErrorFeedback {
		return c.DType.String() + " with error feedback"
	}
	return c.DType.String()
}

// Elementwise returns true.
func (c Cast) Elementwise() bool { return true }

// Codec implements Hook.
func (c Cast) Codec(b Bucket) (Codec, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if b.DType == tensor.F64 {
		return newCaster[float64](c, b), nil
	}
	return newCaster[float32](c, b), nil
}

// sizes implements sized: residuals without padding.
func (c Cast) sizes(b Bucket) (messages []Message, kept int64) {
	if c.ErrorFeedback {
		for _, p := range b.Params {
			kept += 4 * int64(p.Len())
		}
	}
	return []Message{{c.DType, b.Elements}}, kept
}

// castBlock is the number of elements handled in one pass, few enough for the first cache.
const castBlock = 1024

// caster is Cast for a bucket of T.
type caster[T float32 | float64] struct {
	message  Message
	params   []Param
	products [castBlock]T // share times gradient, plus residual
	back     [castBlock]T // products as sent, converted back
}

// feeder is a caster with residuals. Only it is Stateful.
type feeder[T float32 | float64] struct {
	caster[T]
	residual []float32 // for each element of the bucket, in units of the sum
}

func newCaster[T float32 | float64](c Cast, b Bucket) Codec {
	plain := caster[T]{message: Message{c.DType, b.Elements}, params: b.Params}
	if !c.ErrorFeedback {
		return &plain
	}
	return &feeder[T]{caster: plain, residual: make([]float32, b.Elements)}
}

// Messages implements Codec.
func (c *caster[T]) Messages() []Message { return []Message{c.message} }

// Compress implements Codec.
func (c *caster[T]) Compress(_ int, share float64, bucket tensor.Buffer, messages []tensor.Buffer) error {
	return c.send(share, bucket, messages[0], nil)
}

// send rounds share times bucket, plus residual, to the message, and writes the rounding errors to
// residual.
func (c *caster[T]) send(share float64, bucket, message tensor.Buffer, residual []float32) error {
	n := bucket.Len()
	for lo := 0; lo < n; lo += castBlock {
		hi := min(lo+castBlock, n)
		products := c.products[:hi-lo]
		from, err := bucket.Slice(lo, hi)
		if err != nil {
			return err
		}
		if err := reduce.Weighted(tensor.Of(products), []tensor.Buffer{from}, []float64{share}); err != nil {
			return err
		}
		to, err := message.Slice(lo, hi)
		if err != nil {
			return err
		}
		if residual == nil {
			err = tensor.Convert(to, tensor.Of(products))
		} else {
			err = c.sendAndKeep(to, products, residual[lo:hi])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sendAndKeep is send for a block with residuals. A number that is not finite gets residual 0: its
// step is undone, and the next one must be clean.
func (c *caster[T]) sendAndKeep(to tensor.Buffer, products []T, residual []float32) error {
	for i, r := range residual {
		products[i] += T(r)
	}
	if err := tensor.Convert(to, tensor.Of(products)); err != nil {
		return err
	}
	back := c.back[:len(products)]
	if err := tensor.Convert(tensor.Of(back), to); err != nil {
		return err
	}
	for i, x := range products {
		rest := x - back[i]
		if rest-rest != 0 {
			rest = 0
		}
		residual[i] = float32(rest)
	}
	return nil
}

// Decompress implements Codec.
func (c *caster[T]) Decompress(bucket tensor.Buffer, messages []tensor.Buffer) error {
	return tensor.Convert(bucket, messages[0])
}

// Compress implements Codec.
func (f *feeder[T]) Compress(_ int, share float64, bucket tensor.Buffer, messages []tensor.Buffer) error {
	return f.send(share, bucket, messages[0], f.residual)
}

// Undo implements Undoer. The state before the last step was used up by it.
func (f *feeder[T]) Undo() { clear(f.residual) }

// residualSlot is the slot of rounding errors.
const residualSlot = "residual"

// State implements Stateful.
func (f *feeder[T]) State() []State {
	return ResidualState(f.params, f.residual)
}

// ResidualState returns the state of error feedback: the residuals of a bucket's elements, cut into
// its parameters.
func ResidualState(params []Param, residuals []float32) []State {
	var all []State
	for _, p := range params {
		all = append(all, State{
			Param: p.Name, Slot: residualSlot, Shape: slices.Clone(p.Shape), Sum: true,
			Data: tensor.Of(slices.Clone(residuals[p.Offset : p.Offset+p.Len()])),
		})
	}
	return all
}

// SetState implements Stateful.
func (f *feeder[T]) SetState(state []State) error {
	return SetResiduals(f.params, f.residual, state)
}

// SetResiduals is the inverse of ResidualState. Missing entries become 0, as do elements between
// parameters.
//
// Errors: dist.ErrDType and dist.ErrCount for an entry of another form, which change nothing.
func SetResiduals(params []Param, residuals []float32, state []State) error {
	found := make([][]float32, len(params))
	for i, p := range params {
		var err error
		if found[i], err = restored[float32](state, p.Name, residualSlot, p.Shape...); err != nil {
			return err
		}
	}
	clear(residuals)
	for i, p := range params {
		copy(residuals[p.Offset:p.Offset+p.Len()], found[i])
	}
	return nil
}
