package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Module is the source of a Go module: every .go file, for all build tags.
type Module struct {
	Path      string     // "github.com/symgrad/symgrad"
	Files     []*File    // ascending by name
	Documents []Document // Markdown files, ascending by name
	Scripts   []Document // scripts, kernels and other sources outside Go, ascending by name
	Results   []string   // files of bench/results, ascending by name
	read      func(name string) (string, error)
	exists    func(name string) bool // a file or folder of the module
}

// File is one parsed Go file.
type File struct {
	Name string // from the root of the module, with slashes: "dist/op.go"
	AST  *ast.File
	fset *token.FileSet
	size int // lines
	text []byte
}

// Finding is a place where a rule is broken.
type Finding struct {
	Place string // "dist/op.go:17" or a folder
	Text  string
}

// Rule is a property of all files of the module.
type Rule struct {
	Name  string
	Why   string
	Check func(m *Module) []Finding
}

// Rules returns all rules.
func Rules() []Rule {
	return []Rule{
		layersRule, outsideRule, callsRule, graphsRule, skipsRule, panicsRule,
		fileSizeRule, functionSizeRule, typeSizeRule, shortFileRule, testShareRule,
		exportedRule, packageDocRule, notesRule, quotesRule, documentSizeRule, linksRule, diaryRule, resultsRule,
		stringersRule, operationsRule, englishRule,
	}
}

// Load parses the module in the folder root, and reads its documents. It skips folders that are
// modules of their own, testdata and hidden folders.
//
// Errors: a file that is missing, unreadable or not Go.
func Load(root string) (*Module, error) {
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	m := &Module{Path: modulePath(gomod), read: func(name string) (string, error) {
		text, err := os.ReadFile(filepath.Join(root, name))
		return string(text), err
	}, exists: func(name string) bool {
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
		return err == nil
	}}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name != root && skipped(name, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		return m.add(name, filepath.ToSlash(rel))
	})
	return m, err
}

// add reads a file, if rules check files of its kind. rel is its name in the module.
func (m *Module) add(name, rel string) error {
	if isResult(rel) {
		m.Results = append(m.Results, rel)
		return nil
	}
	ext := filepath.Ext(name)
	if ext != ".go" && ext != ".md" && !isScript(name) {
		return nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	switch {
	case ext == ".md":
		m.Documents = append(m.Documents, Document{rel, string(text)})
	case ext != ".go":
		m.Scripts = append(m.Scripts, Document{rel, string(text)})
	default:
		var f *File
		f, err = parse(rel, text)
		m.Files = append(m.Files, f)
	}
	return err
}

func skipped(name, base string) bool {
	if base == "testdata" || base == "node_modules" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return true
	}
	_, err := os.Stat(filepath.Join(name, "go.mod"))
	return err == nil
}

func parse(name string, text []byte) (*File, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &File{Name: name, AST: tree, fset: fset, size: bytes.Count(text, []byte("\n")), text: text}, nil
}

func modulePath(gomod []byte) string {
	for line := range strings.Lines(string(gomod)) {
		if rest, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// Folder returns the folder of the file, "." for the root.
func (f *File) Folder() string { return path.Dir(f.Name) }

// Test reports whether the file is a test.
func (f *File) Test() bool { return strings.HasSuffix(f.Name, "_test.go") }

// in reports whether the file is in one of the folders, or below it.
func (f *File) in(folders ...string) bool {
	for _, folder := range folders {
		if f.Folder() == folder || strings.HasPrefix(f.Name, folder+"/") {
			return true
		}
	}
	return false
}

// at returns a finding about the node n.
func (f *File) at(n ast.Node, format string, args ...any) Finding {
	return Finding{fmt.Sprintf("%s:%d", f.Name, f.line(n.Pos())), fmt.Sprintf(format, args...)}
}

func (f *File) line(p token.Pos) int { return f.fset.Position(p).Line }

// before returns the indentation of the line of c; ok is false if there is code before c.
func (f *File) before(c *ast.Comment) (indent string, ok bool) {
	p := f.fset.PositionFor(c.Pos(), false)
	indent = string(f.text[p.Offset-p.Column+1 : p.Offset])
	return indent, strings.TrimSpace(indent) == ""
}

func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value // the parser has checked it
	}
	return p
}

// local returns the name of the package of the given path in the file; "" if it is not imported.
func (f *File) local(path string) string {
	for _, spec := range f.AST.Imports {
		switch {
		case importPath(spec) != path:
		case spec.Name != nil:
			return spec.Name.Name
		default:
			return path[strings.LastIndex(path, "/")+1:]
		}
	}
	return ""
}
