package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/tool/plan"
	"github.com/symgrad/symgrad/tensor"
)

// planText runs symgrad plan with a line of flags.
func planText(t *testing.T, line string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(newRootCommand(), append([]string{"plan"}, strings.Fields(line)...), &out, &errs)
	return code, out.String(), errs.String()
}

// tinyPlan is settings of a perceptron that is quickly built.
const tinyPlan = "--set model.hidden=[8] --set data.global_batch=6 --set data.path=. "

// A failed probe reports the output of its ranks, with or without an error of the launcher.
func TestPlanSaysWhyAProbeFailed(t *testing.T) {
	const rank = "symgrad: rank 0 (pid 7) was killed by signal: killed\n"
	if got, want := probeFailed(2, 137, nil, rank).Error(), "plan --probe: 2 ranks on this host ended with code 137: "+rank; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	err := probeFailed(3, 0, dist.ErrInvalid, "")
	if want := "plan --probe: 3 ranks on this host ended with code 0: invalid argument"; err.Error() != want || !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("got %q, want %q", err, want)
	}
}

// Everything that makes no sense is one line, and exit code 2.
func TestPlanRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"extra":                               `unexpected argument "extra"`,
		"-n 0":                                "plan: -n 0: want 1 rank or more",
		"-n 5000":                             "-n 5000: want at most 4096 ranks",
		"--bandwidth -3":                      "--bandwidth -3: want a positive number of GB/s",
		"--bandwidth inf":                     "--bandwidth +Inf: want a positive number of GB/s",
		"--bandwidth 0":                       "--bandwidth 0: want a positive number of GB/s",
		"--bandwidth nan":                     "--bandwidth NaN: want a positive number of GB/s",
		"--bandwidth 1e-320":                  "want a positive number of GB/s, at least 1e-09",
		"--step 0 --probe":                    "--step 0s: want a positive time",
		"--bandwidth 3 --probe":               "--probe or --bandwidth: choose one",
		"--hosts -1":                          "--hosts -1: want 1 to 65536",
		"--hosts 2 --latency 0":               "--latency 0s: want a positive time",
		"--hosts 2 --probe":                   "--probe measures one host",
		"--hosts 2 -n 3 " + tinyPlan:          "--hosts 2: 3 ranks cannot be spread evenly",
		"--step 3ms":                          "add --probe or --bandwidth",
		"--step -3ms --probe":                 "--step -3ms: want a positive time",
		"--set model.name=rnn":                "model.name",
		"--set data.global_batchs=3":          "data.global_batch",
		"--set shard.stage=4":                 "shard.stage",
		"--program lm":                        "--program lm: trains gpt2 or llama, but model.name is mlp",
		"--program moon":                      `unknown --program "moon": use one of ddp, lm, gpt2, mlp, resnet`,
		"-n 7 " + tinyPlan:                    "data.global_batch=6: 7 ranks cannot have a sample each; set it to 7 at least, or -n to 6 at most",
		"--program lm --set model.name=llama": "set data.path to the training text",
		"--set run.machine=tape":              "run.machine=tape: the tape machine's memory is unknown",
		"--set run.precision=bf16":            "run.precision=bf16: only for GPUs",
		"--set run.recompute=all":             "run.recompute",
		"--set run.memory_mb=-1 --set run.recompute=auto":                         "run.memory_mb",
		"--set run.device=cuda --set run.recompute=auto":                          "the free memory of the GPU is unknown here; set run.memory_mb",
		"--set run.device=cuda --set comm.backend=shm":                            "shm is between ranks of the host",
		"-n 2 --set ddp.virtual_ranks=3 " + tinyPlan:                              "ddp.virtual_ranks=3: not divisible by 2 ranks",
		"-n 2 --set ddp.hook=powersgd --set shard.stage=1 " + tinyPlan:            "ddp, shard and comm: ddp config",
		"--program mlp --set model.hidden=[]":                                     "model.hidden is empty",
		"-n 2 --set optim.name=adamw --set optim.weight_decay=0.1 --no-such-flag": "unknown flag: --no-such-flag",
	} {
		code, stdout, stderr := planText(t, line)
		if code != exitUsage || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") > 2 || stdout != "" {
			t.Errorf("%s: code %d, stdout %q, stderr %q, want %q", line, code, stdout, stderr, want)
		}
	}
}

