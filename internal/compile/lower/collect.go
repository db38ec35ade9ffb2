package lower

import (
	"maps"
	"reflect"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/ops"
)

// collector finds the parts of a graph.
type collector struct {
	all     gorgonia.Nodes
	index   map[*gorgonia.Node]int
	kids    map[*gorgonia.Node]gorgonia.Nodes
	parents map[*gorgonia.Node]int
	norms   map[uintptr]*gorgonia.Node // forward batch normalizations and CTC losses, by op, for their gradients
}

func newCollector(g *gorgonia.ExprGraph) *collector {
	c := &collector{
		all: g.AllNodes(), index: map[*gorgonia.Node]int{}, kids: map[*gorgonia.Node]gorgonia.Nodes{},
		parents: map[*gorgonia.Node]int{}, norms: map[uintptr]*gorgonia.Node{},
	}
	for i, n := range c.all {
		c.index[n] = i
		switch typeName(n.Op()) {
		case "*gorgonia.BatchNormOp", "*gorgonia.ctcLossOp":
			c.norms[reflect.ValueOf(n.Op()).Pointer()] = n
		}
	}
	for _, n := range c.all {
		kids := ops.Children(n)
		if typeName(n.Op()) == "gorgonia.constantTensor" {
			kids = nil
		}
		c.kids[n] = kids
		for _, k := range kids {
			c.parents[k]++
		}
	}
	return c
}

// gradient returns the gradient of an input; nil if this graph has none. In a graph of
// gorgonia.SubgraphRoots, links to gradients may lead out of the graph.
func (c *collector) gradient(n *gorgonia.Node) *gorgonia.Node {
	d := n.Deriv()
	if d == nil || !n.IsVar() {
		return nil
	}
	if _, here := c.index[d]; !here && !IsConstant(d) {
		return nil
	}
	return d
}

// inputs returns the inputs of the graph.
func (c *collector) inputs() gorgonia.Nodes {
	return slices.DeleteFunc(slices.Clone(c.all), func(n *gorgonia.Node) bool { return !n.IsVar() })
}

// roots returns the nodes that no other node reads, except statements, inputs, and gradients that
// the program did not ask for: Gorgonia differentiates by every operand of an op, even by images
// and sizes.
func (c *collector) roots() gorgonia.Nodes {
	readers := maps.Clone(c.parents)
	var idle gorgonia.Nodes // without readers that are needed
	for _, n := range c.all {
		if readers[n] == 0 {
			idle = append(idle, n)
		}
	}
	isRoot := gorgonia.NewNodeSet()
	for len(idle) > 0 {
		n := idle[0]
		idle = idle[1:]
		if IsStatement(n) || !stray(n) {
			isRoot.Add(n)
			continue
		}
		for _, k := range c.kids[n] {
			if readers[k]--; readers[k] == 0 {
				idle = append(idle, k)
			}
		}
	}
	var roots gorgonia.Nodes
	for _, n := range c.all {
		if isRoot.Contains(n) && n.Op() != nil && !IsStatement(n) && !IsConstant(n) {
			roots = append(roots, n)
		}
	}
	return roots
}

// costs returns the nodes that the graph was differentiated from: their own derivative is the
// constant 1. Other nodes may read them. For a node that corrects the cost's derivative, it returns
// the cost.
func (c *collector) costs() gorgonia.Nodes {
	var costs gorgonia.Nodes
	for _, n := range c.all {
		if d := n.Deriv(); d != nil && n.Op() != nil && n.IsScalar() && IsConstant(d) {
			if i, ok := ops.Identity(n); ok {
				n = c.kids[n][i]
			}
			costs = append(costs, n)
		}
	}
	return costs
}

// stray reports whether differentiation made a node that the program did not ask for.
// Gorgonia records that in the node's group (const.go:17).
func stray(n *gorgonia.Node) bool {
	if len(n.DerivOf()) > 0 {
		return false
	}
	group := reflect.ValueOf(n).Elem().FieldByName("group")
	if !group.IsValid() || group.Kind() != reflect.String {
		return false
	}
	return group.String() == "gradients" || group.String() == "undifferentiated nodes"
}

// needs returns the nodes that must run before n: its children, and for a gradient its batch
// normalization or CTC loss.
func (c *collector) needs(n *gorgonia.Node) gorgonia.Nodes {
	if IsStatement(n) {
		return nil
	}
	kids := c.kids[n]
	of := map[string]string{"*gorgonia.batchnormDiffOp": "BatchNormOp", "*gorgonia.ctcLossDiffOp": "ctcLossOp"}[typeName(n.Op())]
	if of == "" {
		return kids
	}
	if forward := c.norms[uintptr(fieldsOf(n.Op()).pointer(of))]; forward != nil {
		return append(slices.Clone(kids), forward)
	}
	return kids
}

// order returns the nodes that the wanted ones need, in depth-first post-order of their numbers.
// That is the order of the tape machine (walker.go:44), so all ranks have one order of collectives.
func (c *collector) order(wanted gorgonia.Nodes) gorgonia.Nodes {
	needed := gorgonia.NewNodeSet(wanted...)
	for open := slices.Clone(wanted); len(open) > 0; {
		n := open[len(open)-1]
		open = open[:len(open)-1]
		for _, k := range c.needs(n) {
			if needed.Add(k) {
				open = append(open, k)
			}
		}
	}
	byNumber := needed.ToSlice()
	slices.SortFunc(byNumber, c.byIndex)
	var order gorgonia.Nodes
	done := gorgonia.NewNodeSet()
	type frame struct {
		node *gorgonia.Node
		kids gorgonia.Nodes
	}
	open := func(n *gorgonia.Node) frame {
		kids := slices.Clone(c.needs(n))
		slices.SortFunc(kids, c.byIndex)
		return frame{n, kids}
	}
	for _, root := range byNumber {
		if !done.Add(root) {
			continue
		}
		for stack := []frame{open(root)}; len(stack) > 0; {
			top := &stack[len(stack)-1]
			if len(top.kids) == 0 {
				order = append(order, top.node)
				stack = stack[:len(stack)-1]
				continue
			}
			next := top.kids[0]
			top.kids = top.kids[1:]
			if done.Add(next) {
				stack = append(stack, open(next))
			}
		}
	}
	return order
}

func (c *collector) byIndex(a, b *gorgonia.Node) int { return c.at(a) - c.at(b) }

// at returns a node's number; constants outside the graph come first.
func (c *collector) at(n *gorgonia.Node) int {
	if i, ok := c.index[n]; ok {
		return i
	}
	return -1
}
