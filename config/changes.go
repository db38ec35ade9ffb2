package config

import (
	"fmt"
	"strings"
)

// Change is a setting that a run has otherwise than the run before it had.
type Change struct {
	Key      string
	Old, New string // as they would be written in a file; "" where it has no effect
	Fixed    bool   // it determines the training: with another value it is another training
}

// String is "optim.lr: 0.001 before, 0.0005 now".
func (c Change) String() string {
	return fmt.Sprintf("%s: %s before, %s now", c.Key, orNone(c.Old), orNone(c.New))
}

func orNone(value string) string {
	if value == "" {
		return "none"
	}
	return value
}

// Changes is the settings of Canonical that c has otherwise than a run whose Canonical was
// canonical, in the order of Config. A training that goes on from a checkpoint may have others, but
// for those that are Fixed.
//
// Errors: text that is not Canonical's, or that of another version.
func (c *Config) Changes(canonical string) ([]Change, error) {
	before, err := parseCanonical(canonical)
	if err != nil {
		return nil, err
	}
	var changes []Change
	for _, f := range schema() {
		now := ""
		if f.hashed && f.only.holds(c) {
			now = f.canonical(c)
		}
		if old := before[f.key]; old != now {
			changes = append(changes, Change{f.key, old, now, f.fixed})
		}
		delete(before, f.key)
	}
	for _, line := range strings.Split(canonical, "\n") { // in their order
		key, _, _ := strings.Cut(line, ": ")
		if old, left := before[key]; left {
			return nil, fmt.Errorf("%s: %s: there is no such setting in this version", key, old)
		}
	}
	return changes, nil
}

// parseCanonical is the values of Canonical by key.
func parseCanonical(text string) (map[string]string, error) {
	lines, ok := strings.CutPrefix(text, canonicalHeader)
	if !ok {
		first, _, _ := strings.Cut(text, "\n")
		return nil, fmt.Errorf("%q is the settings of another version, want %q", first, strings.TrimSpace(canonicalHeader))
	}
	values := map[string]string{}
	for line := range strings.Lines(lines) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if !ok {
			return nil, fmt.Errorf("%q is no setting", line)
		}
		values[key] = value
	}
	return values, nil
}
