package backend

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/direct"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/nccl"
	"github.com/symgrad/symgrad/internal/nvshmem"
)

// provider is a library that moves bytes between GPUs, or our kernels. It makes engines and
// symmetric memory.
type provider struct {
	name    string // "direct", "nccl", "nvshmem"
	about   string // description, with version and file
	maker   gpu.Maker
	memory  gpu.Allocator
	library gpu.Library // for the table; the zero Library for none
	why     error       // why it cannot be used, equal on all ranks; then maker and memory are nil
}

// unusable is err as the reason why a way cannot be used.
func unusable(err error) error {
	if errors.Is(err, dist.ErrUnsupported) || errors.Is(err, dist.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", dist.ErrUnsupported, err)
}

// openWays opens the providers of the backend. With backend cuda, one that cannot be used on one
// rank is left out on all.
//
// Collective: all ranks. Errors: the same on all ranks.
func (g *GPUs) openWays() error {
	if err := g.member.Agree(launch.SetLibraryVariables()); err != nil {
		return err
	}
	// NCCL before NVSHMEM: it is loaded once, for both.
	var ncclWay, nvshmemWay, own *provider
	if g.name != NVSHMEM {
		ncclWay = g.openNCCL()
	}
	if g.name != NCCL {
		nvshmemWay = g.openNVSHMEM()
	}
	if g.name == CUDA {
		own = g.openOwn()
	}
	for _, w := range []*provider{own, ncclWay, nvshmemWay} {
		if w != nil {
			g.ways = append(g.ways, w)
		}
	}
	for _, w := range []*provider{nvshmemWay, ncclWay, own} { // memory that all libraries can use comes first
		if w != nil && w.why == nil {
			g.memory = append(g.memory, w.memory)
		}
	}
	if g.name == NVSHMEM && len(g.memory) > 0 { // NVSHMEM allocates on all ranks at once; its operations take other memory too
		g.memory = append(g.memory, direct.IPC{})
	}
	if err := g.member.Agree(nil); err != nil { // the control group broke, and that is no library's fault
		return err
	}
	if len(g.memory) > 0 || g.name == CUDA && g.member.Size == 1 { // one rank needs no provider
		return nil
	}
	var reasons []error
	for _, w := range g.ways {
		reasons = append(reasons, fmt.Errorf("%s: %w", w.name, w.why))
	}
	return errors.Join(reasons...)
}

func (g *GPUs) openNCCL() *provider {
	w := &provider{name: NCCL}
	lib, err := nccl.Open(nccl.Config{Path: g.cfg.NCCL, Dirs: g.dirs, MaxCTAs: g.cfg.MaxCTAs, InitTimeout: g.cfg.InitTimeout})
	if err = g.member.Agree(err); err != nil {
		w.why = unusable(err)
		return w
	}
	w.about, w.maker, w.memory = lib.String(), lib.Make, lib.Allocator()
	w.library = gpu.Library{Name: NCCL, Version: lib.Version().String()}
	return w
}

func (g *GPUs) openNVSHMEM() *provider {
	w := &provider{name: NVSHMEM, why: g.apart}
	if w.why != nil {
		return w
	}
	compiler, _ := g.driver.Compiler() // without it averages and scaled sums are left out, which the runtime explains
	lib, err := nvshmem.Open(nvshmem.Config{Path: g.cfg.NVSHMEM, Dirs: g.dirs, NCCL: g.cfg.NCCL, GranularityBytes: g.cfg.HeapStep, Compiler: compiler})
	if err = g.member.Agree(err); err != nil {
		w.why = unusable(err)
		return w
	}
	if g.runtime, err = nvshmem.Start(lib, g.member); err != nil {
		g.runtime, w.why = nil, unusable(err)
		return w
	}
	w.about, w.maker, w.memory = lib.String(), g.runtime.Make, g.runtime
	w.library = gpu.Library{Name: NVSHMEM, Version: lib.Version().String()}
	return w
}

// openOwn is our own kernels, which need a compiler and peer access, but no library between GPUs.
func (g *GPUs) openOwn() *provider {
	w := &provider{name: "direct", why: g.apart}
	if w.why != nil {
		return w
	}
	var compiler *cuda.Compiler
	compiler, err := g.driver.Compiler()
	if err = g.member.Agree(err); err != nil {
		w.why = unusable(err)
		return w
	}
	w.about = "own kernels, compiled by " + compiler.String()
	w.maker, w.memory = direct.Make(direct.Config{MaxCTAs: g.cfg.MaxCTAs}), direct.IPC{}
	return w
}

// engines makes the engines of all ways that can be used, in the order of the ways; it is a
// gpu.Maker. With backend cuda a way that turns out not to be for this group is left out.
func (g *GPUs) engines(p *gpu.Member) ([]gpu.Engine, error) {
	var all []gpu.Engine
	for _, w := range g.ways {
		if w.why != nil {
			continue
		}
		engines, err := w.maker(p)
		if err == nil {
			all = append(all, engines...)
			continue
		}
		if g.name == CUDA && errors.Is(err, dist.ErrUnsupported) {
			w.why = err
			continue
		}
		errs := []error{fmt.Errorf("%s: %w", w.name, err)}
		for i := len(all) - 1; i >= 0; i-- {
			all[i].Abort()
			errs = append(errs, all[i].Close())
		}
		return nil, errors.Join(errs...)
	}
	if len(all) == 0 && p.Size > 1 {
		return nil, fmt.Errorf("%w: %s", dist.ErrUnsupported, g.missing())
	}
	return all, nil
}

// missing is why ways cannot be used.
func (g *GPUs) missing() string {
	var reasons []string
	for _, w := range g.ways {
		if w.why != nil {
			reasons = append(reasons, fmt.Sprintf("%s: %v", w.name, w.why))
		}
	}
	return strings.Join(reasons, "; ")
}

// allocators is several of them: each allocation is the first's that can serve the group, the same
// on all ranks because errors are.
type allocators []gpu.Allocator

// Name implements gpu.Allocator.
func (a allocators) Name() string {
	var names []string
	for _, one := range a {
		names = append(names, one.Name())
	}
	return strings.Join(names, ", ")
}

// Alloc implements gpu.Allocator.
func (a allocators) Alloc(p *gpu.Member, bytes int64) (*gpu.Slab, error) {
	var reasons []error
	for _, one := range a {
		s, err := one.Alloc(p, bytes)
		if err == nil || !errors.Is(err, dist.ErrUnsupported) {
			return s, err
		}
		reasons = append(reasons, fmt.Errorf("%s: %w", one.Name(), err))
	}
	return nil, errors.Join(reasons...)
}

// alone is how long a rank that closes waits for the others to stop NVSHMEM together with it.
const alone = 5 * time.Second
