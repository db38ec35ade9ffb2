package pins

import (
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Every pinned import belongs to a module that go.mod names with a version.
func TestPinsAreInGoMod(t *testing.T) {
	gomod, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var modules []string
	for line := range strings.Lines(string(gomod)) {
		if f := strings.Fields(line); len(f) >= 2 && strings.HasPrefix(f[1], "v") {
			modules = append(modules, f[0])
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "pins.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Imports) == 0 {
		t.Fatal("nothing is pinned: remove the package")
	}
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if !covered(path, modules) {
			t.Errorf("no module of go.mod has package %s", path)
		}
	}
}

func covered(path string, modules []string) bool {
	for _, m := range modules {
		if path == m || strings.HasPrefix(path, m+"/") {
			return true
		}
	}
	return false
}
