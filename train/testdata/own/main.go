// Command own learns which points of a plane are in a circle, on any number of ranks.
package main

import (
	"fmt"
	"math/rand/v2"
	"os"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/train"
)

func main() {
	p := train.Program{Name: "own", About: "Learn which points of a plane are in a circle.", Open: open}
	os.Exit(p.Execute(os.Args[1:], os.Stdout, os.Stderr))
}

// points are the samples: two coordinates each, and 1 for those in the circle. The first trained
// ones are for training, the others for the test.
type points struct {
	seed   uint64
	at     [][2]float32
	inside []float32
}

const (
	trained = 4000
	tested  = 1000
)

func open(c *config.Config) (train.Problem, error) {
	p := &points{seed: uint64(c.Run.Seed), at: make([][2]float32, trained+tested), inside: make([]float32, trained+tested)}
	r := rand.New(rand.NewPCG(p.seed, 1))
	for i := range p.at {
		x, y := float32(r.NormFloat64()), float32(r.NormFloat64())
		if p.at[i] = [2]float32{x, y}; x*x+y*y < 1.4 { // about half of them
			p.inside[i] = 1
		}
	}
	return p, nil
}

func (p *points) Len() int                { return trained }
func (p *points) Digest() string          { return fmt.Sprintf("%d points of seed %d", len(p.at), p.seed) }
func (p *points) Tests() train.Tests      { return tests{p} }
func (p *points) Describe() (_, _ string) { return "points of a plane", "mlp 2-16-1" }

// New returns the graph for a batch of so many rows. The cost is the weighted sum of squared
// errors.
func (p *points) New(rows int, _ []*tensor.Dense) (*train.Model, error) {
	r := rand.New(rand.NewPCG(p.seed, 2))
	random := func(_ tensor.Dtype, shape ...int) any {
		v := make([]float32, tensor.Shape(shape).TotalSize())
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return v
	}
	g := G.NewGraph()
	node := func(name string, init G.InitWFn, shape ...int) *G.Node {
		return G.NewMatrix(g, G.Float32, G.WithName(name), G.WithShape(shape...), G.WithInit(init))
	}
	x, y, w := node("x", G.Zeroes(), rows, 2), node("y", G.Zeroes(), rows, 1), node("w", G.Zeroes(), rows, 1)
	params := G.Nodes{node("w1", random, 2, 16), node("b1", G.Zeroes(), 1, 16), node("w2", random, 16, 1), node("b2", G.Zeroes(), 1, 1)}
	layer := func(x, w, b *G.Node) *G.Node { return G.Must(G.BroadcastAdd(G.Must(G.Mul(x, w)), b, nil, []byte{0})) }
	hidden := G.Must(G.Tanh(layer(x, params[0], params[1])))
	output := G.Must(G.Sigmoid(layer(hidden, params[2], params[3])))
	errors := G.Must(G.Square(G.Must(G.Sub(output, y))))
	cost := G.Must(G.Sum(G.Must(G.HadamardProd(errors, w))))
	return &train.Model{Inputs: G.Nodes{x, y, w}, Params: params, Cost: cost, Output: output}, nil
}

// Fill sets the inputs to samples. The other rows have weight 0.
func (p *points) Fill(m *train.Model, samples []int) error {
	input := func(i int) []float32 { return m.Inputs[i].Value().Data().([]float32) }
	x, y, w := input(0), input(1), input(2)
	clear(w)
	for row, i := range samples {
		copy(x[2*row:], p.at[i][:])
		y[row], w[row] = p.inside[i], 1/float32(len(samples))
	}
	return nil
}

// tests are the samples after those for training.
type tests struct{ *points }

func (tests) Len() int      { return tested }
func (tests) Rows() int     { return 100 }
func (tests) HasLoss() bool { return true } // Fill sets y and w too

func (t tests) Fill(m *train.Model, first, n int) error {
	samples := make([]int, n)
	for i := range samples {
		samples[i] = trained + first + i
	}
	return t.points.Fill(m, samples)
}

func (t tests) Count(m *train.Model, first, n int) (right, all int) {
	for i, p := range m.Output.Value().Data().([]float32)[:n] {
		if (p > 0.5) == (t.inside[trained+first+i] == 1) {
			right++
		}
	}
	return right, n
}
