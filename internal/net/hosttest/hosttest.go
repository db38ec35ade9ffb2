package hosttest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Options are the settings of hosts. The zero value is the default.
type Options struct {
	// MTU is the maximum packet size of the links, in bytes. 0 means 1500, as on Ethernet.
	MTU int
	// Share lists folders in /tmp or /dev/shm that all hosts see at the same path, like a network
	// file system.
	Share []string
}

// maxHosts is the number of addresses of the bridge's network.
const maxHosts = 250

// Hosts is a set of hosts that a bridge joins.
//
// Its methods end the test on an error, so only the goroutine of the test may call them.
type Hosts struct {
	t      testing.TB
	opt    Options
	bridge *thread
	close  sync.Once
	hosts  []host
}

// host is the state of one host. init is process 1, or nil after the host was killed.
type host struct {
	init *exec.Cmd
	loss int // percent
}

// New makes n hosts with the names host0, host1 and so on. They end with the test, whose name
// contains Host: so `make test-hosts` finds it.
//
// Errors: without Linux, root or the command ip the test is skipped, or fails if Required. It is
// skipped if SYMGRAD_TEST_HOSTS is 0.
func New(t testing.TB, n int, opt Options) *Hosts {
	t.Helper()
	if !strings.Contains(t.Name(), "Host") {
		t.Fatalf("make test-hosts does not run %s: put Host in the name of a test on hosts", t.Name())
	}
	need(t)
	if n < 1 || n > maxHosts {
		t.Fatalf("%d hosts: use 1 to %d", n, maxHosts)
	}
	if opt.MTU == 0 {
		opt.MTU = 1500
	}
	bridge, err := newThread()
	if err != nil {
		Missing(t, "no network namespace: %v", err)
	}
	h := &Hosts{t: t, opt: opt, bridge: bridge, hosts: make([]host, n)}
	t.Cleanup(h.Close)
	h.ip("link add "+bridgeName+" type bridge forward_delay 0", "link set "+bridgeName+" up")
	for i := range n {
		h.boot(i)
	}
	return h
}

// need skips the test where hosts are impossible.
func need(t testing.TB) {
	t.Helper()
	switch {
	case os.Getenv(hostsVar) == "0" && !Required():
		t.Skip("make test-hosts runs it")
	case runtime.GOOS != "linux":
		Missing(t, "hosts of namespaces need Linux; this is %s", runtime.GOOS)
	case os.Geteuid() != 0:
		Missing(t, "hosts of namespaces need root; this is user %d", os.Geteuid())
	}
	needProgram(t, "ip", "iproute2")
}

// needProgram skips the test if a program is missing.
func needProgram(t testing.TB, name, debianPackage string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		Missing(t, "needs the program %s: install the package %s", name, debianPackage)
	}
}

// Name returns the host name.
func (h *Hosts) Name(host int) string { return fmt.Sprintf("host%d", host) }

// Addr returns the IPv4 address of the host on the bridge.
func (h *Hosts) Addr(host int) string { return fmt.Sprintf("10.77.0.%d", host+1) }

// Names in the namespace of the bridge.
const (
	bridgeName = "hosttest"
	linkPrefix = "hosttest-"
)

// link returns the name of the bridge's end of a host's link.
func (h *Hosts) link(host int) string { return fmt.Sprintf("%s%d", linkPrefix, host) }

// spec is the description of a host that its process 1 gets.
type spec struct {
	Name    string
	Addr    string // with the length of the prefix
	MAC     string // of the number of the host, so that peers find a restarted host
	Names   string // content of /etc/hosts
	MTU     int
	Visible []string // folders of the machine, hidden otherwise
}

// boot starts process 1 of a host and connects the host with the bridge.
func (h *Hosts) boot(i int) {
	h.t.Helper()
	text, err := json.Marshal(h.spec(i))
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{roleInit, string(text)}
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, ownNamespaces()
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		h.t.Fatal(err)
	}
	h.bridge.do(func() { err = cmd.Start() }) // this thread's end is the end of the host
	if err != nil {
		Missing(h.t, "no namespaces for %s: %v", h.Name(i), err)
	}
	h.hosts[i] = host{init: cmd}
	h.ip(fmt.Sprintf("link add %s mtu %d type veth peer name eth0 netns %d", h.link(i), h.opt.MTU, cmd.Process.Pid),
		fmt.Sprintf("link set %s master %s up", h.link(i), bridgeName))
	if _, err := io.WriteString(in, "connected\n"); err != nil {
		h.t.Fatalf("%s: %v", h.Name(i), err)
	}
	if answer, err := bufio.NewReader(out).ReadString('\n'); answer != ready {
		h.t.Fatalf("%s did not start: %s %v", h.Name(i), answer, err)
	}
}

