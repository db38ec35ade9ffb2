package hostexec

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// source is the input of compile.
type source struct {
	p      *program.Program
	shape  []int
	order  []int // the dimensions, outermost first
	code   []program.Instr
	in     []program.View
	out    []program.View // of a Map
	stores []int
	along  *program.View // of a Reduce: its Out, which separates reduced dimensions from kept ones
	level  *level
}

// compiler makes a code: it finds the registers that are needed, the operands that can be used in
// place, and memory for the others.
type compiler[T real] struct {
	src    *source
	c      *code[T]
	where  []int    // slot of each register of the program; -1: not yet
	last   []int    // the last instruction that reads it; len(code) for a store; -1: none
	free   []int    // free registers
	copies [][2]int // slots of direct Outs and the registers of the program that are copied to them at the end of a block
	fused  []int    // of an Add: the Mul that is fused with it; -1: none
	regOf  []int    // the register of a slot's contents, by register of the program; -1: none
}

// compile makes the code of a Map or a Reduce.
func compile[T real](src *source) (*code[T], error) {
	if err := checkCode(src.code, len(src.in)); err != nil {
		return nil, err
	}
	k := &compiler[T]{src: src, c: &code[T]{level: src.level}}
	k.needs()
	k.fuse()
	k.operands()
	if len(k.c.sp.dims) > maxDims {
		return nil, fmt.Errorf("%d dimensions that do not merge; at most %d", len(k.c.sp.dims), maxDims)
	}
	k.mode()
	k.registers()
	k.emit()
	k.finish()
	return k.c, nil
}

// operands lists the needed loads, including draws of random numbers, and the Outs, over a
// collapsed space. A draw is an operand in C order: its element is the number of the index.
func (k *compiler[T]) operands() {
	var views []*program.View
	whole := program.View{Value: program.None, Strides: program.Contiguous(k.src.shape)}
	for r := range k.src.code {
		in := &k.src.code[r]
		if k.last[r] < 0 {
			continue
		}
		o, v := operand{}, &whole
		switch in.Op {
		case program.Load:
			v = &k.src.in[in.A]
			o.dtype = k.src.p.Values[v.Value].DType
		case program.Rand:
			o.random = in
		default:
			continue
		}
		o.id, o.offset = v.Value, v.Offset
		k.where[r] = len(views)
		views = append(views, v)
		k.c.ins = append(k.c.ins, o)
	}
	for i := range k.src.out {
		views = append(views, &k.src.out[i])
	}
	if k.src.along != nil {
		views = append(views, k.src.along)
	}
	strides := make([][]int, len(views))
	for i, v := range views {
		strides[i] = v.Strides
	}
	k.c.sp = newSpace(k.src.shape, k.src.order, strides)
	for i := range k.c.ins {
		k.c.ins[i].strides = k.c.sp.strides[i]
	}
}

// mode chooses between blocks of the whole space and blocks inside its rows: the choice that uses
// more operands in place.
func (k *compiler[T]) mode() {
	sp := k.c.sp
	count := func(rows bool) (gathers int) {
		for i := range sp.strides[:len(k.c.ins)+len(k.src.out)] {
			dt := dtypeOf[T]()
			if i < len(k.c.ins) && k.c.ins[i].random == nil {
				dt = k.c.ins[i].dtype
			}
			if k.reached(sp.strides[i], dt, rows) == gather {
				gathers++
			}
		}
		return gathers
	}
	k.c.rows = len(sp.dims) > 1 && sp.inner() >= leastRow && count(true) < count(false)
	for i := range k.c.ins {
		o := &k.c.ins[i]
		o.how = gather
		if o.random == nil {
			o.how = k.reached(o.strides, o.dtype, k.c.rows)
		}
	}
}

