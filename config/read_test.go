package config

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A pipe has one reader, and it has it once.
func TestSourceIsReadOnce(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("run: {seed: 7}\n"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	pipe := Source{File: filepath.Join("/proc/self/fd", strconv.Itoa(int(r.Fd())))}
	edited := Source{File: filepath.Join(t.TempDir(), "c.yaml")}
	write(t, edited.File, "run: {seed: 7}\n")
	for name, s := range map[string]Source{"pipe": pipe, "file": edited} {
		s = s.Read()
		if name == "file" {
			write(t, s.File, "run: {seed: 8}\n")
		}
		for range 2 {
			cfg, origins, err := Load(s)
			if err != nil {
				t.Fatal(err)
			}
			if at := origins.Origin("run.seed"); cfg.Run.Seed != 7 || at.File != s.File || at.Line != 1 {
				t.Errorf("%s: the seed is %d, from %v", name, cfg.Run.Seed, at)
			}
		}
	}
}

func TestReadLeavesTheErrorToLoad(t *testing.T) {
	dir := t.TempDir()
	for file, want := range map[string]string{
		filepath.Join(dir, "missing.yaml"): "no such file",
		dir:                                "is a directory",
		"/dev/zero":                        "too long: more than the 16777216 B that are allowed",
	} {
		_, _, err := Load(Source{File: file}.Read())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: got %v, want %q", file, err, want)
		}
	}
	if s := (Source{}).Read(); s.Content != nil {
		t.Errorf("no file has the content %q", s.Content)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
