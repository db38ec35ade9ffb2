package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/metrics"
)

// history returns the metrics of a run.
func (r told) history(t *testing.T) *metrics.History {
	t.Helper()
	r.summary(t)
	h, err := metrics.Read(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// points returns a metric over the steps.
func points(t *testing.T, h *metrics.History, name string) (x, y []float64) {
	t.Helper()
	x, y, err := h.Points(name, metrics.Step)
	if err != nil {
		t.Fatal(err)
	}
	return x, y
}

// A run of two epochs, of ten steps each, records every step, and its evaluation after each epoch.
func TestRunRecordsItsMetrics(t *testing.T) {
	for _, how := range [][]string{{}, {"shard.stage=1"}, {"shard.stage=3"}, {"optim.ema_decay=0.5"}} {
		r := run(t, program, append(how, ranks(2), steps(0), "run.epochs=2", "log.every=4", "optim.clip_norm=1", "log.peak_tflops=0.001",
			"optim.schedule.name=step", "optim.schedule.step_size=10", "log.csv=true", "log.tensorboard=true")...)
		h, s := r.history(t), r.summary(t)
		at, losses := points(t, h, metrics.Loss)
		if !slices.Equal(losses, s.Losses) || at[0] != 1 || at[len(at)-1] != 20 || len(at) != 20 {
			t.Errorf("%v: losses %v at steps %v, want %v", how, losses, at, s.Losses)
		}
		for name, want := range map[string]string{
			metrics.LearningRate: "[0.003 0.00030000000000000003]", metrics.Samples: "[24 460]", metrics.Epoch: "[0.41739130434782606 2]",
		} {
			x, y := points(t, h, name)
			if got := fmt.Sprint([]float64{y[0], y[len(y)-1]}); got != want || x[len(x)-1] != 20 {
				t.Errorf("%v: %s is %s at the first and the last of steps %v, want %s", how, name, got, x, want)
			}
		}
		if at, y := points(t, h, metrics.GradNorm); len(at) != 20 || slices.Min(y) <= 0 {
			t.Errorf("%v: norms %v", how, y)
		}
		for _, name := range []string{metrics.SamplesPerSecond, metrics.MFUPercent, metrics.ExposedPercent, metrics.MemoryBytes} {
			if at, y := points(t, h, name); !slices.Equal(at, []float64{4, 8, 10, 12, 16, 20}) || slices.Min(y) < 0 || slices.Max(y) == 0 {
				t.Errorf("%v: %s is %v at steps %v", how, name, y, at)
			}
		}
		at, right := points(t, h, metrics.ValAccuracy)
		_, loss := points(t, h, metrics.ValLoss)
		if !slices.Equal(at, []float64{10, 20}) || right[1] != *s.TestAccuracy || loss[1] != *s.TestLoss || !(loss[1] < loss[0]) {
			t.Errorf("%v: accuracy %v and loss %v of the test set after steps %v, at the end %v and %v", how, right, loss, at, *s.TestAccuracy, *s.TestLoss)
		}
		if want := fmt.Sprintf("test 10/20  loss %.4f  accuracy %.4f\n", loss[0], right[0]); !strings.Contains(r.out, want) {
			t.Errorf("%v: %q is missing in\n%s", how, want, r.out)
		}
		table, err := os.ReadFile(filepath.Join(r.dir, metrics.CSVName))
		if err != nil || strings.Count(string(table), "\n") != 1+len(h.Steps) {
			t.Errorf("%v: %v, table\n%s", how, err, table)
		}
		if files, err := os.ReadDir(filepath.Join(r.dir, metrics.EventsFolder)); len(files) != 1 {
			t.Errorf("%v: event files %v, %v", how, files, err)
		}
	}
}

// Evaluations during the training change no bit of it, and the flop utilization is that of the
// model.
func TestEvaluationsDoNotChangeTheTraining(t *testing.T) {
	for _, how := range [][]string{{"shard.stage=0"}, {"shard.stage=2"}, {"shard.stage=3"}, {"optim.ema_decay=0.9"}, {"run.machine=tape"}, {"ddp.local_steps=3"}} {
		how = append(how, ranks(2), steps(23))
		plain := run(t, program, append(how, "run.eval=false")...).summary(t)
		r := run(t, program, append(how, "run.eval_every=5")...)
		sameBits(t, fmt.Sprint(how), r.summary(t), plain)
		want := []float64{5, 10, 15, 20, 23}
		if how[0] == "ddp.local_steps=3" {
			want = want[4:]
		}
		if at, _ := points(t, r.history(t), metrics.ValAccuracy); !slices.Equal(at, want) {
			t.Errorf("%v: evaluated after steps %v, want %v", how, at, want)
		}
	}
}

// A run that resumes has the records of the run before, up to the checkpoint, whether that one was
// killed later or ended, and those of no other training.
func TestResumedRunContinuesItsMetrics(t *testing.T) {
	ck, dir := t.TempDir(), t.TempDir()
	how := []string{ranks(2), "checkpoint.dir=" + ck, "run.output_dir=" + dir}
	in := func(more ...string) told {
		r := run(t, program, append(how, more...)...)
		r.dir = dir
		return r
	}
	losses := func(r told) []float64 {
		at, y := points(t, r.history(t), metrics.Loss)
		for i := range at {
			if at[i] != float64(i+1) {
				t.Fatalf("steps %v", at)
			}
		}
		return y
	}
	in(steps(8)).summary(t)
	whole := in(steps(16)) // which renames the results of the first
	want := run(t, program, ranks(2), steps(16)).summary(t).Losses
	if got := losses(whole); !slices.Equal(got, want) || !strings.Contains(whole.out, "metrics-1.jsonl") {
		t.Errorf("losses %v, want %v\n%s", got, want, whole.out)
	}
	// A killed run has no summary, and records of steps after its last checkpoint.
	path := filepath.Join(dir, metrics.FileName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, "{\"step\":18,\"seconds\":1,\"loss\":7}\n{\"step\":19,\"sec"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, config.SummaryName)); err != nil {
		t.Fatal(err)
	}
	if got := losses(in(steps(16))); !slices.Equal(got, want) {
		t.Errorf("after a killed run: losses %v, want %v", got, want)
	}
	// Another training in the folder has another loss at the step of the checkpoint.
	run(t, program, ranks(2), steps(16), "run.output_dir="+dir, "run.seed=5")
	if at, _ := points(t, in(steps(20)).history(t), metrics.Loss); !slices.Equal(at, []float64{17, 18, 19, 20}) {
		t.Errorf("after another training: steps %v", at)
	}
}

// The names that config rejects for a timeline are those of the metrics.
func TestConfigKnowsTheFilesOfMetrics(t *testing.T) {
	got := []string{config.MetricsName, config.TableName, config.EventsFolder}
	if want := []string{metrics.FileName, metrics.CSVName, metrics.EventsFolder}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// interrupting is a problem whose tests send a signal to this process in the first evaluation.
type interrupting struct {
	*patterns
	once *sync.Once
}

func (p interrupting) Tests() Tests { return interruptingTests{patternTests{p.patterns}, p.once} }

type interruptingTests struct {
	patternTests
	once *sync.Once
}

func (p interruptingTests) Fill(m *Model, first, n int) error {
	var err error
	p.once.Do(func() { err = syscall.Kill(syscall.Getpid(), syscall.SIGTERM) })
	return errors.Join(err, p.patternTests.Fill(m, first, n))
}

// A signal during an evaluation ends all ranks: after the next step, with a checkpoint, if the run
// saves.
func TestSignalDuringAnEvaluationEndsAllRanks(t *testing.T) {
	interrupted := Program{Name: "patterns", Open: func(c *config.Config) (Problem, error) {
		p, err := openPatterns(c)
		return interrupting{p.(*patterns), &sync.Once{}}, err
	}}
	how := []string{ranks(3), steps(100000), "run.epochs=0", "run.eval_every=4", "log.every=1000000"}
	if r := run(t, interrupted, how...); r.code != 143 || strings.Contains(r.err, "saved in") {
		t.Errorf("without checkpoints: code %d, %s", r.code, r.err)
	}
	ck := t.TempDir()
	r := run(t, interrupted, append(how, "checkpoint.dir="+ck)...)
	if r.code != 143 || !strings.Contains(r.err, "saved in "+ck) {
		t.Fatalf("code %d, %s", r.code, r.err)
	}
	h, err := metrics.Read(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	if at, _ := points(t, h, metrics.Loss); len(at) < 5 || !strings.Contains(r.err, fmt.Sprintf("after step %d,", len(at))) {
		t.Errorf("records of %d steps, %s", len(at), r.err)
	}
}
