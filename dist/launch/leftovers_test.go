//go:build linux

package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/long"
)

func TestSpawnLeavesNoProcessBehind(t *testing.T) {
	for _, end := range []string{"exit 0", "exit 3", "kill"} {
		t.Run(end, func(t *testing.T) {
			s := newStage(t)
			job, ranks := s.spawn(t.Context(), SpawnConfig{N: 2, Grace: 100 * time.Millisecond})
			ranks[0].make("child group")
			ranks[1].make("child session")
			all := append(ranks, s.enter(2)...)
			// A grandchild of its own, so that an orphan has an orphan.
			session := all[slices.IndexFunc(all, func(h *hand) bool { return h.name == "session" })]
			session.make("child session")
			all = append(all, s.enter(1)...)
			for _, h := range all {
				h.make("deaf")
			}
			ranks[0].tell(end)
			ranks[1].tell("exit 0")
			job.wait()
			for _, h := range all {
				h.gone()
			}
			if left := descendants(t); len(left) > 0 {
				t.Errorf("left are %+v", left)
			}
		})
	}
}

// In a pipe such as "| head" the launcher is not just killed by SIGPIPE: it first ends the
// processes of the ranks.
func TestOutputThatNobodyReadsEndsTheJob(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t)
	job := s.startTo(w, "launcher", "2")
	ranks := s.enter(2)
	ranks[1].make("child session")
	all := append(ranks, s.enter(1)...)
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	ranks[0].tell(fmt.Sprintf("out %q", "a line\n")) // it may be ended before it can answer
	if got, want := job.wait(), 128+int(syscall.SIGPIPE); got != want {
		t.Fatalf("exit code %d, want %d; stderr\n%s", got, want, &job.err)
	}
	for _, h := range all {
		h.gone()
	}
	if want := "the output has no reader any more: 2 ranks get SIGTERM"; !strings.Contains(job.err.String(), want) {
		t.Errorf("stderr lacks %q:\n%s", want, &job.err)
	}
}

// goneReader is a pipe without a reader.
type goneReader struct{}

func (goneReader) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// The last of the output may find no reader long after the ranks have ended, when the supervisor no
// longer waits for that.
func TestLastOutputThatNobodyReadsCountsToo(t *testing.T) {
	for name, tc := range map[string]struct {
		mark func(s *supervisor) // sets the state of the job before
		want int
	}{
		"all went well": {func(*supervisor) {}, 128 + int(syscall.SIGPIPE)},
		"interrupted":   {func(s *supervisor) { s.asked = syscall.SIGINT }, 128 + int(syscall.SIGINT)},
		"cancelled":     {func(s *supervisor) { s.cancelled = context.Canceled }, 128 + int(syscall.SIGTERM)},
	} {
		s := newSupervisor(&job{console: &console{out: sink{w: goneReader{}}}})
		tc.mark(s)
		to := &stream{c: s.console, to: &s.console.out, rank: &rankOutput{}}
		if _, err := to.Write([]byte("the last words\n")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := s.result().Code; got != tc.want {
			t.Errorf("%s: exit code %d, want %d", name, got, tc.want)
		}
		s.close()
	}
}

// An orphan of a rank that goes on is waited for when it ends: nothing piles up in the process
// table.
func TestOrphansAreReapedWhileTheirRankRuns(t *testing.T) {
	s := newStage(t)
	job, ranks := s.spawn(t.Context(), SpawnConfig{N: 1})
	ranks[0].make("child group")
	middle := s.enter(1)[0]
	middle.make("child group")
	orphan := s.enter(1)[0]
	middle.tell("exit 0")
	middle.gone()
	orphan.tell("exit 0")
	orphan.gone()
	job.sees(orphan)
	ranks[0].tell("exit 0")
	job.wait()
}

// Children with Pdeathsig live as long as the thread that started them.
func TestRanksOutliveTheThreadsOfTheLauncher(t *testing.T) {
	job, ranks := newStage(t).spawn(t.Context(), SpawnConfig{N: 2})
	for range 50 {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		}()
		<-ended
	}
	for _, r := range ranks {
		if got := r.ask("getenv SYMGRAD_RANK"); got != fmt.Sprint(r.rank) {
			t.Errorf("rank %d says %s", r.rank, got)
		}
		r.tell("exit 0")
	}
	if res := job.wait(); res.Code != 0 {
		t.Errorf("got %+v", res)
	}
}

