//go:build linux

package launch

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/net/hosttest"
)

// hostNode starts the launcher of one of two nodes, with two ranks that print their start and wait.
func hostNode(t *testing.T, h *hosttest.Hosts, node int, secret string) *program {
	t.Helper()
	data, err := json.Marshal(map[string]any{
		"N": 2, "Nodes": 2, "Node": node, "Store": h.Addr(0) + ":29500", "Wait": patience, "MaxRestarts": 9, "Pause": 1,
		"Args": []string{"-c", `echo started again: ${SYMGRAD_RESTARTS:-0}; exec sleep 1000`},
	})
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, cmd: h.Command(node, exe, string(data), secret)}
	p.cmd.Env = append(p.cmd.Environ(), roleVar+"=shell")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// The other host waits for a host that is killed, and begins again with it. A cut link is a loss
// too.
func TestLostHostTakesPartInTheNextStart(t *testing.T) {
	h := hosttest.New(t, 2, hosttest.Options{})
	secret := NewSecret()
	nodes := [2]*program{hostNode(t, h, 0, secret), hostNode(t, h, 1, secret)}
	for node, p := range nodes {
		p.err.waitFor(t, fmt.Sprintf("node %d of 2 waits up to %v for the others at %s:29500\n", node, patience, h.Addr(0)))
		p.err.waitFor(t, fmt.Sprintf("all 2 nodes have joined: this one starts 2 of 4 ranks, from rank %d\n", 2*node))
	}
	generation := 0
	expect := func() {
		t.Helper()
		for _, p := range nodes {
			p.out.waitFor(t, fmt.Sprintf("started again: %d\n", generation))
		}
	}
	for lost := range 2 {
		expect()
		h.Kill(lost)
		_ = nodes[lost].cmd.Wait()
		h.Restart(lost)
		back := time.Now()
		nodes[lost] = hostNode(t, h, lost, secret)
		generation++
		expect()
		t.Logf("host %d killed: all ranks run again %v after its return", lost, time.Since(back))
	}
	h.Cut(1)
	cut := time.Now()
	for _, p := range nodes {
		p.err.waitFor(t, "no heartbeat for 3.5s")
	}
	noticed := time.Since(cut)
	h.Heal(1)
	healed := time.Now()
	generation++
	expect()
	t.Logf("cut link: noticed after %v, all ranks run again %v after it was healed", noticed, time.Since(healed))
	for _, p := range nodes {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}