// ready is the answer of process 1 when its host can run commands.
const ready = "ready\n"

func (h *Hosts) spec(i int) spec {
	own, err1 := os.Executable()
	work, err2 := os.Getwd()
	if err := errors.Join(err1, err2); err != nil {
		h.t.Fatal(err)
	}
	names := "127.0.0.1 localhost\n"
	for k := range h.hosts {
		names += h.Addr(k) + " " + h.Name(k) + "\n"
	}
	return spec{h.Name(i), h.Addr(i) + "/24", fmt.Sprintf("02:00:00:00:00:%02x", i+1), names, h.opt.MTU, append([]string{filepath.Dir(own), work}, h.opt.Share...)}
}

// Command returns a command that runs on a host, with the files and the working directory of cmd.
// The signals HUP, INT, QUIT, TERM, USR1 and USR2 are passed on. Killing cmd kills the program, but
// not its children. TMPDIR is /tmp, which is the host's.
//
// Errors: Start returns one for a killed host. The exit code is 128 + the signal for a program that
// a signal ended, but KILL, INT, HUP and TERM end cmd too.
func (h *Hosts) Command(host int, name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{roleEnter}
	if init := h.hosts[host].init; init == nil {
		cmd.Err = fmt.Errorf("%s is not running: it was killed, or the hosts are closed", h.Name(host))
	} else {
		cmd.Args = append(cmd.Args, fmt.Sprint(init.Process.Pid), name)
	}
	cmd.Args = append(cmd.Args, args...)
	return cmd
}

// run runs a command on a host and ends the test if it fails.
func (h *Hosts) run(host int, name string, args ...string) {
	h.t.Helper()
	if out, err := h.Command(host, name, args...).CombinedOutput(); err != nil {
		h.t.Fatalf("%s: %s: %v: %s", h.Name(host), name, err, out)
	}
}

// Kill ends a host like a loss of power: its link is down before its processes end, so no peer gets
// a FIN or RST.
//
// Returns: when all processes of the host have ended.
func (h *Hosts) Kill(host int) {
	h.t.Helper()
	if h.hosts[host].init == nil {
		return
	}
	h.Cut(host)
	h.end(host)
	h.setLoss(host, 0)
	h.tryIP("link del " + h.link(host)) // unless the end of the host has deleted it already
}

// end kills process 1 of a host, and by that all its processes, and waits for their end.
func (h *Hosts) end(host int) {
	init := h.hosts[host].init
	if init == nil {
		return
	}
	h.hosts[host].init = nil
	_ = init.Process.Kill()
	_ = init.Wait() // its error is the signal
}

// Restart starts a killed host again, with its name and address. Its files in /tmp and the limit of
// its bandwidth are gone.
func (h *Hosts) Restart(host int) {
	h.t.Helper()
	if h.hosts[host].init != nil {
		h.t.Fatalf("%s is running: kill it first", h.Name(host))
	}
	h.boot(host)
}

// Stop sends SIGSTOP to all processes of a host, except process 1. Later commands run.
func (h *Hosts) Stop(host int) {
	h.t.Helper()
	h.run(host, "sh", "-c", "kill -s STOP -- -1")
}

// Continue sends SIGCONT to all processes of a host.
func (h *Hosts) Continue(host int) {
	h.t.Helper()
	h.run(host, "sh", "-c", "kill -s CONT -- -1")
}

// Close ends all hosts and the bridge. New calls it at the end of the test. Idempotent.
//
// Returns: when all processes of the hosts have ended.
func (h *Hosts) Close() {
	h.close.Do(func() {
		for i := range h.hosts {
			h.end(i)
		}
		h.bridge.stop()
	})
}

// lines joins commands of a batch.
func lines(commands ...string) io.Reader {
	return strings.NewReader(strings.Join(commands, "\n") + "\n")
}
