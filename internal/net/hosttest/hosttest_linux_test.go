package hosttest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestHostsTalkOverTCP(t *testing.T) {
	h := New(t, 3, Options{})
	server := helper(t, h, 1, "echo")
	for _, host := range []int{0, 1, 2} {
		client := helper(t, h, host, "talk", h.Name(1), guard.String())
		client.write("hello")
		server.expect("hello")
		client.expect("sent", "hello")
	}
	helper(t, h, 0, "talk", h.Addr(1), guard.String())
}

func TestHostsOfTwoSetsNeverMeet(t *testing.T) {
	a, b := New(t, 2, Options{}), New(t, 2, Options{})
	helper(t, a, 1, "echo")
	helper(t, a, 0, "talk", a.Addr(1), guard.String())
	own, _ := os.Executable()
	out, err := b.Command(0, own, "talk", b.Addr(1), guard.String()).Output()
	if err == nil || !strings.Contains(string(out), "connection refused") {
		t.Errorf("talk in the other set: %v, %s", err, out)
	}
}

func TestHostHasFilesOfItsOwn(t *testing.T) {
	shared := t.TempDir()
	h := New(t, 2, Options{Share: []string{shared}})
	for _, folder := range []string{"/tmp", "/dev/shm"} {
		h.run(0, "touch", folder+"/hosttest-file")
		for _, cmd := range []*exec.Cmd{h.Command(1, "ls", folder), exec.Command("ls", folder)} {
			if out, err := cmd.Output(); err != nil || strings.Contains(string(out), "hosttest-file") {
				t.Errorf("%s: the file is visible elsewhere, %v", folder, err)
			}
		}
	}
	h.run(0, "touch", filepath.Join(shared, "file"))
	h.run(1, "test", "-e", filepath.Join(shared, "file"))
	if _, err := os.Stat(filepath.Join(shared, "file")); err != nil {
		t.Error(err)
	}
}

func TestHostCommandActsLikeALocalOne(t *testing.T) {
	h := New(t, 1, Options{})
	for script, want := range map[string]string{
		"exit 0": "<nil>", "exit 3": "exit status 3", "kill -KILL $$": "signal: killed", "kill -TERM $$": "signal: terminated",
		"kill -ABRT $$": "exit status 134", "cat <&4 && echo x >&3": "<nil>", "test $PWD = /usr/lib": "<nil>",
		"test $TMPDIR = /tmp && test $(hostname) = host0": "<nil>",
	} {
		cmd := h.Command(0, "sh", "-c", script)
		var out bytes.Buffer
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = "/usr/lib", &out, &out, []*os.File{null, null}
		if err := cmd.Run(); fmt.Sprint(err) != want {
			t.Errorf("%s: %v, want %s\n%s", script, err, want, out.String())
		}
	}
	for name, dir := range map[string]string{"no-such-program": "/", "true": t.TempDir()} {
		cmd := h.Command(0, name)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); fmt.Sprint(err) != "exit status 127" || len(out) == 0 {
			t.Errorf("%s in %s: %v, %s", name, dir, err, out)
		}
	}
}

func TestHostCommandPassesSignalsOn(t *testing.T) {
	h := New(t, 1, Options{})
	p := start(t, h.Command(0, "sh", "-c", `trap "echo USR1" USR1; trap "echo TERM; exit 5" TERM; echo ready; while :; do read line; done`))
	p.expect("ready")
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM} {
		if err := p.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		p.write("the shell handles the signal after a line")
		if got := p.read(); got != map[syscall.Signal]string{syscall.SIGUSR1: "USR1", syscall.SIGTERM: "TERM"}[s] {
			t.Errorf("after %v: %s", s, got)
		}
	}
	if err := p.cmd.Wait(); fmt.Sprint(err) != "exit status 5" {
		t.Error(err)
	}
}

func TestKilledHostCommandEndsItsProgram(t *testing.T) {
	h := New(t, 1, Options{})
	p := start(t, h.Command(0, "sh", "-c", "echo $$; exec sleep 1000"))
	pid := p.read()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the end of the program", func() bool {
		return h.Command(0, "test", "-d", "/proc/"+pid).Run() != nil
	})
}

func TestCutHostIsSilentUntilHeal(t *testing.T) {
	h := New(t, 2, Options{})
	server := helper(t, h, 1, "echo")
	client := helper(t, h, 0, "talk", h.Addr(1), guard.String())
	client.write("before")
	server.expect("before")
	client.expect("sent", "before")

	h.Cut(1)
	client.write("during")
	client.expect("sent")
	own, _ := os.Executable()
	if out, err := h.Command(0, own, "talk", h.Addr(1), "300ms").Output(); err == nil || strings.Contains(string(out), "connected") {
		t.Errorf("a connection through a cut link: %v, %s", err, out)
	}
	h.run(1, "sh", "-c", "hostname") // commands do not use the link
	h.Heal(1)

	server.expect("during")
	client.expect("during")
	helper(t, h, 0, "talk", h.Addr(1), guard.String())
}

