package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/examples/internal/ranktest"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/nn/transformer"
	"github.com/symgrad/symgrad/train"
)

func TestMain(m *testing.M) { ranktest.Main(m, main) }

// small is the flags of a run that takes a second: the shipped settings with a smaller network.
func small(dir string, more ...string) []string {
	return append([]string{
		"--config=../../configs/lm.yaml", "--set=data.path=stories.txt", "--set=run.output_dir=" + dir, "--set=model.width=16",
		"--set=model.heads=2", "--set=model.inner=24", "--set=model.layers=1", "--set=model.context=12", "--set=data.global_batch=8",
		"--set=data.limit=400", "--set=run.max_steps=40", "--set=optim.lr=0.02", "--set=optim.schedule.warmup_steps=5",
		"--set=log.losses=true", "--set=cpu.blas=gonum", "--set=run.device=cpu",
	}, more...)
}

// summary reads the summary of a run.
func summary(t *testing.T, dir string) train.Summary {
	t.Helper()
	return ranktest.Summary[train.Summary](t, dir)
}

// ranks is the flag for so many.
func ranks(n int) string { return ranktest.Ranks(n) }

// A run that shares out its weights stops, and goes on on three ranks that share out nothing, and
// on two again: its curve is that of a run that never stopped.
func TestRunGoesOnWithOtherSharding(t *testing.T) {
	run := func(more ...string) train.Summary {
		dir := t.TempDir()
		ranktest.Process(t, small(dir, append([]string{"--set=optim.schedule.total_steps=40", "--set=optim.ema_decay=0.9"}, more...)...)...).Want(t, 0)
		return summary(t, dir)
	}
	ck := "--set=checkpoint.dir=" + t.TempDir()
	whole := run(ranks(2))
	run(ranks(2), ck, "--set=run.max_steps=10", "--set=shard.stage=3")
	run(ranks(3), ck, "--set=run.max_steps=20")
	s := run(ranks(2), ck, "--set=shard.stage=1")
	if s.ResumedStep != 20 || len(s.Losses) != len(whole.Losses) {
		t.Fatalf("from step %d, %d losses, want 20 and %d", s.ResumedStep, len(s.Losses), len(whole.Losses))
	}
	for i, want := range whole.Losses {
		if d := math.Abs(s.Losses[i]-want) / want; d > 1e-4 || i < 10 && d > 0 {
			t.Fatalf("the loss of step %d is %v, want %v", i, s.Losses[i], want)
		}
	}
}

// One and two ranks learn the same, as processes and as goroutines, and learn it: the loss begins
// at ln 44 = 3.8.
func TestRanksLearnTheSame(t *testing.T) {
	var one train.Summary
	for _, run := range []struct {
		n    int
		more []string
	}{{1, nil}, {2, nil}, {2, []string{"--set=comm.backend=sim", "--set=data.accum_steps=2"}}} {
		dir := t.TempDir()
		o := ranktest.Process(t, small(dir, append(run.more, ranks(run.n), "--below=2.9", "--verify")...)...)
		o.Want(t, 0, "gpt2, layers 1, width 16, heads 2, inner 24, context 12, vocabulary 44, tied", "44 different; 400 training",
			"verify     gradient of 8 samples", "test answers")
		s := summary(t, dir)
		if run.n == 1 {
			one = s
			if *s.TestAccuracy < 0.2 || s.TestSamples < 10000 { // the most frequent character, the space, is 0.17 of all
				t.Errorf("accuracy %v of %d characters, want at least 0.2", *s.TestAccuracy, s.TestSamples)
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

// On GPUs, ranks learn like one rank on the host, including attention and embedding, with gradient
// clipping.
func TestGPUsLearnWhatTheHostDoes(t *testing.T) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			cudatest.Devices(t, n)
			host, gpu := t.TempDir(), t.TempDir()
			ranktest.Process(t, small(host, ranks(1))...).Want(t, 0)
			ranktest.Process(t, small(gpu, ranks(n), "--set=run.device=cuda", "--verify", "--below=2.9")...).Want(t, 0, "compiled, on ")
			got, want := summary(t, gpu), summary(t, host)
			for i := range want.Losses {
				if d := math.Abs(got.Losses[i]-want.Losses[i]) / want.Losses[i]; !(d < 1e-3) {
					t.Fatalf("the loss of step %d is %v, on the host %v", i, got.Losses[i], want.Losses[i])
				}
			}
			if d := math.Abs(*got.TestAccuracy - *want.TestAccuracy); !(d < 0.01) {
				t.Errorf("accuracy %v, on the host %v", *got.TestAccuracy, *want.TestAccuracy)
			}
		})
	}
}

