package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/internal/tool/cli"
)

// settingsTable returns a line per setting: key, value, origin, and why it has no effect, if so. It
// wraps lines if the terminal is too narrow.
func settingsTable(settings []config.Setting, columns int) []byte {
	rows := [][]string{{"KEY", "VALUE", "ORIGIN", ""}}
	for _, s := range settings {
		note := ""
		if s.Unused != "" {
			note = "no effect: " + s.Unused
		}
		rows = append(rows, []string{s.Key, s.Text, s.Origin.String(), note})
	}
	text := table(rows)
	if !fits(text, columns) {
		return []byte(cli.Wrap(string(text), columns, 4))
	}
	return text
}

// settingsJSON returns an object with the hash and the list of settings.
func settingsJSON(cfg *config.Config, origins *config.Origins) ([]byte, error) {
	type setting struct {
		Key    string `json:"key"`
		Value  any    `json:"value"`
		Origin string `json:"origin"`
		Unused string `json:"unused,omitempty"`
	}
	out := struct {
		Hash     string    `json:"hash"`
		Settings []setting `json:"settings"`
	}{Hash: cfg.Hash()}
	for _, s := range cfg.Settings(origins) {
		if d, ok := s.Value.(time.Duration); ok {
			s.Value = d.String() // as it is written, not nanoseconds
		}
		out.Settings = append(out.Settings, setting{s.Key, s.Value, s.Origin.String(), s.Unused})
	}
	text, err := json.MarshalIndent(out, "", "  ")
	return append(text, '\n'), err
}

// keysWith returns the keys with every word in their names. If there are none, it searches names
// and meanings.
//
// Errors: usageError with the nearest key if none match.
func keysWith(keys []config.Key, words []string) ([]config.Key, error) {
	search := func(text func(config.Key) string) []config.Key {
		return slices.DeleteFunc(slices.Clone(keys), func(k config.Key) bool {
			return slices.ContainsFunc(words, func(w string) bool {
				return !strings.Contains(strings.ToLower(text(k)), strings.ToLower(w))
			})
		})
	}
	found := search(func(k config.Key) string { return k.Name })
	if len(found) == 0 {
		found = search(func(k config.Key) string { return k.Name + " " + meaning(k) })
	}
	if len(found) > 0 {
		return found, nil
	}
	hint := "symgrad config keys lists them all"
	if near := config.NearestKey(words[0]); near != "" {
		hint = "did you mean " + near + "?"
	}
	return nil, usageError{fmt.Errorf("config keys: no setting has %q in its name or meaning: %s", strings.Join(words, " "), hint)}
}

// keysTable returns a line per setting, its meaning last. On a narrow terminal, each setting is a
// line with name, type and default, followed by its meaning.
func keysTable(keys []config.Key, columns int) []byte {
	rows := [][]string{{"KEY", "TYPE", "DEFAULT", "ALLOWED", "MEANING"}}
	for _, k := range keys {
		rows = append(rows, []string{k.Name, k.Type, k.Default, cmp.Or(k.Allowed, "-"), meaning(k)})
	}
	if text := table(rows); fits(text, columns) {
		return text
	}
	var b strings.Builder
	for _, k := range keys {
		facts := []string{k.Type, "default " + cmp.Or(k.Default, `""`)}
		if k.Allowed != "" {
			facts = append(facts, k.Allowed)
		}
		b.WriteString(cli.Wrap(k.Name+"  "+strings.Join(facts, ", ")+"\n", columns, 4))
		b.WriteString(cli.Wrap("    "+meaning(k)+"\n", columns, 4))
	}
	return []byte(b.String())
}

// fits reports whether no line of text is longer than columns; 0 means that any line fits.
func fits(text []byte, columns int) bool {
	for line := range bytes.Lines(text) {
		if columns > 0 && utf8.RuneCount(bytes.TrimSuffix(line, []byte("\n"))) > columns {
			return false
		}
	}
	return true
}

// keysMarkdown returns the reference of the settings as a Markdown table.
func keysMarkdown(keys []config.Key) []byte {
	var b bytes.Buffer
	b.WriteString("| key | type | default | allowed | meaning | in the hash |\n|---|---|---|---|---|---|\n")
	cell := strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;").Replace
	for _, k := range keys {
		hashed := "no"
		if k.Hashed {
			hashed = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s | %s | %s |\n", k.Name, k.Type, k.Default, cell(k.Allowed), cell(meaning(k)), hashed)
	}
	return b.Bytes()
}

// meaning returns the help of a setting and its condition.
func meaning(k config.Key) string {
	if k.Only == "" {
		return k.Help
	}
	return k.Help + " (only when " + k.Only + ")"
}

// table aligns rows in columns without blanks at the ends of lines.
func table(rows [][]string) []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t")) // writes to memory cannot fail
	}
	w.Flush()
	var out bytes.Buffer
	for line := range bytes.Lines(b.Bytes()) {
		out.Write(append(bytes.TrimRight(line, " \n"), '\n'))
	}
	return out.Bytes()
}

// write writes text to w and returns errors: a full disk must not look like success.
func write(w io.Writer, text []byte) error {
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}
