package ddp_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// blocked is a Cast whose Compress fails while *fail is set; all ranks then get NaN for that
// message.
type blocked struct {
	compress.Cast
	fail *bool
}

func (h blocked) Codec(b compress.Bucket) (compress.Codec, error) {
	c, err := h.Cast.Codec(b)
	if err != nil {
		return nil, err
	}
	return blockedCodec{c.(compress.Undoer), h.fail}, nil
}

type blockedCodec struct {
	compress.Undoer
	fail *bool
}

func (c blockedCodec) Compress(round int, share float64, bucket tensor.Buffer, messages []tensor.Buffer) error {
	if *c.fail {
		return errStumbled
	}
	return c.Undoer.Compress(round, share, bucket, messages)
}

// TestGapsOfBucketsForgetASpoiledStep has parameters that do not fill their buckets: values that a
// failed step leaves in the gaps must not enter later steps.
func TestGapsOfBucketsForgetASpoiledStep(t *testing.T) {
	for stage := range 2 {
		onRanks(t, 2, func(w *dist.World) error {
			fail := false
			hook := blocked{compress.Cast{DType: tensor.BF16, ErrorFeedback: true}, &fail}
			l, err := newLearner(w, forked, gtensor.Float32, 3, ddp.Config{Hook: hook, Stage: stage}, optim.Config{Name: optim.SGD, LearningRate: 0.01})
			if err != nil {
				return err
			}
			if err := l.train(1, 2); err != nil {
				return err
			}
			fail = w.Rank() == 1
			if err := l.run(indices(0, 3), 3); fail != errors.Is(ops.Cause(err), errStumbled) {
				return fmt.Errorf("the run is %w", err)
			}
			fail = false
			for range 2 {
				zeroGrads(l.m.params)
				if err := l.run(indices(0, 3), 3); err != nil {
					return err
				}
			}
			return errors.Join(keptSomething(l.d.HookState()), l.close())
		})
	}
}

// keptSomething returns an error for state that is zero or not finite, so that earlier steps were
// undone.
func keptSomething(state []compress.State) error {
	for _, s := range state {
		left, err := kept(state, s.Param, s.Slot)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(left, func(x float64) bool { return x != 0 }) || slices.ContainsFunc(left, math.IsNaN) {
			return fmt.Errorf("what is kept of %s: %v", s.Param, left)
		}
	}
	return nil
}
