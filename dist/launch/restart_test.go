//go:build linux

package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// again waits for the next generation of the ranks, which must know its number.
func (s *stage) again(generation, n int) []*hand {
	s.t.Helper()
	ranks := s.enter(n)
	for _, r := range ranks {
		wantText(s.t, r.ask("whoami"), fmt.Sprintf(" Restarts:%d ", generation))
	}
	return ranks
}

func TestFailedJobBeginsAgain(t *testing.T) {
	s, logs := newStage(t), t.TempDir()
	job, ranks := s.spawn(t.Context(), SpawnConfig{N: 2, MaxRestarts: 2, Pause: 1, LogDir: logs})
	first := ranks[0].ask("getenv SYMGRAD_JOB")
	ranks[0].make("step 3")
	ranks[1].make("step 2")
	ranks[1].make(`out "before\n"`)
	for _, r := range ranks {
		r.tell("meet")
	}
	for _, r := range ranks {
		r.hear()
	}
	ranks[0].tell("get")
	ranks[1].tell("kill")
	ranks = s.again(1, 2)
	if job := ranks[0].ask("getenv SYMGRAD_JOB"); job == first {
		t.Errorf("both generations are job %s", job)
	}
	ranks[1].make(`out "after\n"`)
	for _, r := range ranks {
		r.tell("meet")
	}
	for _, r := range ranks {
		if got := r.hear(); got != "<nil>" {
			t.Errorf("rank %d: %s", r.rank, got)
		}
		r.tell("exit 0")
	}
	if res := job.wait(); res.Code != 0 || res.Restarts != 1 {
		t.Errorf("got %+v", res)
	}
	wantText(t, job.err.String(), "symgrad: restart 1 of 2: rank 1 was killed by signal: killed at step 2\n")
	if text, err := os.ReadFile(filepath.Join(logs, "rank-1.log")); err != nil || string(text) != "before\nafter\n" {
		t.Errorf("the log has %q, %v", text, err)
	}
}

// fall is a failure of one rank of two at a step; the other one ends well.
type fall struct{ rank, step, code int }

func (f fall) play(ranks []*hand) {
	if f.step >= 0 {
		ranks[f.rank].make(fmt.Sprint("step ", f.step))
	}
	ranks[1-f.rank].tell("exit 0")
	ranks[f.rank].tell(fmt.Sprint("exit ", f.code))
}

func TestRestartsEnd(t *testing.T) {
	for _, tc := range []struct {
		name  string
		falls []fall
		want  string
	}{
		{"twice at a step", []fall{{1, 3, 4}, {1, 3, 5}}, "symgrad: no restart: rank 1 failed twice at step 3\n"},
		{"twice before the first step", []fall{{0, 0, 1}, {0, 0, 1}}, "symgrad: no restart: rank 0 failed twice at the preparation of its first step\n"},
		{"another rank or step", []fall{{1, 3, 4}, {0, 3, 4}, {0, 4, 4}, {1, 4, 6}}, "symgrad: no restart: the job has had 3 of 3\n"},
		{"without marks", []fall{{1, -1, 4}, {1, -1, 4}, {1, -1, 4}, {1, -1, 7}}, "symgrad: no restart: the job has had 3 of 3\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStage(t)
			job, ranks := s.spawn(t.Context(), SpawnConfig{N: 2, MaxRestarts: 3, Pause: 1})
			for i, f := range tc.falls {
				if i > 0 {
					ranks = s.again(i, 2)
				}
				f.play(ranks)
			}
			last := tc.falls[len(tc.falls)-1]
			if res := job.wait(); res.Code != last.code || res.Culprit != last.rank || res.Restarts != len(tc.falls)-1 {
				t.Errorf("got %+v", res)
			}
			wantText(t, job.err.String(), tc.want)
		})
	}
}

func TestSignalForbidsARestart(t *testing.T) {
	s := newStage(t)
	data, err := json.Marshal(map[string]any{"N": 2, "MaxRestarts": 5, "Grace": patience})
	if err != nil {
		t.Fatal(err)
	}
	// After a failure, a signal kills the ranks that still run.
	p := s.start("node", string(data), NewSecret())
	ranks := s.enter(2)
	ranks[0].make("deaf")
	for _, r := range ranks {
		r.tell("meet")
	}
	for _, r := range ranks {
		r.hear()
	}
	ranks[1].tell("exit 3")
	wantText(t, ranks[0].ask("lost"), "rank 1 died")
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != 3 || strings.Contains(p.err.String(), "restart") {
		t.Errorf("code %d:\n%s", code, &p.err)
	}
}

