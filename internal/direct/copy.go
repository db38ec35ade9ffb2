package direct

import (
	"errors"
	"math"
	"slices"
	"sync/atomic"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/gpu"
)

// copying is an operation by copy engines, on one rank. In a stream follow each other:
//
//	meet     a kernel of one block: all ranks have come, with their factors
//	pull     this rank's slice of all others, to scratch memory              reduce-scatter, allreduce
//	combine  what came with what is here, by a kernel that waits for no rank reduce-scatter, allreduce
//	push     this rank's slice to all others                                 all-gather, allreduce
//	meet     no rank has anything more to do with another's memory
//
// A slice is written by its owner alone, and only after that has read what it needs of it, so that two meetings are enough.
// Scratch memory is all of the board's tiles: between the meetings no other operation of any rank uses them. A slice comes in
// parts, so that the links carry one while another is combined, on a stream of its own.
//
// An all-gather may go along with the one before (Group.Along): then that one's opening meeting is its own, and its copies come behind
// those of that one, on a stream of their own, while ranks still meet behind them. So the links need not wait for meetings.
//
// Copies cannot be called back: where a meeting ends because the group is broken, those behind it still run, also of graphs that are
// queued, and put what there is then to destinations of the others.
type copying struct {
	rank, n  int
	src, dst [MaxRanks]uintptr // of each rank, as this one addresses it; where others have none to do with it, this rank's alone
	first    uintptr           // bytes from the beginning of src, or dst, to this rank's slice, where it is one of several
	bytes    uint64            // of the slice
	scratch  uintptr           // of this rank
	room     uint64
	least    uint64 // bytes of a part
	along    bool   // with the all-gather before
}

// Parts of a slice.
const (
	mostPasses = 4       // over scratch memory: the driver lets about a thousand commands wait, and those of one operation are to be few
	mostParts  = 3       // of a pass: see DESIGN, Why copy engines?
	leastPull  = 1 << 20 // bytes; less is not worth a part
)

// hands is what a copying is done by.
type hands interface {
	meet(opening bool) error
	// along has what is moved next come behind what the last all-gather has moved, whatever came since, until gathered.
	along() error
	// gathered notes what an all-gather has moved, and has what comes next wait for it.
	gathered() error
	move(dst, src uintptr, bytes uint64) error
	// combine reduces bytes bytes at own with those in scratch memory, at from and each slot further, to dst, when what was moved
	// so far has come. What is moved next does not wait for it, until await.
	combine(part int, dst, own, from uintptr, slot, bytes uint64) error
	// await has what comes next wait for a part, and those before it, to be combined.
	await(part int) error
}

