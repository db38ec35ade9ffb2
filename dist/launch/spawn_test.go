//go:build linux

package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
)

func TestSpawnTellsRanksWhoTheyAre(t *testing.T) {
	s := newStage(t)
	dir := t.TempDir()
	job, ranks := s.spawn(t.Context(), SpawnConfig{
		N: 3, Dir: dir, Env: []string{"SYMGRAD_RANK=7", "SYMGRAD_COLUMNS=80", "SYMGRAD_RUN_SEED=5", "RANK=1", "WORLD_SIZE=9"},
	})
	for rank, r := range ranks {
		want := fmt.Sprintf("{Rank:%d Size:3 LocalRank:%d LocalSize:3 Node:0 Nodes:1 Launcher:symgrad Job:symgrad-", rank, rank)
		if got := r.ask("whoami"); !strings.HasPrefix(got, want) || !strings.Contains(got, "StoreFD:3 Columns:0 ") {
			t.Errorf("got %s, want %s...", got, want)
		}
		for ask, want := range map[string]string{
			"getenv SYMGRAD_RUN_SEED": "5", "getenv RANK": "1", "getenv SYMGRAD_COLUMNS": "",
			"getenv GOMAXPROCS": os.Getenv("GOMAXPROCS"), "getenv OPENBLAS_NUM_THREADS": os.Getenv("OPENBLAS_NUM_THREADS"),
			"stdin": `"" <nil>`, "getwd": dir + "<nil>",
		} {
			if got := r.ask(ask); got != want {
				t.Errorf("%s: got %s, want %s", ask, got, want)
			}
		}
		for _, file := range []string{"cmdline", "environ"} {
			shown, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", r.pid, file))
			if err != nil || strings.Contains(string(shown), "PRIVATE") {
				t.Errorf("rank %d shows %s %q, %v", rank, file, shown, err)
			}
		}
		r.tell("exit 0")
	}
	res := job.wait()
	if res.Code != 0 || res.Culprit != -1 {
		t.Errorf("got %+v, want success", res)
	}
	for rank, r := range res.Ranks {
		if r != (RankResult{Rank: rank, PID: ranks[rank].pid, How: "exited with code 0", Step: NoStep}) {
			t.Errorf("got %+v", r)
		}
	}
	if job.err.String() != "" {
		t.Errorf("a success is reported: %s", &job.err)
	}
}

// Each script is a list of "rank command"; ranks that are not in it do nothing and are ended by the
// launcher.
func TestSpawnBlamesTheRankThatFailedByItself(t *testing.T) {
	for _, tc := range []struct {
		name          string
		script        []string
		grace         time.Duration // 0 means that all ranks end by the script
		code, culprit int
		says          []string
	}{
		{"all succeed", []string{"0 exit 0", "1 exit 0", "2 exit 0"}, 0, 0, -1, nil},
		{"the first of two", []string{"1 exit 3", "0 exit 4", "2 exit 0"}, 0, 3, 1, []string{
			"symgrad: rank 1 (pid %1) exited with code 3\nsymgrad: rank 0 (pid %0) exited with code 4\nsymgrad: rank 2 (pid %2) exited with code 0\n",
		}},
		{"not who lost a peer", []string{"0 exit 75", "1 exit 75", "2 exit 9"}, 0, 9, 2, []string{
			"symgrad: rank 2 (pid %2) exited with code 9\nsymgrad: rank 0 (pid %0) exited with code 75: it lost a peer\n",
		}},
		{"a signal", []string{"0 exit 75", "2 kill", "1 exit 75"}, 0, 137, 2, []string{
			"symgrad: rank 2 (pid %2) was killed by signal: killed\n",
		}},
		{"who lost a peer, when nobody else failed", []string{"1 exit 0", "2 exit 75", "0 exit 75"}, 0, 75, 2, []string{
			"symgrad: rank 2 (pid %2) exited with code 75\n",
		}},
		{"not who is told to end", []string{"1 exit 3"}, 3 * time.Second, 3, 1, []string{
			"rank 0 (pid %0) was killed by signal: terminated, stopped by the launcher\n",
		}},
		{"a child that does not listen is killed", []string{"0 deaf", "2 deaf", "1 exit 3"}, 100 * time.Millisecond, 3, 1, []string{
			"rank 0 (pid %0) was killed by signal: killed, stopped by the launcher\n", "rank 2 (pid %2) was killed by signal: killed, ",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			job, ranks := newStage(t).spawn(t.Context(), SpawnConfig{N: 3, Grace: tc.grace})
			for _, line := range tc.script {
				r := ranks[line[0]-'0']
				if command := line[2:]; command == "deaf" {
					r.make(command)
				} else {
					r.tell(command)
					r.gone()
					job.sees(r)
				}
			}
			res := job.wait()
			for _, r := range ranks {
				r.gone()
			}
			if res.Code != tc.code || res.Culprit != tc.culprit {
				t.Errorf("got code %d, culprit %d, want %d, %d", res.Code, res.Culprit, tc.code, tc.culprit)
			}
			for _, want := range tc.says {
				for rank, r := range ranks {
					want = strings.ReplaceAll(want, fmt.Sprint("%", rank), fmt.Sprint(r.pid))
				}
				if !strings.Contains(job.err.String(), want) {
					t.Errorf("the report\n%slacks\n%s", &job.err, want)
				}
			}
		})
	}
}

