package lint

import "testing"

// TestResultsAreCited gives the rule a small module. want is part of the only finding; "" is none.
func TestResultsAreCited(t *testing.T) {
	const file = "bench/results/current/a.json"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"linked by a page":      {map[string]string{"docs/b/c.md": "[a](../../" + file + ")", file: ""}, ""},
		"named by README.md":    {map[string]string{"README.md": "`" + file + "`", file: ""}, ""},
		"not cited":             {map[string]string{"README.md": "", file: ""}, "is cited by neither"},
		"cited elsewhere":       {map[string]string{"DESIGN.md": "`" + file + "`", file: ""}, "is cited by neither"},
		"not current":           {map[string]string{"README.md": "bench/results/a.json", "bench/results/a.json": ""}, "is not in bench/results/current"},
		"no such file":          {map[string]string{"DESIGN.md": "`" + file + "`."}, "names " + file + ","},
		"a name to fill in":     {map[string]string{"DESIGN.md": "bench/results/current/DEVICE-x.json"}, ""},
		"from bench":            {map[string]string{"bench/README.md": "`results/old.txt`"}, "names results/old.txt"},
		"from bench, there":     {map[string]string{"bench/README.md": "results/current/a.json", "docs/c.md": file, file: ""}, ""},
		"in a script":           {map[string]string{"bench/x.sh": "# " + file + "\n"}, "names bench/results/current/a.json"},
		"in a kernel":           {map[string]string{"a/x.cu": "// bench/results/b.txt\n"}, "names bench/results/b.txt"},
		"in a comment":          {map[string]string{"a/a.go": "package a\n\n// A is " + file + ".\nvar A int\n"}, "names bench/results/current/a.json"},
		"in a string":           {map[string]string{"a/a.go": "package a\n\nvar A = \"" + file + "\"\n"}, ""},
		"a date":                {map[string]string{"a/a.go": "package a\n\n// A (tune-x-2026-11-27-own.json).\nvar A int\n"}, "names tune-x-2026-11-27-own.json"},
		"a date, with a folder": {map[string]string{"DESIGN.md": "bench/results/b-2026-11-27.json"}, "names bench/results/b-2026-11-27.json"},
		"other dates":           {map[string]string{"CHANGELOG.md": "v1, 2026-11-27, and x-2026-11-27"}, ""},
	} {
		t.Run(name, func(t *testing.T) { wantFinding(t, resultsRule.Check(source(t, c.files)), c.want) })
	}
}
