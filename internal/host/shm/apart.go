package shm

import (
	"math/bits"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
)

// An out-of-place allreduce between two ranks has two routes: a rank also stores the block that it
// sums to the peer's destination, or the peer pulls it. Stores are faster if the last result was
// not read, as in a benchmark. If the program reads results, its core holds the lines that the peer
// would store to. Pulling then takes half the time: it leaves lines modified, which lets their
// owner refill them fast (see reduce.Dirty). Rank 0 cannot know the program, so it tries both
// routes now and then and announces the faster one. The bits are the same.

// mostPulled is the largest size for which pulling may be faster; beyond it memory bandwidth
// dominates.
const mostPulled = 1 << 20

// Timing of the trials of the other route, among operations of about one size. The first operations
// by a route find cache lines in the state left by the other, so they settle before measurement.
const (
	between  = 250
	settling = 4
	measured = 8
)

// habit tracks the route of operations of about one size.
type habit struct {
	pulls bool
	n     int      // operations since the last trial
	least [2]int64 // fewest ticks of the last operations by this route, and by the other
}

// nextPulls reports whether the next operation pulls.
func (h *habit) nextPulls() bool { return h.pulls != (h.n >= between) }

// took records the duration of an operation.
func (h *habit) took(d int64) {
	h.n++
	switch {
	case h.n > between-measured && h.n <= between:
		h.note(0, d)
	case h.n > between+settling:
		h.note(1, d)
	}
	if h.n == between+settling+measured {
		*h = habit{pulls: h.pulls != (h.least[1] < h.least[0])}
	}
}

func (h *habit) note(k int, d int64) {
	if d < h.least[k] || h.least[k] == 0 {
		h.least[k] = d
	}
}

// habitOf returns the habit for an operation of bytes bytes if pulling may be faster, or nil.
func (p *directPath) habitOf(op *dist.Op, bytes int) *habit {
	if op.Kind != dist.KindAllReduce || p.size != 2 || p.crowded() || bytes > mostPulled {
		return nil
	}
	return &p.habits[bits.Len(uint(bytes-1))]
}

// apart reports whether both ranks have results and sources in different places.
func (p *directPath) apart() bool {
	return p.sides[0].src != p.sides[0].dst && p.sides[1].src != p.sides[1].dst
}

// pullSum sums the own block to the own destination and pulls the block of the other rank.
func (p *directPath) pullSum(op *dist.Op, bytes int) error {
	other, size := 1-p.rank, op.DType().Size()
	lo, hi := block(op.Count, 2, p.rank)
	dst := op.Dst.Pointer()
	p.dsts[0] = unsafe.Add(dst, lo*size)
	if err := p.sumDirect(op, p.dsts[:1], lo*size, hi-lo, bytes); err != nil {
		return err
	}
	if err := p.disseminate(nil); err != nil {
		return err
	}
	lo, hi = block(op.Count, 2, other)
	from, err := p.at(other, p.sides[other].dst, lo*size, (hi-lo)*size)
	if err != nil {
		return err
	}
	reduce.Copy(unsafe.Add(dst, lo*size), from, (hi-lo)*size, reduce.Dirty)
	return nil
}
