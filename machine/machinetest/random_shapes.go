package machinetest

import (
	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// broadcasted combines a term and a parameter of size 1 along an axis.
func (r *random) broadcasted(t *term) {
	shape := t.node.Shape().Clone()
	axis := r.next(len(shape))
	shape[axis] = 1
	axes := []byte{byte(axis)}
	w := r.weights(shape...)
	switch r.next(4) {
	case 0:
		r.add(r.broadcast(G.BroadcastAdd, r.of(t), w.node, nil, axes), t.most+w.most)
	case 1:
		r.add(r.broadcast(G.BroadcastSub, w.node, r.of(t), axes, nil), t.most+w.most)
	case 2:
		r.add(r.broadcast(G.BroadcastHadamardProd, r.of(t), w.node, nil, axes), t.most*w.most)
	default:
		d := r.both(G.Add, r.apply(G.Square, w.node), r.number(1))
		r.add(r.broadcast(G.BroadcastHadamardDiv, r.of(t), d, nil, axes), t.most)
	}
}

// scaled multiplies a term by a scalar that depends on another term.
func (r *random) scaled(t *term) {
	mean := r.reduce(G.Mean, r.squash(&r.pool[r.next(len(r.pool))]))
	r.add(r.both(G.HadamardProd, r.of(t), mean), t.most)
}

// matmul multiplies a matrix by a parameter or by a matrix of the pool, which may be transposed.
func (r *random) matmul(t *term) {
	s := t.node.Shape()
	if len(s) != 2 {
		r.batched(t)
		return
	}
	x := r.of(t)
	switch r.next(4) {
	case 0:
		w := r.weights(s[1], 2+r.next(3))
		r.add(r.both(G.Mul, x, w.node), float64(s[1])*t.most*w.most)
	case 1:
		w := r.weights(2+r.next(3), s[0])
		r.add(r.both(G.Mul, w.node, x), float64(s[0])*t.most*w.most)
	case 2:
		o := r.like(t)
		r.add(r.both(G.Mul, x, r.transpose(r.of(o))), float64(s[1])*t.most*o.most)
	default:
		o := r.like(t)
		r.add(r.both(G.Mul, r.transpose(x), r.of(o)), float64(s[0])*t.most*o.most)
	}
}

// batched multiplies every matrix of a term of three axes by a matrix of a parameter.
func (r *random) batched(t *term) {
	s := t.node.Shape()
	if len(s) != 3 {
		r.same(t)
		return
	}
	x := r.of(t)
	switch r.next(3) {
	case 0:
		w := r.weights(s[0], s[2], 2+r.next(2))
		r.add(r.do(func() (*G.Node, error) { return G.BatchedMatMul(x, w.node) }), float64(s[2])*t.most*w.most)
	case 1:
		o := r.like(t)
		y := r.transpose(r.of(o), 0, 2, 1)
		r.add(r.do(func() (*G.Node, error) { return G.BatchedMatMul(x, y) }), float64(s[2])*t.most*o.most)
	default:
		w := r.weights(s[0], 2+r.next(2), s[2])
		r.add(r.do(func() (*G.Node, error) { return G.BatchedMatMul(x, w.node, false, true) }), float64(s[2])*t.most*w.most)
	}
}

// reduction returns the sum, mean or maximum along an axis.
func (r *random) reduction(t *term, axis int) (n *G.Node, most float64) {
	op := []func(*G.Node, ...int) (*G.Node, error){G.Sum, G.Mean, G.Max}[r.next(3)]
	return r.reduce(op, r.of(t), axis), t.most * float64(t.node.Shape()[axis])
}

// centered subtracts a term's reduction along an axis.
func (r *random) centered(t *term) {
	axis := r.next(t.node.Dims())
	n, most := r.reduction(t, axis)
	shape := t.node.Shape().Clone()
	shape[axis] = 1
	if r.err != nil {
		return
	}
	r.add(r.broadcast(G.BroadcastSub, r.of(t), r.reshape(n, shape...), nil, []byte{byte(axis)}), t.most+most)
}

// reduced reduces a term of three axes to two.
func (r *random) reduced(t *term) {
	if t.node.Dims() != 3 {
		r.centered(t)
		return
	}
	n, most := r.reduction(t, r.next(3))
	r.add(n, most)
}

// reshaped merges two axes of a term, or splits one.
func (r *random) reshaped(t *term) {
	s := t.node.Shape()
	var shape []int
	switch {
	case len(s) == 3 && r.next(2) == 0:
		shape = []int{s[0] * s[1], s[2]}
	case len(s) == 3:
		shape = []int{s[0], s[1] * s[2]}
	case s[1]%2 == 0:
		shape = []int{s[0], s[1] / 2, 2}
	default:
		shape = []int{s[1], s[0]}
	}
	for _, d := range shape {
		if d == 1 { // Gorgonia has special rules for matrices that are vectors
			r.transposed(t)
			return
		}
	}
	r.add(r.apply(G.Tanh, r.reshape(r.squash(t), shape...)), 1)
}

// transposed permutes the axes of a term.
func (r *random) transposed(t *term) {
	if t.node.Dims() == 2 {
		r.add(r.transpose(r.of(t), 1, 0), t.most)
		return
	}
	patterns := [][]int{{0, 2, 1}, {1, 0, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}}
	r.add(r.transpose(r.of(t), patterns[r.next(len(patterns))]...), t.most)
}

// cut slices a term along an axis into two parts, which it may concatenate in the other order.
func (r *random) cut(t *term) {
	s := t.node.Shape()
	axis := r.next(len(s))
	if s[axis] < 4 {
		o := r.like(t) // longer, for a later cut
		r.add(r.do(func() (*G.Node, error) { return G.Concat(axis, r.squash(t), r.apply(G.Sigmoid, r.of(o))) }), 1)
		return
	}
	x := r.squash(t)
	part := func(from, to int) *G.Node {
		slices := make([]gtensor.Slice, axis+1)
		slices[axis] = G.S(from, to)
		return r.apply(G.Sin, r.do(func() (*G.Node, error) { return G.Slice(x, slices...) }))
	}
	at := 2 + r.next(s[axis]-3)
	first, second := part(0, at), part(at, s[axis])
	if r.next(2) == 0 {
		r.add(first, 1)
		r.add(second, 1)
		return
	}
	r.add(r.do(func() (*G.Node, error) { return G.Concat(axis, second, first) }), 1)
}

// softmax applies a softmax or its logarithm along the last axis, at most once to a term.
func (r *random) softmax(t *term) {
	if r.soft[t.node] {
		r.smooth(t)
		return
	}
	r.soft[t.node] = true
	x, last := r.of(t), t.node.Dims()-1
	if r.next(2) == 0 {
		r.add(r.do(func() (*G.Node, error) { return G.SoftMax(x, last) }), 1)
		return
	}
	r.add(r.do(func() (*G.Node, error) { return G.LogSoftMax(x, last) }), 2*t.most+2)
}

// likelihood returns the cross-entropy of the last matrix of the pool, or its transpose, with
// targets that are an input. It is added to the cost unchanged, because machines may recognise it
// as one operation. It returns nil for how 0 and 1.
func (r *random) likelihood(how int) *G.Node {
	for i := len(r.pool) - 1; i > 0 && how > 1 && r.err == nil; i-- {
		t := &r.pool[i]
		s := t.node.Shape()
		if len(s) != 2 || s[0] != r.Rows {
			continue
		}
		x, y := r.of(t), r.input("targets", source{}, s.Clone()...)
		if how == 3 {
			x, y = r.transpose(x, 1, 0), r.transpose(y, 1, 0)
		}
		if r.err != nil || r.soft[x] {
			return nil
		}
		r.soft[x] = true
		log := r.do(func() (*G.Node, error) { return G.LogSoftMax(x, 1) })
		return r.apply(G.Neg, r.reduce(G.Mean, r.reduce(G.Sum, r.both(G.HadamardProd, y, log), 1)))
	}
	return nil
}
