package program

import (
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// sizes checks the numbers in an operation.
func (c *checker) sizes(i int) {
	s := &c.p.Steps[i]
	switch o := s.Op.(type) {
	case *Map:
		c.code(i, o.Code, o.Space)
		if len(o.Stores) != len(s.Out) {
			c.add("%s: stores %d registers in %d out", c.step(i), len(o.Stores), len(s.Out))
		}
		for k, r := range o.Stores {
			if r < 0 || r >= len(o.Code) {
				c.add("%s: out %d is register %d of %d", c.step(i), k, r, len(o.Code))
			}
		}
	case *Reduce:
		c.code(i, o.Code, o.Space)
		if len(o.Reduced) != len(o.Space) {
			c.add("%s: Reduced has %d axes, and Space %d", c.step(i), len(o.Reduced), len(o.Space))
		}
		if len(o.Code) == 0 {
			c.add("%s: has no code to reduce", c.step(i))
		}
		if o.Red > Max {
			c.add("%s: unknown reduction %d", c.step(i), o.Red)
		}
	case *Integer:
		if !o.Known() {
			c.add("%s: not an operation on integers", c.step(i))
		}
	case *MatMul:
		if o.Beta != 0 && o.Beta != 1 {
			c.add("%s: beta is %g; it is 0 or 1", c.step(i), o.Beta)
		}
	case *BatchNorm:
		if o.Epsilon < 0 || o.Momentum < 0 || o.Momentum > 1 {
			c.add("%s: epsilon %g, momentum %g", c.step(i), o.Epsilon, o.Momentum)
		}
	case *SparseCrossEntropy:
		if !(o.Smoothing >= 0 && o.Smoothing <= 1) || o.Rows < 0 || o.Classes < 1 {
			c.add("%s: smoothing %g, %d rows, %d classes", c.step(i), o.Smoothing, o.Rows, o.Classes)
		}
	case *Attention:
		c.attention(i, o, 3)
	case *AttentionGrad:
		c.attention(i, &o.Attention, 6)
	case *Collective:
		c.group(i, o)
	case *Conv, *ConvGradInput, *ConvGradFilter, *Im2Col, *Col2Im, *MaxPool, *MaxPoolGrad, *AvgPool, *AvgPoolGrad:
		c.window(i)
	case *Softmax, *SoftmaxGrad, *CrossEntropy, *Gather, *GatherGrad, *BatchNormGrad, *Call: // their operands have all numbers
	default:
		c.add("%s: %T has no rule for its numbers", c.step(i), o)
	}
}

// attention checks the numbers of an Attention, or of its gradient. Without a bias it has plain
// Ins.
func (c *checker) attention(i int, o *Attention, plain int) {
	s := &c.p.Steps[i]
	biased := len(s.In) > plain
	if biased && (len(s.In) != plain+3 || o.M%AttentionTile != 0 || o.N%AttentionTile != 0) {
		c.add("%s: has %d in, for scores of %d by %d; a bias has tiles of %d", c.step(i), len(s.In), o.M, o.N, AttentionTile)
	}
	if !(o.Scale > 0) {
		c.add("%s: scale is %g", c.step(i), o.Scale)
	}
}

// code checks that registers precede their use, and that loads name an In.
func (c *checker) code(i int, code []Instr, space []int) {
	s := &c.p.Steps[i]
	for r := range code {
		in := &code[r]
		switch {
		case in.Op > Select:
			c.add("%s: register %d has an unknown operation: %d", c.step(i), r, in.Op)
		case in.Op == Load && (in.A < 0 || in.A >= len(s.In)):
			c.add("%s: register %d loads in %d of %d", c.step(i), r, in.A, len(s.In))
		case in.Op == Rand:
			c.rand(i, r, in, space)
		}
		for k, a := range in.args() {
			if a < 0 || a >= r {
				c.add("%s: register %d (%v) takes register %d as operand %d; it is not an earlier one", c.step(i), r, in.Op, a, k)
			}
		}
	}
}

func (c *checker) rand(i, r int, in *Instr, space []int) {
	id := c.p.Clock
	switch {
	case !c.p.has(id):
		c.add("%s: register %d is rand, but the program has no clock", c.step(i), r)
	case c.p.Values[id].Place != Outside || c.p.Values[id].DType != tensor.U64 || c.p.Values[id].Len() != 2:
		c.add("%s: register %d is rand, but the clock, %s, is not two u64 outside", c.step(i), r, c.value(id))
	case in.PerUnit < 0 || in.PerUnit > 0 && lenOf(space)%in.PerUnit != 0:
		c.add("%s: register %d is rand with %d elements for one sample of %d in all", c.step(i), r, in.PerUnit, lenOf(space))
	}
}

// arity returns the number of registers that an operation reads.
func (s Scalar) arity() int {
	switch {
	case s <= Rand:
		return 0
	case s < Add:
		return 1
	case s < Select:
		return 2
	}
	return 3
}

// args returns the registers that an instruction reads.
func (in *Instr) args() []int {
	a := [3]int{in.A, in.B, in.C}
	return slices.Clone(a[:min(in.Op.arity(), 3)])
}

func (c *checker) group(i int, o *Collective) {
	s := &c.p.Steps[i]
	switch o.Kind {
	case dist.KindAllReduce, dist.KindReduce, dist.KindBroadcast, dist.KindAllGather, dist.KindReduceScatter, dist.KindAllToAll,
		dist.KindGather, dist.KindScatter:
	default:
		c.add("%s: %v moves no values of one program", c.step(i), o.Kind)
	}
	if o.Group < 0 || o.Root < 0 {
		c.add("%s: group %d, root %d", c.step(i), o.Group, o.Root)
	}
	if o.Part != 0 && o.parted() == noPart {
		c.add("%s: has a part of %d; allgather and reduce-scatter can", c.step(i), o.Part)
	}
	if o.Whole != 0 && (o.parted() == noPart || o.Whole < 0 || o.Whole%o.Part != 0) {
		c.add("%s: has %d elements in parts of %d", c.step(i), o.Whole, o.Part)
	}
	if o.Fetch && o.Kind != dist.KindAllGather {
		c.add("%s: fetches; an allgather can", c.step(i))
	}
	if o.Early {
		c.early(i)
	}
	if o.Red.Kind == dist.RedPreMulSum && !o.Red.Scalar.At.IsZero() && len(s.In) < 2 {
		c.add("%s: the factor is in memory; give it as in 1", c.step(i))
	}
}

// early checks that an Early step i touches only Outside values, that no earlier step writes its
// inputs, and that none touches its outputs.
func (c *checker) early(i int) {
	s := &c.p.Steps[i]
	touches := func(views, of []View) bool {
		return slices.ContainsFunc(views, func(v View) bool {
			return slices.ContainsFunc(of, func(w View) bool { return v.Value == w.Value })
		})
	}
	for _, v := range slices.Concat(s.In, s.Out) {
		if c.p.has(v.Value) && c.p.Values[v.Value].Place != Outside {
			c.add("%s: is early, and %s is not outside", c.step(i), c.value(v.Value))
		}
	}
	for j := range c.p.Steps[:i] {
		if e := &c.p.Steps[j]; touches(e.In, s.Out) || touches(e.Out, s.Out) || touches(e.Out, s.In) {
			c.add("%s: is early, and %s comes before it", c.step(i), c.step(j))
		}
	}
}

// window checks that each window begins inside the padded image.
func (c *checker) window(i int) {
	o, ok := c.p.Steps[i].Op.(interface{ window() *Window })
	if !ok {
		return
	}
	w := o.window()
	if min(w.N, w.C, w.H, w.W, w.OutH, w.OutW, w.PadH, w.PadW) < 0 || min(w.R, w.S, w.StrideH, w.StrideW, w.DilationH, w.DilationW) < 1 {
		c.add("%s: %+v has sizes out of range", c.step(i), *w)
		return
	}
	if w.OutH > 0 && (w.OutH-1)*w.StrideH-w.PadH >= w.H+w.PadH || w.OutW > 0 && (w.OutW-1)*w.StrideW-w.PadW >= w.W+w.PadW {
		c.add("%s: %dx%d windows reach beyond the image", c.step(i), w.OutH, w.OutW)
	}
}

// window returns the window of an operation, which embeds it.
func (w *Window) window() *Window { return w }
