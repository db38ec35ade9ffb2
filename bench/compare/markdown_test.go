package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	gpuFile = `{"ranks": 4, "engines": ["nccl", "torch", "ll", "auto"], "rows": [
{"mode":"queued","op":"allreduce","dtype":"f32","bytes":1024,"best":"nccl","faster":2.5,
 "time_us":{"nccl":10,"torch":40.04,"ll":3,"auto":4}},
{"mode":"queued","op":"allreduce","dtype":"f32","bytes":2048,"best":"nccl","faster":0.991,
 "time_us":{"nccl":9.91,"auto":10}},
{"mode":"queued","op":"allgather","dtype":"f32","bytes":4194304,"best":"nccl","faster":1.5,
 "time_us":{"nccl":30,"auto":20}},
{"mode":"graph","op":"allreduce","dtype":"bf16","bytes":1024,"best":"","faster":null,
 "time_us":{"auto":3.5}}]}`
	gpuWant = `| operation | bytes | nccl | torch | symgrad | GB/s | times as fast |
| --- | --- | --- | --- | --- | --- | --- |
| allreduce | 1K | 10.0 | 40.0 | 4.00 | 0.38 | 2.50 |
| all-gather | 4M | 30.0 | - | 20.0 | 157 | 1.50 |

| times as fast | bytes | queued, f32 | graph, bf16 |
| --- | --- | --- | --- |
| allreduce | up to 1M | 0.99 to 2.50 | - |
| all-gather | 2M to 16M | 1.50 | - |
`
	trainFile = `{"device": "cuda", "rows": [
{"model":"mlp","rank_batch":128,"precision":"fp32","ranks":1,"faster":null,
 "time_us":{"symgrad":100}},
{"model":"wide","rank_batch":512,"precision":"tf32","ranks":4,"faster":1.471,"time_us":{
 "symgrad":1941,"symgrad-zero1":1820,"torch":2855,"torch-compile-default":2871,
 "torch-compile-reduce-overhead":2869,"torch-fsdp":13300,"torch-zero":3593}}]}`
	trainWant = `| model | samples a rank | precision | ranks | PyTorch | compiled | symgrad | ` +
		`samples/s | times as fast |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| mlp | 128 | fp32 | 1 | - | - | 100 | 1280000 | - |
| wide | 512 | tf32 | 4 | 2855 | 2869 | 1941 | 1055000 | 1.47 |

| model | samples a rank | precision | ranks | symgrad, stage 1 | torch-fsdp | torch-zero |
| --- | --- | --- | --- | --- | --- | --- |
| wide | 512 | tf32 | 4 | 1820 | 13300 | 3593 |
`
	hostFile = `{"near_ns": [60, 200], "summaries": [
{"ranks":2,"style":"fresh","in_place":false,"op":"allreduce","min":0.2,"max":0.52,"geomean":0.35},
{"ranks":2,"style":"fresh","in_place":true,"op":"allreduce","min":0.2,"max":0.48,"geomean":0.32},
{"ranks":4,"style":"fresh","in_place":false,"op":"allreduce","min":null,"max":null,"geomean":null}],
"rows": [
{"ranks":2,"style":"osu","in_place":false,"op":"allreduce","bytes":8,"best":"mpich",
 "time_us":{"mpich":9,"symgrad":9}},
{"ranks":2,"style":"fresh","in_place":false,"op":"allreduce","bytes":8,"best":"mpich",
 "time_us":{"mpich":0.375,"openmpi":0.5,"symgrad":0.125}},
{"ranks":2,"style":"fresh","in_place":false,"op":"alltoall","bytes":32,"best":"openmpi",
 "time_us":{"openmpi":0.5,"symgrad":0.25}},
{"ranks":2,"style":"fresh","in_place":false,"op":"alltoall","bytes":16,"best":"",
 "time_us":{"symgrad":0.25}}]}`
	hostWant = `| bytes | allreduce | all-to-all |
| --- | --- | --- |
| 8 | 0.12 / 0.38 | - |
| 32 | - | 0.25 / 0.50 |

| ratio: mean, most | 2 ranks, fresh | 4 ranks, fresh |
| --- | --- | --- |
| allreduce | 0.35, 0.52 | - |
| allreduce in place | 0.32, 0.48 | - |
`
	tuneFile = `{"version": 1, "rows": [
{"kind":"reduce","dtype":"f32","symmetric":true,"ranks":4,"bytes":1024,"timings":[
 {"engine":"ll","microseconds":9}]},
{"kind":"allreduce","dtype":"f32","symmetric":true,"ranks":2,"bytes":1024,"timings":[
 {"engine":"ll","microseconds":4},{"engine":"tiles","microseconds":3.5},
 {"engine":"nccl","microseconds":12},{"engine":"nvshmem","microseconds":11}]},
{"kind":"allreduce","dtype":"f32","symmetric":false,"ranks":2,"bytes":1024,"timings":[
 {"engine":"ll","microseconds":1}]},
{"kind":"allreduce","dtype":"bf16","symmetric":true,"ranks":2,"bytes":1024,"timings":[
 {"engine":"ll","microseconds":1}]}]}`
	tuneWant = `| GPUs | bytes | allreduce | reduce |
| --- | --- | --- | --- |
| 2 | 1K | 3.50 / 11.0 | - |
| 4 | 1K | - | 9.00 / - |
`
)

