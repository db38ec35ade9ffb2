package train

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/train/internal/output"
)

// names returns the files of a folder, without the lock.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if e.Name() != ".lock" {
			all = append(all, e.Name())
		}
	}
	return strings.Join(all, " ")
}

// Nothing of an earlier run is lost, and the newest results have the usual names.
func TestLaterRunKeepsTheResultsOfTheEarlierOne(t *testing.T) {
	dir := t.TempDir()
	how := []string{ranks(2), steps(2), "run.output_dir=" + dir, "log.trace=t.json", "log.trace_steps=0,1"}
	in := func(seed string) (Summary, told) {
		r := run(t, program, append(how, "run.seed="+seed)...)
		r.dir = dir
		return r.summary(t), r
	}
	first, r := in("1")
	if got, want := names(t, dir), "config.yaml metrics.jsonl summary.json t.json"; got != want || strings.Contains(r.out, "kept") {
		t.Errorf("the first run leaves %s, want %s:\n%s", got, want, r.out)
	}
	in("2")
	third, r := in("3")
	if got, want := names(t, dir), "config-1.yaml config-2.yaml config.yaml metrics-1.jsonl metrics-2.jsonl metrics.jsonl summary-1.json summary-2.json summary.json t-1.json t-2.json t.json"; got != want {
		t.Errorf("three runs leave %s, want %s", got, want)
	}
	if want := "kept       an earlier run's results, as summary-2.json, config-2.yaml, metrics-2.jsonl, t-2.json\n"; !strings.Contains(r.out, want) {
		t.Errorf("%q is missing in\n%s", want, r.out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "summary-1.json"))
	var kept Summary
	if err := errors.Join(err, json.Unmarshal(text, &kept)); err != nil || kept.ParamsSHA256 != first.ParamsSHA256 || third.ParamsSHA256 == first.ParamsSHA256 {
		t.Errorf("the kept summary is of %.8s, the first of %.8s, the third of %.8s, %v", kept.ParamsSHA256, first.ParamsSHA256, third.ParamsSHA256, err)
	}
}

// Two runs at a time are refused before anything is written: the second names the first.
func TestTwoRunsAtATimeAreRefused(t *testing.T) {
	c := config.Default()
	c.Run.OutputDir = t.TempDir()
	first, err := output.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, program, ranks(2), steps(2), "run.output_dir="+c.Run.OutputDir)
	if r.code != ExitUsage || !strings.Contains(r.err, "another run (process ") || !strings.Contains(r.err, "choose another folder") {
		t.Errorf("code %d, %s", r.code, r.err)
	}
	if got := names(t, c.Run.OutputDir); got != "" {
		t.Errorf("the second run leaves %s", got)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if r := run(t, program, ranks(2), steps(2), "run.output_dir="+c.Run.OutputDir); r.code != 0 {
		t.Errorf("after the first: code %d, %s", r.code, r.err)
	}
}

// The run ends at the gradient, before a weight is changed, and names the settings that make it
// overflow.
func TestNonFiniteGradientEndsTheRunAtItsStep(t *testing.T) {
	how := []string{ranks(2), steps(4), "run.eval=false"}
	for _, test := range []struct {
		settings []string
		want     []string
		not      string
	}{
		{[]string{"comm.wire_dtype=f16", "optim.loss_scale=1e9"}, []string{"lower optim.loss_scale=1e9", "set comm.wire_dtype to bf16 or f32"}, "optim.lr"},
		{[]string{"comm.wire_dtype=f16", "optim.loss_scale=1e9", "optim.clip_norm=1"}, []string{"optim.loss_scale", "comm.wire_dtype"}, "optim.lr"},
		{[]string{"comm.wire_dtype=f16", "ddp.average=sum", "optim.loss_scale=1e9", "shard.stage=1"}, []string{"ddp.average to mean"}, "optim.lr"},
		{[]string{"optim.loss_scale=3e38", "ddp.average=sum"}, []string{"lower optim.loss_scale=3e38"}, "wire_dtype"},
	} {
		r := run(t, program, append(how, test.settings...)...)
		if r.code != 1 || !strings.Contains(r.err, "step 0: ") || !strings.Contains(r.err, "not finite") {
			t.Errorf("%v: code %d, %s", test.settings, r.code, r.err)
		}
		for _, want := range test.want {
			if !strings.Contains(r.err, want) {
				t.Errorf("%v: %q is missing in %s", test.settings, want, r.err)
			}
		}
		if strings.Contains(r.err, test.not) {
			t.Errorf("%v: %q does not help: %s", test.settings, test.not, r.err)
		}
	}
}

func TestAdviceLooksAtTheSettings(t *testing.T) {
	c := config.Default()
	if got := advice(&c, false); got != "lower optim.lr, or set optim.clip_norm" {
		t.Errorf("a loss: %s", got)
	}
	if got := advice(&c, true); !strings.Contains(got, "optim.lr") || strings.Contains(got, "clip_norm") {
		t.Errorf("a gradient: %s", got)
	}
	c.Optim.LossScale = "dynamic" // whose steps are left out
	if got := advice(&c, false); strings.Contains(got, "loss_scale") {
		t.Errorf("a scale that adapts: %s", got)
	}
}

// wire_bytes counts the bytes that leave a rank: none with one rank, and those of weights if
// weights are exchanged.
func TestWireBytesAreThoseThatAreSent(t *testing.T) {
	sent := func(more ...string) int64 {
		return run(t, program, append(more, steps(8), "run.eval=false")...).summary(t).WireBytes
	}
	for _, alone := range [][]string{{ranks(1)}, {ranks(1), "ddp.virtual_ranks=4"}, {ranks(1), "run.machine=tape"}} {
		if n := sent(alone...); n != 0 {
			t.Errorf("%v: one rank sends %d B", alone, n)
		}
	}
	two := run(t, program, ranks(2), steps(2)).summary(t)
	parameters := int64(4 * two.Parameters)
	if n := two.WireBytes; n < parameters || n > parameters+64 {
		t.Errorf("two ranks send %d B a step, want %d of gradients and a few more", n, parameters)
	}
	if n := sent(ranks(2), "ddp.local_steps=4"); n < parameters/4 || n > parameters/4+64 {
		t.Errorf("with weights averaged every 4 steps %d B, want a quarter of %d", n, parameters)
	}
	if n := sent(ranks(4)); n < parameters*3/2 || n > parameters*3/2+128 { // 2 (n-1)/n
		t.Errorf("four ranks send %d B, want 3/2 of %d", n, parameters)
	}
	for _, machine := range []string{"compiled", "tape"} {
		if n := sent(ranks(2), "run.machine="+machine); n != two.WireBytes {
			t.Errorf("%s: %d B, want %d", machine, n, two.WireBytes)
		}
	}
}
