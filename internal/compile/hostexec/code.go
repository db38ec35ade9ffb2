package hostexec

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

const (
	registerBytes = 4096     // of a register, at most
	l1Bytes       = 24 << 10 // of the L1 cache, for all registers and operands of a block
	leastRow      = 128      // elements of a row from which blocks are cut inside rows
)

// slot is an operand of an instruction. With step 0 it is one number, repeated in 64 bytes.
type slot struct {
	p    unsafe.Pointer
	step int
}

// access is the kind of access to an operand.
type access uint8

const (
	direct access = iota // in place
	single               // one number for the whole block
	gather               // through a register: converted, or element by element
)

// operand is an In or an Out.
type operand struct {
	id      program.ID
	offset  int
	strides []int // over the collapsed space
	dtype   tensor.DType
	how     access
	slot    int // of an Out: the slot that is stored
	buf     int // register of a gather
	random  *program.Instr
}

// instr is one call of a primitive on slots.
type instr struct {
	f          func(*vecArgs)
	op         vecOp
	d, a, b, c int
}

// code is the scalar operations of a Map or a Reduce, ready to run over blocks of its space.
type code[T real] struct {
	level  *level
	sp     *space
	rows   bool // blocks are inside rows, which are the innermost dimension
	block  int  // elements at most
	perRow int  // blocks in a row, or in all
	ins    []operand
	outs   []operand // stored at the end of a block
	direct []operand // written by an instruction
	raws   []raw     // copied
	bytes  int       // of scratch
	instrs []instr
	consts []slot
	fixed  block
	regs   int
	result int // slot of the register that a Reduce reduces
	cost   int // picoseconds for an element, roughly

	// Slots: ins, direct outs, consts, registers.
	firstDirect, firstConst, firstReg int
}

// slots returns the number of slots.
func (c *code[T]) slots() int { return c.firstReg + c.regs }

// scratch returns the bytes of a worker's memory.
func (c *code[T]) scratch() int { return c.bytes }

func size[T real]() int {
	var t T
	return int(unsafe.Sizeof(t))
}

func dtypeOf[T real]() tensor.DType { return tensor.TypeOf[T]() }

// blocks returns the number of blocks of the space.
func (c *code[T]) blocks() int {
	if c.rows {
		return c.sp.total / c.sp.inner() * c.perRow
	}
	return c.perRow
}

// blockAt returns the first element of block i and its length.
func (c *code[T]) blockAt(i int) (lo, n int) {
	if !c.rows {
		lo = i * c.block
		return lo, min(c.block, c.sp.total-lo)
	}
	inner := c.sp.inner()
	at := i % c.perRow * c.block
	return i/c.perRow*inner + at, min(c.block, inner-at)
}

// limit returns the number of elements from lo on, at most n, that one call of eval does.
func (c *code[T]) limit(lo, n int) int {
	if c.rows {
		inner := c.sp.inner()
		n = min(n, inner-lo%inner)
	}
	return min(n, c.block)
}

// enter sets the slots that are equal for all blocks. Workers call it before they run blocks.
func (c *code[T]) enter(w *worker) {
	for i, s := range c.consts {
		w.slots[c.firstConst+i] = s
	}
	for i := range c.regs {
		w.slots[c.firstReg+i] = slot{unsafe.Add(w.scratch, i*c.block*size[T]()), 1}
	}
	for i := range c.ins {
		o := &c.ins[i]
		if o.how == single {
			p := c.lineOf(w, i)
			w.slots[i] = slot{p, 0}
			if !c.rows {
				fill(p, loadOne[T](w.mem.at(o.id, o.offset), o.dtype))
			}
		}
	}
}

// lineOf returns the 64 bytes for In i.
func (c *code[T]) lineOf(w *worker, i int) unsafe.Pointer {
	return unsafe.Add(w.scratch, c.regs*c.block*size[T]()+i*lineBytes)
}

func loadOne[T real](p unsafe.Pointer, dt tensor.DType) T {
	if dt == dtypeOf[T]() {
		return *(*T)(p)
	}
	var x [1]T
	loadRun(x[:], p, dt, 0)
	return x[0]
}

func fill[T real](p unsafe.Pointer, x T) {
	line := unsafe.Slice((*T)(p), lineBytes/size[T]())
	for i := range line {
		line[i] = x
	}
}

// eval runs the code over elements lo to lo+n of the space. limit bounds n.
func (c *code[T]) eval(w *worker, lo, n int) {
	c.reach(w, lo, n)
	if len(c.raws) > 0 {
		c.fetch(w, lo, n)
	}
	v := &w.vec
	v.n = n
	for i := range c.instrs {
		in := &c.instrs[i]
		d, a, b, x := &w.slots[in.d], &w.slots[in.a], &w.slots[in.b], &w.slots[in.c]
		v.op, v.d = in.op, d.p
		v.a, v.sa = a.p, a.step
		v.b, v.sb = b.p, b.step
		v.c, v.sc = x.p, x.step
		in.f(v)
	}
}

