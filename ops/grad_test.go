package ops_test

import (
	"fmt"
	"math"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/ops"
)

// model is a rank's part of a computation: its cost, given its input x.
type model func(w *dist.World, x *gorgonia.Node) (cost *gorgonia.Node, err error)

const (
	step      = 1e-5 // of the central differences: truncation and rounding are both near 1e-10
	tolerance = 1e-6 // relative
)

// checkGradient compares, on every rank and for every element of its x, the gradient of the sum of
// all ranks' costs with a central difference: all ranks run twice with that element moved up and
// down.
func checkGradient(t *testing.T, n int, shape []int, build model, opts ...gorgonia.VMOpt) {
	t.Helper()
	xs := make([][]float64, n)
	for r := range xs {
		xs[r] = make([]float64, max(1, size(shape)))
		for i := range xs[r] {
			xs[r][i] = math.Sin(float64(1 + 3*r + i*i)) // all different
		}
	}
	grads := make([][]float64, n)
	costs := make([][]float64, n) // by rank, then by run
	onRanks(t, n, func(w *dist.World) (err error) {
		grads[w.Rank()], costs[w.Rank()], err = differences(w, xs, shape, build, opts)
		return err
	})
	if t.Failed() {
		return
	}
	at := 0
	for r := range xs {
		for i := range xs[r] {
			var up, down float64
			for q := range costs {
				up += costs[q][at]
				down += costs[q][at+1]
			}
			at += 2
			want, got := (up-down)/(2*step), grads[r][i]
			if diff := math.Abs(got - want); diff > tolerance*max(1, math.Abs(want)) {
				t.Errorf("rank %d/%d: dL/dx[%d] is %.9g, the difference quotient %.9g", r, n, i, got, want)
			}
		}
	}
}

// differences is one rank's gradient at xs and its cost at every point of the quotients.
func differences(w *dist.World, xs [][]float64, shape []int, build model, opts []gorgonia.VMOpt) (grad, costs []float64, err error) {
	g := gorgonia.NewGraph()
	x := input(g, gtensor.Float64, "x", xs[w.Rank()], shape...)
	cost, err := build(w, x)
	if err != nil {
		return nil, nil, err
	}
	grads, err := differentiate(cost, x)
	if err != nil {
		return nil, nil, err
	}
	vm := gorgonia.NewTapeMachine(g, opts...)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		return nil, nil, err
	}
	if grad, err = floats(grads[0].Value()); err != nil {
		return nil, nil, err
	}
	for r := range xs {
		for i := range xs[r] {
			for _, move := range []float64{step, -step} {
				moved := append([]float64(nil), xs[w.Rank()]...)
				if r == w.Rank() {
					moved[i] += move
				}
				if err := let(x, moved); err != nil {
					return nil, nil, err
				}
				vm.Reset()
				if err := vm.RunAll(); err != nil {
					return nil, nil, err
				}
				c, err := floats(cost.Value())
				if err != nil {
					return nil, nil, err
				}
				costs = append(costs, c[0])
			}
		}
	}
	return grad, costs, nil
}

func let(x *gorgonia.Node, v []float64) error {
	if x.IsScalar() {
		return gorgonia.Let(x, v[0])
	}
	return gorgonia.Let(x, dense(x.Dtype(), v, x.Shape()...))
}

// curved is sum(c * (y + y^2)), with other constants c on every rank: its gradient depends on y,
// and is not zero where y is.
func curved(w *dist.World, y *gorgonia.Node) (*gorgonia.Node, error) {
	square, err := gorgonia.Square(y)
	if err != nil {
		return nil, err
	}
	sum, err := gorgonia.Add(y, square)
	if err != nil {
		return nil, err
	}
	c := make([]float64, max(1, size(y.Shape())))
	for i := range c {
		c[i] = math.Cos(float64(2 + 5*w.Rank() + 3*i))
	}
	weighted, err := gorgonia.HadamardProd(sum, input(y.Graph(), y.Dtype(), fmt.Sprintf("c%d", y.ID()), c, y.Shape()...))
	if err != nil || y.IsScalar() {
		return weighted, err
	}
	return gorgonia.Sum(weighted)
}

func (v verb) model() model {
	return func(w *dist.World, x *gorgonia.Node) (*gorgonia.Node, error) {
		h, err := gorgonia.Tanh(x) // so that the gradient continues after the collective
		if err != nil {
			return nil, err
		}
		y, err := v.apply(w.Group, h)
		if err != nil {
			return nil, err
		}
		return curved(w, y)
	}
}

// TestGradientOfEveryVerb has every root of the verbs with one. The race detector, with which it
// takes ten times as long, sees the messages of all verbs among three ranks.
func TestGradientOfEveryVerb(t *testing.T) {
	worlds := []int{1, 2, 3, 4}
	if invariants.Enabled {
		worlds = []int{3}
	}
	for _, n := range worlds {
		for root := range n {
			all, scalars := verbs(root, true)
			for i, v := range all {
				if root > 0 && !v.rooted() {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d ranks/root %d", v.name, n, root), func(t *testing.T) {
					checkGradient(t, n, []int{2 * n, 2}, v.model())
					checkGradient(t, n, []int{n}, v.model())
					if i < scalars {
						checkGradient(t, n, nil, v.model())
					}
				})
			}
		}
	}
}

