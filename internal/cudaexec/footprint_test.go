package cudaexec

import (
	"errors"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/program"
)

// TestForeseenInputsAreThoseThatAreStaged has a clock among the inputs, which the runner keeps itself.
func TestForeseenInputsAreThoseThatAreStaged(t *testing.T) {
	for _, dropout := range []bool{false, true} {
		b := newBuilder("foreseen", 1).train(options{batch: 3, dims: []int{5, 4, 2}, dropout: dropout})
		b.outside("nothing", program.Input, 0, 1, 0)
		if dropout {
			b.p.Values[b.p.Clock].Role = program.Input
		}
		b.plan(t, false)
		arena, constants, scratch, staged, err := Foresee(b.p)
		if err != nil {
			t.Fatal(err)
		}
		if want := int64(sides * 4 * (3*5 + 3*2)); staged != want || arena != b.p.Arena || constants != 0 || scratch <= 0 {
			t.Errorf("dropout %t: inputs of %d B, want %d; arena %d, constants %d, scratch %d", dropout, staged, want, arena, constants, scratch)
		}
	}
}

// TestForeseeRefusesWhatGPUsLack has a step of the host.
func TestForeseeRefusesWhatGPUsLack(t *testing.T) {
	b := newBuilder("host", 1).train(options{batch: 2, dims: []int{2, 2}}).plan(t, false)
	b.step("hook", &program.Call{Label: "hook"}, nil, nil)
	if _, _, _, _, err := Foresee(b.p); !errors.Is(err, dist.ErrUnsupported) {
		t.Errorf("a call of the host is foreseen on a GPU: %v", err)
	}
}