// TestPlanForeseesRecomputation: a deep model needs less memory for activations with blocks, and
// with auto no more than run.memory_mb.
func TestPlanForeseesRecomputation(t *testing.T) {
	of := func(set string) (activations int64, again int) {
		code, stdout, stderr := planText(t, "--json -n 2 --program mlp --set data.global_batch=512 --set model.hidden=[64,64,64,64,64,64,64,64,64] "+set)
		if code != exitOK || stderr != "" {
			t.Fatalf("%s: code %d: %s", set, code, stderr)
		}
		var p plan.Plan
		if err := json.Unmarshal([]byte(stdout), &p); err != nil {
			t.Fatal(err)
		}
		return p.Configured().Most().Activations, p.Configured().Precision.Again
	}
	for _, device := range []string{"--set run.device=cpu ", "--set run.device=cuda "} {
		none, again := of(device)
		blocks, more := of(device + "--set run.recompute=blocks")
		if again != 0 || more == 0 || 4*blocks > 3*none {
			t.Errorf("%s: activations of %d and %d B, %d and %d steps again", device, none, blocks, again, more)
		}
		if auto, again := of(device + "--set run.recompute=auto --set run.memory_mb=100"); auto != none || again != 0 {
			t.Errorf("%s: with room for all %d B, %d steps again, want %d B", device, auto, again, none)
		}
	}
}

