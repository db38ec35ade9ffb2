package lint

import (
	"go/ast"
)

// byID has the methods of a Gorgonia graph that look for a node by its ID, with their numbers of
// arguments. After Gorgonia has removed a node they return another one: see ops/children.go.
var byID = map[string]int{
	"From": 1, "To": 1, "Node": 1, "Has": 1, "Edge": 2, "HasEdgeBetween": 2, "HasEdgeFromTo": 2, "RestrictedToDot": 2,
}

// readsGraphs reports whether f may use the methods of byID: the file that works around them, and
// the test that shows their error.
func readsGraphs(f *File) bool {
	return f.Name == "ops/children.go" || f.Name == "ops/children_test.go"
}

var graphsRule = Rule{
	Name: "graphs",
	Why:  "a graph's answers by ID are wrong after Gorgonia has removed a node; use ops.Children and ops.Users",
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
						found = append(found, f.at(sel, "asks a graph by ID, with %s: use ops.Children, Users and Sort", sel.Sel.Name))
					}
				}
				return true
			})
		}
		return found
	},
}