func TestGradientIsThatOfTheSumOfAllCosts(t *testing.T) {
	// Every rank's cost is the same reduced sum: the loss is n times it, and so is the gradient.
	for _, n := range []int{1, 2, 3} {
		onRanks(t, n, func(w *dist.World) error {
			g := gorgonia.NewGraph()
			x := input(g, gtensor.Float64, "x", []float64{5}, 1)
			local, err := gorgonia.Sum(x)
			if err != nil {
				return err
			}
			cost, err := ops.AllReduce(w.Group, local, dist.Sum)
			if err != nil {
				return err
			}
			grads, err := differentiate(cost, x)
			if err != nil {
				return err
			}
			if err := run(g); err != nil {
				return err
			}
			if err := equal("cost", cost.Value(), []float64{float64(5 * n)}); err != nil {
				return err
			}
			return equal("dL/dx", grads[0].Value(), []float64{float64(n)})
		})
	}
}

func TestFloat32GradientsAreThoseOfFloat64Rounded(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		all, _ := verbs(0, true)
		for _, v := range all {
			onRanks(t, n, func(w *dist.World) error {
				want, err := gradientOn(w, tape, gtensor.Float64, []int{2 * n, 2}, v.model())
				if err != nil {
					return err
				}
				got, err := gradientOn(w, tape, gtensor.Float32, []int{2 * n, 2}, v.model())
				if err != nil {
					return err
				}
				return near(v.name, got, want, 1e-5)
			})
		}
	}
}

// pipeline: every even rank sends tanh(x) to the next rank, which multiplies it with its own x; a
// last even rank is alone.
func pipeline(w *dist.World, x *gorgonia.Node) (*gorgonia.Node, error) {
	if w.Rank()%2 == 1 {
		h, err := ops.Recv(w.Group, x, w.Rank()-1, x.Dtype(), x.Shape()...)
		if err != nil {
			return nil, err
		}
		y, err := gorgonia.HadamardProd(h, x)
		if err != nil {
			return nil, err
		}
		return curved(w, y)
	}
	h, err := gorgonia.Tanh(x)
	if err != nil {
		return nil, err
	}
	cost, err := curved(w, h)
	if err != nil || w.Rank() == w.Size()-1 {
		return cost, err
	}
	token, err := ops.Send(w.Group, h, w.Rank()+1)
	if err != nil {
		return nil, err
	}
	return gorgonia.Add(cost, token)
}

func TestGradientFlowsBackThroughSendAndRecv(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { checkGradient(t, n, []int{2, 3}, pipeline) })
	}
}

func TestTokenAloneIsTheCostOfARankWithoutOne(t *testing.T) {
	checkGradient(t, 2, []int{3}, func(w *dist.World, x *gorgonia.Node) (*gorgonia.Node, error) {
		if w.Rank() == 0 {
			return ops.Send(w.Group, x, 1)
		}
		h, err := ops.Recv(w.Group, x, 0, gtensor.Float64, 3)
		if err != nil {
			return nil, err
		}
		return curved(w, h)
	})
}

// there and back: rank 0 sends, and receives the answer in an op that runs after the send because
// it takes its token.
func TestTokenOrdersARecvAfterASend(t *testing.T) {
	checkGradient(t, 2, []int{2}, func(w *dist.World, x *gorgonia.Node) (*gorgonia.Node, error) {
		if w.Rank() == 0 {
			token, err := ops.Send(w.Group, x, 1)
			if err != nil {
				return nil, err
			}
			back, err := ops.Recv(w.Group, token, 1, gtensor.Float64, 2)
			if err != nil {
				return nil, err
			}
			return curved(w, back)
		}
		h, err := ops.Recv(w.Group, x, 0, gtensor.Float64, 2)
		if err != nil {
			return nil, err
		}
		y, err := gorgonia.HadamardProd(h, x)
		if err != nil {
			return nil, err
		}
		return ops.Send(w.Group, y, 0)
	})
}

// ring sends x to the next rank; the even ranks, or all, send first.
func ring(all bool) model {
	return func(w *dist.World, x *gorgonia.Node) (*gorgonia.Node, error) {
		n := w.Size()
		next, prev := (w.Rank()+1)%n, (w.Rank()+n-1)%n
		var token, h *gorgonia.Node
		var err error
		if all || w.Rank()%2 == 0 {
			if token, err = ops.Send(w.Group, x, next); err != nil {
				return nil, err
			}
			if h, err = ops.Recv(w.Group, token, prev, x.Dtype(), x.Shape()...); err != nil {
				return nil, err
			}
		} else {
			if h, err = ops.Recv(w.Group, x, prev, x.Dtype(), x.Shape()...); err != nil {
				return nil, err
			}
			if token, err = ops.Send(w.Group, x, next); err != nil {
				return nil, err
			}
		}
		if h, err = gorgonia.HadamardProd(h, x); err != nil {
			return nil, err
		}
		cost, err := curved(w, h)
		if err != nil {
			return nil, err
		}
		return gorgonia.Add(cost, token)
	}
}

func TestGradientAroundARing(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { checkGradient(t, n, []int{3}, ring(false)) })
	}
}

func TestARingInWhichAllSendFirstIsAnError(t *testing.T) {
	errs, err := runRanks(3, func(w *dist.World) error {
		x := input(gorgonia.NewGraph(), gtensor.Float64, "x", []float64{1}, 1)
		if _, err := ring(true)(w, x); err != nil {
			return err
		}
		return run(x.Graph())
	})
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range errs {
		if err := wantError(ops.Cause(err), dist.ErrMismatch, "send #1", fmt.Sprintf("rank %d/3", r)); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
