package sim_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts in testdata give now into them; then read the diff")

// A test file is a sequence of directives:
//
//	command arguments
//	input lines
//	----
//	expected output
//	(blank line)
//
// Lines before a directive that begin with # are kept. player.do has the commands.
type directive struct {
	line     int
	comments []string
	command  string
	input    []string
	want     string
}

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			directives := readDirectives(t, file)
			got := make([]string, len(directives))
			// In the bubble time goes on only when every rank waits, so timeouts take no time and
			// come in order.
			synctest.Test(t, func(t *testing.T) {
				p := newPlayer()
				for i, d := range directives {
					got[i] = p.do(d)
				}
				p.close()
			})
			if *rewrite {
				writeDirectives(t, file, directives, got)
				return
			}
			for i, d := range directives {
				if got[i] != d.want {
					t.Errorf("%s:%d: %s\ngot:\n%swant:\n%s", file, d.line, d.command, got[i], d.want)
				}
			}
		})
	}
}

func readDirectives(t *testing.T, file string) []directive {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const (
		outside = iota
		input
		output
	)
	var all []directive
	var d directive
	state := outside
	for i, line := range strings.Split(strings.TrimRight(string(raw), "\n")+"\n", "\n") {
		switch {
		case state == outside && (line == "" || strings.HasPrefix(line, "#")):
			d.comments = append(d.comments, line)
		case state == outside:
			d.line, d.command, state = i+1, line, input
		case state == input && line == "----":
			state = output
		case state == input:
			d.input = append(d.input, line)
		case line != "":
			d.want += line + "\n"
		default:
			all = append(all, d)
			d, state = directive{}, outside
		}
	}
	if state != outside {
		t.Fatalf("%s: the last directive has no ----", file)
	}
	return all
}

func writeDirectives(t *testing.T, file string, directives []directive, got []string) {
	t.Helper()
	var b strings.Builder
	for i, d := range directives {
		for _, c := range d.comments {
			fmt.Fprintln(&b, c)
		}
		fmt.Fprintln(&b, d.command)
		for _, l := range d.input {
			fmt.Fprintln(&b, l)
		}
		fmt.Fprintf(&b, "----\n%s\n", got[i])
	}
	text := strings.TrimRight(b.String(), "\n") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
