package lint

import (
	"fmt"
	"regexp"
	"strings"
)

// quote is a block of README.md that shows part of a file of the module:
//
//	<!-- from dist/ddp/example_test.go -->
//	```go
//	...
//	```
var quote = regexp.MustCompile("(?s)<!-- from (\\S+) -->\n```go\n(.*?)```")

var readmeRule = Rule{
	Name: "readme",
	Why:  "code that README.md shows is compiled and run as an Example: change both",
	Check: func(m *Module) []Finding {
		var found []Finding
		blocks := strings.Count(m.Readme, "```go\n")
		quotes := quote.FindAllStringSubmatch(m.Readme, -1)
		if blocks != len(quotes) {
			found = append(found, Finding{"README.md", fmt.Sprintf("%d of %d Go blocks name no file", blocks-len(quotes), blocks)})
		}
		for _, q := range quotes {
			text, err := m.read(q[1])
			if err != nil {
				found = append(found, Finding{"README.md", fmt.Sprintf("quotes %s: %v", q[1], err)})
				continue
			}
			if line, ok := missing(q[2], text); ok {
				found = append(found, Finding{"README.md", fmt.Sprintf("%s has no line %q, or not in this order", q[1], line)})
			}
		}
		return found
	},
}

// missing is the first line of block that text has not, or not after the line before it. White space at the ends of
// lines, empty lines and comments that start with "..." do not count.
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
