package hosttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// waitFor asks again and again until ok. The guard only ends a test that hangs.
func waitFor(t *testing.T, event string, ok func() bool) {
	t.Helper()
	for late := time.Now().Add(guard); !ok(); runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatalf("no end of the wait for %s", event)
		}
	}
}

// kinds of namespaces, as /proc names them.
var spaceKinds = []string{"net", "uts", "ipc", "mnt", "pid"}

// spacesOf returns the namespaces of a process or thread, such as "net:[4026532000]".
func spacesOf(folder string) (spaces []string) {
	for _, kind := range spaceKinds {
		if s, err := os.Readlink(filepath.Join(folder, "ns", kind)); err == nil {
			spaces = append(spaces, s)
		}
	}
	return spaces
}

// namespacesOf returns the namespaces of each host, and those of the bridge's thread last.
func namespacesOf(t *testing.T, h *Hosts) (all [][]string) {
	t.Helper()
	for _, s := range h.hosts {
		all = append(all, spacesOf(fmt.Sprintf("/proc/%d", s.init.Process.Pid)))
	}
	h.bridge.do(func() { all = append(all, spacesOf("/proc/thread-self")[:1]) })
	if own := spacesOf("/proc/self"); slices.Contains(slices.Concat(all...), own[0]) || len(own) != len(spaceKinds) {
		t.Fatalf("namespaces %v of the test in those of the hosts: %v", own, all)
	}
	return all
}

// ended reports whether a thread has ended, with or without its parent knowing.
func ended(folder string) bool {
	text, err := os.ReadFile(filepath.Join(folder, "stat"))
	return err != nil || strings.Contains(string(text), ") Z ") || strings.Contains(string(text), ") X ")
}

// usersOf returns the threads and mounts that use one of the namespaces.
func usersOf(t *testing.T, spaces [][]string) (users []string) {
	t.Helper()
	list := slices.Concat(spaces...)
	threads, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	if err != nil || len(threads) == 0 {
		t.Fatalf("%d threads: %v", len(threads), err)
	}
	for _, folder := range threads {
		if !ended(folder) && slices.ContainsFunc(spacesOf(folder), func(s string) bool { return slices.Contains(list, s) }) {
			users = append(users, folder)
		}
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if strings.Contains(string(text), s) {
			users = append(users, "a mount of "+s)
		}
	}
	return users
}

// devices returns the network devices of the test process with names that hosts use.
func devices(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && (name == bridgeName || strings.HasPrefix(name, linkPrefix)) {
			names = append(names, name)
		}
	}
	return names
}

// tcpStates returns the states, as hexadecimal numbers, of a host's connections to an address.
func tcpStates(t *testing.T, h *Hosts, host int, addr string) (states []string) {
	t.Helper()
	out, err := h.Command(host, "cat", "/proc/net/tcp").Output()
	if err != nil {
		t.Fatal(err)
	}
	var a [4]byte
	if _, err := fmt.Sscanf(addr, "%d.%d.%d.%d", &a[0], &a[1], &a[2], &a[3]); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line) // sl, local address, remote address, state
		if strings.HasPrefix(f[2], fmt.Sprintf("%02X%02X%02X%02X:", a[3], a[2], a[1], a[0])) {
			states = append(states, f[3])
		}
	}
	return states
}

func TestClosedHostsLeaveNothing(t *testing.T) {
	h := New(t, 2, Options{})
	start(t, h.Command(1, "sh", "-c", "setsid sleep 1000 & sleep 1000"))
	h.Loss(0, 10)
	spaces := namespacesOf(t, h)
	if users := usersOf(t, spaces); len(users) < 5 { // bridge, 2 times process 1 and server
		t.Errorf("users of the namespaces: %v", users)
	}
	if names := devices(t); len(names) > 0 {
		t.Errorf("network devices of the machine: %v", names)
	}
	h.Close()
	h.Close()
	if users := usersOf(t, spaces); len(users) > 0 {
		t.Errorf("users of the namespaces after Close: %v", users)
	}
}

// makeHosts is the variable that makes TestHostsOfAnotherProcess run.
const makeHosts = "HOSTTEST_MAKE_HOSTS"

// TestHostsOfAnotherProcess makes hosts with processes, prints the namespaces and the numbers of
// the processes, and waits for the end of its input.
func TestHostsOfAnotherProcess(t *testing.T) {
	if os.Getenv(makeHosts) == "" {
		t.Skip("runs only as a process of TestHostsOfAKilledProcessEnd")
	}
	h := New(t, 2, Options{})
	numbers := []string{strconv.Itoa(os.Getpid())}
	for i := range h.hosts {
		p := start(t, h.Command(i, "sh", "-c", "setsid sleep 1000 & echo started; sleep 1000"))
		p.expect("started")
		numbers = append(numbers, strconv.Itoa(p.cmd.Process.Pid), strconv.Itoa(h.hosts[i].init.Process.Pid))
	}
	h.Stop(1)
	for _, s := range namespacesOf(t, h) {
		fmt.Println("spaces", strings.Join(s, " "))
	}
	fmt.Println("processes", strings.Join(numbers, " "))
	_, _ = os.Stdin.Read(make([]byte, 1))
}

func TestHostsOfAKilledProcessEnd(t *testing.T) {
	need(t)
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(own, "-test.run=^TestHostsOfAnotherProcess$")
	cmd.Env = append(os.Environ(), makeHosts+"=1")
	p := start(t, cmd)
	var spaces [][]string
	words := strings.Fields(p.read())
	for ; words[0] != "processes"; words = strings.Fields(p.read()) {
		if words[0] != "spaces" {
			t.Fatalf("the other process: %v", words)
		}
		spaces = append(spaces, words[1:])
	}
	var ends []int
	for _, number := range words[1:] {
		pid, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		ends = append(ends, fd)
	}
	if len(spaces) != 3 || len(ends) != 5 || len(usersOf(t, spaces)) == 0 {
		t.Fatalf("spaces %v, processes %v", spaces, words)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for i, fd := range ends {
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(guard.Milliseconds())); n != 1 {
			t.Errorf("process %s still runs: %v", words[1+i], err)
		}
	}
	if users := usersOf(t, spaces); len(users) > 0 {
		t.Errorf("users of the namespaces: %v", users)
	}
}
