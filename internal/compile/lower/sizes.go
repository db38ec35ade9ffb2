package lower

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/compile/program/draft"
)

// sizes has the shapes of a graph's inputs, and derives the shapes of results when inputs have
// another number of samples than in the graph.
type sizes struct {
	built   map[*gorgonia.Node][]int // shapes of outputs and inputs in the graph
	now     map[*gorgonia.Node][]int // shapes of input values
	resized bool                     // some differ from those of the graph
	moved   bool                     // a product or transposition moved the first dimension of a resized result
}

// follow changes to, the shape to which the graph reshapes from, for an operand whose shape is
// now another. Dimensions of to and from with the same elements, such as batch*words and (batch,
// words), belong together, and change together. It fails if no dimension can take the change.
func (z *sizes) follow(from, to, now []int) bool {
	if len(now) != len(from) {
		return z.grow(to, draft.SizeOf(to), nil, now)
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
		if !z.grow(to[j:b], draft.SizeOf(from[i:a]), from[i:a], now[i:a]) {
			return false
		}
		i, j = a, b
	}
	return draft.SizeOf(to) == draft.SizeOf(now)
}

// grow changes one dimension of to, which has old elements, so that to has as many elements as now.
// It prefers one that has changed equally in from or in an input, and one of length 1 last. Of two
// equal candidates it takes the first if samples are always first. Otherwise it fails, as it cannot
// know which one is the samples. That happens with a graph built with one sample: a cut out of a
// dimension of samples and words has dimensions 1 and words, and either may have changed.
func (z *sizes) grow(to []int, old int, from, now []int) bool {
	n, best, at, tie := draft.SizeOf(now), 3, -1, false
	if n == old {
		return true
	}
	for k, d := range to {
		grown := d * n / old
		rank := 1
		switch {
		case d*n%old != 0 || grown == 0:
			continue
		case changes(from, now, d, grown), z.inputChanges(d, grown):
			rank = 0
		case d == 1:
			rank = 2
		}
		if rank < best {
			best, at, tie = rank, k, false
		} else if rank == best {
			tie = true
		}
	}
	if at < 0 || tie && !z.samplesFirst() {
		return false
	}
	to[at] = to[at] * n / old
	return true
}

// samplesFirst reports whether only the first dimension of inputs has changed, and no op has moved
// it.
func (z *sizes) samplesFirst() bool {
	for node, now := range z.now {
		if was := z.built[node]; len(was) == len(now) && len(was) > 0 && !slices.Equal(was[1:], now[1:]) {
			return false
		}
	}
	return !z.moved
}

// isResized reports whether o, the value of n, has another number of elements than in the graph.
func (z *sizes) isResized(n *gorgonia.Node, o draft.Operand) bool {
	return z.resized && z.builtLen(n) != o.Len()
}

// builtLen returns the number of elements of n in the graph.
func (z *sizes) builtLen(n *gorgonia.Node) int {
	return draft.SizeOf(z.builtShape(n))
}

// builtShape returns the shape of n in the graph.
func (z *sizes) builtShape(n *gorgonia.Node) []int {
	if built, ok := z.built[n]; ok {
		return built
	}
	return n.Shape()
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
func (z *sizes) inputChanges(d, n int) bool {
	for node, now := range z.now {
		if was := z.built[node]; len(was) == len(now) && !slices.Equal(was, now) && changes(was, now, d, n) {
			return true
		}
	}
	return false
}

// of returns the shape of an input's values.
func (z *sizes) of(n *gorgonia.Node) []int {
	if s, ok := z.now[n]; ok {
		return slices.Clone(s)
	}
	if s, ok := z.built[n]; ok {
		return slices.Clone(s)
	}
	if n.IsScalar() {
		return nil
	}
	return slices.Clone([]int(n.Shape()))
}

// common returns the shape of the result of an elementwise op of two inputs.
func (z *sizes) common(c *current) ([]int, error) {
	a, b := c.in[0], c.in[1]
	if n := z.builtLen(c.kids[0]); z.resized && a.Len() != b.Len() && n > 1 && n == z.builtLen(c.kids[1]) {
		return nil, fmt.Errorf("shapes %v and %v do not match", a.Shape, b.Shape) // one sample is not a scalar
	}
	return common(a, b)
}
