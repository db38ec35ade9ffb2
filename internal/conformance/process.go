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

// Opener opens the world that this process is a rank of. Its environment says who it is, as package
// dist/launch reads it, and opt what the test asks for: StepTimeout; a Die is not the opener's to
// bring about.
type Opener func(ctx context.Context, opt LaunchOptions) (*dist.World, error)

// Processes is a Launch whose ranks are processes of their own, as those of a program are: what an
// engine that allows one device in a process needs, and what lets a rank be killed.
//
// Each rank is the test binary again, started for the very test that asks, with the variables of
// dist/launch in its environment. It comes to the same call of the Launch and there opens its
// world, runs body and closes the world; the rest of the test is not run in it. So body may use
// what the test has made before, which every process makes for itself, and can give nothing back. A
// Die is a SIGKILL of the rank by itself. What a failing rank has printed is in the test's error.
//
// One value serves one test with its subtests. A test may launch several times, if what stands
// between does not depend on what bodies did.
func Processes(open Opener) Launch {
	p := &processes{open: open, calls: map[string]int{}}
	return p.launch
}

type processes struct {
	open Opener

	mu    sync.Mutex
	calls map[string]int // of the Launch so far, by the test's name
}

// role is who a process is that was started to be a rank: its last arguments, behind the flags.
type role struct {
	rank int
	call int    // of the Launch in its test
	done string // file to make when body and Close have returned without an error
}

const roleWord = "conformance-rank"

func (r role) args() []string {
	return []string{roleWord, strconv.Itoa(r.rank), strconv.Itoa(r.call), r.done}
}

// roleOf is the role that arguments give, if they do.
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
	for r, err := range spawnRanks(t, n, call, opt.Die) {
		if err != nil {
			t.Errorf("rank %d of %d: %v", r, n, err)
		}
	}
}

// call is the number of this call of the Launch in its test.
func (p *processes) call(test string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[test]++
	return p.calls[test]
}

// rank is what the process of a rank does; the test ends with it.
func (p *processes) rank(t *testing.T, own role, opt LaunchOptions, body func(w *dist.World) error) {
	t.Helper()
	w, err := p.open(t.Context(), opt)
	if err != nil {
		t.Fatalf("open the world: %v", err)
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
	t.Skip("this process was one rank of the test, which is done")
}

// killSelf ends this process as nothing else does.
func killSelf() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill() // if it could fail, the test would say that the rank lives
	}
	select {}
}

// Limits on the time of the processes of one launch, for those that wait for each other for ever:
// they leave the test time to tell.
const (
	processTime = 3 * time.Minute
	testMargin  = 5 * time.Second
)

// spawnRanks runs the ranks of a launch and waits for them.
// Returns: what each did wrong.
func spawnRanks(t *testing.T, n, call int, die *Die) []error {
	t.Helper()
	limit := processTime
	if end, ok := t.Deadline(); ok {
		limit = max(min(limit, time.Until(end)-2*testMargin), testMargin)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit+testMargin)
	defer cancel()
	folder := t.TempDir() // of this call alone
	job := fnv.New64a()
	_, _ = job.Write([]byte(folder))
	world := []string{ // see package dist/launch; the last two are not those of the process that runs the test
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
	select { // the others notice by themselves, or are ended
	case <-ended:
	case <-time.After(guard):
		cancel()
	}
	<-ended
	return errs
}

// process is one rank, as the test that started it sees it.
type process struct {
	cmd    *exec.Cmd
	done   string
	output tail
}

// newProcess is a rank that is not started yet.
func newProcess(ctx context.Context, limit time.Duration, program, test string, own role) *process {
	args := append([]string{
		"-test.run=" + pattern(test), "-test.count=1", "-test.v=true", "-test.timeout=" + limit.String(),
	}, own.args()...)
	p := &process{cmd: exec.CommandContext(ctx, program, args...), done: own.done}
	p.cmd.Env = append(p.cmd.Environ(), "GORACE=atexit_sleep_ms=0",
		fmt.Sprintf("SYMGRAD_RANK=%d", own.rank), fmt.Sprintf("SYMGRAD_LOCAL_RANK=%d", own.rank))
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.WaitDelay = testMargin
	tieToParent(p.cmd)
	return p
}

// pattern is what -test.run takes for one test and no other.
func pattern(test string) string {
	names := strings.Split(test, "/")
	for i, name := range names {
		names[i] = "^" + regexp.QuoteMeta(name) + "$"
	}
	return strings.Join(names, "/")
}

// run is the life of the process. Its thread is kept to the end, because the process dies with the
// thread that started it. Errors: how it ended, if not as it should, and what it printed.
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
		return fmt.Errorf("%s, and should have killed itself:\n%s", how, p.output.String())
	case ended != nil:
		return fmt.Errorf("%s:\n%s", how, p.output.String())
	case missing != nil:
		return fmt.Errorf("%s without having come to its part:\n%s", how, p.output.String())
	}
	return nil
}

// tail is a Writer that keeps the end of what is written.
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

// String is what is kept.
func (w *tail) String() string {
	if w.lost {
		return "...\n" + string(w.text)
	}
	return string(w.text)
}
