package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// leastWidth is the narrowest text that is still worth wrapping.
const leastWidth = 16

// Wrap breaks the lines of text between words, so that no line is longer than columns. A broken
// line continues after indent blanks. A word longer than a line stays whole, so that it can be
// copied. With columns 0, text is unchanged.
func Wrap(text string, columns, indent int) string {
	if columns <= 0 {
		return text
	}
	indent = max(0, min(indent, columns-leastWidth))
	var b strings.Builder
	for line := range strings.Lines(text) {
		body := strings.TrimSuffix(line, "\n")
		wrapLine(&b, body, columns, indent)
		b.WriteString(line[len(body):])
	}
	return b.String()
}

// wrapLine writes one line of Wrap. Blanks between words stay as they are, except at a break.
func wrapLine(b *strings.Builder, line string, columns, indent int) {
	at, empty := 0, true // the column, and whether the line has no word yet
	for line != "" {
		blanks := len(line) - len(strings.TrimLeft(line, " "))
		end := len(line)
		if i := strings.IndexByte(line[blanks:], ' '); i >= 0 {
			end = blanks + i
		}
		word := line[blanks:end]
		width := utf8.RuneCountInString(word)
		switch {
		case word == "":
			return // blanks at the end
		case !empty && at+blanks+width > columns:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			b.WriteString(line[:blanks])
			at += blanks
		}
		b.WriteString(word)
		at, empty = at+width, false
		line = line[end:]
	}
}

// ErrorText returns "program: error", wrapped for a terminal of that many columns; 0 means no
// terminal.
func ErrorText(program string, err error, columns int) string {
	return Wrap(fmt.Sprintf("%s: %v", program, err), columns, 4)
}
