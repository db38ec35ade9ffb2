package main

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/symgrad/symgrad/internal/tool/cli/clitest"
)

// Help and errors are no wider than the terminal, except for examples, which are copied, and words
// that are wider.
func TestOutputIsAsWideAsTheTerminal(t *testing.T) {
	const columns = 60
	t.Setenv("COLUMNS", "")
	for _, args := range [][]string{
		{"bench", "--help"},
		{"plan", "--help"},
		{"config", "keys", "accum"},
		{"bench", "--ranks", "a number that is none"},
	} {
		screen, terminal := clitest.Terminal(t, columns)
		text := make(chan string)
		go func() { text <- readScreen(screen) }()
		execute(newRootCommand(), args, terminal, terminal)
		terminal.Close()
		lines := strings.Split(<-text, "\n")
		if len(lines) < 3 {
			t.Errorf("%v: only %q", args, lines)
		}
		for _, line := range lines {
			line = strings.TrimRight(line, "\r")
			body := strings.TrimLeft(line, " ")
			example := strings.HasPrefix(body, "symgrad ") || strings.HasPrefix(body, "mpirun ")
			if utf8.RuneCountInString(line) > columns && strings.Contains(body, " ") && !example {
				t.Errorf("%v: longer than %d columns: %q", args, columns, line)
			}
		}
	}
}

// readScreen reads the output on a terminal until its last writer closes it.
func readScreen(screen *os.File) string {
	var all []byte
	part := make([]byte, 4096)
	for {
		n, err := screen.Read(part)
		all = append(all, part[:n]...)
		if err != nil { // EIO
			return string(all)
		}
	}
}
