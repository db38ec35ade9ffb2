package hosttest

import (
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
)

// thread is a thread of the test process with a network namespace of its own, which has the bridge.
// The thread lives until stop, because the kernel kills the hosts when their parent thread ends.
type thread struct {
	work  chan func()
	ended chan struct{}
}

func newThread() (*thread, error) {
	th := &thread{make(chan func()), make(chan struct{})}
	started := make(chan error)
	go th.run(started)
	return th, <-started
}

// run is the thread. The main thread cannot be it, as Go never ends that one, and its namespaces
// are those of the process in /proc. A goroutine that runs there leaves the work to another one.
func (th *thread) run(started chan<- error) {
	runtime.LockOSThread() // without unlock, except on the main thread: the thread ends with the goroutine
	if onMainThread() {
		defer runtime.UnlockOSThread()
		go th.run(started)
		<-th.ended
		return
	}
	defer close(th.ended)
	err := unshareNetwork()
	started <- err
	if err != nil {
		return
	}
	for f := range th.work {
		f()
	}
}

// do runs f on the thread. Processes that f starts are in the namespace of the bridge.
func (th *thread) do(f func()) {
	done := make(chan struct{})
	th.work <- func() { defer close(done); f() }
	<-done
}

// stop ends the thread.
func (th *thread) stop() {
	close(th.work)
	<-th.ended
}

// output runs a command in the namespace of the bridge and returns its output.
func (h *Hosts) output(in io.Reader, name string, args ...string) (out string, err error) {
	h.bridge.do(func() {
		var text []byte
		cmd := exec.Command(name, args...)
		cmd.Stdin = in
		text, err = cmd.CombinedOutput()
		out = strings.TrimSpace(string(text))
	})
	return out, err
}

// tryIP runs commands of ip in the namespace of the bridge.
func (h *Hosts) tryIP(commands ...string) error {
	out, err := h.output(lines(commands...), "ip", "-batch", "-")
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(commands, ", "), err, out)
	}
	return nil
}

// ip is tryIP, and ends the test on an error.
func (h *Hosts) ip(commands ...string) {
	h.t.Helper()
	if err := h.tryIP(commands...); err != nil {
		h.t.Fatal(err)
	}
}

// Cut takes down the link of a host in the bridge. Packets are lost, and no peer gets a FIN or RST.
func (h *Hosts) Cut(host int) {
	h.t.Helper()
	h.ip("link set " + h.link(host) + " down")
}

// Heal takes up the link of a host after Cut.
func (h *Hosts) Heal(host int) {
	h.t.Helper()
	h.ip("link set " + h.link(host) + " up")
}

// Loss drops percent of the packets from and to a host, each at random. 0 ends the losses.
//
// Errors: without the command nft, or its support in the kernel, the test is skipped, or fails if
// Required.
func (h *Hosts) Loss(host, percent int) {
	h.t.Helper()
	if percent < 0 || percent > 100 {
		h.t.Fatalf("a loss of %d percent: use 0 to 100", percent)
	}
	needProgram(h.t, "nft", "nftables")
	h.setLoss(host, percent)
}

func (h *Hosts) setLoss(host, percent int) {
	h.t.Helper()
	if h.hosts[host].loss == percent {
		return
	}
	h.hosts[host].loss = percent
	if out, err := h.output(strings.NewReader(h.lossRules()), "nft", "-f", "-"); err != nil {
		Missing(h.t, "nft cannot drop packets of a bridge: %v: %s", err, out)
	}
}

// lossRules returns commands of nft that replace the rules for all hosts, in one transaction.
func (h *Hosts) lossRules() string {
	var b strings.Builder
	b.WriteString("table bridge hosttest\ndelete table bridge hosttest\n") // the first line makes a missing table
	b.WriteString("table bridge hosttest {\nchain loss {\ntype filter hook forward priority 0; policy accept\n")
	for i, s := range h.hosts {
		chance := ""
		switch {
		case s.loss == 0:
			continue
		case s.loss < 100: // numgen knows only numbers below 100
			chance = fmt.Sprintf("numgen random mod 100 < %d", s.loss)
		}
		fmt.Fprintf(&b, "iifname %[1]q %[2]s drop\noifname %[1]q %[2]s drop\n", h.link(i), chance)
	}
	b.WriteString("}\n}\n")
	return b.String()
}

// Bandwidth limits the link of a host to bits per second in each direction. 0 ends the limit.
//
// Errors: without the token bucket filter (tbf) in the kernel the test is skipped, or fails if
// Required.
func (h *Hosts) Bandwidth(host int, bits int64) {
	h.t.Helper()
	needProgram(h.t, "tc", "iproute2")
	to, from := tbf(h.link(host), bits), tbf("eth0", bits)
	if out, err := h.output(nil, "tc", to...); err != nil {
		Missing(h.t, "tc cannot limit the bandwidth: %v: %s", err, out)
	}
	h.run(host, "tc", from...)
}

// bucketBytes is the size of the token bucket: a link moves so many bytes at once after a pause.
// The largest packet must fit, which the kernel later cuts to the MTU: 64 KiB.
const bucketBytes = 64 << 10

// tbf returns the arguments of tc. Packets wait at most 100 ms, as in the buffer of a small switch.
func tbf(link string, bits int64) []string {
	if bits == 0 {
		return strings.Fields("qdisc replace dev " + link + " root noqueue")
	}
	return strings.Fields(fmt.Sprintf("qdisc replace dev %s root tbf rate %dbit burst %d latency 100ms", link, bits, bucketBytes))
}
