package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/train"
)

// A step is of the same samples however many ranks share it, equally or not, so that all learn the
// same.
func TestLossCurvesDoNotDependOnRanks(t *testing.T) {
	data := madeUp(t)
	for _, test := range []struct {
		name     string
		settings []string
		ranks    []int
	}{
		{"mlp", []string{"run.max_steps=100"}, []int{2, 3, 4}},
		{"mlp, batch that ranks do not divide", []string{"run.max_steps=30", "data.global_batch=23"}, []int{2, 4}},
		{"mlp, fewer samples than ranks", []string{"run.max_steps=12", "data.global_batch=2"}, []int{3}},
		{"cnn", []string{"run.max_steps=20", "model.name=cnn", "model.channels=3,4", "model.hidden=10"}, []int{2, 3}},
		{"momentum", []string{"run.max_steps=30", "optim.name=momentum", "optim.lr=0.01", "optim.clip_norm=1"}, []int{2, 3}},
	} {
		one := simulated(t, data, append(test.settings, ranks(1))...).summary(t)
		for _, n := range test.ranks {
			s := simulated(t, data, append(test.settings, ranks(n))...).summary(t)
			if d := apart(t, s.Losses, one.Losses); d > 1e-4 {
				t.Errorf("%s: losses of %d ranks and of one differ by %.1e", test.name, n, d)
			}
			if s.WorldSize != n || s.Backend != "sim" {
				t.Errorf("%s: %d ranks by %s, want %d by sim", test.name, s.WorldSize, s.Backend, n)
			}
		}
	}
}

// Methods of exchange do not change a bit of the computation.
func TestBitsDependOnNothingButTheComputation(t *testing.T) {
	data := madeUp(t)
	base := []string{"run.max_steps=12", "model.hidden=40,20", ranks(3)}
	want := simulated(t, data, base...).summary(t)
	for _, how := range [][]string{
		{"run.name=again"},
		{"ddp.bucket_mb=0.0009765625"}, // 1 KiB
		{"ddp.bucket_mb=0.0009765625", "ddp.overlap=false"},
		{"ddp.bucket_mb=1"},
		{"ddp.bucket_mb=25", "ddp.first_bucket_mb=0.002"},
		{"ddp.overlap=false"},
		{"comm.check=false"},
		{"log.every=5", "log.trace=t.json", "log.trace_steps=2,3", "--verify"},
	} {
		s := simulated(t, data, append(base, how...)...).summary(t)
		if s.ParamsSHA256 != want.ParamsSHA256 || !slices.Equal(s.Losses, want.Losses) {
			t.Errorf("%v: parameters %.8s, want %.8s", how, s.ParamsSHA256, want.ParamsSHA256)
		}
	}
	if s := simulated(t, data, append(base, "run.seed=2")...).summary(t); s.ParamsSHA256 == want.ParamsSHA256 {
		t.Error("another seed gives the same parameters")
	}
}

func TestAccumulationEqualsTheLargerBatch(t *testing.T) {
	data := madeUp(t)
	whole := simulated(t, data, "run.max_steps=30", ranks(1)).summary(t)
	for _, how := range [][]string{
		{ranks(1), "data.accum_steps=4"},
		{ranks(2), "data.accum_steps=3"},
		{ranks(3), "data.accum_steps=5"}, // 8 samples in parts of 2
		{ranks(2), "data.accum_steps=24"},
	} {
		s := simulated(t, data, append(how, "run.max_steps=30")...).summary(t)
		if d := apart(t, s.Losses, whole.Losses); d > 1e-4 {
			t.Errorf("%v: losses differ by %.1e from those of one part", how, d)
		}
	}
}

