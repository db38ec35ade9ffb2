package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/tensor"
)

// gpus is the driver and how many GPUs a test takes, of at least and at most so many. No context is
// made for it: each rank makes that of its GPU.
func gpus(t *testing.T, least, most int) (*cuda.Driver, int) {
	t.Helper()
	d := cudatest.Driver(t)
	if d.Count() < least {
		cudatest.Missing(t, "needs %d GPUs, there are %d", least, d.Count())
	}
	return d, min(d.Count(), most)
}

// opener opens worlds of a backend as their ranks do.
func opener(cfg Config) conformance.Opener {
	return func(ctx context.Context, opt conformance.LaunchOptions) (*dist.World, error) {
		cfg.StepTimeout, cfg.InitTimeout = opt.StepTimeout, time.Minute
		return Open(ctx, cfg)
	}
}

// ncclSkips returns why backend nccl cannot run a case, or "".
func ncclSkips(c conformance.Case) string {
	if c.Kind.Reduces() && (c.DType == tensor.I16 || c.DType == tensor.U16) {
		return "NCCL has no 16-bit integers"
	}
	if c.Kind.Reduces() && c.Red.Bitwise() {
		return "NCCL has no and, or and xor"
	}
	return ""
}

// The conformance suite on 2 to 4 GPUs, ranks being processes. Each backend has a world of every
// size for the suite proper, and 32 that break, which are 1 to 1.5 s each on H200s: some 90 s a
// backend on two of them, so that all need -test.timeout=10m.
func TestConformance(t *testing.T) {
	for _, tt := range []struct {
		backend string
		opt     conformance.Options
	}{
		{NCCL, conformance.Options{AnyOrder: true, Skip: ncclSkips}},
		{NVSHMEM, conformance.Options{AnyOrder: true, FMin: true}},
		{CUDA, conformance.Options{AnyOrder: true}},
	} {
		t.Run(tt.backend, func(t *testing.T) {
			d, n := gpus(t, 2, 4)
			opt := tt.opt
			opt.Most, opt.OneWorld, opt.Memory = n, true, memory{d}
			ranks := conformance.Processes(opener(Config{Backend: tt.backend}))
			t.Run("Suite", func(t *testing.T) { conformance.RunWith(t, opt, ranks) })
			t.Run("OneSided", func(t *testing.T) { conformance.RunOneSidedWith(t, opt, ranks) })
		})
	}
}

// The bits of each of our kernels are those of the backends of the host, which pass the same checks
// with the same options: all types, reductions and copies, on data that round, in the order of the
// ranks.
func TestOurKernelsHaveTheBitsOfTheHost(t *testing.T) {
	for _, engine := range []string{"ll", "ll128", "ll128-twoshot", "oneshot", "twoshot", "tiles"} {
		for n := 2; n <= 4; n++ {
			t.Run(fmt.Sprintf("%s/%d", engine, n), func(t *testing.T) {
				d, _ := gpus(t, 2, n)
				if d.Count() < n {
					t.Skipf("needs %d GPUs, there are %d; the same test with fewer is what has to run", n, d.Count())
				}
				opt := conformance.Options{Memory: memory{d}}
				conformance.Processes(opener(Config{Backend: CUDA, Engine: engine}))(t, n, conformance.LaunchOptions{}, func(w *dist.World) error {
					return conformance.Collectives(w, opt)
				})
			})
		}
	}
}

// sums adds up the ranks' numbers on their GPUs.
func sums(w *dist.World, m memory) error {
	b, err := m.Alloc(w.Device(), 4)
	if err != nil {
		return err
	}
	x, err := tensor.FromPointer(b.Pointer(), 1, tensor.F32, w.Device())
	if err != nil {
		return err
	}
	value := []float32{float32(w.Rank() + 1)}
	if err := m.Write(x, tensor.Of(value).Raw()); err != nil {
		return err
	}
	if err := wait(w.AllReduce(x, x, dist.Sum)); err != nil {
		return err
	}
	if err := m.Read(tensor.Of(value).Raw(), x); err != nil {
		return err
	}
	if want := float32(w.Size() * (w.Size() + 1) / 2); value[0] != want {
		return fmt.Errorf("sum %v, want %v", value[0], want)
	}
	return m.Free(b)
}

// Each rank of a host has its own GPU with every backend, and the world names its backend and
// device.
func TestOpenGivesEachRankAGPU(t *testing.T) {
	for _, cfg := range []Config{
		{Device: CUDADevice},
		{Backend: NCCL},
		{Backend: NVSHMEM},
		{Backend: CUDA, Engine: "nccl", Timing: true},
		{Backend: CUDA, Engine: "tiles", MaxCTAs: 4},
		{Backend: NCCL, Engine: "nccl", MaxCTAs: 100}, // more than NCCL has
	} {
		t.Run(cfg.Name()+cfg.Engine, func(t *testing.T) {
			d, n := gpus(t, 2, 4)
			conformance.Processes(opener(cfg))(t, n, conformance.LaunchOptions{}, func(w *dist.World) error {
				if w.Backend() != cfg.Name() || w.Device() != tensor.CUDA(w.Local().Rank) {
					return fmt.Errorf("rank %d is on %s, %v", w.Rank(), w.Backend(), w.Device())
				}
				if err := sums(w, memory{d}); err != nil || !cfg.Timing {
					return err
				}
				work, err := w.Barrier()
				if err != nil {
					return err
				}
				if ms, err := work.Elapsed(); err != nil || ms <= 0 || ms > 10*time.Second {
					return fmt.Errorf("the barrier took %v: %w", ms, err)
				}
				return nil
			})
		})
	}
}

