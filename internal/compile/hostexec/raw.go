package hostexec

import (
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// raw is a copy between an In and an Out of one dtype that the code does not compute in. It copies
// bits, so it is exact for all integers. A block of it waits in scratch memory until all reads of
// the block are done.
type raw struct {
	from, to operand
	bytes    int // of an element
	at       int // in scratch
}

// raws moves copies from the Outs that are stored from registers to c.raws.
func (k *compiler[T]) raws() {
	c := k.c
	kept := c.outs[:0]
	for _, o := range c.outs {
		in := &k.src.code[o.slot]
		if in.Op != program.Load || o.dtype == dtypeOf[T]() || k.src.p.Values[k.src.in[in.A].Value].DType != o.dtype {
			kept = append(kept, o)
			continue
		}
		c.raws = append(c.raws, raw{from: c.ins[k.where[o.slot]], to: o, bytes: o.dtype.Size()})
	}
	c.outs = kept
}

// place gives the copies their memory, after that of the registers.
func (c *code[T]) place() {
	at := c.regs*c.block*size[T]() + len(c.ins)*lineBytes
	for i := range c.raws {
		c.raws[i].at = at
		at = up(at + c.block*c.raws[i].bytes)
	}
	c.bytes = at
}

// fetch reads elements lo to lo+n of all copies.
func (c *code[T]) fetch(w *worker, lo, n int) {
	for i := range c.raws {
		r := &c.raws[i]
		c.walk(w, &r.from, lo, n, func(done, at, k int) {
			moveRun(r.bytes, unsafe.Add(w.scratch, r.at+done*r.bytes), w.mem.at(r.from.id, at), 1, c.stride(&r.from), k)
		})
	}
}

// put stores the elements that fetch has read.
func (c *code[T]) put(w *worker, lo, n int) {
	for i := range c.raws {
		r := &c.raws[i]
		c.walk(w, &r.to, lo, n, func(done, at, k int) {
			moveRun(r.bytes, w.mem.at(r.to.id, at), unsafe.Add(w.scratch, r.at+done*r.bytes), c.stride(&r.to), 1, k)
		})
	}
}

func (c *code[T]) stride(o *operand) int { return o.strides[len(o.strides)-1] }

// walk calls f for each run of elements lo to lo+n along the innermost dimension: done is the
// elements so far, at the offset of the run in the operand, k its length.
func (c *code[T]) walk(w *worker, o *operand, lo, n int, f func(done, at, k int)) {
	last := len(c.sp.dims) - 1
	at := c.seek(w, o, lo)
	for done := 0; done < n; {
		k := min(n-done, c.sp.dims[last]-w.index[last])
		f(done, at, k)
		at = c.step(w, o, at, k)
		done += k
	}
}

// moveRun copies n elements of some bytes each, at steps in elements.
func moveRun(bytes int, to, from unsafe.Pointer, toStep, fromStep, n int) {
	switch {
	case toStep == 1 && fromStep == 1:
		copy(unsafe.Slice((*byte)(to), n*bytes), unsafe.Slice((*byte)(from), n*bytes))
	case bytes == 1:
		moveElements[uint8](to, from, toStep, fromStep, n)
	case bytes == 2:
		moveElements[uint16](to, from, toStep, fromStep, n)
	case bytes == 4:
		moveElements[uint32](to, from, toStep, fromStep, n)
	default:
		moveElements[uint64](to, from, toStep, fromStep, n)
	}
}

func moveElements[E any](to, from unsafe.Pointer, toStep, fromStep, n int) {
	var e E
	bytes := int(unsafe.Sizeof(e))
	for i := range n {
		*(*E)(unsafe.Add(to, i*toStep*bytes)) = *(*E)(unsafe.Add(from, i*fromStep*bytes))
	}
}
