package backend

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/foreign"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/nvshmem"
)

// GPUs is this rank's part of a job on GPUs: its device, the libraries, and the control group.
// Measurements make several worlds from it; Open makes one and hides the rest.
type GPUs struct {
	cfg   Config
	env   launch.Env
	local dist.LocalInfo
	name  string // of the backend
	dirs  []string
	table *gpu.Table // nil for the built-in one

	closeStore func() error
	base       *dist.Group // of the host: the control group
	member     *gpu.Member // over base
	driver     *cuda.Driver
	ids        []gpuID // of the GPUs that this process sees
	apart      error   // why GPUs cannot address each other's memory, equal on all ranks; nil if they can
	providers  []*provider
	memory     allocators
	runtime    *nvshmem.Runtime // nil without NVSHMEM

	once   sync.Once
	closed error
}

// OpenGPUs meets the other ranks, assigns each a GPU, and opens the libraries of the backend.
//
// Collective: all ranks of the job. Owns: the caller closes it, after its worlds. Errors: those of
// Open.
func OpenGPUs(ctx context.Context, cfg Config) (*GPUs, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	env, err := cfg.env()
	if err != nil {
		return nil, err
	}
	root, environ := os.DirFS("/"), launch.Environ()
	g := &GPUs{cfg: cfg.atHome(root, environ), env: env, name: cfg.Name(), dirs: dl.Places(root, environ)}
	if !OnGPUs(g.name) {
		return nil, fmt.Errorf("backend: %w: %s is between ranks of the host", dist.ErrInvalid, g.name)
	}
	if err := cfg.fits(env); err != nil {
		return nil, err
	}
	if cfg.TunePath != "" {
		if g.table, err = ReadTable(cfg.TunePath); err != nil {
			return nil, err
		}
	}
	if err := g.open(ctx); err != nil {
		return nil, fmt.Errorf("backend %s, rank %d of %d: %w", g.name, env.Rank, env.Size, errors.Join(err, g.Close()))
	}
	return g, nil
}

// maxTable bounds the bytes of a table: one of all operations, sizes and dtypes has less than 1
// MiB.
const maxTable = 16 << 20

// ReadTable returns the table of a file of symgrad tune.
//
// Errors: dist.ErrInvalid for an invalid table; those of the file system.
func ReadTable(path string) (*gpu.Table, error) {
	text, err := foreign.ReadFile(path, maxTable)
	if err != nil {
		return nil, fmt.Errorf("backend: table of engines: %w", err)
	}
	t, err := gpu.ReadTable(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("backend: %s: %w", path, err)
	}
	return t, nil
}

