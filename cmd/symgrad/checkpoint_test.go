package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/nn/transformer"
	"github.com/symgrad/symgrad/tensor"
)

// savedCheckpoints is a folder with checkpoints of two ranks after the given steps: a parameter in
// two halves, its average, and a running mean that only rank 0 has.
func savedCheckpoints(t *testing.T, steps ...int) string {
	t.Helper()
	dir := t.TempDir()
	var savers []*checkpoint.Saver
	for rank := range 2 {
		s, err := checkpoint.New(checkpoint.Options{Dir: dir, Sharded: true, Rank: rank, Size: 2})
		if err != nil {
			t.Fatal(err)
		}
		savers = append(savers, s)
	}
	w := checkpoint.Tensor{Name: "w", Role: checkpoint.Param, DType: tensor.F32, Shape: []int{2, 256}}
	avg := checkpoint.Tensor{Name: checkpoint.StateName("w", "exp_avg"), Role: checkpoint.State, Param: "w", Slot: "exp_avg", DType: tensor.F32, Shape: []int{2, 256}}
	mean := checkpoint.Tensor{Name: "mean", Role: checkpoint.Buffer, DType: tensor.F64, Shape: []int{3}}
	for _, step := range steps {
		for rank, s := range slices.Backward(savers) {
			data := make([]float32, 256)
			for i := range data {
				data[i] = float32(step + rank*1000 + i)
			}
			runs := []checkpoint.Run{
				{Tensor: w, Offset: 256 * rank, Len: 256, Data: tensor.Of(data)},
				{Tensor: avg, Offset: 256 * rank, Len: 256, Data: tensor.Of(data)},
			}
			if rank == 0 {
				runs = append(runs, checkpoint.Run{Tensor: mean, Len: 3, Data: tensor.Of([]float64{1, 2, 3})})
			}
			meta := checkpoint.Meta{
				Step: step, Stage: 2, Config: "run:\n  seed: 3\n", ConfigHash: "c0ffee", PlanHash: "beef",
				Solver: checkpoint.Solver{Name: "adamw", Steps: step}, Sampler: json.RawMessage(`{"next": 7}`),
			}
			if err := s.Save(meta, runs); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// symgradSays runs a command line.
func symgradSays(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(newRootCommand(), append([]string{"checkpoint"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// breakIt changes the last byte of rank 1's file.
func breakIt(t *testing.T, dir, step string) {
	t.Helper()
	path := filepath.Join(dir, step, "rank-00001-of-00002.safetensors")
	p, err := os.ReadFile(path)
	if err == nil {
		p[len(p)-1] ^= 1
		err = os.WriteFile(path, p, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestCheckpointShow(t *testing.T) {
	dir := savedCheckpoints(t, 100, 200)
	code, stdout, stderr := symgradSays("show", dir)
	want := `checkpoint   ` + dir + `/step-00000200
step         200
ranks        2
stage        2
solver       adamw, 200 steps, 0 skipped
sampler      {"next":7}
loss scale   none
config hash  c0ffee
plan hash    beef
param        1 tensors, 512 elements, 2048 B
buffer       1 tensors, 3 elements, 24 B
state        1 tensors, 512 elements, 2048 B

FILE                             RANK  BYTES  CRC32C
`
	if code != exitOK || !strings.HasPrefix(stdout, want) || stderr != "" {
		t.Errorf("code %d, %q\n%s\nwant\n%s", code, stderr, stdout, want)
	}
	want = `
TENSOR     ROLE    DTYPE  SHAPE    BYTES  WHERE
exp_avg/w  state   f32    [2 256]  2048   [0:256] in 0, [256:512] in 1
mean       buffer  f64    [3]      24     all in file 0
w          param   f32    [2 256]  2048   [0:256] in 0, [256:512] in 1

CONFIG
run:
  seed: 3
`
	if !strings.HasSuffix(stdout, want) {
		t.Errorf("\n%s\nwant\n%s", stdout, want)
	}
	if _, one, _ := symgradSays("show", filepath.Join(dir, "step-00000100")); !strings.Contains(one, "\nstep         100\n") {
		t.Errorf("asked for the first:\n%s", one)
	}
}

func TestCheckpointShowJSON(t *testing.T) {
	dir := savedCheckpoints(t, 100, 200)
	if err := os.Remove(filepath.Join(dir, "step-00000200", "manifest.json")); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := symgradSays("show", "--json", dir)
	var got struct {
		Path     string
		Manifest struct {
			Step    int
			Sampler json.RawMessage
			Tensors []struct {
				Name string
				Runs []struct{ File, Offset, Len int }
			}
		}
		Broken []struct{ Path, Error string }
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != exitOK || stderr != "" {
		t.Fatalf("code %d, %q, %v\n%s", code, stderr, err, stdout)
	}
	if got.Path != filepath.Join(dir, "step-00000100") || got.Manifest.Step != 100 || len(got.Manifest.Tensors) != 3 || got.Manifest.Tensors[2].Runs[1].Offset != 256 {
		t.Errorf("%+v", got)
	}
	if len(got.Broken) != 1 || got.Broken[0].Path != filepath.Join(dir, "step-00000200") || !strings.Contains(got.Broken[0].Error, "no manifest") {
		t.Errorf("%+v", got.Broken)
	}
	if _, text, _ := symgradSays("show", dir); !strings.Contains(text, "\nbroken       checkpoint: "+dir+"/step-00000200: corrupt: it has no manifest") {
		t.Errorf("%s", text)
	}
}

func TestCheckpointVerify(t *testing.T) {
	dir := savedCheckpoints(t, 100, 200, 300)
	if err := os.Mkdir(filepath.Join(dir, "step-00000400.tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
	// A removal that a kill cut short: readers see no checkpoint there.
	if err := os.Mkdir(filepath.Join(dir, "step-00000050.removed.tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := symgradSays("verify", dir)
	lines := strings.Split(stdout, "\n")
	if code != exitOK || stderr != "" || len(lines) != 5 || lines[0] != dir+"/step-00000400.tmp: not finished" ||
		!strings.HasPrefix(lines[1], dir+"/step-00000300: ok, 2 files, ") || !strings.HasSuffix(lines[3], " B, 3 tensors") {
		t.Errorf("code %d, %q\n%s", code, stderr, stdout)
	}
	if _, text, _ := symgradSays("show", dir); !strings.Contains(text, "\nunfinished   checkpoint: "+dir+"/step-00000400.tmp: not finished") || strings.Contains(text, "broken") {
		t.Errorf("%s", text)
	}
	if code, _, stderr = symgradSays("verify", filepath.Join(dir, "step-00000050.removed.tmp")); code != exitFailure || !strings.Contains(stderr, "it is being removed") || strings.Contains(stderr, "corrupt") {
		t.Errorf("code %d, %q", code, stderr)
	}
	breakIt(t, dir, "step-00000300")
	breakIt(t, dir, "step-00000100")
	code, stdout, stderr = symgradSays("verify", dir)
	if code != exitFailure || !strings.Contains(stdout, "step-00000200: ok") || strings.Count(stdout, "ok") != 1 {
		t.Errorf("code %d\n%s", code, stdout)
	}
	for _, step := range []string{"step-00000300", "step-00000100"} {
		if !strings.Contains(stderr, dir+"/"+step+": corrupt: rank-00001-of-00002.safetensors: its CRC-32C is ") {
			t.Errorf("%s is not named in %q", step, stderr)
		}
	}
	if code, _, stderr = symgradSays("verify", filepath.Join(dir, "step-00000100")); code != exitFailure || !strings.Contains(stderr, "step-00000100: corrupt") {
		t.Errorf("code %d, %q", code, stderr)
	}
	if code, stdout, _ = symgradSays("verify", filepath.Join(dir, "step-00000200")); code != exitOK || !strings.Contains(stdout, "ok, 2 files") {
		t.Errorf("code %d, %q", code, stdout)
	}
}

func TestCheckpointMerge(t *testing.T) {
	dir := savedCheckpoints(t, 100, 200)
	breakIt(t, dir, "step-00000200")
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"mean", "w"}},
		{[]string{"--all"}, []string{"mean", "exp_avg/w", "w"}},
	} {
		out := filepath.Join(t.TempDir(), "x.safetensors")
		code, stdout, stderr := symgradSays(append([]string{"merge", "--out", out, dir}, tt.args...)...)
		if code != exitOK || !strings.HasPrefix(stdout, out+": ") || !strings.HasSuffix(stdout, ", of "+dir+"/step-00000100\n") || stderr != "" {
			t.Errorf("code %d, %q, %q", code, stdout, stderr)
		}
		f, err := checkpoint.OpenFile(out)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range f.Header().Entries {
			names = append(names, e.Name)
		}
		got := make([]float32, 512)
		if err := f.Read("w", 0, tensor.Of(got)); err != nil || got[0] != 100 || got[256] != 1100 || !slices.Equal(names, tt.want) {
			t.Errorf("%q, %v, %v", names, got[:3], err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A pipe, which may be the standard output itself, gets only the file.
func TestCheckpointMergeIntoADevice(t *testing.T) {
	dir := savedCheckpoints(t, 1)
	code, stdout, stderr := symgradSays("merge", "--out", os.DevNull, dir)
	if code != exitOK || stdout != "" || !strings.HasPrefix(stderr, os.DevNull+": 2 tensors, ") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestCheckpointRefuses(t *testing.T) {
	dir, empty := savedCheckpoints(t, 1), t.TempDir()
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"show":                            {exitUsage, "checkpoint show: want one folder, got 0 arguments"},
		"verify a b":                      {exitUsage, "want one folder, got 2 arguments"},
		"merge " + dir:                    {exitUsage, "--out is missing"},
		"merge --out x":                   {exitUsage, "want one folder, got 0 arguments"},
		"show --yaml " + dir:              {exitUsage, "unknown flag: --yaml"},
		"shwo":                            {exitUsage, "did you mean show?"},
		"show " + empty:                   {exitFailure, "no checkpoint in " + empty},
		"verify " + empty:                 {exitFailure, "no checkpoint in " + empty},
		"merge -o x " + empty:             {exitFailure, "no checkpoint in " + empty},
		"show " + empty + "/absent":       {exitFailure, "no checkpoint: open " + empty + "/absent: no such file or directory"},
		"verify " + empty + "/absent":     {exitFailure, "no checkpoint: open "},
		"merge -o " + dir + "/a/b " + dir: {exitFailure, "--out: checkpoint: " + dir + "/a/b: open "},
	} {
		code, stdout, stderr := symgradSays(strings.Fields(line)...)
		if code != want.code || !strings.Contains(stderr, want.text) || stdout != "" {
			t.Errorf("%s: code %d, stdout %q, stderr %q, want %d, %q", line, code, stdout, stderr, want.code, want.text)
		}
	}
	for _, args := range [][]string{{"show", dir}, {"show", "--json", dir}, {"verify", dir}, {"merge", "-o", filepath.Join(empty, "x"), dir}} {
		var stderr bytes.Buffer
		code := execute(newRootCommand(), append([]string{"checkpoint"}, args...), fullDisk{}, &stderr)
		if code != exitFailure || stderr.String() != "symgrad: write the output: no space left\n" {
			t.Errorf("%v: code %d, stderr %q", args, code, &stderr)
		}
	}
	if _, err := checkpoint.Open(empty); !errors.Is(err, checkpoint.ErrNone) {
		t.Error(err)
	}
}

// savedModel is a checkpoint of a small GPT-2, with its configuration under key.
func savedModel(t *testing.T, key string) (dir string, w *transformer.Weights) {
	t.Helper()
	w, err := transformer.Initial(transformer.Config{Family: transformer.GPT2, Vocabulary: 7, Context: 4, Width: 4, Layers: 1, Heads: 2, Tied: true}, 1)
	if err != nil {
		t.Fatal(err)
	}
	text, err := w.Config.JSON()
	if err != nil {
		t.Fatal(err)
	}
	params, err := w.Config.Params()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	s, err := checkpoint.New(checkpoint.Options{Dir: dir, Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	var runs []checkpoint.Run
	for i, p := range params {
		values := w.Values[i].Float32s()
		runs = append(runs, checkpoint.Run{
			Tensor: checkpoint.Tensor{Name: p.Name, Role: checkpoint.Param, DType: tensor.F32, Shape: p.Shape}, Len: len(values), Data: tensor.Of(values),
		})
	}
	meta := checkpoint.Meta{Step: 3, Solver: checkpoint.Solver{Name: "adamw", Steps: 3}, Extra: map[string]json.RawMessage{key: text}}
	if err := errors.Join(s.Save(meta, runs), s.Close()); err != nil {
		t.Fatal(err)
	}
	return dir, w
}

func TestCheckpointExportWritesAFolderOfHuggingFace(t *testing.T) {
	dir, w := savedModel(t, transformer.ConfigKey)
	out := filepath.Join(t.TempDir(), "model")
	code, stdout, stderr := symgradSays("export", "--format", "hf", "--out", out, dir)
	if want := out + ": gpt2 of "; code != 0 || !strings.HasPrefix(stdout, want) || !strings.Contains(stdout, "step-00000003") {
		t.Fatalf("code %d, %q, %q", code, stdout, stderr)
	}
	got, err := transformer.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range w.Values {
		if !slices.Equal(v.Float32s(), got.Values[i].Float32s()) {
			t.Errorf("weight %d differs", i)
		}
	}
	bare, _ := savedModel(t, "other")
	again := filepath.Join(t.TempDir(), "again")
	if code, _, stderr := symgradSays("export", "--out", again, "--config", filepath.Join(out, "config.json"), bare); code != 0 {
		t.Errorf("with --config: code %d, %s", code, stderr)
	}
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{bare, "--out", again}, 1, "no configuration of a transformer (huggingface_config): name a config.json with --config"},
		{[]string{dir}, 2, "--out is missing"},
		{[]string{dir, "--out", again, "--format", "onnx"}, 2, "--format onnx: unknown format: use hf"},
		{[]string{savedCheckpoints(t, 1), "--out", again, "--config", filepath.Join(out, "config.json")}, 1, "it has no parameter transformer.wte.weight"},
	} {
		code, _, stderr := symgradSays(append([]string{"export"}, test.args...)...)
		if code != test.code || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: code %d, %q, want %d, %q", test.args, code, stderr, test.code, test.want)
		}
	}
}
