//go:build linux

package launch

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// These tests send signals to a launcher that is a process of its own.

func (p *program) signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

func TestSignalsArePassedOnToAllRanks(t *testing.T) {
	for sig, want := range map[syscall.Signal]struct {
		code int
		word string
	}{
		syscall.SIGINT:  {130, "ended by interrupt"},
		syscall.SIGTERM: {143, "ended by terminated"},
	} {
		t.Run(sig.String(), func(t *testing.T) {
			s := newStage(t)
			job := s.start("launcher", "3")
			ranks := s.enter(3)
			for _, r := range ranks {
				r.make("polite")
			}
			job.signal(sig)
			if got := job.wait(); got != want.code {
				t.Errorf("exit code %d, want %d", got, want.code)
			}
			for _, r := range ranks {
				r.gone()
			}
			for _, line := range []string{want.word + "\n", "[1] " + want.word + "\n", "[2] " + want.word + "\n"} {
				if !strings.Contains("\n"+job.out.String(), "\n"+line) {
					t.Errorf("stdout lacks %q:\n%s", line, &job.out)
				}
			}
			if report := job.err.String(); strings.Contains(report, "exited") || !strings.Contains(report, sig.String()+": passed on to 3 ranks, which have 30s to end") {
				t.Errorf("stderr is\n%s", report)
			}
		})
	}
}

func TestRanksThatDieOfAPassedOnSignalAreNoFailure(t *testing.T) {
	s := newStage(t)
	job := s.start("launcher", "2")
	ranks := s.enter(2)
	ranks[0].make("deaf")
	job.signal(syscall.SIGHUP)
	ranks[1].gone()
	if got := ranks[0].ask("getenv SYMGRAD_RANK"); got != "0" { // it has time: it may be saving its work
		t.Errorf("rank 0 says %q", got)
	}
	ranks[0].tell("exit 0")
	if got := job.wait(); got != 129 || strings.Contains(job.err.String(), "exited") {
		t.Errorf("exit code %d, want 129; stderr\n%s", got, &job.err)
	}
}

func TestSecondSignalKills(t *testing.T) {
	s := newStage(t)
	job := s.start("launcher", "2")
	ranks := s.enter(2)
	for _, r := range ranks {
		r.make("deaf")
	}
	job.signal(syscall.SIGINT)
	job.err.waitFor(t, "interrupt: passed on to 2 ranks")
	job.signal(syscall.SIGINT)
	if got := job.wait(); got != 130 {
		t.Errorf("exit code %d, want 130", got)
	}
	for _, r := range ranks {
		r.gone()
		if want := fmt.Sprintf("rank %d (pid %d) did not end and was killed", r.rank, r.pid); !strings.Contains(job.err.String(), want) {
			t.Errorf("stderr lacks %q:\n%s", want, &job.err)
		}
	}
}

func TestPatienceEndsAfterASignal(t *testing.T) {
	s := newStage(t)
	job, ranks := s.spawn(t.Context(), SpawnConfig{N: 1, Patience: 50 * time.Millisecond})
	ranks[0].make("deaf")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil { // Spawn holds it while it runs
		t.Fatal(err)
	}
	if res := job.wait(); res.Code != 129 || res.Ranks[0].Code != 137 {
		t.Errorf("got %+v, want 129 and a rank that was killed", res)
	}
	ranks[0].gone()
}

