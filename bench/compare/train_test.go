package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newTrainFolder is the folder of a session of bench/train.sh in the making.
func newTrainFolder(t *testing.T, device string) *fake {
	f := &fake{t: t, folder: t.TempDir()}
	f.write("session.json", fmt.Sprintf(`{"date": "2026-01-02T03:04:05Z", "device": %q, "staging": "yes", "host": {"kernel": "6.1", "driver": "580.1", "gpus": ["G 0", "G 1"]}}`, device))
	return f
}

// ours writes a result of symgrad.
func (f *fake) ours(model, precision string, ranks, round, parameters int, us float64) {
	f.write(fmt.Sprintf("symgrad.%s.%s.%d.%d.json", model, precision, ranks, round),
		fmt.Sprintf(`{"parameters": %d, "ranks": %d, "rank_batch": 128, "precision": %q, "median_us": %v, "exposed_comm_percent": 2.5,
			"final_loss": 1, "libraries": {"go": "1.26"}}`, parameters, ranks, precision, us))
}

// torch writes a result of torch, of pairs of an engine and its time.
func (f *fake) torch(model, precision string, ranks, round, parameters int, pairs ...any) {
	var rows []string
	for i := 0; i < len(pairs); i += 2 {
		if reason, ok := pairs[i+1].(string); ok {
			rows = append(rows, fmt.Sprintf(`{"engine": %q, "skipped": %q}`, pairs[i], reason))
			continue
		}
		rows = append(rows, fmt.Sprintf(`{"engine": %q, "parameters": %d, "rank_batch": 128, "median_us": %v}`, pairs[i], parameters, pairs[i+1]))
	}
	f.write(fmt.Sprintf("torch.%s.%s.%d.%d.json", model, precision, ranks, round),
		fmt.Sprintf(`{"ranks": %d, "precision": %q, "libraries": {"torch": "2.11"}, "rows": [%s]}`, ranks, precision, strings.Join(rows, ", ")))
}

func TestTrainingTableShowsTheBestAndTheScaling(t *testing.T) {
	f := newTrainFolder(t, "cuda")
	f.ours("mlp", "fp32", 1, 1, 9, 100)
	f.ours("mlp", "fp32", 2, 1, 9, 120)
	f.ours("mlp", "fp32", 2, 2, 9, 130)
	f.torch("mlp", "fp32", 2, 1, 9, "torch", 1500.0, "torch-compile-default", 1250.0, "torch-zero", 900.0, "torch-fsdp", "no such thing")
	f.ours("wide", "tf32", 4, 1, 77, 2000)
	f.torch("wide", "tf32", 4, 1, 77, "torch", 2600.0)
	f.write("torch.lm.fp32.2.1.json", `{"rows": [`)
	code, got, errs := runCompare("train", f.folder)
	want := `microseconds of a training step on the slowest rank, medians; on cuda, the same batch per rank for any number of ranks

  model  precision  ranks  torch  torch-compile-default  torch-zero  symgrad  faster  scaling  exposed
    mlp       fp32      1      -                      -           -    100.0       -    1.000     2.5%
    mlp       fp32      2   1500                   1250       900.0    125.0  10.000    0.800     2.5%
   wide       tf32      4   2600                      -           -     2000   1.300        -     2.5%

note: mlp, fp32, 2 ranks: no torch-fsdp: no such thing
note: torch.lm.fp32.2.1.json: incomplete result
faster is the time of eager or compiled torch, whichever is less, over the time of symgrad; scaling is the time on one rank over this time
HOLDS  mlp fp32, 2 ranks: faster 10.000, limit 8
FAILS  wide tf32, 4 ranks: faster 1.300, limit 1.4
FAILS  wide tf32, 4 ranks: scaling not measured, limit 0.95
`
	if got != want || code != exitFailure || errs != "" {
		t.Errorf("code %d, %s, got\n%s\nwant\n%s", code, errs, got, want)
	}
}