// reached returns the access of an operand.
func (k *compiler[T]) reached(strides []int, dt tensor.DType, rows bool) access {
	sp, own := k.c.sp, dt == dtypeOf[T]()
	inner := strides[len(strides)-1]
	switch {
	case rows && inner == 0, !rows && sp.isScalar(strides):
		return single
	case own && rows && inner == 1, own && !rows && sp.isWhole(strides):
		return direct
	}
	return gather
}

// registers numbers all slots except registers, and gives gathers their registers.
func (k *compiler[T]) registers() {
	c := k.c
	c.firstDirect = len(c.ins)
	for i, r := range k.src.stores {
		o := k.outOperand(i)
		if k.writes(i, r, &o) {
			o.slot = c.firstDirect + len(c.direct)
			k.where[r] = o.slot
			c.direct = append(c.direct, o)
			continue
		}
		if k.reached(o.strides, o.dtype, c.rows) == direct {
			o.slot = c.firstDirect + len(c.direct)
			k.copies = append(k.copies, [2]int{o.slot, r})
			c.direct = append(c.direct, o)
			continue
		}
		o.slot = r // a register of the program, until finish
		c.outs = append(c.outs, o)
	}
	k.raws()
	c.firstConst = c.firstDirect + len(c.direct)
	for r := range k.src.code {
		if k.src.code[r].Op == program.Const && k.last[r] >= 0 {
			k.where[r] = c.firstConst + len(c.consts)
			c.consts = append(c.consts, slot{})
		}
	}
	c.firstReg = c.firstConst + len(c.consts)
	for r := range k.src.code {
		if i := k.where[r]; i >= 0 && i < len(c.ins) && c.ins[i].how == gather {
			c.ins[i].buf = k.take()
			k.regOf[r] = c.ins[i].buf
		}
	}
}

func (k *compiler[T]) outOperand(i int) operand {
	v := &k.src.out[i]
	return operand{
		id: v.Value, offset: v.Offset, dtype: k.src.p.Values[v.Value].DType, strides: k.c.sp.strides[len(k.c.ins)+i],
	}
}

// writes reports whether the instruction of register r may write Out i itself: the Out is direct, r
// has no other slot yet, and no later instruction reads an In in that memory.
func (k *compiler[T]) writes(i, r int, o *operand) bool {
	if arity(k.src.code[r].Op) == 0 || k.where[r] >= 0 || k.reached(o.strides, o.dtype, k.c.rows) != direct {
		return false
	}
	for x := range k.src.code {
		j := k.where[x]
		if k.src.code[x].Op != program.Load || j < 0 || k.c.ins[j].how != direct || k.last[x] <= r {
			continue
		}
		if k.overlap(&k.src.in[k.src.code[x].A], &k.src.out[i]) {
			return false
		}
	}
	return true
}

// overlap reports whether two views may share bytes.
func (k *compiler[T]) overlap(a, b *program.View) bool {
	x, y := &k.src.p.Values[a.Value], &k.src.p.Values[b.Value]
	if a.Value == b.Value {
		return true
	}
	if x.Place != program.Arena || y.Place != program.Arena {
		return false
	}
	alo, ahi := reach(k.src.shape, a)
	blo, bhi := reach(k.src.shape, b)
	sx, sy := int64(x.DType.Size()), int64(y.DType.Size())
	return x.Offset+int64(alo)*sx < y.Offset+int64(bhi+1)*sy && y.Offset+int64(blo)*sy < x.Offset+int64(ahi+1)*sx
}

// take returns a free register.
func (k *compiler[T]) take() int {
	if n := len(k.free); n > 0 {
		r := k.free[n-1]
		k.free = k.free[:n-1]
		return r
	}
	k.c.regs++
	return k.c.regs - 1
}