// run does an operation of a kind.
func (c *copying) run(kind dist.Kind, h hands) error {
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

// push copies bytes bytes at from to all others, off bytes into the slice, each to its neighbour first.
func (c *copying) push(from, off uintptr, bytes uint64, h hands) error {
	for j := 1; j < c.n; j++ {
		if err := h.move(c.dst[(c.rank+j)%c.n]+c.first+off, from, bytes); err != nil {
			return err
		}
	}
	return nil
}

// reduce reduces this rank's slice of all to the address to, as much at a time as scratch memory holds, and pushes it from there.
func (c *copying) reduce(to uintptr, push bool, h hands) error {
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

// pass is the bytes of a slice that scratch memory holds at once. Each part has 128 bytes for what its place is shifted by, and up to as
// many because its length is rounded.
func (c *copying) pass() uint64 { return c.room/uint64(c.n-1)&^127 - 256*mostParts }

// pull has bytes bytes of this rank's slice, in bytes behind off, come from all others, and combined: part number i of those that are so
// far apart.
func (c *copying) pull(i int, to uintptr, off, in, bytes, part uint64, h hands) error {
	at := uintptr(off + in)
	own := c.src[c.rank] + c.first + at
	scratch := c.scratch + uintptr(i*(c.n-1))*uintptr(part+128) + own&15 // vectors of all operands lie alike
	slot := align(bytes, 128) + 128
	for j := 1; j < c.n; j++ {
		q := (c.rank + j) % c.n
		if err := h.move(scratch+uintptr(slotOf(q, c.rank))*uintptr(slot), c.src[q]+c.first+at, bytes); err != nil {
			return err
		}
	}
	return h.combine(i, to+at, own, scratch, slot, bytes)
}

// slotOf is the number of the place for rank q at rank r, which needs none for itself.
func slotOf(q, r int) int {
	if q > r {
		return q - 1
	}
	return q
}

// copying is how op is done by copy engines, and whether it can be: ranks must have promised that their buffers lie alike, where
// the others' copy engines get at them. Ranks come to the same answer, since the slices that it looks at are the largest.
func (s *state) copying(op *dist.Op, l *call) (c copying, ok bool) {
	if !op.Symmetric || s.n == 1 || !copier.native(op.Kind) {
		return c, false
	}
	c = copying{rank: s.p.Rank, n: s.n, bytes: l.span.block, least: leastPull}
	c.along = op.Along && op.Kind == dist.KindAllGather && s.adder.number != 0 && op.Seq == s.adder.number+1
	b := &s.board.tiles
	c.scratch, c.room = s.slab.Base[c.rank]+uintptr(b.at), 2*b.half
	stride := c.bytes
	if op.Kind == dist.KindAllReduce {
		stride = pieceOf(reduceAll, &l.span, s.n, l.span.block).stride
		c.bytes = min(stride, l.span.block-min(uint64(c.rank)*stride, l.span.block))
	}
	c.first = uintptr(uint64(c.rank) * stride)
	c.src[c.rank], c.dst[c.rank] = l.src, l.dst
	ok = true
	if op.Kind != dist.KindAllGather {
		ok = stride <= mostPasses*c.pass() && s.everywhere(&c.src, l.src, uint64(op.Src.Bytes()))
	}
	if op.Kind != dist.KindReduceScatter {
		ok = ok && s.everywhere(&c.dst, l.dst, uint64(op.Dst.Bytes()))
	}
	return c, ok
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

// copyHands puts the parts of a copying into a stream, and what combines them, or goes along with what is there, into another that
// joins it.
type copyHands struct {
	s       *state
	stream  *cuda.Stream
	lane    *cuda.Stream // where copies go
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

func (h *copyHands) along() error {
	h.lane = h.s.adder.stream
	return h.lane.Wait(h.s.adder.gathered)
}

func (h *copyHands) gathered() error {
	if err := h.lane.Record(h.s.adder.gathered); err != nil || h.lane == h.stream {
		return err
	}
	return h.stream.Wait(h.s.adder.gathered)
}

func (h *copyHands) move(dst, src uintptr, bytes uint64) error {
	for bytes > 0 {
		n := min(bytes, h.s.seams.until(dst), h.s.seams.until(src))
		if err := h.lane.Copy(dst, src, int64(n)); err != nil {
			return err
		}
		dst, src, bytes = dst+uintptr(n), src+uintptr(n), bytes-n
	}
	return nil
}

func (h *copyHands) combine(i int, dst, own, from uintptr, slot, bytes uint64) error {
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

func (h *copyHands) await(i int) error { return h.stream.Wait(h.s.adder.added[i]) }

// adder is where what copy engines bring is combined, and where copies go that go along with others.
type adder struct {
	stream        *cuda.Stream
	copied, added [mostParts]*cuda.Event
	gathered      *cuda.Event // behind the copies of the last all-gather
	number        uint64      // of that all-gather in the group; 0 for none
}

// open makes the stream, of the greatest priority, and the events.
func (a *adder) open(v *cuda.Device) error {
	_, greatest, err := v.PriorityRange()
	if err != nil {
		return err
	}
	if a.stream, err = v.NewStream(greatest); err != nil {
		return err
	}
	if a.gathered, err = v.NewEvent(); err != nil {
		return err
	}
	for i := range mostParts {
		for _, e := range [...]**cuda.Event{&a.copied[i], &a.added[i]} {
			if *e, err = v.NewEvent(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *adder) close() error {
	var errs []error
	for i := range mostParts {
		for _, e := range [...]*cuda.Event{a.copied[i], a.added[i]} {
			if e != nil {
				errs = append(errs, e.Close())
			}
		}
	}
	if a.gathered != nil {
		errs = append(errs, a.gathered.Close())
	}
	if a.stream != nil {
		errs = append(errs, a.stream.Close())
	}
	*a = adder{}
	return errors.Join(errs...)
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

// Aside implements gpu.Aside. What turns out to be nothing for copy engines is done as by twoshot, in a shape that is guessed.
func (e *Engine) Aside(op *dist.Op) bool {
	return e.way == copier && e.s.n > 1 && op.Symmetric && copier.native(op.Kind) && gpu.Size(op, e.s.n) >= gpu.LeastAside
}
