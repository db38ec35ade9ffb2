package direct

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// kernels has every kernel that groups of one size can need, loaded onto a device. All are loaded
// before the first operation: the driver loads code after the running kernels, and those may wait
// for a peer that waits for this rank.
type kernels struct {
	device  *cuda.Device
	ranks   int
	entries [int(programs) * dtypes * reds]*cuda.Function
	modules []*cuda.Module
	users   int // groups that use it, counted by shelf
}

// shelf has the kernels that the groups of one Maker, and their parts, share.
type shelf struct {
	mu   sync.Mutex // guards sets and their users
	sets []*kernels
}

// open returns the kernels for p, and loads them if no other group here has done so.
//
// Collective: all ranks of p. Owns: the caller drops them. Errors: on all ranks.
func (h *shelf) open(p *gpu.Member) (*kernels, error) {
	k := h.take(p.Device, p.Size)
	c, err := p.Device.Driver().Compiler()
	if err = p.Agree(err); err != nil {
		return nil, errors.Join(err, h.drop(k))
	}
	workers := (runtime.GOMAXPROCS(0) + p.Size - 1) / p.Size // the ranks are on one host
	units := unitsOf(p.Size)
	code, err := gather(p, deviceImages{c, p.Device}, units, k == nil, workers)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("direct: kernels among %d: %w", p.Size, err), h.drop(k))
	}
	if k == nil {
		k = &kernels{device: p.Device, ranks: p.Size}
		err = k.load(units, code, workers)
	}
	if err = p.Agree(err); err != nil {
		return nil, errors.Join(err, h.drop(k))
	}
	h.put(k)
	return k, nil
}

// take returns loaded kernels, or nil.
func (h *shelf) take(v *cuda.Device, ranks int) *kernels {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.sets {
		if k.device == v && k.ranks == ranks {
			k.users++
			return k
		}
	}
	return nil
}

// put makes k available to other groups.
func (h *shelf) put(k *kernels) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.sets, k) { // otherwise it came from take
		k.users = 1
		h.sets = append(h.sets, k)
	}
}

// drop ends one use of k. Unused kernels stay for the next group until all sets are unused:
// unloading code also waits for running kernels.
func (h *shelf) drop(k *kernels) error {
	if k == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.sets, k) {
		return k.close() // open did not complete
	}
	k.users--
	if slices.ContainsFunc(h.sets, func(other *kernels) bool { return other.users > 0 }) {
		return nil
	}
	var errs []error
	for _, other := range h.sets {
		errs = append(errs, other.close())
	}
	h.sets = nil
	return errors.Join(errs...)
}

// close unloads k.
func (k *kernels) close() error {
	var errs []error
	for _, m := range k.modules {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	k.modules = nil
	return errors.Join(errs...)
}

// load loads the images of units.
func (k *kernels) load(units []unit, code [][]byte, workers int) error {
	k.modules = make([]*cuda.Module, len(units))
	all := make([]int, len(units))
	for i := range all {
		all[i] = i
	}
	if err := each(workers, all, func(i int) error { return k.loadUnit(i, units[i], code[i]) }); err != nil {
		return err
	}
	return k.launchAll()
}

func (k *kernels) loadUnit(i int, u unit, image []byte) (err error) {
	if k.modules[i], err = k.device.Load(image); err != nil {
		return fmt.Errorf("direct: kernels of %v: %w", u, err)
	}
	for _, prog := range u.programs() {
		v := u.variant(prog)
		f, err := k.modules[i].Function(programNames[prog])
		if err != nil {
			return fmt.Errorf("direct: kernel %v: %w", v, err)
		}
		blocks, err := f.Resident(MaxThreads, 0)
		if err == nil && blocks < 1 {
			err = fmt.Errorf("%w: no block of %d threads fits a multiprocessor of %v", dist.ErrUnsupported, MaxThreads, k.device)
		}
		if err != nil {
			return fmt.Errorf("direct: kernel %v: %w", v, err)
		}
		k.entries[v.index()] = f
	}
	return nil
}

// launchAll launches every kernel once, without work. At the first launch of a kernel that needs
// more local memory than all before, the driver waits for the device to allocate it.
func (k *kernels) launchAll() error {
	return idly(k.device, func(s *cuda.Stream, nothing *cuda.Args) error {
		for _, f := range k.entries {
			if f == nil {
				continue
			}
			if err := f.Launch(s, cuda.Launch{Block: [3]uint32{MaxThreads}}, nothing); err != nil {
				return err
			}
		}
		return nil
	})
}

// any returns one of the kernels.
func (k *kernels) any() *cuda.Function {
	return k.entries[slices.IndexFunc(k.entries[:], func(f *cuda.Function) bool { return f != nil })]
}

// idly calls do with a new stream of v, and arguments with which a kernel does nothing. It waits
// for the stream.
func idly(v *cuda.Device, do func(s *cuda.Stream, nothing *cuda.Args) error) (err error) {
	s, err := v.NewStream(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	nothing, err := cuda.NewArgs(arguments)
	if err != nil {
		return err
	}
	for range arguments {
		nothing.U64(0)
	}
	if err := v.Enter(); err != nil {
		return err
	}
	defer v.Leave()
	if err := do(s, nothing); err != nil {
		return err
	}
	return s.Synchronize()
}

// of returns the kernel of v.
//
// Errors: dist.ErrUnsupported for a kernel that was not loaded; no operation that Can allows needs
// one.
func (k *kernels) of(v variant) (*cuda.Function, error) {
	if f := k.entries[v.index()]; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("%w: kernel %v was not loaded with the group, and later it might wait for a peer", dist.ErrUnsupported, v)
}
