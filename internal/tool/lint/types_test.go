package lint

import (
	"fmt"
	"strings"
	"testing"
)

// type T of package p has so many methods, in so many files, and fields.
func sized(methods, files, fields int) map[string]string {
	all := map[string]string{"p/a.go": "package p\ntype T struct {\n" + strings.Repeat("\tx int\n", fields) + "}\n"}
	for i := range methods {
		name := fmt.Sprintf("p/a%d.go", i%files)
		if all[name] == "" {
			all[name] = "package p\n"
		}
		all[name] += "func (t *T) m() {}\n"
	}
	return all
}

// An exception has today's number: a larger type fails, and so does a number that could be lower.
func TestExceptionsOfTypesMayOnlyFall(t *testing.T) {
	for name, c := range map[string]struct {
		methods, files, fields int
		exception              crowd
		want                   string
	}{
		"at the limits":    {40, 4, 20, crowd{}, ""},
		"methods":          {41, 4, 20, crowd{}, "p.T has 41 methods, the limit is 40"},
		"fields":           {40, 4, 21, crowd{}, "p.T has 21 fields, the limit is 20"},
		"files":            {40, 5, 20, crowd{}, "p.T has 5 files with methods, the limit is 4"},
		"listed":           {50, 5, 21, crowd{methods: 50, fields: 21, files: 5}, ""},
		"listed, grown":    {51, 4, 20, crowd{methods: 50}, "p.T has 51 methods, the limit is 50"},
		"listed, fallen":   {45, 4, 20, crowd{methods: 50}, "lower its exception from 50"},
		"listed, small":    {40, 4, 20, crowd{methods: 41}, "remove the exception for 41"},
		"listed needless":  {9, 1, 1, crowd{fields: 20}, "remove the exception for 20"},
		"listed otherwise": {41, 4, 20, crowd{methods: 41, fields: 30}, "remove the exception for 30"},
	} {
		t.Run(name, func(t *testing.T) {
			sizes := typeSizes(source(t, sized(c.methods, c.files, c.fields)))
			wantFinding(t, compareCrowds(sizes, map[string]crowd{"p.T": c.exception}), c.want)
		})
	}
	wantFinding(t, compareCrowds(typeSizes(source(t, sized(1, 1, 1))), map[string]crowd{"p.U": {methods: 50}}), "no type p.U")
}

func TestTypesAreCountedForOneSystem(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"one for each system": {map[string]string{
			"p/a_linux.go": "package p\ntype T struct{}\nfunc (t T) m() {}\n", "p/a_other.go": "package p\nfunc (t T) n() {}\n",
			"p/b.go": "package p\nfunc (t T) o() {}\n", "p/b_test.go": "package p\nfunc (t T) p() {}\n",
		}, "3 methods, 2 files, 0 fields"},
		"names of one line": {map[string]string{"p/a.go": "package p\ntype T struct {\n\ta, b int\n\tU\n}\n"}, "0 methods, 0 files, 3 fields"},
		"a generic type":    {map[string]string{"p/a.go": "package p\ntype T[A, B any] struct{}\nfunc (t *T[A, B]) m() {}\n"}, "1 methods, 1 files, 0 fields"},
		"a record":          {map[string]string{"p/a.go": "package p\ntype T struct {\n\ta int `json:\"a\"`\n}\n"}, "0 methods, 0 files, 0 fields"},
	} {
		t.Run(name, func(t *testing.T) {
			s := typeSizes(source(t, c.files))["p.T"]
			if got := fmt.Sprintf("%d methods, %d files, %d fields", s.methods, len(s.files), s.fields); got != c.want {
				t.Errorf("counted %s, want %s", got, c.want)
			}
		})
	}
	for _, settings := range []string{"Config", "SpawnConfig", "Options", "benchFlags", "api", "table"} {
		text := strings.Replace(sized(0, 1, 30)["p/a.go"], "type T", "type "+settings, 1)
		if s := typeSizes(source(t, map[string]string{"p/a.go": text}))["p."+settings]; s.fields != 0 {
			t.Errorf("%s has %d fields that count", settings, s.fields)
		}
	}
}

func TestShortFilesHaveTheirType(t *testing.T) {
	const home = "package p\ntype T struct{}\nfunc (t *T) a() {}\n"
	const away = "package p\nfunc (t *T) b() {}\n"
	for name, c := range map[string]struct{ file, text, want string }{
		"methods only":      {"p/b.go", away, "has 2 lines and methods of p.T of p/a.go"},
		"with its type":     {"p/b.go", away + "type U struct{}\nfunc (u U) c() {}\n", ""},
		"functions only":    {"p/b.go", "package p\nfunc b(t *T) {}\n", ""},
		"long enough":       {"p/b.go", away + strings.Repeat("\n", 40), ""},
		"for one system":    {"p/b_linux.go", away, ""},
		"for a build tag":   {"p/b.go", "//go:build race\n\n" + away, ""},
		"a test":            {"p/b_test.go", away, ""},
		"another package's": {"q/b.go", "package q\nfunc (t *T) b() {}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			wantFinding(t, shortFileRule.Check(source(t, map[string]string{"p/a.go": home, c.file: c.text})), c.want)
		})
	}
}
