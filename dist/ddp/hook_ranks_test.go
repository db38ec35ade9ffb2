package ddp_test

import (
	"errors"
	"fmt"
	"testing"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/tensor"
)

// lone is a hook that one rank has no codec for, or another message than the others.
type lone struct{ refuses bool }

func (lone) String() string    { return "lone" }
func (lone) Elementwise() bool { return false }
func (h lone) Codec(b compress.Bucket) (compress.Codec, error) {
	switch {
	case b.Rank == 0:
		return loneCodec{elements: 1}, nil
	case h.refuses:
		return nil, errSigns
	}
	return loneCodec{elements: 1000}, nil
}

type loneCodec struct {
	compress.Codec
	elements int
}

func (c loneCodec) Messages() []compress.Message {
	return []compress.Message{{DType: tensor.F32, Elements: c.elements}}
}

// TestHooksThatDifferAreAnErrorOnAllRanks checks that no rank waits for the others, and that the
// group stays usable.
func TestHooksThatDifferAreAnErrorOnAllRanks(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		for _, c := range []struct {
			hook lone
			want [2]error // by rank
		}{
			{lone{refuses: true}, [2]error{ddp.ErrPeer, errSigns}},
			{lone{}, [2]error{ddp.ErrPlan, ddp.ErrPlan}},
		} {
			m := mlp.make(gtensor.Float32, 3, 1)
			if _, err := ddp.Attach(w, m.cost, m.params, ddp.Config{Hook: c.hook}); !errors.Is(err, c.want[w.Rank()]) {
				return fmt.Errorf("Attach is %w, want %w", err, c.want[w.Rank()])
			}
		}
		return agreeOn(w, "number", []float64{1})
	})
}
