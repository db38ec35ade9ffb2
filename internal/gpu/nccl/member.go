package nccl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/tensor"
)

// member is one rank of one group, shared by its engines and slabs. It ends with the last of them.
type member struct {
	lib       *Library
	member    *gpu.Member
	tools     *tools
	plain     *Comm // has no windows
	symmetric *Comm // has the windows; nil without windows
	refs      int   // number of engines and slabs; guarded by lib.mu

	mu      sync.Mutex // guards changes of windows
	windows atomic.Pointer[[]registered]
}

// registered is a slab's window.
type registered struct {
	w       Window // without a handle if NCCL refused it
	refused error  // the reason; matches dist.ErrUnsupported
}

// member returns the member for p. The first call makes it; every call adds a reference.
//
// Collective in the first call: all ranks of p. Errors: on all ranks of p.
func (l *Library) member(p *gpu.Member) (*member, error) {
	l.mu.Lock()
	m := l.members[p.Control]
	if m != nil {
		m.refs++
	}
	l.mu.Unlock()
	if m != nil {
		return m, nil
	}
	var t *tools
	err := onDevice(p.Device, func() (err error) {
		t, err = newTools(p.Device, l.cfg.MaxCTAs)
		return err
	})
	if err := p.Agree(err); err != nil {
		if t != nil {
			err = errors.Join(err, onDevice(p.Device, t.close))
		}
		return nil, err
	}
	if err := sameTools(p, t); err != nil {
		return nil, errors.Join(err, onDevice(p.Device, t.close))
	}
	m = &member{lib: l, member: p, tools: t, refs: 1}
	l.mu.Lock()
	l.members[p.Control] = m
	l.mu.Unlock()
	return m, nil
}

// sameTools removes the kernels on all ranks if one rank has none.
func sameTools(p *gpu.Member, t *tools) error {
	why := p.Agree(t.missing)
	switch {
	case why == nil || errors.Is(why, dist.ErrUnsupported) && t.missing != nil:
		return nil
	case errors.Is(why, dist.ErrUnsupported):
		return onDevice(p.Device, func() error { return t.without(why) })
	}
	return why // the control group broke
}

// release drops one reference; the last one ends the member.
func (m *member) release() error {
	m.lib.mu.Lock()
	m.refs--
	last := m.refs == 0
	if last {
		delete(m.lib.members, m.member.Control)
	}
	m.lib.mu.Unlock()
	if !last || !m.symmetric.settle() || !m.plain.settle() {
		return nil // after an abort that has not returned, Close and free would hang
	}
	var errs []error
	for _, w := range m.all() {
		errs = append(errs, m.drop(w.w))
	}
	if m.symmetric != nil {
		errs = append(errs, m.symmetric.Close())
	}
	if m.plain != nil {
		errs = append(errs, m.plain.Close())
	}
	return errors.Join(append(errs, onDevice(m.member.Device, m.tools.close))...)
}

// Make makes the engines "nccl" and "nccl-window" of a group; it is a gpu.Maker.
//
// Collective: all ranks of p. Errors: on all ranks: dist.ErrMismatch if ranks have different
// libraries or settings; dist.ErrDevice if two ranks of a host have one GPU; those of NewComm.
func (l *Library) Make(p *gpu.Member) ([]gpu.Engine, error) {
	if err := l.compare(p); err != nil {
		return nil, err
	}
	m, err := l.member(p)
	if err != nil {
		return nil, err
	}
	if m.plain, err = l.NewComm(p, "world"); err != nil {
		return nil, errors.Join(err, m.release())
	}
	if err := p.Agree(m.plain.greet()); err != nil {
		m.plain.Abort()
		return nil, errors.Join(err, m.release())
	}
	absent := l.noWindows(p)
	if absent == nil {
		if m.symmetric, err = l.NewComm(p, "world windows"); err != nil {
			return nil, errors.Join(err, m.release())
		}
	}
	l.mu.Lock()
	m.refs++ // for the second engine
	l.mu.Unlock()
	return []gpu.Engine{
		&plain{engine: engine{m: m, comm: m.plain}},
		&windowed{engine{m: m, comm: m.symmetric, absent: absent}},
	}, nil
}

