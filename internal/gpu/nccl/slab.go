package nccl

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
)

// all returns the present windows.
func (m *member) all() []registered {
	if p := m.windows.Load(); p != nil {
		return *p
	}
	return nil
}

// change replaces the windows by f of a copy of them.
func (m *member) change(f func([]registered) []registered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := f(slices.Clone(m.all()))
	m.windows.Store(&all)
}

// windowsUsable returns nil if windows exist, and every slab has one.
func (m *member) windowsUsable() error {
	all := m.all()
	if len(all) == 0 {
		return errWindows
	}
	for i := range all {
		if all[i].refused != nil {
			return all[i].refused
		}
	}
	return nil
}

// Register implements gpu.Registrar. Memory that NCCL did not allocate must come from cuMemCreate,
// as one allocation. A slab without a window is not an error. Until it is unregistered, Can returns
// the reason for every operation, because an operation does not name its slab.
//
// Errors: on all ranks, those of the control group.
func (e *windowed) Register(s *gpu.Slab) error {
	if e.absent != nil {
		return nil
	}
	m := e.m
	at := s.Base[m.member.Rank]
	for _, r := range m.all() {
		if r.w.Addr == at {
			return nil // the allocator has made the window
		}
	}
	w, err := m.window(at, s.Bytes)
	if err != nil {
		if broken := m.member.Agree(nil); broken != nil {
			return errors.Join(err, broken)
		}
		w, err = Window{Addr: at, Bytes: s.Bytes}, fmt.Errorf("nccl: no window on a slab: %w: %w", dist.ErrUnsupported, err)
	}
	m.change(func(all []registered) []registered { return append(all, registered{w, err}) })
	return nil
}

// Unregister implements gpu.Registrar.
func (e *windowed) Unregister(s *gpu.Slab) error {
	if e.absent != nil {
		return nil
	}
	return e.m.forget(s.Base[e.m.member.Rank])
}

// forget deregisters the window at an address, if there is one.
func (m *member) forget(at uintptr) error {
	var gone []registered
	m.change(func(all []registered) []registered {
		return slices.DeleteFunc(all, func(r registered) bool {
			if r.w.Addr == at {
				gone = append(gone, r)
			}
			return r.w.Addr == at
		})
	})
	var errs []error
	for _, r := range gone {
		errs = append(errs, m.drop(r.w))
	}
	return errors.Join(errs...)
}

// drop deregisters a window; an ended communicator has freed its own.
func (m *member) drop(w Window) error {
	if w.Handle == 0 {
		return nil
	}
	err := m.symmetric.DeregisterWindow(w)
	if errors.Is(err, errCommClosed) || errors.Is(err, errCommAborted) {
		return nil
	}
	return err
}

// window makes a window of memory of any allocator.
//
// Collective: all ranks. Errors: on all ranks.
func (m *member) window(at uintptr, bytes int64) (Window, error) {
	p := m.member
	var own extent
	r, err := m.lib.driverRanges(p.Device)
	if err == nil {
		err = onDevice(p.Device, func() (err error) {
			own, err = r.extentOf(at, bytes)
			return err
		})
	}
	if err := p.Agree(err); err != nil {
		return Window{}, fmt.Errorf("nccl: %d B: %w", bytes, err)
	}
	if err := m.lib.sameExtents(p, own); err != nil {
		return Window{}, err
	}
	w, err := m.symmetric.RegisterWindow(at, bytes)
	if agreed := p.Agree(err); agreed != nil {
		if err == nil {
			agreed = errors.Join(agreed, m.drop(w))
		}
		return Window{}, agreed
	}
	return w, nil
}

// allocator is the Allocator "nccl".
type allocator struct{ l *Library }

var _ gpu.Allocator = allocator{}

// Name implements gpu.Allocator.
func (allocator) Name() string { return "nccl" }