func TestRanksThatWereStartedEndWhenTheNextCannotBe(t *testing.T) {
	s := newStage(t)
	logs := t.TempDir()
	if err := os.Mkdir(filepath.Join(logs, "rank-1.log"), 0o700); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out locked
	_, err = Spawn(t.Context(), SpawnConfig{Program: exe, N: 3, Env: s.environ("puppet"), LogDir: logs, Stdout: &out, Stderr: &out})
	if !errors.Is(err, syscall.EISDIR) || !strings.Contains(err.Error(), "rank 1 of 3") {
		t.Errorf("got %v", err)
	}
	if left := descendants(t); len(left) > 0 {
		t.Errorf("left are %+v", left)
	}
}

func TestSpawnsLeakNothing(t *testing.T) {
	s := newStage(t)
	before := openFiles(t)
	for i := range long.Times(10, 50) {
		job, ranks := s.spawn(t.Context(), SpawnConfig{N: 2, LogDir: t.TempDir()})
		for _, r := range ranks {
			r.tell("meet")
		}
		for _, r := range ranks {
			if got := r.hear(); got != "<nil>" {
				t.Fatal(got)
			}
			r.make("leave")
			r.tell("exit 0")
		}
		if job.wait(); i == 0 {
			for _, r := range ranks {
				r.conn.Close()
			}
			before = openFiles(t) // the first run opens files that stay: the poller, the random source
			continue
		}
		for _, r := range ranks {
			r.conn.Close()
		}
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
	if left := descendants(t); len(left) > 0 {
		t.Errorf("left are %+v", left)
	}
}

// A process that left the rank's group, its environment and its parent cannot be distinguished from
// a foreign one. The launcher leaves it alone, and its open pipe does not delay the end of the job,
// even if it keeps writing.
func TestProcessThatHidesMayTalk(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("last words"); err != nil {
		t.Fatal(err)
	}
	first, drained := make(chan struct{}), make(chan struct{})
	go func() { // until the pipe is closed
		defer w.Close()
		for range 2 << 10 {
			_, _ = w.WriteString(strings.Repeat(".", 64))
		}
		close(first)
		var err error
		for err == nil {
			_, err = w.WriteString(".")
		}
	}()
	closing, out := make(chan struct{}), &locked{}
	go func() {
		defer close(drained)
		drain(r, out, closing)
	}()
	<-first
	close(closing)
	_ = r.SetReadDeadline(time.Now()) // as wakeReaders does
	select {
	case <-drained:
	case <-time.After(patience):
		t.Fatal("the output is still copied")
	}
	if !strings.HasPrefix(out.String(), "last words...") {
		t.Errorf("got %.20q", out.String())
	}
}

// A reader that sees the end of the job just before it is woken must not take that for silence.
func TestLastOutputSurvivesTheWaking(t *testing.T) {
	want := strings.Repeat("x", 48<<10) // more than one read, less than the pipe holds
	for range 2000 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.WriteString(want)
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		closing, woken := make(chan struct{}), make(chan struct{})
		close(closing)
		go func() {
			_ = r.SetReadDeadline(time.Now())
			close(woken)
		}()
		var out strings.Builder
		drain(r, &out, closing)
		<-woken
		if err := r.Close(); err != nil || out.Len() != len(want) {
			t.Fatalf("got %d of %d bytes, %v", out.Len(), len(want), err)
		}
	}
}

