package shm

import (
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/internal/host/ticks"
	"github.com/symgrad/symgrad/tensor"
)

// member is a rank's place in a group. Its fields do not change.
type member struct {
	node  *node
	ranks []int // world rank of each rank of the group
	rank  int   // in the group
	size  int
	spins int
	ctl   *control
}

// crowded reports whether ranks share cores, according to this rank's count of cores.
func (m *member) crowded() bool { return m.spins == spinsShared }

// touches reports whether ranks touch lines that they have read. It pays for two ranks, and for
// ranks that share cores, because the next rank on the core finds the lines there. Many cores would
// take lines from each other.
func (m *member) touches() bool { return m.node.cfg.touch > 0 && (m.size == 2 || m.crowded()) }

// copyOut copies from a slot, and may store a word of every line back unchanged: the owner refills
// a line that another core has modified far faster than one that both have read.
func (m *member) copyOut(dst, slot unsafe.Pointer, n int) {
	how := reduce.How(0)
	if m.touches() {
		how = reduce.Dirty
	}
	reduce.Copy(dst, slot, n, how)
}

// storing returns how to store the result of an operation of bytes bytes per rank.
func (m *member) storing(bytes int) reduce.How {
	if m.size*bytes >= m.node.streams {
		return reduce.NonTemporal
	}
	return 0
}

// at returns the address of n bytes at byte from of rank r's buffer at p.
func (m *member) at(r int, p place, from, n int) (unsafe.Pointer, error) {
	b, err := m.node.resolve(p.heap, m.ranks[r], p.off+int64(from), int64(n))
	if err != nil {
		return nil, fmt.Errorf("buffer of rank %d: %w", r, err)
	}
	return pointer(b), nil
}

// locate returns the place of b in a symmetric heap that all ranks of the group share; the zero
// place for other memory.
func (m *member) locate(b tensor.Buffer) place {
	if b.Len() == 0 {
		return place{}
	}
	p, n := uintptr(b.Pointer()), uintptr(b.Bytes())
	for _, h := range *m.node.heaps.Load() {
		if p >= h.own && p+n <= h.own+uintptr(h.part) && (h.t.ctl == m.ctl || containsAll(h.t.ranks, m.ranks)) {
			return place{heap: h.id, off: int64(p - h.own)}
		}
	}
	return place{}
}

func containsAll(set, ranks []int) bool {
	for _, r := range ranks {
		if !slices.Contains(set, r) {
			return false
		}
	}
	return true
}

// peersWorked returns the sum, over the other ranks, of their working time within the last ticks.
func (m *member) peersWorked(last int64) int64 {
	end, total := ticks.Now(), int64(0)
	begin := end - last
	for r := range m.size {
		if r != m.rank {
			since, until := m.ctl.worked(r)
			total += max(0, min(int64(atomic.LoadUint64(until)), end)-max(int64(atomic.LoadUint64(since)), begin))
		}
	}
	return total
}

// lost breaks the group after the death of a rank, unless that rank had closed its end.
func (m *member) lost(world int, how string) {
	r := slices.Index(m.ranks, world)
	if r >= 0 && r != m.rank && atomic.LoadUint64(m.ctl.left(r)) == 0 {
		m.ctl.fail(abortDied, r, how)
	}
}

func (m *member) opError(op *dist.Op, err error) error {
	return &dist.OpError{Op: *op, Rank: m.rank, Size: m.size, Err: err}
}
