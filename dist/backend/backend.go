// Package backend opens worlds. It lists all backends, in the order in which they are tried, and
// chooses one.
//
//	w, err := backend.Open(ctx, backend.Config{}) // rank by environment, rendezvous, backend
//	defer w.Close()
//
// Without a launcher a program is a world of one rank; under symgrad run, torchrun, mpirun or srun
// it is a rank of their job. Files: backend.go has Config and Open, gpus.go and providers.go worlds
// on GPUs, facts.go the checks before a GPU is used, choices.go the list for symgrad doctor.
//
// # Which backend?
//
//	shm      shared memory between processes of one host; buffers are in host memory
//	mpi      the same inside a host, and MPI between hosts; for mpirun and mpiexec
//	ucx      the same inside a host, and UCX between hosts; for every launcher
//	sim      goroutines of one process, for tests; only with Simulate
//	cuda     GPUs: each operation by the fastest of NVSHMEM, NCCL and symgrad's kernels
//	nccl     GPUs by NCCL alone
//	nvshmem  GPUs of one host by NVSHMEM alone
//
// Auto is cuda if Config.Device is cuda. Otherwise, also for device auto, it is shm on one host. On
// several hosts it is mpi if a launcher of MPI started the ranks, and ucx otherwise. So a program
// without settings behaves equally on machines with and without GPUs. NVIDIA's libraries are
// searched for and loaded only if a GPU is requested.
//
// # How is a world on GPUs opened?
//
// First a world of the host is opened, the control group: on shared memory, and by MPI or UCX
// between hosts. Through it ranks meet, compare
// settings, agree on errors and detect deaths. Each rank then has one GPU, that of its local rank
// among the visible ones (launch.Env.GPU). Before any GPU is used the ranks compare ids: two ranks
// on one GPU are an error that names both. NCCL is loaded before NVSHMEM, which then uses the same
// copy. With cuda, a library that one rank lacks is left out on all; with nccl and nvshmem it is an
// error. NVSHMEM and symgrad's kernels need peer access; NCCL copies through the host without it.
//
// # Which engines join GPUs of several hosts?
//
// NCCL does, and no other library. A group with as many ranks on each host has an engine "hier" as
// well. It sums inside the hosts, by the fastest engine there, and NCCL adds the sums of hosts. The
// dispatcher takes it for large allreduces. A heap of such a group has addresses only for the parts
// of ranks on the same host. A part of a group (Split) that is on one host has all engines except
// NVSHMEM.
//
// # How much of a GPU does an operation take?
//
// Its launch has as many thread blocks as make it the fastest alone, unless Config.MaxCTAs sets a
// bound. During matrix products fewer may be better, since a block keeps its multiprocessor, or its
// part of one, to the end of the operation. The bound holds for symgrad's kernels and for NCCL (its
// maxCTAs). NVSHMEM has no such setting: its own operations are kernels of one block, and those
// that it passes to NCCL follow NCCL's choice. The table for choosing the fastest was measured
// without a bound, and is used nevertheless; symgrad tune measures another one with it.
//
// Closing the world closes, in this order: its groups and engines, NVSHMEM, the control group, the
// store, the driver.
package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/direct"
	"github.com/symgrad/symgrad/internal/host/shm"
	"github.com/symgrad/symgrad/internal/sim"
)

// The backends.
const (
	Auto    = "auto"    // the one for Config.Device
	SHM     = "shm"     // shared memory of one host
	MPI     = "mpi"     // shared memory inside a host, MPI between hosts
	UCX     = "ucx"     // shared memory inside a host, UCX between hosts
	Sim     = "sim"     // goroutines of one process; only with Simulate
	CUDA    = "cuda"    // GPUs, each operation by the fastest engine
	NCCL    = "nccl"    // GPUs, by NCCL
	NVSHMEM = "nvshmem" // GPUs of one host, by NVSHMEM
)

// Names returns all backends, as Config.Backend takes them.
func Names() []string { return []string{Auto, SHM, MPI, UCX, Sim, CUDA, NCCL, NVSHMEM} }