// sees waits until Spawn has waited for the rank, so that the order of ends is the order of the
// script.
func (p *spawned) sees(r *hand) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); runtime.Gosched() {
		if _, err := readProcess(r.pid); err != nil {
			return
		}
	}
	p.t.Fatalf("rank %d (pid %d) is still a process", r.rank, r.pid)
}

// shows waits until Spawn has passed text on, so that a rank's output on another stream comes after
// it.
func (p *spawned) shows(text string) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); runtime.Gosched() {
		if strings.Contains(p.out.String(), text) {
			return
		}
	}
	p.t.Fatalf("no %q in\n%s", text, &p.out)
}

func TestSpawnShowsTheLastLinesOfTheCulpritFirst(t *testing.T) {
	job, ranks := newStage(t).spawn(t.Context(), SpawnConfig{N: 2})
	for i := range 30 {
		ranks[1].make(fmt.Sprintf("out %q", fmt.Sprintf("line %d\n", i)))
	}
	job.shows("line 29\n")
	ranks[1].make(`err "out of luck"`)
	ranks[1].tell("exit 3")
	ranks[1].gone()
	job.sees(ranks[1])
	ranks[0].tell("exit 75")
	job.wait()
	_, report, ok := strings.Cut(job.err.String(), "exited with code 3; its last lines:\n")
	if !ok {
		t.Fatalf("no last lines in\n%s", &job.err)
	}
	var want strings.Builder
	for i := 11; i < 30; i++ {
		fmt.Fprintf(&want, "symgrad:   [1] line %d\n", i)
	}
	fmt.Fprintf(&want, "symgrad:   [1] out of luck\nsymgrad: rank 0 (pid %d) exited with code 75: it lost a peer\n", ranks[0].pid)
	if report != want.String() {
		t.Errorf("got\n%swant\n%s", report, want.String())
	}
}

// The whole way: ranks meet through the launcher's store, one is killed, the others learn its name
// and say so.
func TestRanksLearnWhoDied(t *testing.T) {
	job, ranks := newStage(t).spawn(t.Context(), SpawnConfig{N: 3})
	for _, r := range ranks {
		r.tell("meet")
	}
	for _, r := range ranks {
		if got := r.hear(); got != "<nil>" {
			t.Fatalf("rank %d: %s", r.rank, got)
		}
	}
	ranks[0].tell("get")
	ranks[2].tell("get")
	ranks[1].tell("kill")
	res := job.wait()
	if res.Code != 137 || res.Culprit != 1 || res.Ranks[0].Code != ExitPeerLost || res.Ranks[2].Code != ExitPeerLost {
		t.Errorf("got %+v", res)
	}
	const cause = `store get "never": rank 1 died: was killed by signal: killed`
	for _, want := range []string{cause, "[2] " + cause} {
		if !strings.Contains("\n"+job.err.String(), "\n"+want+"\n") {
			t.Errorf("stderr lacks %q:\n%s", want, &job.err)
		}
	}
}

func TestRankThatEndsBeforeTheOthersMeetIsNamed(t *testing.T) {
	job, ranks := newStage(t).spawn(t.Context(), SpawnConfig{N: 2})
	ranks[0].tell("meet")
	ranks[1].tell("exit 0")
	if got := ranks[0].hear(); !strings.Contains(got, "rank 1 died: exited with code 0 without joining") {
		t.Errorf("rank 0 got %s", got)
	}
	ranks[0].tell("exit 75")
	if res := job.wait(); res.Culprit != 0 || res.Code != ExitPeerLost {
		t.Errorf("got %+v", res)
	}
}

