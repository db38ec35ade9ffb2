package lint

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// source makes a module of the given files.
func source(t *testing.T, files map[string]string) *Module {
	t.Helper()
	m := &Module{Path: "example.org/m", read: func(name string) (string, error) {
		if text, ok := files[name]; ok {
			return text, nil
		}
		return "", os.ErrNotExist
	}, exists: func(name string) bool {
		_, ok := files[name]
		return ok
	}}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := files[name]
		if isResult(name) {
			m.Results = append(m.Results, name)
			continue
		}
		if isScript(name) {
			m.Scripts = append(m.Scripts, Document{name, text})
		}
		if strings.HasSuffix(name, ".md") {
			m.Documents = append(m.Documents, Document{name, text})
		}
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		f, err := parse(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		m.Files = append(m.Files, f)
	}
	slices.SortFunc(m.Files, func(a, b *File) int { return strings.Compare(a.Name, b.Name) })
	return m
}

// body is a file of package p with one function of the given statements.
func body(imports, statements string) string {
	return "package p\n" + imports + "\nfunc f() {\n" + statements + "\n}\n"
}

func lines(n int) string { return strings.Repeat("\tg()\n", n) }

// TestRulesFind gives each rule a small module with one file. want is part of the only finding; ""
// is none.
func TestRulesFind(t *testing.T) {
	inModule := func(p string) string { return `import _ "example.org/m/` + p + `"` }
	for name, c := range map[string]struct {
		rule Rule
		file string
		text string
		want string
	}{
		"leaf imports":          {layersRule, "tensor/a.go", body(inModule("dist"), ""), "tensor/a.go:2: imports dist"},
		"leaf, foreign":         {layersRule, "tensor/a.go", body(`import _ "fmt"`, ""), ""},
		"allowed direction":     {layersRule, "dist/a.go", body(inModule("tensor"), ""), ""},
		"backend to backend":    {layersRule, "internal/host/shm/a.go", body(inModule("internal/sim"), ""), "backends never"},
		"backend test to sim":   {layersRule, "internal/host/shm/a_test.go", body(inModule("internal/sim"), ""), ""},
		"shm process test":      {layersRule, "internal/host/shm/a_test.go", body(inModule("dist/launch"), ""), ""},
		"shm to launch":         {layersRule, "internal/host/shm/a.go", body(inModule("dist/launch"), ""), "imports dist/launch"},
		"own package, test":     {layersRule, "tensor/a_test.go", body(inModule("tensor"), ""), ""},
		"invariants":            {layersRule, "tensor/a.go", body(inModule("internal/invariants"), ""), ""},
		"program":               {layersRule, "examples/ring/a.go", body(inModule("internal/host/shm"), ""), ""},
		"library to program":    {layersRule, "dist/ddp/a.go", body(inModule("examples/ddp"), ""), "examples/ddp"},
		"child has own line":    {layersRule, "dist/launch/a.go", body(inModule("symmetric"), ""), "imports symmetric"},
		"child without line":    {layersRule, "tensor/sub/a.go", body(inModule("dist"), ""), "tensor may import nothing"},
		"unknown folder":        {layersRule, "internal/new/a.go", body("", ""), "no line in the table"},
		"prefix is no folder":   {layersRule, "dist/a.go", body(inModule("tensorx"), ""), "imports tensorx"},
		"purego":                {outsideRule, "internal/host/blas/a.go", body(`import _ "github.com/ebitengine/purego"`, ""), "for internal/dl"},
		"purego in dl":          {outsideRule, "internal/dl/a.go", body(`import _ "github.com/ebitengine/purego"`, ""), ""},
		"gorgonia in dist":      {outsideRule, "dist/a.go", body(`import _ "gorgonia.org/gorgonia"`, ""), "without a graph"},
		"gorgonia test in dist": {outsideRule, "dist/a_test.go", body(`import _ "gorgonia.org/gorgonia"`, ""), "without a graph"},
		"below gorgonia":        {outsideRule, "dist/a.go", body(`import _ "gorgonia.org/gorgonia/ops/nn"`, ""), "ops/nn"},
		"gorgonia in ops":       {outsideRule, "ops/a.go", body(`import _ "gorgonia.org/gorgonia"`, ""), ""},
		"gorgonia's tensors":    {outsideRule, "dist/a.go", body(`import _ "gorgonia.org/tensor"`, ""), ""},
		"cgo":                   {outsideRule, "ops/a.go", body(`import "C"`, ""), "not allowed"},
		"getenv":                {callsRule, "dist/a.go", body(`import "os"`, `os.Getenv("A")`), "dist/a.go:4: uses os.Getenv"},
		"getenv, renamed":       {callsRule, "dist/a.go", body(`import sys "os"`, `sys.LookupEnv("A")`), "os.LookupEnv"},
		"getenv as a value":     {callsRule, "dist/a.go", body(`import "os"`, `g(os.Getenv)`), "os.Getenv"},
		"getenv in launch":      {callsRule, "dist/launch/a.go", body(`import "os"`, `os.Getenv("A")`), ""},
		"getenv in a test":      {callsRule, "dist/a_test.go", body(`import "os"`, `os.Getenv("A")`), ""},
		"other os call":         {callsRule, "dist/a.go", body(`import "os"`, `os.Getpid()`), ""},
		"exit":                  {callsRule, "dist/a.go", body(`import "os"`, `os.Exit(1)`), "returns errors"},
		"exit in a program":     {callsRule, "cmd/x/a.go", body(`import "os"`, `os.Exit(1)`), ""},
		"whole file":            {callsRule, "cmd/x/a.go", body(`import "os"`, `_, _ = os.ReadFile("x")`), "internal/foreign opens it without waiting"},
		"whole file of /proc":   {callsRule, "internal/host/shm/a.go", body(`import "os"`, `_, _ = os.ReadFile("x")`), ""},
		"whole reader":          {callsRule, "config/a.go", body(`import "io"`, `_, _ = io.ReadAll(nil)`), "may be endless"},
		"finalizer in a test":   {callsRule, "cmd/x/a_test.go", body(`import "runtime"`, `runtime.SetFinalizer(x, g)`), "Close"},
		"sleep in a test":       {callsRule, "cmd/x/a_test.go", body(`import "time"`, `time.Sleep(1)`), "deadline"},
		"sleep in code":         {callsRule, "internal/host/shm/a.go", body(`import "time"`, `time.Sleep(1)`), ""},
		"children by id":        {graphsRule, "machine/a.go", body(`import G "gorgonia.org/gorgonia"`, `n.Graph().From(n.ID())`), "machine/a.go:4: asks a graph by ID, with From"},
		"users by id, test":     {graphsRule, "ops/a_test.go", body(`import _ "gorgonia.org/gorgonia"`, `g.To(1).Len()`), "with To"},
		"edge by id":            {graphsRule, "optim/a.go", body(`import G "gorgonia.org/gorgonia"`, `g.HasEdgeFromTo(1, 2)`), "HasEdgeFromTo"},
		"node itself":           {graphsRule, "machine/a.go", body(`import G "gorgonia.org/gorgonia"`, `h.Node()`), ""},
		"the reader of graphs":  {graphsRule, "ops/children.go", body(`import G "gorgonia.org/gorgonia"`, `g.From(n.ID())`), ""},
		"from without a graph":  {graphsRule, "dist/a.go", body("", `g.From(1)`), ""},
		"order of a graph":      {callsRule, "machine/a.go", body(`import G "gorgonia.org/gorgonia"`, `G.Sort(g)`), "ops.Sort"},
		"bare skip":             {skipsRule, "dist/a_test.go", body("", "t.Skip"+"()"), "skips without"},
		"skip now":              {skipsRule, "dist/a_test.go", body("", `t.SkipNow()`), "skips without"},
		"skip with a reason":    {skipsRule, "dist/a_test.go", body("", `t.Skip("no device")`), ""},
		"panic":                 {panicsRule, "dist/a.go", body("", `panic(err)`), "without"},
		"unguarded bug":         {panicsRule, "dist/a.go", body("", `panic("BUG: x")`), "outside of"},
		"guarded bug":           {panicsRule, "dist/a.go", body("", "if invariants.Enabled && x {\npanic(fmt.Sprintf(\"BUG: %d\", x)) }"), ""},
		"guarded, no bug":       {panicsRule, "dist/a.go", body("", `if invariants.Enabled { panic("x") }`), "without"},
		"bug in the else":       {panicsRule, "dist/a.go", body("", "if invariants.Enabled {} else { panic(\"BUG: x\") }"), "outside of"},
		"panic in a test":       {panicsRule, "dist/a_test.go", body("", `panic(err)`), ""},
		"panic like gonum":      {panicsRule, "internal/host/blas/a.go", body("", `panic(shortX)`), ""},
		"file of 400":           {fileSizeRule, "dist/a.go", "package p\n" + strings.Repeat("\n", 399), ""},
		"file of 401":           {fileSizeRule, "dist/a.go", "package p\n" + strings.Repeat("\n", 400), "401 lines"},
		"test of 600":           {fileSizeRule, "dist/a_test.go", "package p\n" + strings.Repeat("\n", 599), ""},
		"test of 601":           {fileSizeRule, "dist/a_test.go", "package p\n" + strings.Repeat("\n", 600), "601 lines"},
		"function of 60":        {functionSizeRule, "dist/a.go", "package p\nfunc f() {\n" + lines(58) + "}\n", ""},
		"function of 61":        {functionSizeRule, "dist/a.go", "package p\nfunc f() {\n" + lines(59) + "}\n", "f has 61 lines"},
		"function with a table": {functionSizeRule, "dist/a.go", body("", "x := []int{"+strings.Repeat("\n1,", 90)+"\n}"), ""},
		"function in a table":   {functionSizeRule, "dist/a.go", body("", "x := []func(){\nfunc() {\n"+lines(60)+"},\n}"), "a function in a table in f has 62"},
		"small ones in a table": {functionSizeRule, "dist/a.go", body("", "x := []func(){"+strings.Repeat("\nfunc() {\n"+lines(9)+"},", 20)+"\n}"), ""},
		"one test line short":   {testShareRule, "dist/a.go", "package p\n", "1 lines of code, 0 of tests"},
		"no share asked":        {testShareRule, "optim/a.go", "package p\n", ""},
		"package comment":       {packageDocRule, "dist/a.go", "// Package p is p.\npackage p\n", ""},
		"no package comment":    {packageDocRule, "dist/a.go", "package p\n", "package p has no comment"},
		"test-only package":     {packageDocRule, "dist/a_test.go", "package p\n", ""},
		"string of a pointer":   {stringersRule, "dist/a.go", "package p\ntype T struct{}\nfunc (t *T) String() string { return \"\" }\nfunc F() []T { return nil }\n", "dist/a.go:4: exposes dist.T by value"},
		"string, by an alias":   {stringersRule, "dist/a.go", "package p\ntype T struct{}\ntype U = T\nfunc (t *T) String() string { return \"\" }\ntype V struct{ A map[int]U }\n", "dist/a.go:5: exposes dist.T by value"},
		"string of a value":     {stringersRule, "dist/a.go", "package p\ntype T struct{}\nfunc (t T) String() string { return \"\" }\nfunc F() T { return T{} }\n", ""},
		"string, pointers":      {stringersRule, "dist/a.go", "package p\ntype T struct{}\nfunc (t *T) String() string { return \"\" }\nfunc F() []*T { return nil }\n", ""},
		"note":                  {notesRule, "dist/a.go", "package p\n\n// TO" + "DO: more\n", "dist/a.go:3: TO" + "DO"},
		"note in a message":     {notesRule, "dist/a.go", body("", `g("Not `+`implemented yet")`), "dist/a.go:4"},
		"no note":               {notesRule, "dist/a.go", "package p\n\n// Mastodon, implemented.\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var texts []string
			for _, f := range c.rule.Check(source(t, map[string]string{c.file: c.text})) {
				texts = append(texts, f.Place+": "+f.Text)
			}
			switch {
			case c.want == "" && len(texts) > 0:
				t.Errorf("found %q, want nothing", texts)
			case c.want != "" && (len(texts) != 1 || !strings.Contains(texts[0], c.want)):
				t.Errorf("found %q, want one with %q", texts, c.want)
			}
		})
	}
}

