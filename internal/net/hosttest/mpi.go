package hosttest

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// MPI is a launcher of MPI.
type MPI string

// The launchers, by the names of Debian's programs.
const (
	OpenMPI MPI = "mpirun.openmpi"
	MPICH   MPI = "mpiexec.mpich"
)

// packages are the Debian packages of the launchers.
var packages = map[MPI]string{OpenMPI: "openmpi-bin", MPICH: "mpich"}

// MPIRun returns a command that runs the launcher on host 0, with ranks[i] ranks of the program on
// host i. A variable of the environment for all ranks needs the program env: cmd.Env may reach only
// the launcher.
//
// Errors: without the launcher the test is skipped, or fails if Required.
func (h *Hosts) MPIRun(launcher MPI, ranks []int, program string, args ...string) *exec.Cmd {
	h.t.Helper()
	return h.mpiRun(launcher, ranks, false, append([]string{program}, args...))
}

// MPIRunInTurns is MPIRun with rank 0 on the first host, rank 1 on the second, and so on, again
// from the first host after the last one. The hosts have equal numbers of ranks, except that the
// last ones may have one less.
func (h *Hosts) MPIRunInTurns(launcher MPI, ranks []int, program string, args ...string) *exec.Cmd {
	h.t.Helper()
	return h.mpiRun(launcher, ranks, true, append([]string{program}, args...))
}

func (h *Hosts) mpiRun(launcher MPI, ranks []int, inTurns bool, program []string) *exec.Cmd {
	h.t.Helper()
	needProgram(h.t, string(launcher), packages[launcher])
	if len(ranks) > len(h.hosts) {
		h.t.Fatalf("ranks for %d hosts, but the set has %d", len(ranks), len(h.hosts))
	}
	sum, places := 0, []string{}
	for i, n := range ranks {
		if sum += n; n == 0 {
			continue
		}
		if inTurns && launcher == MPICH { // it begins again when the places are taken
			n = 1
		}
		places = append(places, fmt.Sprintf("%s:%d", h.Name(i), n))
	}
	words, list := openMPIWords, []string{"--map-by", "slot", "--host"}
	switch {
	case launcher == MPICH:
		words, list = mpichWords, []string{"-hosts"}
	case inTurns:
		list[1] = "node"
	}
	return h.Command(0, "env", slices.Concat(words, list, []string{strings.Join(places, ","), "-np", fmt.Sprint(sum)}, program)...)
}

// openMPIWords starts a command of Open MPI. Settings are variables, because the variables of
// version 4 and 5 differ and each version ignores those of the other.
//
//   - The agent starts the daemons on other hosts, each from mpirun (no tree).
//   - Ranks are not bound to cores: all hosts have the same cores, and rank 0 of each host would be
//     bound to core 0.
//   - Bytes travel by TCP between hosts and through shared memory inside them. UCX is excluded.
var openMPIWords = []string{
	"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
	"PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
	"OMPI_MCA_plm_rsh_agent=" + agentPath, "OMPI_MCA_plm_rsh_no_tree_spawn=1",
	"PRTE_MCA_plm_ssh_agent=" + agentPath, "PRTE_MCA_plm_ssh_no_tree_spawn=1",
	"OMPI_MCA_pml=ob1", "OMPI_MCA_btl=tcp,vader,self", "OMPI_MCA_btl_tcp_if_include=eth0",
	string(OpenMPI), "--bind-to", "none",
}

// mpichWords starts a command of MPICH. UCX must not see the devices of the machine, and its shared
// memory is only for ranks of one host.
var mpichWords = []string{
	"UCX_TLS=tcp,self,posix", "UCX_NET_DEVICES=eth0",
	string(MPICH), "-launcher", "ssh", "-launcher-exec", agentPath, "-iface", "eth0", "-bind-to", "none",
}
