package main

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/internal/settings"
	"github.com/symgrad/symgrad/internal/tool/plan"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

// planSubject returns the description of a run for package plan.
//
// Errors: unsupported settings, by their keys.
func planSubject(c *config.Config, program string, ranks int) (plan.Subject, error) {
	var s plan.Subject
	gpu, err := plansGPU(c)
	if err != nil {
		return s, err
	}
	if c.Data.GlobalBatch < ranks {
		return s, fmt.Errorf("data.global_batch=%d: %d ranks cannot have a sample each; set it to %d at least, or -n to %d at most",
			c.Data.GlobalBatch, ranks, ranks, c.Data.GlobalBatch)
	}
	model, err := planModel(c, program)
	if err != nil {
		return s, err
	}
	s.Job = plan.Job{Name: c.Run.Name, Model: model.name, Ranks: ranks, Runs: c.Data.AccumSteps, GPU: gpu}
	if err := errors.Join(settings.Check(c), settings.CheckRanks(c, ranks)); err != nil {
		return s, err
	}
	if v := c.DDP.VirtualRanks; v > 0 {
		s.Job.Runs = v / ranks
	}
	s.Job.Rule = settings.Solver(c, gpu, 1, 1) // its state does not depend on steps or goroutines
	share := over(c.Data.GlobalBatch, ranks)
	s.Job.Rows = over(share, s.Job.Runs) // the most samples of a run on any rank
	if c.DDP.VirtualRanks == 0 {
		s.Job.Runs = over(share, s.Job.Rows) // fewer runs of that size may be enough for the batch
	}
	if s.Job.DDP, err = settings.Exchange(c); err != nil {
		return s, err
	}
	s.Build = func() (machine.Model, error) { return model.build(s.Job.Rows, true) }
	s.World = imaginedWorld
	s.Machine = planMachine(c, ranks, gpu, &s.Job.Rule)
	return s, nil
}

// plansGPU reports whether ranks are on GPUs. run.device=auto, which only a run can resolve, means
// the host.
//
// Errors: conflicting settings.
func plansGPU(c *config.Config) (bool, error) {
	asked := c.Run.Device == "cuda" || backend.OnGPUs(c.Comm.Backend)
	switch {
	case c.Run.Machine == settings.Tape:
		return false, fmt.Errorf("run.machine=tape: the tape machine's memory is unknown; set run.machine=compiled")
	case !asked && c.Run.Device == "auto" && c.Run.Precision != "fp32":
		return false, fmt.Errorf("run.precision=%s: only for GPUs, and the plan is for the host; set run.device=cuda", c.Run.Precision)
	case !asked:
		return false, nil
	case c.Run.Recompute == "auto" && c.Run.MemoryMB == 0:
		return false, fmt.Errorf("run.recompute=auto: the free memory of the GPU is unknown here; set run.memory_mb")
	case c.Run.Device == "cpu":
		return false, fmt.Errorf("comm.backend=%s: only between GPUs, and run.device is cpu", c.Comm.Backend)
	case backend.OnHost(c.Comm.Backend):
		return false, fmt.Errorf("run.device=cuda: comm.backend=%s is between ranks of the host", c.Comm.Backend)
	}
	return true, nil
}

// planMachine returns the configuration of the compiled graph.
func planMachine(c *config.Config, ranks int, gpu bool, rule *optim.Config) machine.Config {
	threads := c.CPU.Threads
	if threads == 0 {
		threads = max(1, runtime.GOMAXPROCS(0)/ranks)
	}
	m := settings.Machine(c, gpu, c.Model.Name, threads)
	if gpu {
		m.Solver = rule
	}
	return m
}

// over returns a/b, rounded up.
func over(a, b int) int { return (a + b - 1) / b }
