package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// FuzzSet: whatever stands after --set is a valid config or an *Error.
func FuzzSet(f *testing.F) {
	for _, s := range []string{
		"run.seed=3", "model.hidden=[256,128]", "model.hidden=256,128", "optim.lr=1e-3", "launch.grace=2s", "run.name=a=b", "run.eval=true",
		"", "=", "run", "run.seed", "log.trace_steps=1,2", "optim.schedule.name=cosine", "run.output_dir=\"\\\xff", "model.hidden=[[1]]", "launch.master=[::1]:1",
	} {
		f.Add(s)
	}
	path := filepath.Join(f.TempDir(), "c.yaml")
	f.Fuzz(func(t *testing.T, set string) {
		cfg, origins, err := Load(Source{Set: []string{set}})
		readsBack(t, path, cfg, origins, err)
	})
}

// FuzzFile: whatever is in a file is a valid config or an *Error.
func FuzzFile(f *testing.F) {
	for _, s := range []string{
		"run:\n  seed: 3\n", "model: {hidden: [1, 2]}\n", "a: &a [*a]\n", "run: &r {name: *r}\n", "? [a]\n: b\n", "---\n---\n", "run:\n  name: !!binary aGk=\n",
		"launch: {grace: 1s}\noptim: {schedule: {name: step}}\n", "{", "\xff\xfe", "- 1\n", "run: {<<: {seed: 1}}\n", "run: {seed: 1, seed: 2}\n", "run:\n  name: |\n    a\n    b\n",
	} {
		f.Add([]byte(s))
	}
	path := filepath.Join(f.TempDir(), "c.yaml")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, origins, err := Load(Source{File: path})
		readsBack(t, path, cfg, origins, err)
	})
}

// readsBack checks the outcome of Load: an accepted configuration is written as a file that reads
// back equal.
func readsBack(t *testing.T, path string, cfg *Config, origins *Origins, err error) {
	t.Helper()
	if err != nil {
		var e *Error
		if !errors.As(err, &e) || len(e.Problems) == 0 || err.Error() == "" || cfg != nil || origins != nil {
			t.Fatalf("config %v, error %#v", cfg, err)
		}
		return
	}
	if err := cfg.Validate(); err != nil {
		t.Fatalf("Load accepted what Validate refuses: %v", err)
	}
	if err := os.WriteFile(path, cfg.YAML(origins), 0o600); err != nil {
		t.Fatal(err)
	}
	again, _, err := Load(Source{File: path})
	if err != nil || again.Canonical() != cfg.Canonical() || again.OutputDir() != cfg.OutputDir() {
		t.Fatalf("%v\nwritten and read back: %v, %v", cfg, again, err)
	}
}
