package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/long"
	"github.com/symgrad/symgrad/internal/net/hosttest"
	"github.com/symgrad/symgrad/train"
)

// restarted is a training on two hosts with two ranks each, whose launchers start it again.
type restarted struct {
	t      *testing.T
	h      *hosttest.Hosts
	folder string
	dir    string // run.output_dir
	words  []string
	nodes  [2]*exec.Cmd
	texts  [2]bytes.Buffer
	reads  sync.WaitGroup

	steps   chan struct{} // a line for a step; closed at the end of the launcher of host 0
	resumed chan struct{} // a start from a checkpoint; closed too
}

// begin starts the launchers. It also returns the summary of an undisturbed run on one host.
func begin(t *testing.T, steps int) (*restarted, train.Summary) {
	t.Helper()
	data, folder := madeUp(t), t.TempDir()
	how := []string{
		fmt.Sprint("run.max_steps=", steps), "run.eval=false", "log.every=1", "optim.name=adamw", "cpu.threads=1",
	}
	whole := processes(t, data, append(how, ranks(4))...).summary(t)
	r := &restarted{t: t, folder: folder, dir: filepath.Join(folder, "run"), steps: make(chan struct{}, 1<<16), resumed: make(chan struct{}, 100)}
	r.h = hosttest.New(t, 2, hosttest.Options{Share: []string{data, folder}})
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	how = append(how, "checkpoint.every=3", "checkpoint.keep=2", "checkpoint.dir="+filepath.Join(folder, "ck"), "run.resume=auto")
	r.words = append([]string{programVar + "=1", program}, settings(r.dir, data, how...)...)
	for host := range r.nodes {
		r.launch(host)
	}
	return r, whole
}

// launch starts the launcher of a host.
func (r *restarted) launch(host int) {
	r.t.Helper()
	cmd := symgradRun(r.t, r.h, r.folder, []int{2, 2}, host, 60, r.words)
	cmd.Stderr = &r.texts[host]
	if host == 0 {
		out, err := cmd.StdoutPipe()
		if err != nil {
			r.t.Fatal(err)
		}
		r.reads.Go(func() { r.count(out) })
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.nodes[host] = cmd
}

// count passes on that rank 0 has made a step, or has resumed.
func (r *restarted) count(out io.Reader) {
	defer close(r.steps)
	defer close(r.resumed)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "step "):
			r.steps <- struct{}{}
		case strings.HasPrefix(line, "resumed "):
			r.resumed <- struct{}{}
		}
	}
}

// progress waits for n more steps.
func (r *restarted) progress(n int) {
	r.t.Helper()
	for range n {
		if _, ok := <-r.steps; !ok {
			r.t.Fatalf("the job has ended\n%s\n%s", &r.texts[0], &r.texts[1])
		}
	}
}

// again waits until the job has begun again.
func (r *restarted) again() {
	r.t.Helper()
	if _, ok := <-r.resumed; !ok {
		r.t.Fatalf("the job has ended\n%s\n%s", &r.texts[0], &r.texts[1])
	}
	for range len(r.steps) { // from before
		<-r.steps
	}
}

// kill kills a rank. Processes of all hosts are in the /proc of the test.
func (r *restarted) kill(rank int) {
	r.t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, name := range names {
		environ, _ := os.ReadFile(name) // the process may have ended
		words, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		variables := strings.Split(string(environ), "\x00")
		if !slices.Contains(variables, fmt.Sprint("SYMGRAD_RANK=", rank)) || !bytes.Contains(words, []byte("run.output_dir="+r.dir+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			r.t.Error(err)
		}
		return
	}
	r.t.Errorf("rank %d has no process", rank)
}

// end waits for the launchers and compares the run with an undisturbed one.
func (r *restarted) end(restarts int, whole train.Summary) {
	r.t.Helper()
	r.reads.Wait()
	for host, cmd := range r.nodes {
		if err := cmd.Wait(); err != nil {
			r.t.Errorf("host %d: %v\n%s", host, err, &r.texts[host])
		}
		if n := strings.Count(r.texts[host].String(), "symgrad: restart "); host == 0 && n != restarts {
			r.t.Errorf("%d restarts, want %d\n%s", n, restarts, &r.texts[host])
		}
	}
	got := outcome{dir: r.dir}.summary(r.t)
	if got.ParamsSHA256 != whole.ParamsSHA256 || !slices.Equal(got.Losses, whole.Losses) || got.ResumedStep == 0 {
		r.t.Errorf("from step %d: parameters %.8s, want %.8s", got.ResumedStep, got.ParamsSHA256, whole.ParamsSHA256)
	}
}

// A rank is killed again and again, on both hosts. The job ends as an undisturbed one.
func TestHostsRestartAfterKilledRanks(t *testing.T) {
	kills := long.Times(2, 20)
	r, whole := begin(t, 10*kills+10)
	for i := range kills {
		r.progress(6)
		r.kill(i % 4)
		r.again()
	}
	r.end(kills, whole)
	hosttest.Record(t, fmt.Sprintf("training on 2 hosts/%d ranks killed", kills), 0, nil)
}

// returnTime is the longest time from the return of a killed host to the next step of the training.
const returnTime = 10 * time.Second

// A host is killed and comes back. The training goes on soon after that.
func TestHostsRestartWithAKilledHost(t *testing.T) {
	r, whole := begin(t, 30)
	r.progress(5)
	r.h.Kill(1)
	_ = r.nodes[1].Wait() // killed
	r.h.Restart(1)
	back := time.Now()
	r.launch(1)
	r.again()
	r.progress(1)
	took := time.Since(back)
	if t.Logf("the training went on %v after the return of the host", took); took > returnTime {
		t.Errorf("want at most %v", returnTime)
	}
	r.end(1, whole)
	hosttest.Record(t, "training on 2 hosts/host killed and back", took, nil)
}