func TestProcessThatHidesDoesNotHoldUpTheJob(t *testing.T) {
	s := newStage(t)
	job, ranks := s.spawn(t.Context(), SpawnConfig{N: 1})
	ranks[0].make("child hidden")
	hidden := s.enter(1)[0]
	ranks[0].make(`out "unfinished"`)
	ranks[0].tell("exit 0")
	if res := job.wait(); res.Code != 0 || job.out.String() != "unfinished" {
		t.Errorf("got %+v, stdout %q", res, &job.out)
	}
	if got := hidden.ask("getenv SYMGRAD_JOB"); got != "" {
		t.Errorf("the hidden process has job %q", got)
	}
	hidden.tell("exit 0")
	hidden.gone()
	_, _ = syscall.Wait4(hidden.pid, nil, 0, nil) // it became a child of the subreaper
}

func TestMemoryFilesCannotBeChanged(t *testing.T) {
	f, err := memoryFile("test", []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EPERM) {
		t.Errorf("write: got %v, want EPERM", err)
	}
	if err := f.Truncate(0); !errors.Is(err, syscall.EPERM) {
		t.Errorf("truncate: got %v, want EPERM", err)
	}
	fd := int(f.Fd())
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil { // as after exec
		t.Fatal(err)
	}
	for range 2 {
		if data, err := readInherited(fd, maxCredentials); string(data) != "secret" || err != nil {
			t.Errorf("got %q, %v", data, err)
		}
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("after reading, programs that this one starts inherit the file: flags %#x, %v", flags, err)
	}
}

func TestInheritedDescriptorMustBeTheLaunchers(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	big, err := os.Create(filepath.Join(t.TempDir(), "big"))
	if err != nil {
		t.Fatal(err)
	}
	defer big.Close()
	if err := big.Truncate(maxCredentials + 1); err != nil {
		t.Fatal(err)
	}
	for name, fd := range map[string]uintptr{"a pipe": r.Fd(), "a big file": big.Fd(), "nothing": 1 << 19} {
		if data, err := readInherited(int(fd), maxCredentials); err == nil {
			t.Errorf("%s: got %d B", name, len(data))
		}
	}
}

// A rank that meets no other reports how ranks without a job id find each other, since they may
// have been started one by one.
func TestRankWithoutAJobIsToldTheRemedy(t *testing.T) {
	e := Env{Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Launcher: "nobody", from: "SYMGRAD_TEST_NOBODY"}
	const remedy = "nobody gives no job id, so that only ranks that one process has started meet (here pid "
	for job, want := range map[string]bool{"": true, "its own " + strconv.Itoa(os.Getpid()): false} {
		e.Job = job
		_, _, err := Rendezvous(t.Context(), e, Config{Timeout: 10 * time.Millisecond})
		if !errors.Is(err, dist.ErrTimeout) {
			t.Fatalf("job %q: %v", job, err)
		}
		if got := strings.Contains(err.Error(), remedy) && strings.HasSuffix(err.Error(), "; set SYMGRAD_JOB to the same on all ranks"); got != want {
			t.Errorf("job %q: the remedy is there: %t, want %t, in %v", job, got, want, err)
		}
	}
}

// Ranks of a launcher that gives no job id, as processes under separate wrapper scripts.
func TestProcessesMeetByTheirCommonParent(t *testing.T) {
	s := newStage(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var programs []*exec.Cmd
	for rank := range 3 {
		cmd := exec.Command("sh", "-c", `"$0"; exit $?`, exe)
		cmd.Env = append(s.environ("puppet"), fmt.Sprint("PMI_RANK=", rank), "PMI_SIZE=3", fmt.Sprint("MPI_LOCALRANKID=", rank), "MPI_LOCALNRANKS=3")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, cmd)
	}
	ranks := s.enter(3)
	for _, r := range ranks {
		r.tell("meet")
	}
	for _, r := range ranks {
		if got := r.hear(); got != "<nil>" {
			t.Fatalf("rank %d: %s", r.rank, got)
		}
	}
	ranks[1].tell("get")
	ranks[2].tell("get")
	ranks[0].tell("kill") // which served the store
	for rank, want := range []int{137, ExitPeerLost, ExitPeerLost} {
		_ = programs[rank].Wait() // the exit code says it
		if got := programs[rank].ProcessState.ExitCode(); got != want {
			t.Errorf("rank %d ended with code %d, want %d", rank, got, want)
		}
	}
}
