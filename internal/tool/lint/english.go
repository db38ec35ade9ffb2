package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// turn is a phrase that newcomers stumble over.
type turn struct {
	name  string // in englishExceptions
	match *regexp.Regexp
	write string // better words
}

// whatTurn has a budget of 1 per 100 comment lines; the other turns have 1 per 1000.
var whatTurn = turn{"what", regexp.MustCompile(`(?i)\bwhat\b`), "a noun"}

var turns = []turn{
	whatTurn,
	{"absence", regexp.MustCompile(`(?i)\bthat (there (is|are|was|were)|(is|are) there)\b|\bthere (is|are) not\b`), "missing or unknown"},
	{"order", regexp.MustCompile(`\b[Bb]ehind\b|\b[Bb]esides\b|\bbeside\b`), "after, during or in addition"},
	{"person", regexp.MustCompile(`(?i)\b(nobody|somebody|everybody)\b`), "no rank or no caller"},
	{"exclusion", regexp.MustCompile(`(?i)\bbut for\b|\bis none of\b`), "except or unknown"},
	{"likeness", regexp.MustCompile(`(?i)\balike\b`), "equal or on all ranks"},
	{"telling", regexp.MustCompile(`(?i)\b(tells?|told|telling) of\b|\b(is|are|was|were) told\b`), "reports or warns"},
	{"idiom", regexp.MustCompile(`(?i)\bfor ever\b|\bas far as\b|\bgoes by\b|\bgets on\b|\bget on with\b|\bin place of\b`), "hangs, if, uses, progresses or instead of"},
}

// unjudged matches the parts of a comment where "what" is allowed: quoted text and questions.
var (
	unjudged = regexp.MustCompile("\"[^\"]*\"|`[^`]*`|[^.!?]*\\?")
	letter   = regexp.MustCompile(`[^\n]`)
)

// wide is the name of comment lines that exceed commentColumns.
const (
	wide           = "wide"
	commentColumns = 100
)

var englishRule = Rule{
	Name:  "plain English",
	Why:   "a newcomer understands each comment and message at first reading: say it with a noun and a verb",
	Check: func(m *Module) []Finding { return checkEnglish(m, englishExceptions) },
}

// english has the findings of the rule in one folder, by the name of the turn, and the number of
// comment lines outside tests.
type english struct {
	lines int
	hits  map[string][]Finding
}

// budget returns the number of findings of a turn that a folder may have.
func (e english) budget(name string) int {
	switch name {
	case whatTurn.name:
		return max(1, e.lines/100)
	case wide:
		return 0
	}
	return e.lines / 1000
}

// checkEnglish returns the findings of each folder over its budget, or over its exception, and the
// exceptions that are larger than needed.
func checkEnglish(m *Module, exceptions map[string]map[string]int) []Finding {
	folders := englishOf(m)
	for folder := range exceptions {
		if _, ok := folders[folder]; !ok {
			folders[folder] = &english{}
		}
	}
	var found []Finding
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		e := folders[folder]
		for _, name := range slices.Sorted(maps.Keys(exceptions[folder])) {
			if n, most := len(e.hits[name]), exceptions[folder][name]; n < most || n <= e.budget(name) {
				found = append(found, Finding{folder, fmt.Sprintf("the exception of %d for %s is too large: %d are left, %d need none", most, name, n, e.budget(name))})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(e.hits)) {
			if len(e.hits[name]) > max(e.budget(name), exceptions[folder][name]) {
				found = append(found, e.hits[name]...)
			}
		}
	}
	return found
}

// needed returns the smallest exceptions with which m passes the rule.
func needed(m *Module) map[string]map[string]int {
	all := map[string]map[string]int{}
	for folder, e := range englishOf(m) {
		for name, hits := range e.hits {
			if len(hits) > e.budget(name) {
				if all[folder] == nil {
					all[folder] = map[string]int{}
				}
				all[folder][name] = len(hits)
			}
		}
	}
	return all
}

func englishOf(m *Module) map[string]*english {
	folders := map[string]*english{}
	for _, f := range m.Files {
		e := folders[f.Folder()]
		if e == nil {
			e = &english{hits: map[string][]Finding{}}
			folders[f.Folder()] = e
		}
		for _, group := range f.AST.Comments {
			e.readComment(f, group)
		}
		if !f.Test() {
			e.readStrings(f)
		}
	}
	return folders
}

// readComment counts the full lines of a comment and looks for turns and wide lines in them.
func (e *english) readComment(f *File, group *ast.CommentGroup) {
	var text []string
	var at []*ast.Comment
	for _, c := range group.List {
		before, ok := f.before(c)
		if !ok || !strings.HasPrefix(c.Text, "//") || strings.HasPrefix(c.Text, "//go:") {
			continue
		}
		if n := columns(before + c.Text); n > commentColumns {
			e.hits[wide] = append(e.hits[wide], f.at(c, "the comment has %d columns, the limit is %d", n, commentColumns))
		}
		text, at = append(text, c.Text), append(at, c)
	}
	if f.Test() {
		return
	}
	e.lines += len(text)
	joined := strings.Join(text, "\n")
	judged := unjudged.ReplaceAllStringFunc(joined, func(s string) string { return letter.ReplaceAllString(s, " ") })
	for _, t := range turns {
		in := joined
		if t.name == whatTurn.name {
			in = judged
		}
		for _, place := range t.match.FindAllStringIndex(in, -1) {
			c := at[strings.Count(in[:place[0]], "\n")]
			e.hits[t.name] = append(e.hits[t.name], f.at(c, "says %q: write %s", in[place[0]:place[1]], t.write))
		}
	}
}

// columns returns the width of a line with a tab stop at every fourth column.
func columns(line string) int {
	n := 0
	for _, r := range line {
		if n++; r == '\t' {
			n = (n + 3) &^ 3
		}
	}
	return n
}

// readStrings looks for turns in string literals with a space. There, "what" has no limit.
func (e *english) readStrings(f *File) {
	ast.Inspect(f.AST, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(lit.Value)
		if err != nil || !strings.Contains(text, " ") {
			return true
		}
		for _, t := range turns[1:] {
			for _, s := range t.match.FindAllString(text, -1) {
				e.hits[t.name] = append(e.hits[t.name], f.at(lit, "says %q: write %s", s, t.write))
			}
		}
		return true
	})
}
