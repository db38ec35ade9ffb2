package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/examples/ddp/mnist"
	"github.com/symgrad/symgrad/internal/long"
)

// watched is a run whose lines are read one by one.
type watched struct {
	*process
	lines *bufio.Scanner
	all   strings.Builder
}

func watch(t *testing.T, args ...string) *watched {
	t.Helper()
	w := &watched{process: prepared(t, args...)}
	w.Stdout = nil
	out, err := w.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.lines = bufio.NewScanner(out)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	return w
}

// until reads n lines that begin with prefix; false if the run ends before.
func (w *watched) until(prefix string, n int) bool {
	for n > 0 && w.lines.Scan() {
		w.all.WriteString(w.lines.Text() + "\n")
		if strings.HasPrefix(w.lines.Text(), prefix) {
			n--
		}
	}
	return n == 0
}

// end reads to the end of all processes of the run, and waits.
func (w *watched) end(t *testing.T) outcome {
	t.Helper()
	w.until("", 1<<30)
	err := w.Wait()
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) && !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
	return outcome{w.ProcessState.ExitCode(), w.all.String(), w.stderr.String(), w.dir}
}

// A signal, to the launcher or to one rank, ends the run after a step, which is saved. The same
// command resumes.
func TestSignalSavesAndTheSameCommandGoesOn(t *testing.T) {
	data := madeUp(t)
	how := []string{ranks(2), "run.max_steps=100000000", "log.every=20", "log.losses=false", "optim.lr=0.0001", "run.eval=false"}
	for _, test := range []struct {
		sig  syscall.Signal
		rank int // -1 for the launcher
	}{{syscall.SIGINT, -1}, {syscall.SIGTERM, 1}} {
		ck, dir := t.TempDir(), filepath.Join(t.TempDir(), "run")
		args := settings(dir, data, append(how, "checkpoint.every=0", "checkpoint.dir="+ck)...)
		w := watch(t, args...)
		if !w.until("step ", 2) {
			t.Fatalf("ended before the first step: %s", w.stderr.String())
		}
		pid := w.Process.Pid
		if test.rank >= 0 {
			pid = rankPIDs(t, pid, 2)[test.rank]
		}
		if err := syscall.Kill(pid, test.sig); err != nil {
			t.Fatal(err)
		}
		o := w.end(t)
		said := regexp.MustCompile(`stopped by signal: ` + test.sig.String() + ` after step (\d+), saved in (\S+): the same command resumes from there`).FindStringSubmatch(o.stderr)
		if o.code != 128+int(test.sig) || said == nil {
			t.Fatalf("%v to rank %d: code %d, %s", test.sig, test.rank, o.code, o.stderr)
		}
		if _, err := os.Stat(filepath.Join(dir, config.SummaryName)); err == nil {
			t.Errorf("%v: there is a summary of a run that has not ended", test.sig)
		}
		step, err := strconv.Atoi(said[1])
		if err != nil {
			t.Fatal(err)
		}
		end := fmt.Sprint("run.max_steps=", step+30)
		again := processes(t, data, append(how, end, "checkpoint.dir="+ck)...).summary(t)
		whole := processes(t, data, append(how, end)...).summary(t)
		if again.ResumedStep != step || again.ResumedFrom != said[2] || again.ParamsSHA256 != whole.ParamsSHA256 {
			t.Errorf("%v: goes on from %s, step %d, to %.8s; want %s, %d, %.8s", test.sig,
				again.ResumedFrom, again.ResumedStep, again.ParamsSHA256, said[2], step, whole.ParamsSHA256)
		}
	}
}

