package train

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/symgrad/symgrad/config"
)

// summarized runs the program and reads its summary.
func summarized(t *testing.T, more ...string) Summary {
	t.Helper()
	return summary(t, program, t.TempDir(), more...)
}

// summary runs a program and reads its summary.
func summary(t *testing.T, p Program, dir string, more ...string) Summary {
	t.Helper()
	var out, errs bytes.Buffer
	if code := p.Execute(smallRun(dir, more...), &out, &errs); code != 0 {
		t.Fatalf("%v: code %d: %s", more, code, errs.String())
	}
	text, err := os.ReadFile(filepath.Join(dir, config.SummaryName))
	if err != nil {
		t.Fatal(err)
	}
	var s Summary
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Both machines learn the same, with one rank and several, with and without parts of batches, and
// give equal answers at the end.
func TestMachinesLearnTheSame(t *testing.T) {
	for _, how := range [][]string{
		{"model.name=mlp", "launch.nproc_per_node=1"},
		{"model.name=mlp", "launch.nproc_per_node=2", "optim.clip_norm=1"},
		{"model.name=mlp", "launch.nproc_per_node=2", "data.accum_steps=3", "data.global_batch=25"},
		{"model.name=mlp", "launch.nproc_per_node=2", "ddp.overlap=false", "ddp.bucket_mb=0.001"},
		{"model.name=cnn", "launch.nproc_per_node=1", "model.channels=3,4"},
		{"model.name=cnn", "launch.nproc_per_node=2", "model.channels=3,4"},
	} {
		how = append(how, "run.max_steps=20", "--verify")
		c, w := summarized(t, append(how, "run.machine=compiled")...), summarized(t, append(how, "run.machine=tape")...)
		if c.Machine != "compiled" || w.Machine != "tape" || c.Device != "cpu" || c.ConfigHash == w.ConfigHash {
			t.Errorf("%v: machines %s and %s on %s", how, c.Machine, w.Machine, c.Device)
		}
		if len(c.Losses) != 20 || len(w.Losses) != 20 {
			t.Fatalf("%v: %d and %d losses", how, len(c.Losses), len(w.Losses))
		}
		for i := range w.Losses {
			if d := math.Abs(c.Losses[i]-w.Losses[i]) / w.Losses[i]; !(d < 1e-5) {
				t.Errorf("%v: the loss of step %d is %v, by the tape machine %v", how, i, c.Losses[i], w.Losses[i])
				break
			}
		}
		if d := c.TestCorrect - w.TestCorrect; d < -1 || d > 1 || c.TestSamples != testSamples {
			t.Errorf("%v: %d of %d right, by the tape machine %d", how, c.TestCorrect, c.TestSamples, w.TestCorrect)
		}
	}
}

// The run of verify changes no state.
func TestVerifyChangesNothing(t *testing.T) {
	for _, how := range [][]string{
		{"run.machine=compiled"},
		{"run.machine=tape"},
		{"comm.wire_dtype=bf16", "comm.error_feedback=true"}, // which keeps something of every gradient
		{"comm.wire_dtype=bf16", "comm.error_feedback=true", "shard.stage=2"},
	} {
		how = append(how, "launch.nproc_per_node=2")
		plain, verified := summarized(t, how...), summarized(t, append(how, "--verify")...)
		if plain.ParamsSHA256 != verified.ParamsSHA256 || verified.VerifyMaxRelDiff == nil {
			t.Errorf("%v: parameters %.8s, with --verify %.8s", how, plain.ParamsSHA256, verified.ParamsSHA256)
		}
	}
}