func TestEndOfTheContextEndsThePause(t *testing.T) {
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	job, ranks := newStage(t).spawn(ctx, SpawnConfig{N: 1, MaxRestarts: 1, Pause: 1000 * time.Hour})
	ranks[0].tell("exit 3")
	job.err.waitFor(t, "restart 1 of 1")
	cancel(reason)
	if <-job.done; !errors.Is(job.fail, reason) || job.res.Code != 3 {
		t.Errorf("got %+v, %v", job.res, job.fail)
	}
}

// The exit code 0 of a foreign launcher is not trusted without the mark of rank 0.
func TestForeignLauncherNeedsTheMarkOfSuccess(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "mpirun.fake")
	if err := os.Symlink(exe, program); err != nil {
		t.Fatal(err)
	}
	s := newStage(t)
	job, ranks := s.spawn(t.Context(), SpawnConfig{Program: program, N: 1, MaxRestarts: 1, Pause: 1})
	ranks[0].make("step 7")
	ranks[0].tell("exit 0")
	ranks = s.again(1, 1)
	ranks[0].make("succeed")
	ranks[0].tell("exit 0")
	if res := job.wait(); res.Code != 0 || res.Restarts != 1 {
		t.Errorf("got %+v", res)
	}
	wantText(t, job.err.String(), "restart 1 of 1: rank 0 exited with code 0 without the mark of success, see launch.Marks at step 7\n")

	job, ranks = s.spawn(t.Context(), SpawnConfig{N: 1, MaxRestarts: 1, Pause: 1})
	ranks[0].tell("exit 0")
	if res := job.wait(); res.Code != 0 || res.Restarts != 0 {
		t.Errorf("our own rank: got %+v", res)
	}
}

// A launcher of MPI may wait without end for a host that is gone, after the other ranks have ended.
func TestForeignLauncherEndsAfterAFailureOfItsRanks(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "mpiexec.fake")
	if err := os.Symlink(exe, program); err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]string{"it hangs": "", "it hides the failure": "exit 0"} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			job, ranks := s.spawn(t.Context(), SpawnConfig{Program: program, N: 1, Grace: 100 * time.Millisecond})
			if got := ranks[0].ask("getenv SYMGRAD_RANK"); got != "" {
				t.Errorf("the launcher gives its ranks rank %s", got)
			}
			ranks[0].make(`word "rank 1 died"`)
			if end != "" {
				ranks[0].tell(end)
			}
			if res := job.wait(); res.Code != ExitPeerLost {
				t.Errorf("got %+v, want code %d", res, ExitPeerLost)
			}
			wantText(t, job.err.String(), "after a failure of its ranks")
		})
	}
}

func TestMarksStayInTheirFile(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("0123456789abcdef text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"", "x", other, other + ":short", other + ":0123456789abcdeX", other + "none:0123456789abcdef", "/dev/tty:0123456789abcdef"} {
		m := OpenMarks(Env{marks: value})
		if m != nil {
			t.Errorf("%q is taken", value)
		}
		if err := errors.Join(m.Begin(1), m.Succeed(), m.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestPauseGrowsWithoutProgress(t *testing.T) {
	r := newRestarts(SpawnConfig{MaxRestarts: 9, Pause: time.Second})
	for i, tc := range []struct {
		end  RankResult
		want time.Duration
	}{
		{RankResult{Step: NoStep}, 1 * time.Second},
		{RankResult{Step: NoStep}, 2 * time.Second},
		{RankResult{Step: 5}, 1 * time.Second},
		{RankResult{Step: 4}, 2 * time.Second},
		{RankResult{Step: 5}, 4 * time.Second},
		{RankResult{Rank: -1, Step: NoStep}, 1 * time.Second},
		{RankResult{Step: 6}, 1 * time.Second},
	} {
		if got := r.advance(tc.end); got != tc.want {
			t.Errorf("pause %d is %v, want %v", i, got, tc.want)
		}
	}
	for range 9 {
		r.advance(RankResult{})
	}
	if r.pause != longestPause {
		t.Errorf("the longest pause is %v", r.pause)
	}
}

// A launcher that was not given the number of restarts does not print one: that of node 0 counts.
func TestRestartOfAnotherNodesNumber(t *testing.T) {
	var text bytes.Buffer
	c, _ := newConsole(&text, &text)
	j := &job{console: c, restarts: &restarts{generation: 1}}
	j.announce(outcome{again: true, blame: RankResult{Rank: 3, How: "was killed", Step: NoStep}})
	if got := text.String(); !strings.Contains(got, "restart 2: rank 3 was killed\n") {
		t.Errorf("printed %q", got)
	}
}
