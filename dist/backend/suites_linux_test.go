//go:build !race

// The race detector reports false races on data published through mapped memory.

package backend

import (
	"cmp"
	"fmt"
	"os/exec"
	"testing"

	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/long"
	"github.com/symgrad/symgrad/internal/net/hosttest"
)

// wires are the engines between hosts. That of UCX has no launcher: ranks have the variables of
// torchrun.
var wires = []hosttest.MPI{"", hosttest.OpenMPI, hosttest.MPICH}

// hostCount is the number of hosts. A layout may use fewer.
const hostCount = 3

// layout places the ranks of a world on hosts.
type layout struct {
	name    string
	most    int // ranks
	host    func(rank, n int) int
	inTurns bool // ranks take turns on hosts
}

var layouts = []layout{
	{"2x2", 4, func(rank, n int) int { return rank * 2 / n }, false},
	{"1+3", 4, func(rank, _ int) int { return min(rank, 1) }, false},
	{"3x1", 3, func(rank, _ int) int { return rank % hostCount }, true},
	{"in turns", 4, func(rank, _ int) int { return rank % 2 }, true},
}

// launcher starts the ranks of a layout on hosts.
func (l layout) launcher(h *hosttest.Hosts, wire hosttest.MPI) conformance.Launcher {
	return conformance.Launcher{Commands: func(_ *testing.T, n int, program []string) []*exec.Cmd {
		program = append([]string{"env", long.Environ()}, program...)
		if wire == "" {
			return l.torchrun(h, n, program)
		}
		counts := make([]int, hostCount)
		for r := range n {
			counts[l.host(r, n)]++
		}
		run := h.MPIRun
		if l.inTurns {
			run = h.MPIRunInTurns
		}
		return []*exec.Cmd{run(wire, counts, program[0], program[1:]...)}
	}}
}

// torchrun returns the commands of n ranks that meet at host 0.
func (l layout) torchrun(h *hosttest.Hosts, n int, program []string) []*exec.Cmd {
	ranks := map[int][]int{} // by host
	for r := range n {
		ranks[l.host(r, n)] = append(ranks[l.host(r, n)], r)
	}
	secret, commands := launch.NewSecret(), make([]*exec.Cmd, n)
	for host, all := range ranks {
		for i, r := range all {
			commands[r] = h.Command(host, "env", append([]string{
				fmt.Sprint("RANK=", r), fmt.Sprint("WORLD_SIZE=", n), fmt.Sprint("LOCAL_RANK=", i), fmt.Sprint("LOCAL_WORLD_SIZE=", len(all)),
				fmt.Sprint("GROUP_RANK=", host), fmt.Sprint("GROUP_WORLD_SIZE=", len(ranks)), "MASTER_ADDR=" + h.Addr(0), "MASTER_PORT=1",
				"SYMGRAD_MASTER=:29500", "SYMGRAD_SECRET=" + secret, "UCX_NET_DEVICES=eth0",
			}, program...)...)
		}
	}
	return commands
}

// TestSuitesOverHosts runs a sample of the suites in every layout, each over another wire. The long
// test runs everything over every wire.
func TestSuitesOverHosts(t *testing.T) {
	var h *hosttest.Hosts
	if !conformance.IsRank() {
		folder := t.TempDir()
		t.Setenv("TMPDIR", folder) // of t.TempDir
		h = hosttest.New(t, hostCount, hosttest.Options{Share: []string{folder}})
	}
	for i, l := range layouts {
		for k, wire := range wires {
			if long.Enabled() || k == i%len(wires) {
				t.Run(fmt.Sprintf("%s/%s", cmp.Or(wire, "ucx"), l.name), func(t *testing.T) { l.suites(t, h, wire) })
			}
		}
	}
}

func (l layout) suites(t *testing.T, h *hosttest.Hosts, wire hosttest.MPI) {
	if wire == "" {
		needUCX(t)
	} else if _, err := exec.LookPath(string(wire)); err != nil {
		hosttest.Missing(t, "%v", err)
	}
	opt := conformance.Options{Most: l.most, FarPeers: true, OneWorld: true, Every: long.Times(31, 7)}
	ranks := conformance.Launched(opener(Config{}), l.launcher(h, wire))
	if long.Enabled() {
		t.Run("Suite", func(t *testing.T) { conformance.RunWith(t, opt, ranks) })
		t.Run("OneSided", func(t *testing.T) { conformance.RunOneSidedWith(t, opt, ranks) })
		t.Run("Litmus", func(t *testing.T) { conformance.RunLitmusWith(t, opt, 512, ranks) })
		return
	}
	worlds := opt
	worlds.Ranks = []int{l.most}
	conformance.RunWith(t, worlds, ranks)
	if wire != hosttest.OpenMPI { // whose launcher takes a second and a half of processor time
		conformance.RunBreaking(t, opt, ranks)
	}
}
