package machine

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// followShape changes to, the shape to which the graph reshapes from, for an operand whose shape is
// now another. Dimensions of to and from with the same elements, such as batch*words and (batch,
// words), belong together, and change together. It fails if no dimension can take the change.
func (l *lowering) followShape(from, to, now []int) bool {
	if len(now) != len(from) {
		return l.grow(to, sizeOf(to), nil, now)
	}
	for i, j := 0, 0; i < len(from); {
		a, b := i+1, j
		for old, made := from[i], 0; made != old; {
			switch {
			case b < len(to) && made < old:
				made = max(made, 1) * to[b]
				b++
			case a < len(from):
				old *= from[a]
				a++
			default:
				made = old // the rest of from has one element
			}
		}
		if a == len(from) {
			b = len(to) // the rest of to has one element
		}
		if !l.grow(to[j:b], sizeOf(from[i:a]), from[i:a], now[i:a]) {
			return false
		}
		i, j = a, b
	}
	return sizeOf(to) == sizeOf(now)
}

// grow changes one dimension of to, which has old elements, so that to has as many elements as now.
// It prefers one that has changed equally in from or in an input, and one of length 1 last. Of two
// equal candidates it takes the first if samples are always first. Otherwise it fails, as it cannot
// know which one is the samples. That happens with a graph built with one sample: a cut out of a
// dimension of samples and words has dimensions 1 and words, and either may have changed.
func (l *lowering) grow(to []int, old int, from, now []int) bool {
	n, best, at, alike := sizeOf(now), 3, -1, false
	if n == old {
		return true
	}
	for k, d := range to {
		grown := d * n / old
		rank := 1
		switch {
		case d*n%old != 0 || grown == 0:
			continue
		case changes(from, now, d, grown), l.inputChanges(d, grown):
			rank = 0
		case d == 1:
			rank = 2
		}
		if rank < best {
			best, at, alike = rank, k, false
		} else if rank == best {
			alike = true
		}
	}
	if at < 0 || alike && !l.samplesFirst() {
		return false
	}
	to[at] = to[at] * n / old
	return true
}

// samplesFirst reports whether only the first dimension of inputs has changed, and no op has moved
// it.
func (l *lowering) samplesFirst() bool {
	for node, now := range l.shapes {
		if was := l.g.built[node]; len(was) == len(now) && len(was) > 0 && !slices.Equal(was[1:], now[1:]) {
			return false
		}
	}
	return !l.moved
}

// isResized reports whether o, the value of n, has another number of elements than in the graph.
func (l *lowering) isResized(n *gorgonia.Node, o operand) bool {
	return l.resized && l.builtLen(n) != o.len()
}

// builtLen returns the number of elements of n in the graph.
func (l *lowering) builtLen(n *gorgonia.Node) int {
	return sizeOf(l.builtShape(n))
}

// builtShape returns the shape of n in the graph.
func (l *lowering) builtShape(n *gorgonia.Node) []int {
	if built, ok := l.g.built[n]; ok {
		return built
	}
	return n.Shape()
}

// concatPart returns the slice of the gradient of a gorgonia.Concat for one of its inputs, when
// inputs have another number of samples. The op has the input's old place (op_tensor.go:1062), and
// the inputs' present lengths give the new one. An axis of one element is dropped if it was dropped
// in the graph, where a reshape brings it back.
func (l *lowering) concatPart(c *current) (o operand, ok bool, err error) {
	op, isSlice := c.n.Op().(interface{ IsSlice() gtensor.Slice })
	if !l.resized || !isSlice || op.IsSlice() == nil {
		return o, false, nil
	}
	x, axis, part := c.in[0], c.f.int("along"), op.IsSlice()
	if axis >= len(x.shape) {
		return o, false, nil
	}
	for _, of := range c.kids[0].DerivOf() {
		if typeName(of.Op()) != "gorgonia.concatOp" || fieldsOf(of.Op()).int("axis") != axis {
			continue
		}
		was, from := 0, 0
		for _, k := range l.kids(of) {
			n := l.builtShape(k)[axis]
			now := n
			if v, ok := l.values[k]; ok {
				now = v.shape[axis]
			} else if x.shape[axis] != l.builtShape(of)[axis] {
				return o, false, fmt.Errorf("a slice of shape %v needs the value of %q, which is not computed", x.shape, called(k))
			}
			if was == part.Start() && was+n == part.End() && from+now <= x.shape[axis] {
				l.marks = append(l.marks, markSlice(op))
				o = cut(x, axis, from, 1, now)
				if n == 1 && now == 1 {
					o = l.reshape(o, slices.Delete(slices.Clone(o.shape), axis, axis+1))
				}
				return o, true, nil
			}
			was, from = was+n, from+now
		}
	}
	return o, false, nil
}

// changes reports whether a dimension changed from d to n elements.
func changes(from, now []int, d, n int) bool {
	for k := range from {
		if from[k] == d && now[k] == n {
			return true
		}
	}
	return false
}

// inputChanges reports whether a dimension of some input changed from d to n elements.
func (l *lowering) inputChanges(d, n int) bool {
	for node, now := range l.shapes {
		if was := l.g.built[node]; len(was) == len(now) && !slices.Equal(was, now) && changes(was, now, d, n) {
			return true
		}
	}
	return false
}