// All processes of a run are killed during saves, again and again. Each start resumes from a
// complete checkpoint, never an older one than before, and the result is that of an undisturbed
// run.
func TestKilledJobGoesOnFromAWholeCheckpoint(t *testing.T) {
	data, ck := madeUp(t), t.TempDir()
	steps, starts := long.Times(240, 800), long.Times(4, 10)
	if underRace {
		steps, starts = 120, 3
	}
	how := []string{ranks(2), fmt.Sprint("run.max_steps=", steps), "model.hidden=200,100", "run.eval=false", "log.every=1", "optim.name=adamw", "optim.weight_decay=0.01"}
	whole := processes(t, data, append(how, "log.losses=true")...).summary(t)
	moments := rand.New(rand.NewPCG(7, 7))
	resumed := regexp.MustCompile(`resumed    \S+: (\d+) steps? made`)
	last, kills := 0, 0
	for range starts {
		stage := fmt.Sprint("shard.stage=", moments.IntN(3))
		w := watch(t, settings(filepath.Join(t.TempDir(), "run"), data, append(how, "checkpoint.every=1", "checkpoint.keep=2", "checkpoint.dir="+ck, stage)...)...)
		if !w.until("step ", 1+moments.IntN(12)) {
			w.end(t)
			break // it has come to the end
		}
		pids := append([]int{w.Process.Pid}, rankPIDs(t, w.Process.Pid, 2)...)
		// A save in the middle: so many files of it are there, if that can be seen.
		for range 200 * moments.IntN(2) {
			if files, err := filepath.Glob(filepath.Join(ck, "*.tmp", "*")); err != nil || len(files) >= 1+kills%4 {
				break
			}
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Fatal(err)
			}
		}
		o := w.end(t)
		kills++
		from := 0
		if said := resumed.FindStringSubmatch(o.stdout); said != nil {
			var err error
			if from, err = strconv.Atoi(said[1]); err != nil {
				t.Fatal(err)
			}
		}
		if from < last {
			t.Errorf("start %d goes on from step %d, after one from %d:\n%s", kills, from, last, o.stdout)
		}
		last = from
	}
	if kills < starts/2 || last == 0 {
		t.Errorf("%d kills, the last start went on from step %d", kills, last)
	}
	end := processes(t, data, append(how, "checkpoint.every=50", "checkpoint.dir="+ck)...).summary(t)
	if end.ParamsSHA256 != whole.ParamsSHA256 || end.FinalLoss != whole.FinalLoss || end.ResumedStep < last || !slices.Equal(end.Losses, whole.Losses) {
		t.Errorf("after %d kills, from step %d: parameters %.8s, want %.8s", kills, end.ResumedStep, end.ParamsSHA256, whole.ParamsSHA256)
	}
}

// Gradients that travel as bf16 are half the bytes and teach the same.
func TestNarrowWireLearnsMNIST(t *testing.T) {
	if !long.Enabled() {
		t.Skip(long.Reason)
	}
	const data = "../../data/mnist"
	if err := mnist.Find(data); err != nil {
		if os.Getenv("SYMGRAD_REQUIRE_DATA") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	how := []string{
		ranks(2), "data.global_batch=128", "model.hidden=128", "run.max_steps=1200", "optim.lr=0.002",
		"optim.schedule.name=cosine", "log.losses=false", "cpu.blas=auto",
	}
	f32 := processes(t, data, how...).summary(t)
	bf16 := processes(t, data, append(how, "comm.wire_dtype=bf16")...).summary(t)
	if f32.WireBytes-bf16.WireBytes != int64(2*f32.Parameters) {
		t.Errorf("%d B a step, f32 %d, for %d parameters", bf16.WireBytes, f32.WireBytes, f32.Parameters)
	}
	t.Logf("accuracy %.4f, f32 %.4f", *bf16.TestAccuracy, *f32.TestAccuracy)
	if d := *bf16.TestAccuracy - *f32.TestAccuracy; d < -0.002 || d > 0.002 || *f32.TestAccuracy < 0.96 {
		t.Errorf("accuracy %.4f, f32 %.4f: want at most 0.002 between them", *bf16.TestAccuracy, *f32.TestAccuracy)
	}
}
