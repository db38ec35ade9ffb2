package lint

import (
	"go/ast"
	"slices"
)

// ban is functions of a package that may be used only in some places.
type ban struct {
	path  string
	names []string
	ok    func(f *File) bool
	why   string
}

func nowhere(*File) bool     { return false }
func notInTest(f *File) bool { return !f.Test() }

// inPrograms is in tests, commands and examples.
func inPrograms(f *File) bool { return f.Test() || f.in("cmd", "examples", "bench") }

// readsOwnFiles is in tests, and where the files are those of the system (/proc, /sys), of an
// installed library, of this repository, or results that the same program has written.
func readsOwnFiles(f *File) bool {
	return f.Test() || f.in("internal/lint", "internal/shm", "internal/nvshmem", "internal/conformance", "dist/launch", "examples/internal/train", "bench")
}

var bans = []ban{
	{
		"os",
		[]string{"Getenv", "LookupEnv", "Environ", "ExpandEnv", "Setenv", "Unsetenv", "Clearenv"},
		func(f *File) bool {
			return inPrograms(f) || f.in("dist/launch", "config") ||
				f.in("internal/long", "internal/cuda/cudatest", "internal/dl/dltest", "internal/gpu/gputest")
		},
		"the environment is read in dist/launch and config only, where it is checked and printed",
	},
	{
		"syscall",
		[]string{"Getenv", "Environ", "Setenv", "Unsetenv", "Clearenv"},
		nowhere,
		"the environment is read in dist/launch and config only, by package os",
	},
	{"os", []string{"ReadFile"}, readsOwnFiles, "the file may be a pipe or have no end: internal/foreign opens it without waiting, and bounds it"},
	{"io", []string{"ReadAll"}, readsOwnFiles, "what is read may have no end: internal/foreign bounds it"},
	{"os", []string{"Exit"}, inPrograms, "a library returns errors"},
	{"log", []string{"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"}, inPrograms, "a library returns errors"},
	{"runtime", []string{"SetFinalizer"}, nowhere, "whoever allocates writes the Close"},
	{"runtime", []string{"AddCleanup"}, nowhere, "only for reports of leaks; name the file here, with the reason"},
	{
		"gorgonia.org/gorgonia",
		[]string{"Sort", "UnstableSort"},
		readsGraphs,
		"it asks the graph by id, which goes wrong after a node was removed; ops.Sort is right",
	},
	{"time", []string{"Sleep"}, notInTest, "a test waits for an event, with a deadline; never for the clock"},
}

var callsRule = Rule{
	Name: "calls",
	Why:  "some functions may be used only in certain places",
	Check: func(m *Module) []Finding {
		var found []Finding
		for _, f := range m.Files {
			for _, b := range bans {
				if name := f.local(b.path); name != "" && !b.ok(f) {
					found = append(found, uses(f, name, b)...)
				}
			}
		}
		return found
	},
}

// uses is where f uses one of the functions of b, of the package that it knows as name.
func uses(f *File, name string, b ban) []Finding {
	var found []Finding
	ast.Inspect(f.AST, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == name && slices.Contains(b.names, sel.Sel.Name) {
			found = append(found, f.at(sel, "uses %s.%s: %s", b.path, sel.Sel.Name, b.why))
		}
		return true
	})
	return found
}

var skipsRule = Rule{
	Name: "skips",
	Why:  "a test that is skipped says why, so that nobody takes it for one that passed",
	Check: func(m *Module) []Finding {
		var found []Finding
		for _, f := range m.Files {
			if !f.Test() {
				continue
			}
			ast.Inspect(f.AST, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 0 {
					if sel, ok := call.Fun.(*ast.SelectorExpr); ok && (sel.Sel.Name == "Skip" || sel.Sel.Name == "SkipNow") {
						found = append(found, f.at(call, "skips without a reason"))
					}
				}
				return true
			})
		}
		return found
	},
}
