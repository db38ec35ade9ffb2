package direct

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// copying is an operation by copy engines, on one rank. Its steps follow each other in a stream:
//
//	meet     a kernel of one block: all ranks have arrived, with their factors
//	pull     this rank's slice of all others to scratch memory   reduce-scatter, allreduce
//	combine  add these to own data; a kernel without waiting     reduce-scatter, allreduce
//	push     this rank's slice to all others                     all-gather, allreduce
//	meet     all ranks are done with the memory of others
//
// Only a slice's owner writes it, after reading its own copy, so two meetings are enough. Scratch
// memory is all of the board's tiles: no other operation of any rank uses them between the
// meetings. A slice is divided in parts, so that the links carry one while another is combined, on
// a stream of its own.
//
// Among more than two ranks, successive copies to one rank disturb each other. So ranks begin
// together, and copies are few. Instead of pulling, a rank sends its data of the others' slices to
// their scratch memory, in one part: links carry more by writes than by reads. Ranks meet once more
// before they combine, again with their factors.
//
// Between two ranks an all-gather may continue the previous one (along.View). Then the previous
// opening meeting is its own. Its copies follow the previous ones on a stream of their own, while
// the ranks still meet after those. So the links need not wait for meetings.
//
// Copies cannot be ended. If a meeting ends because the group is broken, later copies still run,
// also in queued graphs, and write stale data to the others.
type copying struct {
	rank, n  int
	src, dst [MaxRanks]uintptr // of each rank, as this one addresses it; only this rank's if others do not access it
	first    uintptr           // offset of this rank's slice in src or dst, if it is one of several
	bytes    uint64            // of the slice
	stride   uint64            // from one slice to the next
	all      uint64            // bytes of all reduced slices
	scratch  [MaxRanks]uintptr // of each rank
	room     uint64
	least    uint64 // least bytes of a part
	along    bool   // continues the previous all-gather
}

// Parts of a slice.
const (
	mostPasses = 4       // over scratch memory: the driver queues about a thousand commands, and an operation must use few of them
	mostParts  = 3       // of a pass: see docs/explanation/collectives-on-gpus.md
	leastPull  = 1 << 20 // smaller parts do not pay
)

// mover queues the steps of a copying.
type mover interface {
	meet(factors bool) error
	// along makes later moves follow the moves of the last all-gather only, until gathered.
	along() error
	// gathered records the moves of an all-gather, and makes later steps wait for them.
	gathered() error
	move(dst, src uintptr, bytes uint64) error
	// combine reduces bytes bytes at own with those in scratch memory, at from and every slot bytes
	// further. The result goes to dst, after all earlier moves. Later moves do not wait for it,
	// until await.
	combine(part int, dst, own, from uintptr, slot, bytes uint64) error
	// await makes later steps wait until this part and those before it are combined.
	await(part int) error
}

// run does an operation of a kind.
func (c *copying) run(kind dist.Kind, h mover) error {
	src, dst := c.src[c.rank], c.dst[c.rank]
	var err error
	if c.along {
		err = h.along()
	} else {
		err = h.meet(true)
	}
	if err != nil {
		return err
	}
	switch kind {
	case dist.KindAllGather:
		if src != dst+c.first {
			err = h.move(dst+c.first, src, c.bytes)
		}
		if err == nil {
			err = c.push(src, 0, c.bytes, h)
		}
		if err == nil {
			err = h.gathered()
		}
	case dist.KindReduceScatter:
		err = c.reduce(dst, false, h)
	default:
		err = c.reduce(dst+c.first, true, h)
	}
	if err != nil {
		return err
	}
	return h.meet(false)
}

// push copies bytes bytes at from to all others, off bytes into the slice. Each rank starts with
// its neighbour.
func (c *copying) push(from, off uintptr, bytes uint64, h mover) error {
	for j := 1; j < c.n; j++ {
		if err := h.move(c.dst[(c.rank+j)%c.n]+c.first+off, from, bytes); err != nil {
			return err
		}
	}
	return nil
}

