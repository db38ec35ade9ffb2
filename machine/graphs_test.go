package machine_test

import (
	"math/rand/v2"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

// net is a graph over a batch, with its cost and gradients.
type net struct {
	g      *G.ExprGraph
	x, y   *G.Node
	params G.Nodes
	out    *G.Node
	cost   *G.Node
	rng    *rand.Rand
}

func newNet() *net { return &net{g: G.NewGraph(), rng: rand.New(rand.NewPCG(3, 4))} }

// values returns n normal numbers.
func (n *net) values(size int, scale float64) []float32 {
	v := make([]float32, size)
	for i := range v {
		v[i] = float32(scale * n.rng.NormFloat64())
	}
	return v
}

func (n *net) tensor(scale float64, shape ...int) *gtensor.Dense {
	return gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(n.values(gtensor.Shape(shape).TotalSize(), scale)))
}

func (n *net) param(name string, scale float64, shape ...int) *G.Node {
	p := G.NewTensor(n.g, G.Float32, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(n.tensor(scale, shape...)))
	n.params = append(n.params, p)
	return p
}

func (n *net) input(name string, shape ...int) *G.Node {
	return G.NewTensor(n.g, G.Float32, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(n.tensor(1, shape...)))
}

func (n *net) affine(name string, x *G.Node, in, out int) *G.Node {
	w, b := n.param("w"+name, 1/float64(in), in, out), n.param("b"+name, 0.1, 1, out)
	return G.Must(G.BroadcastAdd(G.Must(G.Mul(x, w)), b, nil, []byte{0}))
}

// classify ends a network with the cross-entropy of rows of logits, and differentiates it.
func (n *net) classify(logits *G.Node, rows, classes int) *net {
	n.out = logits
	hot := make([]float32, rows*classes)
	for r := range rows {
		hot[r*classes+n.rng.IntN(classes)] = 1
	}
	n.y = G.NewMatrix(n.g, G.Float32, G.WithName("y"), G.WithShape(rows, classes),
		G.WithValue(gtensor.New(gtensor.WithShape(rows, classes), gtensor.WithBacking(hot))))
	log := G.Must(G.Log(G.Must(G.SoftMax(logits, 1))))
	n.cost = G.Must(G.Neg(G.Must(G.Mean(G.Must(G.Sum(G.Must(G.HadamardProd(n.y, log)), 1))))))
	return n.differentiate()
}

func (n *net) differentiate() *net {
	if _, err := G.Grad(n.cost, n.params...); err != nil {
		panic(err)
	}
	return n
}

// small is a perceptron on few samples.
func small(rows int) *net {
	n := newNet()
	n.x = n.input("x", rows, 5)
	h := G.Must(G.Rectify(n.affine("0", n.x, 5, 7)))
	return n.classify(n.affine("1", h, 7, 3), rows, 3)
}

// perceptron is the one of the benchmarks.
func perceptron() *net {
	n := newNet()
	n.x = n.input("x", 128, 784)
	h := G.Must(G.Rectify(n.affine("0", n.x, 784, 512)))
	h = G.Must(G.Rectify(n.affine("1", h, 512, 512)))
	return n.classify(n.affine("2", h, 512, 10), 128, 10)
}

func convolutional() *net {
	n := newNet()
	n.x = n.input("x", 64, 1, 28, 28)
	layer := func(name string, x *G.Node, in, out int) *G.Node {
		w := n.param(name, 0.1, out, in, 5, 5)
		y := G.Must(G.Conv2d(x, w, gtensor.Shape{5, 5}, []int{2, 2}, []int{1, 1}, []int{1, 1}))
		return G.Must(G.MaxPool2D(G.Must(G.Rectify(y)), gtensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
	}
	h := layer("conv1", layer("conv0", n.x, 1, 8), 8, 16)
	return n.classify(n.affine("0", G.Must(G.Reshape(h, gtensor.Shape{64, 16 * 49})), 16*49, 10), 64, 10)
}

func transformer() *net {
	const batch, words, width, heads, each = 8, 64, 128, 4, 32
	n := newNet()
	n.x = n.input("x", batch*words, width)
	norm := func(name string, x *G.Node) *G.Node {
		mean := G.Must(G.Reshape(G.Must(G.Mean(x, 1)), gtensor.Shape{batch * words, 1}))
		x = G.Must(G.BroadcastSub(x, mean, nil, []byte{1}))
		deviation := G.Must(G.Sqrt(G.Must(G.Add(G.Must(G.Mean(G.Must(G.Square(x)), 1)), G.NewConstant(float32(1e-5))))))
		x = G.Must(G.BroadcastHadamardDiv(x, G.Must(G.Reshape(deviation, gtensor.Shape{batch * words, 1})), nil, []byte{1}))
		return G.Must(G.BroadcastHadamardProd(x, n.param("gain"+name, 1, 1, width), nil, []byte{0}))
	}
	h := norm("0", n.x)
	head := func(name string, axes ...int) *G.Node {
		y := G.Must(G.Reshape(G.Must(G.Mul(h, n.param(name, 0.05, width, width))), gtensor.Shape{batch, words, heads, each}))
		shape := gtensor.Shape{batch * heads, words, each}
		if axes[2] != 1 && axes[3] == 1 {
			shape = gtensor.Shape{batch * heads, each, words}
		}
		return G.Must(G.Reshape(G.Must(G.Transpose(y, axes...)), shape))
	}
	scores := G.Must(G.BatchedMatMul(head("query", 0, 2, 1, 3), head("key", 0, 2, 3, 1)))
	p := G.Must(G.SoftMax(G.Must(G.HadamardProd(scores, G.NewConstant(float32(0.17677669)))), 2))
	a := G.Must(G.Reshape(G.Must(G.BatchedMatMul(p, head("value", 0, 2, 1, 3))), gtensor.Shape{batch, heads, words, each}))
	a = G.Must(G.Reshape(G.Must(G.Transpose(a, 0, 2, 1, 3)), gtensor.Shape{batch * words, width}))
	x := G.Must(G.Add(n.x, G.Must(G.Mul(a, n.param("out", 0.05, width, width)))))
	f := G.Must(G.Tanh(n.affine("1", norm("1", x), width, 2*width)))
	n.out = G.Must(G.Add(x, n.affine("2", f, 2*width, width)))
	n.y = n.input("y", batch*words, width)
	n.cost = G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(n.out, n.y))))))
	return n.differentiate()
}

// benchmarkLarge measures a step of a network with both machines, each with its own Adam.
func benchmarkLarge(b *testing.B, build func() *net) {
	for _, way := range []struct {
		name string
		make func(n *net) (G.VM, G.Solver, error)
	}{
		{"tape", func(n *net) (G.VM, G.Solver, error) {
			return G.NewTapeMachine(n.g, G.BindDualValues(n.params...)), G.NewAdamSolver(), nil
		}},
		{"machine", compiledStep},
	} {
		b.Run(way.name, func(b *testing.B) {
			n := build()
			m, solver, err := way.make(n)
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			params := G.NodesToValueGrads(n.params)
			b.ReportAllocs()
			for b.Loop() {
				if err := m.RunAll(); err != nil {
					b.Fatal(err)
				}
				if err := solver.Step(params); err != nil {
					b.Fatal(err)
				}
				m.Reset()
			}
		})
	}
}

// compiledStep returns a step of a machine with its own solver.
func compiledStep(n *net) (G.VM, G.Solver, error) {
	m, err := machine.New(n.g, machine.Config{})
	if err != nil {
		return nil, nil, err
	}
	solver, err := m.NewSolver(optim.Config{Name: optim.Adam})
	return m, solver, err
}
