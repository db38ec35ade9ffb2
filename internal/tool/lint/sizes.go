package lint

import (
	"fmt"
	"go/ast"
	"path"
)

const (
	fileLines     = 400
	testFileLines = 600 // a test file holds tables
	functionLines = 60
)

var fileSizeRule = Rule{
	Name: "file size",
	Why:  "a file has one reason to change; when it grows past the limit, ask whether it is two thoughts",
	Check: func(m *Module) []Finding {
		var found []Finding
		for _, f := range m.Files {
			limit := fileLines
			if f.Test() {
				limit = testFileLines
			}
			if f.size > limit {
				found = append(found, Finding{f.Name, fmt.Sprintf("has %d lines, the limit is %d", f.size, limit)})
			}
		}
		return found
	},
}

// longFunctions lists functions that may be longer, "folder.name", with the reason.
var longFunctions = map[string]string{}

var functionSizeRule = Rule{
	Name: "function size",
	Why:  "a function is one thought; lines of tables do not count",
	Check: func(m *Module) []Finding {
		var found []Finding
		for _, f := range m.Files {
			for _, d := range f.AST.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && longFunctions[path.Join(f.Folder(), fn.Name.Name)] == "" {
					found = append(found, checkLength(f, fn, fn.Name.Name)...)
				}
			}
		}
		return found
	},
}

// checkLength counts the lines of a function without those inside composite literals, which are
// tables. A function inside a table is counted by itself.
func checkLength(f *File, fn ast.Node, name string) []Finding {
	var found []Finding
	lines := f.line(fn.End()) - f.line(fn.Pos()) + 1
	ast.Inspect(fn, func(n ast.Node) bool {
		table, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		lines -= f.line(table.End()) - f.line(table.Pos())
		ast.Inspect(table, func(n ast.Node) bool {
			inner, ok := n.(*ast.FuncLit)
			if ok {
				found = append(found, checkLength(f, inner, "a function in a table in "+name)...)
			}
			return !ok
		})
		return false
	})
	if lines > functionLines {
		found = append(found, f.at(fn, "%s has %d lines, the limit is %d", name, lines, functionLines))
	}
	return found
}

// tested lists the folders that have at least as many lines of tests as of code.
var tested = []string{"tensor", "symmetric", "dist", "ops"}

var testShareRule = Rule{
	Name: "test share",
	Why:  "contracts that everything builds on have at least as much test code as code",
	Check: func(m *Module) []Finding {
		code, tests := map[string]int{}, map[string]int{}
		for _, f := range m.Files {
			if f.Test() {
				tests[f.Folder()] += f.size
			} else {
				code[f.Folder()] += f.size
			}
		}
		var found []Finding
		for _, folder := range tested {
			if tests[folder] < code[folder] {
				found = append(found, Finding{folder, fmt.Sprintf("has %d lines of code, %d of tests", code[folder], tests[folder])})
			}
		}
		return found
	},
}
