package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/symgrad/symgrad/config"
)

// settingsTable is a line for every setting: key, value, origin, and why it has no effect if so.
func settingsTable(settings []config.Setting) []byte {
	rows := [][]string{{"KEY", "VALUE", "ORIGIN", ""}}
	for _, s := range settings {
		note := ""
		if s.Unused != "" {
			note = "no effect: " + s.Unused
		}
		rows = append(rows, []string{s.Key, s.Text, s.Origin.String(), note})
	}
	return table(rows)
}

// settingsJSON is an object with the hash and the list of settings.
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

// keysTable is a line for every setting, its meaning last.
func keysTable(keys []config.Key) []byte {
	rows := [][]string{{"KEY", "TYPE", "DEFAULT", "ALLOWED", "MEANING"}}
	for _, k := range keys {
		rows = append(rows, []string{k.Name, k.Type, k.Default, cmp.Or(k.Allowed, "-"), meaning(k)})
	}
	return table(rows)
}

// keysMarkdown is the reference of the settings as a Markdown table.
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

// meaning is the help of a setting and when it has an effect.
func meaning(k config.Key) string {
	if k.Only == "" {
		return k.Help
	}
	return k.Help + " (only when " + k.Only + ")"
}

// table aligns rows in columns and leaves no blanks at the ends of lines.
func table(rows [][]string) []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t")) // to memory: no error to see
	}
	w.Flush()
	var out bytes.Buffer
	for line := range bytes.Lines(b.Bytes()) {
		out.Write(append(bytes.TrimRight(line, " \n"), '\n'))
	}
	return out.Bytes()
}

// write is all of text to w, or why not: a full disk must not look like success.
func write(w io.Writer, text []byte) error {
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}
