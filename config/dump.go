package config

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// FileName is the file that Save writes.
const FileName = "config.yaml"

// SummaryName is the file next to it for the results of a training run.
const SummaryName = "summary.json"

// Setting is one setting with its value.
type Setting struct {
	Key    string
	Value  any    // of the type of its field
	Text   string // the value as it would be written in a file
	Origin Origin
	Unused string // why it has no effect: "optim.name is sgd"; "" if it has one
}

// Settings is every setting of c in the order of Config. Origins may be nil.
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

// YAML is c as a file that Load reads back to the same hash, with every setting that has an effect.
// The others are there as comments. With origins it says of each value where it came from.
func (c *Config) YAML(origins *Origins) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# hash %s\n", c.Hash())
	settings := c.Settings(origins)
	width := 0
	for _, s := range settings {
		width = max(width, len(line(s)))
	}
	width = min(width, 48) // a long path does not push all comments out of sight
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

// line returns "  lr: 0.001", or the same after a # if it has no effect.
func line(s Setting) string {
	text := last(s.Key) + ": " + s.Text
	if s.Unused != "" {
		text = "# " + text
	}
	return indent(s.Key) + text
}

func indent(key string) string { return strings.Repeat("  ", strings.Count(key, ".")) }

// oneLine keeps a file's odd name from ending a comment.
func oneLine(s string) string {
	if _, err := parseString(s); err != nil {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// String is YAML without origins.
func (c Config) String() string { return string(c.YAML(nil)) }

// Save writes c as FileName into dir, which it makes if necessary: the whole file or, after an
// error or a crash, none of it. Origins, which may be nil, become comments. Errors: those of the
// file system.
func (c *Config) Save(dir string, origins *Origins) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save the config: %w", err)
	}
	if err := writeAtomic(filepath.Join(dir, FileName), c.YAML(origins)); err != nil {
		return fmt.Errorf("save the config: %w", err)
	}
	return nil
}

// writeAtomic writes a file next to path, syncs it, renames it to path, and syncs the folder,
// without which the rename may be lost.
func writeAtomic(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	// Not os.CreateTemp, which makes a file for the user alone: the umask says who may read it.
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

// syncFolder makes the names in dir durable, where that can be.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return nil //nolint:nilerr // the file is in place; a folder that may not be read cannot be synced
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil // some network file systems have no fsync of folders, and keep names without it
	}
	return errors.Join(err, d.Close())
}
