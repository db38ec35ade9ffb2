package train

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/config"
)

// timed runs the program with --json and reads the file.
func timed(t *testing.T, more ...string) Timing {
	t.Helper()
	file := filepath.Join(t.TempDir(), "deep", "steps.json")
	var out, errs bytes.Buffer
	if code := program.Execute(smallRun(t.TempDir(), append(more, "--json="+file)...), &out, &errs); code != 0 {
		t.Fatalf("code %d: %s", code, errs.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got Timing
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestStepTimesAreWritten(t *testing.T) {
	got := timed(t, "launch.nproc_per_node=3", "--warmup=2", "data.global_batch=25")
	if got.Program != "patterns" || got.Ranks != 3 || got.RankBatch != 9 || got.Warmup != 2 || got.Steps != 3 || got.Device != "cpu" || got.Machine != "compiled" ||
		got.Backend != "sim" || got.Precision != "fp32" || got.Optimizer != "adam" || got.Resident {
		t.Errorf("%+v", got)
	}
	if got.MedianUS <= 0 || got.MeanUS <= 0 || got.P90US < got.MedianUS || got.ExposedCommPercent == nil || got.Libraries["go"] == "" || got.Libraries["blas"] == "" {
		t.Errorf("%+v", got)
	}
	same := timed(t, "launch.nproc_per_node=3", "--warmup=0", "data.global_batch=25")
	if same.ParamsSHA256 != got.ParamsSHA256 || same.Steps != 5 {
		t.Errorf("another warm-up gives other parameters, or %d steps in place of 5", same.Steps)
	}
}

// A run that goes on from a checkpoint has measured its own steps only.
func TestStepTimesOfAResumedRunAreOfItsSteps(t *testing.T) {
	ck := "checkpoint.dir=" + t.TempDir()
	timed(t, ck, ranks(2), steps(5), "--warmup=2")
	if got := timed(t, ck, ranks(2), steps(9), "--warmup=1"); got.Warmup != 1 || got.Steps != 3 {
		t.Errorf("%d steps behind a warm-up of %d, want 3 of the 4 that were made", got.Steps, got.Warmup)
	}
}

// A resident batch is learned over and over: its loss falls faster than that of batches that
// differ.
func TestResidentBatchStays(t *testing.T) {
	many := []string{"launch.nproc_per_node=2", "run.max_steps=40", "optim.lr=0.02", "data.global_batch=4", "run.eval=false"}
	one, all := timed(t, append(many, "--resident")...), timed(t, many...)
	if !one.Resident || !(one.FinalLoss < all.FinalLoss/2) {
		t.Errorf("loss %v with one batch, %v with many", one.FinalLoss, all.FinalLoss)
	}
}

// The bound is on the loss of the last step, whatever the number of ranks.
func TestBoundOnTheLossIsKept(t *testing.T) {
	for bound, code := range map[string]int{"--below=0.01": 1, "--below=9": 0, "--below=0": 0} {
		var out, errs strings.Builder
		got := program.Execute(smallRun(t.TempDir(), "launch.nproc_per_node=2", bound), &out, &errs)
		if got != code || (code == 1) != strings.Contains(errs.String(), "the model has not learned: the loss of the last step is") {
			t.Errorf("%s: code %d, want %d: %s", bound, got, code, errs.String())
		}
	}
}

func TestMeaninglessTimingsAreRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--warmup=-1"}, "--warmup -1: want 0 or more"},
		{[]string{"--kept"}, "add --resident"},
		{[]string{"log.trace=" + config.SummaryName}, "is a file that the run writes itself"},
		{[]string{"--json=.", "--warmup=1"}, "--json .: is a folder: use a file name"},
		{[]string{"--below=nan"}, "--below NaN: want a loss above 0"},
		{[]string{"--below=-2"}, "--below -2: want a loss above 0"},
		{[]string{"--json=x.json", "--warmup=5"}, "all of them warm-up"},
		{[]string{"run.precision=tf32"}, "run.precision=tf32: it is for GPUs, and this run is on the host, in fp32: comm.backend=sim is between ranks of the host"},
	} {
		var out, errs strings.Builder
		if code := program.Execute(smallRun(t.TempDir(), c.args...), &out, &errs); code != ExitUsage || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%v: code %d, %s; want %q", c.args, code, errs.String(), c.want)
		}
	}
	var out, errs strings.Builder
	one := program
	one.Models = []string{"mlp"}
	if code := one.Execute(smallRun(t.TempDir(), "model.name=cnn"), &out, &errs); code != ExitUsage || !strings.Contains(errs.String(), "model.name=cnn: patterns trains mlp only") {
		t.Errorf("code %d, %s", code, errs.String())
	}
}
