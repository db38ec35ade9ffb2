package ddp_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
)

// held is a parameter with a gradient.
type held struct {
	name string
	grad G.Value
}

func (h held) Name() string   { return h.name }
func (h held) Value() G.Value { return h.grad }
func (h held) Grad() (G.Value, error) {
	if h.grad == nil {
		return nil, errors.New("none")
	}
	return h.grad, nil
}

func set64(grads ...[]float64) []G.ValueGrad {
	var s []G.ValueGrad
	for i, g := range grads {
		s = append(s, held{fmt.Sprint("p", i), gtensor.New(gtensor.WithBacking(g))})
	}
	return s
}

func TestMaxRelDiffFindsTheWorstParameter(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name      string
		got, want []G.ValueGrad
		diff      ddp.Diff
	}{
		{"equal", set64([]float64{1, 2}), set64([]float64{1, 2}), ddp.Diff{Name: "p0"}},
		{"relative to the largest element", set64([]float64{1, 4.5}), set64([]float64{1, 4}), ddp.Diff{Relative: 0.125, Name: "p0"}},
		{"second worse", set64([]float64{9}, []float64{3}), set64([]float64{8}, []float64{1}), ddp.Diff{Relative: 2, Param: 1, Name: "p1"}},
		{"absolute at zero", set64([]float64{3}), set64([]float64{0}), ddp.Diff{Relative: 3, Name: "p0"}},
		{"without a name", []G.ValueGrad{held{"%!s(<nil>)()", G.NewF32(3)}}, []G.ValueGrad{held{"%!s(<nil>)()", G.NewF32(2)}}, ddp.Diff{Relative: 0.5}},
		{"float32", []G.ValueGrad{held{"s", G.NewF32(3)}}, []G.ValueGrad{held{"s", G.NewF32(2)}}, ddp.Diff{Relative: 0.5, Name: "s"}},
	} {
		if got, err := ddp.MaxRelDiff(c.got, c.want); err != nil || got != c.diff {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.diff)
		}
	}
	got, err := ddp.MaxRelDiff(set64([]float64{1}, []float64{1, nan}, []float64{7}), set64([]float64{1}, []float64{1, 1}, []float64{1}))
	if err != nil || !math.IsNaN(got.Relative) || got.Param != 1 {
		t.Errorf("a NaN gives %+v, %v", got, err)
	}
}

func TestMaxRelDiffRefusesSetsThatDoNotMatch(t *testing.T) {
	one := set64([]float64{1})
	for _, c := range []struct {
		name      string
		got, want []G.ValueGrad
		err       error
		word      string
	}{
		{"number", one, set64([]float64{1}, []float64{1}), dist.ErrCount, "1 and of 2"},
		{"none", nil, nil, dist.ErrCount, "0"},
		{"length", one, set64([]float64{1, 2}), dist.ErrCount, `"p0"`},
		{"dtype", one, []G.ValueGrad{held{"q", G.NewF32(1)}}, dist.ErrDType, `"q"`},
		{"no gradient", []G.ValueGrad{held{"r", nil}}, one, nil, "none"},
	} {
		_, err := ddp.MaxRelDiff(c.got, c.want)
		if err == nil || (c.err != nil && !errors.Is(err, c.err)) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v, want %v with %q", c.name, err, c.err, c.word)
		}
	}
}

// TestMaxRelDiffVerifiesARun compares a run as a program's verify option does.
func TestMaxRelDiffVerifiesARun(t *testing.T) {
	single := mlp.make(gtensor.Float64, 6, 1)
	if _, err := G.Grad(single.cost, single.params...); err != nil {
		t.Fatal(err)
	}
	vm := G.NewTapeMachine(single.cost.Graph())
	defer vm.Close()
	if err := single.let(mlp, indices(0, 6)); err != nil {
		t.Fatal(err)
	}
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	onRanks(t, 2, func(w *dist.World) error {
		a, err := attach(w, mlp, 3, ddp.Config{}, 0)
		if err != nil {
			return err
		}
		if err := a.run(indices(3*w.Rank(), 3*w.Rank()+3)); err != nil {
			return err
		}
		diff, err := ddp.MaxRelDiff(a.d.Model(), G.NodesToValueGrads(single.params))
		if err != nil || !(diff.Relative <= 1e-14) {
			return fmt.Errorf("%+v, %v", diff, err)
		}
		return a.close()
	})
}