func TestKillEndsAllProcessesOfAHost(t *testing.T) {
	h := New(t, 2, Options{})
	helper(t, h, 1, "echo")
	helper(t, h, 0, "talk", h.Addr(1), guard.String())
	p := start(t, h.Command(1, "sh", "-c", "setsid sleep 1000 & echo started; sleep 1000"))
	p.expect("started")
	spaces := namespacesOf(t, h)

	h.Kill(1)
	if users := usersOf(t, spaces[1:2]); len(users) > 0 {
		t.Errorf("processes of the killed host: %v", users)
	}
	if err := p.cmd.Wait(); fmt.Sprint(err) != "signal: killed" {
		t.Errorf("its command: %v", err)
	}
	if err := h.Command(1, "true").Run(); err == nil || !strings.Contains(err.Error(), "host1 is not running") {
		t.Errorf("a later command: %v", err)
	}
	const established = "01"
	if states := tcpStates(t, h, 0, h.Addr(1)); len(states) != 1 || states[0] != established {
		t.Errorf("states %v of the peer's connection, want established: no FIN or RST", states)
	}

	h.Kill(1)
	h.Restart(1)
	helper(t, h, 1, "echo")
	helper(t, h, 0, "talk", h.Addr(1), guard.String())
}

func TestStoppedHostContinues(t *testing.T) {
	h := New(t, 2, Options{})
	server := helper(t, h, 1, "echo")
	client := helper(t, h, 0, "talk", h.Addr(1), guard.String())
	h.Stop(1)
	var states string
	waitFor(t, "the stop of all processes", func() bool {
		out, err := h.Command(1, "sh", "-c", "cat /proc/[0-9]*/stat | grep -v '^1 \\|(cat)\\|(sh)\\|(grep)'").Output()
		if err != nil {
			t.Fatal(err)
		}
		states = string(out)
		return strings.Count(states, "\n") == strings.Count(states, ") T ")
	})
	if n := strings.Count(states, "\n"); n != 2 { // echo and the server for agents
		t.Errorf("%d processes, want 2:\n%s", n, states)
	}
	client.write("during")
	client.expect("sent")
	h.Continue(1)
	server.expect("during")
	client.expect("during")
}

// TestLossOfHostDropsItsShare sends 900 datagrams at once: fewer than the 1000 packets that the
// kernel's queue of a processor has, so that only the rule drops some.
//
// The number of dropped ones is binomial. The bounds are 6 standard deviations from the mean, which
// a correct rule misses once in 500 million runs.
func TestLossOfHostDropsItsShare(t *testing.T) {
	h := New(t, 3, Options{})
	own, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if err := roomForAll(own); err != nil {
		Missing(t, "needs the root of the machine: %v", err)
	}
	receiver := helper(t, h, 1, "count")
	sender := helper(t, h, 0, "send", h.Addr(1))
	const sent = 900
	for _, c := range []struct{ percent, least, most int }{
		{0, 0, 0}, {20, 180 - 72, 180 + 72}, {50, 450 - 90, 450 + 90}, {100, sent, sent}, {0, 0, 0},
	} {
		h.Loss(1, c.percent)
		h.Loss(2, 100) // of another host
		sender.write(strconv.Itoa(sent))
		sender.expect("sent")
		h.Loss(1, 0)
		sender.write("0")
		sender.expect("sent")
		arrived, err := strconv.Atoi(receiver.read())
		if err != nil {
			t.Fatal(err)
		}
		dropped := sent - arrived
		t.Logf("%d %%: %d of %d datagrams dropped", c.percent, dropped, sent)
		if dropped < c.least || dropped > c.most {
			t.Errorf("loss of %d %%: %d of %d datagrams dropped, want %d to %d", c.percent, dropped, sent, c.least, c.most)
		}
	}
}

// TestBandwidthOfHostIsAnUpperBound measures that a link moves at most its bucket plus its rate
// times the time. A slow machine only takes longer.
func TestBandwidthOfHostIsAnUpperBound(t *testing.T) {
	h := New(t, 2, Options{})
	h.Bandwidth(1, 16e6)
	const bytes = 512 << 10
	const least = time.Duration((bytes - bucketBytes) * 8 * 1e9 / 16e6)
	own, _ := os.Executable()
	for _, c := range [][2]int{{0, 1}, {1, 0}} {
		helper(t, h, c[1], "sink")
		out, err := h.Command(c[0], own, "flood", h.Addr(c[1]), strconv.Itoa(bytes)).Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		ns, err := strconv.Atoi(strings.TrimSpace(string(out)))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s to %s: %v, at least %v", h.Name(c[0]), h.Name(c[1]), time.Duration(ns), least)
		if time.Duration(ns) < least {
			t.Errorf("%s to %s: %d B in %v, want at least %v", h.Name(c[0]), h.Name(c[1]), bytes, time.Duration(ns), least)
		}
	}
	h.Bandwidth(1, 0)
	if out, err := h.Command(1, "tc", "qdisc", "show").Output(); err != nil || strings.Contains(string(out), "tbf") {
		t.Errorf("after the end of the limit: %v, %s", err, out)
	}
}
