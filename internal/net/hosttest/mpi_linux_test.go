package hosttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// launchers are the launchers of MPI under test.
var launchers = []MPI{OpenMPI, MPICH}

func TestMPIRunsOnHosts(t *testing.T) {
	for _, launcher := range launchers {
		t.Run(string(launcher), func(t *testing.T) {
			h := New(t, 3, Options{})
			for _, c := range []struct {
				ranks []int
				want  string
			}{
				{[]int{1, 1}, "host0 host1"},
				{[]int{2, 0, 1}, "host0 host0 host2"},
				{[]int{0, 1, 1}, "host1 host2"},
			} {
				out, err := h.MPIRun(launcher, c.ranks, "hostname").CombinedOutput()
				names := strings.Fields(string(out))
				slices.Sort(names)
				if err != nil || strings.Join(names, " ") != c.want {
					t.Errorf("hostname on %v ranks: %v, %s, want %s", c.ranks, err, out, c.want)
				}
			}
			if out, err := h.MPIRun(launcher, []int{0, 1}, "sh", "-c", "exit 3").CombinedOutput(); fmt.Sprint(err) != "exit status 3" {
				t.Errorf("exit 3 on host1: %v, %s", err, out)
			}
		})
	}
}

func TestMPIRunsInTurnsOnHosts(t *testing.T) {
	h := New(t, 2, Options{})
	for launcher, variable := range map[MPI]string{OpenMPI: "OMPI_COMM_WORLD_RANK", MPICH: "PMI_RANK"} {
		out, err := h.MPIRunInTurns(launcher, []int{2, 1}, "sh", "-c", "echo $"+variable+":$(hostname)").CombinedOutput()
		places := strings.Fields(string(out))
		slices.Sort(places)
		if got := strings.Join(places, " "); err != nil || got != "0:host0 1:host1 2:host0" {
			t.Errorf("%s: %v, %s", launcher, err, out)
		}
	}
}

func TestAgentOfHostRunsACommandLine(t *testing.T) {
	h := New(t, 2, Options{})
	agent := func(words ...string) *program {
		return start(t, h.Command(0, agentPath, append([]string{"-x", h.Name(1)}, words...)...))
	}
	p := agent("hostname;", "read", "line;", "echo $line; exit 3")
	p.expect("host1")
	p.write("one   two")
	p.expect("one two")
	if err := p.cmd.Wait(); fmt.Sprint(err) != "exit status 3" {
		t.Error(err)
	}
	p = agent("echo ready; cat; echo end")
	p.expect("ready")
	if err := p.in.Close(); err != nil {
		t.Fatal(err)
	}
	p.expect("end")

	out, err := h.Command(0, agentPath, h.Name(1), "echo error >&2; kill $$").CombinedOutput()
	if fmt.Sprint(err) != "exit status 143" || string(out) != "error\n" {
		t.Errorf("standard error: %v, %q", err, out)
	}
	for _, args := range [][]string{{"no-such-host", "true"}, {"-x"}} {
		if out, err := h.Command(0, agentPath, args...).CombinedOutput(); fmt.Sprint(err) != "exit status 255" {
			t.Errorf("agent %v: %v, %s", args, err, out)
		}
	}
}

func TestKilledAgentOfHostEndsTheInputOfItsCommand(t *testing.T) {
	h := New(t, 2, Options{})
	p := start(t, h.Command(0, agentPath, h.Name(1), "echo $$; cat"))
	pid := p.read()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the end of the command", func() bool { return h.Command(1, "test", "-d", "/proc/"+pid).Run() != nil })
}
