package machine_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/machine"
)

// rows is some rows of a value.
func rows(t *testing.T, v G.Value, from, to int) *gtensor.Dense {
	t.Helper()
	s, err := v.(*gtensor.Dense).Slice(G.S(from, to))
	if err != nil {
		t.Fatal(err)
	}
	return s.Materialize().(*gtensor.Dense)
}

// images is a small convolutional network.
func images(batch int) *net {
	n := newNet()
	n.x = n.input("x", batch, 1, 6, 6)
	w := n.param("filter", 0.3, 3, 1, 3, 3)
	h := G.Must(G.Rectify(G.Must(G.Conv2d(n.x, w, gtensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))))
	h = G.Must(G.MaxPool2D(h, gtensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
	return n.classify(n.affine("0", G.Must(G.Reshape(h, gtensor.Shape{batch, 27})), 27, 3), batch, 3)
}

// TestANewBatchIsCompiledAnew runs the last, shorter batch of an epoch, and compares with a graph
// built for it.
func TestANewBatchIsCompiledAnew(t *testing.T) {
	for name, build := range map[string]func(int) *net{"perceptron": small, "convolutional": images} {
		t.Run(name, func(t *testing.T) {
			n, short := build(6), build(4)
			m := newMachine(t, n.g, plain, append(G.Nodes{n.cost, n.out}, gradients(n)...)...)
			whole := map[*G.Node]G.Value{n.x: n.x.Value(), n.y: n.y.Value()}
			for i, p := range short.params {
				let(t, p, n.params[i].Value())
			}
			let(t, short.x, rows(t, n.x.Value(), 0, 4))
			let(t, short.y, rows(t, n.y.Value(), 0, 4))
			run(t, m)
			first := floats(t, n.cost.Value())
			run(t, newMachine(t, short.g, plain, append(G.Nodes{short.cost, short.out}, gradients(short)...)...))
			for range 2 {
				for _, x := range []*G.Node{n.x, n.y} {
					if err := m.Let(x, rows(t, whole[x], 0, 4)); err != nil {
						t.Fatal(err)
					}
				}
				run(t, m)
				compare(t, "cost", n.cost.Value(), short.cost.Value())
				compare(t, "logits", n.out.Value(), short.out.Value())
				for i, p := range n.params {
					compare(t, "gradient of "+p.Name(), p.Deriv().Value(), short.params[i].Deriv().Value())
				}
				for x, v := range whole {
					if err := m.Let(x, v); err != nil {
						t.Fatal(err)
					}
				}
				run(t, m)
				want(t, "the cost of the whole batch", n.cost.Value(), first...)
			}
		})
	}
}

func gradients(n *net) G.Nodes {
	var all G.Nodes
	for _, p := range n.params {
		all = append(all, p.Deriv())
	}
	return all
}

// compare compares two float32 values, within rounding errors of sums.
func compare(t *testing.T, what string, a, b G.Value) {
	t.Helper()
	x, y := floats(t, a), floats(t, b)
	if len(x) != len(y) {
		t.Fatalf("%s has %d elements, want %d", what, len(x), len(y))
	}
	for i := range x {
		if !(math.Abs(x[i]-y[i]) <= 3e-6*math.Max(1, math.Abs(y[i]))) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, x[i], y[i])
		}
	}
}

// column is a network whose samples are columns: the gradient of its sum reshapes (samples) to (1,
// samples).
func column(samples int) *net {
	n := newNet()
	n.x = n.input("x", 3, samples)
	h := G.Must(G.Tanh(G.Must(G.Mul(n.param("w", 0.5, 4, 3), n.x))))
	n.out = G.Must(G.Sum(G.Must(G.Square(h)), 0))
	n.cost = G.Must(G.Mean(G.Must(G.Square(n.out))))
	return n.differentiate()
}

// words is a network over (word, sample), with another order of its input.
func words(samples int) *net {
	const words, width = 4, 3
	n := newNet()
	n.x = n.input("x", samples, words, width)
	h := G.Must(G.Reshape(G.Must(G.Transpose(n.x, 1, 0, 2)), gtensor.Shape{words * samples, width}))
	h = G.Must(G.Tanh(G.Must(G.Mul(h, n.param("w", 0.5, width, width)))))
	n.out = G.Must(G.Sum(G.Must(G.Reshape(h, gtensor.Shape{words, samples, width})), 0))
	n.cost = G.Must(G.Mean(G.Must(G.Square(n.out))))
	return n.differentiate()
}

