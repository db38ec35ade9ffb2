package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// sameAsPlainDecoder decodes the file with yaml.v3's own strict decoder, which shares nothing with
// Load but the tags.
func sameAsPlainDecoder(t *testing.T, path string, got *Config) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&want); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("%s: Load has\n%v\nyaml.v3 has\n%v", path, got, &want)
	}
}

// everyLineIsExplained wants a comment on every line that sets something.
func everyLineIsExplained(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(data, []byte("# ")) {
		t.Errorf("%s: the first line does not say what the file is for", path)
	}
	for i, line := range strings.Split(string(data), "\n") {
		_, value, ok := strings.Cut(line, ": ")
		if ok && !strings.HasPrefix(line, "#") && !strings.Contains(value, " # ") {
			t.Errorf("%s:%d: %s: no comment", path, i+1, strings.TrimSpace(line))
		}
	}
}

func TestYAMLShowsValuesAndOrigins(t *testing.T) {
	file := inFile(t, [2]string{"run.seed", "5"}, [2]string{"optim.name", "sgd"})
	cfg, origins, err := Load(Source{File: file, Env: []string{"SYMGRAD_RUN_NAME=a b"}, Set: []string{"model.hidden=8,4"}})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(cfg.YAML(origins)), file, "c.yaml")
	for _, want := range []string{
		"# hash " + cfg.Hash() + "\nrun:\n",
		"\n  name: a b                # $SYMGRAD_RUN_NAME\n",
		"\n  seed: 5                  # c.yaml:2:9\n",
		"\n  eval: true               # default\n",
		"\n  hidden: [8, 4]           # --set\n",
		"\n  # beta1: 0.9             # no effect: optim.name is sgd\n",
		"\n  schedule:\n    name: constant",
		"\n    # gamma: 0.1           # no effect: optim.schedule.name is constant\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	if plain := cfg.String(); strings.Contains(plain, "# default") || !strings.Contains(plain, "\n  seed: 5\n") {
		t.Errorf("without origins:\n%s", plain)
	}
}

func TestYAMLKeepsOddFileNamesInTheirComment(t *testing.T) {
	c := Default()
	text := string(c.YAML(&Origins{map[string]Origin{"run.seed": {Level: LevelFile, File: "a\nlog: 1\nb.yaml", Line: 2, Col: 3}}}))
	if !strings.Contains(text, `seed: 1                  # "a\nlog: 1\nb.yaml:2:3"`+"\n") {
		t.Errorf("the line break of the name is in the file:\n%s", text)
	}
}

// randomConfig draws any valid config: random settings from the samples, random strings and numbers
// where any will do.
func randomConfig(t *rapid.T) *Config {
	var set []string
	for _, f := range schema() {
		if rapid.Bool().Draw(t, "set "+f.key) {
			set = append(set, f.key+"="+unquoted(samples[f.key][rapid.IntRange(0, 2).Draw(t, f.key)]))
		}
	}
	cfg, err := merge([]*layer{newLayer(), readSet(set)})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Run.Seed = rapid.Int64().Draw(t, "seed")
	cfg.Run.OutputDir = rapid.StringOf(rapid.Rune().Filter(isPrintable)).Draw(t, "output_dir")
	cfg.Optim.LR = rapid.Float64Range(1e-300, 1e300).Draw(t, "lr")
	cfg.Model.Hidden = append([]int{}, rapid.SliceOf(rapid.IntRange(1, 1<<40)).Draw(t, "hidden")...)
	if cfg.Optim.Name == "adamw" {
		cfg.Optim.WeightDecay = 0.01
	}
	cfg.Optim.Schedule.MinLR = min(cfg.Optim.Schedule.MinLR, cfg.Optim.LR)
	if err := cfg.Validate(); err != nil {
		t.Fatalf("%v\n%v", err, cfg)
	}
	return cfg
}

func TestYAMLReadsBackToTheSameConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	rapid.Check(t, func(t *rapid.T) {
		want := randomConfig(t)
		if err := os.WriteFile(path, want.YAML(&Origins{}), 0o600); err != nil {
			t.Fatal(err)
		}
		got, _, err := Load(Source{File: path})
		if err != nil {
			t.Fatalf("%v\n%v", err, want)
		}
		if got.Hash() != want.Hash() {
			t.Fatalf("hash %s became %s:\n%s\n%s", want.Hash(), got.Hash(), want.Canonical(), got.Canonical())
		}
		for _, f := range schema() {
			if f.only.holds(want) && !reflect.DeepEqual(f.get(got), f.get(want)) {
				t.Fatalf("%s: %v became %v", f.key, f.get(want), f.get(got))
			}
		}
	})
}

func TestSettingsHaveTypedValuesInOrder(t *testing.T) {
	c := Default()
	all := c.Settings(nil)
	if len(all) != len(schema()) || all[0].Key != "run.name" || all[len(all)-1].Key != "log.progress" {
		t.Fatalf("%d settings, from %s to %s", len(all), all[0].Key, all[len(all)-1].Key)
	}
	for i, s := range all {
		if f := schema()[i]; s.Key != f.key || reflect.TypeOf(s.Value) != f.typ || s.Text != format(s.Value) || s.Origin != (Origin{}) {
			t.Errorf("setting %d is %+v, want %s", i, s, f.key)
		}
		if s.Key == "optim.momentum" && s.Unused != "optim.name is adam" {
			t.Errorf("%s: unused because %q", s.Key, s.Unused)
		}
	}
}

func TestSaveReplacesTheFileAndLeavesNothingElse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "a")
	c := Default()
	for _, seed := range []int64{1, 2} {
		c.Run.Seed = seed
		if err := c.Save(dir, nil); err != nil {
			t.Fatal(err)
		}
		got, _, err := Load(Source{File: filepath.Join(dir, FileName)})
		if err != nil || !reflect.DeepEqual(*got, c) {
			t.Errorf("saved\n%v\nloaded\n%v, %v", &c, got, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("in the folder: %v, %v", entries, err)
	}
	// The umask says who may read it, as of any file.
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	want, err := os.Stat(plain)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode() != want.Mode() {
		t.Errorf("mode %v, %v: want that of other new files, %v", info.Mode(), err, want.Mode())
	}
}

func TestSaveErrorsNameThePlaceAndLeaveNoRest(t *testing.T) {
	dir := t.TempDir()
	c := Default()
	blocked := filepath.Join(dir, "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Save(blocked, nil); err == nil || !strings.HasPrefix(err.Error(), "save the config: ") || !strings.Contains(err.Error(), blocked) {
		t.Errorf("a file where the folder should be: %v", err)
	}
	occupied := filepath.Join(dir, FileName)
	if err := os.Mkdir(occupied, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.Save(dir, nil); err == nil || !strings.Contains(err.Error(), occupied) {
		t.Errorf("a folder where the file should be: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("the unfinished file is still there: %v, %v", entries, err)
	}
}

// TestFoldersWithoutSyncAreNoError has a file system that cannot sync folders, as some over a
// network cannot.
func TestFoldersWithoutSyncAreNoError(t *testing.T) {
	d, err := os.Open("/proc")
	if err != nil {
		t.Skip(err)
	}
	defer d.Close()
	if err := d.Sync(); !errors.Is(err, syscall.EINVAL) {
		t.Skipf("to sync /proc is %v here", err)
	}
	if err := syncFolder("/proc"); err != nil {
		t.Error(err)
	}
}
