package lint

import "strings"

// restriction limits the import of a foreign package, and of those below it, to some folders.
type restriction struct {
	path string
	only []string // folders, with those below; none means nowhere
	why  string
}

var restrictions = []restriction{
	{
		"gorgonia.org/gorgonia",
		[]string{"ops", "nn", "internal/nnop", "machine", "internal/compile/lower", "internal/compile/values", "internal/compile/update", "optim", "dist/ddp", "internal/drive", "train", "examples"},
		"communication must work, and be testable, without a graph",
	},
	{
		"github.com/ebitengine/purego",
		[]string{"internal/dl"},
		"threads, missing symbols and the error text of the loader are handled once",
	},
	{"github.com/spf13/viper", []string{"config"}, "settings have one schema and one precedence"},
	{"github.com/spf13/cobra", []string{"cmd"}, "only programs have a command line"},
	{"C", nil, "the binary is built without a C compiler and without the toolkits it uses"},
}

var outsideRule = Rule{
	Name: "outside",
	Why:  "some foreign packages are used in one place, so that one place can be changed",
	Check: func(m *Module) []Finding {
		var found []Finding
		for _, f := range m.Files {
			for _, spec := range f.AST.Imports {
				for _, r := range restrictions {
					p := importPath(spec)
					if (p == r.path || strings.HasPrefix(p, r.path+"/")) && !f.in(r.only...) {
						found = append(found, f.at(spec, "imports %s (%s): %s", p, places(r.only), r.why))
					}
				}
			}
		}
		return found
	},
}

func places(folders []string) string {
	if len(folders) == 0 {
		return "not allowed"
	}
	return "only for " + strings.Join(folders, ", ")
}
