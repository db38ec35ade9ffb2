package lint

import (
	"go/ast"
)

// byID is the methods of a Gorgonia graph that look for a node by its id, with their numbers of
// arguments. Gorgonia answers for another node after it has removed one: see ops/children.go.
var byID = map[string]int{
	"From": 1, "To": 1, "Node": 1, "Has": 1, "Edge": 2, "HasEdgeBetween": 2, "HasEdgeFromTo": 2, "RestrictedToDot": 2,
}

// readsGraphs is the files that may use the methods of byID: the place for it, and the test that
// shows how they are wrong.
func readsGraphs(f *File) bool {
	return f.Name == "ops/children.go" || f.Name == "ops/children_test.go"
}

var graphsRule = Rule{
	Name: "graphs",
	Why:  "a graph's answers by id are wrong after Gorgonia has removed a node; ops.Children and ops.Users are right",
	Check: func(m *Module) []Finding {
		var found []Finding
		for _, f := range m.Files {
			if readsGraphs(f) || f.local("gorgonia.org/gorgonia") == "" {
				continue
			}
			ast.Inspect(f.AST, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if args, is := 0, false; ok {
					if args, is = byID[sel.Sel.Name]; is && args == len(call.Args) {
						found = append(found, f.at(sel, "asks a graph by id, with %s: read it with ops.Children, Users and Sort", sel.Sel.Name))
					}
				}
				return true
			})
		}
		return found
	},
}