func TestEndOfTheContextEndsTheRanks(t *testing.T) {
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	job, ranks := newStage(t).spawn(ctx, SpawnConfig{N: 2, Grace: 3 * time.Second})
	ranks[1].make("deaf")
	cancel(reason)
	<-job.done
	for _, r := range ranks {
		r.gone()
	}
	if !errors.Is(job.fail, reason) || job.res.Code != 143 || job.res.Culprit != -1 {
		t.Errorf("got %+v, %v", job.res, job.fail)
	}
	if got := [2]int{job.res.Ranks[0].Code, job.res.Ranks[1].Code}; got != [2]int{143, 137} {
		t.Errorf("ranks ended with %v, want 143 and 137", got)
	}
	if want := fmt.Sprintf("symgrad: rank 1 (pid %d) did not end and was killed\n", ranks[1].pid); job.err.String() != want {
		t.Errorf("got %q, want %q", &job.err, want)
	}
}

// A long grace is no negative one: a rank that is deaf to SIGTERM then ends as it likes.
func TestGraceOfManyYears(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	job, ranks := newStage(t).spawn(ctx, SpawnConfig{N: 2, Grace: 400000 * time.Hour})
	ranks[1].make("deaf")
	cancel(errors.New("enough"))
	ranks[0].gone()
	job.sees(ranks[0])
	ranks[1].tell("exit 5")
	<-job.done
	if got := [2]int{job.res.Ranks[0].Code, job.res.Ranks[1].Code}; got != [2]int{143, 5} {
		t.Errorf("ranks ended with %v, want 143 and 5", got)
	}
}

// Starting many ranks takes a while, in which the job can be ended.
func TestRanksAreNotStartedAnyMoreWhenTheJobIsToEnd(t *testing.T) {
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	logs := t.TempDir()
	res, err := Spawn(ctx, SpawnConfig{Program: "sh", Args: []string{"-c", "exit 0"}, N: 3, LogDir: logs, Stdout: io.Discard, Stderr: io.Discard})
	if !errors.Is(err, reason) || res.Code != 143 || res.Culprit != -1 || len(res.Ranks) != 1 {
		t.Errorf("got %+v, %v, want 143 and one rank", res, err)
	}
	if started, err := filepath.Glob(filepath.Join(logs, "*")); err != nil || len(started) != 1 {
		t.Errorf("logs of %q, %v", started, err)
	}
}

func TestEndOfTheContextEndsRanksThatWereAskedBefore(t *testing.T) {
	for _, limits := range [][2]time.Duration{{50 * time.Millisecond, time.Hour}, {time.Hour, 50 * time.Millisecond}} {
		reason := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		job, ranks := newStage(t).spawn(ctx, SpawnConfig{N: 1, Grace: limits[0], Patience: limits[1]})
		ranks[0].make("deaf")
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil { // Spawn holds it while it runs
			t.Fatal(err)
		}
		job.err.waitFor(t, "passed on to 1 ranks")
		cancel(reason)
		select {
		case <-job.done:
		case <-time.After(patience):
			t.Error("a rank that is deaf has all the time that a signal leaves")
			ranks[0].tell("exit 0")
			<-job.done
		}
		ranks[0].gone()
		if limits[0] < limits[1] && !errors.Is(job.fail, reason) || job.res.Code != 129 || job.res.Ranks[0].Code != 137 {
			t.Errorf("got %+v, %v, want 129, a rank that was killed, and the end of the context", job.res, job.fail)
		}
	}
}

