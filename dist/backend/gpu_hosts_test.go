package backend

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/cuda/cudatest"
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

// needMPIRun skips t without GPUs or the launcher.
func needMPIRun(t *testing.T, ranks int) memory {
	t.Helper()
	d, n := gpus(t, ranks, ranks)
	if n < ranks {
		cudatest.Missing(t, "needs %d GPUs, there are %d", ranks, n)
	}
	if _, err := exec.LookPath("mpirun"); err != nil {
		if slices.Contains(strings.Split(os.Getenv("SYMGRAD_REQUIRE"), ","), "mpi") {
			t.Fatal(err)
		}
		t.Skipf("no launcher of MPI: %v", err)
	}
	return memory{d}
}

// The conformance suite on two hosts with 1 and 2 GPUs each, made of one machine. NCCL then uses
// sockets between them.
func TestConformanceOverHosts(t *testing.T) {
	for _, name := range []string{CUDA, NCCL} {
		for _, n := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				opt := conformance.Options{AnyOrder: true, NearHeaps: true, Skip: hostsSkips, OneWorld: true, Memory: needMPIRun(t, n), Ranks: []int{n}}
				ranks := conformance.Launched(opener(Config{Backend: name}), byMPIRun(2))
				conformance.RunWith(t, opt, ranks)
			})
		}
	}
}

// The suite of worlds that break, on two hosts with one GPU each.
func TestBrokenOverHosts(t *testing.T) {
	opt := conformance.Options{AnyOrder: true, NearHeaps: true, Skip: hostsSkips, OneWorld: true, Memory: needMPIRun(t, 2), Most: 2}
	conformance.RunBreaking(t, opt, conformance.Launched(opener(Config{Backend: CUDA}), byMPIRun(2)))
}

// Engine hier takes part in the suite for allreduces, with every count, type and reduction.
func TestHierarchicalSums(t *testing.T) {
	opt := conformance.Options{AnyOrder: true, NearHeaps: true, Memory: needMPIRun(t, 4), Skip: func(c conformance.Case) string {
		if c.Kind != dist.KindAllReduce {
			return "engine hier does allreduces only"
		}
		return hostsSkips(c)
	}}
	conformance.Launched(opener(Config{Backend: CUDA, Engine: "hier"}), byMPIRun(2))(t, 4, conformance.LaunchOptions{},
		func(w *dist.World) error { return conformance.Collectives(w, opt) })
}
