package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/examples/internal/ranktest"
	"github.com/symgrad/symgrad/metrics"
)

// losses returns the loss of every step of a run, and fails the test if one is missing.
func losses(t *testing.T, dir string) []float64 {
	t.Helper()
	h, err := metrics.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	at, y, err := h.Points(metrics.Loss, metrics.Step)
	if err != nil {
		t.Fatal(err)
	}
	for i := range at {
		if at[i] != float64(i+1) {
			t.Fatalf("record %d is of step %v", i+1, at[i])
		}
	}
	return y
}

// Rank 0 is killed by SIGKILL after a checkpoint. Its metrics are whole lines of all flushed steps,
// and the resumed run continues them: together they have the curve of an unbroken run.
func TestKilledRunKeepsItsCurve(t *testing.T) {
	dir := t.TempDir()
	saves := filepath.Join(dir, "saves")
	how := []string{"--set=run.epochs=1000000", "--set=checkpoint.dir=" + saves, "--set=checkpoint.every=10", "--set=log.every=4", "--set=run.eval=false"}
	ranktest.KillAt(t, 2, 0, func(<-chan struct{}) {
		for begun := time.Now(); time.Since(begun) < time.Minute; runtime.Gosched() {
			if h, err := metrics.Read(dir); err == nil && len(h.Steps) > 30 {
				return
			}
		}
	}, small(dir, append(how, "--set=run.max_steps=0")...)...)
	before := losses(t, dir)
	if n := len(before); n <= 30 {
		t.Fatalf("%d records after the kill", n)
	}
	list, err := checkpoint.List(saves)
	if err != nil || len(list) == 0 {
		t.Fatalf("checkpoints %v, %v", list, err)
	}
	steps := fmt.Sprint("--set=run.max_steps=", len(before)+20)
	ranktest.Process(t, small(dir, append(how, steps, ranks(2))...)...).Want(t, 0, "resumed ")
	whole := t.TempDir()
	ranktest.Process(t, small(whole, "--set=run.epochs=1000000", "--set=run.eval=false", steps, ranks(2))...).Want(t, 0)
	after, want := losses(t, dir), losses(t, whole)
	if !slices.Equal(after, want) || !slices.Equal(before, want[:len(before)]) {
		t.Errorf("%d records before the kill and %d after resuming differ from those of an unbroken run, %d", len(before), len(after), len(want))
	}
}