func TestExportedNamesNeedComments(t *testing.T) {
	const text = `package p

func Bad1() {}

// Good is.
func Good() {}

func private() {}

type Bad2 struct{}

func (b *Bad2) Bad3() {}

type hidden struct{}

func (h *hidden) Method() {}

// List is a list.
type List[T any] struct{}

func (l List[T]) Bad4() {}

// Group is a set of types, and a comment for all is none for each.
type (
	Bad5 int
	// Fine is.
	Fine int
)

// The kinds.
const (
	A = 1
	B = 2
)

const (
	C = 3 // the third
	Bad6, Bad7 = 4, 5
)

var private2 int

// Verbs is an interface.
type Verbs interface {
	// Do does.
	Do()
	Undo() // undoes
	Bad8()
}
`
	var names []string
	for _, f := range exportedRule.Check(source(t, map[string]string{"dist/a.go": text, "dist/a_test.go": "package p\nfunc Helper() {}\n"})) {
		names = append(names, strings.Fields(f.Text)[0])
	}
	want := []string{"Bad1", "Bad2", "Bad3", "Bad4", "Bad5", "Bad6", "Bad7", "Bad8"}
	if !slices.Equal(names, want) {
		t.Errorf("found %v, want %v", names, want)
	}
}

func TestDocumentsQuoteCode(t *testing.T) {
	const program = "package p\n\nfunc Example() {\n\tone()\n\ttwo()\n\tthree()\n}\n"
	quoted := func(file, code string) string { return "text\n<!-- from " + file + " -->\n```go\n" + code + "```\n" }
	for name, c := range map[string]struct{ readme, want string }{
		"no code":      {"text\n```sh\nmake\n```\n", ""},
		"whole":        {quoted("a_test.go", "one()\ntwo()\nthree()\n"), ""},
		"with a gap":   {quoted("a_test.go", "one()\n// ... and so on ...\n\n    three()\n"), ""},
		"two blocks":   {quoted("a_test.go", "one()\n") + quoted("a_test.go", "two()\n"), ""},
		"changed":      {quoted("a_test.go", "one()\nTwo()\n"), `no line "Two()"`},
		"other order":  {quoted("a_test.go", "two()\none()\n"), `no line "one()"`},
		"twice":        {quoted("a_test.go", "one()\none()\n"), `no line "one()"`},
		"without file": {"```go\none()\n```\n", "1 of 1 Go blocks"},
		"no such file": {quoted("b_test.go", "one()\n"), "quotes b_test.go"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, document := range []string{"README.md", "docs/a.md"} {
				wantFinding(t, quotesRule.Check(source(t, map[string]string{document: c.readme, "a_test.go": program})), c.want)
			}
			if found := quotesRule.Check(source(t, map[string]string{"CHANGELOG.md": c.readme})); len(found) > 0 {
				t.Errorf("found %v in a document that shows no programs", found)
			}
		})
	}
}

