package lint

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

var exportedRule = Rule{
	Name: "exported names",
	Why:  "the comment of an exported name is its contract",
	Check: func(m *Module) []Finding {
		var found []Finding
		for _, f := range m.Files {
			if f.Test() {
				continue
			}
			for _, d := range f.AST.Decls {
				for _, name := range undocumented(d) {
					found = append(found, f.at(name, "%s has no comment", name.Name))
				}
			}
		}
		return found
	},
}

// undocumented returns the exported names of a declaration without a comment.
func undocumented(d ast.Decl) []*ast.Ident {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && receiverExported(d) {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		var names []*ast.Ident
		for _, s := range d.Specs {
			names = append(names, undocumentedSpec(d, s)...)
		}
		return names
	}
	return nil
}

func receiverExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	exported := true
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if ok {
			exported = id.IsExported()
		}
		return !ok // the first name is the receiver's type; others are its type parameters
	})
	return exported
}

// undocumentedSpec returns those of one spec. A group's comment is enough for its constants and
// variables, but not for its types.
func undocumentedSpec(d *ast.GenDecl, s ast.Spec) []*ast.Ident {
	switch s := s.(type) {
	case *ast.TypeSpec:
		var names []*ast.Ident
		if s.Doc == nil && (d.Doc == nil || d.Lparen.IsValid()) && s.Name.IsExported() {
			names = append(names, s.Name)
		}
		if iface, ok := s.Type.(*ast.InterfaceType); ok && s.Name.IsExported() {
			names = append(names, undocumentedMethods(iface)...)
		}
		return names
	case *ast.ValueSpec:
		if d.Doc != nil || s.Doc != nil || s.Comment != nil {
			return nil
		}
		var names []*ast.Ident
		for _, name := range s.Names {
			if name.IsExported() {
				names = append(names, name)
			}
		}
		return names
	}
	return nil
}

func undocumentedMethods(iface *ast.InterfaceType) []*ast.Ident {
	var names []*ast.Ident
	for _, method := range iface.Methods.List {
		if len(method.Names) == 1 && method.Names[0].IsExported() && method.Doc == nil && method.Comment == nil {
			names = append(names, method.Names[0])
		}
	}
	return names
}

var packageDocRule = Rule{
	Name: "package comments",
	Why:  "a newcomer reads the story of a package first",
	Check: func(m *Module) []Finding {
		first, documented := map[string]*File{}, map[string]bool{}
		var folders []string
		for _, f := range m.Files {
			if f.Test() {
				continue
			}
			if first[f.Folder()] == nil {
				first[f.Folder()] = f
				folders = append(folders, f.Folder())
			}
			if f.AST.Doc != nil && len(f.AST.Doc.Text()) > 0 {
				documented[f.Folder()] = true
			}
		}
		var found []Finding
		for _, folder := range folders {
			if !documented[folder] {
				f := first[folder]
				found = append(found, Finding{folder, "package " + f.AST.Name.Name + " has no comment"})
			}
		}
		return found
	},
}

// note matches comments about open work. The words are joined here so that this file passes the
// rule.
var note = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b|(?i:not ` + `implemented)`)

var notesRule = Rule{
	Name: "notes",
	Why:  "open work belongs in an issue, not in a comment or a message",
	Check: func(m *Module) []Finding {
		var found []Finding
		for _, f := range m.Files {
			ast.Inspect(f.AST, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && note.MatchString(lit.Value) {
					found = append(found, f.at(lit, "%s", strings.TrimSpace(lit.Value)))
				}
				return true
			})
			for _, group := range f.AST.Comments {
				if note.MatchString(group.Text()) {
					found = append(found, f.at(group, "%s", strings.TrimSpace(note.FindString(group.Text()))))
				}
			}
		}
		return found
	},
}
