//go:build linux

package launch

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// foreignRanks returns the environments of two ranks on two hosts, by launcher. They meet at
// address.
func foreignRanks(address, secret string) map[string]func(rank int) []string {
	_, port, _ := strings.Cut(address, ":")
	return map[string]func(rank int) []string{
		"kubernetes": func(rank int) []string {
			return []string{
				fmt.Sprint("JOB_COMPLETION_INDEX=", rank), "SYMGRAD_WORLD_SIZE=2", "SYMGRAD_MASTER=" + address, "SYMGRAD_SECRET=" + secret,
			}
		},
		"torchrun": func(rank int) []string {
			return []string{
				fmt.Sprint("RANK=", rank), "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", fmt.Sprint("GROUP_RANK=", rank), "GROUP_WORLD_SIZE=2",
				"MASTER_ADDR=127.0.0.1", "MASTER_PORT=1", "TORCHELASTIC_USE_AGENT_STORE=True", "SYMGRAD_MASTER=:" + port, "SYMGRAD_SECRET=" + secret,
			}
		},
		"slurm": func(rank int) []string {
			return []string{
				"SLURM_JOB_ID=77", "SLURM_STEP_ID=1", fmt.Sprint("SLURM_PROCID=", rank), "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=0",
				fmt.Sprint("SLURM_NODEID=", rank), "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_STEP_NODELIST=127.0.0.[1-2]",
				"SYMGRAD_MASTER=:" + port, "SYMGRAD_SECRET=" + secret,
			}
		},
	}
}

// detected returns the Envs of two such ranks.
func detected(t *testing.T, environ func(rank int) []string) func(rank int) Env {
	t.Helper()
	var all [2]Env
	for rank := range all {
		e, err := Detect(environ(rank))
		if err != nil {
			t.Fatal(err)
		}
		all[rank] = e
	}
	return func(rank int) Env { return all[rank] }
}

func TestRanksOfForeignLaunchersMeetByASecret(t *testing.T) {
	for name := range foreignRanks("", "") {
		t.Run(name, func(t *testing.T) {
			address := freeAddress(t)
			env := detected(t, foreignRanks(address, NewSecret())[name])
			if e := env(1); e.Rank != 1 || e.Size != 2 || e.LocalRank != 0 || e.LocalSize != 1 || e.Node != 1 || e.Nodes != 2 || e.Master != address {
				t.Errorf("rank 1 is %+v", e)
			}
			ranks := meetAll(t.Context(), env, patience, 0, 1)
			for rank, m := range ranks {
				if m.err != nil {
					t.Fatalf("rank %d: %v", rank, m.err)
				}
			}
			if err := ranks[1].store.Set(t.Context(), "k", []byte("v")); err != nil {
				t.Error(err)
			}
			if got, err := ranks[0].store.Get(t.Context(), "k"); err != nil || string(got) != "v" {
				t.Errorf("got %q, %v", got, err)
			}
			for _, rank := range []int{1, 0} {
				if err := ranks[rank].close.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestRankWithAnotherSecretDoesNotMeet(t *testing.T) {
	address := freeAddress(t)
	zero := detected(t, foreignRanks(address, NewSecret())["slurm"])(0)
	one := detected(t, foreignRanks(address, NewSecret())["slurm"])(1)
	m := meetAll(t.Context(), func(rank int) Env { return []Env{zero, one}[rank] }, time.Second, 0, 1)
	if m[0].err == nil || m[1].err == nil || !strings.Contains(m[1].err.Error(), "the store and this process are not of one job") {
		t.Errorf("rank 0: %v; rank 1: %v", m[0].err, m[1].err)
	}
}

func TestMeetingPointWithoutAHostNeedsALauncherThatNamesIt(t *testing.T) {
	for _, address := range []string{":29500", "host", "host:0"} {
		environ := append(foreignRanks("h:1", NewSecret())["kubernetes"](1), "SYMGRAD_MASTER="+address)
		var wrong *EnvError
		if _, err := Detect(environ); !errors.As(err, &wrong) || wrong.Variable != masterVar {
			t.Errorf("%s: got %v", address, err)
		}
	}
}

func TestPodsWithoutANumberOfRanksAreJobsOfTheirOwn(t *testing.T) {
	e, err := Detect([]string{"JOB_COMPLETION_INDEX=3"})
	if err != nil || e.Size != 1 || e.Launcher != None {
		t.Errorf("got %+v, %v", e, err)
	}
	// symgrad run in a pod sets the rank.
	e, err = Detect(append([]string{"JOB_COMPLETION_INDEX=3"}, environments["symgrad"]...))
	if err != nil || e.Launcher != Symgrad || e.Rank != 2 {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestFirstOfSlurmsHosts(t *testing.T) {
	for list, want := range map[string]string{
		"": "", "a": "a", "a,b": "a", "node[03-05,9],big1": "node03", "n[7,1]": "n7", "rack[0-1]node[12-13].x,y[1-2]": "rack0node12.x",
	} {
		if got := firstOfHosts(list); got != want {
			t.Errorf("%q: got %q, want %q", list, got, want)
		}
	}
}

func TestSeveralHostsNeedASafeMeeting(t *testing.T) {
	environ := foreignRanks("10.0.0.7:1", "")["kubernetes"](1)
	e := detected(t, func(int) []string { return environ })(1)
	_, _, err := Rendezvous(t.Context(), e, Config{Timeout: patience})
	if !errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), secretFileVar) {
		t.Errorf("without a secret: got %v", err)
	}
}
