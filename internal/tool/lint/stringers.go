package lint

import (
	"go/ast"
	"strings"
)

var stringersRule = Rule{
	Name:  "stringers",
	Why:   "for a value, fmt does not call the pointer's String and prints the fields: a type that is exposed by value needs String on the value",
	Check: checkStringers,
}

// typeName is a type of the module: its folder, a dot, its name.
type typeName string

// checkStringers finds results and fields of exported types that have String on the pointer only.
func checkStringers(m *Module) []Finding {
	onPointer, alias := map[typeName]bool{}, map[typeName]typeName{}
	for _, f := range m.Files {
		if f.Test() {
			continue
		}
		for _, d := range f.AST.Decls {
			if name, ok := pointerString(d); ok {
				onPointer[typeName(f.Folder()+"."+name)] = true
			}
			for from, to := range aliases(m, f, d) {
				alias[from] = to
			}
		}
	}
	var found []Finding
	for _, f := range m.Files {
		if f.Test() {
			continue
		}
		for _, expr := range handedOut(f.AST) {
			name, ok := valueOf(m, f, expr)
			if to, is := alias[name]; is {
				name = to
			}
			if ok && onPointer[name] {
				found = append(found, f.at(expr, "exposes %s by value, but only its pointer has String", name))
			}
		}
	}
	return found
}

// pointerString returns the exported type whose pointer a declaration gives the method String.
func pointerString(d ast.Decl) (string, bool) {
	fn, ok := d.(*ast.FuncDecl)
	if !ok || fn.Recv == nil || fn.Name.Name != "String" || fn.Type.Params.NumFields() != 0 {
		return "", false
	}
	star, ok := fn.Recv.List[0].Type.(*ast.StarExpr)
	if !ok {
		return "", false
	}
	id, ok := star.X.(*ast.Ident)
	return nameOf(id), ok && id.IsExported()
}

func nameOf(id *ast.Ident) string {
	if id == nil {
		return ""
	}
	return id.Name
}

// aliases returns the aliases of types that a declaration makes.
func aliases(m *Module, f *File, d ast.Decl) map[typeName]typeName {
	all := map[typeName]typeName{}
	g, ok := d.(*ast.GenDecl)
	if !ok {
		return all
	}
	for _, s := range g.Specs {
		if t, ok := s.(*ast.TypeSpec); ok && t.Assign.IsValid() {
			if to, ok := valueOf(m, f, t.Type); ok {
				all[typeName(f.Folder()+"."+t.Name.Name)] = to
			}
		}
	}
	return all
}

// handedOut returns the types of the results of exported functions and of exported fields.
func handedOut(tree *ast.File) []ast.Expr {
	var all []ast.Expr
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Name.IsExported() && n.Type.Results != nil {
				for _, r := range n.Type.Results.List {
					all = append(all, r.Type)
				}
			}
		case *ast.TypeSpec:
			if s, ok := n.Type.(*ast.StructType); ok && n.Name.IsExported() {
				for _, field := range s.Fields.List {
					if len(field.Names) > 0 && field.Names[0].IsExported() {
						all = append(all, field.Type)
					}
				}
			}
		}
		return true
	})
	return all
}

// valueOf returns the type of the module that an expression holds by value: itself, or in a slice,
// an array or a map.
func valueOf(m *Module, f *File, expr ast.Expr) (typeName, bool) {
	switch t := expr.(type) {
	case *ast.Ident:
		return typeName(f.Folder() + "." + t.Name), true
	case *ast.ArrayType:
		return valueOf(m, f, t.Elt)
	case *ast.MapType:
		return valueOf(m, f, t.Value)
	case *ast.SelectorExpr:
		pkg, ok := t.X.(*ast.Ident)
		if !ok {
			return "", false
		}
		folder, ok := importedAs(m, f, pkg.Name)
		return typeName(folder + "." + t.Sel.Name), ok
	}
	return "", false
}

// importedAs returns the folder of the module that a file imports by a name.
func importedAs(m *Module, f *File, name string) (string, bool) {
	for _, s := range f.AST.Imports {
		folder, ours := strings.CutPrefix(importPath(s), m.Path+"/")
		if !ours {
			continue
		}
		own := folder[strings.LastIndexByte(folder, '/')+1:]
		if s.Name != nil {
			own = s.Name.Name
		}
		if own == name {
			return folder, true
		}
	}
	return "", false
}
