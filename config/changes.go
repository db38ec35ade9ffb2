package config

import (
	"fmt"
	"strings"
)

// Change is a setting that differs between a run and the run that it resumes.
type Change struct {
	Key      string
	Old, New string // in the syntax of a file; "" without an effect
	Fixed    bool   // another value makes it a different training
}

// String returns "optim.lr: 0.001 before, 0.0005 now".
func (c Change) String() string {
	return fmt.Sprintf("%s: %s before, %s now", c.Key, orNone(c.Old), orNone(c.New))
}

func orNone(value string) string {
	if value == "" {
		return "none"
	}
	return value
}

// Changes returns the settings that differ between c and a run whose Canonical was canonical, in
// the order of Config. A training that resumes from a checkpoint may change all except those that
// are Fixed.
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
			return nil, fmt.Errorf("%s: %s: unknown setting in this version", key, old)
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
