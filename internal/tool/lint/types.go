package lint

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
)

// The limits of a type. A file for one system or processor counts as one with that for the others.
const (
	typeMethods = 40
	typeFields  = 20
	typeFiles   = 4 // with methods of the type
	shortFile   = 40
)

// crowd is the size of a type. In the table of exceptions a 0 says that the limit holds.
type crowd struct {
	methods, fields, files int
	why                    string
}

// plain reports whether a struct may have any number of fields: settings are flat by the house
// rules, a table of foreign functions has a line for each, and a record with a tag for each field
// is the content of a file.
func plain(name string, s *ast.StructType) bool {
	for _, end := range []string{"config", "options", "flags"} {
		if strings.HasSuffix(strings.ToLower(name), end) {
			return true
		}
	}
	tagless := func(f *ast.Field) bool { return f.Tag == nil }
	return name == "api" || name == "table" || !slices.ContainsFunc(s.Fields.List, tagless)
}

var typeSizeRule = Rule{
	Name: "type size",
	Why:  "an object with many methods and fields has several jobs: give each job a type of its own; cutting the heap into files does not help",
	Check: func(m *Module) []Finding {
		return compareCrowds(typeSizes(m), crowded)
	},
}

// typeOf is a type and its place.
type typeOf struct {
	at      Finding // the declaration
	file    string
	methods int
	fields  int
	files   map[string]bool // with methods
}

// typeSizes returns the types of the module outside tests, by "folder.name".
func typeSizes(m *Module) map[string]*typeOf {
	all := map[string]*typeOf{}
	for _, f := range m.Files {
		for _, spec := range typeSpecs(f) {
			t := &typeOf{at: f.at(spec, "%s", spec.Name.Name), file: f.Name, files: map[string]bool{}}
			if s, ok := spec.Type.(*ast.StructType); ok && !plain(spec.Name.Name, s) {
				for _, field := range s.Fields.List {
					t.fields += max(1, len(field.Names))
				}
			}
			all[f.Folder()+"."+spec.Name.Name] = t
		}
	}
	for _, f := range m.Files {
		for name, n := range methods(f) {
			if t := all[name]; t != nil {
				t.methods += n
				t.files[anySystem(f.Name)] = true
			}
		}
	}
	return all
}

// typeSpecs returns the types that a file declares outside functions. A test has none.
func typeSpecs(f *File) []*ast.TypeSpec {
	var specs []*ast.TypeSpec
	for _, d := range f.AST.Decls {
		if g, ok := d.(*ast.GenDecl); ok && !f.Test() {
			for _, s := range g.Specs {
				if t, ok := s.(*ast.TypeSpec); ok {
					specs = append(specs, t)
				}
			}
		}
	}
	return specs
}

// methods returns the number of methods in a file of each type, by "folder.name".
func methods(f *File) map[string]int {
	n := map[string]int{}
	for _, d := range f.AST.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil && !f.Test() {
			n[f.Folder()+"."+receiver(fn)]++
		}
	}
	return n
}

// systems are the endings of files for one system or processor.
var systems = []string{"_linux", "_amd64", "_arm64", "_other"}

// anySystem returns the name of a file without the system that it is for.
func anySystem(name string) string {
	name = strings.TrimSuffix(name, ".go")
	for _, s := range systems {
		name = strings.TrimSuffix(name, s)
	}
	return name
}

// compareCrowds finds types over a limit that have no exception, and exceptions whose number is not
// today's: it may only fall.
func compareCrowds(all map[string]*typeOf, exceptions map[string]crowd) []Finding {
	var found []Finding
	for _, name := range slices.Sorted(maps.Keys(exceptions)) {
		if all[name] == nil {
			found = append(found, Finding{path.Dir(name), "no type " + name + ": remove its exception"})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t, e := all[name], exceptions[name]
		for _, c := range []struct {
			kind               string
			count, limit, kept int
		}{
			{"methods", t.methods, typeMethods, e.methods},
			{"fields", t.fields, typeFields, e.fields},
			{"files with methods", len(t.files), typeFiles, e.files},
		} {
			switch {
			case c.kept == 0 && c.count <= c.limit || c.kept > c.limit && c.count == c.kept:
			case c.count <= c.limit:
				found = append(found, Finding{t.at.Place, fmt.Sprintf("%s has %d %s: remove the exception for %d", name, c.count, c.kind, c.kept)})
			case c.kept > c.count:
				found = append(found, Finding{t.at.Place, fmt.Sprintf("%s has %d %s: lower its exception from %d", name, c.count, c.kind, c.kept)})
			default:
				found = append(found, Finding{t.at.Place, fmt.Sprintf("%s has %d %s, the limit is %d", name, c.count, c.kind, max(c.kept, c.limit))})
			}
		}
	}
	return found
}

var shortFileRule = Rule{
	Name: "short file",
	Why:  "a method is found next to its type; a file of a few methods of a type elsewhere hides them",
	Check: func(m *Module) []Finding {
		all := typeSizes(m)
		var found []Finding
		for _, f := range m.Files {
			if f.size >= shortFile || strings.Contains("\n"+string(f.text), "\n//go:build ") || anySystem(f.Name)+".go" != f.Name {
				continue
			}
			away := ""
			for _, name := range slices.Sorted(maps.Keys(methods(f))) {
				if t := all[name]; t != nil && t.file == f.Name {
					away = ""
					break
				} else if t != nil {
					away = name + " of " + t.file
				}
			}
			if _, ok := shortFiles[f.Name]; away != "" != ok {
				text := "has " + fmt.Sprint(f.size) + " lines and methods of " + away + ": merge the files"
				if ok {
					text = "is no short file with methods of a type elsewhere: remove its exception"
				}
				found = append(found, Finding{f.Name, text})
			}
		}
		return found
	},
}