// Alloc implements gpu.Allocator.
func (a allocator) Alloc(p *gpu.Member, bytes int64) (*gpu.Slab, error) {
	if bytes < 1 {
		return nil, fmt.Errorf("nccl: %w: a slab of %d B", dist.ErrInvalid, bytes)
	}
	for _, err := range []error{a.l.t.memAlloc.Err(), a.l.t.memFree.Err()} {
		if err != nil {
			return nil, a.l.unsupported(err)
		}
	}
	if p.Size > 1 {
		if err := a.l.noWindows(p); err != nil {
			return nil, err
		}
	}
	m, err := a.l.member(p)
	if err != nil {
		return nil, err
	}
	s, err := m.alloc(bytes)
	if err != nil {
		return nil, errors.Join(err, m.release())
	}
	return s, nil
}

// alloc is Alloc for the member, which holds a reference for the slab.
func (m *member) alloc(bytes int64) (*gpu.Slab, error) {
	p := m.member
	if m.symmetric == nil && p.Size > 1 {
		c, err := m.lib.NewComm(p, "heap")
		if err != nil {
			return nil, err
		}
		m.symmetric = c
	}
	at, err := m.take(bytes)
	if agreed := p.Agree(err); agreed != nil {
		if err == nil {
			agreed = errors.Join(agreed, m.give(at))
		}
		return nil, agreed
	}
	s := &gpu.Slab{Bytes: bytes, Base: []uintptr{at}}
	if p.Size > 1 {
		if s.Base, err = m.share(at, bytes); err != nil {
			return nil, errors.Join(err, m.forget(at), m.give(at))
		}
	}
	freed := false
	s.Free = func() error {
		if freed {
			return nil
		}
		freed = true
		return m.free(at)
	}
	return s, nil
}

// share makes memory of all ranks one window and returns the address of each rank's part.
//
// Collective: all ranks. Errors: on all ranks.
func (m *member) share(at uintptr, bytes int64) ([]uintptr, error) {
	w, err := m.window(at, bytes)
	if err != nil {
		return nil, err
	}
	m.change(func(all []registered) []registered { return append(all, registered{w, nil}) })
	base, err := m.symmetric.Peers(w)
	if err := m.member.Agree(err); err != nil {
		return nil, err
	}
	return base, verify(m.member, base)
}

// take allocates zeroed memory of this rank's device.
func (m *member) take(bytes int64) (at uintptr, err error) {
	dev := m.member.Device
	err = onDevice(dev, func() error {
		var out uintptr
		r, err := m.lib.t.memAlloc.Call(uintptr(unsafe.Pointer(&out)), uintptr(bytes))
		if err := m.answer("ncclMemAlloc", r, err); err != nil {
			return err
		}
		at = out
		return dev.Fill(at, 0, bytes)
	})
	if err != nil {
		err = fmt.Errorf("nccl: %d B on %v: %w", bytes, dev.Tensor(), err)
		if at != 0 {
			err = errors.Join(err, m.give(at))
		}
	}
	return at, err
}

// give frees memory of take.
func (m *member) give(at uintptr) error {
	return onDevice(m.member.Device, func() error {
		r, err := m.lib.t.memFree.Call(at)
		return m.answer("ncclMemFree", r, err)
	})
}

// answer converts the result of a call without a communicator to an error.
func (m *member) answer(call string, r uintptr, err error) error {
	if err != nil {
		return m.lib.unsupported(err)
	}
	if int32(r) != resultSuccess {
		return m.lib.failure(call, int32(r), "", m.member.Rank, m.member.Size, 0)
	}
	return nil
}

// free is Slab.Free. Ranks meet before any of them unmaps a part, and again before the owner frees
// it. If a rank is gone the memory stays until the process ends, because others may still read it.
func (m *member) free(at uintptr) error {
	if m.member.Agree(nil) != nil {
		return m.release()
	}
	err := m.forget(at)
	if m.member.Agree(nil) != nil {
		return errors.Join(err, m.release())
	}
	return errors.Join(err, m.give(at), m.release())
}