// emit generates the instructions.
func (k *compiler[T]) emit() {
	k.keep()
	for r := range k.src.code {
		in := &k.src.code[r]
		if k.last[r] < 0 || arity(in.Op) == 0 {
			continue
		}
		op, from := k.instruction(r)
		x := [3]int{}
		for i, a := range from {
			x[i] = k.where[a]
		}
		for _, a := range from {
			if k.last[a] == r && k.regOf[a] >= 0 {
				k.free = append(k.free, k.regOf[a])
				k.regOf[a] = -1
			}
		}
		if k.where[r] < 0 {
			k.regOf[r] = k.take()
			k.where[r] = k.c.firstReg + k.regOf[r]
		}
		k.add(op, k.where[r], x[0], x[1], x[2])
	}
	for _, c := range k.copies {
		from := k.where[c[1]]
		k.add(opCopy, c[0], from, from, from)
	}
}

func (k *compiler[T]) add(op vecOp, d, a, b, c int) {
	k.c.instrs = append(k.c.instrs, instr{primitive[T](k.src.level, op), op, d, a, b, c})
}

// keep copies, before anything is written, each In that is used in place and stored, if an Out may
// overwrite it. A Reduce needs its last register element by element.
func (k *compiler[T]) keep() {
	for r := range k.src.code {
		in := &k.src.code[r]
		if k.last[r] != len(k.src.code) || arity(in.Op) != 0 {
			continue
		}
		j := k.where[r]
		needed := k.src.along != nil && (in.Op == program.Const || k.c.ins[j].how == single)
		if in.Op == program.Load && k.c.ins[j].how == direct {
			for i := range k.src.out {
				needed = needed || k.overlap(&k.src.in[in.A], &k.src.out[i])
			}
		}
		if needed {
			reg := k.take()
			k.add(opCopy, k.c.firstReg+reg, j, j, j)
			k.where[r], k.regOf[r] = k.c.firstReg+reg, reg
		}
	}
}

// finish cuts the space into blocks and fills the constants.
func (k *compiler[T]) finish() {
	c := k.c
	for i := range c.outs {
		c.outs[i].slot = k.where[c.outs[i].slot]
	}
	if k.src.along != nil {
		c.result = k.where[len(k.src.code)-1]
	}
	c.fixed = newBlock(len(c.consts) * lineBytes)
	for r := range k.src.code {
		if in := &k.src.code[r]; in.Op == program.Const && k.last[r] >= 0 {
			i := k.constOf(r)
			c.consts[i] = slot{unsafe.Add(c.fixed.p, i*lineBytes), 0}
			fill(c.consts[i].p, T(in.Value))
		}
	}
	length := c.sp.total
	if c.rows {
		length = c.sp.inner()
	}
	most := min(registerBytes, l1Bytes/max(1, c.regs+len(c.ins)+len(c.direct))) / size[T]()
	most = max(128, most&^63)
	c.perRow = max(1, (length+most-1)/most)
	c.block = max(64, ((length+c.perRow-1)/c.perRow+63)&^63)
	c.place()
	c.cost = k.estimate()
}

// constOf returns the number of the constant of register r. Constants are numbered in order.
func (k *compiler[T]) constOf(r int) (i int) {
	for x := range r {
		if k.src.code[x].Op == program.Const && k.last[x] >= 0 {
			i++
		}
	}
	return i
}

// estimate returns a rough time of an element in picoseconds, for the cutting of work only.
func (k *compiler[T]) estimate() int {
	cost := 10
	for i := range k.c.ins {
		switch o := &k.c.ins[i]; {
		case o.random != nil:
			cost += 2000
		case o.how == gather:
			cost += 400
		case o.how == direct:
			cost += 10 * size[T]()
		}
	}
	cost += 15*size[T]()*len(k.c.direct) + 500*(len(k.c.outs)+len(k.c.raws))
	for _, in := range k.c.instrs {
		switch {
		case in.op >= plainOps:
			cost += 12000
		case in.op >= opExp && in.op <= opSigmoid:
			cost += 100 * size[T]()
		default:
			cost += 8 * size[T]()
		}
	}
	return min(cost, math.MaxInt32)
}