// A rank is stopped by a debugger, or because it reads from a terminal that is the launcher's.
func TestSignalsReachARankThatIsStopped(t *testing.T) {
	job, ranks := newStage(t).spawn(t.Context(), SpawnConfig{N: 2, Patience: 10 * time.Second})
	if err := syscall.Kill(ranks[1].pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, ranks[1].pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil { // Spawn holds it while it runs
		t.Fatal(err)
	}
	if res := job.wait(); res.Code != 129 || res.Ranks[1].Code != 129 {
		t.Errorf("got %+v, want ranks that ended by the signal that was passed on", res)
	}
}

// stuckWriter is a terminal or a pager that takes nothing until the test ends.
type stuckWriter struct{ stuck, taken chan struct{} }

func (w *stuckWriter) Write(p []byte) (int, error) {
	select {
	case <-w.stuck:
	default:
		close(w.stuck)
	}
	<-w.taken
	return len(p), nil
}

func TestRanksEndBySignalsWhileTheirOutputIsStuck(t *testing.T) {
	s, w := newStage(t), &stuckWriter{stuck: make(chan struct{}), taken: make(chan struct{})}
	job, ranks := s.spawn(t.Context(), SpawnConfig{N: 2, Stdout: w, Patience: patience})
	release := sync.OnceFunc(func() { close(w.taken) })
	t.Cleanup(release) // before the test waits for Spawn
	ranks[0].make("deaf")
	ranks[0].make(fmt.Sprintf("out %q", "a line\n"))
	<-w.stuck
	for _, r := range []*hand{ranks[1], ranks[0]} { // the first signal is passed on, the second kills who is deaf
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil { // Spawn holds it while it runs
			t.Fatal(err)
		}
		r.gone()
	}
	release()
	if res := job.wait(); res.Code != 129 || res.Ranks[0].Code != 137 || res.Ranks[1].Code != 129 {
		t.Errorf("got %+v, want 129 and a deaf rank that was killed", res)
	}
	if want := "hangup: passed on to 2 ranks"; !strings.Contains(job.err.String(), want) {
		t.Errorf("stderr lacks %q:\n%s", want, &job.err)
	}
}

// When the ranks are gone and the rest of their output has no reader, a signal ends the launcher
// itself.
func TestSignalEndsALauncherThatOnlyHasOutputLeft(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	s := newStage(t)
	job := s.startTo(w, "launcher", "1")
	rank := s.enter(1)[0]
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	rank.make(fmt.Sprintf("out %q", strings.Repeat("x\n", 48<<10))) // more than one pipe holds, less than two
	rank.tell("exit 0")
	rank.gone()
	ended := make(chan int)
	go func() { ended <- job.wait() }()
	late := time.After(patience)
	for again := time.NewTicker(10 * time.Millisecond); ; { // the first ones may come before the rank was waited for
		select {
		case <-ended:
			return
		case <-again.C:
			_ = job.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		case <-late:
			_ = job.cmd.Process.Kill()
			t.Fatalf("the launcher is still there, %d", <-ended)
		}
	}
}

func TestIgnoredSignalsStayIgnored(t *testing.T) {
	s := newStage(t)
	job := s.start("nohup", "1")
	ranks := s.enter(1)
	job.signal(syscall.SIGHUP)
	if got := ranks[0].ask("getenv SYMGRAD_RANK"); got != "0" {
		t.Errorf("the rank says %q", got)
	}
	ranks[0].tell("exit 0")
	if got := job.wait(); got != 0 || job.err.String() != "" {
		t.Errorf("exit code %d, want 0; stderr\n%s", got, &job.err)
	}
}

func TestRanksDieWithAKilledLauncher(t *testing.T) {
	s := newStage(t)
	job := s.start("launcher", "3")
	ranks := s.enter(3)
	for _, r := range ranks {
		r.make("deaf")
		r.tell("meet")
	}
	for _, r := range ranks {
		if got := r.hear(); got != "<nil>" {
			t.Fatal(got)
		}
	}
	job.signal(syscall.SIGKILL)
	for _, r := range ranks {
		r.gone()
	}
	if got := job.wait(); got != -1 {
		t.Errorf("exit code %d of a killed process", got)
	}
	bury(ranks)
}

// bury waits for the end of ranks whose launcher was killed. If another test has spawned, this
// process is a subreaper and has inherited them.
func bury(ranks []*hand) {
	for _, r := range ranks {
		r.gone()
		_, _ = syscall.Wait4(r.pid, nil, 0, nil)
	}
}

func TestSelfStartsThisProgramAsRanks(t *testing.T) {
	s := newStage(t)
	job := s.start("self", "an argument")
	ranks := s.enter(2)
	for _, r := range ranks {
		if got := r.ask("whoami"); !strings.Contains(got, fmt.Sprintf("Rank:%d Size:2 ", r.rank)) || !strings.Contains(got, "Launcher:symgrad") {
			t.Errorf("got %s", got)
		}
		if got := r.ask("args"); got != `["an argument"]` {
			t.Errorf("rank %d got arguments %s", r.rank, got)
		}
	}
	ranks[0].tell("exit 0")
	ranks[1].tell("exit 6")
	if got := job.wait(); got != 6 {
		t.Errorf("exit code %d, want 6", got)
	}
}

func TestSelfLeavesRanksAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		launcher string
		n        int
	}{"under a launcher": {Slurm, 4}, "one rank": {None, 1}, "no rank asked for": {None, 0}} {
		res, spawned, err := Self(t.Context(), Env{Size: 1, LocalSize: 1, Launcher: tc.launcher}, SpawnConfig{N: tc.n, Program: "no-such-program"})
		if spawned || err != nil || res.Ranks != nil {
			t.Errorf("%s: got %+v, %v, %v", name, res, spawned, err)
		}
	}
	if _, spawned, err := Self(t.Context(), Env{Size: 1, LocalSize: 1, Launcher: None}, SpawnConfig{N: -1}); !spawned || err == nil {
		t.Errorf("-1 ranks: got %v, %v", spawned, err)
	}
}
