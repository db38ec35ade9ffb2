package probe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
)

// The remedies for a missing library, as packages of Debian and Ubuntu.
const (
	installMPI     = "apt-get install openmpi-bin, or mpich"
	installOpenMPI = "apt-get install openmpi-bin"
	installMPICH   = "apt-get install mpich"
	installUCX     = "apt-get install libucx0"
)

// JudgeHostEngines returns the engines between hosts for the job of env, judged by the report's
// libraries. No engine is tried.
//
// Returns: one or more lines of reasons per engine.
func JudgeHostEngines(rep Report, env launch.Env) []Engine {
	return []Engine{
		hostEngine(backend.MPI, librariesOf(rep.MPI, env.Launcher), installOf(env.Launcher)),
		hostEngine(backend.UCX, rep.UCX, installUCX),
	}
}

// librariesOf returns the libraries that understand a launcher of MPI; all without one.
func librariesOf(mpi []Library, launcher string) []Library {
	other := map[string]string{launch.OpenMPI: "mpich", launch.MPICH: "openmpi"}[launcher]
	return slices.DeleteFunc(slices.Clone(mpi), func(l Library) bool { return l.Name == other })
}

// installOf returns the package of the library for a launcher.
func installOf(launcher string) string {
	switch launcher {
	case launch.OpenMPI:
		return installOpenMPI
	case launch.MPICH:
		return installMPICH
	default:
		return installMPI
	}
}

// hostEngine returns the engine that needs one of libs.
func hostEngine(name string, libs []Library, install string) Engine {
	e := Engine{Name: name, Notes: []string{}}
	var usable, broken []string
	for _, l := range libs {
		switch {
		case l.Usable:
			usable = append(usable, fmt.Sprintf("%s, %s", l.Version, l.Path))
		case l.Path != "":
			broken = append(broken, fmt.Sprintf("%s: %s", l.Path, l.Problem))
		}
	}
	switch {
	case len(usable) > 0:
		e.Usable, e.Why = true, strings.Join(usable, "; ")
	case len(broken) > 0:
		e.Why = "not usable: " + strings.Join(broken, "; ")
	default:
		e.Why = "not found: " + install
	}
	return e
}
