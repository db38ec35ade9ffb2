package shm

import (
	"math/bits"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/reduce"
)

// An allreduce out of place between two ranks has two ways. A rank stores the block that it sums to
// the other's destination as well, or the other pulls it. Stores are the faster where nobody has
// read the last result, as where operations are only timed. Where the program reads it, its core
// has the lines that the other will store to, and pulling takes half of the time: it leaves lines
// modified, so that their owner fills them fast (see reduce.Dirty). What the program does nobody
// says, so rank 0 tries both ways now and then, and tells by which to go on. The bits are the same.

// mostPulled is up to how many bytes pulling may be faster; beyond, memory is what takes the time.
const mostPulled = 1 << 20

// Now and then, the other way is tried: in operations of about one size, of which the first ones of
// a way find what the other has left.
const (
	between  = 250
	settling = 4
	measured = 8
)

// habit is by which way operations of about one size go.
type habit struct {
	pulls bool
	n     int      // operations since the other way was tried
	least [2]int64 // ticks, of the last operations by this way, and of those by the other
}

// way reports whether the next operation pulls.
func (h *habit) way() bool { return h.pulls != (h.n >= between) }

// took notes how long the operation took.
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

// habitOf is that of an operation of so many bytes, if pulling may be faster; else nil.
func (t *Transport) habitOf(op *dist.Op, bytes int) *habit {
	if op.Kind != dist.KindAllReduce || t.size != 2 || t.crowded() || bytes > mostPulled {
		return nil
	}
	return &t.habits[bits.Len(uint(bytes-1))]
}

// apart reports whether both ranks have their results elsewhere than their sources.
func (t *Transport) apart() bool {
	return t.sides[0].src != t.sides[0].dst && t.sides[1].src != t.sides[1].dst
}

// pullSum sums the own block to the own destination, and pulls that of the other rank.
func (t *Transport) pullSum(op *dist.Op, bytes int) error {
	other, size := 1-t.rank, op.DType().Size()
	lo, hi := block(op.Count, 2, t.rank)
	dst := op.Dst.Pointer()
	t.dsts[0] = unsafe.Add(dst, lo*size)
	if err := t.sumDirect(op, t.dsts[:1], lo*size, hi-lo, bytes); err != nil {
		return err
	}
	if err := t.disseminate(nil); err != nil {
		return err
	}
	lo, hi = block(op.Count, 2, other)
	from, err := t.at(other, t.sides[other].dst, lo*size, (hi-lo)*size)
	if err != nil {
		return err
	}
	reduce.Copy(unsafe.Add(dst, lo*size), from, (hi-lo)*size, reduce.Dirty)
	return nil
}
