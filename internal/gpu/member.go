package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Member is one rank's place in a group of GPUs, as engines and allocators need it to meet the
// others.
type Member struct {
	Device     *cuda.Device
	Rank, Size int
	World      []int       // number in the world of each rank of the group
	Control    *dist.Group // host group of the same ranks in the same order, blocking: to exchange, agree, and see who died
	Memory     *Memory     // symmetric memory that ranks of this group can address
}

// Exchange is own of every rank, in rank order.
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

// An agreement is a line of reportBytes: how many bytes of text, 0 for no error; which sentinel;
// the text.
const (
	reportBytes = 1024
	reportText  = 8
)

// sentinels is what an error of one rank is known to be on the others too: the special ones before
// those that they match.
var sentinels = [...]error{
	dist.ErrDType, dist.ErrCount, dist.ErrRoot, dist.ErrDevice, dist.ErrAlias, symmetric.ErrNoSpace, dist.ErrUnsupported,
	dist.ErrMismatch, dist.ErrTimeout, dist.ErrClosed, dist.ErrAborted, dist.ErrInvalid,
}

// Agree is nil on every rank when err is nil on every rank, and otherwise an error on every rank,
// that wraps err where there is one and names the first rank that had one, with its text,
// elsewhere. Calls that fail on some ranks only are followed by it.
//
// Collective: all ranks. Errors: the above, which match the same sentinels of dist on all ranks;
// those of dist.Group.AllGather.
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

// report is err as a line for the other ranks.
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

// reported is the error in a line; nil for none.
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

// remoteError is the error of another rank: its text, and the sentinel that it matched there.
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

// Memory is the slabs of a group, to find the one that an address lies in. It is safe for
// concurrent use; the zero Memory is empty.
type Memory struct {
	mu    sync.Mutex // of those who change it
	slabs atomic.Pointer[[]extent]
	added uint64 // slabs so far, to number them
}

// extent is where this rank's part of a slab lies.
type extent struct {
	slab   *Slab
	base   uintptr
	number uint64 // from 1; the same on all ranks, because slabs are added in one order
}

// Find is the slab of this rank that holds the bytes bytes at addr, and where in it they begin; nil
// when none does. It allocates nothing.
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

// Add makes s, of whose parts that of rank is this rank's, one of the slabs. All ranks add alike.
func (m *Memory) Add(s *Slab, rank int) {
	m.change(func(all []extent) []extent {
		m.added++
		return append(all, extent{s, s.Base[rank], m.added})
	})
}

// Remove takes s out again.
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

// change replaces the slabs by what f makes of a copy of them.
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
