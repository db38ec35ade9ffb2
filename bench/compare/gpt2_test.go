package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// gpt2Losses are 60 losses of a run, as JSON. One of them is multiplied by factor.
func gpt2Losses(factor float64) string {
	losses := make([]float64, 60)
	for i := range losses {
		losses[i] = 10 - float64(i)/10
	}
	losses[30] *= factor
	text, err := json.Marshal(losses)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func newGPT2Fake(t *testing.T) *fake {
	f := newFake(t)
	f.write("session.json", `{"date": "2026-01-02T03:04:05Z", "model": {"layers": 2, "width": 8, "heads": 2, "context": 16}, "steps": 60, "host": {}}`)
	return f
}

func gpt2Ours(f *fake, ranks int, factor float64, memory int64) {
	f.write(fmt.Sprintf("symgrad.%d.summary.json", ranks), fmt.Sprintf(`{"world_size": %d, "global_batch": %d, "precision": "bf16", "parameters": 1000,
		"memory": {"params": %d, "state": 100}, "losses": %s}`, ranks, 4*ranks, memory-100, gpt2Losses(factor)))
	f.write(fmt.Sprintf("symgrad.%d.times.json", ranks), `{"median_us": 100, "libraries": {"go": "go1.26"}}`)
}

func gpt2Torch(f *fake, engine string, ranks, parameters int, us float64) {
	f.write(fmt.Sprintf("%s.%d.json", engine, ranks), fmt.Sprintf(`{"engine": %q, "ranks": %d, "global_batch": %d, "precision": "bf16", "parameters": %d,
		"median_us": %v, "memory": 1000, "losses": %s, "libraries": {"torch": "2.11"}}`, engine, ranks, 4*ranks, parameters, us, gpt2Losses(1)))
}

func TestGPT2IsComparedWithTorchStepByStep(t *testing.T) {
	f := newGPT2Fake(t)
	gpt2Ours(f, 1, 1.004, 900)
	gpt2Torch(f, "torch", 1, 1000, 300)
	gpt2Torch(f, "torch-compile-default", 1, 1000, 200)
	gpt2Ours(f, 2, 1.02, 1100)
	gpt2Torch(f, "torch", 2, 1000, 300)
	r, err := readGPT2(f.folder)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	r.print(&b)
	for _, want := range []string{
		"| 1 | symgrad | 0.1 | 640000 |", "| 10.0000 | 4.1000 | 0.40 % |", "| 1 | torch-compile-default | 0.2 | 320000 |",
		"HOLDS  1 ranks: largest relative difference of a loss from torch's: 0.004, limit 0.01",
		"HOLDS  1 ranks: memory over torch's: 0.9, limit 1",
		"FAILS  2 ranks: largest relative difference of a loss from torch's: 0.02, limit 0.01",
		"FAILS  2 ranks: memory over torch's: 1.1, limit 1",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	// 6 per parameter, and 12 per layer, feature and position: (6000 + 3072) * 64 tokens in 100 us.
	if x := r.rows[0]; x.TFLOPS != 0.005806 || r.holds() {
		t.Errorf("%v TFLOP/s, want 0.005806; holds %v, want false", x.TFLOPS, r.holds())
	}
	out := filepath.Join(f.folder, "result.json")
	if err := save(out, r.fields()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	table, err := markdown(text)
	if err != nil || !strings.Contains(table, "| 2 | symgrad | 0.1 |") || !strings.Contains(string(text), `"torch":"2.11"`) {
		t.Errorf("the table of the file, error %v:\n%s", err, table)
	}
}

func TestGPT2RunsThatDifferAreNotCompared(t *testing.T) {
	f := newGPT2Fake(t)
	gpt2Ours(f, 1, 1, 900)
	gpt2Torch(f, "torch", 1, 1001, 300)
	f.write("torch-compile-default.1.json", `{"engine": "torch-compile-default", "ranks": 1, "global_batch": 4, "precision": "bf16", "parameters": 1000,
		"median_us": 5, "losses": [1, 2]}`)
	r, err := readGPT2(f.folder)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	r.print(&b)
	for _, want := range []string{
		"WRONG: torch on 1 ranks has 1001 parameters, a batch of 4 and bf16, symgrad 1000, 4 and bf16: they must be equal",
		"WRONG: torch-compile-default on 1 ranks: 2 losses, want 60",
		"WRONG: no result of torch on 1 ranks",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if r.holds() {
		t.Error("wrong results hold")
	}
	if _, err := readGPT2(newGPT2Fake(t).folder); err == nil || !strings.Contains(err.Error(), "has no result of symgrad") {
		t.Errorf("an empty folder: %v", err)
	}
}
