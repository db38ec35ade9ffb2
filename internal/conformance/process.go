package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// Opener opens the world of this process's rank. The environment has the rank, as read by package
// dist/launch. opt has the test's StepTimeout; the opener ignores opt.Die.
type Opener func(ctx context.Context, opt LaunchOptions) (*dist.World, error)

// Processes returns a Launch whose ranks are processes, as in a program. Engines that allow one
// device per process need it, and such ranks can be killed.
//
// Each rank is the test binary again, started for the same test with the variables of dist/launch.
// It reaches the same call of the Launch, opens its world there, runs body and closes the world; it
// does not run the rest of the test. body may use values that the test made before, which every
// process makes for itself, but cannot return any. For a Die the rank sends itself SIGKILL. The
// output of a failing rank is in the test's error.
//
// One value serves one test with its subtests. A test may launch several times if the code in
// between does not depend on the bodies.
func Processes(open Opener) Launch {
	p := &processes{open: open, calls: map[string]int{}}
	return p.launch
}

type processes struct {
	open Opener
	by   *Launcher // nil for processes of the test

	mu    sync.Mutex
	calls map[string]int // number of launches, by the test's name
}

// role identifies a process that was started as a rank: its last arguments, after the flags.
type role struct {
	rank int    // -1 if the launcher numbers the ranks
	call int    // number of the Launch in its test
	done string // file to create when body and Close have succeeded; with rank -1 its start
}

const roleWord = "conformance-rank"

func (r role) args() []string {
	return []string{roleWord, strconv.Itoa(r.rank), strconv.Itoa(r.call), r.done}
}

// roleOf returns the role in the arguments, if there is one.
func roleOf(args []string) (role, bool) {
	if len(args) != 4 || args[0] != roleWord {
		return role{}, false
	}
	rank, err1 := strconv.Atoi(args[1])
	call, err2 := strconv.Atoi(args[2])
	return role{rank, call, args[3]}, err1 == nil && err2 == nil
}

func (p *processes) launch(t *testing.T, n int, opt LaunchOptions, body func(w *dist.World) error) {
	t.Helper()
	call := p.call(t.Name())
	if own, ok := roleOf(flag.Args()); ok {
		if own.call == call {
			p.rank(t, own, opt, body)
		}
		return
	}
	if p.by != nil {
		for r, err := range p.by.spawn(t, n, call, opt.Die) {
			t.Errorf("rank %d of %d: %v", r, n, err)
		}
		return
	}
	for r, err := range spawnRanks(t, n, call, opt.Die) {
		if err != nil {
			t.Errorf("rank %d of %d: %v", r, n, err)
		}
	}
}

// call returns the number of this Launch in its test.
func (p *processes) call(test string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[test]++
	return p.calls[test]
}

// rank runs a rank in its process, which ends the test there.
func (p *processes) rank(t *testing.T, own role, opt LaunchOptions, body func(w *dist.World) error) {
	t.Helper()
	w, err := p.open(t.Context(), opt)
	if err != nil {
		t.Fatalf("open the world: %v", err)
	}
	if own.rank < 0 {
		own.rank = w.Rank()
		own.done += strconv.Itoa(own.rank)
	}
	if d := opt.Die; d != nil && d.Rank == own.rank {
		if w, err = dyingWorld(w, d.Op, killSelf); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(body(w), w.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own.done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Skip("this process was one rank of the test, and has finished")
}

// killSelf ends this process by SIGKILL.
func killSelf() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill() // if it fails, the test reports that the rank lives
	}
	select {}
}

// Time limits of the processes of a launch, in case they wait for each other forever. The test has
// time left to report it.
const (
	processTime = 3 * time.Minute
	testMargin  = 5 * time.Second
)

// launchTime returns the time limit of a launch in t.
func launchTime(t *testing.T) time.Duration {
	if end, ok := t.Deadline(); ok {
		return max(min(processTime, time.Until(end)-2*testMargin), testMargin)
	}
	return processTime
}

