package probe

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/symgrad/symgrad/dist/backend"
)

// Report has all findings. Its JSON form is an interface: keys stay, and lists are never null.
type Report struct {
	OK      bool     `json:"ok"`      // programs would start here with the chosen backend; no world is opened on GPUs
	Verdict string   `json:"verdict"` // the same in one sentence
	Advice  []string `json:"advice"`  // remedies and improvements, the most useful first

	System       System       `json:"system"`
	CPU          CPU          `json:"cpu"`
	Memory       Memory       `json:"memory"`
	SharedMemory SharedMemory `json:"shared_memory"`
	Limits       Limits       `json:"limits"`
	BLAS         BLAS         `json:"blas"`
	MPI          []Library    `json:"mpi"`
	UCX          []Library    `json:"ucx"`
	OpenSHMEM    []Library    `json:"openshmem"`
	GPUs         GPUs         `json:"gpus"`
	GPULibraries []Library    `json:"gpu_libraries"`
	Launcher     Launcher     `json:"launcher"`
	Engines      []Engine     `json:"engines"`
	HostEngines  []Engine     `json:"host_engines"`
	Table        Table        `json:"table"`
	Backends     []Backend    `json:"backends"`
	Worlds       []World      `json:"worlds"`
}

// Collect returns the whole report.
//
// Returns: always a report, with a text for each unknown finding. Canceling ctx ends the questions
// to libraries.
func Collect(ctx context.Context, r Roots, o Options) Report {
	var rep Report
	var libraries sync.WaitGroup
	libraries.Go(func() { rep.BLAS = FindBLAS(ctx, r, o) })
	libraries.Go(func() { rep.GPUs = FindGPUs(ctx, r, o) })
	libraries.Go(func() { rep.MPI, rep.UCX, rep.OpenSHMEM, rep.GPULibraries = FindLibraries(ctx, r, o) })
	rep.System = ReadSystem(r)
	rep.CPU = ReadCPU(r)
	rep.Memory = ReadMemory(r)
	rep.SharedMemory = ReadSharedMemory(r)
	rep.Limits = ReadLimits(r)
	launcher, env := SeeLauncher(r)
	rep.Launcher = launcher
	env = ownRanks(env, o.Ranks)
	libraries.Wait()
	chooseNVRTC(rep.GPULibraries, rep.GPUs)
	rep.Engines = JudgeEngines(rep, env)
	rep.HostEngines = JudgeHostEngines(rep, env)
	rep.Backends = ListBackends(o.Settings, env, slices.Concat(rep.Engines, rep.HostEngines))
	rep.Table = tableFor(o, rep.GPUs)
	rep.Worlds = TryWorlds() // when nothing else runs, because its ranks wait for each other
	rep.OK, rep.Verdict = rep.judge(o.Settings.NameFor(env))
	rep.Advice = Advise(rep)
	return rep
}

// judge returns whether the default works or, if settings ask for a backend, that one: name.
func (rep Report) judge(name string) (ok bool, verdict string) {
	if rep.Launcher.Problem != "" {
		return false, "programs would refuse to start here: " + rep.Launcher.Problem
	}
	if rep.BLAS.Problem != "" { // programs open the BLAS on every device
		return false, "programs would refuse to start here: BLAS " + rep.BLAS.Problem
	}
	for _, b := range rep.Backends {
		if !b.Chosen {
			continue
		}
		for _, w := range rep.Worlds {
			if w.Backend == b.Name && !w.OK {
				return false, fmt.Sprintf("backend %s would be chosen and does not work: %s", b.Name, w.Problem)
			}
		}
		return true, fmt.Sprintf("ready: backend %s, %s, BLAS %s", b.Name, rep.accelerators(), rep.BLAS.Name)
	}
	for _, b := range rep.Backends {
		switch {
		case b.Name == name && (name == backend.MPI || name == backend.UCX):
			return false, fmt.Sprintf("backend %s is for this job but cannot be used: %s", name, b.Why)
		case b.Name == name && backend.OnGPUs(name):
			return false, fmt.Sprintf("backend %s is configured but cannot be used: %s", name, b.Why)
		}
	}
	return false, "no backend is usable for this job"
}

// accelerators lists the devices that compute.
func (rep Report) accelerators() string {
	cores := plural(rep.CPU.Usable, "core")
	if n := len(rep.GPUs.Devices); n > 0 {
		return fmt.Sprintf("%s, %s seen", cores, plural(n, "GPU"))
	}
	return cores
}

// plural returns "1 core" or "2 cores".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
