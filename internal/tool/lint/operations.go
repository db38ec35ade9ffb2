package lint

import (
	"go/ast"
	"slices"
	"strings"
)

// part is a part of the compiler that has a case for each operation of a program.
type part struct {
	name    string
	folder  string
	funcs   []string          // with the cases; "type.method" for a method
	without map[string]string // operations without a case, with the reason
}

// programFolder has the operations: the types with a method op.
const programFolder = "internal/compile/program"

const fromNarrow = "only programs for GPUs have it: Optimize makes it where Program.Narrow is set"

var parts = []part{
	{name: "operands", folder: programFolder, funcs: []string{"Program.signature", "windowed", "rows"}},
	{name: "validation", folder: programFolder, funcs: []string{"checker.sizes"}},
	{name: "oracle", folder: "internal/compile/program/oracle", funcs: []string{"machine.advance", "machine.step", "windowed"}},
	{
		name: "host", folder: "internal/compile/hostexec", funcs: []string{"maker.step", "maker.compute", "makeStep", "makeImages"},
		without: map[string]string{"Attention": fromNarrow, "AttentionGrad": fromNarrow},
	},
	{name: "CUDA generator", folder: "internal/compile/cudagen", funcs: []string{"generator.step", "generator.fixed"}},
}

var operationsRule = Rule{
	Name: "operations",
	Why:  "an operation of a program has a case in every part of the compiler: see docs/how-to/add-an-op.md",
	Check: func(m *Module) []Finding {
		all := operations(m)
		found := checkTable(m, all)
		for _, p := range parts {
			found = append(found, p.check(m, all)...)
		}
		return found
	},
}

// operations returns the names of the types with a method op, and the places of these methods.
func operations(m *Module) map[string]Finding {
	all := map[string]Finding{}
	for _, f := range m.Files {
		for _, d := range f.AST.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.Folder() == programFolder && !f.Test() && fn.Name.Name == "op" && fn.Recv != nil {
				all[receiver(fn)] = f.at(fn, "%s", receiver(fn))
			}
		}
	}
	return all
}

// checkTable finds operations without an example in function Table, or without a String of their
// own: an embedded type may have one.
func checkTable(m *Module, all map[string]Finding) []Finding {
	shown, named := map[string]bool{}, map[string]bool{}
	for _, f := range m.Files {
		for _, d := range f.AST.Decls {
			fn, ok := d.(*ast.FuncDecl)
			switch {
			case !ok || f.Folder() != programFolder || f.Test():
			case fn.Name.Name == "String" && fn.Recv != nil:
				named[receiver(fn)] = true
			case fn.Name.Name == "Table":
				ast.Inspect(fn, func(n ast.Node) bool {
					if lit, ok := n.(*ast.CompositeLit); ok {
						shown[typeBase(lit.Type)] = true
					}
					return true
				})
			}
		}
	}
	return append(lacking(all, shown, "has no entry in Table"), lacking(all, named, "has no method String")...)
}

// check finds operations without a case in p, and exceptions that have one.
func (p *part) check(m *Module, all map[string]Finding) []Finding {
	has, missing := map[string]bool{}, slices.Clone(p.funcs)
	for _, f := range m.Files {
		for _, d := range f.AST.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || f.Folder() != p.folder || f.Test() || !slices.Contains(p.funcs, fullName(fn)) {
				continue
			}
			missing = slices.DeleteFunc(missing, func(name string) bool { return name == fullName(fn) })
			ast.Inspect(fn, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CaseClause:
					for _, t := range n.List {
						has[typeBase(t)] = true
					}
				case *ast.TypeAssertExpr:
					has[typeBase(n.Type)] = true
				}
				return true
			})
		}
	}
	var found []Finding
	for _, name := range missing {
		found = append(found, Finding{p.folder, "has no function " + name + ", where the " + p.name + " has its cases"})
	}
	for name := range p.without {
		if has[name] {
			found = append(found, Finding{p.folder, name + " has a case in the " + p.name + ": remove the exception"})
		}
		has[name] = true
	}
	return append(found, lacking(all, has, "has no case in the "+p.name+", "+p.folder+": "+strings.Join(p.funcs, ", "))...)
}

// lacking returns a finding for each operation that is missing from has, in the order of the
// source.
func lacking(all map[string]Finding, has map[string]bool, text string) []Finding {
	var found []Finding
	for name, at := range all {
		if !has[name] {
			found = append(found, Finding{at.Place, "operation " + name + " " + text})
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Text, b.Text) })
	return found
}

// receiver returns the name of a method's type, "" for a function.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	return typeBase(fn.Recv.List[0].Type)
}

// fullName returns "type.method", or the name of a function.
func fullName(fn *ast.FuncDecl) string {
	if r := receiver(fn); r != "" {
		return r + "." + fn.Name.Name
	}
	return fn.Name.Name
}

// typeBase returns the name of a type without pointer, package and type arguments.
func typeBase(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.StarExpr:
		return typeBase(t.X)
	case *ast.ParenExpr:
		return typeBase(t.X)
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.IndexExpr:
		return typeBase(t.X)
	case *ast.IndexListExpr:
		return typeBase(t.X)
	}
	return ""
}