// open meets the other ranks and opens driver, device and libraries. An error on one rank is an
// error on all.
func (g *GPUs) open(ctx context.Context) error {
	t, err := g.meet(ctx)
	if err != nil {
		return err
	}
	if g.base, err = dist.NewGroup(t, controlTrace); err != nil {
		return errors.Join(err, t.Close())
	}
	g.member = gpu.MemberOf(g.base, nil)
	for _, step := range []func() error{g.openDriver, g.openDevice, g.openProviders} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// meet opens the transport of the control group: shared memory for ranks of one host, and MPI or
// UCX in addition for those of several.
func (g *GPUs) meet(ctx context.Context) (t dist.Transport, err error) {
	if g.env.OneHost() {
		t, g.closeStore, err = g.cfg.meet(ctx, &g.env, g.cfg.controlTimeout())
		g.local = localOf(g.env)
		return t, err
	}
	t, place, leave, err := g.cfg.reach(ctx, g.env, g.cfg.controlTimeout())
	if err == nil {
		g.closeStore = leave
		g.local = localAt(place, g.env)
	}
	return t, err
}

// controlTimeout returns the longest wait in the control group, which includes the time that a rank
// takes to load libraries.
func (c Config) controlTimeout() time.Duration {
	const step, start = 100 * time.Second, time.Minute
	return max(cmp.Or(c.StepTimeout, step), cmp.Or(c.InitTimeout, start))
}

// controlTrace is the size of the control group's recorder, which is not used.
const controlTrace = 16

// openDriver loads the driver, and compares the ranks before any of them makes a context.
//
// Collective: all ranks. Errors: equal on all ranks.
func (g *GPUs) openDriver() error {
	d, err := cuda.Open(cuda.Config{Driver: g.cfg.CUDADriver, NVRTC: g.cfg.NVRTC, Dirs: g.dirs})
	if err != nil {
		if v := launch.CurrentVisible(); v.Set {
			err = fmt.Errorf("%w (%v)", err, v)
		}
		return g.member.Agree(unusable(err))
	}
	g.driver = d
	query, ids, err := look(d)
	if err = g.member.Agree(err); err != nil {
		return err
	}
	g.ids = ids
	own := g.env.GPU(len(ids))
	line, err := g.cfg.factsOf(d, ids, own).encode()
	if err = g.member.Agree(err); err != nil {
		return err
	}
	lines, err := g.member.Exchange(line)
	if err != nil {
		return err
	}
	all, err := decodeFacts(lines)
	if err == nil {
		err = judge(all, g.member)
	}
	if err = g.member.Agree(err); err != nil {
		return err
	}
	g.apart = g.member.Agree(reaches(ids, own, g.env.Rank, all, g.member.Near, query.can))
	if g.apart != nil && !errors.Is(g.apart, dist.ErrUnsupported) {
		return g.apart
	}
	return nil
}

// openDevice makes the context of this rank's GPU.
//
// Collective: all ranks. Errors: equal on all ranks.
func (g *GPUs) openDevice() (err error) {
	g.member.Device, err = g.driver.Device(g.env.GPU(len(g.ids)))
	if err = g.member.Agree(err); err == nil && g.env.Rank == 0 {
		g.cfg.warnAbout(g.table, g.member.Device.Name())
	}
	return err
}

// warnAbout warns of a table without a row for GPUs of this name.
func (c Config) warnAbout(t *gpu.Table, gpus string) {
	if t != nil && len(t.Rows) > 0 && !t.Fits(gpus) {
		cmp.Or(c.Log, slog.Default()).Warn("the table of engines was measured on other GPUs: its rules choose, and none of its rows",
			"table", c.TunePath, "measured on", t.Machine, "here", gpus)
	}
}

// transport returns a group of all ranks that runs operations by engine, or by the fastest for each
// if engine is "".
//
// Collective: all ranks, same engine. Owns: the caller closes it, before g. Errors: those of
// gpu.Open, with the reasons for engines that are unavailable if one is forced.
func (g *GPUs) transport(engine string) (*gpu.Transport, error) {
	control, err := g.base.Split(0, g.base.Rank())
	if err != nil {
		return nil, err
	}
	cfg := gpu.Config{
		Device: g.member.Device, Control: control, Make: g.engines,
		Choose:      gpu.DispatchConfig{Table: g.table, Engine: engine},
		StepTimeout: g.cfg.StepTimeout, Backend: g.name, Unchecked: g.cfg.Unchecked, Timing: g.cfg.Timing,
	}
	if len(g.memory) > 0 {
		cfg.Alloc = g.memory
	}
	t, err := gpu.Open(cfg)
	if err != nil && engine != "" && g.missing() != "" {
		err = fmt.Errorf("%w; unavailable: %s", err, g.missing())
	}
	return t, err
}

// World returns a world of g's ranks that runs operations by engine, or by the fastest for each if
// engine is "".
//
// Collective: all ranks, same engine. Owns: the caller closes it, before g. Errors: dist.ErrInvalid
// for an unavailable engine, with the reason; those of gpu.Open.
func (g *GPUs) World(engine string) (*dist.World, error) {
	t, err := g.transport(engine)
	if err != nil {
		return nil, fmt.Errorf("backend %s, rank %d of %d: %w", g.name, g.env.Rank, g.env.Size, err)
	}
	return g.world(t)
}

// world returns the world over t, which it owns.
func (g *GPUs) world(t dist.Transport) (*dist.World, error) {
	w, err := dist.NewWorld(t, g.local, g.cfg.TraceEntries, nil)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return w, nil
}

// whole is a transport whose Close also closes the rest of the job.
type whole struct {
	*gpu.Transport
	g *GPUs
}

// Close closes the transport, and then its GPUs.
func (t whole) Close() error { return errors.Join(t.Transport.Close(), t.g.Close()) }

// openOnGPUs is Open for a backend between GPUs.
func openOnGPUs(ctx context.Context, cfg Config) (*dist.World, error) {
	g, err := OpenGPUs(ctx, cfg)
	if err != nil {
		return nil, err
	}
	t, err := g.transport(cfg.Engine)
	if err != nil {
		return nil, fmt.Errorf("backend %s, rank %d of %d: %w", g.name, g.env.Rank, g.env.Size, errors.Join(err, g.Close()))
	}
	return g.world(whole{t, g})
}

// Tune measures every engine for every operation that t names, and makes the table of the results.
//
// Collective: all ranks, same t. Errors: those of gpu.Open and gpu.Tune.
func (g *GPUs) Tune(t gpu.Tuning) (*gpu.Table, error) {
	own, err := g.transport("")
	if err != nil {
		return nil, fmt.Errorf("backend %s, rank %d of %d: %w", g.name, g.env.Rank, g.env.Size, err)
	}
	for _, w := range g.providers {
		if w.why == nil && w.library != (gpu.Library{}) {
			t.Libraries = append(t.Libraries, w.library)
		}
	}
	table, err := gpu.Tune(own, t)
	return table, errors.Join(err, own.Close())
}

// Rank returns this rank's number in the job.
func (g *GPUs) Rank() int { return g.env.Rank }

// Size returns the number of ranks.
func (g *GPUs) Size() int { return g.env.Size }

// Device returns this rank's GPU.
func (g *GPUs) Device() *cuda.Device { return g.member.Device }

// Engines returns the engines, and the unusable providers with the reasons. It is complete once a
// world was made.
func (g *GPUs) Engines() []Choice {
	var all []Choice
	for _, w := range g.providers {
		if w.why != nil {
			all = append(all, Choice{Name: w.name, Why: w.why.Error()})
			continue
		}
		all = append(all, Choice{Name: w.name, Usable: true, Why: w.about})
	}
	return all
}

// Close ends NVSHMEM, the control group, the store and the driver, after the worlds are closed.
// Idempotent.
//
// After a world that broke, kernels may run on the GPU without end. NVSHMEM on all ranks, and the
// device's context, would wait for them; they are left to the end of the process.
func (g *GPUs) Close() error {
	g.once.Do(func() { g.closed = g.close() })
	return g.closed
}

func (g *GPUs) close() error {
	var errs []error
	kept := false
	if g.runtime != nil {
		// It stops on all ranks together. A rank that is alone after a while leaves the library to
		// the end of the process, and the others then do so as well.
		late := time.AfterFunc(alone, func() { _ = g.base.Abort(errors.New("a rank stops NVSHMEM by itself")) })
		errs = append(errs, g.runtime.Close())
		late.Stop()
		kept = g.runtime.Left() != nil
	}
	if g.base != nil {
		errs = append(errs, g.base.Close())
	}
	if g.closeStore != nil {
		errs = append(errs, g.closeStore())
	}
	if g.driver != nil && !kept {
		errs = append(errs, soon(releaseTime, g.driver.Close))
	}
	return errors.Join(errs...)
}

// releaseTime is the longest wait for the end of the device's context, which waits for kernels,
// also those of the program itself.
const releaseTime = 10 * time.Second

// soon returns release's error, or an error after limit; release then continues until the process
// ends.
func soon(limit time.Duration, release func() error) error {
	done := make(chan error, 1)
	go func() { done <- release() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return fmt.Errorf("backend: %w: the GPU's context has not ended after %v, because kernels are running: it ends with the process",
			dist.ErrTimeout, limit)
	}
}