// OnHost reports whether name is a backend between ranks in the memory of hosts.
func OnHost(name string) bool { return name == SHM || name == Sim || overHosts(name) }

// overHosts reports whether name is a backend between hosts.
func overHosts(name string) bool { return name == MPI || name == UCX }

// OnGPUs reports whether name is a backend between GPUs.
func OnGPUs(name string) bool { return name == CUDA || name == NCCL || name == NVSHMEM }

// EngineNames returns the engines of a backend between GPUs, as Config.Engine takes them; none for
// a backend of the host.
func EngineNames(name string) []string {
	switch name {
	case NCCL:
		return []string{"nccl", "nccl-window", gpu.Hierarchical}
	case NVSHMEM:
		return []string{"nvshmem"}
	case CUDA:
		return append(direct.Names(), "nccl", "nccl-window", "nvshmem", gpu.Hierarchical)
	}
	return nil
}

// MostCTAs is the largest Config.MaxCTAs.
const MostCTAs = direct.MaxBlocks

// mostTraceEntries is the largest Config.TraceEntries, so that a mistyped number does not crash.
// The setting comm.trace_entries has the same bound.
const mostTraceEntries = 1 << 24

// The devices of a world's buffers.
const (
	AnyDevice  = "auto" // the host's memory; see the package comment
	HostDevice = "cpu"
	CUDADevice = "cuda" // one GPU for each rank
)

// Config holds the settings of a world. The zero value is usable.
type Config struct {
	Backend      string        // one of Names; "" means Auto
	Device       string        // AnyDevice, HostDevice or CUDADevice; "" means AnyDevice
	Env          *launch.Env   // identifies this rank; nil means launch.Current
	InitTimeout  time.Duration // longest wait for all ranks to meet; 0 means one minute
	StepTimeout  time.Duration // longest wait for a peer in one operation; 0 means 100 s
	Unchecked    bool          // do not compare operations across ranks
	TraceEntries int           // of the recorder, up to 1<<24; 0 means dist.DefaultTraceEntries
	ShmDir       string        // tmpfs folder for shared memory; "" means anonymous memory
	FastOrder    bool          // over several hosts, add inside hosts first: floats are rounded otherwise than on one
	Timing       bool          // measure every operation, for dist.Work.Elapsed; dist.Group.Timed does so for some

	// Only of backends between GPUs.
	Engine     string       // engine of all operations: "nccl", "nvshmem", "oneshot"; "" means the fastest for each
	TunePath   string       // file of symgrad tune, for choosing the fastest; "" means the built-in table
	Log        *slog.Logger // rank 0 warns here of a TunePath that was measured on other GPUs; nil means slog.Default()
	MaxCTAs    int          // most thread blocks of a launch, except NVSHMEM's; 0 means the fastest number; equal on all ranks
	HeapStep   int64        // bytes by which NVSHMEM's memory grows, a power of two: NCCL's windows must be within one step; 0 means 512 MiB
	CUDADriver string       // path or soname of libcuda; "" means libcuda.so.1, searched for
	NVRTC      string       // path or soname of libnvrtc; "" means that of the newest CUDA that the driver supports, searched for
	NCCL       string       // path or soname; "" means that of NCCL_HOME, or libnccl.so.2, searched for
	NVSHMEM    string       // path or soname; "" means that of NVSHMEM_HOME, or libnvshmem_host.so.3, searched for
}

// Bounds of Config.HeapStep, in bytes: the driver maps 2 MiB at a time, and NVSHMEM's heap is
// smaller than 128 GiB here.
const (
	MinHeapStep = 2 << 20
	MaxHeapStep = 64 << 30
)

