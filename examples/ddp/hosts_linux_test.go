package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/net/hosttest"
	"github.com/symgrad/symgrad/internal/trace"
	"github.com/symgrad/symgrad/train"
)

// hostRun is one training over several hosts.
type hostRun struct {
	launcher hosttest.MPI // "" for symgrad run
	ranks    []int        // of each host
	stage    int
}

// hostRuns returns all trainings.
func hostRuns() []hostRun {
	var runs []hostRun
	for stage := range 4 {
		for _, launcher := range []hosttest.MPI{hosttest.OpenMPI, hosttest.MPICH, ""} {
			for _, ranks := range [][]int{{2, 2}, {1, 2, 1}} {
				runs = append(runs, hostRun{launcher, ranks, stage})
			}
		}
	}
	return runs
}

// TestHostsTrainAsOneDoes trains with four ranks on two and three hosts, under each launcher. The
// parameters and losses have the bits of four ranks on one host.
func TestHostsTrainAsOneDoes(t *testing.T) {
	data, folder := madeUp(t), t.TempDir()
	h := hosttest.New(t, 3, hosttest.Options{Share: []string{data, folder}})
	want := map[int]train.Summary{}
	for i, run := range hostRuns() {
		how := []string{"model.hidden=400,100", "cpu.threads=1", "run.eval=false", "log.trace=t.json", "log.trace_steps=1,2", fmt.Sprint("shard.stage=", run.stage)}
		if _, known := want[run.stage]; !known {
			want[run.stage] = processes(t, data, append(how, ranks(4))...).summary(t)
		}
		t.Run(fmt.Sprintf("%s/%v/stage %d", cmp.Or(string(run.launcher), "symgrad run"), run.ranks, run.stage), func(t *testing.T) {
			dir := filepath.Join(folder, fmt.Sprint("run", i))
			if out, err := run.start(t, h, folder, settings(dir, data, how...)); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got := outcome{dir: dir}.summary(t)
			if w := want[run.stage]; got.ParamsSHA256 != w.ParamsSHA256 || !slices.Equal(got.Losses, w.Losses) {
				t.Errorf("parameters %.8s, losses %v, want %.8s, %v", got.ParamsSHA256, got.Losses, w.ParamsSHA256, w.Losses)
			}
			if backend := map[bool]string{true: "ucx", false: "mpi"}[run.launcher == ""]; got.Backend != backend || got.WorldSize != 4 {
				t.Errorf("%d ranks by %s, want 4 by %s", got.WorldSize, got.Backend, backend)
			}
			checkClocks(t, got.Trace, run.ranks)
		})
	}
}

// checkClocks checks that a timeline has the clocks of all ranks.
func checkClocks(t *testing.T, path string, ranks []int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Other struct{ Clocks []trace.Clock } `json:"otherData"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	clocks := file.Other.Clocks
	for node, n := range ranks {
		for range n {
			if len(clocks) == 0 || clocks[0].Node != node || node > 0 && clocks[0].Bound <= 0 {
				t.Fatalf("clocks %+v, want those of %v ranks", file.Other.Clocks, ranks)
			}
			clocks = clocks[1:]
		}
	}
	t.Logf("clocks of hosts: %+v", file.Other.Clocks)
}

// start runs the training and returns the output of all launchers.
func (r hostRun) start(t *testing.T, h *hosttest.Hosts, folder string, args []string) (string, error) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	words := append([]string{programVar + "=1", program}, args...)
	if r.launcher != "" {
		out, err := h.MPIRun(r.launcher, r.ranks, "env", words...).CombinedOutput()
		return string(out), err
	}
	nodes, out := make([]*exec.Cmd, len(r.ranks)), make([]bytes.Buffer, len(r.ranks))
	for i := range r.ranks {
		nodes[i] = symgradRun(t, h, folder, r.ranks, i, 0, words)
		nodes[i].Stdout, nodes[i].Stderr = &out[i], &out[i]
		if err := nodes[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	var failed error
	texts := ""
	for i, node := range nodes {
		if err := node.Wait(); err != nil {
			failed = fmt.Errorf("host %d: %w", i, err)
		}
		texts += out[i].String()
	}
	return texts, failed
}

// symgradRun returns the launcher of one host, for a program with words as arguments of env. folder
// has the launcher's program and the secret of the job.
func symgradRun(t *testing.T, h *hosttest.Hosts, folder string, ranks []int, host, restarts int, words []string) *exec.Cmd {
	t.Helper()
	symgrad := filepath.Join(folder, "symgrad")
	if _, err := os.Stat(symgrad); err != nil {
		if out, err := exec.Command("go", "build", "-o", symgrad, "../../cmd/symgrad").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	secret := filepath.Join(folder, "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("0123456789abcdef", 4)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return h.Command(host, symgrad, slices.Concat([]string{
		"run", "--nnodes", fmt.Sprint(len(ranks)), "--node-rank", fmt.Sprint(host), "--store", h.Addr(0) + ":29500",
		"--secret", secret, "-n", fmt.Sprint(ranks[host]), "--max-restarts", fmt.Sprint(restarts), "--", "env",
	}, words)...)
}