// TestPlanJSONIsThePlan reads it back.
func TestPlanJSONIsThePlan(t *testing.T) {
	code, stdout, stderr := planText(t, "--json -n 3 --bandwidth 2.5 --step 1ms --set shard.stage=1 "+tinyPlan)
	if code != exitOK || stderr != "" {
		t.Fatalf("code %d: %s", code, stderr)
	}
	var p plan.Plan
	d := json.NewDecoder(strings.NewReader(stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		t.Fatal(err)
	}
	on := p.Configured()
	if p.Ranks != 3 || p.Rows != 2 || p.Device != "cpu" || p.Stage != 1 || len(p.Stages) != plan.Stages || len(on.Ranks) != 3 || p.Parameters != 784*8+8+8*10+10 {
		t.Errorf("%+v", p)
	}
	if p.Link == nil || p.Link.GBps != 2.5 || on.Time == nil || on.Time.Exposed == nil || on.Volume != plan.Sum(on.Step) {
		t.Errorf("%+v, %+v", p.Link, on)
	}
}

// Between hosts, each collective has its time, and an allreduce its algorithm.
func TestPlanNamesTheAlgorithmBetweenHosts(t *testing.T) {
	const flags = "-n 8 --hosts 4 --latency 20us --bandwidth 1 --step 10ms --set data.global_batch=64 --set data.path=. "
	for line, want := range map[string]string{
		flags:                                " parts",
		flags + "--set model.hidden=[8]":     " exchange",
		flags + "--set model.hidden=[64]":    "4 hosts with 2 ranks each; a message takes 20",
		flags + "--set model.hidden=[16384]": " chain",
		flags + "--set shard.stage=1":        "reducescatter",
	} {
		code, stdout, stderr := planText(t, line)
		if code != exitOK || stderr != "" || !strings.Contains(stdout, want) || !strings.Contains(stdout, "algorithm") {
			t.Errorf("%s: want %q, code %d: %s\n%s", line, want, code, stderr, stdout)
		}
	}
}

// Times of centuries are no negative ones.
func TestPlanTellsTimesThatNoDurationHolds(t *testing.T) {
	code, stdout, stderr := planText(t, "-n 2 --bandwidth 1e-9 --set model.hidden=[100000,100000] --set data.global_batch=2 --set data.path=.")
	if code != exitOK || stderr != "" || !strings.Contains(stdout, "e+10s") || strings.Contains(stdout, " -2") {
		t.Errorf("code %d: %s\n%s", code, stderr, stdout)
	}
}

// TestPlanForGPUs needs none. A batch that data.accum_steps does not divide may take fewer runs
// than that: 9 samples two by two are 5 of them, not 6.
func TestPlanCountsTheRunsThatAreMade(t *testing.T) {
	for _, test := range []struct{ batch, parts, ranks, rows, runs, collectives int }{
		{18, 6, 2, 2, 5, 12}, // of 2 for the weights in a run, 1 for the gradients, and 1 for their norm
		{16, 4, 2, 2, 4, 10},
		{64, 64, 4, 1, 16, 34},
		{4, 4, 4, 1, 1, 4},
	} {
		cfg := planConfig(t, "mnist-mlp", "model.hidden=[16]", "shard.stage=3",
			fmt.Sprintf("data.global_batch=%d", test.batch), fmt.Sprintf("data.accum_steps=%d", test.parts))
		p, err := planOf(cfg, "", test.ranks)
		if err != nil {
			t.Fatal(err)
		}
		if p.Rows != test.rows || p.Runs != test.runs || p.Configured().Volume.Collectives != test.collectives {
			t.Errorf("%+v: %d rows, %d runs, %d collectives", test, p.Rows, p.Runs, p.Configured().Volume.Collectives)
		}
	}
}

func TestPlanForGPUs(t *testing.T) {
	code, stdout, stderr := planText(t, "-n 2 --program mlp --set run.device=cuda --set run.precision=tf32 --set model.hidden=[32,32] --set data.global_batch=8")
	if code != exitOK || stderr != "" || !strings.Contains(stdout, "2 ranks on a GPU each") || !strings.Contains(stdout, "mlp of 32 inputs") {
		t.Errorf("code %d: %s\n%s", code, stderr, stdout)
	}
}

// TestPlanTellsWhereSizesComeFrom has no data, and a text of three characters.
func TestPlanTellsWhereSizesComeFrom(t *testing.T) {
	if _, stdout, _ := planText(t, "-n 2 "+tinyPlan); !strings.Contains(stdout, "28x28 images (size of MNIST: no data in .)") {
		t.Error(stdout)
	}
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte("abcabc"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, stdout, _ := planText(t, "-n 2 --set model.name=llama --set model.layers=1 --set model.context=4 --set data.path="+file)
	if !strings.Contains(stdout, "llama, layers 1,") || !strings.Contains(stdout, "vocabulary 3") {
		t.Error(stdout)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := planText(t, "--set model.name=gpt2 --set data.path="+file); code != exitUsage || !strings.Contains(stderr, "is empty") {
		t.Errorf("code %d: %s", code, stderr)
	}
}

// TestPlanTakesRanksFromTheSettings plans without -n.
func TestPlanTakesRanksFromTheSettings(t *testing.T) {
	for _, c := range []struct {
		p    planner
		n    int
		want int
	}{{planner{}, 0, 1}, {planner{}, 3, 3}, {planner{ranks: 5, ranksGiven: true}, 3, 5}} {
		cfg := config.Default()
		cfg.Launch.NprocPerNode = c.n
		if got := c.p.ranksOf(&cfg); got != c.want {
			t.Errorf("%+v with nproc_per_node=%d: %d ranks, want %d", c.p, c.n, got, c.want)
		}
	}
}

// TestImaginedRanksHaveWhatThisOneHas does each kind of collective alone.
func TestImaginedRanksHaveWhatThisOneHas(t *testing.T) {
	w, err := imaginedWorld(3)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}()
	src := []float32{1, 2, 3}
	for name, c := range map[string]struct {
		dst  []float32
		op   func(dst, src tensor.Buffer) (dist.Work, error)
		want []float32
	}{
		"allreduce":     {make([]float32, 3), func(d, s tensor.Buffer) (dist.Work, error) { return w.AllReduce(d, s, dist.Sum) }, src},
		"allgather":     {make([]float32, 9), func(d, s tensor.Buffer) (dist.Work, error) { return w.AllGather(d, s) }, []float32{1, 2, 3, 1, 2, 3, 1, 2, 3}},
		"reducescatter": {make([]float32, 1), func(d, s tensor.Buffer) (dist.Work, error) { return w.ReduceScatter(d, s, dist.Sum) }, src[:1]},
	} {
		work, err := c.op(tensor.Of(c.dst), tensor.Of(src))
		if err == nil {
			err = work.Wait()
		}
		if err != nil || !slices.Equal(c.dst, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, c.dst, err, c.want)
		}
	}
	if _, err := w.Heap(512); err == nil {
		t.Error("there is a symmetric heap with ranks that are not there")
	}
	part, err := w.Split(0, 0)
	if err != nil || part.Size() != 3 {
		t.Errorf("a part: %v", err)
	}
}

// TestPlanTakesNoMemoryOfTheModel plans models of gigabytes, and counts the allocations.
func TestPlanTakesNoMemoryOfTheModel(t *testing.T) {
	const width = 16384
	for _, set := range [][]string{
		{"shard.stage=0"},
		{"shard.stage=3", "optim.clip_norm=1"},
		{"run.device=cuda"},
		{"comm.wire_dtype=bf16", "comm.error_feedback=true"},
		{"ddp.hook=powersgd"},
		{"ddp.virtual_ranks=8"},
		{"data.accum_steps=2"},
	} {
		cfg := planConfig(t, "wide-mlp", append(set, fmt.Sprintf("model.hidden=%d,%d,%d", width, width, width))...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p, err := planOf(cfg, "mlp", 8)
		if err != nil {
			t.Fatalf("%v: %v", set, err)
		}
		runtime.ReadMemStats(&after)
		if want := int64(4 * (3*width*width + 3*width + 10*width + 10)); p.Bytes != want || p.Stages[0].Most().Params < want {
			t.Errorf("%v: parameters of %d B, want %d", set, p.Bytes, want)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > uint64(p.Bytes/30) {
			t.Errorf("%v: %d B allocated for a plan of %d B of parameters", set, got, p.Bytes)
		}
	}
}

func TestPlanOfATransformerTakesNoMemoryOfIt(t *testing.T) {
	cfg := planConfig(t, "lm", "model.width=8192", "model.inner=32768", "model.layers=2", "data.global_batch=8")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, err := planOf(cfg, "", 8)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; p.Bytes < 5<<30 || got > uint64(p.Bytes/30) {
		t.Errorf("%d B allocated for a plan of %d B of parameters", got, p.Bytes)
	}
}

// A residual network is planned for the images of data.path, or for CIFAR-10 without them.
func TestPlanOfAResidualNetwork(t *testing.T) {
	settings := "-n 2 --set model.name=resnet18 --set model.width=2 --set data.path="
	_, stdout, stderr := planText(t, settings+"/none")
	if !strings.Contains(stdout, "resnet18 of 32x32 images (size of CIFAR-10: no data in /none), width 2, 10 classes") {
		t.Errorf("%s%s", stdout, stderr)
	}
	dir := t.TempDir()
	for _, name := range []string{"train.bin", "test.bin"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 3074), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, stdout, stderr := planText(t, settings+dir); !strings.Contains(stdout, "resnet18 of 32x32 images, width 2, 100 classes") {
		t.Errorf("%s%s", stdout, stderr)
	}
	if code, _, stderr := planText(t, settings+dir+" --set data.image_size=64"); code != exitUsage || !strings.Contains(stderr, "data.image_size=64") {
		t.Errorf("code %d: %s", code, stderr)
	}
}
