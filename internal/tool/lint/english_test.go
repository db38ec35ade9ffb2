package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestEnglishFinds gives the rule a folder with one file. want is the part of each finding.
func TestEnglishFinds(t *testing.T) {
	comments := func(n int, line string) string {
		return "package p\n\n" + strings.Repeat("// A line.\n", n) + line + "\n"
	}
	for name, c := range map[string]struct {
		file, text string
		want       []string
	}{
		"one what":          {"a/a.go", comments(0, "// A is what it is."), nil},
		"two":               {"a/a.go", comments(0, "// What\n// is what."), []string{`a/a.go:3: says "What": write a noun`, "a/a.go:4: "}},
		"two, 200 lines":    {"a/a.go", comments(198, "// What\n// is what."), nil},
		"two, 199 lines":    {"a/a.go", comments(197, "// What\n// is what."), []string{"a/a.go:200: ", "a/a.go:201: "}},
		"a question":        {"a/a.go", comments(0, "// So. What is\n// what, and whatever? \"what what\" `what what`."), nil},
		"after a question":  {"a/a.go", comments(0, "// Why? It is\n// what is what."), []string{"a/a.go:4: ", "a/a.go:4: "}},
		"what, in a test":   {"a/a_test.go", comments(0, "// What is what."), nil},
		"what, in a string": {"a/a.go", "package p\n\nvar a = \"what is what\"\n", nil},
		"not a full line":   {"a/a.go", "package p\n\nvar a int // but for what what\n", nil},
		"a turn":            {"a/a.go", comments(0, "// Nobody is behind it."), []string{`says "behind": write after`, `says "Nobody"`}},
		"a turn, 1000":      {"a/a.go", comments(999, "// Alike."), nil},
		"a turn, string":    {"a/a.go", "package p\n\nvar a = `x\ny: \"is none of\"`\n", []string{`a/a.go:3: says "is none of"`}},
		"one word":          {"a/a.go", "package p\n\nvar a = \"behind\"\n", nil},
		"turn, test":        {"a/a_test.go", "package p\n\n// Behind.\nvar a = \"is none of\"\n", nil},
		"100 columns":       {"a/a_test.go", "package p\n\nfunc f() {\n\t// " + strings.Repeat("ä", 93) + "\n}\n", nil},
		"101 columns":       {"a/a_test.go", "package p\n\nfunc f() {\n\t// " + strings.Repeat("ä", 94) + "\n}\n", []string{"a/a_test.go:4: the comment has 101 columns"}},
		"tab inside":        {"a/a.go", comments(0, "//\t"+strings.Repeat("a", 97)), []string{"101 columns"}},
		"a directive":       {"a/a.go", "//go:build " + strings.Repeat("a", 95) + "\n\npackage p\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			found := checkEnglish(source(t, map[string]string{c.file: c.text}), nil)
			if len(found) != len(c.want) {
				t.Fatalf("found %v, want %d", found, len(c.want))
			}
			for i, f := range found {
				if text := f.Place + ": " + f.Text; !strings.Contains(text, c.want[i]) {
					t.Errorf("found %q, want %q", text, c.want[i])
				}
			}
		})
	}
}

func TestEnglishExceptionsOnlyShrink(t *testing.T) {
	m := source(t, map[string]string{"a/a.go": "package p\n\n// What is what, and what is alike.\n"})
	if want := map[string]map[string]int{"a": {"what": 3, "likeness": 1}}; fmt.Sprint(needed(m)) != fmt.Sprint(want) {
		t.Errorf("needed %v, want %v", needed(m), want)
	}
	for _, c := range []struct {
		exceptions map[string]map[string]int
		found      int
		want       string
	}{
		{needed(m), 0, ""},
		{map[string]map[string]int{"a": {"what": 2, "likeness": 1}}, 3, `a/a.go:3 says "What"`},
		{map[string]map[string]int{"a": {"what": 4, "likeness": 1}}, 1, "a the exception of 4 for what is too large: 3 are left, 1 need none"},
		{map[string]map[string]int{"a": {"what": 3, "likeness": 1, "wide": 1}}, 1, "0 are left"},
		{map[string]map[string]int{"a": {"what": 3, "likeness": 1}, "b": {"what": 1}}, 1, "b the exception of 1"},
	} {
		found := checkEnglish(m, c.exceptions)
		if len(found) != c.found || len(found) > 0 && !strings.Contains(found[0].Place+" "+found[0].Text, c.want) {
			t.Errorf("%v: found %v, want %d with %q", c.exceptions, found, c.found, c.want)
		}
	}
}

// TestModuleIsPlainEnglish prints the exceptions that the module needs, if the rule finds anything.
func TestModuleIsPlainEnglish(t *testing.T) {
	m, err := Load("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(englishRule.Check(m)) == 0 {
		return
	}
	var b strings.Builder
	all := needed(m)
	for _, folder := range slices.Sorted(maps.Keys(all)) {
		var counts []string
		for _, name := range slices.Sorted(maps.Keys(all[folder])) {
			counts = append(counts, fmt.Sprintf("%q: %d", name, all[folder][name]))
		}
		fmt.Fprintf(&b, "\t%q: {%s},\n", folder, strings.Join(counts, ", "))
	}
	t.Errorf("the rule finds turns, see TestModuleKeepsTheHouseRules; englishExceptions that would allow them:\n%s", &b)
}
