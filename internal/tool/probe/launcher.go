package probe

import (
	"slices"
	"strings"

	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
)

// Launcher is the starter of this process, as a program would detect it.
type Launcher struct {
	Name      string     `json:"name"` // one of package launch's, "none" without a launcher
	Rank      int        `json:"rank"`
	Size      int        `json:"size"`
	LocalRank int        `json:"local_rank"`
	LocalSize int        `json:"local_size"`
	Problem   string     `json:"problem"`   // why a program would refuse this environment
	Variables []Variable `json:"variables"` // of all launchers, not only the detected one
}

// Variable is a launcher's variable that is set. Its value may be private and is not reported.
type Variable struct {
	Name string `json:"name"`
	Of   string `json:"of"` // one of package launch's names
}

// marks are prefixes (with a final "_") and names of variables that launchers set.
var marks = []struct{ name, of string }{
	{"SYMGRAD_RANK", launch.Symgrad},
	{"SYMGRAD_WORLD_SIZE", launch.Symgrad},
	{"SYMGRAD_LOCAL_", launch.Symgrad},
	{"SYMGRAD_NODE", launch.Symgrad},
	{"SYMGRAD_NODES", launch.Symgrad},
	{"SYMGRAD_RESTARTS", launch.Symgrad},
	{"SYMGRAD_MARKS", launch.Symgrad},
	{"SYMGRAD_SECRET", launch.Symgrad},
	{"SYMGRAD_SECRET_FILE", launch.Symgrad},
	{"SYMGRAD_MASTER", launch.Symgrad},
	{"SYMGRAD_JOB", launch.Symgrad},
	{"SYMGRAD_STORE_FD", launch.Symgrad},
	{"SYMGRAD_COLUMNS", launch.Symgrad},
	{"SYMGRAD_HANDOVER_FD", launch.Symgrad},
	{"SYMGRAD_BOUND", launch.Symgrad},
	{"SYMGRAD_HOST", launch.Symgrad},
	{"JOB_COMPLETION_INDEX", launch.Kubernetes},
	{"OMPI_COMM_WORLD_", launch.OpenMPI},
	{"OMPI_UNIVERSE_SIZE", launch.OpenMPI},
	{"PMI_", launch.MPICH},
	{"MPI_LOCALRANKID", launch.MPICH},
	{"MPI_LOCALNRANKS", launch.MPICH},
	{"RANK", launch.Torchrun},
	{"WORLD_SIZE", launch.Torchrun},
	{"LOCAL_RANK", launch.Torchrun},
	{"LOCAL_WORLD_SIZE", launch.Torchrun},
	{"MASTER_ADDR", launch.Torchrun},
	{"MASTER_PORT", launch.Torchrun},
	{"TORCHELASTIC_", launch.Torchrun},
	{"PMIX_", launch.PMIx},
	{"SLURM_", launch.Slurm},
}

// SeeLauncher returns the launcher by the environment. Returns: also the job, for ListBackends; a
// job of one rank if the environment is invalid.
func SeeLauncher(r Roots) (Launcher, launch.Env) {
	l := Launcher{Variables: []Variable{}}
	for _, s := range r.Environ {
		name, _, _ := strings.Cut(s, "=")
		for _, m := range marks {
			if name == m.name || (strings.HasSuffix(m.name, "_") && strings.HasPrefix(name, m.name)) {
				l.Variables = append(l.Variables, Variable{name, m.of})
				break
			}
		}
	}
	slices.SortFunc(l.Variables, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	env, err := launch.Detect(r.Environ)
	if err != nil {
		l.Problem = err.Error()
		env = launch.Env{Size: 1, LocalSize: 1, Launcher: launch.None}
	}
	l.Name, l.Rank, l.Size, l.LocalRank, l.LocalSize = env.Launcher, env.Rank, env.Size, env.LocalRank, env.LocalSize
	return l, env
}

// ownRanks returns the job of ranks that a program starts itself, without a launcher.
func ownRanks(env launch.Env, ranks int) launch.Env {
	if env.Launcher == launch.None && ranks > 0 {
		env.Size, env.LocalSize = ranks, ranks
	}
	return env
}

// Backend is a backend and whether it can be used.
type Backend struct {
	Name   string `json:"name"`
	Usable bool   `json:"usable"`
	Why    string `json:"why"` // the reason, in both cases
	Chosen bool   `json:"chosen"`
}

// ListBackends returns all backends for the job of env, in the order of preference, and marks the
// one that cfg selects. Backends between GPUs and between hosts are judged by engines.
func ListBackends(cfg backend.Config, env launch.Env, engines []Engine) []Backend {
	list := []Backend{}
	for _, c := range cfg.Choices(env) {
		b := Backend{Name: c.Name, Usable: c.Usable, Why: c.Why}
		if backend.OnGPUs(c.Name) && env.OneHost() {
			b.Usable, b.Why = ofEngines(backend.EngineNames(c.Name), engines)
		}
		if i := slices.IndexFunc(engines, func(e Engine) bool { return e.Name == b.Name }); b.Usable && !backend.OnGPUs(b.Name) && i >= 0 && !engines[i].Usable {
			b.Usable, b.Why = false, engines[i].Why
		}
		b.Chosen = b.Usable && b.Name == cfg.NameFor(env)
		list = append(list, b)
	}
	return list
}

// ofEngines returns whether a backend with the named engines can be used, and why. One usable
// engine is enough.
func ofEngines(names []string, engines []Engine) (usable bool, why string) {
	var there, reasons []string
	for _, e := range engines {
		switch {
		case !slices.Contains(names, e.Name):
		case e.Usable:
			there = append(there, e.Name)
		case !slices.Contains(reasons, e.Why):
			reasons = append(reasons, e.Why)
		}
	}
	if len(there) == 0 {
		return false, strings.Join(reasons, "; ")
	}
	return true, "between GPUs by " + strings.Join(there, ", ")
}
