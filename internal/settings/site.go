package settings

import (
	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/host/blas"
	"github.com/symgrad/symgrad/internal/tool/cli"
	"github.com/symgrad/symgrad/machine"
)

// Tape is the value of run.machine for Gorgonia's own machine.
const Tape = "tape"

// Site is the place where a run computes.
type Site struct {
	GPU bool   // each rank on its own GPU; else on the host
	Why string // the reason, for reports
}

// SiteOf returns where the ranks of env compute. It looks at files and loads no library: a broken
// library shows when the world is opened.
//
// Errors: cli.ErrUsage with the reason, for requested GPUs that cannot be used.
func SiteOf(c *config.Config, env launch.Env) (Site, error) {
	onHost := hostOnly(c)
	asked := "" // the setting that requests GPUs
	switch {
	case c.Run.Device == "cuda":
		asked = "run.device=cuda"
	case backend.OnGPUs(c.Comm.Backend):
		asked = "comm.backend=" + c.Comm.Backend
	}
	if onHost == "" {
		if why := missingGPU(c, env); why != "" {
			onHost = why
			if asked != "" {
				onHost += "; set run.device to cpu and comm.backend to auto to train on the host"
			}
		}
	}
	switch {
	case onHost == "" && asked == "":
		return Site{true, "run.device=auto, and each rank has a GPU"}, nil
	case onHost == "":
		return Site{true, "set by " + asked}, nil
	case asked != "":
		return Site{}, cli.Usage("%s: %s", asked, onHost)
	case c.Run.Device == "auto" && c.Run.Precision != "fp32":
		return Site{}, cli.Usage("run.precision=%s: it is for GPUs, and this run is on the host, in fp32: %s", c.Run.Precision, onHost)
	}
	return Site{false, onHost}, nil
}

// hostOnly returns the setting that keeps the run on the host; "" if there is none.
func hostOnly(c *config.Config) string {
	switch {
	case c.Run.Device == "cpu":
		return "set by run.device"
	case c.Run.Machine == Tape:
		return "run.machine=tape runs on the host; set it to compiled for GPUs"
	case backend.OnHost(c.Comm.Backend):
		return "comm.backend=" + c.Comm.Backend + " is between ranks of the host"
	}
	return ""
}

// missingGPU returns why the ranks of env cannot have a GPU each; "" if they can.
func missingGPU(c *config.Config, env launch.Env) string {
	want := c.Comm.Backend
	if want == backend.Auto {
		want = backend.CUDA
	}
	files := backend.Config{CUDADriver: c.GPU.Driver, NVRTC: c.GPU.NVRTC, NCCL: c.GPU.NCCL, NVSHMEM: c.GPU.NVSHMEM}
	for _, choice := range files.Choices(env) {
		if choice.Name == want && !choice.Usable {
			return choice.Why
		}
	}
	return ""
}

// Backend returns the configuration of the world, on GPUs or on the host.
func Backend(all *config.Config, gpu bool) backend.Config {
	c := all.Comm
	b := backend.Config{
		Backend: c.Backend, InitTimeout: c.TimeoutInit, StepTimeout: c.TimeoutStep,
		FastOrder: c.Order == "fast", Unchecked: !c.Check, TraceEntries: c.TraceEntries, Device: backend.HostDevice,
	}
	if gpu {
		g := all.GPU
		b.Device = backend.CUDADevice
		if c.Backend != backend.Auto { // with auto these have no effect
			b.Engine, b.TunePath = c.Engine, c.Tune
		}
		if c.Backend != backend.NVSHMEM { // which has no such setting
			b.MaxCTAs = c.MaxCTAs
		}
		b.CUDADriver, b.NVRTC, b.NCCL, b.NVSHMEM = g.Driver, g.NVRTC, g.NCCL, g.NVSHMEM
	}
	return b
}

// Machine returns the configuration of a compiled graph, for a rank with so many goroutines.
func Machine(all *config.Config, gpu bool, name string, threads int) machine.Config {
	c := machine.Config{
		Name: name, Device: machine.CPU, Threads: threads, NewBatch: machine.Refuse, Seed: uint64(all.Run.Seed),
		Recompute: machine.Recompute(all.Run.Recompute),
	}
	if c.Recompute == machine.RecomputeAuto {
		c.MemoryBytes = int64(all.Run.MemoryMB) << 20
	}
	switch blas := all.CPU.BLAS; blas {
	case "auto":
	case "gonum":
		c.BLAS = "none"
	default:
		c.BLAS = blas
	}
	if gpu {
		c.Device = machine.CUDA
		c.Compute = map[string]string{"fp32": "f32", "tf32": "tf32", "bf16": "bf16", "f16": "f16"}[all.Run.Precision]
		c.CUDADriver, c.NVRTC = all.GPU.Driver, all.GPU.NVRTC
	}
	return c
}

// BLAS returns the configuration of the library for matrix products, with so many threads.
func BLAS(c config.CPU, threads int) blas.Config {
	b := blas.Config{Threads: threads}
	switch c.BLAS {
	case "auto":
	case "gonum":
		b = blas.Config{Disable: true}
	default:
		b.Path = c.BLAS
	}
	return b
}
