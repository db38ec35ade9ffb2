package backend

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/direct"
	"github.com/symgrad/symgrad/internal/gpu/nccl"
	"github.com/symgrad/symgrad/internal/gpu/nvshmem"
)

// provider moves bytes between GPUs: a library, or symgrad's kernels. It makes engines and
// symmetric memory.
type provider struct {
	name    string // "direct", "nccl", "nvshmem"
	about   string // description with version and file
	maker   gpu.Maker
	memory  gpu.Allocator
	library gpu.Library // for the table; may be the zero Library
	why     error       // why it cannot be used, equal on all ranks; then maker and memory are nil
}

// unusable returns err as the reason why a provider cannot be used.
func unusable(err error) error {
	if errors.Is(err, dist.ErrUnsupported) || errors.Is(err, dist.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", dist.ErrUnsupported, err)
}

// openProviders opens the providers of the backend. With backend cuda, a provider that one rank
// cannot use is left out on all.
//
// Collective: all ranks. Errors: equal on all ranks.
func (g *GPUs) openProviders() error {
	if err := g.member.Agree(g.env.SetLibraryVariables()); err != nil {
		return err
	}
	// NCCL before NVSHMEM: it is loaded once, for both.
	var viaNCCL, viaNVSHMEM, own *provider
	if g.name != NVSHMEM {
		viaNCCL = g.openNCCL()
	}
	if g.name != NCCL {
		viaNVSHMEM = g.openNVSHMEM()
	}
	if g.name == CUDA {
		own = g.openOwn()
	}
	for _, w := range []*provider{own, viaNCCL, viaNVSHMEM} {
		if w != nil {
			g.providers = append(g.providers, w)
		}
	}
	for _, w := range []*provider{viaNVSHMEM, viaNCCL, own} { // memory that all libraries can use comes first
		if w != nil && w.why == nil {
			g.memory = append(g.memory, w.memory)
		}
	}
	// NVSHMEM allocates only on all ranks at once, and its operations take other memory too. NCCL
	// allocates only inside a host.
	if len(g.memory) > 0 && (g.name == NVSHMEM || g.name == NCCL && g.member.HostCount() > 1) {
		g.memory = append(g.memory, direct.IPC{})
	}
	if err := g.member.Agree(nil); err != nil { // the control group broke, which is no provider's error
		return err
	}
	if len(g.memory) > 0 || g.name == CUDA && g.member.Size == 1 { // one rank moves no bytes
		return nil
	}
	var reasons []error
	for _, w := range g.providers {
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
	if n := g.member.HostCount(); n > 1 && w.why == nil {
		w.why = fmt.Errorf("%w: the ranks are on %d hosts, and %s", dist.ErrUnsupported, n, nvshmemApart)
	}
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

// openOwn opens symgrad's kernels, which need a compiler and peer access, but no library between
// GPUs.
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

// engines makes the engines of all usable providers, in their order; it is a gpu.Maker. With
// backend cuda a provider that does not support this group is left out. A group over several hosts
// has the engines of NCCL.
func (g *GPUs) engines(p *gpu.Member) ([]gpu.Engine, error) {
	var all []gpu.Engine
	for _, w := range g.providers {
		if w.why != nil || p.HostCount() > 1 && w.name != NCCL {
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
	switch n := p.HostCount(); {
	case len(all) > 0 || p.Size == 1:
	case n > 1:
		return nil, fmt.Errorf("%w: the group is on %d hosts, and only NCCL joins these: %s", dist.ErrUnsupported, n, g.missing())
	default:
		return nil, fmt.Errorf("%w: %s", dist.ErrUnsupported, g.missing())
	}
	return all, nil
}

// missing lists why providers cannot be used.
func (g *GPUs) missing() string {
	var reasons []string
	for _, w := range g.providers {
		if w.why != nil {
			reasons = append(reasons, fmt.Sprintf("%s: %v", w.name, w.why))
		}
	}
	return strings.Join(reasons, "; ")
}

// allocators tries several in turn: an allocation is by the first that supports the group. All
// ranks use the same one, because errors are equal.
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

// alone is the longest wait of a closing rank for the others to stop NVSHMEM with it.
const alone = 5 * time.Second