func TestTableIsThatOfTheFile(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"collectives between GPUs":      {gpuFile, gpuWant},
		"training":                      {trainFile, trainWant},
		"collectives between processes": {hostFile, hostWant},
		"tune":                          {tuneFile, tuneWant},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "a.json")
			if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			code, got, errs := runCompare("table", file)
			if code != exitOK || got != c.want || errs != "" {
				t.Errorf("code %d, %s\n%s\nwant\n%s", code, errs, got, c.want)
			}
			code, got, _ = runCompare("table", file, file)
			if code != exitOK || got != c.want+"\n"+c.want {
				t.Errorf("two files: code %d\n%s", code, got)
			}
		})
	}
}

func TestTableRefusesOtherFiles(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "a.json")
	for text, want := range map[string]string{
		`{`:                                "unexpected end",
		`{"version": 1, "rows": []}`:       "no rows",
		`{"date": "x", "rows": [{"a":1}]}`: "not a result of compare or symgrad tune",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, got, errs := runCompare("table", file); code != exitUsage || got != "" ||
			!strings.Contains(errs, "a.json: "+want) {
			t.Errorf("%s: code %d, %s, %s", text, code, got, errs)
		}
	}
	code, _, errs := runCompare("table", filepath.Join(folder, "b"))
	if code != exitUsage || errs == "" {
		t.Errorf("a missing file: code %d, %s", code, errs)
	}
	if code, _, errs := runCompare("table"); code != exitUsage || !strings.Contains(errs, "usage") {
		t.Errorf("no file: code %d, %s", code, errs)
	}
}

func TestTableRewritesDocuments(t *testing.T) {
	t.Chdir(t.TempDir())
	block := func(table string) string {
		return "a\n<!-- table: t.json -->\n" + table + "<!-- /table -->\nb `<!-- table: X -->`\n"
	}
	for name, text := range map[string]string{
		"t.json": tuneFile, "a.md": block("old\n") + block(""), "b.md": "nothing\n",
		"c.md": "<!-- table: t.json -->\n" + block(""),
		"d.md": "<!-- table: u.json -->\n<!-- /table -->\n",
		"e.md": "<!-- /table -->\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, got, errs := runCompare("table", "-w", "a.md", "b.md"); code != exitOK || got+errs != "" {
		t.Fatalf("code %d, %s%s", code, got, errs)
	}
	if got, err := os.ReadFile("a.md"); err != nil || string(got) != block(tuneWant)+block(tuneWant) {
		t.Errorf("%v\n%s", err, got)
	}
	for name, want := range map[string]string{
		"c.md": "2 table begin markers, 1 end markers", "d.md": "u.json", "e.md": "0 table begin markers, 1 end markers",
	} {
		code, _, errs := runCompare("table", "-w", name)
		if code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: code %d, %s", name, code, errs)
		}
	}
}

// The remedy is `go run ./bench/compare table -w DOCUMENT` in the root of the module.
func TestDocumentsHaveTheTablesOfTheirFiles(t *testing.T) {
	root, tables := filepath.Join("..", ".."), 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		filled, err := fill(string(text), func(file string) ([]byte, error) {
			tables++
			if !strings.HasPrefix(file, "bench/results/current/") {
				return nil, errors.New("it is no result")
			}
			return os.ReadFile(filepath.Join(root, file))
		})
		if err != nil || filled != string(text) {
			t.Errorf("%s: tables differ from their files: %v", name, err)
		}
		return nil
	})
	if err != nil || tables == 0 {
		t.Errorf("%d tables, error %v", tables, err)
	}
}