// reduce reduces this rank's slice of all ranks to the address to, as much at a time as fits
// scratch memory, and pushes it from there.
func (c *copying) reduce(to uintptr, push bool, h mover) error {
	if c.n > 2 {
		return c.reduceSent(to, push, h)
	}
	most := c.pass()
	for off := uint64(0); off < c.bytes; off += most {
		bytes := min(most, c.bytes-off)
		part := align(max((bytes+mostParts-1)/mostParts, min(c.least, bytes)), 128)
		parts := int((bytes + part - 1) / part)
		for i := range parts {
			if err := c.pull(i, to, off, uint64(i)*part, min(part, bytes-uint64(i)*part), part, h); err != nil {
				return err
			}
		}
		if !push {
			if err := h.await(parts - 1); err != nil {
				return err
			}
			continue
		}
		for i := range parts {
			if err := h.await(i); err != nil {
				return err
			}
			at := uintptr(off + uint64(i)*part)
			if err := c.push(to+at, at, min(part, bytes-uint64(i)*part), h); err != nil {
				return err
			}
		}
	}
	return nil
}

// reduceSent is reduce among more than two ranks: each sends its data of the others' slices.
func (c *copying) reduceSent(to uintptr, push bool, h mover) error {
	most := c.pass()
	for off := uint64(0); off < c.stride; off += most {
		if off > 0 {
			if err := h.meet(false); err != nil { // all have combined the earlier data there
				return err
			}
		}
		for j := 1; j < c.n; j++ {
			q := (c.rank + j) % c.n
			at, bytes := c.sliceOf(q, off, most)
			if bytes == 0 {
				continue
			}
			place := c.area(q, at) + uintptr(slotOf(c.rank, q))*uintptr(slotBytes(bytes))
			if err := h.move(place, c.src[c.rank]+at, bytes); err != nil {
				return err
			}
		}
		if err := h.meet(true); err != nil { // before combining, a meeting with factors
			return err
		}
		at, bytes := c.sliceOf(c.rank, off, most)
		if bytes == 0 {
			continue
		}
		if err := h.combine(0, to+uintptr(off), c.src[c.rank]+at, c.area(c.rank, at), slotBytes(bytes), bytes); err != nil {
			return err
		}
		if err := h.await(0); err != nil {
			return err
		}
		if push {
			if err := c.push(to+uintptr(off), uintptr(off), bytes, h); err != nil {
				return err
			}
		}
	}
	return nil
}

// sliceOf returns offset in the source and size of rank q's slice from off on, at most most bytes.
func (c *copying) sliceOf(q int, off, most uint64) (at uintptr, bytes uint64) {
	first := uint64(q)*c.stride + off
	return uintptr(first), min(most, c.stride-off, c.all-min(first, c.all))
}

// area returns the address in rank q's scratch memory of data to combine with offset at of its
// source: all operands have the same alignment.
func (c *copying) area(q int, at uintptr) uintptr { return c.scratch[q] + (c.src[q]+at)&15 }

// slotBytes returns the distance of slots that have bytes bytes each.
func slotBytes(bytes uint64) uint64 { return align(bytes, 128) + 128 }

// pass returns the bytes of a slice that fit scratch memory. Each part has 128 bytes for its
// alignment, and up to as many because its length is rounded.
func (c *copying) pass() uint64 { return c.room/uint64(c.n-1)&^127 - 256*mostParts }

// pull copies bytes bytes of this rank's slice from the other of two ranks and combines them: part
// i of parts that are part bytes apart, in bytes after off.
func (c *copying) pull(i int, to uintptr, off, in, bytes, part uint64, h mover) error {
	at := uintptr(off + in)
	own := c.first + at
	from := c.area(c.rank, own) + uintptr(i)*uintptr(part+128)
	if err := h.move(from, c.src[1-c.rank]+own, bytes); err != nil {
		return err
	}
	return h.combine(i, to+at, c.src[c.rank]+own, from, slotBytes(bytes), bytes)
}

// slotOf returns the index of rank q's slot at rank r, which has none for itself.
func slotOf(q, r int) int {
	if q > r {
		return q - 1
	}
	return q
}

