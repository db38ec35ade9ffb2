package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/launch"
)

// symgrad runs a command line that must succeed, and returns its output.
func symgrad(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	completing := args[0] == cobra.ShellCompRequestCmd // cobra then explains itself on stderr
	if code := execute(newRootCommand(), args, &stdout, &stderr); code != exitOK || stderr.Len() > 0 && !completing {
		t.Fatalf("symgrad %v: code %d, stderr %q", args, code, &stderr)
	}
	return stdout.String()
}

func TestShowedYAMLIsAConfigFile(t *testing.T) {
	for _, name := range []string{"mnist-mlp", "mnist-cnn"} {
		shipped := filepath.Join("../../configs", name+".yaml")
		path := filepath.Join(t.TempDir(), "shown.yaml")
		if err := os.WriteFile(path, []byte(symgrad(t, "config", "show", "--config", shipped, "--set", "run.max_steps=7")), 0o600); err != nil {
			t.Fatal(err)
		}
		want := symgrad(t, "config", "hash", "--config", shipped, "--set", "run.max_steps=7")
		if got := symgrad(t, "config", "hash", "--config", path); got != want {
			t.Errorf("%s: hash %s, shown and read back %s", name, want, got)
		}
	}
}

func TestShowedJSONHasEverySetting(t *testing.T) {
	var got struct {
		Hash     string
		Settings []struct {
			Key, Origin, Unused string
			Value               any
		}
	}
	text := symgrad(t, "config", "show", "--format=json", "--set", "model.hidden=8,4", "--set", "launch.grace=1500ms", "--set", "optim.lr=0.5")
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Hash) != 64 || len(got.Settings) != len(config.Keys()) {
		t.Errorf("hash %q, %d settings, want %d", got.Hash, len(got.Settings), len(config.Keys()))
	}
	want := map[string]struct {
		value          string
		origin, unused string
	}{
		"model.hidden":   {"[8,4]", "--set", ""},
		"launch.grace":   {`"1.5s"`, "--set", ""},
		"optim.lr":       {"0.5", "--set", ""},
		"run.eval":       {"true", "default", ""},
		"optim.momentum": {"0.9", "default", "optim.name is adam"},
	}
	for _, s := range got.Settings {
		w, ok := want[s.Key]
		if !ok {
			continue
		}
		delete(want, s.Key)
		value, err := json.Marshal(s.Value)
		if err != nil || string(value) != w.value || s.Origin != w.origin || s.Unused != w.unused {
			t.Errorf("%s is %s, %s, %q, want %+v (%v)", s.Key, value, s.Origin, s.Unused, w, err)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

func TestKeysAreOneRowEach(t *testing.T) {
	table := strings.Split(strings.TrimSuffix(symgrad(t, "config", "keys"), "\n"), "\n")
	markdown := strings.Split(strings.TrimSuffix(symgrad(t, "config", "keys", "--format=markdown"), "\n"), "\n")
	keys := config.Keys()
	if len(table) != len(keys)+1 || len(markdown) != len(keys)+2 {
		t.Fatalf("%d keys, %d lines in the table, %d in Markdown", len(keys), len(table), len(markdown))
	}
	column := strings.Index(table[0], "MEANING")
	for i, k := range keys {
		row := table[i+1]
		if !strings.HasPrefix(row, k.Name+" ") || !strings.HasPrefix(row[column:], k.Help) || strings.TrimRight(row, " ") != row {
			t.Errorf("row %d is %q, want %s with its help under MEANING", i+1, row, k.Name)
		}
		// A bar that is not escaped would add a column.
		if row := markdown[i+2]; !strings.HasPrefix(row, "| `"+k.Name+"` | ") || strings.Count(strings.ReplaceAll(row, `\|`, ""), "|") != 7 {
			t.Errorf("Markdown row %d is %q", i+2, row)
		}
	}
}

// A setting whose variable the launcher uses too could never be set.
func TestLaunchersVariablesAreNoSettings(t *testing.T) {
	vars := launch.Variables()
	for _, k := range config.Keys() {
		if slices.Contains(vars, k.Env) {
			t.Errorf("%s: its variable %s is the launcher's", k.Name, k.Env)
		}
	}
	env := make([]string, len(vars))
	for i, v := range vars {
		env[i] = v + "=1"
	}
	if _, _, err := config.Load(config.Source{Env: env, Reserved: vars}); err != nil {
		t.Errorf("a rank cannot load its config: %v", err)
	}
}

func TestSettingsAskForNoMoreRanksThanAreStarted(t *testing.T) {
	for n, ok := range map[int]bool{launch.MostSpawned: true, launch.MostSpawned + 1: false} {
		if _, _, err := config.Load(config.Source{Set: []string{fmt.Sprintf("launch.nproc_per_node=%d", n)}}); (err == nil) != ok {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}

func TestSetCompletesKeys(t *testing.T) {
	got := symgrad(t, cobra.ShellCompRequestCmd, "config", "show", "--set", "run.s")
	if !strings.Contains(got, "run.seed=\tseed of the initial weights") || !strings.Contains(got, "\n:2") {
		t.Errorf("completion of --set run.s: %q, want run.seed= and no space after it", got)
	}
	if got := symgrad(t, cobra.ShellCompRequestCmd, "config", "show", "--format", ""); !strings.HasPrefix(got, "yaml\ntable\njson\n") {
		t.Errorf("completion of --format: %q", got)
	}
	if got := symgrad(t, cobra.ShellCompRequestCmd, "config", "validate", ""); !strings.HasPrefix(got, "yaml\nyml\n:8") {
		t.Errorf("completion of a file: %q", got)
	}
}
