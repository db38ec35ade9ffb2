package lower

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/ops"
)

// Parts has the parts of an expression graph from which a program is made.
type Parts struct {
	Nodes   gorgonia.Nodes // needed nodes, children first, in the order of the tape machine
	Outputs gorgonia.Nodes // nodes with lasting values, without inputs and constants
	Reads   []Read         // of gorgonia.Read
	Sets    []Set          // of gorgonia.Set, in order
	Params  []Param
	ByNode  map[*gorgonia.Node]int   // index in Params
	byGrad  map[*gorgonia.Node]int   // index of the first of Params with that gradient
	Built   map[*gorgonia.Node][]int // shapes of outputs and inputs in the graph; programs for others change the nodes'
	warned  map[string]bool          // types of ops with a warning
}

// Read is a gorgonia.Read: a node and the destination of its value.
type Read struct {
	Node *gorgonia.Node
	Into *gorgonia.Value
}

// Param is an input that the graph was differentiated by, and its gradient.
type Param struct {
	Node, Grad *gorgonia.Node
	Dual       bool // Grad is not the gradient node's value
}

// Collect finds the nodes that the outputs need, or the default outputs if there are none. Values
// of keep last, too.
func Collect(g *gorgonia.ExprGraph, outputs gorgonia.Nodes, keep ...*gorgonia.Node) *Parts {
	c := newCollector(g)
	r := &Parts{Built: map[*gorgonia.Node][]int{}}
	for _, n := range c.all {
		if d := c.gradient(n); d != nil {
			r.Params = append(r.Params, Param{Node: n, Grad: d})
		}
		r.statement(n, c.kids[n])
	}
	wanted := slices.Clone(outputs)
	if len(wanted) == 0 {
		wanted = append(c.roots(), c.costs()...)
		for _, p := range r.Params {
			wanted = append(wanted, p.Grad)
		}
	} else {
		asked := gorgonia.NewNodeSet(wanted...)
		r.Params = slices.DeleteFunc(r.Params, func(p Param) bool { return !asked.Contains(p.Grad) })
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
	for _, rd := range r.Reads {
		wanted, needed = append(wanted, rd.Node), append(needed, rd.Node)
	}
	for _, s := range r.Sets {
		if s.From != nil {
			wanted, needed = append(wanted, s.From), append(needed, s.From)
		}
	}
	wanted, needed = append(wanted, keep...), append(needed, keep...)
	if len(wanted) == 0 {
		needed = append(needed, c.inputs()...)
	}
	r.Nodes = c.order(needed)
	seen := gorgonia.NewNodeSet()
	for _, n := range wanted {
		if n.Op() != nil && !IsConstant(n) && seen.Add(n) {
			r.Outputs = append(r.Outputs, n)
			if !n.IsScalar() {
				r.Built[n] = slices.Clone([]int(n.Shape()))
			}
		}
	}
	return r
}

// statement records a node that is a statement.
func (g *Parts) statement(n *gorgonia.Node, kids gorgonia.Nodes) {
	switch typeName(n.Op()) {
	case "gorgonia.readOp":
		f := fieldsOf(n.Op())
		if into := (*gorgonia.Value)(f.pointer("into")); into != nil && len(kids) == 1 {
			g.Reads = append(g.Reads, Read{kids[0], into})
		}
	case "gorgonia.letOp":
		s := Set{}
		if len(kids) == 2 {
			s = Set{To: kids[0], From: kids[1]}
		}
		g.Sets = append(g.Sets, s)
	}
}

// index makes the tables of params.
func (g *Parts) index() {
	g.ByNode, g.byGrad = map[*gorgonia.Node]int{}, map[*gorgonia.Node]int{}
	for i, p := range g.Params {
		g.ByNode[p.Node] = i
		if _, there := g.byGrad[p.Grad]; !there {
			g.byGrad[p.Grad] = i
		}
	}
}

// IsConstant reports whether a node's value is in the graph.
func IsConstant(n *gorgonia.Node) bool {
	name := typeName(n.Op())
	return name == "gorgonia.constantScalar" || name == "gorgonia.constantTensor"
}

// IsStatement reports whether a node has no value: gorgonia.Read and gorgonia.Set.
func IsStatement(n *gorgonia.Node) bool {
	name := typeName(n.Op())
	return name == "gorgonia.readOp" || name == "gorgonia.letOp"
}

// pieces returns the part of each parameter of a graph that this rank updates: all elements, or a
// range, which may be empty. d exchanges the gradients, or is nil.
func (g *Parts) pieces(shapes map[*gorgonia.Node][]int, d *ddp.DDP) []ddp.Piece {
	all := make([]ddp.Piece, len(g.Params))
	for i := range all {
		all[i].Len = max(draft.SizeOf(shapes[g.Params[i].Node]), 1)
	}
	if d == nil || d.Plan().Stage == 0 {
		return all
	}
	model, own := d.Model(), d.Pieces()
	for i := range all {
		k := slices.IndexFunc(model, func(p gorgonia.ValueGrad) bool { return p == gorgonia.ValueGrad(g.Params[i].Node) })
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

// WithGradients returns outputs and the gradients that must be computed with them: all, those that
// ddp.Attach exchanges, or none. Without outputs it returns none.
func WithGradients(g *gorgonia.ExprGraph, outputs gorgonia.Nodes, all, exchanged bool) gorgonia.Nodes {
	if len(outputs) == 0 {
		return outputs
	}
	wanted := slices.Clone(outputs)
	seen := gorgonia.NewNodeSet(outputs...)
	here := gorgonia.NewNodeSet(g.AllNodes()...)
	for _, n := range g.AllNodes() {
		d := n.Deriv()
		if d == nil || !n.IsVar() || !here.Contains(d) && !IsConstant(d) {
			continue
		}
		_, waits := d.Op().(*ops.Wait)
		if (all || waits && exchanged) && seen.Add(d) {
			wanted = append(wanted, d)
		}
	}
	return wanted
}

// IsParam reports whether the graph was differentiated by a node.
func (g *Parts) IsParam(n *gorgonia.Node) bool {
	_, ok := g.ByNode[n]
	return ok
}

// samples returns the samples in the batch: the length of the first input that is not a parameter.
func (g *Parts) samples(z *sizes) int {
	for _, n := range g.Nodes {
		if n.IsVar() && !g.IsParam(n) && !ddp.IsShard(n) {
			if s := z.of(n); len(s) > 0 {
				return s[0]
			}
		}
	}
	return 1
}

// Set is a gorgonia.Set: after each run the value of From is copied to To.
type Set struct {
	To, From *gorgonia.Node
}

// Check rejects a graph without any effect, and statements that cannot be executed.
func (g *Parts) Check() error {
	if len(g.Nodes)+len(g.Sets) == 0 {
		return errNoNodes
	}
	for _, s := range g.Sets {
		switch {
		case s.To == nil || s.From == nil:
			return fmt.Errorf("a gorgonia.Set needs two nodes")
		case s.To.Op() != nil:
			return fmt.Errorf("gorgonia.Set of node %q: it is computed by the op %v; only an input can be set", NameOf(s.To), s.To.Op())
		case s.To.Dtype() != s.From.Dtype() || !values.SameShape(s.From.Shape(), s.To.Shape()):
			return fmt.Errorf("gorgonia.Set of node %q, a %v%v, to %q, a %v%v: types and shapes must agree",
				NameOf(s.To), s.To.Dtype(), s.To.Shape(), NameOf(s.From), s.From.Dtype(), s.From.Shape())
		}
	}
	return nil
}

// Part returns the nodes of g that node n needs, as a graph whose output is n. Shapes of inputs and
// the list of parameters are those of g.
func (g *Parts) Part(whole *gorgonia.ExprGraph, n *gorgonia.Node) *Parts {
	built := maps.Clone(g.Built)
	if _, known := built[n]; !known && !n.IsScalar() {
		built[n] = slices.Clone([]int(n.Shape()))
	}
	return &Parts{
		Nodes: newCollector(whole).order(gorgonia.Nodes{n}), Outputs: gorgonia.Nodes{n}, ByNode: g.ByNode, Built: built,
	}
}

// NeedsRanks reports whether a node communicates or needs a shard.
func NeedsRanks(n *gorgonia.Node) bool {
	switch n.Op().(type) {
	case *ops.Begin, *ops.Start, *ops.Wait, *ops.Join:
		return true
	}
	_, sends := ops.Describe(n)
	_, norm := ops.DescribeBatchNorm(n)
	return sends || norm || ddp.IsShard(n)
}

var errNoNodes = errors.New("the graph has no outputs: it has no nodes")