// 230 samples are 9 batches of 24 and one of 14.
func TestLastBatchIsShorterOrLeftOut(t *testing.T) {
	data := madeUp(t)
	epochs := []string{"run.max_steps=0", "run.epochs=2", ranks(4)}
	all := simulated(t, data, epochs...).summary(t)
	if all.Steps != 20 || len(all.Losses) != 20 || all.Epochs != 2 {
		t.Errorf("%d steps with %d losses in %v epochs, want 20 in 2", all.Steps, len(all.Losses), all.Epochs)
	}
	one := simulated(t, data, append(epochs, ranks(1))...).summary(t)
	if d := apart(t, all.Losses, one.Losses); d > 1e-4 {
		t.Errorf("losses of 4 ranks and of one differ by %.1e", d)
	}
	dropped := simulated(t, data, append(epochs, "data.drop_last=true")...).summary(t)
	if dropped.Steps != 18 || math.Abs(dropped.Epochs-2*216./230) > 1e-9 {
		t.Errorf("%d steps in %v epochs, want 18 without the last batches", dropped.Steps, dropped.Epochs)
	}
	few := simulated(t, data, append(epochs, "data.limit=50")...).summary(t)
	if few.Steps != 6 || few.Epochs != 2 {
		t.Errorf("%d steps in %v epochs of 50 samples, want 6 in 2", few.Steps, few.Epochs)
	}
}

func TestRunLearns(t *testing.T) {
	s := simulated(t, madeUp(t), "run.max_steps=150", ranks(2), "optim.lr=0.01").summary(t)
	if s.TestAccuracy == nil || *s.TestAccuracy < 0.95 || s.TestSamples != testSamples {
		t.Errorf("accuracy %v of %d samples, want at least 0.95 of %d", s.TestAccuracy, s.TestSamples, testSamples)
	}
	if s.FinalLoss > s.Losses[0]/4 {
		t.Errorf("loss fell from %v to %v only", s.Losses[0], s.FinalLoss)
	}
}

func TestSummaryTellsAllOfTheRun(t *testing.T) {
	o := simulated(t, madeUp(t), ranks(2), "run.name=told", "--verify")
	s := o.summary(t)
	if s.Name != "told" || s.Steps != 5 || s.GlobalBatch != 24 || s.WorldSize != 2 || s.Backend != "sim" || len(s.Losses) != 5 {
		t.Errorf("summary %+v", s)
	}
	if s.Parameters != 64*16+16+16*12+12+12*10+10 || s.Model != "mlp 64-16-12-10" {
		t.Errorf("model %s with %d parameters", s.Model, s.Parameters)
	}
	if s.FinalLoss != s.Losses[4] || s.SamplesPerSecond <= 0 || s.Seconds <= 0 || s.ExposedCommPercent == nil || *s.ExposedCommPercent < 0 || *s.ExposedCommPercent > 100 {
		t.Errorf("loss %v, %v samples/s in %v s, exposed %v", s.FinalLoss, s.SamplesPerSecond, s.Seconds, s.ExposedCommPercent)
	}
	if b, err := hex.DecodeString(s.ParamsSHA256); err != nil || len(b) != sha256.Size {
		t.Errorf("params_sha256 is %q", s.ParamsSHA256)
	}
	if s.VerifyMaxRelDiff == nil || *s.VerifyMaxRelDiff > train.MaxDifference {
		t.Errorf("verify_max_rel_diff is %v", s.VerifyMaxRelDiff)
	}
	if s.BLAS == "" || s.Launcher == "" || s.Versions["go"] == "" || s.Threads < 1 {
		t.Errorf("blas %q, launcher %q, versions %v, %d threads", s.BLAS, s.Launcher, s.Versions, s.Threads)
	}
	cfg, _, err := config.Load(config.Source{File: filepath.Join(o.dir, config.FileName)})
	if err != nil || cfg.Hash() != s.ConfigHash {
		t.Errorf("the saved config has another hash than %s: %v", s.ConfigHash, err)
	}
	text, err := os.ReadFile(filepath.Join(o.dir, config.SummaryName))
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{
		"world_size", "backend", "steps", "losses", "final_loss", "test_accuracy", "samples_per_second",
		"exposed_comm_percent", "params_sha256", "config_hash",
	} {
		if !strings.Contains(string(text), fmt.Sprintf("%q:", field)) {
			t.Errorf("%s is missing", field)
		}
	}
}

func TestSummaryLeavesOutWhatWasNotAskedFor(t *testing.T) {
	s := simulated(t, madeUp(t), "log.losses=false", "run.eval=false").summary(t)
	if s.Losses != nil || s.TestAccuracy != nil || s.VerifyMaxRelDiff != nil || s.Trace != "" {
		t.Errorf("summary %+v", s)
	}
}