// copying returns how copy engines do op, and whether they can. Ranks must have promised equal
// offsets of buffers, and the copy engines must reach these. All ranks get the same answer, since
// it depends on the largest slices.
func (s *state) copying(op *dist.Op, l *call) (c copying, ok bool) {
	if !op.Symmetric || s.n == 1 || !copier.native(op.Kind) {
		return c, false
	}
	c = copying{rank: s.p.Rank, n: s.n, bytes: l.span.block, least: leastPull}
	c.along = s.n == 2 && op.Along && op.Kind == dist.KindAllGather && s.adder.number != 0 && op.Seq == s.adder.number+1
	b := &s.board.tiles
	for r, base := range s.slab.Base {
		c.scratch[r] = base + uintptr(b.at)
	}
	c.room = 2 * b.half
	c.stride, c.all = c.bytes, c.bytes*uint64(c.n)
	if op.Kind == dist.KindAllReduce {
		c.stride, c.all = pieceOf(reduceAll, &l.span, s.n, l.span.block).stride, l.span.block
		c.bytes = min(c.stride, c.all-min(uint64(c.rank)*c.stride, c.all))
	}
	c.first = uintptr(uint64(c.rank) * c.stride)
	c.src[c.rank], c.dst[c.rank] = l.src, l.dst
	ok = true
	if op.Kind != dist.KindAllGather {
		ok = c.stride <= mostPasses*c.pass() && s.everywhere(&c.src, l.src, uint64(op.Src.Bytes()))
	}
	if op.Kind != dist.KindReduceScatter {
		ok = ok && s.everywhere(&c.dst, l.dst, uint64(op.Dst.Bytes()))
	}
	return c, ok
}

// everywhere sets the address at each rank of the bytes bytes that this rank has at addr.
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

// copyMover queues the steps of a copying on a stream. Combining, and copies that continue the
// previous operation, are on a second stream that joins it.
type copyMover struct {
	s       *state
	stream  *cuda.Stream
	lane    *cuda.Stream // stream of copies
	opening variant
	adding  variant
	call    call
	shape   Shape
}

func (h *copyMover) meet(factors bool) error {
	v := variant{onceShort, h.s.n, 0, redNone}
	if factors {
		v = h.opening
	}
	h.call.span = span{senders: 1<<h.s.n - 1, receivers: 1<<h.s.n - 1, flags: flagGreet | flagFence}
	h.call.src, h.call.dst = 0, 0
	return h.s.launch(v, &h.call, &piece{}, 0, h.s.board.packets, greetShape, h.stream)
}

func (h *copyMover) along() error {
	h.lane = h.s.adder.stream
	return h.lane.Wait(h.s.adder.gathered)
}

func (h *copyMover) gathered() error {
	if err := h.lane.Record(h.s.adder.gathered); err != nil || h.lane == h.stream {
		return err
	}
	return h.stream.Wait(h.s.adder.gathered)
}

func (h *copyMover) move(dst, src uintptr, bytes uint64) error {
	for bytes > 0 {
		n := min(bytes, h.s.seams.until(dst), h.s.seams.until(src))
		if err := h.lane.Copy(dst, src, int64(n)); err != nil {
			return err
		}
		dst, src, bytes = dst+uintptr(n), src+uintptr(n), bytes-n
	}
	return nil
}

func (h *copyMover) combine(i int, dst, own, from uintptr, slot, bytes uint64) error {
	a := &h.s.adder
	h.call.span, h.call.src, h.call.dst = span{}, own, dst
	p := part{at: uint64(from - h.s.slab.Base[h.s.p.Rank])}
	if err := h.stream.Record(a.copied[i]); err != nil {
		return err
	}
	if err := a.stream.Wait(a.copied[i]); err != nil {
		return err
	}
	if err := h.s.launch(h.adding, &h.call, &piece{bytes: bytes, slot: slot}, 0, p, h.shape, a.stream); err != nil {
		return err
	}
	return a.stream.Record(a.added[i])
}

func (h *copyMover) await(i int) error { return h.stream.Wait(h.s.adder.added[i]) }

// Aside implements gpu.Aside. Operations that copy engines turn out not to do use the kernels of
// twoshot, in a guessed shape.
func (e *Engine) Aside(op *dist.Op) bool {
	return e.way == copier && e.s.n > 1 && op.Symmetric && copier.native(op.Kind) && gpu.Size(op, e.s.n) >= gpu.LeastAside
}

// copy queues an operation that copies. Work in place, and a barrier, need nothing: the stream
// keeps the order.
func (s *state) copy(op *dist.Op, l *call, stream *cuda.Stream) error {
	if l.src == l.dst {
		return nil
	}
	if err := stream.Copy(l.dst, l.src, int64(l.span.block)); err != nil {
		return s.fail(op, err)
	}
	return nil
}
