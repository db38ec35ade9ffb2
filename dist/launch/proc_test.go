//go:build linux

package launch

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestParseStatFindsItsFieldsBehindAnyName(t *testing.T) {
	rest := " S 12 34 34 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 2 3"
	for _, name := range []string{"(sh)", "(a b)", "(:-) 7 Z)", "())"} {
		p, err := parseStat("77 " + name + rest)
		if want := (process{pid: 77, parent: 12, group: 34, state: 'S', start: 987654}); p != want || err != nil {
			t.Errorf("%s: got %+v, %v, want %+v", name, p, err, want)
		}
	}
	for _, stat := range []string{"", "77", "77 (sh)", "77 (sh" + rest, "x (sh)" + rest, "77 (sh) S 12 34", "77 (sh) SS" + rest[2:], "77 (sh) S x" + rest[5:]} {
		if p, err := parseStat(stat); err == nil {
			t.Errorf("%q: got %+v", stat, p)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("77 (sh) S 12 34 34 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 2 3")
	f.Fuzz(func(t *testing.T, stat string) {
		if p, err := parseStat(stat); err == nil && p.state == 0 {
			t.Errorf("%q: got %+v without a state", stat, p)
		}
	})
}

func TestProcFindsThisProcessAndItsChildren(t *testing.T) {
	self, err := readProcess(os.Getpid())
	if err != nil || self.parent != os.Getppid() {
		t.Fatalf("got %+v, %v, want parent %d", self, err, os.Getppid())
	}
	cmd := exec.Command("cat")
	cmd.Env = []string{"FIRST=1", "SECOND=2"}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Start returns while the kernel still sets the new program up, and its environment is empty
	// until then: an answer says that it runs.
	if _, err := io.WriteString(stdin, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stdout, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	children, err := childrenOf(os.Getpid())
	if err != nil || !slices.ContainsFunc(children, func(p process) bool { return p.pid == pid }) {
		t.Errorf("got %+v, %v without %d", children, err, pid)
	}
	for entry, want := range map[string]bool{
		"FIRST=": true, "SECOND=": true, "SECOND=2\x00": true, "SECOND=\x00": false, "IRST=": false, "THIRD=": false,
	} {
		if got := startedWith(pid, entry); got != want {
			t.Errorf("startedWith(%q) = %v", entry, got)
		}
	}
	if err := stdin.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if startedWith(pid, "FIRST=") {
		t.Error("a process that is gone was started with something")
	}
}

// ancestor prints who started it.
func ancestor([]string) int {
	by, err := startedBy("TEST_RANK")
	fmt.Print(by, err)
	return 0
}

// Ranks under any number of wrapper scripts name the same process: the one that started them, here
// this test.
func TestStartedByPassesOverWrappers(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	self, err := readProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("pid %d started %d<nil>", self.pid, self.start)
	for rank, command := range []string{`exec "$0"`, `"$0"; exit $?`, `sh -c '"$0"; exit $?' "$0"; exit $?`} {
		cmd := exec.Command("sh", "-c", command, exe)
		cmd.Env = append(os.Environ(), roleVar+"=ancestor", fmt.Sprint("TEST_RANK=", rank), "GORACE=atexit_sleep_ms=0")
		out, err := cmd.Output()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s: got %s, %v, want %s", command, out, err, want)
		}
	}
}