func TestSpawnRunsTheProgramThatItHasFound(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	t.Chdir(here)
	for dir, says := range map[string]string{here: "here", there: "there"} {
		if err := os.WriteFile(filepath.Join(dir, "program"), []byte("#!/bin/sh\necho "+says+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"", there} {
		var out locked
		res, err := Spawn(t.Context(), SpawnConfig{Program: "./program", N: 1, Dir: dir, Stdout: &out})
		if err != nil || res.Code != 0 || out.String() != "here\n" {
			t.Errorf("in folder %q: got %q, %+v, %v, want the program that is here", dir, &out, res, err)
		}
	}
}

func TestSpawnRefusesWhatItCannotStart(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	notes := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(notes, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		cfg  SpawnConfig
		want error
		says string
	}{
		"no ranks":         {SpawnConfig{Program: exe}, dist.ErrInvalid, "0 ranks: want 1 to 4096"},
		"too many ranks":   {SpawnConfig{Program: exe, N: MostSpawned + 1}, dist.ErrInvalid, "4097 ranks: want 1 to 4096"},
		"negative ranks":   {SpawnConfig{Program: exe, N: -2}, dist.ErrInvalid, "-2 ranks"},
		"no program":       {SpawnConfig{N: 1}, dist.ErrInvalid, "no program to run"},
		"unknown program":  {SpawnConfig{Program: "no-such-program", N: 1}, dist.ErrInvalid, `program "no-such-program"`},
		"missing file":     {SpawnConfig{Program: "./no-such-program", N: 1}, os.ErrNotExist, `program "./no-such-program"`},
		"no executable":    {SpawnConfig{Program: notes, N: 2}, syscall.ENOEXEC, "rank 0 of 2"},
		"negative grace":   {SpawnConfig{Program: exe, N: 1, Grace: -1}, dist.ErrInvalid, "grace -1ns"},
		"no address":       {SpawnConfig{Program: exe, N: 1, Master: "here"}, dist.ErrInvalid, `master "here": want host:port`},
		"no port":          {SpawnConfig{Program: exe, N: 1, Master: "127.0.0.1:77777"}, dist.ErrInvalid, `master "127.0.0.1:77777": want host:port, port 0 to 65535`},
		"port in use":      {SpawnConfig{Program: exe, N: 1, Master: listener.Addr().String()}, syscall.EADDRINUSE, listener.Addr().String() + " is in use: choose another port (--master"},
		"log folder":       {SpawnConfig{Program: exe, N: 1, LogDir: notes}, syscall.ENOTDIR, "log folder"},
		"working folder":   {SpawnConfig{Program: exe, N: 1, Dir: notes + "/none"}, syscall.ENOTDIR, "rank 0 of 1"},
		"unwritable log":   {SpawnConfig{Program: exe, N: 2, LogDir: "/proc/self"}, os.ErrNotExist, "rank 0 of 2"},
		"unusable address": {SpawnConfig{Program: exe, N: 1, Master: "203.0.113.1:0"}, syscall.EADDRNOTAVAIL, "store address 203.0.113.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := Spawn(t.Context(), tc.cfg)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %+v, %v, want %v and %q", res, err, tc.want, tc.says)
			}
		})
	}
}

func TestSpawnServesItsStoreWhereAsked(t *testing.T) {
	job, ranks := newStage(t).spawn(t.Context(), SpawnConfig{N: 1, Master: "0.0.0.0:0"})
	if got := ranks[0].ask("whoami"); !strings.Contains(got, "Master:127.0.0.1:") {
		t.Errorf("got %s, want an address that can be dialled", got)
	}
	ranks[0].tell("exit 0")
	job.wait()
	for address, want := range map[string]string{
		"[::]:7": "127.0.0.1:7", "0.0.0.0:7": "127.0.0.1:7", "10.0.0.1:7": "10.0.0.1:7", "@x": "@x", "node1:7": "node1:7",
	} {
		if got := dialable(address); got != want {
			t.Errorf("dialable(%q) = %q, want %q", address, got, want)
		}
	}
}

// A rank that is killed while the ranks meet, early or late, is named by every other rank, at the
// latest by its next Get.
func TestRankKilledAtAnyMomentIsNamed(t *testing.T) {
	for moment := range 12 {
		job, ranks := newStage(t).spawn(t.Context(), SpawnConfig{N: 3})
		victim := ranks[moment%3]
		for i, r := range ranks {
			if i == moment/3 {
				if err := syscall.Kill(victim.pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			if r != victim {
				r.tell("meet")
			} else if _, err := r.conn.Write([]byte("meet\n")); err != nil && i < moment/3 {
				t.Fatal(err)
			}
		}
		if moment/3 == len(ranks) {
			victim.tell("kill")
		}
		want := fmt.Sprintf("rank %d died: was killed by signal: killed", victim.rank)
		for _, r := range ranks {
			if r == victim {
				continue
			}
			if got := r.hear(); got == "<nil>" {
				r.tell("get")
			} else if strings.Contains(got, want) {
				r.tell("exit 75")
			} else {
				t.Errorf("moment %d: rank %d got %s, want %s", moment, r.rank, got, want)
			}
		}
		res := job.wait()
		if res.Culprit != victim.rank || res.Code != 137 || res.Ranks[(victim.rank+1)%3].Code != ExitPeerLost {
			t.Errorf("moment %d: got %+v", moment, res)
		}
	}
}
