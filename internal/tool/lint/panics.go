package lint

import (
	"go/ast"
	"go/token"
	"strings"
)

// mayPanic lists the folders without the rule, with the reason.
var mayPanic = map[string]string{
	"internal/host/blas":  "the contract of gonum's blas packages is to panic on bad dimensions",
	"internal/invariants": "its purpose is to panic",
}

var panicsRule = Rule{
	Name: "panics",
	Why:  "a panic on one rank is a hang on the others; only a bug of ours, under invariants.Enabled, may panic",
	Check: func(m *Module) []Finding {
		var found []Finding
		for _, f := range m.Files {
			if _, ok := mayPanic[f.Folder()]; ok || f.Test() {
				continue
			}
			found = append(found, checkPanics(f)...)
		}
		return found
	},
}

func checkPanics(f *File) []Finding {
	guarded := guards(f)
	var found []Finding
	ast.Inspect(f.AST, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if id, ok := call.Fun.(*ast.Ident); !ok || id.Name != "panic" {
			return true
		}
		switch {
		case !saysBug(call):
			found = append(found, f.at(call, `panics without "BUG: ..."`))
		case !guarded(call):
			found = append(found, f.at(call, "panics outside of `if invariants.Enabled`"))
		}
		return true
	})
	return found
}

// saysBug reports whether the first string literal in a call's arguments starts with "BUG: ".
func saysBug(call *ast.CallExpr) bool {
	var first string
	ast.Inspect(call, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && first == "" && lit.Kind == token.STRING {
			first = lit.Value
		}
		return first == ""
	})
	return len(first) > 0 && strings.HasPrefix(first[1:], "BUG: ")
}

// guards returns a function that reports whether a node is inside an if with invariants.Enabled.
func guards(f *File) func(ast.Node) bool {
	var bodies []*ast.BlockStmt
	ast.Inspect(f.AST, func(n ast.Node) bool {
		if s, ok := n.(*ast.IfStmt); ok && namesEnabled(s.Cond) {
			bodies = append(bodies, s.Body)
		}
		return true
	})
	return func(n ast.Node) bool {
		for _, b := range bodies {
			if b.Pos() <= n.Pos() && n.End() <= b.End() {
				return true
			}
		}
		return false
	}
}

func namesEnabled(cond ast.Expr) bool {
	named := false
	ast.Inspect(cond, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Enabled" {
			x, ok := sel.X.(*ast.Ident)
			named = named || ok && x.Name == "invariants"
		}
		return true
	})
	return named
}