// Validate returns an error for the first setting that is invalid, or without effect on the
// backend.
//
// Errors: dist.ErrInvalid.
func (c Config) Validate() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("backend: %w: %s", dist.ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case c.Backend != "" && !slices.Contains(Names(), c.Backend):
		return invalid("unknown backend %q: use one of %s", c.Backend, strings.Join(Names(), ", "))
	case c.Device != "" && c.Device != AnyDevice && c.Device != HostDevice && c.Device != CUDADevice:
		return invalid("unknown device %q: use auto, cpu or cuda", c.Device)
	case c.InitTimeout < 0 || c.StepTimeout < 0:
		return invalid("negative timeout")
	case c.TraceEntries < 0 || c.TraceEntries > mostTraceEntries:
		return invalid("%d trace entries: want 0 to %d", c.TraceEntries, mostTraceEntries)
	case c.MaxCTAs < 0 || c.MaxCTAs > MostCTAs:
		return invalid("at most %d blocks in a launch: want 0 to %d", c.MaxCTAs, MostCTAs)
	case c.FastOrder && !slices.Contains([]string{"", Auto, MPI, UCX}, c.Backend):
		return invalid("the fast order of sums has no effect on backend %s: it is for mpi, ucx and auto", c.Backend)
	case c.Device == HostDevice && OnGPUs(c.Backend):
		return invalid("backend %s is between GPUs, and the device is cpu: use shm or auto", c.Backend)
	case c.Device == CUDADevice && OnHost(c.Backend):
		return invalid("backend %s is between ranks of the host, and the device is cuda: use cuda, nccl, nvshmem or auto", c.Backend)
	case OnGPUs(c.Name()):
		if names := EngineNames(c.Name()); c.Engine != "" && !slices.Contains(names, c.Engine) {
			return invalid("unknown engine %q of backend %s: use one of %s", c.Engine, c.Name(), strings.Join(names, ", "))
		}
		if c.HeapStep != 0 && (c.HeapStep < MinHeapStep || c.HeapStep > MaxHeapStep || c.HeapStep&(c.HeapStep-1) != 0) {
			return invalid("memory grows by %d B: want a power of two from %d to %d", c.HeapStep, MinHeapStep, MaxHeapStep)
		}
		if c.HeapStep != 0 && c.Name() == NCCL {
			return invalid("memory that grows by %d B, which has no effect on backend nccl: it is NVSHMEM's", c.HeapStep)
		}
		if c.MaxCTAs > 0 && c.Name() == NVSHMEM {
			return invalid("at most %d blocks in a launch, which has no effect on backend nvshmem: it is for cuda and nccl", c.MaxCTAs)
		}
		return nil
	}
	for _, s := range []struct {
		set  bool
		name string
	}{
		{c.Engine != "", fmt.Sprintf("engine %q", c.Engine)},
		{c.TunePath != "", fmt.Sprintf("table %q", c.TunePath)},
		{c.MaxCTAs > 0, fmt.Sprintf("at most %d blocks in a launch", c.MaxCTAs)},
		{c.HeapStep != 0, fmt.Sprintf("memory that grows by %d B", c.HeapStep)},
	} {
		if s.set {
			return invalid("%s, which has no effect on backend %s: it is for cuda, nccl and nvshmem", s.name, c.Name())
		}
	}
	return nil
}

// Name returns the backend of c, with Auto resolved.
func (c Config) Name() string {
	switch {
	case c.Backend != "" && c.Backend != Auto:
		return c.Backend
	case c.Device == CUDADevice:
		return CUDA
	}
	return SHM
}

// NameFor is Name for the job of env, with Auto resolved for ranks on several hosts.
func (c Config) NameFor(env launch.Env) string {
	name := c.Name()
	switch {
	case name != SHM || c.Backend == SHM || env.OneHost():
		return name
	case byMPI(env):
		return MPI
	}
	return UCX
}

