package lint

import "testing"

// TestResultsAreCited gives the rule a small module. want is part of the only finding; "" is none.
func TestResultsAreCited(t *testing.T) {
	const file = "bench/results/current/a.json"
	type files map[string]string
	for name, c := range map[string]struct {
		files files
		want  string
	}{
		"linked": {files{"docs/b/c.md": "[a](../../" + file + ")", file: ""}, ""},
		"named":  {files{"README.md": "`" + file + "`", file: ""}, ""},
		"not cited": {
			files{"README.md": "", file: ""},
			"is cited by neither",
		},
		"cited elsewhere": {
			files{"DESIGN.md": "`" + file + "`", file: ""},
			"is cited by neither",
		},
		"not current": {
			files{"README.md": "bench/results/a.json", "bench/results/a.json": ""},
			"is not in bench/results/current",
		},
		"no such file":      {files{"DESIGN.md": "`" + file + "`."}, "names " + file + ","},
		"a name to fill in": {files{"DESIGN.md": "bench/results/current/DEVICE-x.json"}, ""},
		"from bench": {
			files{"bench/README.md": "`results/old.txt`"},
			"names results/old.txt",
		},
		"from bench, there": {
			files{"bench/README.md": "results/current/a.json", "docs/c.md": file, file: ""},
			"",
		},
		"in a script": {files{"bench/x.sh": "# " + file + "\n"}, "names " + file},
		"in a kernel": {files{"a/x.cu": "// bench/results/b.txt\n"}, "names bench/results/b.txt"},
		"in a comment": {
			files{"a/a.go": "package a\n\n// A is " + file + ".\nvar A int\n"},
			"names " + file,
		},
		"in a string": {files{"a/a.go": "package a\n\nvar A = \"" + file + "\"\n"}, ""},
		"a date": {
			files{"a/a.go": "package a\n\n// A (tune-x-2026-11-27-own.json).\nvar A int\n"},
			"names tune-x-2026-11-27-own.json",
		},
		"a date, with a folder": {
			files{"DESIGN.md": "bench/results/b-2026-11-27.json"},
			"names bench/results/b-2026-11-27.json",
		},
		"other dates": {files{"CHANGELOG.md": "v1, 2026-11-27, and x-2026-11-27"}, ""},
	} {
		t.Run(name, func(t *testing.T) { wantFinding(t, resultsRule.Check(source(t, c.files)), c.want) })
	}
}