func TestWhatMakesNoSenseIsRefused(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short.txt")
	if err := os.WriteFile(short, []byte("too short"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flag string
		code int
		want string
	}{
		{"--set=data.path=none.txt", 1, "none.txt: no such file or directory; set data.path to a file with text"},
		{"--set=data.path=.", train.ExitUsage, "data.path=. is a folder"},
		{"--set=data.path=" + short, train.ExitUsage, "short.txt has 9 characters: want at least 25"},
		{"--set=model.name=mlp", train.ExitUsage, "model.layers"},
		{"--set=model.vocabulary=100", train.ExitUsage, "model.pretrained, model.vocabulary, data.val_path, data.val_limit and data.encoding have no effect here"},
		{"--set=model.heads=3", train.ExitUsage, "3 heads do not divide the width, 16"},
	} {
		ranktest.Execute(execute, small(t.TempDir(), "--set=comm.backend=sim", c.flag)...).Want(t, c.code, c.want)
	}
}

// Errors that are known before ranks start are printed once, not by each rank.
func TestTextThatIsTooShortIsToldOnce(t *testing.T) {
	o := ranktest.Process(t, small(t.TempDir(), ranks(3), "--set=model.context=60000")...)
	o.Want(t, train.ExitUsage, "stories.txt has 100352 characters: want at least 120001, for samples of 60000 (model.context)")
	if strings.Count(o.Stderr, "\n") != 1 {
		t.Errorf("more than one line:\n%s", o.Stderr)
	}
}

// Every character but the first is the answer to exactly one place of a sample, and no test sample
// is one of the training.
func TestSamplesAreTheText(t *testing.T) {
	raw := []byte("abcabcabdabcabcabcabdabcabxx") // 28 characters: 9 samples of 3, one of them for the test
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	c.Data.Path, c.Model.Name, c.Model.Context, c.Model.Width, c.Model.Heads, c.Model.Inner = file, "gpt2", 3, 4, 2, 4
	p, err := openText(&c)
	if err != nil {
		t.Fatal(err)
	}
	if p.Len() != 8 || p.Tests().Len() != 1 {
		t.Fatalf("%d and %d samples, want 8 and 1", p.Len(), p.Tests().Len())
	}
	m, err := p.New(2, nil)
	if err != nil {
		t.Fatal(err)
	}
	const characters = "abcdx"
	read := func() (tokens, next string) {
		targets := m.Inputs[1].Value().Data().([]int)
		for i, token := range m.Inputs[0].Value().Data().([]int) {
			tokens += characters[token:][:1]
			if targets[i] == transformer.Ignored {
				next += "-"
			} else {
				next += characters[targets[i]:][:1]
			}
		}
		return tokens, next
	}
	if err := p.Fill(m, []int{2, 7}); err != nil {
		t.Fatal(err)
	}
	if tokens, next := read(); tokens != string(raw[6:9])+string(raw[21:24]) || next != string(raw[7:10])+string(raw[22:25]) {
		t.Errorf("samples 2 and 7 are %q with answers %q", tokens, next)
	}
	if err := p.Tests().Fill(m, 0, 1); err != nil {
		t.Fatal(err)
	}
	if tokens, next := read(); tokens[:3] != string(raw[24:27]) || next != string(raw[25:28])+"---" {
		t.Errorf("the test sample is %q with answers %q", tokens, next)
	}
	if err := p.Fill(m, []int{1, 2, 3}); err == nil {
		t.Error("three samples fit a graph of two")
	}
}