// spawnRanks runs the ranks of a launch and waits for them. Returns: the error of each.
func spawnRanks(t *testing.T, n, call int, die *Die) []error {
	t.Helper()
	limit := launchTime(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit+testMargin)
	defer cancel()
	folder := t.TempDir() // only for this call
	job := fnv.New64a()
	_, _ = job.Write([]byte(folder))
	world := []string{ // see package dist/launch; the last two override those of this process
		fmt.Sprintf("SYMGRAD_WORLD_SIZE=%d", n), fmt.Sprintf("SYMGRAD_LOCAL_WORLD_SIZE=%d", n),
		fmt.Sprintf("SYMGRAD_JOB=conformance-%d-%x", os.Getpid(), job.Sum64()), "SYMGRAD_MASTER=", "SYMGRAD_STORE_FD=",
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ps := make([]*process, n)
	for r := range ps {
		own := role{r, call, filepath.Join(folder, fmt.Sprintf("done-%d", r))}
		ps[r] = newProcess(ctx, limit, program, t.Name(), own)
		ps[r].cmd.Env = append(ps[r].cmd.Env, world...)
	}
	var ranks sync.WaitGroup
	errs := make([]error, n)
	failed := make(chan struct{}, n)
	for r, p := range ps {
		ranks.Go(func() {
			if errs[r] = p.run(die != nil && die.Rank == r); errs[r] != nil {
				failed <- struct{}{}
			}
		})
	}
	ended := make(chan struct{})
	go func() { ranks.Wait(); close(ended) }()
	select {
	case <-ended:
		return errs
	case <-failed:
	}
	select { // the others notice by themselves, or are killed
	case <-ended:
	case <-time.After(guard):
		cancel()
	}
	<-ended
	return errs
}

// process is a rank, in the process of the test.
type process struct {
	cmd    *exec.Cmd
	done   string
	output tail
}

// rankArgs returns the arguments of a rank's process.
func rankArgs(limit time.Duration, test string, own role) []string {
	return append([]string{
		"-test.run=" + pattern(test), "-test.count=1", "-test.v=true", "-test.timeout=" + limit.String(),
	}, own.args()...)
}

// newProcess returns a rank that is not started.
func newProcess(ctx context.Context, limit time.Duration, program, test string, own role) *process {
	p := &process{cmd: exec.CommandContext(ctx, program, rankArgs(limit, test, own)...), done: own.done}
	p.cmd.Env = append(p.cmd.Environ(), "GORACE=atexit_sleep_ms=0",
		fmt.Sprintf("SYMGRAD_RANK=%d", own.rank), fmt.Sprintf("SYMGRAD_LOCAL_RANK=%d", own.rank))
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.WaitDelay = testMargin
	tieToParent(p.cmd)
	return p
}

// pattern returns the value of -test.run for exactly one test.
func pattern(test string) string {
	names := strings.Split(test, "/")
	for i, name := range names {
		names[i] = "^" + regexp.QuoteMeta(name) + "$"
	}
	return strings.Join(names, "/")
}

// run starts the process and waits for its end. Its thread is locked because the process is killed
// with the thread that started it. Errors: an unexpected end, with the output.
func (p *process) run(dies bool) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		return err
	}
	ended := p.cmd.Wait()
	_, missing := os.Stat(p.done)
	how := p.cmd.ProcessState.String()
	switch {
	case dies && wasKilled(p.cmd.ProcessState) && missing != nil:
		return nil
	case dies:
		return fmt.Errorf("%s, but it should have killed itself:\n%s", how, p.output.String())
	case ended != nil:
		return fmt.Errorf("%s:\n%s", how, p.output.String())
	case missing != nil:
		return fmt.Errorf("%s without reaching its launch:\n%s", how, p.output.String())
	}
	return nil
}

// tail is a Writer that keeps the end of its input.
type tail struct {
	text []byte
	lost bool
}

const tailBytes = 16 << 10

// Write implements io.Writer.
func (w *tail) Write(text []byte) (int, error) {
	w.text = append(w.text, text...)
	if more := len(w.text) - tailBytes; more > tailBytes {
		w.text, w.lost = append(w.text[:0], w.text[more:]...), true
	}
	return len(text), nil
}

// String returns the kept text.
func (w *tail) String() string {
	if w.lost {
		return "...\n" + string(w.text)
	}
	return string(w.text)
}
