package machine

import (
	"maps"
	"reflect"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/program/draft"
	"github.com/symgrad/symgrad/ops"
)

// graph has the parts of an expression graph from which a program is made.
type graph struct {
	nodes   gorgonia.Nodes // needed nodes, children first, in the order of the tape machine
	outputs gorgonia.Nodes // nodes with lasting values, without inputs and constants
	reads   []read         // of gorgonia.Read
	sets    []set          // of gorgonia.Set, in order
	params  []param
	byNode  map[*gorgonia.Node]int   // index in params
	byGrad  map[*gorgonia.Node]int   // index of the first of params with that gradient
	built   map[*gorgonia.Node][]int // shapes of outputs and inputs in the graph; programs for others change the nodes'
	warned  map[string]bool          // types of ops with a warning
}

// read is a gorgonia.Read: a node and the destination of its value.
type read struct {
	node *gorgonia.Node
	into *gorgonia.Value
}

// param is an input that the graph was differentiated by, and its gradient.
type param struct {
	node, grad *gorgonia.Node
	dual       bool // Grad is not the gradient node's value
}

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

// collect finds the nodes that the outputs need, or the default outputs if there are none. Values
// of keep last, too.
func collect(g *gorgonia.ExprGraph, outputs gorgonia.Nodes, keep ...*gorgonia.Node) *graph {
	c := newCollector(g)
	r := &graph{built: map[*gorgonia.Node][]int{}}
	for _, n := range c.all {
		if d := c.gradient(n); d != nil {
			r.params = append(r.params, param{node: n, grad: d})
		}
		r.statement(n, c.kids[n])
	}
	wanted := slices.Clone(outputs)
	if len(wanted) == 0 {
		wanted = append(c.roots(), c.costs()...)
		for _, p := range r.params {
			wanted = append(wanted, p.grad)
		}
	} else {
		asked := gorgonia.NewNodeSet(wanted...)
		r.params = slices.DeleteFunc(r.params, func(p param) bool { return !asked.Contains(p.grad) })
	}
	r.index()
	needed := slices.Clone(wanted)
	if len(outputs) == 0 {
		for _, n := range c.all {
			if _, ok := ops.Describe(n); ok {
				needed = append(needed, n)
			}
		}
	}
	for _, rd := range r.reads {
		wanted, needed = append(wanted, rd.node), append(needed, rd.node)
	}
	for _, s := range r.sets {
		if s.from != nil {
			wanted, needed = append(wanted, s.from), append(needed, s.from)
		}
	}
	wanted, needed = append(wanted, keep...), append(needed, keep...)
	if len(wanted) == 0 {
		needed = append(needed, c.inputs()...)
	}
	r.nodes = c.order(needed)
	seen := gorgonia.NewNodeSet()
	for _, n := range wanted {
		if n.Op() != nil && !isConstant(n) && seen.Add(n) {
			r.outputs = append(r.outputs, n)
			if !n.IsScalar() {
				r.built[n] = slices.Clone([]int(n.Shape()))
			}
		}
	}
	return r
}

// statement records a node that is a statement.
func (g *graph) statement(n *gorgonia.Node, kids gorgonia.Nodes) {
	switch typeName(n.Op()) {
	case "gorgonia.readOp":
		f := fieldsOf(n.Op())
		if into := (*gorgonia.Value)(f.pointer("into")); into != nil && len(kids) == 1 {
			g.reads = append(g.reads, read{kids[0], into})
		}
	case "gorgonia.letOp":
		s := set{}
		if len(kids) == 2 {
			s = set{to: kids[0], from: kids[1]}
		}
		g.sets = append(g.sets, s)
	}
}

// index makes the tables of params.
func (g *graph) index() {
	g.byNode, g.byGrad = map[*gorgonia.Node]int{}, map[*gorgonia.Node]int{}
	for i, p := range g.params {
		g.byNode[p.node] = i
		if _, there := g.byGrad[p.grad]; !there {
			g.byGrad[p.grad] = i
		}
	}
}