// noWindows returns the reason why the group of p has no communicator with windows, or nil.
func (l *Library) noWindows(p *gpu.Member) error {
	switch {
	case p.Size == 1:
		return errOneRank
	case p.HostCount() > 1:
		return errHosts
	}
	return l.version.need(windowVersion, "a symmetric window")
}

// rankInfo has the values that ranks compare before they form a communicator.
type rankInfo struct {
	uuid     [16]byte
	version  uint32
	settings uint64
}

const rankInfoBytes = 28

func (a rankInfo) bytes() []byte {
	b := append([]byte(nil), a.uuid[:]...)
	b = binary.LittleEndian.AppendUint32(b, a.version)
	return binary.LittleEndian.AppendUint64(b, a.settings)
}

func rankInfoOf(b []byte) rankInfo {
	a := rankInfo{version: binary.LittleEndian.Uint32(b[16:]), settings: binary.LittleEndian.Uint64(b[20:])}
	copy(a.uuid[:], b)
	return a
}

// settings hashes the options that must agree on all ranks.
func (c Config) settings() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, c.MinCTAs, c.MaxCTAs, c.ClusterSize, c.TrafficClass, int(c.Policy))
	return h.Sum64()
}

// compare returns nil on all ranks if they fit together. NCCL itself detects two ranks on one GPU
// only after all have met, and different versions not at all.
func (l *Library) compare(p *gpu.Member) error {
	own := rankInfo{uuid: p.Device.UUID(), version: uint32(l.version), settings: l.cfg.settings()}
	lines, err := p.Exchange(own.bytes())
	if err != nil {
		return fmt.Errorf("nccl: comparing ranks: %w", err)
	}
	all := make([]rankInfo, len(lines))
	for r, b := range lines {
		all[r] = rankInfoOf(b)
	}
	return fit(all, p.OneHost)
}

// fit compares the ranks' infos. Two ranks of one host cannot share a GPU.
func fit(all []rankInfo, oneHost func(q, r int) bool) error {
	for r, a := range all {
		switch {
		case a.version != all[0].version:
			return fmt.Errorf("nccl: %w on the library: rank 0 has NCCL %v, rank %d NCCL %v", dist.ErrMismatch,
				Version(all[0].version), r, Version(a.version))
		case a.settings != all[0].settings:
			return fmt.Errorf("nccl: %w on NCCL's settings: rank %d differs from rank 0", dist.ErrMismatch, r)
		}
		for q := range r {
			if all[q].uuid == a.uuid && oneHost(q, r) {
				return fmt.Errorf("nccl: %w: ranks %d and %d have the same GPU, %x: each needs one of its own", dist.ErrDevice, q, r, a.uuid)
			}
		}
	}
	return nil
}

// splitOff returns the communicator of sub, split from that of parent. It is nil if sub is nil, or
// if it would have windows and one rank.
//
// Collective: all ranks of parent.
func (l *Library) splitOff(c *Comm, parent, sub *gpu.Member, name string, windows bool) (*Comm, error) {
	in := sub != nil && (!windows || sub.Size > 1)
	if l.t.split.Err() == nil {
		color, key := splitNoColor, 0
		if in {
			color, key = sub.World[0], sub.Rank // the first rank of a subgroup is in no other
		}
		return c.Split(color, key, name)
	}
	if !in {
		return nil, nil
	}
	return l.NewComm(sub, name)
}

// inWindows reports whether op's buffers on this rank are in windows.
func (m *member) inWindows(op *dist.Op) bool {
	all := m.windows.Load()
	return all != nil && (op.Src.IsZero() || within(*all, &op.Src)) && (op.Dst.IsZero() || within(*all, &op.Dst))
}

func within(all []registered, b *tensor.Buffer) bool {
	at, bytes := addr(b), b.Bytes()
	for i := range all {
		w := &all[i].w
		if w.Handle != 0 && at >= w.Addr && at-w.Addr <= uintptr(w.Bytes) && bytes <= w.Bytes-int64(at-w.Addr) {
			return true
		}
	}
	return false
}
