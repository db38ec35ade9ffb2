//go:build linux

package launch

import (
	"fmt"
	"testing"
)

// meetAndEnd lets all ranks meet and end well, and expects success on all nodes.
func (c *cluster) meetAndEnd(ranks []*hand) {
	c.t.Helper()
	for _, r := range ranks {
		r.tell("meet")
	}
	for _, r := range ranks {
		if got := r.hear(); got != "<nil>" {
			c.t.Errorf("rank %d: %s", r.rank, got)
		}
	}
	for _, r := range ranks {
		r.make("leave")
		r.tell("exit 0")
	}
	c.ends(0)
}

func TestAllNodesBeginAgainTogether(t *testing.T) {
	for culprit := range 3 {
		t.Run(fmt.Sprint("rank ", culprit), func(t *testing.T) {
			c := newCluster(t)
			c.restarts = 3
			ranks := c.play(1, 2)
			for generation := 1; generation <= 2; generation++ {
				for _, r := range ranks {
					r.tell("meet")
				}
				for _, r := range ranks {
					r.hear()
				}
				ranks[culprit].make(fmt.Sprint("step ", generation))
				for _, r := range ranks {
					if r.rank != culprit {
						r.tell("get")
					}
				}
				ranks[culprit].tell("kill")
				ranks = c.again(generation, 3)
			}
			c.meetAndEnd(ranks)
			for _, p := range c.nodes {
				wantText(t, p.err.String(), fmt.Sprintf("restart 2 of 3: rank %d was killed by signal: killed at step 2\n", culprit))
			}
		})
	}
}

func TestRankThatFailsTwiceAtAStepEndsAllNodes(t *testing.T) {
	c := newCluster(t)
	c.restarts = 3
	ranks := c.play(1, 1)
	for generation := range 2 {
		if generation > 0 {
			ranks = c.again(generation, 2)
		}
		ranks[1].make("step 8")
		ranks[0].tell("exit 0")
		ranks[1].tell("exit 9")
	}
	for _, text := range c.ends(9) {
		wantText(t, text, "no restart: rank 1 failed twice at step 8\n")
	}
}

// A launcher that is killed and started again takes part in the generation of the others.
func TestKilledLauncherJoinsTheNextGeneration(t *testing.T) {
	for node := range 2 {
		t.Run(fmt.Sprint("node ", node), func(t *testing.T) {
			c := newCluster(t)
			c.restarts = 3
			ranks := c.play(1, 2)
			for _, r := range ranks {
				r.tell("meet")
			}
			for _, r := range ranks {
				r.hear()
			}
			for _, r := range ranks {
				r.tell("get")
			}
			if err := c.nodes[node].cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = c.nodes[node].wait()
			bury([][]*hand{ranks[:1], ranks[1:]}[node])
			c.nodes[node] = c.launch(2, node, []int{1, 2}[node])
			c.meetAndEnd(c.again(1, 3))
		})
	}
}