// With sharded states, ours is compared with torch's sharded engines and with ours without
// sharding.
func TestTrainingWithShardedStatesIsJudged(t *testing.T) {
	f := newTrainFolder(t, "cuda")
	f.ours("wide", "tf32", 4, 1, 77, 2000)
	f.write("symgrad-zero1.wide.tf32.4.1.json",
		`{"parameters": 77, "ranks": 4, "rank_batch": 128, "precision": "tf32", "median_us": 1600, "exposed_comm_percent": 50}`)
	f.torch("wide", "tf32", 4, 1, 77, "torch", 3000.0, "torch-zero", 2200.0, "torch-fsdp", 2000.0)
	_, got, _ := runCompare("train", f.folder)
	for _, want := range []string{
		"symgrad-zero1", "HOLDS  wide tf32, 4 ranks: faster 1.500", "HOLDS  wide tf32, 4 ranks: sharding 1.250, limit 1.1",
		"FAILS  wide tf32, 4 ranks: sharded faster 1.250, limit 1.4", "2.5%",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestTrainingResultIsWritten(t *testing.T) {
	f := newTrainFolder(t, "cuda")
	f.ours("mlp", "tf32", 4, 1, 9, 100)
	f.torch("mlp", "tf32", 4, 1, 9, "torch", 900.0)
	file := filepath.Join(t.TempDir(), "deep", "result.json")
	if code, _, errs := runCompare("train", "-o", file, f.folder); code != exitOK {
		t.Fatalf("code %d: %s", code, errs)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Device    string            `json:"device"`
		Libraries map[string]string `json:"libraries"`
		Verdicts  []trainVerdict    `json:"verdicts"`
		Rows      []trainRowJSON    `json:"rows"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Device != "cuda" || got.Libraries["go"] != "1.26" || got.Libraries["torch"] != "2.11" || len(got.Verdicts) != 1 || len(got.Rows) != 1 {
		t.Fatalf("%+v", got)
	}
	if r := got.Rows[0]; r.Parameters != 9 || r.RankBatch != 128 || r.Best != "torch" || *r.Faster != 9 || r.Scaling != nil || r.US["symgrad"] != 100 {
		t.Errorf("%+v", r)
	}
}

// A comparison of two models, or of another precision than was asked for, is none.
func TestTrainingOfAnotherModelIsWrong(t *testing.T) {
	f := newTrainFolder(t, "cuda")
	f.ours("mlp", "fp32", 2, 1, 9, 100)
	f.torch("mlp", "fp32", 2, 1, 10, "torch", 900.0)
	code, got, _ := runCompare("train", f.folder)
	if code != exitFailure || !strings.Contains(got, "WRONG: torch.mlp.fp32.2.1.json: torch has 10 parameters and 128 samples a rank, symgrad has 9 and 128") {
		t.Errorf("code %d\n%s", code, got)
	}
	f = newTrainFolder(t, "cuda")
	f.ours("mlp", "fp32", 2, 1, 9, 100)
	f.write("torch.mlp.tf32.2.1.json", `{"ranks": 2, "precision": "fp32", "rows": [{"engine": "torch", "parameters": 9, "rank_batch": 128, "median_us": 5}]}`)
	if _, got, _ = runCompare("train", f.folder); !strings.Contains(got, "WRONG: torch.mlp.tf32.2.1.json: result of precision fp32 on 2 ranks") {
		t.Errorf("%s", got)
	}
	f = newTrainFolder(t, "cuda")
	f.ours("mlp", "fp32", 2, 1, 9, 100)
	f.ours("mlp", "fp32", 4, 1, 9, 0)
	if _, got, _ = runCompare("train", f.folder); !strings.Contains(got, "WRONG: symgrad.mlp.fp32.4.1.json: a step of symgrad takes 0 us") {
		t.Errorf("%s", got)
	}
}

// On the host there is nothing to hold ours against.
func TestTrainingOnTheHostIsNotJudged(t *testing.T) {
	f := newTrainFolder(t, "cpu")
	f.ours("cnn", "fp32", 1, 1, 9, 100)
	f.ours("cnn", "fp32", 2, 1, 9, 500)
	if code, got, _ := runCompare("train", f.folder); code != exitOK || !strings.Contains(got, "0.200") || strings.Contains(got, "FAILS") {
		t.Errorf("code %d\n%s", code, got)
	}
}

func TestTrainingFoldersThatMakeNoSense(t *testing.T) {
	empty := newTrainFolder(t, "cuda")
	odd := newTrainFolder(t, "cuda")
	odd.ours("rnn", "fp32", 1, 1, 9, 100)
	for folder, want := range map[string]string{
		t.TempDir():  "session.json",
		empty.folder: "has no results",
		odd.folder:   "invalid name: want SIDE.MODEL.PRECISION.RANKS.ROUND.json",
	} {
		if code, _, errs := runCompare("train", folder); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("code %d, %s; want %q", code, errs, want)
		}
	}
}
