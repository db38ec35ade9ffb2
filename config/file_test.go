package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// problemsIn returns Load's problems with a file with this text, without the file's folder.
func problemsIn(t *testing.T, text string) []string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := Load(Source{File: path})
	return texts(t, err, dir+"/")
}

// texts is the problems that err holds, with prefix cut out of them.
func texts(t *testing.T, err error, prefix string) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is a %T, want *Error", err, err)
	}
	var all []string
	for _, p := range e.Problems {
		all = append(all, strings.ReplaceAll(p.String(), prefix, ""))
	}
	return all
}

func TestFileErrorsNamePlaceAndRemedy(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string // nil means that the file is right
	}{
		{"empty", "", nil},
		{"comments", "# nothing yet\n", nil},
		{"null document", "---\n", nil},
		{"empty section", "log:\n  # every: 50\n", nil},
		{"quoted strings and durations", "run: {name: \"a\"}\nlaunch: {grace: '3s'}\n", nil},
		{"json is yaml", `{"run": {"seed": 3, "eval": false}, "model": {"hidden": [3, 4]}}`, nil},
		{"numbers as text", "run:\n  name: 2026\n", nil},
		{"integers as numbers", "optim:\n  lr: 1\n", nil},
		{"alias", "run:\n  max_steps: &n 5\n  epochs: *n\nmodel:\n  hidden: [*n, 7]\n", nil},

		{"unknown key", "run:\n  max_step: 3\n", []string{`c.yaml:2:3: unknown key "run.max_step": did you mean run.max_steps?`}},
		{"unknown key nobody could mean", "run:\n  colour: 3\n", []string{`c.yaml:2:3: unknown key "run.colour": symgrad config keys lists them all`}},
		{"unknown section", "optimizer:\n  lr: 1\n", []string{`c.yaml:1:1: unknown key "optimizer": did you mean optim?`}},
		{"key without section", "lr: 0.1\n", []string{`c.yaml:1:1: unknown key "lr": did you mean optim.lr?`}},
		{"dotted key", "run.seed: 3\n", []string{`c.yaml:1:1: unknown key "run.seed": write dotted keys as nested ones: did you mean run.seed?`}},
		{"upper case", "run:\n  Seed: 3\n", []string{`c.yaml:2:3: unknown key "run.Seed": did you mean run.seed?`}},
		{"twice", "run:\n  seed: 1\n  seed: 2\n", []string{`c.yaml:3:3: "run.seed" is set a second time: the first is on line 2`}},
		{"section twice", "run:\n  seed: 1\nlog:\n  every: 3\nrun:\n  name: a\n", []string{`c.yaml:5:1: "run" is set a second time: the first is on line 1`}},
		{"unknown twice", "a: 1\na: 1\n", []string{
			`c.yaml:1:1: unknown key "a": symgrad config keys lists them all`,
			`c.yaml:2:1: "a" is set a second time: the first is on line 1`,
		}},
		{"merge key", "run: &r\n  seed: 1\nlog:\n  <<: *r\n", []string{`c.yaml:4:3: a key must be a plain name: list the settings one by one`}},
		{"list as key", "? [a, b]\n: 1\n", []string{`c.yaml:1:3: a key must be a plain name: list the settings one by one`}},

		{"word for a number", "run:\n  seed: many\n", []string{`c.yaml:2:9: run.seed: "many" is not an integer`}},
		{"float for an integer", "run:\n  epochs: 1.5\n", []string{`c.yaml:2:11: run.epochs: "1.5" is not an integer`}},
		{"quoted number", "optim:\n  lr: \"0.1\"\n", []string{`c.yaml:2:7: optim.lr: want a number, got a string: remove the quotes around 0.1`}},
		{"quoted bool", "run:\n  eval: 'true'\n", []string{`c.yaml:2:9: run.eval: want true or false, got a string: remove the quotes around true`}},
		{"yaml 1.1 bool", "run:\n  eval: yes\n", []string{`c.yaml:2:9: run.eval: "yes" is not true or false`}},
		{"no unit", "launch:\n  grace: 2\n", []string{`c.yaml:2:10: launch.grace: 2 has no unit: write 2s for seconds`}},
		{"infinity", "optim:\n  clip_norm: .inf\n", []string{`c.yaml:2:14: optim.clip_norm: ".inf" is not a number`}},
		{"octal", "run:\n  seed: 010\n", []string{`c.yaml:2:9: run.seed: "010" has a leading zero: remove it, or write 0o for an octal number`}},
		{"no value", "run:\n  seed:\n", []string{`c.yaml:2:3: run.seed: value is missing: add one, or remove the line for the default, 1`}},
		{"null", "run:\n  name: ~\n", []string{`c.yaml:2:3: run.name: value is missing: add one, or remove the line for the default, default`}},
		{"tag", "run:\n  seed: !!float 3\n", []string{`c.yaml:2:9: run.seed: want an integer without the tag !!float`}},
		{"list for a scalar", "run:\n  seed: [1]\n", []string{`c.yaml:2:9: run.seed: want an integer, got a list`}},
		{"section for a scalar", "run:\n  seed: {a: 1}\n", []string{`c.yaml:2:9: run.seed: want an integer, got a section`}},
		{"scalar for a list", "model:\n  hidden: 512\n", []string{`c.yaml:2:11: model.hidden: want a list of integers, such as [256, 128], got the number 512`}},
		{"text for a list", "model:\n  hidden: 512,512\n", []string{`c.yaml:2:11: model.hidden: want a list of integers, such as [256, 128], got the text "512,512"`}},
		{"wrong items", "model:\n  hidden:\n  - 1\n  - a\n  - '3'\n  - [4]\n  -\n", []string{
			`c.yaml:4:5: model.hidden: item 2 of the list: "a" is not an integer`,
			`c.yaml:5:5: model.hidden: item 3 of the list: want an integer, got the text "3"`,
			`c.yaml:6:5: model.hidden: item 4 of the list: want an integer, got a list`,
			`c.yaml:7:4: model.hidden: item 5 of the list: want an integer, got nothing`,
		}},
		{"scalar for a section", "run: 5\n", []string{`c.yaml:1:6: run: want lines of key: value, got the number 5`}},
		{"list for a section", "run: [seed]\n", []string{`c.yaml:1:6: run: want lines of key: value, got a list`}},
		{"text for the file", "hello\n", []string{`c.yaml:1:1: top of the file: want lines of key: value, got the text "hello"`}},
		{"two documents", "run:\n  seed: 1\n---\nrun:\n  seed: 2\n", []string{`c.yaml:3:1: second document: put all settings into one document, without ---`}},
		{"second document is not yaml", "run:\n  seed: 1\n---\n: : {\n", []string{`c.yaml:4: did not find expected key`}},
		{"alias that loops", "run: &r\n  seed: *r\n", []string{`c.yaml:1:6: run.seed: want an integer, got a section`}},
		{"open list", "run:\n  seed: [1\n", []string{`c.yaml:2: did not find expected ',' or ']'`}},
		{"open mapping", "run: {seed: 1\nlog: 2\n", []string{`c.yaml:2: did not find expected ',' or '}'`}},
		{"wrong indentation", "log:\n  every: 1\nrun:\n   seed: 1\n  name: a\n", []string{`c.yaml:5: did not find expected key`}},
		{"open quote", "log:\n  every: 1\nrun:\n  name: 'a\n", []string{`c.yaml:4: found unexpected end of stream`}},
		{"unknown anchor", "run:\n  seed: *s\n", []string{`c.yaml: unknown anchor 's' referenced`}},
		{"tab", "run:\n\tseed: 1\n", []string{`c.yaml:2:1: tab in the indentation: indent with spaces, not tabs`}},
		{"not text", "run: \x00\n", []string{`c.yaml: control characters are not allowed`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := problemsIn(t, tt.text); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(tt.want, "\n  "))
			}
		})
	}
}

func TestFileThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct{ path, want string }{
		{filepath.Join(dir, "none.yaml"), "none.yaml: no such file or directory"},
		{dir, ": is a directory"},
		{"/dev/zero", "/dev/zero: too long: more than the 16777216 B that are allowed"},
	} {
		_, _, err := Load(Source{File: tt.path})
		if err == nil || !strings.HasSuffix(err.Error(), tt.want) || strings.Count(err.Error(), tt.path) != 1 {
			t.Errorf("%v, want one %q at the end of the path", err, tt.want)
		}
	}
}

// If the file was not read, no conflict between it and a flag is reported.
func TestUnreadFileBringsNoFurtherProblems(t *testing.T) {
	_, _, err := Load(Source{File: filepath.Join(t.TempDir(), "none.yaml"), Set: []string{"optim.momentum=0.5", "run.seed=x", "optim.lr=0"}})
	got := texts(t, err, "")
	want := []string{`--set: run.seed: "x" is not an integer`, `--set: optim.lr: 0 is out of range: more than 0`}
	if len(got) != 3 || !reflect.DeepEqual(got[1:], want) {
		t.Errorf("got %q, want the file and %q", got, want)
	}
}

func TestFileValuesAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	text := "run: {name: x-1, seed: -9, eval: false}\ncomm:\n  timeout_init: 1m30s\nmodel:\n  hidden:\n  - 32\n  - 16\nddp: {bucket_mb: 0.5}\n" +
		"optim: {schedule: {name: step, gamma: 0.5}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, _, err := Load(Source{File: path})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Run.Name, want.Run.Seed, want.Run.Eval = "x-1", -9, false
	want.Comm.TimeoutInit = 90 * time.Second
	want.Model.Hidden = []int{32, 16}
	want.DDP.BucketMB = 0.5
	want.Optim.Schedule.Name, want.Optim.Schedule.Gamma = "step", 0.5
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, &want)
	}
}