// One operation with all cases, and each way to forget one.
func TestOperationsNeedCases(t *testing.T) {
	files := map[string]string{
		"internal/compile/program/a.go": `package program
type A struct{ B }
func (*A) op() {}
func (*A) String() string { return "" }
func Table() []Op { return []Op{&A{}} }
func (p *Program) signature() { switch op.(type) { case *A: } }
func windowed() {}
func rows() {}
func (c *checker) sizes() { switch op.(type) { case *B, *A: } }
`,
		"internal/compile/program/oracle/a.go": `package oracle
func (m *machine) advance() { _, _ = op.(*program.A) }
func (m *machine) step() {}
func windowed() {}
`,
		"internal/compile/hostexec/a.go": `package hostexec
func (k *maker) step() {}
func (k *maker) compute() {}
func makeStep[T real]() { switch op.(type) { case *program.A: } }
func makeImages[T real]() {}
`,
		"internal/compile/cudagen/a.go": `package cudagen
func (g *generator) step() {}
func (g *generator) fixed() { switch op.(type) { case *program.A: } }
`,
	}
	wantFinding(t, operationsRule.Check(source(t, files)), "")
	for name, c := range map[string]struct{ file, old, new, want string }{
		"no entry":        {"internal/compile/program/a.go", "&A{}", "", "operation A has no entry in Table"},
		"embedded string": {"internal/compile/program/a.go", "(*A) String", "(*B) String", "operation A has no method String"},
		"operands":        {"internal/compile/program/a.go", "{ case *A:", "{ case *B:", "no case in the operands"},
		"validation":      {"internal/compile/program/a.go", "*B, *A", "*B", "no case in the validation"},
		"oracle":          {"internal/compile/program/oracle/a.go", "program.A", "program.B", "no case in the oracle"},
		"host":            {"internal/compile/hostexec/a.go", "program.A", "program.B", "no case in the host"},
		"needless reason": {"internal/compile/hostexec/a.go", "*program.A", "*program.A, *program.Attention", "Attention has a case in the host"},
		"cuda":            {"internal/compile/cudagen/a.go", "program.A", "program.B", "no case in the CUDA generator"},
		"renamed":         {"internal/compile/cudagen/a.go", "step", "stride", "no function generator.step"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := maps.Clone(files)
			changed[c.file] = strings.ReplaceAll(changed[c.file], c.old, c.new)
			wantFinding(t, operationsRule.Check(source(t, changed)), c.want)
		})
	}
}

