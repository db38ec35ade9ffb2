package machinetest

import (
	"fmt"
	"math"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// TestTapeAgreesWithItself runs all with the oracle as the tested machine; results must be equal
// bit by bit.
func TestTapeAgreesWithItself(t *testing.T) {
	for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64} {
		t.Run(dt.String(), func(t *testing.T) { Run(t, Tape, Options{DType: dt}) })
	}
	t.Run("adam", func(t *testing.T) { Run(t, Tape, Options{Solver: Adam, Rows: 7, Steps: 5}) })
}

// TestGradients compares the gradients of the oracle with differences of the cost.
func TestGradients(t *testing.T) {
	for _, f := range Models() {
		t.Run(f.Name, func(t *testing.T) {
			m, err := f.New(Config{DType: gtensor.Float64, Masked: true, TruePooling: true, Rows: 2})
			if err != nil {
				t.Fatal(err)
			}
			masks := make([][]float64, len(m.Drops))
			for i, d := range m.Drops {
				masks[i] = make([]float64, d.Mask.Shape().TotalSize())
				for j := range masks[i] {
					masks[i][j] = float64(j%3) * 0.75
				}
			}
			if err := m.SetMasks(masks); err != nil {
				t.Fatal(err)
			}
			checkGradients(t, m, 1e-6)
		})
	}
}

// checkGradients reports wrongGradients.
func checkGradients(t *testing.T, m *Model, tol float64) {
	t.Helper()
	for _, line := range wrongGradients(t, m, tol) {
		t.Errorf("%s %s", m.Name, line)
	}
}

// wrongGradients reports gradients that differ from central differences of the cost, at up to seven
// elements of every parameter.
func wrongGradients(t *testing.T, m *Model, tol float64) []string {
	t.Helper()
	vm := G.NewTapeMachine(m.Graph)
	defer vm.Close()
	cost := func() float64 {
		vm.Reset()
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		return m.Cost.Value().Data().(float64)
	}
	cost()
	grads := make([][]float64, len(m.Learnables))
	for i, p := range m.Learnables {
		v, err := p.Grad()
		if err != nil {
			t.Fatal(err)
		}
		if grads[i], err = elements(v); err != nil {
			t.Fatal(err)
		}
	}
	const eps = 1e-5
	var wrong []string
	for i, p := range m.Learnables {
		data := p.Value().Data().([]float64)
		for j := 0; j < len(data); j += 1 + len(data)/7 {
			old := data[j]
			data[j] = old + eps
			up := cost()
			data[j] = old - eps
			down := cost()
			data[j] = old
			if want := (up - down) / (2 * eps); !(math.Abs(want-grads[i][j]) <= tol*math.Max(1, math.Abs(want))) {
				wrong = append(wrong, fmt.Sprintf("%s[%d]: gradient %v, by differences %v", p.Name(), j, grads[i][j], want))
			}
		}
	}
	return wrong
}

// kindOf returns the type of a node's op, with its name if the type has several ops.
func kindOf(n *G.Node) string {
	kind := fmt.Sprintf("%T", n.Op())
	if strings.Contains(kind, "elem") || strings.Contains(kind, "linAlg") {
		kind += " " + n.Op().String()
	}
	return kind
}

func run(t *testing.T, m *Model) float64 {
	t.Helper()
	vm := G.NewTapeMachine(m.Graph)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	v, err := elements(m.Cost.Value())
	if err != nil {
		t.Fatal(err)
	}
	return v[0]
}

// TestEveryParameterMatters checks that no gradient is tiny or huge.
func TestEveryParameterMatters(t *testing.T) {
	for _, f := range Models() {
		m, err := f.New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := Train(m, Tape, Options{Steps: 2}, nil)
		if err != nil {
			t.Fatal(err)
		}
		most := 0.0
		for _, g := range r.Grads[0] {
			most = math.Max(most, largest(g))
		}
		for i, name := range r.Params {
			if l := largest(r.Grads[0][i]); l < 1e-4*most || l > 1e3 {
				t.Errorf("%s: the gradient of %s is at most %.3g, that of another %.3g", f.Name, name, l, most)
			}
		}
	}
}