// gates is a network that cuts columns of all its samples.
func gates(samples int) *net {
	n := newNet()
	n.x = n.input("x", samples, 3)
	h := G.Must(G.Mul(n.x, n.param("w", 0.5, 3, 8)))
	open, value := G.Must(G.Slice(h, nil, G.S(0, 4))), G.Must(G.Slice(h, nil, G.S(4, 8)))
	n.out = G.Must(G.HadamardProd(G.Must(G.Sigmoid(open)), G.Must(G.Tanh(value))))
	n.cost = G.Must(G.Mean(G.Must(G.Square(n.out))))
	return n.differentiate()
}

// joined is a network that concatenates a part without samples and two halves of a batch.
func joined(samples int) *net {
	n := newNet()
	n.x = n.input("x", samples, 3)
	w, scale := n.param("w", 0.5, 3, 3), G.NewScalar(n.g, G.Float32, G.WithName("scale"), G.WithValue(float32(0.75)))
	n.params = append(n.params, scale)
	h := G.Must(G.Tanh(G.Must(G.Mul(n.x, w))))
	n.out = G.Must(G.Concat(0, w, h, G.Must(G.Add(n.x, scale))))
	n.cost = G.Must(G.Mean(G.Must(G.Square(n.out))))
	return n.differentiate()
}