// wantFinding fails the test unless the only finding has want in its text, or there is no finding
// for "".
func wantFinding(t *testing.T, found []Finding, want string) {
	t.Helper()
	switch {
	case want == "" && len(found) > 0:
		t.Errorf("found %v, want nothing", found)
	case want != "" && (len(found) != 1 || !strings.Contains(found[0].Text, want)):
		t.Errorf("found %v, want one with %q", found, want)
	}
}

func TestDocumentsAreShort(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines int
		want  string
	}{
		{"README.md", 150, ""},
		{"README.md", 151, "151 lines, more than 150"},
		{"docs/a/b.md", 400, ""},
		{"docs/a/b.md", 401, "401 lines, more than 400"},
		{"CHANGELOG.md", 1000, ""},
	} {
		wantFinding(t, documentSizeRule.Check(source(t, map[string]string{c.name: strings.Repeat("\n", c.lines)})), c.want)
	}
}

func TestDocumentsAreNoDiary(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"a date":                {"README.md", "Measured on 2026-11-02.", `line 1 says "2026-11"`},
		"a time of day":         {"docs/a.md", "x\n\nAt 13:05 it ran.", `line 3 says "13:05"`},
		"a comparison":          {"docs/a.md", "Before and after.", `line 1 says "Before and after"`},
		"code":                  {"docs/a.md", "`127.0.0.1:12:34` and `2026-11-02`", ""},
		"a decision":            {"docs/decisions/0001-a.md", "Date: 2026-11", ""},
		"a version of a module": {"README.md", "v0.0.0-20231121144256-b99613f794b6", ""},
	} {
		t.Run(name, func(t *testing.T) {
			wantFinding(t, diaryRule.Check(source(t, map[string]string{c.file: c.text})), c.want)
		})
	}
}

