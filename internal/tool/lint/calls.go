package lint

import (
	"go/ast"
	"slices"
)

// ban is a list of functions of a package that only some places may use.
type ban struct {
	path  string
	names []string
	ok    func(f *File) bool
	why   string
}

func nowhere(*File) bool     { return false }
func notInTest(f *File) bool { return !f.Test() }

// inPrograms reports whether f is in tests, commands or examples.
func inPrograms(f *File) bool { return f.Test() || f.in("cmd", "examples", "bench") }

// readsOwnFiles reports whether f is in a test, or in a folder that reads only safe files: those of
// the system (/proc, /sys), of an installed library, of this repository, or results of the same
// program.
func readsOwnFiles(f *File) bool {
	return f.Test() || f.in("internal/tool/lint", "internal/host/shm", "internal/gpu/nvshmem", "internal/conformance", "dist/launch", "train", "bench")
}

var bans = []ban{
	{
		"os",
		[]string{"Getenv", "LookupEnv", "Environ", "ExpandEnv", "Setenv", "Unsetenv", "Clearenv"},
		func(f *File) bool {
			return inPrograms(f) || f.in("dist/launch", "config") ||
				f.in("internal/long", "internal/gpu/cuda/cudatest", "internal/dl/dltest", "internal/gpu/gputest", "internal/net/hosttest")
		},
		"the environment is read in dist/launch and config only, where it is checked and printed",
	},
	{
		"syscall",
		[]string{"Getenv", "Environ", "Setenv", "Unsetenv", "Clearenv"},
		nowhere,
		"the environment is read in dist/launch and config only, by package os",
	},
	{"os", []string{"ReadFile"}, readsOwnFiles, "the file may be a pipe or endless: internal/foreign opens it without waiting, and limits its size"},
	{"io", []string{"ReadAll"}, readsOwnFiles, "the input may be endless: internal/foreign limits its size"},
	{"os", []string{"Exit"}, func(f *File) bool { return inPrograms(f) || f.in("internal/net/hosttest") }, "a library returns errors"},
	{"log", []string{"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"}, inPrograms, "a library returns errors"},
	{"runtime", []string{"SetFinalizer"}, nowhere, "the owner of memory has a Close"},
	{"runtime", []string{"AddCleanup"}, nowhere, "only for reports of leaks; list the file here, with the reason"},
	{
		"gorgonia.org/gorgonia",
		[]string{"Sort", "UnstableSort"},
		readsGraphs,
		"it asks the graph by ID, which is wrong after a node was removed; use ops.Sort",
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

// uses returns the places where f uses one of the functions of b; name is the package's name in f.
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
	Why:  "a skipped test has a reason, so that it is not mistaken for one that passed",
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
