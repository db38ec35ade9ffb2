//go:build linux

package launch

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cluster is a job on several nodes, which are launchers on the loopback interface.
type cluster struct {
	*stage
	store, secret string
	wait, grace   time.Duration
	restarts      int
	nodes         []*program
}

// freeAddress returns an address of the loopback interface that no process listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func newCluster(t *testing.T) *cluster {
	return &cluster{stage: newStage(t), store: freeAddress(t), secret: NewSecret(), wait: patience, grace: patience}
}

// launch starts the launcher of one node with n ranks.
func (c *cluster) launch(nodes, node, n int) *program {
	c.t.Helper()
	data, err := json.Marshal(map[string]any{"N": n, "Nodes": nodes, "Node": node, "Store": c.store, "Wait": c.wait, "Grace": c.grace, "MaxRestarts": c.restarts, "Pause": 1})
	if err != nil {
		c.t.Fatal(err)
	}
	p := c.start("node", string(data), c.secret)
	c.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended, unless the test failed
		_ = p.cmd.Wait()
	})
	return p
}

// play starts a node for each number of ranks, and returns all ranks.
func (c *cluster) play(sizes ...int) []*hand {
	c.t.Helper()
	total := 0
	for node, n := range sizes {
		c.nodes = append(c.nodes, c.launch(len(sizes), node, n))
		total += n
	}
	return c.enter(total)
}

// ends waits for all launchers, which must end with code, and returns their texts.
func (c *cluster) ends(code int) []string {
	c.t.Helper()
	var texts []string
	for node, p := range c.nodes {
		if got := p.wait(); got != code {
			c.t.Errorf("node %d ends with code %d, want %d:\n%s", node, got, code, &p.err)
		}
		texts = append(texts, p.err.String())
	}
	return texts
}

func wantText(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("%q lacks %q", text, want)
	}
}

func TestRanksAreNumberedNodeByNode(t *testing.T) {
	c := newCluster(t)
	ranks := c.play(1, 3, 2)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for rank, want := range []string{
		"LocalRank:0 LocalSize:1 Node:0 Nodes:3", "LocalRank:0 LocalSize:3 Node:1 Nodes:3", "LocalRank:1 LocalSize:3 Node:1 Nodes:3",
		"LocalRank:2 LocalSize:3 Node:1 Nodes:3", "LocalRank:0 LocalSize:2 Node:2 Nodes:3", "LocalRank:1 LocalSize:2 Node:2 Nodes:3",
	} {
		wantText(t, ranks[rank].ask("whoami"), fmt.Sprintf("{Rank:%d Size:6 %s Launcher:symgrad", rank, want))
		if got := ranks[rank].ask("getenv SYMGRAD_SECRET"); got != "" {
			t.Errorf("rank %d has the secret", rank)
		}
	}
	for _, r := range ranks {
		r.tell("meet")
	}
	for _, r := range ranks {
		if got := r.hear(); got != "<nil>" {
			t.Errorf("rank %d on %s: %s", r.rank, host, got)
		}
	}
	for _, r := range ranks {
		r.make("leave")
		r.tell("exit 0")
	}
	for node, text := range c.ends(0) {
		starts := []string{"1 of 6 ranks, from rank 0", "3 of 6 ranks, from rank 1", "2 of 6 ranks, from rank 4"}[node]
		if !strings.HasSuffix(text, "symgrad: all 3 nodes have joined: this one starts "+starts+"\n") || strings.Count(text, "\n") != 2 {
			t.Errorf("node %d prints %s", node, text)
		}
	}
}

func TestFailureOfARankReachesAllNodes(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		culprit int
		command string
		code    int
		how     string
	}{
		{0, "exit 3", 3, "exited with code 3"},
		{2, "exit 4", 4, "exited with code 4"},
		{2, "kill", 137, "was killed by signal: killed"},
	} {
		t.Run(fmt.Sprint(tc.culprit, " ", tc.command), func(t *testing.T) {
			c := newCluster(t)
			ranks := c.play(2, 2)
			for _, r := range ranks {
				r.tell("meet")
			}
			for _, r := range ranks {
				r.hear()
			}
			for _, r := range ranks {
				if r.rank != tc.culprit {
					r.tell("get")
				}
			}
			ranks[tc.culprit].tell(tc.command)
			texts := c.ends(tc.code)
			home := tc.culprit / 2
			wantText(t, texts[home], fmt.Sprintf("rank %d (pid %d) %s", tc.culprit, ranks[tc.culprit].pid, tc.how))
			wantText(t, texts[1-home], fmt.Sprintf("rank %d (pid %d) on node %d (%s) %s", tc.culprit, ranks[tc.culprit].pid, home, host, tc.how))
			wantText(t, texts[1-home], fmt.Sprintf("rank %d died: %s on node %d (%s)", tc.culprit, tc.how, home, host))
		})
	}
}

func TestRanksThatDoNotEndAreKilledOnAllNodes(t *testing.T) {
	c := newCluster(t)
	c.grace = 100 * time.Millisecond
	ranks := c.play(1, 1)
	ranks[1].make("deaf")
	ranks[0].tell("exit 5")
	wantText(t, c.ends(5)[1], "was killed by signal: killed, stopped by the launcher")
	ranks[1].gone()
}

func TestLossOfALauncherEndsTheJob(t *testing.T) {
	for node, want := range map[int]string{
		0: "the launcher of node 0 at 127.0.0.1:",
		1: "): its launcher is lost: connection closed",
	} {
		t.Run(fmt.Sprint("node ", node), func(t *testing.T) {
			c := newCluster(t)
			c.grace = 100 * time.Millisecond
			ranks := c.play(1, 2)
			for _, r := range ranks {
				r.make("deaf")
			}
			if err := c.nodes[node].cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			other := c.nodes[1-node]
			if code := other.wait(); code != ExitPeerLost {
				t.Errorf("got code %d, want %d", code, ExitPeerLost)
			}
			wantText(t, other.err.String(), want)
			bury(ranks)
		})
	}
}

func TestSignalEndsAllNodes(t *testing.T) {
	c := newCluster(t)
	c.play(1, 1)
	if err := c.nodes[1].cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	texts := c.ends(143)
	wantText(t, texts[0], "terminated on node 1 (")
	wantText(t, texts[1], "terminated: passed on to 1 ranks")
}

// The goodbye of a rank that joined the store is the mark of its success.
func TestJobWithoutTheMarkOfRank0HasFailed(t *testing.T) {
	c := newCluster(t)
	ranks := c.play(1, 1)
	for _, r := range ranks {
		r.tell("meet")
	}
	for _, r := range ranks {
		r.hear()
	}
	ranks[0].tell("exit 0")
	ranks[0].gone()
	ranks[1].make("leave")
	ranks[1].tell("exit 0")
	for _, text := range c.ends(1) {
		wantText(t, text, "the job did not end well: rank 0 died: exited with code 0 without leaving")
	}
}