func TestLinksLeadToPages(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"outside":        {map[string]string{"README.md": "[a](https://example.org) [b](#part) [c](mailto:a@example.org)"}, ""},
		"a file":         {map[string]string{"README.md": "[a](x/a.go#L1)", "x/a.go": "package x"}, ""},
		"no such file":   {map[string]string{"README.md": "[a](x/b.go)"}, "links to x/b.go"},
		"code":           {map[string]string{"README.md": "`View[T](region)`\n```go\nView[T](region)\n```\n"}, ""},
		"from a folder":  {map[string]string{"bench/README.md": "[a](../x.md)", "x.md": ""}, ""},
		"from below":     {map[string]string{"bench/README.md": "[a](x.md)", "x.md": ""}, "links to x.md"},
		"two clicks":     {map[string]string{"README.md": "[a](docs/a.md)", "docs/a.md": "[b](b/b.md)", "docs/b/b.md": ""}, ""},
		"not at all":     {map[string]string{"README.md": "", "docs/a.md": ""}, "not reached"},
		"third click":    {map[string]string{"README.md": "[a](docs/a.md)", "docs/a.md": "[b](b.md)", "docs/b.md": "[c](c.md)", "docs/c.md": ""}, "not reached"},
		"below docs too": {map[string]string{"README.md": "[a](docs/a.md)", "docs/a.md": "[n](none.md)"}, "links to none.md"},
	} {
		t.Run(name, func(t *testing.T) { wantFinding(t, linksRule.Check(source(t, c.files)), c.want) })
	}
}