// A newcomer sees the parts of the run, that the result is right, and where the results are.
func TestOutputTellsWhatRuns(t *testing.T) {
	o := simulated(t, madeUp(t), ranks(2), "log.every=2", "--verify", "log.trace=t.json", "log.trace_steps=0,1")
	if o.code != 0 {
		t.Fatal(o.stderr)
	}
	for _, want := range []string{
		"2 ranks", "sim: set by comm.backend", "compiled, on the host: set by run.device", "kernels of the machine", "230 training and 130 test images", "mlp 64-16-12-10",
		"adam learning_rate=0.003", "12 a rank", "bucket  dtype", "fc1.weight", "symmetric heap (sim)", "results    " + o.dir,
		"verify     gradient of 24 samples on 2 ranks", "max |a-b| / max |b|", ": ok",
		"step 2/5 (40%)  loss ", "step 4/5 (80%)  loss ", "step 5/5 (100%)  loss ", " elapsed, ", "samples/s", "exposed",
		"accuracy   0.", "the same on 2 ranks", filepath.Join(o.dir, "t.json"), filepath.Join(o.dir, config.SummaryName),
	} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, o.stdout)
		}
	}
	if o.stderr != "" {
		t.Errorf("stderr: %s", o.stderr)
	}
}

func TestFailuresAreExplained(t *testing.T) {
	data := madeUp(t)
	for _, test := range []struct {
		name     string
		settings []string
		code     int
		want     []string
	}{
		{"unknown key", []string{"run.max_step=3"}, 2, []string{`unknown key "run.max_step"`, "run.max_steps"}},
		{"two problems", []string{"run.seed=x", "optim.lr=-1"}, 2, []string{"run.seed", "optim.lr"}},
		{"unknown flag", []string{"--fast"}, 2, []string{"unknown flag: --fast", "--help"}},
		{"no such file", []string{"--config=no.yaml"}, 2, []string{"no.yaml"}},
		{"missing data", []string{"data.path=" + t.TempDir()}, 1, []string{"train-images-idx3-ubyte", "missing", "run `make data`"}},
		{"no such library", []string{"cpu.blas=libnone.so.9"}, 1, []string{"libnone.so.9"}},
		{"a learning rate without bounds", []string{"optim.lr=1e38", "run.max_steps=20", "log.every=7"}, 1, []string{"step 1: ", "not finite", "lower optim.lr"}},
		{"a heap too small", []string{"comm.heap_mb=1", "model.hidden=600,600"}, 2, []string{"comm.heap_mb", "1048576 B"}},
		{"a timeline behind the end", []string{"run.epochs=1", "run.max_steps=0", "log.trace=t.json", "log.trace_steps=10,12"}, 2, []string{"log.trace_steps", "step 10", "10 steps"}},
		{"a bucket below the least", []string{"ddp.bucket_mb=0.0001"}, 2, []string{"--set: ddp.bucket_mb: 0.0001", "at least 0.0009765625"}},
	} {
		o := simulated(t, data, append(test.settings, ranks(2))...)
		if o.code != test.code {
			t.Errorf("%s: exit code %d, want %d", test.name, o.code, test.code)
		}
		for _, want := range test.want {
			if !strings.Contains(o.stderr, want) {
				t.Errorf("%s: %q is missing in %s", test.name, want, o.stderr)
			}
		}
		if _, err := os.Stat(filepath.Join(o.dir, config.SummaryName)); err == nil {
			t.Errorf("%s: there is a summary", test.name)
		}
	}
}

func TestArgumentsAreRefusedAndHelpIsShown(t *testing.T) {
	var out, errs strings.Builder
	if code := execute([]string{"mnist"}, &out, &errs); code != train.ExitUsage || !strings.Contains(errs.String(), `unexpected argument "mnist"`) {
		t.Errorf("an argument: code %d, %s", code, errs.String())
	}
	errs.Reset()
	if code := execute([]string{"--help"}, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Errorf("--help: code %d, %s", code, errs.String())
	}
	for _, want := range []string{"--config", "--set", "--verify", "configs/mnist-mlp.yaml", "130"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help without %s:\n%s", want, out.String())
		}
	}
}

func TestUnwritableResultsEndTheRunBeforeItStarts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o := simulated(t, madeUp(t), "run.output_dir="+filepath.Join(file, "run"), ranks(2))
	if o.code != 1 || !strings.Contains(o.stderr, file) || strings.Contains(o.stdout, "step") {
		t.Errorf("code %d, %s%s", o.code, o.stdout, o.stderr)
	}
}
