package launch

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// The variables that launchers set to identify one rank. Values of Open MPI and MPICH were seen;
// those of Slurm and torchrun are from their documentation.
var environments = map[string][]string{
	"symgrad": {
		"SYMGRAD_RANK=2", "SYMGRAD_WORLD_SIZE=4", "SYMGRAD_LOCAL_RANK=2", "SYMGRAD_LOCAL_WORLD_SIZE=4",
		"SYMGRAD_JOB=symgrad-0123456789abcdef", "SYMGRAD_MASTER=127.0.0.1:40123", "SYMGRAD_STORE_FD=3",
	},
	"openmpi": {
		"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
		"OMPI_COMM_WORLD_NODE_RANK=1", "OMPI_UNIVERSE_SIZE=4", "PMIX_NAMESPACE=2853175297", "PMIX_RANK=3",
		"PMIX_SERVER_URI2=2853175296.0;tcp4://127.0.0.1:35127", "PMIX_HOSTNAME=node1",
	},
	"mpich": {"PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=9", "HYDI_CONTROL_FD=8", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"},
	"torchrun": {
		"RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2", "ROLE_RANK=5",
		"MASTER_ADDR=10.0.0.7", "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=0",
		"TORCHELASTIC_USE_AGENT_STORE=False",
	},
	"slurm": {
		"SLURM_JOB_ID=77", "SLURM_STEP_ID=1", "SLURM_PROCID=9", "SLURM_STEP_NUM_TASKS=11", "SLURM_NTASKS=99", "SLURM_LOCALID=1",
		"SLURM_NODEID=2", "SLURM_STEP_TASKS_PER_NODE=4(x2),3", "SLURM_STEP_NODELIST=n[1-3]",
	},
	"pmix": {
		"PMIX_RANK=6", "PMIX_NAMESPACE=slurm.pmix.77.1", "SLURM_JOB_ID=77", "SLURM_STEP_ID=1", "SLURM_PROCID=6",
		"SLURM_STEP_NUM_TASKS=8", "SLURM_LOCALID=2", "SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=4(x2)",
	},
}

func TestDetectKnowsEachLauncher(t *testing.T) {
	want := map[string]Env{
		"symgrad": {
			Rank: 2, Size: 4, LocalRank: 2, LocalSize: 4, Nodes: 1, Launcher: Symgrad, Job: "symgrad-0123456789abcdef",
			Master: "127.0.0.1:40123", StoreFD: 3, from: "SYMGRAD_RANK",
		},
		"openmpi": {
			Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2, Node: -1, Launcher: OpenMPI, Job: "2853175297", from: "OMPI_COMM_WORLD_RANK",
		},
		"mpich": {Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Nodes: 1, Launcher: MPICH, from: "PMI_RANK"},
		"torchrun": {
			Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4, Node: 1, Nodes: 2, Launcher: Torchrun, Job: "none/10.0.0.7:29500/0",
			Master: "10.0.0.7:29500", from: "RANK",
		},
		"slurm": {Rank: 9, Size: 11, LocalRank: 1, LocalSize: 3, Node: 2, Nodes: 3, Launcher: Slurm, Job: "77.1", from: "SLURM_PROCID"},
		"pmix":  {Rank: 6, Size: 8, LocalRank: 2, LocalSize: 4, Node: 1, Nodes: 2, Launcher: PMIx, Job: "slurm.pmix.77.1", from: "PMIX_RANK"},
	}
	for name, environ := range environments {
		t.Run(name, func(t *testing.T) {
			got, err := Detect(append([]string{"PATH=/bin", "HOME=/root"}, environ...))
			if err != nil {
				t.Fatal(err)
			}
			if got != want[name] {
				t.Errorf("got  %+v\nwant %+v", got, want[name])
			}
		})
	}
}

func TestDetectTakesTheFirstLauncherOfItsOrder(t *testing.T) {
	order := []string{"symgrad", "openmpi", "mpich", "torchrun", "pmix", "slurm"}
	for i, name := range order {
		var environ []string
		for _, other := range order[i:] {
			environ = append(environ, environments[other]...)
		}
		got, err := Detect(environ)
		if err != nil {
			t.Fatalf("%s and after: %v", name, err)
		}
		if got.Launcher != name {
			t.Errorf("%v: took %s", order[i:], got.Launcher)
		}
	}
}

func TestDetectAnswersInSpecialCases(t *testing.T) {
	slurm := environments["slurm"]
	for _, tc := range []struct {
		name    string
		environ []string
		want    Env
	}{
		{"nothing set is one rank", nil, Env{Size: 1, LocalSize: 1, Launcher: None}},
		{"unrelated and broken entries", []string{"A=1", "=C:", "RANK"}, Env{Size: 1, LocalSize: 1, Launcher: None}},
		{"an empty value is none", []string{"RANK=", "WORLD_SIZE="}, Env{Size: 1, LocalSize: 1, Launcher: None}},
		{
			"the last of a name counts",
			[]string{"RANK=7", "WORLD_SIZE=1", "RANK=0"},
			Env{Size: 1, LocalSize: 1, Launcher: Torchrun, from: "RANK"},
		},
		{
			"one rank needs no local numbers",
			[]string{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"},
			Env{Size: 1, LocalSize: 1, Launcher: OpenMPI, from: "OMPI_COMM_WORLD_RANK"},
		},
		{
			"by hand without a store",
			[]string{"SYMGRAD_RANK=1", "SYMGRAD_WORLD_SIZE=2", "SYMGRAD_LOCAL_RANK=1", "SYMGRAD_LOCAL_WORLD_SIZE=2"},
			Env{Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Launcher: Symgrad, from: "SYMGRAD_RANK"},
		},
		{"a terminal", append(slices.Clone(environments["symgrad"]), "SYMGRAD_COLUMNS=120"), Env{
			Rank: 2, Size: 4, LocalRank: 2, LocalSize: 4, Nodes: 1, Launcher: Symgrad, Job: "symgrad-0123456789abcdef",
			Master: "127.0.0.1:40123", StoreFD: 3, Columns: 120, from: "SYMGRAD_RANK",
		}},
		{
			"a job id for a launcher without", append(slices.Clone(environments["mpich"]), "SYMGRAD_JOB=mine"),
			Env{Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Nodes: 1, Launcher: MPICH, Job: "mine", from: "PMI_RANK"},
		},
		{
			"settings alone start nothing",
			[]string{"SYMGRAD_MASTER=h:1", "SYMGRAD_RUN_SEED=4", "SYMGRAD_COLUMNS=80"},
			Env{Size: 1, LocalSize: 1, Launcher: None},
		},
		{
			"open mpi 4 without pmix",
			[]string{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_MCA_ess_base_jobid=55"},
			Env{Size: 2, LocalSize: 2, Launcher: OpenMPI, Job: "55", from: "OMPI_COMM_WORLD_RANK"},
		},
		{
			"torchrun's agent has the port",
			[]string{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=1", "TORCHELASTIC_USE_AGENT_STORE=True"},
			Env{Size: 2, LocalSize: 2, Launcher: Torchrun, Job: "/h:1/", from: "RANK"},
		},
		{
			"torchrun's default run id is none",
			[]string{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=none"},
			Env{Size: 2, LocalSize: 2, Launcher: Torchrun, from: "RANK"},
		},
		{
			"an IPv6 master",
			[]string{"RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=::1", "MASTER_PORT=29500"},
			Env{Size: 1, LocalSize: 1, Launcher: Torchrun, Master: "[::1]:29500", Job: "/[::1]:29500/", from: "RANK"},
		},
		{
			"salloc leaves a rank without a step",
			[]string{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=7"},
			Env{Size: 1, LocalSize: 1, Launcher: None},
		},
		{
			"the shell of salloc is a step of its own",
			[]string{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=7", "SLURM_STEP_ID=4294967290"},
			Env{Size: 1, LocalSize: 1, Launcher: None},
		},
		{
			"a batch script is no step",
			[]string{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=7", "SLURM_STEP_ID=batch"},
			Env{Size: 1, LocalSize: 1, Launcher: None},
		},
		{
			"slurm without its step's size", slices.DeleteFunc(slices.Clone(slurm), func(s string) bool { return s == "SLURM_NTASKS=99" }),
			Env{Rank: 9, Size: 11, LocalRank: 1, LocalSize: 3, Node: 2, Nodes: 3, Launcher: Slurm, Job: "77.1", from: "SLURM_PROCID"},
		},
		{
			"srun --mpi=pmi2", append(slices.Clone(slurm), "PMI_RANK=9", "PMI_SIZE=11"),
			Env{Rank: 9, Size: 11, LocalRank: 1, LocalSize: 3, Node: 2, Nodes: 3, Launcher: Slurm, Job: "77.1", from: "SLURM_PROCID"},
		},
		{
			"one task of slurm",
			[]string{"SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_JOB_ID=7", "SLURM_STEP_ID=0"},
			Env{Size: 1, LocalSize: 1, Launcher: Slurm, Job: "7.0", from: "SLURM_PROCID"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Detect(tc.environ)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want.Nodes == 0 && tc.want.Node == 0 {
				tc.want.Nodes = 1 // as on one host
			}
			if got != tc.want {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

// Each launcher's environment with one variable taken away or changed. The value "-" takes it away.
func TestDetectRefusesWhatNoLauncherSets(t *testing.T) {
	for _, tc := range []struct {
		launcher, variable, value string
		blames, says              string
	}{
		{"symgrad", "SYMGRAD_RANK", "-", "SYMGRAD_RANK", "is not set: want a rank, 0 to 3"},
		{"symgrad", "SYMGRAD_RANK", "4", "SYMGRAD_RANK", `="4": want a rank, 0 to 3`},
		{"symgrad", "SYMGRAD_RANK", "-1", "SYMGRAD_RANK", `want a rank, 0 to 3`},
		{"symgrad", "SYMGRAD_RANK", "+1", "SYMGRAD_RANK", `want a rank, 0 to 3`},
		{"symgrad", "SYMGRAD_RANK", "1 ", "SYMGRAD_RANK", `want a rank, 0 to 3`},
		{"symgrad", "SYMGRAD_RANK", "99999999999999999999", "SYMGRAD_RANK", `want a rank, 0 to 3`},
		{"symgrad", "SYMGRAD_WORLD_SIZE", "-", "SYMGRAD_WORLD_SIZE", "is not set: want the number of ranks, 1 to 1048576"},
		{"symgrad", "SYMGRAD_WORLD_SIZE", "0", "SYMGRAD_WORLD_SIZE", `="0": want the number of ranks`},
		{"symgrad", "SYMGRAD_WORLD_SIZE", "four", "SYMGRAD_WORLD_SIZE", `="four": want the number of ranks`},
		{"symgrad", "SYMGRAD_LOCAL_RANK", "4", "SYMGRAD_LOCAL_RANK", "a rank of this host, 0 to 3"},
		{"symgrad", "SYMGRAD_LOCAL_RANK", "-", "SYMGRAD_LOCAL_RANK", "is not set"},
		{"symgrad", "SYMGRAD_LOCAL_WORLD_SIZE", "5", "SYMGRAD_LOCAL_WORLD_SIZE", "the number of ranks on this host, 1 to 4"},
		{"symgrad", "SYMGRAD_LOCAL_WORLD_SIZE", "-", "SYMGRAD_LOCAL_WORLD_SIZE", "is not set"},
		{"symgrad", "SYMGRAD_MASTER", "localhost", "SYMGRAD_MASTER", "host:port"},
		{"symgrad", "SYMGRAD_MASTER", "localhost:0", "SYMGRAD_MASTER", "port 1 to 65535"},
		{"symgrad", "SYMGRAD_MASTER", "-", "SYMGRAD_MASTER", "SYMGRAD_STORE_FD=3"},
		{"symgrad", "SYMGRAD_JOB", "-", "SYMGRAD_JOB", "SYMGRAD_STORE_FD=3"},
		{"symgrad", "SYMGRAD_STORE_FD", "2", "SYMGRAD_STORE_FD", "an inherited file descriptor, 3 to"},
		{"symgrad", "SYMGRAD_COLUMNS", "wide", "SYMGRAD_COLUMNS", "the width of a terminal"},
		{"openmpi", "OMPI_COMM_WORLD_SIZE", "-", "OMPI_COMM_WORLD_SIZE", "is not set"},
		{"openmpi", "OMPI_COMM_WORLD_RANK", "x", "OMPI_COMM_WORLD_RANK", `="x"`},
		{"openmpi", "OMPI_COMM_WORLD_LOCAL_RANK", "2", "OMPI_COMM_WORLD_LOCAL_RANK", "0 to 1"},
		{"mpich", "PMI_RANK", "-", "PMI_RANK", "is not set"},
		{"mpich", "PMI_SIZE", "1", "PMI_RANK", "0 to 0"},
		{"mpich", "MPI_LOCALNRANKS", "-", "MPI_LOCALNRANKS", "is not set"},
		{"torchrun", "RANK", "-", "RANK", "is not set: want a rank, 0 to 7"},
		{"torchrun", "WORLD_SIZE", "-", "WORLD_SIZE", "is not set"},
		{"torchrun", "LOCAL_WORLD_SIZE", "-", "LOCAL_WORLD_SIZE", "is not set: want the number of ranks on this host"},
		{"torchrun", "MASTER_PORT", "-", "MASTER_PORT", "is not set: want a TCP port, 1 to 65535"},
		{"torchrun", "MASTER_PORT", "70000", "MASTER_PORT", "a TCP port"},
		{"torchrun", "MASTER_ADDR", "-", "MASTER_ADDR", "because MASTER_PORT=29500 is set"},
		{"torchrun", "MASTER_ADDR", "@here", "MASTER_ADDR", "a host name or address"},
		{"slurm", "SLURM_PROCID", "11", "SLURM_PROCID", "a rank, 0 to 10"},
		{"slurm", "SLURM_STEP_NUM_TASKS", "12", "SLURM_STEP_TASKS_PER_NODE", "12 tasks in all, as SLURM_STEP_NUM_TASKS says"},
		{"slurm", "SLURM_STEP_NUM_TASKS", "-", "SLURM_STEP_TASKS_PER_NODE", "99 tasks in all, as SLURM_NTASKS says"},
		{"slurm", "SLURM_STEP_TASKS_PER_NODE", "-", "SLURM_STEP_TASKS_PER_NODE", "is not set"},
		{"slurm", "SLURM_STEP_TASKS_PER_NODE", "4(x2", "SLURM_STEP_TASKS_PER_NODE", `such as "4(x2),3"`},
		{"slurm", "SLURM_NODEID", "3", "SLURM_STEP_TASKS_PER_NODE", "tasks for node 3"},
		{"slurm", "SLURM_NODEID", "-", "SLURM_NODEID", "is not set"},
		{"slurm", "SLURM_LOCALID", "3", "SLURM_LOCALID", "a rank of this host, 0 to 2"},
		{"slurm", "SLURM_JOB_ID", "-", "SLURM_JOB_ID", "SLURM_STEP_ID=1"},
		{"pmix", "SLURM_STEP_ID", "-", "PMIX_RANK", "set SYMGRAD_RANK"},
		{"pmix", "PMIX_RANK", "8", "PMIX_RANK", "a rank, 0 to 7"},
	} {
		t.Run(tc.launcher+"/"+tc.variable+"="+tc.value, func(t *testing.T) {
			environ := slices.DeleteFunc(slices.Clone(environments[tc.launcher]), func(s string) bool {
				return strings.HasPrefix(s, tc.variable+"=")
			})
			if tc.value != "-" {
				environ = append(environ, tc.variable+"="+tc.value)
			}
			got, err := Detect(environ)
			var envErr *EnvError
			if !errors.As(err, &envErr) {
				t.Fatalf("got %+v, %v; want an EnvError", got, err)
			}
			if envErr.Variable != tc.blames || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v\nwant it to blame %s and to say %s", err, tc.blames, tc.says)
			}
		})
	}
}

func TestTasksPerNodeCounts(t *testing.T) {
	for _, tc := range []struct {
		list         string
		index        int
		local, total int
		ok           bool
	}{
		{"4(x2),3", 0, 4, 11, true},
		{"4(x2),3", 1, 4, 11, true},
		{"4(x2),3", 2, 3, 11, true},
		{"4(x2),3", 3, 0, 11, true},
		{"1", 0, 1, 1, true},
		{"2,2,1(x3)", 4, 1, 7, true},
		{"1(x1048576)", 1048575, 1, 1048576, true},
		{"1(x1048577)", 0, 0, 0, false},
		{"1048576(x2)", 0, 0, 0, false},
		{"", 0, 0, 0, false},
		{"4(x2),", 0, 0, 0, false},
		{"4(x0)", 0, 0, 0, false},
		{"0", 0, 0, 0, false},
		{"4(x2)3", 0, 0, 0, false},
		{"4x2", 0, 0, 0, false},
		{"-4", 0, 0, 0, false},
	} {
		local, total, _, ok := tasksPerNode(tc.list, tc.index)
		if local != tc.local && tc.ok || total != tc.total && tc.ok || ok != tc.ok {
			t.Errorf("tasksPerNode(%q, %d) = %d, %d, %v, want %d, %d, %v", tc.list, tc.index, local, total, ok, tc.local, tc.total, tc.ok)
		}
	}
}

func TestValidateNamesWhatNoLauncherSays(t *testing.T) {
	good := Env{Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Env){
		"size 0":             func(e *Env) { e.Size = 0 },
		"rank 2":             func(e *Env) { e.Rank = 2 },
		"rank -1":            func(e *Env) { e.Rank = -1 },
		"local size 3":       func(e *Env) { e.LocalSize = 3 },
		"local rank 2":       func(e *Env) { e.LocalRank = 2 },
		"store fd 3 without": func(e *Env) { e.StoreFD = 3 },
	} {
		e := good
		change(&e)
		if err := e.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want it to say %q", e, err, want)
		}
	}
}

func TestEnvSaysWhoItIs(t *testing.T) {
	e, err := Detect(environments["openmpi"])
	if err != nil {
		t.Fatal(err)
	}
	if got, want := e.String(), "rank 3 of 4 (1 of 2 on this host), started by openmpi, job 2853175297"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if e.OneHost() {
		t.Error("2 of 4 ranks on this host are one host")
	}
}

// Validate must accept the results of Detect, and errors of Detect must name a variable.
func FuzzDetect(f *testing.F) {
	for _, name := range slices.Sorted(maps.Keys(environments)) {
		f.Add(strings.Join(environments[name], "\n"))
	}
	f.Add("SLURM_STEP_ID=0\nSLURM_PROCID=0\nSLURM_NTASKS=2\nSLURM_NODEID=0\nSLURM_STEP_TASKS_PER_NODE=1(x2)")
	f.Fuzz(func(t *testing.T, lines string) {
		e, err := Detect(strings.Split(lines, "\n"))
		if err == nil {
			if err := e.Validate(); err != nil {
				t.Fatalf("accepted %+v: %v", e, err)
			}
			if e.Master != "" && !validAddress(e.Master) {
				t.Fatalf("accepted master %q", e.Master)
			}
			return
		}
		var envErr *EnvError
		if !errors.As(err, &envErr) || envErr.Variable == "" || envErr.Want == "" {
			t.Fatalf("refused without a variable: %v", err)
		}
	})
}

func TestPackageCommentNamesEveryVariable(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Variables() {
		if !strings.Contains(string(doc), name) {
			t.Errorf("doc.go does not name %s", name)
		}
		if !isOwnVariable(name+"=1") || isOwnVariable(name+"X=1") || isOwnVariable("X"+name+"=1") {
			t.Errorf("%s is not told from its neighbours", name)
		}
	}
}
