package machinetest

import (
	"fmt"
	"math"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// Random compares a machine with the oracle on random small graphs, drawn by rapid: a failure is
// shrunk to a short recipe, which Graph turns into the graph again. Of the options, Steps is 3
// unless it is set.
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

// Recipe draws the bytes from which Graph makes a graph.
func Recipe() *rapid.Generator[[]uint8] { return rapid.SliceOfN(rapid.Uint8(), 4, 40) }

// Graph is a graph that follows from a recipe, any bytes: each byte chooses an op, an operand or a
// size.
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

// next is the next byte of the recipe, as a number below n; 0 when there is none left.
func (r *random) next(n int) int {
	if len(r.recipe) == 0 {
		return 0
	}
	v := int(r.recipe[0]) % n
	r.recipe = r.recipe[1:]
	return v
}

// graph is the cost: the sum of the means of all terms that nothing else reads, and maybe of a
// cross-entropy.
func (r *random) graph() *G.Node {
	r.soft = map[*G.Node]bool{}
	shape := []int{2 + r.next(3), 2 + r.next(3), 2 + r.next(2)}[:2+r.next(2)]
	shape[0] = r.Rows
	x := r.input("x", source{}, shape...)
	r.pool = append(r.pool, term{node: x, most: 3})
	r.hadamard(&r.pool[0]) // for at least one parameter
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

// add puts a node into the pool, squashed if it may be large.
func (r *random) add(n *G.Node, most float64) {
	if r.err != nil {
		return
	}
	if most > limit {
		n, most = r.apply(G.Tanh, n), 1
	}
	r.pool = append(r.pool, term{node: n, most: most})
}

// of is the node of a term, which is read from now on.
func (r *random) of(t *term) *G.Node {
	t.read = true
	return t.node
}

// squash is tanh of a term. Around a reshape and a slice, which share memory, it keeps elementwise
// ops from overwriting operands of others.
func (r *random) squash(t *term) *G.Node { return r.apply(G.Tanh, r.of(t)) }

// weights returns a parameter of a shape: a new one, or an existing one.
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

// like is a term of the same shape, which may be t itself.
func (r *random) like(t *term) *term {
	var fits []*term
	for i := range r.pool {
		if r.pool[i].node.Shape().Eq(t.node.Shape()) {
			fits = append(fits, &r.pool[i])
		}
	}
	return fits[r.next(len(fits))]
}

// constant is a term and a constant.
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

// same is an elementwise op of two terms of one shape.
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

// hadamard is a term times a parameter of its shape.
func (r *random) hadamard(t *term) {
	w := r.weights(t.node.Shape().Clone()...)
	r.add(r.both(G.HadamardProd, r.of(t), w.node), t.most*w.most)
}

// smooth is a function without a kink.
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

// positive adds a function of a positive term.
func (r *random) positive(t *term) {
	x := r.both(G.Add, r.apply(G.Square, r.squash(t)), r.number(0.5))
	op := []func(*G.Node) (*G.Node, error){G.Sqrt, G.Log, G.Inverse, G.Log1p}[r.next(4)]
	r.add(r.apply(op, x), 2)
}

// rectify is a function with a kink.
func (r *random) rectify(t *term) {
	leaky := func(x *G.Node) (*G.Node, error) { return G.LeakyRelu(x, 0.2) }
	op := []func(*G.Node) (*G.Node, error){G.Rectify, leaky, G.Abs}[r.next(3)]
	r.add(r.apply(op, r.of(t)), t.most)
}
