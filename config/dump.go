package config

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// FileName is the file that Save writes.
const FileName = "config.yaml"

// SummaryName is the file in the same folder with the results of a training run.
const SummaryName = "summary.json"

// Names in the same folder of the metrics of a training run: those of package metrics.
const (
	MetricsName  = "metrics.jsonl"
	TableName    = "metrics.csv"
	EventsFolder = "tensorboard"
)

// Setting is one setting with its value.
type Setting struct {
	Key    string
	Value  any    // of the type of its field
	Text   string // the value in the syntax of a file
	Origin Origin
	Unused string // why it has no effect: "optim.name is sgd"; "" if it has an effect
}

// Settings returns all settings of c in the order of Config. origins may be nil.
func (c *Config) Settings(origins *Origins) []Setting {
	all := make([]Setting, 0, len(schema()))
	for _, f := range schema() {
		s := Setting{Key: f.key, Value: f.get(c), Text: format(f.get(c)), Origin: origins.Origin(f.key)}
		if !f.only.holds(c) {
			s.Unused = f.only.unmet(c)
		}
		all = append(all, s)
	}
	return all
}

// YAML returns c as a file that Load reads back to the same hash, with every setting that has an
// effect. The others are comments. With origins, a comment names the origin of each value.
func (c *Config) YAML(origins *Origins) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# hash %s\n", c.Hash())
	settings := c.Settings(origins)
	width := 0
	for _, s := range settings {
		width = max(width, len(line(s)))
	}
	width = min(width, 48) // a long path must not move all comments out of sight
	section := ""
	for _, s := range settings {
		if p := parent(s.Key); p != section {
			b.WriteString(indent(p) + last(p) + ":\n")
			section = p
		}
		switch text := line(s); {
		case s.Unused != "":
			fmt.Fprintf(&b, "%-*s  # no effect: %s\n", width, text, s.Unused)
		case origins != nil:
			fmt.Fprintf(&b, "%-*s  # %s\n", width, text, oneLine(s.Origin.String()))
		default:
			b.WriteString(text + "\n")
		}
	}
	return []byte(b.String())
}

// line returns " lr: 0.001", commented out if it has no effect.
func line(s Setting) string {
	text := last(s.Key) + ": " + s.Text
	if s.Unused != "" {
		text = "# " + text
	}
	return indent(s.Key) + text
}

func indent(key string) string { return strings.Repeat("  ", strings.Count(key, ".")) }

// oneLine quotes text that would end a comment.
func oneLine(s string) string {
	if _, err := parseString(s); err != nil {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// String returns YAML without origins.
func (c Config) String() string { return string(c.YAML(nil)) }

// Save writes c as FileName to dir, which it creates if missing. After an error or a crash, the old
// file is unchanged. Origins, which may be nil, become comments. Errors: those of the file system.
func (c *Config) Save(dir string, origins *Origins) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save the config: %w", err)
	}
	if err := writeAtomic(filepath.Join(dir, FileName), c.YAML(origins)); err != nil {
		return fmt.Errorf("save the config: %w", err)
	}
	return nil
}

// writeAtomic writes a file next to path, syncs it, renames it over path, and syncs the folder,
// without which the rename may be lost.
func writeAtomic(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	// Not os.CreateTemp: it makes the file private, but the umask should decide.
	f, err := os.OpenFile(filepath.Join(dir, "."+filepath.Base(path)+"-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(dir)
}

// syncFolder makes the names in dir durable, if possible.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return nil //nolint:nilerr // the file is in place; an unreadable folder cannot be synced
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil // some network file systems cannot sync folders, and keep names without it
	}
	return errors.Join(err, d.Close())
}

// canonicalHeader names the format, so that another format cannot have the same hash.
const canonicalHeader = "symgrad config 7\n"

// Canonical returns the settings that must agree on all ranks of a run as text: a header, then
// "key: value" lines in the order of Config. Two configs define the same computation if and only if
// their texts are equal.
//
// It omits settings that may differ between ranks (Key.Hashed is false: folder names, logging, time
// limits), and settings that have no effect.
func (c *Config) Canonical() string {
	var b strings.Builder
	b.WriteString(canonicalHeader)
	for _, f := range schema() {
		if f.hashed && f.only.holds(c) {
			b.WriteString(f.key + ": " + f.canonical(c) + "\n")
		}
	}
	return b.String()
}

// canonical returns the value of f in the syntax of a file. It normalizes optim.loss_scale, a text
// that may be a number.
func (f *field) canonical(c *Config) string {
	v := f.get(c)
	if f.key == "optim.loss_scale" {
		if scale, dynamic, err := c.Optim.Scale(); err == nil && !dynamic {
			v = format(scale)
		}
	}
	return format(v)
}

// Hash returns the SHA-256 of Canonical in hexadecimal, which ranks compare.
func (c *Config) Hash() string {
	sum := sha256.Sum256([]byte(c.Canonical()))
	return hex.EncodeToString(sum[:])
}