// reach prepares the operands of a block.
func (c *code[T]) reach(w *worker, lo, n int) {
	row, col := 0, lo
	if c.rows {
		inner := c.sp.inner()
		row, col = lo/inner, lo%inner
	}
	for i := range c.ins {
		o := &c.ins[i]
		switch {
		case o.how == gather:
			p := w.slots[c.firstReg+o.buf].p
			if o.random != nil {
				c.draw(w, o, unsafe.Slice((*T)(p), n), lo)
			} else {
				c.gather(w, o, unsafe.Slice((*T)(p), n), lo)
			}
			w.slots[i] = slot{p, 1}
		case o.how == direct:
			w.slots[i] = slot{w.mem.at(o.id, c.element(o, row, col)), 1}
		case c.rows:
			fill(w.slots[i].p, loadOne[T](w.mem.at(o.id, c.element(o, row, col)), o.dtype))
		}
	}
	for i := range c.direct {
		o := &c.direct[i]
		w.slots[c.firstDirect+i] = slot{w.mem.at(o.id, c.element(o, row, col)), 1}
	}
}

// element returns the offset of element col of row number row in a direct or single operand.
func (c *code[T]) element(o *operand, row, col int) int {
	if !c.rows {
		return o.offset + col
	}
	return o.offset + c.sp.row(o.strides, row) + col*o.strides[len(o.strides)-1]
}

// seek sets a worker's odometer to element lo of the space and returns its offset in the operand.
func (c *code[T]) seek(w *worker, o *operand, lo int) int {
	at := o.offset
	for d := len(c.sp.dims) - 1; d >= 0; d-- {
		n := c.sp.dims[d]
		w.index[d] = lo % n
		at += lo % n * o.strides[d]
		lo /= n
	}
	return at
}

// step moves the odometer by n elements along the innermost dimension, at most to its end, and
// returns the new offset.
func (c *code[T]) step(w *worker, o *operand, at, n int) int {
	d := len(c.sp.dims) - 1
	w.index[d] += n
	at += n * o.strides[d]
	for d > 0 && w.index[d] == c.sp.dims[d] {
		w.index[d] = 0
		at -= c.sp.dims[d] * o.strides[d]
		d--
		w.index[d]++
		at += o.strides[d]
	}
	return at
}

// gather sets dst to the elements of the operand from lo on.
func (c *code[T]) gather(w *worker, o *operand, dst []T, lo int) {
	last := len(c.sp.dims) - 1
	same, inner, stride := o.dtype == dtypeOf[T](), c.sp.dims[last], o.strides[last]
	at := c.seek(w, o, lo)
	for len(dst) > 0 {
		n := min(len(dst), inner-w.index[last])
		p := w.mem.at(o.id, at)
		switch rows := c.whole(w, len(dst)); {
		case same && stride == 1 && rows > 1:
			c.level.copy2(unsafe.Pointer(unsafe.SliceData(dst)), p, inner*4, o.strides[last-1]*4, rows, inner*4)
			at, n = c.skip(w, o, at, rows), rows*inner
		case same && stride == 1:
			copy(dst[:n], unsafe.Slice((*T)(p), n))
			at = c.step(w, o, at, n)
		default:
			loadRun(dst[:n], p, o.dtype, stride)
			at = c.step(w, o, at, n)
		}
		dst = dst[n:]
	}
}

// whole returns the number of float32 rows of one rectangle that start at the odometer and fit in n
// elements. It returns 0 if rows are not moved together.
func (c *code[T]) whole(w *worker, n int) int {
	last := len(c.sp.dims) - 1
	if c.level == nil || size[T]() != 4 || last == 0 || w.index[last] != 0 {
		return 0
	}
	return min(n/c.sp.dims[last], c.sp.dims[last-1]-w.index[last-1])
}

// skip moves the odometer from the start of a row by some rows of one rectangle, and returns the
// new offset.
func (c *code[T]) skip(w *worker, o *operand, at, rows int) int {
	d := len(c.sp.dims) - 2
	w.index[d] += rows - 1
	return c.step(w, o, at+(rows-1)*o.strides[d], c.sp.dims[d+1])
}

// store writes a block to its Outs.
func (c *code[T]) store(w *worker, lo, n int) {
	for i := range c.outs {
		o := &c.outs[i]
		src, mask := lanes[T](w.slots[o.slot].p, w.slots[o.slot].step, n)
		plain := o.dtype == dtypeOf[T]() && c.stride(o) == 1 && mask != 0
		c.walk(w, o, lo, n, func(done, at, k int) {
			p := w.mem.at(o.id, at)
			if plain {
				copy(unsafe.Slice((*T)(p), k), src[done:])
			} else {
				storeRun(p, o.dtype, c.stride(o), src[done&mask:], k, mask)
			}
		})
	}
	if len(c.raws) > 0 {
		c.put(w, lo, n)
	}
}

// checkCode reports invalid operands and operations of a code.
func checkCode(instrs []program.Instr, ins int) error {
	for r := range instrs {
		in := &instrs[r]
		if in.Op == program.Load && (in.A < 0 || in.A >= ins) {
			return fmt.Errorf("register %d loads in %d of %d", r, in.A, ins)
		}
		if n := arity(in.Op); n > 0 && (in.A < 0 || in.A >= r) || n > 1 && (in.B < 0 || in.B >= r) || n > 2 && (in.C < 0 || in.C >= r) {
			return fmt.Errorf("register %d reads itself or a later register", r)
		}
		if int(in.Op) >= len(vecOps) {
			return fmt.Errorf("register %d: unknown scalar operation %d", r, in.Op)
		}
	}
	return nil
}
