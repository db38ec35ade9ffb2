package direct

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/gpu"
)

// copying is an operation by copy engines, on one rank. In a stream follow each other:
//
//	meet     a kernel of one block: all ranks have come, with their factors
//	pull     this rank's slice of all others, to scratch memory             reduce-scatter, allreduce
//	combine  what came with what is here, by a kernel that waits for nobody  reduce-scatter, allreduce
//	push     this rank's slice to all others                                all-gather, allreduce
//	meet     no rank has anything more to do with another's memory
//
// A slice is written by its owner alone, and only after that has read what it needs of it, so that two meetings are enough.
// Scratch memory is all of the board's tiles: between the meetings no other operation of any rank uses them.
type copying struct {
	rank, n  int
	src, dst [MaxRanks]uintptr // of each rank, as this one addresses it; where others have none to do with it, this rank's alone
	first    uintptr           // bytes from the beginning of src, or dst, to this rank's slice, where it is one of several
	bytes    uint64            // of the slice
	scratch  uintptr           // of this rank
	room     uint64
}

// hands is what a copying is done by.
type hands interface {
	meet(opening bool) error
	move(dst, src uintptr, bytes uint64) error
	// combine reduces bytes bytes at own with those in scratch memory, at from and each slot further, to dst.
	combine(dst, own, from uintptr, slot, bytes uint64) error
}

// run does an operation of a kind.
func (c *copying) run(kind dist.Kind, h hands) error {
	if err := h.meet(true); err != nil {
		return err
	}
	src, dst := c.src[c.rank], c.dst[c.rank]
	var err error
	switch kind {
	case dist.KindAllGather:
		if src != dst+c.first {
			err = h.move(dst+c.first, src, c.bytes)
		}
		if err == nil {
			err = c.push(src, h)
		}
	case dist.KindReduceScatter:
		err = c.pull(dst, h)
	default:
		if err = c.pull(dst+c.first, h); err == nil {
			err = c.push(dst+c.first, h)
		}
	}
	if err != nil {
		return err
	}
	return h.meet(false)
}

// push copies the slice at from to all others, each to its neighbour first.
func (c *copying) push(from uintptr, h hands) error {
	for j := 1; j < c.n; j++ {
		if err := h.move(c.dst[(c.rank+j)%c.n]+c.first, from, c.bytes); err != nil {
			return err
		}
	}
	return nil
}

// pull reduces this rank's slice of all to the address to, as much at a time as scratch memory holds.
func (c *copying) pull(to uintptr, h hands) error {
	own := c.src[c.rank] + c.first
	shift := own & 15 // vectors of all operands lie alike
	most := c.room/uint64(c.n-1)&^127 - 128
	for off := uint64(0); off < c.bytes; off += most {
		bytes := min(most, c.bytes-off)
		slot := align(bytes, 128) + 128
		for j := 1; j < c.n; j++ {
			q := (c.rank + j) % c.n
			if err := h.move(c.scratch+shift+uintptr(slotOf(q, c.rank)*int(slot)), c.src[q]+c.first+uintptr(off), bytes); err != nil {
				return err
			}
		}
		if err := h.combine(to+uintptr(off), own+uintptr(off), c.scratch+shift, slot, bytes); err != nil {
			return err
		}
	}
	return nil
}

// slotOf is the number of the place for rank q at rank r, which needs none for itself.
func slotOf(q, r int) int {
	if q > r {
		return q - 1
	}
	return q
}

// copying is how op is done by copy engines, and whether it can be: ranks must have promised that their buffers lie alike, where
// the others' copy engines get at them.
func (s *state) copying(op *dist.Op, l *call) (c copying, ok bool) {
	if !op.Symmetric || s.n == 1 || !copier.native(op.Kind) {
		return c, false
	}
	c = copying{rank: s.p.Rank, n: s.n, bytes: l.span.block}
	b := &s.board.tiles
	c.scratch, c.room = s.slab.Base[c.rank]+uintptr(b.at), 2*b.half
	stride := max(l.span.srcStride, l.span.dstStride)
	if op.Kind == dist.KindAllReduce {
		stride = pieceOf(reduceAll, &l.span, s.n, l.span.block).stride
		c.bytes = min(stride, l.span.block-min(uint64(c.rank)*stride, l.span.block))
	}
	c.first = uintptr(uint64(c.rank) * stride)
	c.src[c.rank], c.dst[c.rank] = l.src, l.dst
	ok = true
	if op.Kind != dist.KindAllGather {
		ok = s.everywhere(&c.src, l.src, uint64(op.Src.Bytes()))
	}
	if op.Kind != dist.KindReduceScatter {
		ok = ok && s.everywhere(&c.dst, l.dst, uint64(op.Dst.Bytes()))
	}
	return c, ok
}

// everywhere fills in where the bytes bytes, which this rank has at addr, lie for each rank.
func (s *state) everywhere(at *[MaxRanks]uintptr, addr uintptr, bytes uint64) bool {
	k := s.slabOf(addr, bytes)
	if k == nil || !k.whole {
		return false
	}
	for r, base := range k.slab.Base {
		at[r] = base + addr - k.base
	}
	return true
}

// copyHands puts the parts of a copying into a stream.
type copyHands struct {
	s       *state
	stream  *cuda.Stream
	opening variant
	adding  variant
	call    call
	shape   Shape
}

func (h *copyHands) meet(opening bool) error {
	v := variant{onceShort, h.s.n, 0, redNone}
	if opening {
		v = h.opening
	}
	h.call.span = span{senders: 1<<h.s.n - 1, receivers: 1<<h.s.n - 1, flags: flagGreet | flagFence}
	h.call.src, h.call.dst = 0, 0
	return h.s.launch(v, &h.call, &piece{}, 0, h.s.board.packets, greetShape, h.stream)
}

func (h *copyHands) move(dst, src uintptr, bytes uint64) error {
	return h.stream.Copy(dst, src, int64(bytes))
}

func (h *copyHands) combine(dst, own, from uintptr, slot, bytes uint64) error {
	h.call.span, h.call.src, h.call.dst = span{}, own, dst
	p := part{at: uint64(from - h.s.slab.Base[h.s.p.Rank])}
	return h.s.launch(h.adding, &h.call, &piece{bytes: bytes, slot: slot}, 0, p, h.shape, h.stream)
}

// asideLeast is the bytes of a vector from which on copy engines are worth while beside other work: below, two meetings take
// longer than what blocks of a kernel would take away.
const asideLeast = 4 << 20

// Aside implements gpu.Aside.
func (e *Engine) Aside(op *dist.Op) bool {
	return e.way == copier && e.s.n > 1 && op.Symmetric && copier.native(op.Kind) && gpu.Size(op, e.s.n) >= asideLeast
}