// TestSamplesNeedNotBeFirst gives graphs more and fewer samples, on any axis, and compares with
// graphs built for them.
func TestSamplesNeedNotBeFirst(t *testing.T) {
	for name, build := range map[string]func(int) *net{"columns": column, "second of words": words, "images": images, "gates": gates, "joined": joined} {
		for _, samples := range []int{16, 12, 4, 2, 1} {
			n, other := build(8), build(samples)
			m := newMachine(t, n.g, plain, append(G.Nodes{n.cost, n.out}, gradients(n)...)...)
			run(t, m)
			for i, p := range n.params {
				let(t, other.params[i], p.Value())
			}
			for x, v := range map[*G.Node]*G.Node{n.x: other.x, n.y: other.y} {
				if x == nil {
					continue
				}
				if err := m.Let(x, v.Value()); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.RunAll(); err != nil {
				t.Fatalf("%s, %d samples: %v", name, samples, err)
			}
			run(t, newMachine(t, other.g, plain, append(G.Nodes{other.cost, other.out}, gradients(other)...)...))
			compare(t, name+": cost", n.cost.Value(), other.cost.Value())
			compare(t, name+": result", n.out.Value(), other.out.Value())
			for i, p := range n.params {
				compare(t, name+": gradient of "+p.Name(), p.Deriv().Value(), other.params[i].Deriv().Value())
			}
		}
	}
}

// timeMajor is a network over (step, sample), the order of its input.
func timeMajor(samples int) *net {
	const steps, width = 4, 3
	n := newNet()
	n.x = n.input("x", steps, samples, width)
	h := G.Must(G.Mul(G.Must(G.Reshape(n.x, gtensor.Shape{steps * samples, width})), n.param("w", 0.5, width, width)))
	n.out = G.Must(G.Sum(G.Must(G.Reshape(G.Must(G.Tanh(h)), gtensor.Shape{steps, samples, width})), 0))
	n.cost = G.Must(G.Mean(G.Must(G.Square(n.out))))
	return n.differentiate()
}

// halves cuts a net's result over (word, sample), of four words, into two halves of two words of
// all samples.
func halves(over func(n *net, samples int) *G.Node) func(int) *net {
	return func(samples int) *net {
		n := newNet()
		n.out = G.Must(G.Reshape(G.Must(G.Reshape(over(n, samples), gtensor.Shape{4 * samples})), gtensor.Shape{2, 2 * samples}))
		return n
	}
}

func turned(n *net, samples int) *G.Node {
	n.x = n.input("x", samples, 4)
	return G.Must(G.Transpose(n.x, 1, 0))
}

func outer(n *net, samples int) *G.Node {
	n.x = n.input("x", samples)
	return G.Must(G.OuterProd(n.param("w", 0.5, 4), n.x))
}

func contracted(n *net, samples int) *G.Node {
	n.x = n.input("x", samples, 3)
	return G.Must(G.Tensordot([]int{1}, []int{1}, n.param("w", 0.5, 4, 3), n.x))
}

// TestSamplesThatNothingTellsApart gives more samples to graphs that were built with equal numbers
// of samples and words, or that slice words and samples from one dimension. If words come first, a
// reshape must not mistake them for the samples.
func TestSamplesThatNothingTellsApart(t *testing.T) {
	for name, build := range map[string]func(int) *net{
		"transposed": words, "input": timeMajor, "halves": halves(turned), "outer": halves(outer), "contracted": halves(contracted),
	} {
		n := build(4)
		m := newMachine(t, n.g, plain)
		if err := m.Let(n.x, build(6).x.Value()); err != nil {
			t.Fatal(err)
		}
		if err := m.RunAll(); !errors.Is(err, machine.ErrShape) {
			t.Errorf("%s: error %v, want ErrShape", name, err)
		}
		if err := m.Let(n.x, build(4).x.Value()); err != nil {
			t.Fatal(err)
		}
		run(t, m)
	}
}

// tokens is attention among the words of each sample, with a result for each word.
func tokens(samples int) *net {
	const words, width = 3, 4
	n := newNet()
	n.x = n.input("x", samples, words, width)
	project := func(name string) *G.Node {
		flat := G.Must(G.Reshape(n.x, gtensor.Shape{samples * words, width}))
		return G.Must(G.Reshape(n.affine(name, flat, width, width), gtensor.Shape{samples, words, width}))
	}
	scores := G.Must(G.SoftMax(G.Must(G.BatchedMatMul(project("q"), project("k"), false, true)), 2))
	h := G.Must(G.Reshape(G.Must(G.BatchedMatMul(scores, project("v"))), gtensor.Shape{samples * words, width}))
	n.out = G.Must(G.Tanh(n.affine("o", h, width, 2)))
	n.cost = G.Must(G.Mean(G.Must(G.Square(n.out))))
	return n.differentiate()
}

// TestGraphsOfOneSampleTakeMore gives five samples to graphs that were built with one. Words must
// attend to those of their own sample. If samples are columns, it is ambiguous which of two
// dimensions of one element they are.
func TestGraphsOfOneSampleTakeMore(t *testing.T) {
	n, other := tokens(1), tokens(5)
	m := newMachine(t, n.g, plain)
	for i, p := range n.params {
		let(t, other.params[i], p.Value())
	}
	if err := m.Let(n.x, other.x.Value()); err != nil {
		t.Fatal(err)
	}
	run(t, m)
	run(t, newMachine(t, other.g, plain))
	compare(t, "cost", n.cost.Value(), other.cost.Value())
	for i, p := range n.params {
		compare(t, "gradient of "+p.Name(), p.Deriv().Value(), other.params[i].Deriv().Value())
	}
	n = column(1)
	m = newMachine(t, n.g, plain)
	if err := m.Let(n.x, column(5).x.Value()); err != nil {
		t.Fatal(err)
	}
	if err := m.RunAll(); !errors.Is(err, machine.ErrShape) {
		t.Errorf("columns: error %v, want ErrShape", err)
	}
}

// TestOneSampleIsNoScalar leaves an input with six samples and gives another input one sample; that
// must not broadcast.
func TestOneSampleIsNoScalar(t *testing.T) {
	n := newNet()
	x, y := n.input("x", 6, 1), n.input("y", 6, 1)
	m := newMachine(t, n.g, plain, G.Must(G.Sub(x, y)))
	if err := m.Let(x, n.tensor(1, 1, 1)); err != nil {
		t.Fatal(err)
	}
	if err := m.RunAll(); !errors.Is(err, machine.ErrShape) {
		t.Errorf("error %v, want ErrShape", err)
	}
}

func TestANewBatchIsRefused(t *testing.T) {
	n := small(6)
	cfg := plain
	cfg.NewBatch = machine.Refuse
	m := newMachine(t, n.g, cfg)
	run(t, m)
	if err := m.Let(n.x, rows(t, n.x.Value(), 0, 4)); err != nil {
		t.Fatal(err)
	}
	if err := m.RunAll(); !errors.Is(err, machine.ErrShape) || !strings.Contains(err.Error(), `"x"`) || !strings.Contains(err.Error(), "[4 5]") {
		t.Errorf("error %v, want ErrShape, the input and its shape", err)
	}
}

func TestAParameterKeepsItsShape(t *testing.T) {
	n := small(6)
	m := newMachine(t, n.g, plain)
	if err := m.Let(n.params[0], rows(t, n.params[0].Value(), 0, 3)); err != nil {
		t.Fatal(err)
	}
	if err := m.RunAll(); !errors.Is(err, machine.ErrShape) || !strings.Contains(err.Error(), `"w0"`) {
		t.Errorf("error %v, want ErrShape and the parameter", err)
	}
	if err := m.Let(n.x, vector(1, 2)); !errors.Is(err, machine.ErrShape) {
		t.Errorf("a vector for a matrix: error %v, want ErrShape", err)
	}
	if err := m.Let(n.x, nil); !errors.Is(err, machine.ErrNoValue) {
		t.Errorf("no value: error %v, want ErrNoValue", err)
	}
}

// TestReadFollowsShapes reads a value whose shape changes while the number of its elements does
// not.
func TestReadFollowsShapes(t *testing.T) {
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float32, G.WithName("x"), G.WithShape(2, 6))
	y := G.Must(G.Square(x))
	var read G.Value
	G.Read(y, &read)
	m := newMachine(t, g, plain)
	for _, shape := range []gtensor.Shape{{2, 6}, {3, 4}, {12, 1}, {2, 6}} {
		v := gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(gtensor.Range(gtensor.Float32, 0, 12)))
		if err := m.Let(x, v); err != nil {
			t.Fatal(err)
		}
		run(t, m)
		if !slices.Equal(read.Shape(), shape) || !slices.Equal(floats(t, read), floats(t, y.Value())) {
			t.Errorf("read %v of shape %v, want %v of %v", floats(t, read), read.Shape(), floats(t, y.Value()), shape)
		}
	}
}

