package ops

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"gorgonia.org/gorgonia"
)

// An ExprGraph of gorgonia v0.9.18 finds a node by its ID in a table of positions in its list of
// nodes (graph.go:529). It fills the table when it looks for a node, and does not update it when a
// node is removed. From, To, Node, Has and the methods that use them then return the neighbor of
// every later node. Gorgonia removes nodes when it rewrites log(1-x) to log1p(-x)
// (stabilization.go:75) and when it differentiates (differentiation.go:154). Its machines read a
// node's own list of children, which is right. Only this file asks a graph by ID;
// internal/tool/lint rejects other uses.

// empty is a graph that makes subgraphs with tables of their own. It is never changed.
var empty = gorgonia.NewGraph()

// Children returns the children of n, in order, with repetitions: the list that gorgonia's machines
// use. The caller may change the result.
func Children(n *gorgonia.Node) gorgonia.Nodes {
	// The subgraph of n has an empty table, so From looks for the ID in a list of one node. With
	// one argument Subgraph would also walk all nodes that n depends on, for nothing.
	return nodesOf(empty.Subgraph(n, n).From(n.ID()))
}

// Users returns the nodes that have n as a child, each once, by ascending ID. The graph also lists
// nodes that no longer have n as a child; Users leaves them out.
//
// Users sorts gorgonia's own list, so no other goroutine may use the graph during the call.
func Users(n *gorgonia.Node) gorgonia.Nodes {
	g := n.Graph()
	if g == nil {
		return nil // a constant that gorgonia shares between graphs
	}
	users := slices.DeleteFunc(nodesOf(g.Subgraph(n, n).To(n.ID())), func(u *gorgonia.Node) bool {
		return !Children(u).Contains(n)
	})
	slices.SortFunc(users, byID)
	return users
}

// Below returns roots and all nodes that they are computed from.
func Below(roots ...*gorgonia.Node) gorgonia.NodeSet {
	seen := gorgonia.NewNodeSet(roots...)
	for open := slices.Clone(roots); len(open) > 0; {
		n := open[len(open)-1]
		open = open[:len(open)-1]
		for _, c := range Children(n) {
			if seen.Add(c) {
				open = append(open, c)
			}
		}
	}
	return seen
}

// nodeIterator is the part of gonum's graph.Nodes that nodesOf needs.
type nodeIterator[N any] interface {
	Len() int
	Next() bool
	Node() N
}

// nodesOf returns the nodes of it.
func nodesOf[N any](it nodeIterator[N]) gorgonia.Nodes {
	nodes := make(gorgonia.Nodes, 0, max(it.Len(), 0))
	for it.Next() {
		if n, ok := any(it.Node()).(*gorgonia.Node); ok {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// Sort returns the nodes of g in the order in which a tape machine runs them, children first.
//
// Errors: a graph with a cycle.
func Sort(g *gorgonia.ExprGraph) (gorgonia.Nodes, error) {
	RenewIndex(g)
	sorted, err := gorgonia.Sort(g)
	if err != nil {
		return nil, fmt.Errorf("order of the nodes: %w", err)
	}
	slices.Reverse(sorted)
	return sorted, nil
}

// RenewIndex clears g's table of node positions; gorgonia fills it again on demand. Call it before
// gorgonia itself asks the graph by ID: before gorgonia.Grad, and before a tape machine is made. A
// tape machine takes the order of the nodes from such answers, and binds values to the nodes it
// finds. ddp.Attach calls RenewIndex before it differentiates and when it ends.
func RenewIndex(g *gorgonia.ExprGraph) {
	if at, ok := indexOf(g); ok {
		clear(*at)
	}
}

// indexOf returns g's unexported table from IDs to positions. ok is false if the field is missing
// or has another type.
func indexOf(g *gorgonia.ExprGraph) (at *map[int64]int, ok bool) {
	if g == nil {
		return nil, false
	}
	field := reflect.ValueOf(g).Elem().FieldByName("byID")
	if !field.IsValid() || field.Type() != reflect.TypeFor[map[int64]int]() {
		return nil, false
	}
	return (*map[int64]int)(unsafe.Pointer(field.UnsafeAddr())), true
}
