package cudaexec

import (
	"errors"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/cudagen"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// TestForeseenInputsAreThoseThatAreStaged has a clock among the inputs, which the runner keeps
// itself.
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

// TestForeseenScratchIsThatOfOurKernels has steps that work in scratch memory unless a library does
// them: those that no library is asked for do, wherever libraries are.
func TestForeseenScratchIsThatOfOurKernels(t *testing.T) {
	window := func(channels, padH, outH int) *program.ConvGradFilter {
		return &program.ConvGradFilter{K: 5, Window: program.Window{
			N: 8, C: channels, H: 16, W: 16, R: 3, S: 3, PadH: padH, PadW: 1, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1, OutH: outH, OutW: 16,
		}}
	}
	product := &program.MatMul{Batch: 1, M: 8, N: 8, K: 8, Alpha: 1}
	for _, test := range []struct {
		name    string
		op      program.Op
		dt      tensor.DType
		strides []int
		own     bool
	}{
		{"thin", window(3, 1, 16), tensor.F32, nil, true},
		{"thin in double precision", window(3, 1, 16), tensor.F64, nil, false},
		{"of many channels", window(9, 1, 16), tensor.F32, nil, false},
		{"of many channels, padded behind alone", window(9, 0, 16), tensor.F32, nil, true},
		{"of integers", window(9, 1, 16), tensor.I32, nil, true},
		{"product", product, tensor.F32, []int{0, 8, 1}, false},
		{"product of every other element", product, tensor.F32, []int{0, 16, 2}, true},
	} {
		p := &program.Program{Name: test.name, Clock: program.None}
		var all []program.View
		for range 3 {
			id := p.Add(program.Value{DType: test.dt, Shape: []int{1 << 15}, Place: program.Outside})
			all = append(all, program.View{Value: id, Strides: test.strides})
		}
		p.Steps = []program.Step{{Op: test.op, In: all[:2], Out: all[2:]}}
		_, steps, err := cudagen.Generate(p, cudagen.Target{Arch: 90, Own: []bool{test.own}})
		if err != nil {
			t.Fatal(err)
		}
		want := newLayout(p, steps).need
		if _, _, scratch, _, err := Foresee(p); err != nil || scratch != want.scratch+want.other || (want.scratch > 0) != test.own {
			t.Errorf("%s: %d B, %v; want %d, and a kernel of ours: %t", test.name, scratch, err, want.scratch+want.other, test.own)
		}
	}
}
