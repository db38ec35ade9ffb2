package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/symgrad/symgrad/config"
)

func TestKeysAreFilteredByWords(t *testing.T) {
	names := func(args ...string) string {
		t.Helper()
		var names []string
		for i, line := range strings.Split(strings.TrimSpace(symgrad(t, append([]string{"config", "keys"}, args...)...)), "\n") {
			if name, _, _ := strings.Cut(line, " "); i > 0 {
				names = append(names, name)
			}
		}
		return strings.Join(names, " ")
	}
	for words, want := range map[string]string{
		"optim.lr":       "optim.lr",
		"beta":           "optim.beta1 optim.beta2",
		"schedule STEP":  "optim.schedule.step_size optim.schedule.total_steps optim.schedule.warmup_steps",
		"cosine":         "optim.schedule.min_lr optim.schedule.name optim.schedule.total_steps", // in no name
		"checkpoint dir": "checkpoint.dir",
	} {
		if got := names(strings.Fields(words)...); got != want {
			t.Errorf("%s: got %s, want %s", words, got, want)
		}
	}
	if rows := strings.Count(symgrad(t, "config", "keys", "--format=markdown", "optim.lr"), "\n"); rows != 3 {
		t.Errorf("Markdown has %d lines, want 3", rows)
	}
}

func TestUnknownWordNamesTheNearestKey(t *testing.T) {
	for word, want := range map[string]string{
		"optim.lrr": `symgrad: config keys: no setting has "optim.lrr" in its name or meaning: did you mean optim.lr?` + "\n",
		"xyzzy":     `symgrad: config keys: no setting has "xyzzy" in its name or meaning: symgrad config keys lists them all` + "\n",
	} {
		var stdout, stderr bytes.Buffer
		code := execute(newRootCommand(), []string{"config", "keys", word}, &stdout, &stderr)
		if code != exitUsage || stderr.String() != want || stdout.Len() > 0 {
			t.Errorf("%s: code %d, %q", word, code, &stderr)
		}
	}
}

// Nothing is lost by wrapping, and no line is longer than the terminal, unless a word is.
func TestKeysFitTheTerminal(t *testing.T) {
	keys := config.Keys()
	table := string(keysTable(keys, 0))
	if got := string(keysTable(keys, 10_000)); got != table {
		t.Error("the table is not shown where it fits")
	}
	for _, columns := range []int{40, 80, 132} {
		text := string(keysTable(keys, columns))
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if utf8.RuneCountInString(line) > columns && len(strings.Fields(line)) > 1 {
				t.Errorf("%d columns: %q", columns, line)
			}
		}
		flat := strings.Join(strings.Fields(text), " ")
		for _, k := range keys {
			if !strings.Contains(flat, k.Name+" "+k.Type+", default ") || !strings.Contains(flat, strings.Join(strings.Fields(k.Help), " ")) {
				t.Errorf("%d columns: %s is not whole", columns, k.Name)
			}
		}
	}
}
