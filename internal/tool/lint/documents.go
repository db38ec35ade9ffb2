package lint

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Document is a Markdown file of the module.
type Document struct {
	Name string // from the root of the module, with slashes: "docs/README.md"
	Text string
}

// Limits of a document's lines: a longer page is too much to read at once.
const (
	readmeLines = 150
	pageLines   = 400 // of a page in docs/
)

// quote is a block of a document that shows part of a file of the module:
//
//	<!-- from dist/ddp/example_test.go -->
//	```go
//	...
//	```
var quote = regexp.MustCompile("(?s)<!-- from (\\S+) -->\n```go\n(.*?)```")

var quotesRule = Rule{
	Name: "quotes",
	Why:  "Go code in README.md and docs/ is compiled and run elsewhere: change both",
	Check: func(m *Module) []Finding {
		var found []Finding
		for _, d := range m.Documents {
			if d.Name == "README.md" || strings.HasPrefix(d.Name, "docs/") {
				found = append(found, checkQuotes(m, d)...)
			}
		}
		return found
	},
}

func checkQuotes(m *Module, d Document) []Finding {
	var found []Finding
	blocks := strings.Count(d.Text, "```go\n")
	quotes := quote.FindAllStringSubmatch(d.Text, -1)
	if blocks != len(quotes) {
		found = append(found, Finding{d.Name, fmt.Sprintf("%d of %d Go blocks name no file", blocks-len(quotes), blocks)})
	}
	for _, q := range quotes {
		text, err := m.read(q[1])
		if err != nil {
			found = append(found, Finding{d.Name, fmt.Sprintf("quotes %s: %v", q[1], err)})
			continue
		}
		if line, ok := missing(q[2], text); ok {
			found = append(found, Finding{d.Name, fmt.Sprintf("%s has no line %q, or not in this order", q[1], line)})
		}
	}
	return found
}

// missing returns the first line of block that is not in text, or not after the previous line.
// White space at the ends of lines, empty lines and comments that start with "..." do not count.
func missing(block, text string) (string, bool) {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	at := 0
	for line := range strings.Lines(block) {
		want := strings.TrimSpace(line)
		if want == "" || strings.HasPrefix(want, "// ...") {
			continue
		}
		for at < len(lines) && lines[at] != want {
			at++
		}
		if at == len(lines) {
			return want, true
		}
		at++
	}
	return "", false
}

var documentSizeRule = Rule{
	Name: "document size",
	Why:  fmt.Sprintf("README.md has at most %d lines, a page of docs/ %d", readmeLines, pageLines),
	Check: func(m *Module) []Finding {
		var found []Finding
		for _, d := range m.Documents {
			most := pageLines
			switch {
			case d.Name == "README.md":
				most = readmeLines
			case !strings.HasPrefix(d.Name, "docs/"):
				continue
			}
			if n := strings.Count(d.Text, "\n"); n > most {
				found = append(found, Finding{d.Name, fmt.Sprintf("%d lines, more than %d", n, most)})
			}
		}
		return found
	},
}

// link matches the target of a Markdown link or image, and code matches text without links.
var (
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
)

var linksRule = Rule{
	Name: "links",
	Why:  "links lead to files that exist, and every page of docs/ is reached from README.md in two clicks",
	Check: func(m *Module) []Finding {
		var found []Finding
		leads := map[string][]string{}
		for _, d := range m.Documents {
			for _, l := range link.FindAllStringSubmatch(code.ReplaceAllString(d.Text, ""), -1) {
				target, _, _ := strings.Cut(l[1], "#")
				if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
					continue
				}
				target = path.Join(path.Dir(d.Name), target)
				if !m.exists(target) {
					found = append(found, Finding{d.Name, fmt.Sprintf("links to %s, which does not exist", l[1])})
				}
				leads[d.Name] = append(leads[d.Name], target)
			}
		}
		reached := []string{"README.md"}
		for range 2 {
			for _, name := range slices.Clone(reached) {
				reached = append(reached, leads[name]...)
			}
		}
		for _, d := range m.Documents {
			if strings.HasPrefix(d.Name, "docs/") && !slices.Contains(reached, d.Name) {
				found = append(found, Finding{d.Name, "is not reached from README.md in two clicks"})
			}
		}
		return found
	},
}

// diary is words of a diary: dates, times of day, and comparisons with an earlier state.
var diary = regexp.MustCompile(`\b20\d\d-\d\d\b|\b[0-2]\d:[0-5]\d\b|(?i)\bbefore and after\b`)

var diaryRule = Rule{
	Name: "diary",
	Why:  "documents describe the present: git keeps the history, and docs/decisions the reasons",
	Check: func(m *Module) []Finding {
		var found []Finding
		for _, d := range m.Documents {
			if d.Name != "README.md" && !strings.HasPrefix(d.Name, "docs/") || strings.HasPrefix(d.Name, "docs/decisions/") {
				continue
			}
			for i, line := range strings.Split(code.ReplaceAllString(d.Text, ""), "\n") {
				if at := diary.FindString(line); at != "" {
					found = append(found, Finding{d.Name, fmt.Sprintf("line %d says %q", i+1, at)})
				}
			}
		}
		return found
	},
}
