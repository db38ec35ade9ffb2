package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Member is one rank's place in a group of GPUs. Engines and allocators use it to reach the others.
type Member struct {
	Device     *cuda.Device
	Rank, Size int
	World      []int       // number in the world of each rank of the group
	Control    *dist.Group // blocking host group of the same ranks in order: exchanges data, agrees, detects deaths
	Memory     *Memory     // symmetric memory that ranks of this group can address
	Hosts      []int       // host of each rank, numbered in the order of first ranks; nil for one host
}

// MemberOf returns the place of control's rank on dev.
func MemberOf(control *dist.Group, dev *cuda.Device) *Member {
	p := &Member{
		Device: dev, Rank: control.Rank(), Size: control.Size(), World: control.Ranks(), Control: control, Memory: new(Memory),
	}
	if n := control.Notifier(); n != nil {
		if hosts := n.Hosts(); slices.Max(hosts) > 0 {
			p.Hosts = hosts
		}
	}
	return p
}

// HostCount returns the number of hosts of the group.
func (p *Member) HostCount() int {
	if p.Hosts == nil {
		return 1
	}
	return slices.Max(p.Hosts) + 1
}

// Near reports whether rank r is on the host of this rank.
func (p *Member) Near(r int) bool { return p.OneHost(r, p.Rank) }

// OneHost reports whether two ranks are on one host. Hosts that SYMGRAD_HOST makes of one machine
// can share its GPUs.
func (p *Member) OneHost(q, r int) bool { return p.Hosts == nil || p.Hosts[q] == p.Hosts[r] }

// Exchange returns own of every rank, in rank order.
//
// Collective: all ranks, the same number of bytes. Errors: those of dist.Group.AllGather.
func (p *Member) Exchange(own []byte) ([][]byte, error) {
	all := make([]byte, len(own)*p.Size)
	if len(own) > 0 {
		if err := finish(p.Control.Blocking().AllGather(tensor.Of(all), tensor.Of(own))); err != nil {
			return nil, err
		}
	}
	parts := make([][]byte, p.Size)
	for r := range parts {
		parts[r] = all[r*len(own) : (r+1)*len(own) : (r+1)*len(own)]
	}
	return parts, nil
}

// Share copies b of rank root to b of every rank.
//
// Collective: all ranks, the same number of bytes and root. Errors: those of dist.Group.Broadcast.
func (p *Member) Share(b []byte, root int) error {
	if len(b) == 0 {
		return nil
	}
	return finish(p.Control.Blocking().Broadcast(tensor.Of(b), tensor.Of(b), root))
}

// A report has reportBytes bytes: length of the text, 0 for no error; index of the sentinel from 1,
// 0 for none; the text.
const (
	reportBytes = 1024
	reportText  = 8
)

// sentinels lists the errors that a report preserves, special ones before those that they match.
var sentinels = [...]error{
	dist.ErrDType, dist.ErrCount, dist.ErrRoot, dist.ErrDevice, dist.ErrAlias, symmetric.ErrNoSpace, dist.ErrUnsupported,
	dist.ErrMismatch, dist.ErrTimeout, dist.ErrClosed, dist.ErrAborted, dist.ErrInvalid,
}

// Agree returns nil on every rank if err is nil on every rank, else an error on every rank. It is
// err where err is not nil. Elsewhere it has the rank and text of the first error. Calls that may
// fail on some ranks only are followed by Agree.
//
// Collective: all ranks. Errors: as above, matching the same sentinels of dist on all ranks; those
// of dist.Group.AllGather.
func (p *Member) Agree(err error) error {
	all, failed := p.Exchange(report(err))
	switch {
	case failed != nil && err != nil:
		return errors.Join(err, failed)
	case failed != nil:
		return failed
	case err != nil:
		return err
	}
	for r, line := range all {
		if e := reported(line); e != nil {
			return fmt.Errorf("rank %d: %w", r, e)
		}
	}
	return nil
}

// report encodes err for the other ranks.
func report(err error) []byte {
	line := make([]byte, reportBytes)
	if err == nil {
		return line
	}
	n := copy(line[reportText:], err.Error())
	binary.LittleEndian.PutUint32(line, uint32(max(n, 1)))
	for i, s := range sentinels {
		if errors.Is(err, s) {
			binary.LittleEndian.PutUint32(line[4:], uint32(i+1))
			break
		}
	}
	return line
}

// reported decodes the error of a report; nil for none.
func reported(line []byte) error {
	n := binary.LittleEndian.Uint32(line)
	if n == 0 {
		return nil
	}
	e := &remoteError{text: string(line[reportText : reportText+n])}
	if i := binary.LittleEndian.Uint32(line[4:]); i > 0 && int(i) <= len(sentinels) {
		e.kind = sentinels[i-1]
	}
	return e
}

// remoteError is an error of another rank: its text, and the sentinel that it matched there.
type remoteError struct {
	kind error
	text string
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }

// finish waits for an operation that was just issued.
func finish(w dist.Work, err error) error {
	if err != nil {
		return err
	}
	return w.Wait()
}

// Memory finds the slab of a group that contains an address. It is safe for concurrent use; the
// zero Memory is empty.
type Memory struct {
	mu    sync.Mutex // guards changes
	slabs atomic.Pointer[[]extent]
	added uint64 // slabs added so far
}

// extent is the range of this rank's part of a slab.
type extent struct {
	slab   *Slab
	base   uintptr
	number uint64 // from 1; equal on all ranks, which add slabs in one order
}

// Find returns the slab whose part on this rank holds the bytes bytes at addr, and their offset;
// nil if none does. It allocates nothing.
func (m *Memory) Find(addr uintptr, bytes int64) (s *Slab, offset int64) {
	if e := m.find(addr, bytes); e != nil {
		return e.slab, int64(addr - e.base)
	}
	return nil, 0
}

// locate is Find with the number of the slab, 0 for none.
func (m *Memory) locate(addr uintptr, bytes int64) (number uint64, offset int64) {
	if e := m.find(addr, bytes); e != nil {
		return e.number, int64(addr - e.base)
	}
	return 0, 0
}

func (m *Memory) find(addr uintptr, bytes int64) *extent {
	all := m.slabs.Load()
	if all == nil || bytes < 0 {
		return nil
	}
	for i := range *all {
		e := &(*all)[i]
		if addr >= e.base && addr-e.base <= uintptr(e.slab.Bytes) && bytes <= e.slab.Bytes-int64(addr-e.base) {
			return e
		}
	}
	return nil
}

// Add adds s, with the part of this rank, rank. All ranks add slabs in one order.
func (m *Memory) Add(s *Slab, rank int) {
	m.change(func(all []extent) []extent {
		m.added++
		return append(all, extent{s, s.Base[rank], m.added})
	})
}

// Remove removes s.
func (m *Memory) Remove(s *Slab) {
	m.change(func(all []extent) []extent {
		var kept []extent
		for _, e := range all {
			if e.slab != s {
				kept = append(kept, e)
			}
		}
		return kept
	})
}

// change replaces the slabs by f of a copy of them.
func (m *Memory) change(f func([]extent) []extent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []extent
	if old := m.slabs.Load(); old != nil {
		all = append(all, *old...)
	}
	all = f(all)
	m.slabs.Store(&all)
}