// TestABatchOfNothingIsRefused, and the next run succeeds.
func TestABatchOfNothingIsRefused(t *testing.T) {
	n := small(4)
	m := newMachine(t, n.g, plain)
	run(t, m)
	was, before := n.x.Value(), floats(t, n.cost.Value())
	if err := m.Let(n.x, gtensor.New(gtensor.WithShape(0, was.Shape()[1]), gtensor.Of(gtensor.Float32))); err != nil {
		t.Fatal(err)
	}
	if err := m.RunAll(); !errors.Is(err, machine.ErrShape) || !strings.Contains(err.Error(), n.x.Name()) {
		t.Errorf("%v, want another shape of %q", err, n.x.Name())
	}
	if err := m.Let(n.x, was); err != nil {
		t.Fatal(err)
	}
	run(t, m)
	want(t, "cost", n.cost.Value(), before...)
}

// Parts of a batch with different lengths have the random numbers of the whole batch, if each sets
// the number of its first sample.
func TestPiecesOfABatchDropWhatTheBatchDoes(t *testing.T) {
	cfg := plain
	cfg.Seed = 7
	drop := func(first, rows int) []float64 {
		g := G.NewGraph()
		x := G.NewMatrix(g, G.Float32, G.WithName("x"), G.WithShape(rows, 10), G.WithInit(G.Ones()))
		y := G.Must(G.Dropout(x, 0.5))
		m := newMachine(t, g, cfg)
		m.SetFirstSample(uint64(first))
		run(t, m)
		return floats(t, y.Value())
	}
	if got, want := append(drop(0, 3), drop(3, 2)...), drop(0, 5); !slices.Equal(got, want) {
		t.Errorf("pieces of 3 and of 2 samples drop %v, and the 5 together %v", got, want)
	}
}
