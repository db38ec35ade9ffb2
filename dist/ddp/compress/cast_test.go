package compress_test

import (
	"math"
	"slices"
	"testing"

	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/tensor"
)

// TestErrorFeedbackKeepsWhatEachRankRoundsOff checks the messages: the sum over ranks is rounded
// once more, which is not kept.
func TestErrorFeedbackKeepsWhatEachRankRoundsOff(t *testing.T) {
	const steps, length, share = 1000, 2500, 0.3
	for _, wire := range []tensor.DType{tensor.BF16, tensor.F16} {
		c, err := compress.Cast{DType: wire, ErrorFeedback: true}.Codec(compress.Bucket{DType: tensor.F64, Elements: length})
		if err != nil {
			t.Fatal(err)
		}
		grad, sent := make([]float64, length), make([]float64, length)
		for i := range grad {
			grad[i] = math.Ldexp(1+float64(i)/length, -i%9)
		}
		m := c.Messages()[0]
		raw := make([]uint16, m.Elements)
		message, err := tensor.FromPointer(tensor.Of(raw).Pointer(), m.Elements, m.DType, tensor.Host)
		if err != nil {
			t.Fatal(err)
		}
		wide := make([]float64, length)
		for range steps {
			if err := c.Compress(0, share, tensor.Of(grad), []tensor.Buffer{message}); err != nil {
				t.Fatal(err)
			}
			if err := tensor.Convert(tensor.Of(wide), message); err != nil {
				t.Fatal(err)
			}
			for i, x := range wide {
				sent[i] += x
			}
		}
		for i, x := range sent {
			if want := steps * share * grad[i]; !(math.Abs(x-want) <= 0x1p-8*share*grad[i]) {
				t.Fatalf("%v: %v was sent of %v", wire, x, want)
			}
		}
	}
}

// TestErrorFeedbackForgetsWhatIsNoNumber has a step with a NaN and an overflow, after which all is
// as at the start.
func TestErrorFeedbackForgetsWhatIsNoNumber(t *testing.T) {
	c, err := compress.Cast{DType: tensor.F16, ErrorFeedback: true}.Codec(compress.Bucket{DType: tensor.F32, Elements: 4})
	if err != nil {
		t.Fatal(err)
	}
	message := []tensor.Float16{0, 0, 0, 0}
	for _, grad := range [][]float32{{float32(math.NaN()), 1e5, float32(math.Inf(-1)), 1}, {1, 1, 1, 1}} {
		if err := c.Compress(0, 1, tensor.Of(grad), []tensor.Buffer{tensor.Of(message)}); err != nil {
			t.Fatal(err)
		}
	}
	if want := tensor.ToFloat16(1); !slices.Equal(message, []tensor.Float16{want, want, want, want}) {
		t.Errorf("%#04x was sent, want ones", message)
	}
}
