package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/examples/internal/ranktest"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/train"
)

func TestMain(m *testing.M) { ranktest.Main(m, main) }

// small is the flags of a run that takes a second: the shipped settings with narrower layers.
func small(dir string, more ...string) []string {
	return append([]string{
		"--config=../../configs/wide-mlp.yaml", "--set=run.output_dir=" + dir, "--set=model.hidden=48,48,48", "--set=optim.lr=0.005",
		"--set=data.global_batch=32", "--set=data.limit=256", "--set=run.max_steps=40", "--set=log.losses=true", "--set=cpu.blas=gonum", "--set=run.device=cpu",
	}, more...)
}

// summary reads the summary of a run.
func summary(t *testing.T, dir string) train.Summary {
	t.Helper()
	return ranktest.Summary[train.Summary](t, dir)
}

// ranks is the flag for so many.
func ranks(n int) string { return ranktest.Ranks(n) }

// One and two ranks learn the same, as processes and as goroutines, and learn it: the loss begins
// at ln 10 = 2.3.
func TestRanksLearnTheSame(t *testing.T) {
	var one train.Summary
	for _, run := range []struct {
		n    int
		more []string
	}{{1, nil}, {2, nil}, {2, []string{"--set=comm.backend=sim"}}} {
		dir := t.TempDir()
		o := ranktest.Process(t, small(dir, append(run.more, ranks(run.n), "--below=0.1", "--verify")...)...)
		o.Want(t, 0, "mlp 48-48-48-48-10", "generated: 256 training and 256 test samples of 48 values", "verify     gradient of 32 samples")
		s := summary(t, dir)
		if run.n == 1 {
			one = s
			if *s.TestAccuracy < 0.9 {
				t.Errorf("accuracy %v of test samples, want at least 0.9", *s.TestAccuracy)
			}
			continue
		}
		for i := range one.Losses {
			if d := math.Abs(s.Losses[i]-one.Losses[i]) / one.Losses[i]; !(d < 1e-4) {
				t.Fatalf("%v: the loss of step %d is %v, of one rank %v", run, i, s.Losses[i], one.Losses[i])
			}
		}
	}
}

// On GPUs, ranks learn like one rank on the host.
func TestGPUsLearnWhatTheHostDoes(t *testing.T) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			cudatest.Devices(t, n)
			host, gpu := t.TempDir(), t.TempDir()
			ranktest.Process(t, small(host, ranks(1))...).Want(t, 0)
			ranktest.Process(t, small(gpu, ranks(n), "--set=run.device=cuda", "--verify", "--below=0.1")...).Want(t, 0, "compiled, on ")
			got, want := summary(t, gpu), summary(t, host)
			for i := range want.Losses {
				if d := math.Abs(got.Losses[i]-want.Losses[i]) / want.Losses[i]; !(d < 1e-3) {
					t.Fatalf("the loss of step %d is %v, on the host %v", i, got.Losses[i], want.Losses[i])
				}
			}
		})
	}
}

func TestStepTimesAreWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "steps.json")
	ranktest.Process(t, small(t.TempDir(), ranks(2), "--json="+file, "--warmup=10", "--resident")...).Want(t, 0)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got train.Timing
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Program != "mlp" || got.Ranks != 2 || got.RankBatch != 16 || got.Steps != 30 || !got.Resident || !(got.MedianUS > 0) {
		t.Errorf("%+v", got)
	}
}

func TestWhatMakesNoSenseIsRefused(t *testing.T) {
	for _, c := range []struct{ device, flag, want string }{
		{"cpu", "--set=model.name=cnn", "mlp trains mlp only"},
		{"cpu", "--set=model.hidden=[]", "model.hidden is empty"},
		{"auto", "--set=run.precision=bf16", "run.precision=bf16: it is for GPUs"},
	} {
		flags := small(t.TempDir(), "--set=comm.backend=sim", "--set=run.device="+c.device, c.flag)
		ranktest.Execute(execute, flags...).Want(t, train.ExitUsage, c.want)
	}
}

// Errors that are known before ranks start are printed once, not by each rank.
func TestSettingsWithoutSamplesAreToldOnce(t *testing.T) {
	o := ranktest.Process(t, small(t.TempDir(), ranks(3), "--set=model.hidden=[]")...)
	o.Want(t, train.ExitUsage, "model.hidden is empty")
	if strings.Count(o.Stderr, "\n") != 1 {
		t.Errorf("more than one line:\n%s", o.Stderr)
	}
}

func TestHelpNamesTheConfig(t *testing.T) {
	o := ranktest.Execute(execute, "--help")
	o.Want(t, 0, "configs/wide-mlp.yaml", "--json", "--below")
	if !strings.HasPrefix(o.Stdout, "Train a wide") {
		t.Errorf("%q", o.Stdout)
	}
}

// A run that has started its ranks ends as a program that a shell runs before "| head" does.
func TestOutputWithoutAReaderIsCode141(t *testing.T) {
	o := ranktest.Unread(t, small(t.TempDir(), ranks(2), "--set=run.max_steps=0", "--set=run.epochs=1000000", "--set=log.every=1", "--set=log.losses=false")...)
	o.Want(t, 141)
}