// Open returns the world of this process.
//
// Collective: all ranks of the job. Owns: the caller closes the world. Errors: dist.ErrInvalid for
// settings, and a nil ctx; those of launch.Detect for a wrong environment, of launch.Rendezvous
// when ranks do not meet, and of the backend; dist.ErrUnsupported, with the reasons, for an
// unusable backend: no GPU, no library, several hosts; dist.ErrDevice when two ranks have one GPU.
func Open(ctx context.Context, cfg Config) (*dist.World, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	env, err := cfg.env()
	if err != nil {
		return nil, err
	}
	if err := cfg.fits(env); err != nil {
		return nil, err
	}
	switch name := cfg.NameFor(env); {
	case OnGPUs(name):
		return openOnGPUs(ctx, cfg)
	case overHosts(name):
		return cfg.openOverHosts(ctx, env)
	}
	t, closer, err := cfg.meet(ctx, &env, cfg.StepTimeout)
	if err != nil {
		return nil, err
	}
	w, err := dist.NewWorld(t, localOf(env), cfg.TraceEntries, closer)
	if err != nil {
		return nil, errors.Join(err, t.Close(), closer())
	}
	return w, nil
}

// meet opens shared memory with the other ranks of the host. It names the job if the launcher has
// not.
//
// Collective: all ranks. Returns: also a function that closes the store.
func (c Config) meet(ctx context.Context, env *launch.Env, step time.Duration) (dist.Transport, func() error, error) {
	store, closer, err := launch.Rendezvous(ctx, *env, launch.Config{Timeout: c.InitTimeout})
	if err != nil {
		return nil, nil, err
	}
	if err := launch.NameJob(ctx, env, store); err != nil {
		return nil, nil, errors.Join(err, closer.Close())
	}
	t, err := shm.Open(ctx, env.Rank, env.Size, store, shm.Config{
		StepTimeout: step, InitTimeout: c.InitTimeout, Dir: c.ShmDir, Unchecked: c.Unchecked, Timing: c.Timing && !OnGPUs(c.Name()),
	})
	if err != nil {
		return nil, nil, errors.Join(err, closer.Close())
	}
	return t, closer.Close, nil
}

// localOf describes a rank of a job on one host.
func localOf(env launch.Env) dist.LocalInfo {
	return dist.LocalInfo{Rank: env.LocalRank, Size: env.LocalSize, Nodes: 1, Launcher: env.Launcher, Job: env.Job}
}

func (c Config) env() (launch.Env, error) {
	if c.Env != nil {
		return *c.Env, c.Env.Validate()
	}
	return launch.Current()
}

// fits returns nil if the backend of c may work for the job of env, judged by env alone.
func (c Config) fits(env launch.Env) error {
	why := ""
	switch name := c.NameFor(env); {
	case name == Sim:
		why = simWhy
	case name == MPI:
		if byMPI(env) {
			return nil
		}
		why = noMPI(env)
	case name == UCX:
		return nil
	case !env.OneHost() && (name == NVSHMEM || c.Engine == NVSHMEM):
		why = severalHosts(NVSHMEM, env)
	case !env.OneHost() && !OnGPUs(name):
		why = severalHosts(name, env)
	default:
		return nil
	}
	return fmt.Errorf("backend: %w here: %s: %s", dist.ErrUnsupported, c.Name(), why)
}

// Simulate runs body on every rank of a world of n ranks, goroutines of this process, and returns
// when all are done. An error of one rank aborts the world, so that none waits for it.
//
// Errors: those of body, the first failing rank's first; invalid settings, which include backends
// between GPUs.
func Simulate(n int, cfg Config, body func(w *dist.World) error) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if OnGPUs(cfg.Name()) {
		return fmt.Errorf("backend: %w: %s is between GPUs, and simulated ranks are goroutines of the host", dist.ErrInvalid, cfg.Name())
	}
	worlds, err := sim.New(n, sim.Config{StepTimeout: cfg.StepTimeout, Unchecked: cfg.Unchecked, Timing: cfg.Timing, TraceEntries: cfg.TraceEntries})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var errs []error
	var ranks sync.WaitGroup
	for _, w := range worlds {
		ranks.Go(func() {
			err := body(w)
			if err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("rank %d: %w", w.Rank(), err))
				mu.Unlock()
				_ = w.Abort(fmt.Errorf("rank %d: %w", w.Rank(), err))
			}
			if err := w.Close(); err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("rank %d: close: %w", w.Rank(), err))
				mu.Unlock()
			}
		})
	}
	ranks.Wait()
	return errors.Join(errs...)
}
