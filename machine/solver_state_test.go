package machine

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// TestAMachineTakesStatesThatCoverItsOwn compares states of parameters with the slots of a vector
// of four.
func TestAMachineTakesStatesThatCoverItsOwn(t *testing.T) {
	g := gorgonia.NewGraph()
	n := gorgonia.NewVector(g, gtensor.Float32, gorgonia.WithName("w"), gorgonia.WithShape(4))
	s := &solver{m: &Machine{shapes: map[*gorgonia.Node][]int{n: {4}}}, Update: &lower.Update{
		Config: optim.Config{Name: optim.Momentum, EMADecay: 0.5}.WithDefaults(), Pieces: []ddp.Piece{{Len: 4}},
		Nodes: gorgonia.Nodes{n}, States: [][]tensor.Buffer{{tensor.Of(make([]float32, 4)), tensor.Of(make([]float32, 4))}},
	}}
	good := func() optim.ParamState {
		return optim.ParamState{Name: "w", Shape: []int{4}, DType: gtensor.Float32, Slots: []optim.Slot{
			{Name: "momentum_buffer", F32: make([]float32, 4)}, {Name: "ema", F32: make([]float32, 4)},
		}}
	}
	if err := s.fits(0, good()); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		spoil func(p *optim.ParamState)
		says  string
	}{
		{func(p *optim.ParamState) { p.Offset = 256 }, "has 4 elements from 256 on, of 4"},
		{func(p *optim.ParamState) { p.Offset = math.MaxInt }, "has 4 elements from 9223372036854775807 on, of 4"},
		{func(p *optim.ParamState) { p.Slots[1].F32 = p.Slots[1].F32[:3] }, `"ema": it has elements 0 to 3, and 0 to 4 are wanted`},
		{func(p *optim.ParamState) { p.Slots = p.Slots[:1] }, "with 1 slots"},
		{func(p *optim.ParamState) { p.Slots[1].Name = "exp_avg" }, `want "ema"`},
		{func(p *optim.ParamState) { p.DType = gtensor.Float64 }, "it is float64"},
	} {
		p := good()
		c.spoil(&p)
		if err := s.fits(0, p); !errors.Is(err, optim.ErrMismatch) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("error %v, want ErrMismatch saying %q", err, c.says)
		}
	}
}

// TestADeviceKeepsNoStepOfAverages checks the errors of a solver while the parameters hold their
// averages.
func TestADeviceKeepsNoStepOfAverages(t *testing.T) {
	s := &solver{m: &Machine{}, Update: &lower.Update{Config: optim.Config{Name: optim.Adam}.WithDefaults()}, swapped: true}
	if err := s.prepare(&compiled{Lowered: &lower.Lowered{}}); !errors.Is(err, optim.ErrSwapped) {
		t.Errorf("a run with the update in it: %v", err)
	}
	if err := s.SetState(optim.State{Name: optim.Adam}); !errors.Is(err, optim.ErrSwapped) {
		t.Errorf("a state: %v", err)
	}
	if err := s.SwapAverages(nil); !errors.Is(err, optim.ErrConfig) {
		t.Errorf("without averages: %v", err)
	}
}

// TestAStepThatWasNotMadeKeepsNobodyFromTheDevice tests the wait before ddp adopts or gathers
// weights with Stage 3: after a non-finite norm they can still be set.
func TestAStepThatWasNotMadeKeepsNobodyFromTheDevice(t *testing.T) {
	dead := errors.New("a rank has died")
	for _, c := range []struct{ err, want error }{
		{nil, nil},
		{dead, dead},
		{fmt.Errorf("the gradients have norm NaN: %w", optim.ErrNonFinite), nil},
	} {
		if got := butNonFinite(c.err); !errors.Is(got, c.want) || c.want == nil && got != nil {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}