// Two ranks that are shown one GPU are refused, on both, with the GPU's id, before either makes a
// context.
func TestOpenRefusesAGPUThatIsUsedTwice(t *testing.T) {
	_, _ = gpus(t, 1, 1)
	const want = "ranks 0 and 1 have one GPU, GPU-"
	open := func(ctx context.Context, opt conformance.LaunchOptions) (*dist.World, error) {
		env, err := launch.Current()
		if err != nil {
			return nil, err
		}
		rank := env.LocalRank
		env.LocalRank = 0 // as a launcher that tells ranks nothing of each other would
		w, err := Open(ctx, Config{Backend: CUDA, Env: &env, InitTimeout: time.Minute})
		if w != nil || !errors.Is(err, dist.ErrDevice) || !strings.Contains(err.Error(), want) {
			return nil, fmt.Errorf("rank %d: world %v, error %w, want %q", rank, w, err, want)
		}
		return Open(ctx, Config{InitTimeout: time.Minute}) // the job goes on, on the host
	}
	conformance.Processes(open)(t, 2, conformance.LaunchOptions{}, func(w *dist.World) error { return sumOfRanks(w) })
}

// An engine whose library is missing is an error that says which there are, and why it is not among
// them.
func TestOpenRefusesAnEngineThatIsNotThere(t *testing.T) {
	_, _ = gpus(t, 2, 2)
	open := func(ctx context.Context, opt conformance.LaunchOptions) (*dist.World, error) {
		absent := "/absent/libnvshmem_host.so.3"
		w, err := Open(ctx, Config{Backend: CUDA, Engine: "nvshmem", NVSHMEM: absent, InitTimeout: time.Minute})
		if w != nil || !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), `"nccl-window"`) || !strings.Contains(err.Error(), absent) {
			return nil, fmt.Errorf("world %v, error %w, want the engines that are there, and %s", w, err, absent)
		}
		return Open(ctx, Config{InitTimeout: time.Minute})
	}
	conformance.Processes(open)(t, 2, conformance.LaunchOptions{}, func(w *dist.World) error { return sumOfRanks(w) })
}

// With cuda a library that is missing is left out; with its own backend it is an error. The table
// of a short measurement has a row for every engine that is left, and a world can be opened by it.
func TestMissingLibrariesAreLeftOut(t *testing.T) {
	d, n := gpus(t, 2, 4)
	open := func(ctx context.Context, opt conformance.LaunchOptions) (*dist.World, error) {
		absent := "/absent/libnvshmem_host.so.3"
		w, err := Open(ctx, Config{Backend: NVSHMEM, NVSHMEM: absent, InitTimeout: time.Minute})
		if w != nil || !errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), absent) {
			return nil, fmt.Errorf("world %v, error %w, want one that names %s", w, err, absent)
		}
		return Open(ctx, Config{Backend: CUDA, NVSHMEM: absent, InitTimeout: time.Minute})
	}
	conformance.Processes(open)(t, n, conformance.LaunchOptions{}, func(w *dist.World) error { return sums(w, memory{d}) })
}

// Both buffers of the largest operation lie in one step of the heap, so that NCCL has windows on
// them and the table has times of that.
func TestWindowsAreMeasuredOnLargeHeaps(t *testing.T) {
	_, n := gpus(t, 2, 4)
	open := func(ctx context.Context, opt conformance.LaunchOptions) (*dist.World, error) {
		g, err := OpenGPUs(ctx, Config{Backend: CUDA, HeapStep: 2 << 30, InitTimeout: time.Minute})
		if err != nil {
			return nil, err
		}
		table, err := g.Tune(gpu.Tuning{Kinds: []dist.Kind{dist.KindAllReduce}, Smallest: 256 << 20, Largest: 256 << 20, Rounds: 1, Repeats: 1})
		if err == nil && !slices.ContainsFunc(table.Rows, func(r gpu.Row) bool {
			return r.Symmetric && slices.ContainsFunc(r.Timings, func(t gpu.Timing) bool { return t.Engine == "nccl-window" })
		}) {
			err = fmt.Errorf("no time of nccl-window in %+v", table.Rows)
		}
		if err = errors.Join(err, g.Close()); err != nil {
			return nil, err
		}
		return Open(ctx, Config{InitTimeout: time.Minute})
	}
	conformance.Processes(open)(t, n, conformance.LaunchOptions{}, func(w *dist.World) error { return sumOfRanks(w) })
}

// Several worlds are made of one opening, each by another engine, and a short measurement makes a
// table.
func TestWorldsOfEveryEngineAndATable(t *testing.T) {
	d, n := gpus(t, 2, 4)
	open := func(ctx context.Context, opt conformance.LaunchOptions) (*dist.World, error) {
		g, err := OpenGPUs(ctx, Config{Backend: CUDA, InitTimeout: time.Minute})
		if err != nil {
			return nil, err
		}
		table, err := g.Tune(gpu.Tuning{Smallest: 1 << 10, Largest: 4 << 10, Rounds: 3, Repeats: 1})
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
		if len(table.Rows) == 0 || len(table.Libraries) == 0 || table.Machine != g.Device().Name() {
			return nil, errors.Join(fmt.Errorf("%d rows, libraries %v, machine %q", len(table.Rows), table.Libraries, table.Machine), g.Close())
		}
		for _, m := range table.Rows[0].Timings {
			w, err := g.World(m.Engine)
			if err != nil {
				return nil, errors.Join(err, g.Close())
			}
			if err := errors.Join(sums(w, memory{d}), w.Close()); err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w", m.Engine, err), g.Close())
			}
		}
		if err := g.Close(); err != nil {
			return nil, err
		}
		return Open(ctx, Config{InitTimeout: time.Minute})
	}
	conformance.Processes(open)(t, n, conformance.LaunchOptions{}, func(w *dist.World) error { return sumOfRanks(w) })
}
