package machinetest

import (
	"fmt"
	"math"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// Random compares a machine with the oracle on small random graphs, drawn by rapid. A failure is
// shrunk to a short recipe, from which Graph builds the graph again. Steps is 3 by default.
func Random(t *testing.T, newVM NewVM, o Options) {
	t.Helper()
	if o.Steps == 0 {
		o.Steps = 3
	}
	rapid.Check(t, func(t *rapid.T) {
		f := Graph(Recipe().Draw(t, "recipe"))
		judged, err := f.New(o.config())
		if err != nil {
			t.Fatalf("%v", err)
		}
		got, err := Train(judged, newVM, o, nil)
		if err != nil {
			t.Fatalf("%v", err)
		}
		want, err := Oracle(f, o, nil)
		if err != nil {
			t.Fatalf("%v", err)
		}
		for _, line := range Differences(want, got, o.Tolerance, o.IgnoreStats) {
			t.Errorf("%s", line)
		}
	})
}

// Recipe draws an argument of Graph.
func Recipe() *rapid.Generator[[]uint8] { return rapid.SliceOfN(rapid.Uint8(), 4, 40) }

// Graph builds a graph from a recipe of any bytes: each byte selects an op, an operand or a size.
func Graph(recipe []uint8) Builder {
	return Builder{Name: fmt.Sprintf("random %v", recipe), Rows: 2, build: func(b *build) *G.Node {
		r := &random{build: b, recipe: recipe}
		return r.graph()
	}}
}

// random builds a graph from a recipe.
type random struct {
	*build
	recipe []uint8
	pool   []term
	params []term
	soft   map[*G.Node]bool // has a softmax already
}

// term is a node with a bound on the size of its elements, so that no chain of ops overflows.
type term struct {
	node *G.Node
	most float64
	read bool
}

// limit is the bound above which a term is squashed.
const limit = 20

// next returns the next byte of the recipe modulo n; 0 at its end.
func (r *random) next(n int) int {
	if len(r.recipe) == 0 {
		return 0
	}
	v := int(r.recipe[0]) % n
	r.recipe = r.recipe[1:]
	return v
}

// graph returns the cost: the sum of the means of all unread terms, and sometimes of a
// cross-entropy.
func (r *random) graph() *G.Node {
	r.soft = map[*G.Node]bool{}
	shape := []int{2 + r.next(3), 2 + r.next(3), 2 + r.next(2)}[:2+r.next(2)]
	shape[0] = r.Rows
	x := r.input("x", source{}, shape...)
	r.pool = append(r.pool, term{node: x, most: 3})
	r.hadamard(&r.pool[0]) // adds a parameter
	how := r.next(4)
	for len(r.recipe) > 0 && r.err == nil && len(r.pool) < 16 {
		kinds := []func(*term){
			r.smooth, r.positive, r.rectify, r.same, r.hadamard, r.broadcasted, r.constant, r.scaled,
			r.matmul, r.batched, r.centered, r.reduced, r.reshaped, r.transposed, r.cut, r.softmax,
		}
		kind := kinds[r.next(len(kinds))]
		kind(&r.pool[r.next(len(r.pool))])
	}
	cost := r.likelihood(how)
	for i := range r.pool {
		if r.pool[i].read || r.err != nil {
			continue
		}
		mean := r.reduce(G.Mean, r.squash(&r.pool[i]))
		if cost == nil {
			cost = mean
		} else {
			cost = r.both(G.Add, cost, mean)
		}
	}
	return cost
}

// add adds a node to the pool, squashed if it may be large.
func (r *random) add(n *G.Node, most float64) {
	if r.err != nil {
		return
	}
	if most > limit {
		n, most = r.apply(G.Tanh, n), 1
	}
	r.pool = append(r.pool, term{node: n, most: most})
}

// of returns the node of a term and marks it read.
func (r *random) of(t *term) *G.Node {
	t.read = true
	return t.node
}

// squash returns tanh of a term. Before a reshape or slice, which share memory, it prevents
// elementwise ops from writing into memory that others still read.
func (r *random) squash(t *term) *G.Node { return r.apply(G.Tanh, r.of(t)) }

// weights returns a parameter of a shape: a new one or an existing one.
func (r *random) weights(shape ...int) term {
	if r.next(3) == 0 {
		for _, p := range r.params {
			if p.node.Shape().Eq(gtensor.Shape(shape)) {
				return p
			}
		}
	}
	p := term{node: r.param(fmt.Sprintf("w%d", len(r.params)), 0, 0.5, shape...), most: 2}
	if r.err == nil {
		r.params = append(r.params, p)
	}
	return p
}

// like returns a term of the same shape, which may be t itself.
func (r *random) like(t *term) *term {
	var fits []*term
	for i := range r.pool {
		if r.pool[i].node.Shape().Eq(t.node.Shape()) {
			fits = append(fits, &r.pool[i])
		}
	}
	return fits[r.next(len(fits))]
}

// constant combines a term and a constant.
func (r *random) constant(t *term) {
	c := r.number([]float64{0.5, -1.5, 2}[r.next(3)])
	op := []func(x, y *G.Node) (*G.Node, error){G.HadamardProd, G.Add, G.Sub, G.HadamardDiv}[r.next(4)]
	if r.next(2) == 0 {
		r.add(r.both(op, r.of(t), c), 2*t.most+2)
		return
	}
	if r.next(2) == 0 { // the constant on the left
		r.add(r.both(G.Sub, c, r.of(t)), t.most+2)
		return
	}
	r.add(r.both(G.HadamardProd, c, r.of(t)), 2*t.most)
}

// same combines two terms of one shape by an elementwise op.
func (r *random) same(t *term) {
	o := r.like(t)
	switch r.next(4) {
	case 0:
		r.add(r.both(G.Add, r.of(t), r.of(o)), t.most+o.most)
	case 1:
		r.add(r.both(G.Sub, r.of(t), r.of(o)), t.most+o.most)
	case 2:
		r.add(r.both(G.HadamardProd, r.of(t), r.of(o)), t.most*o.most)
	default: // x/(1+y²)
		y := r.both(G.Add, r.apply(G.Square, r.of(o)), r.number(1))
		r.add(r.both(G.HadamardDiv, r.of(t), y), t.most)
	}
}

// hadamard multiplies a term by a parameter of its shape.
func (r *random) hadamard(t *term) {
	w := r.weights(t.node.Shape().Clone()...)
	r.add(r.both(G.HadamardProd, r.of(t), w.node), t.most*w.most)
}

// smooth applies a function without a kink.
func (r *random) smooth(t *term) {
	x := r.of(t)
	switch r.next(8) {
	case 0:
		r.add(r.apply(G.Sigmoid, x), 1)
	case 1:
		r.add(r.apply(G.Softplus, x), t.most+1)
	case 2:
		r.add(r.apply(G.Square, x), t.most*t.most)
	case 3:
		r.add(r.apply(G.Neg, x), t.most)
	case 4:
		r.add(r.apply(G.Sin, x), 1)
	case 5:
		r.add(r.apply(G.Cos, x), 1)
	case 6:
		r.add(r.apply(G.Cube, x), math.Pow(t.most, 3))
	default:
		r.add(r.apply(G.Exp, r.apply(G.Tanh, x)), math.E)
	}
}

// positive applies a function of positive numbers.
func (r *random) positive(t *term) {
	x := r.both(G.Add, r.apply(G.Square, r.squash(t)), r.number(0.5))
	op := []func(*G.Node) (*G.Node, error){G.Sqrt, G.Log, G.Inverse, G.Log1p}[r.next(4)]
	r.add(r.apply(op, x), 2)
}

// rectify applies a function with a kink.
func (r *random) rectify(t *term) {
	leaky := func(x *G.Node) (*G.Node, error) { return G.LeakyRelu(x, 0.2) }
	op := []func(*G.Node) (*G.Node, error){G.Rectify, leaky, G.Abs}[r.next(3)]
	r.add(r.apply(op, r.of(t)), t.most)
}
