package backend

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/conformance"
)

// byMPIRun starts ranks by Open MPI on hosts that SYMGRAD_HOST makes of this machine. Rank r is on
// host r*hosts/n.
func byMPIRun(hosts int) conformance.Launcher {
	return conformance.Launcher{Commands: func(_ *testing.T, n int, program []string) []*exec.Cmd {
		line := []string{"--allow-run-as-root", "--bind-to", "none", "--oversubscribe"}
		for r := range n {
			if r > 0 {
				line = append(line, ":")
			}
			line = append(line, "-np", "1", "-x", fmt.Sprintf("SYMGRAD_HOST=h%d", r*hosts/n))
			line = append(line, program...)
		}
		return []*exec.Cmd{exec.Command("mpirun", line...)}
	}}
}

// hostsSkips returns why GPUs of several hosts cannot run a case, or "": NCCL alone joins hosts,
// and one-sided calls reach the parts of a heap on the own host.
func hostsSkips(c conformance.Case) string {
	if c.Kind == dist.KindInvalid {
		return "the part of a rank on another host has no address"
	}
	return ncclSkips(c)
}

// sharingGPUs starts four ranks on two hosts that SYMGRAD_HOST makes of this machine, with two GPUs
// which both hosts use. UCX joins them.
func sharingGPUs() conformance.Launcher {
	return conformance.Launcher{Commands: func(t *testing.T, n int, program []string) []*exec.Cmd {
		if n != 4 {
			t.Fatalf("%d ranks on two GPUs of two hosts: want 4", n)
		}
		secret, store, commands := launch.NewSecret(), freeAddress(t), make([]*exec.Cmd, n)
		for r := range n {
			c := exec.Command(program[0], program[1:]...)
			c.Env = append(os.Environ(),
				fmt.Sprint("RANK=", r), fmt.Sprint("WORLD_SIZE=", n), fmt.Sprint("LOCAL_RANK=", r%2), "LOCAL_WORLD_SIZE=2",
				fmt.Sprint("GROUP_RANK=", r/2), "GROUP_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1",
				"SYMGRAD_MASTER="+store, "SYMGRAD_SECRET="+secret, "UCX_NET_DEVICES=lo", fmt.Sprint("SYMGRAD_HOST=h", r/2))
			commands[r] = c
		}
		return commands
	}}
}

// onTwoHosts returns the memory and the launcher of ranks on two hosts made of this machine. It
// skips t without GPUs or a launcher. Four ranks can share two GPUs.
func onTwoHosts(t *testing.T, ranks int) (memory, conformance.Launcher) {
	t.Helper()
	d, n := gpus(t, 2, ranks)
	if n < ranks {
		needUCX(t)
		return memory{d}, sharingGPUs()
	}
	if _, err := exec.LookPath("mpirun"); err != nil {
		if slices.Contains(strings.Split(os.Getenv("SYMGRAD_REQUIRE"), ","), "mpi") {
			t.Fatal(err)
		}
		t.Skipf("no launcher of MPI: %v", err)
	}
	return memory{d}, byMPIRun(2)
}

// The conformance suite on two hosts with 1 and 2 GPUs each, made of one machine. NCCL then uses
// sockets between them. Ranks that share a GPU take turns on it, so they run a part of the cases.
func TestConformanceOverHosts(t *testing.T) {
	for _, name := range []string{CUDA, NCCL} {
		for _, n := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				mem, launcher := onTwoHosts(t, n)
				opt := conformance.Options{AnyOrder: true, NearHeaps: true, Skip: hostsSkips, OneWorld: true, Memory: mem, Ranks: []int{n}, Every: mem.every(n)}
				conformance.RunWith(t, opt, conformance.Launched(opener(Config{Backend: name}), launcher))
			})
		}
	}
}

// every is conformance.Options.Every: ranks that share a GPU run a sample of the cases.
func (m memory) every(ranks int) int {
	if m.d.Count() < ranks {
		return 13
	}
	return 1
}

// The suite of worlds that break, on two hosts with one GPU each.
func TestBrokenOverHosts(t *testing.T) {
	mem, launcher := onTwoHosts(t, 2)
	opt := conformance.Options{AnyOrder: true, NearHeaps: true, Skip: hostsSkips, OneWorld: true, Memory: mem, Most: 2}
	conformance.RunBreaking(t, opt, conformance.Launched(opener(Config{Backend: CUDA}), launcher))
}

// Engine hier takes part in the suite for allreduces, with every count, type and reduction.
func TestHierarchicalSums(t *testing.T) {
	mem, launcher := onTwoHosts(t, 4)
	opt := conformance.Options{AnyOrder: true, NearHeaps: true, Memory: mem, Every: mem.every(4), Skip: func(c conformance.Case) string {
		if c.Kind != dist.KindAllReduce {
			return "engine hier does allreduces only"
		}
		return hostsSkips(c)
	}}
	conformance.Launched(opener(Config{Backend: CUDA, Engine: "hier"}), launcher)(t, 4, conformance.LaunchOptions{},
		func(w *dist.World) error { return conformance.Collectives(w, opt) })
}
