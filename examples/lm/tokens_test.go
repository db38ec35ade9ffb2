package main

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/data/bpe"
	"github.com/symgrad/symgrad/examples/internal/ranktest"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/train"
)

// shardsOf writes tokens to files of 30000.
func shardsOf(t *testing.T, tokens []int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	w, err := data.NewTokenWriter(data.TokenWriterConfig{Dir: dir, Name: "t", ShardTokens: 30_000})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(tokens), w.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// characterTokens are the characters of the stories, numbered as a text is.
func characterTokens(t *testing.T) []int {
	t.Helper()
	raw, err := os.ReadFile("stories.txt")
	if err != nil {
		t.Fatal(err)
	}
	different := slices.Compact(slices.Sorted(slices.Values(raw)))
	tokens := make([]int, len(raw))
	for i, b := range raw {
		tokens[i], _ = slices.BinarySearch(different, b)
	}
	return tokens
}

// The same text as characters and as files of tokens trains to the same bits and answers, with any
// number of goroutines that read it, and after a stop.
func TestTokensTrainAsTheirTextDoes(t *testing.T) {
	dir := shardsOf(t, characterTokens(t))
	run := func(more ...string) train.Summary {
		out := t.TempDir()
		ranktest.Process(t, small(out, append(more, ranks(2), "--set=optim.schedule.total_steps=30")...)...).Want(t, 0)
		return summary(t, out)
	}
	tokens := []string{"--set=data.path=" + dir, "--set=data.vocabulary=44"}
	want := run()
	for _, more := range [][]string{nil, {"--set=data.workers=3", "--set=data.ahead=1", "--verify"}} {
		got := run(append(tokens, more...)...)
		if !slices.Equal(got.Losses, want.Losses) || *got.TestAccuracy != *want.TestAccuracy || got.TestSamples != want.TestSamples {
			t.Errorf("%v: losses %v and accuracy %v, want %v and %v", more, got.Losses, *got.TestAccuracy, want.Losses, *want.TestAccuracy)
		}
	}
	tokens = append(tokens, "--set=checkpoint.dir="+t.TempDir())
	run(append(tokens, "--set=run.max_steps=13")...)
	if got := run(tokens...); got.ResumedStep != 13 || got.ParamsSHA256 != want.ParamsSHA256 {
		t.Errorf("resumed at step %d: losses %v, want %v", got.ResumedStep, got.Losses, want.Losses)
	}
}

// On GPUs, tokens train as their text does.
func TestTokensTrainOnGPUs(t *testing.T) {
	cudatest.Devices(t, 2)
	var all [2]train.Summary
	for i, more := range [][]string{nil, {"--set=data.path=" + shardsOf(t, characterTokens(t)), "--set=data.vocabulary=44"}} {
		out := t.TempDir()
		ranktest.Process(t, small(out, append(more, ranks(2), "--set=run.device=cuda")...)...).Want(t, 0, "compiled, on ")
		all[i] = summary(t, out)
	}
	for i, want := range all[0].Losses {
		if d := math.Abs(all[1].Losses[i]-want) / want; !(d < 1e-3) {
			t.Fatalf("the loss of step %d is %v, of the text %v", i, all[1].Losses[i], want)
		}
	}
	if d := math.Abs(*all[0].TestAccuracy - *all[1].TestAccuracy); !(d < 0.01) {
		t.Errorf("accuracy %v, of the text %v", *all[1].TestAccuracy, *all[0].TestAccuracy)
	}
}

// Tokens of a real encoding train: the loss of the first step is about ln 50257 = 10.8.
func TestEncodedTextTrains(t *testing.T) {
	raw, err := os.ReadFile("stories.txt")
	if err != nil {
		t.Fatal(err)
	}
	enc, err := bpe.Open("r50k_base")
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := enc.Encode(string(raw[:8000]))
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	o := ranktest.Execute(execute, small(out, "--set=comm.backend=sim", "--set=data.path="+shardsOf(t, tokens), "--set=data.vocabulary=50257", "--set=data.global_batch=2", "--set=run.max_steps=4", "--set=run.eval=false")...)
	o.Want(t, 0, "vocabulary 50257")
	if s := summary(t, out); s.Losses[0] < 10 || s.Losses[0] > 11.5 || s.Losses[3] >= s.Losses[0] {
		t.Errorf("losses %v", s.Losses)
	}
}

func TestTokensThatDoNotFitAreRefused(t *testing.T) {
	dir := shardsOf(t, characterTokens(t))
	cut := filepath.Join(t.TempDir(), "cut.bin")
	whole, err := os.ReadFile(filepath.Join(dir, "t_000000.bin"))
	if err = errors.Join(err, os.WriteFile(cut, whole[:5000], 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, vocabulary string
		code             int
		want             string
	}{
		{cut, "44", 1, "cut.bin: invalid argument: 30000 tokens by byte 8 of the header, which need 61024 bytes; the file has 5000"},
		{filepath.Join(dir, "none"), "44", 1, "none: no such file or directory; set data.path to files of tokens"},
		{dir, "20", 1, "the vocabulary has 20 tokens: set it to that of the encoding"},
		{dir, "0", train.ExitUsage, "for a folder of tokens set data.vocabulary"},
		{shardsOf(t, make([]int, 24)), "44", train.ExitUsage, "has 24 tokens: want at least 25"},
	} {
		o := ranktest.Execute(execute, small(t.TempDir(), "--set=comm.backend=sim", ranks(2), "--set=data.path="+c.path, "--set=data.vocabulary="+c.vocabulary)...)
		o.Want(t, c.code, c.want)
		if c.vocabulary == "20" && (!strings.Contains(o.Stderr, "t_00000") || !strings.Contains(o.Stderr, "at byte ")) {
			t.Errorf("no file and place: %s", o.Stderr)
		}
	}
}