func TestLoadLeavesOutOtherModules(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":           "module example.org/m\n\ngo 1.26\n",
		"README.md":        "m\n",
		"a/k.cu":           "k\n",
		"Makefile":         "all:\n",
		"bench/results/a":  "{}",
		"a/b.go":           "package a\n",
		"a/b_test.go":      "//go:build never\n\npackage a\n",
		"a/testdata/c.go":  "this is no Go",
		"tools/go.mod":     "module example.org/m/tools\n",
		"tools/d.go":       "this is no Go",
		".hidden/e.go":     "this is no Go",
		"_drafts/f.go":     "this is no Go",
		"a/deep/er/g.go":   "package er\n",
		"a/deep/er/g.text": "text",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range m.Files {
		names = append(names, f.Name)
	}
	if len(m.Documents) != 1 || m.Documents[0] != (Document{"README.md", "m\n"}) || !m.exists("a/deep") || m.exists("b") {
		t.Errorf("documents %v", m.Documents)
	}
	if len(m.Scripts) != 2 || m.Scripts[0] != (Document{"Makefile", "all:\n"}) ||
		m.Scripts[1].Name != "a/k.cu" ||
		!slices.Equal(m.Results, []string{"bench/results/a"}) {
		t.Errorf("scripts %v, results %v", m.Scripts, m.Results)
	}
	if want := []string{"a/b.go", "a/b_test.go", "a/deep/er/g.go"}; !slices.Equal(names, want) || m.Path != "example.org/m" {
		t.Errorf("module %s with %v, want %v", m.Path, names, want)
	}
	if err := os.WriteFile(filepath.Join(root, "broken.go"), []byte("package"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(root); err == nil {
		t.Error("a file that is no Go is accepted")
	}
	if _, err := Load(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder without go.mod: %v", err)
	}
}

func Example() {
	f, err := parse("dist/a.go", []byte("package dist\n\nfunc AllReduce() { panic(0) }\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, found := range panicsRule.Check(&Module{Files: []*File{f}}) {
		fmt.Println(found.Place, found.Text)
	}
	// Output: dist/a.go:3 panics without "BUG: ..."
}
