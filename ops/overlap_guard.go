package ops

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
)

// protect makes a hook copy the parameter if a node could overwrite the hook's output.
func (o *Overlap) protect() {
	parents := parentsOf(o.cost.Graph())
	for _, h := range o.hooks {
		h.copies = written(h.node, parents)
	}
}

// parentsOf returns the users of every node of g, like Users, in one pass over g.
func parentsOf(g *gorgonia.ExprGraph) map[*gorgonia.Node]gorgonia.Nodes {
	parents := make(map[*gorgonia.Node]gorgonia.Nodes)
	for _, n := range g.AllNodes() {
		for _, c := range Children(n) {
			parents[c] = append(parents[c], n)
		}
	}
	return parents
}

// written reports whether a node may write into the memory of n's value, directly or through
// another value over the same memory.
func written(n *gorgonia.Node, parents map[*gorgonia.Node]gorgonia.Nodes) bool {
	names := gorgonia.Nodes{n}
	seen := gorgonia.NewNodeSet(n)
	for len(names) > 0 {
		a := names[0]
		names = names[1:]
		for _, p := range parents[a] {
			if overwrites(p, a) {
				return true
			}
			if mayAlias(p) && seen.Add(p) {
				names = append(names, p)
			}
		}
	}
	return false
}

// overwrites reports whether the tape machine may let p write into the memory of its child a. It
// does if p's op overwrites that input, is not external and takes preallocated memory
// (regalloc.go:201, vm_tape_nocuda.go:57 of gorgonia v0.9.18). The machine waits for the last use
// of a, but other values may use the same memory later.
func overwrites(p, a *gorgonia.Node) bool {
	op := p.Op()
	if op == nil {
		return false
	}
	i := op.OverwritesInput()
	children := Children(p)
	if i < 0 || i >= len(children) || children[i] != a || op.CallsExtern() {
		return false
	}
	_, ok := op.(gorgonia.UsePreallocDoer)
	return ok
}

// mayAlias reports whether p's value may share memory with an input. Reshape always does; repeat,
// transpose, concat, slice and dropout may. An unknown op counts as one that does.
func mayAlias(p *gorgonia.Node) bool {
	switch p.Op().(type) {
	case nil, *Hook, *Begin, *Start, *Wait, *Join, *derivative, *tapeGradient:
		return false
	}
	switch fmt.Sprintf("%T", p.Op()) {
	case "gorgonia.elemBinOp", "gorgonia.elemUnaryOp", "gorgonia.linAlgBinOp",
		"gorgonia.sizeOp", "gorgonia.im2colOp", "gorgonia.col2imOp", "*gorgonia.softmaxOp":
		return false
	}
	return true
}

// checkMerges looks for different nodes of equal hash. The tape machine's compiler treats two nodes
// with one 32-bit hash as a common subexpression (analysis.go:91): it would run one for both,
// without an error.
//
// Errors: dist.ErrInvalid naming both.
func checkMerges(g *gorgonia.ExprGraph) error {
	sorted, err := Sort(g) // the compiler's order
	if err != nil {
		return err
	}
	byHash := make(map[uint32]*gorgonia.Node, len(sorted))       // the node that runs for all with this hash
	runs := make(map[*gorgonia.Node]*gorgonia.Node, len(sorted)) // the node that runs for this one
	for _, n := range sorted {
		m, ok := byHash[n.Hashcode()]
		if !ok {
			m = n
			byHash[n.Hashcode()] = n
		}
		runs[n] = m
		if m != n && !same(m, n, runs) {
			return fmt.Errorf("nodes %q and %q differ but have one 32-bit hash (%#x), so that the tape machine would run one for both: %w: rename one of the inputs",
				m.Name(), n.Name(), n.Hashcode(), dist.ErrInvalid)
		}
	}
	return nil
}

// same reports whether m and n apply equal ops to equal inputs.
func same(m, n *gorgonia.Node, runs map[*gorgonia.Node]*gorgonia.Node) bool {
	if (m.Op() == nil) != (n.Op() == nil) || !m.Shape().Eq(n.Shape()) {
		return false
	}
	if m.Op() == nil {
		return m.Name() == n.Name()
	}
	return m.Op().String() == n.Op().String() && slices.EqualFunc(Children(m), Children(n), func(a, b *gorgonia.Node) bool {
		return runs[a] == runs[b]
	})
}
