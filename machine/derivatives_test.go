package machine_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/ops"
)

// derived is a function of Gorgonia whose gradient is compared with central differences, in
// float64.
type derived struct {
	name   string
	shapes [][]int // of the inputs that are differentiated by
	at     func(r *rand.Rand) float64
	apply  func(x []*G.Node) (*G.Node, error)
	step   float64 // of the central differences; 0 means 1e-5
	bare   bool    // the op's result is itself the cost
	bad    byWhom  // where Gorgonia's own derivative is wrong or missing
}

// byWhom has parts of the expected errors for an op with a wrong or missing derivative in Gorgonia.
// "" means that the gradient is right.
type byWhom struct {
	plain  string // gorgonia.Grad, or machine.New after it
	ours   string // ops.Grad
	attach string // ddp.Attach
	tape   string // the tape machine after ddp.Attach; "" also if ddp.Attach refuses
}

// sample is the graph of a row. Its cost is the sum of the op's result, with each element times a
// number of its own.
type sample struct {
	g       *G.ExprGraph
	in      G.Nodes
	cost    *G.Node
	backing [][]float64
}

func (d derived) build() (s *sample, err error) {
	building.Lock()
	defer building.Unlock()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("gorgonia: %v", p)
		}
	}()
	r := rand.New(rand.NewPCG(7, 11))
	s = &sample{g: G.NewGraph()}
	for i, shape := range d.shapes {
		v := make([]float64, gtensor.Shape(shape).TotalSize())
		for j := range v {
			v[j] = d.at(r)
		}
		s.backing = append(s.backing, v)
		s.in = append(s.in, input64(s.g, fmt.Sprint("in", i), v, shape...))
	}
	y, err := d.apply(s.in)
	if err != nil {
		return nil, err
	}
	if d.bare {
		s.cost = y
		return s, nil
	}
	weights := make([]float64, max(y.Shape().TotalSize(), 1))
	for i := range weights {
		weights[i] = 0.5 + r.Float64()
	}
	w := input64(s.g, "weights", weights, y.Shape()...)
	product, err := G.HadamardProd(y, w)
	if err != nil {
		return nil, err
	}
	s.cost = product
	if !product.IsScalar() {
		s.cost, err = G.Sum(product)
	}
	return s, err
}

func input64(g *G.ExprGraph, name string, v []float64, shape ...int) *G.Node {
	if len(shape) == 0 {
		return G.NewScalar(g, G.Float64, G.WithName(name), G.WithValue(v[0]))
	}
	return G.NewTensor(g, G.Float64, len(shape), G.WithName(name), G.WithShape(shape...),
		G.WithValue(gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(v))))
}

// differences returns the central differences of the cost, by every element of every input.
func (d derived) differences() ([][]float64, error) {
	s, err := d.build()
	if err != nil {
		return nil, err
	}
	m, err := machine.New(s.g, plain, s.cost)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	all := make([][]float64, len(s.in))
	for i, x := range s.backing {
		all[i] = make([]float64, len(x))
		for j, x0 := range x {
			h := cmp.Or(d.step, 1e-5)
			cost := func(at float64) (float64, error) {
				x[j] = at
				if len(d.shapes[i]) == 0 {
					if err := G.Let(s.in[i], at); err != nil {
						return 0, err
					}
				}
				if err := m.RunAll(); err != nil {
					return 0, err
				}
				return s.cost.Value().Data().(float64), nil
			}
			up, err := cost(x0 + h)
			if err != nil {
				return nil, err
			}
			down, err := cost(x0 - h)
			if err != nil {
				return nil, err
			}
			if _, err := cost(x0); err != nil {
				return nil, err
			}
			all[i][j] = (up - down) / (2 * h)
		}
	}
	return all, nil
}

// gradients runs vm and returns the gradients of s's inputs.
func (s *sample) gradients(vm G.VM, err error) (grads [][]float64, _ error) {
	if err != nil {
		return nil, err
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		return nil, err
	}
	for _, in := range s.in {
		v, err := in.Grad()
		if err != nil || v == nil {
			return nil, fmt.Errorf("gradient of %v: %w", in, err)
		}
		switch e := v.Data().(type) {
		case float64:
			grads = append(grads, []float64{e})
		case []float64:
			grads = append(grads, slices.Clone(e))
		}
	}
	return grads, nil
}

// byGrad is grad, gorgonia's or ours, and then a machine.
func (d derived) byGrad(grad func(*G.Node, ...*G.Node) (G.Nodes, error)) ([][]float64, error) {
	s, err := d.build()
	if err != nil {
		return nil, err
	}
	building.Lock()
	defer building.Unlock()
	if err := func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("gorgonia: %v", p)
			}
		}()
		_, err = grad(s.cost, s.in...)
		return err
	}(); err != nil {
		return nil, err
	}
	return s.gradients(machine.New(s.g, plain))
}

// byAttach is ddp.Attach on one rank, and then a machine or the tape machine.
func (d derived) byAttach(t *testing.T, tape bool) (grads [][]float64, err error) {
	onRanks(t, 1, func(w *dist.World) error {
		var s *sample
		if s, err = d.build(); err != nil {
			return nil
		}
		a, failed := ddp.Attach(w, s.cost, s.in, ddp.Config{})
		if failed != nil {
			err = failed
			return nil
		}
		if tape {
			grads, err = s.gradients(G.NewTapeMachine(s.g), nil)
		} else {
			grads, err = s.gradients(machine.New(s.g, plain))
		}
		return a.Close()
	})
	return grads, err
}

// far returns the largest difference between gradients, or "" if it is small.
func far(got, want [][]float64) string {
	for i := range want {
		if len(got[i]) != len(want[i]) {
			return fmt.Sprintf("gradient %d has %d elements, want %d", i, len(got[i]), len(want[i]))
		}
		for j, x := range want[i] {
			// The error of a central difference is h² of the third derivative, and rounding: 1e-16
			// of the cost over h.
			if math.Abs(got[i][j]-x) > 1e-6*(1+math.Abs(x)) || math.IsNaN(got[i][j]) {
				return fmt.Sprintf("gradient %d is %.6v, differences say %.6v", i, got[i], want[i])
			}
		}
	}
	return ""
}

// TestDerivatives compares the gradient of every differentiable function of Gorgonia with central
// differences: machine after gorgonia.Grad, machine after ddp.Attach, and the tape machine after
// ddp.Attach. If a row has an error, the gradient must be rejected.
func TestDerivatives(t *testing.T) {
	for _, d := range deriveds {
		t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
			want, err := d.differences()
			if err != nil {
				t.Fatal(err)
			}
			check := func(how, refusal string, got [][]float64, err error) {
				t.Helper()
				switch {
				case refusal != "" && (err == nil || !strings.Contains(err.Error(), refusal)):
					t.Errorf("%s: error %v, want one with %q", how, err, refusal)
				case refusal != "":
				case err != nil:
					t.Errorf("%s: %v", how, err)
				default:
					if text := far(got, want); text != "" {
						t.Errorf("%s: %s", how, text)
					}
				}
			}
			plainly, plainErr := d.byGrad(G.Grad)
			ours, oursErr := d.byGrad(ops.Grad)
			compiled, compiledErr := d.byAttach(t, false)
			tape, tapeErr := d.byAttach(t, true)
			check("machine after Grad", d.bad.plain, plainly, plainErr)
			check("machine after ops.Grad", d.bad.ours, ours, oursErr)
			check("machine after Attach", d.bad.attach, compiled, compiledErr)
			check("tape machine after Attach", cmp.Or(d.bad.attach, d.bad.tape), tape, tapeErr)
		})
	}
}
