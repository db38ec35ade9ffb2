package program

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
)

// Operand is the form that an operation demands of one of its views.
type Operand struct {
	Space  []int // the index space of the view
	Packed bool  // C order without gaps
	Matrix bool  // an operand of MatMul: rows or columns without gaps
	Lines  bool  // last dim without gaps; every line starts at a multiple of 8 elements from the value's start
}

// Operands returns the forms that step s demands of its In and Out. Errors: a wrong number of
// operands, or an unknown operation.
func (p *Program) Operands(s *Step) (in, out []Operand, err error) {
	in, out, optional := p.signature(s)
	if in == nil && out == nil {
		return nil, nil, fmt.Errorf("unknown operation %T", s.Op)
	}
	if len(s.In) > len(in) || len(s.In) < len(in)-optional.in {
		return nil, nil, fmt.Errorf("%v has %d in; %d are needed", s.Op, len(s.In), len(in))
	}
	if len(s.Out) > len(out) || len(s.Out) < len(out)-optional.out {
		return nil, nil, fmt.Errorf("%v has %d out; %d are needed", s.Op, len(s.Out), len(out))
	}
	return in[:len(s.In)], out[:len(s.Out)], nil
}

// optional is the number of last In and Out that may be omitted.
type optional struct{ in, out int }

func packed(space ...int) Operand { return Operand{Space: space, Packed: true} }

func ops(o ...Operand) []Operand { return o }

func (p *Program) signature(s *Step) (in, out []Operand, opt optional) {
	switch o := s.Op.(type) {
	case *Map:
		return same(o.Space, len(s.In)), same(o.Space, len(o.Stores)), opt
	case *Reduce:
		return same(o.Space, len(s.In)), same(o.Space, 1), opt
	case *Integer:
		return same(o.Space, o.ins()), same(o.Space, 1), opt
	case *MatMul:
		matrix := func(rows, cols int) Operand { return Operand{Space: []int{o.Batch, rows, cols}, Matrix: true} }
		return ops(matrix(o.M, o.K), matrix(o.K, o.N)), ops(matrix(o.M, o.N)), opt
	case *Attention:
		return o.forward()
	case *AttentionGrad:
		return o.backward()
	case *CrossEntropy:
		return ops(packed(o.Rows, o.Classes), packed(o.Rows, o.Classes)), ops(packed(), packed(o.Rows, o.Classes)), optional{out: 1}
	case *SparseCrossEntropy:
		x := packed(o.Rows, o.Classes)
		return ops(x, packed(o.Rows), packed()), ops(packed(), x), optional{out: 1}
	case *BatchNorm:
		x, c := packed(o.N, o.C, o.Spatial), packed(o.C)
		if !o.Training {
			return ops(x, c, c), ops(x, c, c), opt
		}
		return ops(x, c, c), ops(x, c, c, c, c), opt
	case *BatchNormGrad:
		x, c := packed(o.N, o.C, o.Spatial), packed(o.C)
		return ops(x, x, c, c), ops(x), opt
	case *Collective:
		return p.collective(s, o)
	case *Call:
		return p.flat(s.In), p.flat(s.Out), opt
	}
	in, out = windowed(s.Op)
	if in == nil {
		in, out = rows(s.Op)
	}
	return in, out, opt
}

func same(space []int, n int) []Operand {
	all := make([]Operand, n)
	for i := range all {
		all[i] = Operand{Space: space}
	}
	return all
}

// windowed returns the operands of operations that move a window over images.
func windowed(op Op) (in, out []Operand) {
	image := func(w *Window) Operand { return packed(w.N, w.C, w.H, w.W) }
	result := func(w *Window, k int) Operand { return packed(w.N, k, w.OutH, w.OutW) }
	filter := func(w *Window, k int) Operand { return packed(k, w.C, w.R, w.S) }
	columns := func(w *Window) Operand { return packed(w.N, w.OutH, w.OutW, w.C*w.R*w.S) }
	switch o := op.(type) {
	case *Conv:
		return ops(image(&o.Window), filter(&o.Window, o.K)), ops(result(&o.Window, o.K))
	case *ConvGradInput:
		return ops(result(&o.Window, o.K), filter(&o.Window, o.K)), ops(image(&o.Window))
	case *ConvGradFilter:
		return ops(image(&o.Window), result(&o.Window, o.K)), ops(filter(&o.Window, o.K))
	case *Im2Col:
		return ops(image(&o.Window)), ops(columns(&o.Window))
	case *Col2Im:
		return ops(columns(&o.Window)), ops(image(&o.Window))
	case *MaxPool:
		return ops(image(&o.Window)), ops(result(&o.Window, o.C))
	case *MaxPoolGrad:
		y := result(&o.Window, o.C)
		return ops(image(&o.Window), y, y), ops(image(&o.Window))
	case *AvgPool:
		return ops(image(&o.Window)), ops(result(&o.Window, o.C))
	case *AvgPoolGrad:
		return ops(result(&o.Window, o.C)), ops(image(&o.Window))
	}
	return nil, nil
}