// gradient returns the gradient of an input; nil if this graph has none. In a graph of
// gorgonia.SubgraphRoots, links to gradients may lead out of the graph.
func (c *collector) gradient(n *gorgonia.Node) *gorgonia.Node {
	d := n.Deriv()
	if d == nil || !n.IsVar() {
		return nil
	}
	if _, here := c.index[d]; !here && !isConstant(d) {
		return nil
	}
	return d
}

// inputs returns the inputs of the graph.
func (c *collector) inputs() gorgonia.Nodes {
	return slices.DeleteFunc(slices.Clone(c.all), func(n *gorgonia.Node) bool { return !n.IsVar() })
}

func isConstant(n *gorgonia.Node) bool {
	name := typeName(n.Op())
	return name == "gorgonia.constantScalar" || name == "gorgonia.constantTensor"
}

// isStatement reports whether a node has no value: gorgonia.Read and gorgonia.Set.
func isStatement(n *gorgonia.Node) bool {
	name := typeName(n.Op())
	return name == "gorgonia.readOp" || name == "gorgonia.letOp"
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
		if isStatement(n) || !stray(n) {
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
		if isRoot.Contains(n) && n.Op() != nil && !isStatement(n) && !isConstant(n) {
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
		if d := n.Deriv(); d != nil && n.Op() != nil && n.IsScalar() && isConstant(d) {
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
	if isStatement(n) {
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

// pieces returns the part of each parameter of a graph that this rank updates: all elements, or a
// range, which may be empty. d exchanges the gradients, or is nil.
func (g *graph) pieces(shapes map[*gorgonia.Node][]int, d *ddp.DDP) []ddp.Piece {
	all := make([]ddp.Piece, len(g.params))
	for i := range all {
		all[i].Len = max(draft.SizeOf(shapes[g.params[i].node]), 1)
	}
	if d == nil || d.Plan().Stage == 0 {
		return all
	}
	model, own := d.Model(), d.Pieces()
	for i := range all {
		k := slices.IndexFunc(model, func(p gorgonia.ValueGrad) bool { return p == gorgonia.ValueGrad(g.params[i].node) })
		if k < 0 {
			continue
		}
		all[i] = ddp.Piece{Param: k}
		if j := slices.IndexFunc(own, func(p ddp.Piece) bool { return p.Param == k }); j >= 0 {
			all[i] = own[j]
		}
	}
	return all
}

// withGradients returns outputs and the gradients that must be computed with them. With
// Config.Solver these are all. Otherwise, unless the graph is run for its results, they are those
// that ddp.Attach exchanges, since an optimizer reads them after each run.
func withGradients(g *gorgonia.ExprGraph, cfg *Config, outputs gorgonia.Nodes) gorgonia.Nodes {
	if len(outputs) == 0 {
		return outputs
	}
	all := slices.Clone(outputs)
	seen := gorgonia.NewNodeSet(outputs...)
	here := gorgonia.NewNodeSet(g.AllNodes()...)
	for _, n := range g.AllNodes() {
		d := n.Deriv()
		if d == nil || !n.IsVar() || !here.Contains(d) && !isConstant(d) {
			continue
		}
		_, exchanged := d.Op().(*ops.Wait)
		if (cfg.Solver != nil || exchanged && !cfg.Eval) && seen.Add(d) {
			all = append(all, d)
		}
	}
	return all
}

func (g *graph) isParam(n *gorgonia.Node) bool {
	_, ok := g.byNode[n]
	return ok
}

// samples returns the samples in the batch: the length of the first input that is not a parameter.
func (g *graph) samples(z *sizes) int {
	for _, n := range g.nodes {
		if n.IsVar() && !g.isParam(n) && !ddp.IsShard(n) {
			if s := z.of(n); len(s) > 0 {
				return s[0]
			}
		}
	}
	return 1
}
