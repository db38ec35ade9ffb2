package direct

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/tensor"
)

// copying is an operation by copy engines, on one rank. In a stream follow each other:
//
//	meet    a kernel of one block: all ranks have come     all-gather
//	reduce  this rank's slice, by the kernel of tiles      allreduce
//	push    this rank's slice to all others
//	meet    no rank has anything more to do with another's memory
//
// A slice is written by its owner alone. In an allreduce that has had all of it from the others by then, who are done with what
// they have of it; so nobody need meet before.
type copying struct {
	rank, n  int
	src, dst uintptr           // of this rank
	to       [MaxRanks]uintptr // destinations, as this rank addresses them
	first    uintptr           // bytes from the beginning of dst to this rank's slice
	bytes    uint64            // of a slice
}

// hands is what a copying is done by.
type hands interface {
	meet() error
	// reduce puts the reduction of the slices of rank's number, each bytes bytes long, at dst.
	reduce(dst, src uintptr, bytes uint64) error
	move(dst, src uintptr, bytes uint64) error
}

// run does an operation of a kind.
func (c *copying) run(kind dist.Kind, h hands) error {
	from, err := c.src, error(nil)
	switch {
	case kind == dist.KindAllReduce:
		from = c.dst + c.first
		err = h.reduce(from, c.src, c.bytes)
	default:
		if err = h.meet(); err == nil && from != c.dst+c.first {
			err = h.move(c.dst+c.first, from, c.bytes)
		}
	}
	if err != nil {
		return err
	}
	for j := 1; j < c.n; j++ { // each to its neighbour first
		if err := h.move(c.to[(c.rank+j)%c.n]+c.first, from, c.bytes); err != nil {
			return err
		}
	}
	return h.meet()
}

// copied reports whether copy engines have a part in operations of a kind.
func copied(kind dist.Kind) bool { return kind == dist.KindAllReduce || kind == dist.KindAllGather }

// mostSlice is what the kernel of tiles does at once.
const mostSlice = 1 << 32

// copying is how op is done by copy engines, and whether it can be: ranks must have promised that their buffers lie alike, where
// the others' copy engines get at them, and the slices of an allreduce must be equal.
func (s *state) copying(op *dist.Op, l *call) (c copying, ok bool) {
	if !op.Symmetric || s.n == 1 || !copied(op.Kind) {
		return c, false
	}
	c = copying{rank: s.p.Rank, n: s.n, src: l.src, dst: l.dst, bytes: l.span.block}
	if op.Kind == dist.KindAllReduce {
		if c.bytes /= uint64(s.n); c.bytes*uint64(s.n) != l.span.block || c.bytes%16 != 0 || c.bytes > mostSlice {
			return c, false
		}
	}
	c.first = uintptr(uint64(c.rank) * c.bytes)
	return c, s.everywhere(&c.to, l.dst, uint64(op.Dst.Bytes()))
}

// everywhere fills in where the bytes bytes, which this rank has at addr, lie for each rank.
func (s *state) everywhere(at *[MaxRanks]uintptr, addr uintptr, bytes uint64) bool {
	k := s.slabOf(addr, bytes)
	if k == nil || !k.plain {
		return false
	}
	for r, base := range k.slab.Base {
		at[r] = base + addr - k.base
	}
	return true
}

// copyHands puts a copying into a stream.
type copyHands struct {
	s      *state
	stream *cuda.Stream
	tiles  variant // the kernel of tiles
	shape  Shape   // of its launch
	call   call
}

func (h *copyHands) meet() error {
	h.call.src, h.call.dst = 0, 0
	h.call.span = span{senders: 1<<h.s.n - 1, receivers: 1<<h.s.n - 1, flags: flagGreet | flagFence}
	return h.s.launch(variant{onceShort, h.s.n, tensor.Invalid, redNone}, &h.call, &piece{}, 0, h.s.board.packets, greetShape, h.stream)
}

func (h *copyHands) reduce(dst, src uintptr, bytes uint64) error {
	h.call.src, h.call.dst = src, dst
	h.call.span = span{block: bytes, srcStride: bytes, senders: 1<<h.s.n - 1, receivers: 1<<h.s.n - 1}
	q := pieceOf(tileOwn, &h.call.span, h.s.n, bytes)
	return h.s.launch(h.tiles, &h.call, &q, 0, h.s.board.tiles, h.shape, h.stream)
}

func (h *copyHands) move(dst, src uintptr, bytes uint64) error {
	for bytes > 0 {
		n := min(bytes, h.s.seams.until(dst), h.s.seams.until(src))
		if err := h.stream.Copy(dst, src, int64(n)); err != nil {
			return err
		}
		dst, src, bytes = dst+uintptr(n), src+uintptr(n), bytes-n
	}
	return nil
}

// seams is where one allocation of a slab ends and another begins, as NVSHMEM's heap is made of several, on all ranks as this one
// addresses them, ascending: no copy goes across, since one in a graph may not.
type seams struct{ at atomic.Pointer[[]uintptr] }

// until is the bytes from p to the next seam.
func (s *seams) until(p uintptr) uint64 {
	all := s.at.Load()
	if all == nil {
		return math.MaxUint64
	}
	i, _ := slices.BinarySearch(*all, p+1)
	if i == len(*all) {
		return math.MaxUint64
	}
	return uint64((*all)[i] - p)
}

// note makes seams those of slabs.
func (s *seams) note(slabs []known) {
	var all []uintptr
	for i := range slabs {
		all = append(all, slabs[i].seams...)
	}
	slices.Sort(all)
	s.at.Store(&all)
}

// asideLeast is the bytes of a vector from which on copy engines are worth while beside other work: below, two meetings take
// longer than what blocks of a kernel would take away.
const asideLeast = 4 << 20

// Aside implements gpu.Aside.
func (e *Engine) Aside(op *dist.Op) bool {
	return e.way == copier && e.s.n > 1 && op.Symmetric && copied(op.Kind) && gpu.Size(op, e.s.n) >= asideLeast
}