// rows returns the operands of operations along one axis.
func rows(op Op) (in, out []Operand) {
	switch o := op.(type) {
	case *Softmax:
		x := packed(o.Outer, o.Axis, o.Inner)
		return ops(x), ops(x)
	case *SoftmaxGrad:
		x := packed(o.Outer, o.Axis, o.Inner)
		return ops(x, x), ops(x)
	case *Gather:
		return ops(packed(o.Outer, o.Axis, o.Inner), packed(o.Count)), ops(packed(o.Outer, o.Count, o.Inner))
	case *GatherGrad:
		return ops(packed(o.Outer, o.Count, o.Inner), packed(o.Count)), ops(packed(o.Outer, o.Axis, o.Inner))
	}
	return nil, nil
}

// forward returns the operands of Attention.
func (o *Attention) forward() (in, out []Operand, opt optional) {
	q, k, bias := o.operands()
	return append(ops(q, k, k), bias...), ops(q, packed(o.Batch, o.Heads, o.M)), optional{len(bias), 1}
}

// backward returns the operands of AttentionGrad.
func (o *AttentionGrad) backward() (in, out []Operand, opt optional) {
	q, k, bias := o.operands()
	row := packed(o.Batch, o.Heads, o.M)
	return append(ops(q, k, k, q, row, row), bias...), ops(q, k, k), optional{in: len(bias)}
}

// operands returns the operand of queries, that of keys, and those of the bias.
func (o *Attention) operands() (q, k Operand, bias []Operand) {
	lines := func(n int) Operand { return Operand{Space: []int{o.Batch, o.Heads, n, o.Depth}, Lines: true} }
	tiles := packed(o.M/AttentionTile, o.N/AttentionTile)
	return lines(o.M), lines(o.N), ops(packed(o.M, o.N), tiles, tiles)
}

// collective returns the operands of a collective: whole values, or a part of one, and the factor
// of PreMulSum.
func (p *Program) collective(s *Step, o *Collective) (in, out []Operand, opt optional) {
	in, out = p.flat(s.In[:min(len(s.In), 1)]), p.flat(s.Out[:min(len(s.Out), 1)])
	if len(in) == 0 {
		in = ops(packed())
	}
	if len(out) == 0 {
		out = ops(packed())
	}
	part, whole := &in[0], &out[0]
	if o.parted() == partOut {
		part, whole = whole, part
	}
	if o.parted() != noPart {
		*part = packed(o.Part)
		if o.Whole > 0 {
			*whole = packed(o.Whole)
		}
	}
	if o.Kind.Reduces() && o.Red.Kind == dist.RedPreMulSum {
		return append(in, packed()), out, optional{in: 1}
	}
	return in, out, opt
}

// partSide names the side of a collective that is a part of a value.
type partSide uint8

const (
	noPart partSide = iota
	partIn
	partOut
)

// parted returns the side of o that is a part.
func (o *Collective) parted() partSide {
	switch {
	case o.Part <= 0:
		return noPart
	case o.Kind == dist.KindAllGather:
		return partIn
	case o.Kind == dist.KindReduceScatter:
		return partOut
	}
	return noPart
}

// flat returns packed operands of the values' own shapes. A view of one dimension gets all elements
// in a row.
func (p *Program) flat(views []View) []Operand {
	all := make([]Operand, len(views))
	for i, v := range views {
		all[i] = packed()
		if !p.has(v.Value) {
			continue
		}
		val := &p.Values[v.Value]
		all[i] = packed(val.Shape...)
		if len(v.Strides) == 1 && len(val.Shape) != 1 {
			all[i] = packed(val.Len())
		}
	}
	return all
}
