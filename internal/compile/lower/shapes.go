package lower

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/internal/nnop"
	"github.com/symgrad/symgrad/ops"
)

// shapes has the rules of ops that move or select elements.
type shapes struct {
	work
	values map[*gorgonia.Node]draft.Operand // of the nodes so far
}

func (sh *shapes) rules() map[string]rule {
	return map[string]rule{
		"gorgonia.reshapeOp":   {inputs: 1, lower: sh.reshaped, moves: true},
		"*nnop.Reshape":        {inputs: 1, lower: sh.reshaped, moves: true},
		"*nnop.Slice":          {inputs: 1, lower: sh.part, moves: true},
		"*nnop.SliceGrad":      {inputs: 2, lower: sh.partGradient, moves: true},
		"gorgonia.transposeOp": {inputs: 1, lower: sh.transposed, moves: true},
		"*gorgonia.repeatOp":   {inputs: 2, lower: sh.repeated, moves: true},
		"gorgonia.repeatOp":    {inputs: 2, lower: sh.repeated, moves: true},
		"gorgonia.sizeOp":      {inputs: 1, lower: sh.size, moves: true},
		"gorgonia.atOp":        {inputs: 1, lower: sh.element, moves: true},
		"*gorgonia.sliceOp":    {inputs: 1, lower: sh.sliced, moves: true},
		"gorgonia.sliceIncrOp": {inputs: 2, lower: sh.sliceIncrement, moves: true},
		"gorgonia.concatOp":    {inputs: 1, lower: sh.concatenated, moves: true},
		"gorgonia.diagFlatOp":  {inputs: 1, lower: sh.diagonal, moves: true},
	}
}

// reshaped lowers gorgonia.Reshape and nnop.Reshape. If inputs have another number of samples than
// the graph, so have results: see sizes.follow.
func (sh *shapes) reshaped(c *current) (draft.Operand, error) {
	x, to := c.in[0], c.f.ints("to")
	if n := draft.SizeOf(to); n != x.Len() && n > 0 {
		if !sh.sizes.resized || !sh.sizes.follow(c.f.ints("from"), to, x.Shape) {
			return draft.Operand{}, fmt.Errorf("reshape of %d elements of shape %v to %v", x.Len(), x.Shape, to)
		}
	}
	return sh.Reshape(x, to), nil
}

// transposed lowers gorgonia.Transpose.
func (sh *shapes) transposed(c *current) (draft.Operand, error) {
	x, axes := c.in[0], c.f.ints("pattern")
	if !isPermutation(axes, len(x.Shape)) {
		return draft.Operand{}, fmt.Errorf("axes %v of shape %v", axes, x.Shape)
	}
	sh.sizes.moved = sh.sizes.moved || len(axes) > 0 && axes[0] != 0 && sh.sizes.isResized(c.kids[0], x)
	return draft.Permute(x, axes), nil
}

func isPermutation(axes []int, n int) bool {
	seen := make([]bool, n)
	for _, a := range axes {
		if a < 0 || a >= n || seen[a] {
			return false
		}
		seen[a] = true
	}
	return len(axes) == n
}

// size returns the length of an axis.
func (sh *shapes) size(c *current) (draft.Operand, error) {
	x, axis := c.in[0], c.f.int("axis")
	if len(x.Shape) == 0 {
		return draft.Number(1, c.dtype, nil), nil
	}
	if axis >= len(x.Shape) {
		return draft.Operand{}, fmt.Errorf("axis %d of shape %v", axis, x.Shape)
	}
	return draft.Number(float64(x.Shape[axis]), c.dtype, nil), nil
}

// repeated repeats each element along an axis. With length 1 the result is a view.
func (sh *shapes) repeated(c *current) (draft.Operand, error) {
	x, axis := c.in[0], c.f.int("along")
	if !c.in[1].IsNum {
		return draft.Operand{}, fmt.Errorf("the number of repetitions is unknown before the run")
	}
	rep := int(c.in[1].Num)
	shape := slices.Clone(x.Shape)
	for len(shape) <= axis { // op_tensor.go:244
		shape = append(shape, 1)
	}
	x = sh.Reshape(x, shape)
	if rep == 1 {
		return x, nil
	}
	out := slices.Clone(shape)
	out[axis] *= rep
	if x.IsNum || shape[axis] == 1 {
		r := x
		r.Shape = out
		r.View.Strides = slices.Clone(x.View.Strides)
		if !x.IsNum {
			r.View.Strides[axis] = 0
		}
		return r, nil
	}
	split := slices.Insert(slices.Clone(shape), axis+1, rep)
	r := x
	r.Shape = split
	r.View.Strides = slices.Insert(slices.Clone(x.View.Strides), axis+1, 0)
	return sh.Reshape(sh.CopyOf(r), out), nil
}

// element lowers gorgonia.At.
func (sh *shapes) element(c *current) (draft.Operand, error) {
	x, at := c.in[0], c.f.ints("coordinates")
	if len(at) != len(x.Shape) {
		return draft.Operand{}, fmt.Errorf("coordinates %v in shape %v", at, x.Shape)
	}
	for axis, i := range at {
		if i < 0 || i >= x.Shape[axis] {
			return draft.Operand{}, fmt.Errorf("coordinates %v in shape %v", at, x.Shape)
		}
		x = draft.Cut(x, axis, i, 1, 1)
	}
	return sh.Reshape(x, nil), nil
}

// sliceOf is the slice of an axis.
type sliceOf struct {
	axis, from, step, n int
	whole               bool // the op has no slice: all of the axis
}

// readSlice returns the slice of a gorgonia.sliceOp for an operand of a shape.
func (sh *shapes) readSlice(c *current, shape []int) (sliceOf, error) {
	s := sliceOf{axis: c.f.int("along"), step: 1}
	op, ok := c.n.Op().(interface{ IsSlice() gtensor.Slice })
	if !ok {
		return s, fmt.Errorf("%T is not a slice op", c.n.Op())
	}
	sl := op.IsSlice()
	if s.axis >= len(shape) {
		return s, fmt.Errorf("axis %d of shape %v", s.axis, shape)
	}
	sh.out.Marks = append(sh.out.Marks, markSlice(op))
	if sl == nil || sl.End() <= sl.Start() { // op_tensor.go:662
		s.n, s.whole = shape[s.axis], true
		return s, nil
	}
	end := min(sl.End(), shape[s.axis])
	s.from, s.step = sl.Start(), max(sl.Step(), 1)
	if s.from < 0 || s.from >= end {
		return s, fmt.Errorf("%d:%d of axis %d of shape %v", s.from, sl.End(), s.axis, shape)
	}
	s.n = max((end-s.from)/s.step, 1)
	return s, nil
}

// sliced lowers gorgonia.Slice. An axis cut to one element is dropped; a whole axis stays, even if
// a batch has one sample.
func (sh *shapes) sliced(c *current) (draft.Operand, error) {
	if o, ok, err := sh.concatPart(c); ok || err != nil {
		return o, err
	}
	s, err := sh.readSlice(c, c.in[0].Shape)
	if err != nil {
		return draft.Operand{}, err
	}
	o := draft.Cut(c.in[0], s.axis, s.from, s.step, s.n)
	if s.n == 1 && !s.whole {
		return sh.Reshape(o, slices.Delete(slices.Clone(o.Shape), s.axis, s.axis+1)), nil
	}
	return o, nil
}

// sliceIncrement lowers the gradient of a slice: the second input in the slice, zeros elsewhere.
func (sh *shapes) sliceIncrement(c *current) (draft.Operand, error) {
	s, err := sh.readSlice(c, c.in[0].Shape)
	if err != nil {
		return draft.Operand{}, err
	}
	return sh.placed(c, s, c.in[1], c.in[0].Shape)
}

// placed returns a tensor of a shape with dy in a slice, zeros elsewhere.
func (sh *shapes) placed(c *current, s sliceOf, dy draft.Operand, shape []int) (draft.Operand, error) {
	to := sh.Fresh(c.dtype, shape)
	end := s.from + (s.n-1)*s.step + 1
	switch {
	case s.step > 1:
		sh.CopyTo(to, draft.Number(0, c.dtype, shape))
	default: // zeros around the slice
		for _, gap := range [][2]int{{0, s.from}, {end, shape[s.axis]}} {
			if n := gap[1] - gap[0]; n > 0 {
				part := draft.Cut(to, s.axis, gap[0], 1, n)
				sh.CopyTo(part, draft.Number(0, c.dtype, part.Shape))
			}
		}
	}
	part := draft.Cut(to, s.axis, s.from, s.step, s.n)
	if dy.Len() != part.Len() && dy.Len() != 1 {
		return draft.Operand{}, fmt.Errorf("a gradient of shape %v for a slice of shape %v", dy.Shape, part.Shape)
	}
	sh.CopyTo(part, dy)
	return to, nil
}

// part lowers an nnop.Slice. An axis of another length, as of another batch, would be cut wrongly.
func (sh *shapes) part(c *current) (draft.Operand, error) {
	x := c.in[0]
	op, ok := c.n.Op().(*nnop.Slice)
	if !ok || op.Axis >= len(x.Shape) || op.Length != x.Shape[op.Axis] {
		return draft.Operand{}, fmt.Errorf("%v cannot cut shape %v: build the graph for batches of that size", c.n.Op(), x.Shape)
	}
	return draft.Cut(x, op.Axis, op.Start, 1, op.End-op.Start), nil
}

// partGradient lowers an nnop.SliceGrad.
func (sh *shapes) partGradient(c *current) (draft.Operand, error) {
	op, ok := c.n.Op().(*nnop.SliceGrad)
	if !ok || op.Of.Length != c.in[0].Shape[op.Of.Axis] {
		return draft.Operand{}, fmt.Errorf("%v of shape %v: build the graph for batches of that size", c.n.Op(), c.in[0].Shape)
	}
	return sh.placed(c, sliceOf{axis: op.Of.Axis, from: op.Of.Start, step: 1, n: op.Of.End - op.Of.Start}, c.in[1], c.in[0].Shape)
}

// concatenated lowers gorgonia.Concat.
func (sh *shapes) concatenated(c *current) (draft.Operand, error) {
	axis := c.f.int("axis")
	shape := slices.Clone(c.in[0].Shape)
	if axis >= len(shape) {
		return draft.Operand{}, fmt.Errorf("axis %d of shape %v", axis, shape)
	}
	shape[axis] = 0
	for _, x := range c.in {
		if len(x.Shape) != len(shape) {
			return draft.Operand{}, fmt.Errorf("shapes %v and %v", c.in[0].Shape, x.Shape)
		}
		shape[axis] += x.Shape[axis]
	}
	to, from := sh.Fresh(c.dtype, shape), 0
	for _, x := range c.in {
		part := draft.Cut(to, axis, from, 1, x.Shape[axis])
		if !slices.Equal(part.Shape, x.Shape) {
			return draft.Operand{}, fmt.Errorf("shapes %v and %v", c.in[0].Shape, x.Shape)
		}
		sh.CopyTo(part, x)
		from += x.Shape[axis]
	}
	return to, nil
}

// concatPart returns the slice of the gradient of a gorgonia.Concat for one of its inputs, when
// inputs have another number of samples. The op has the input's old place (op_tensor.go:1062), and
// the inputs' present lengths give the new one. An axis of one element is dropped if it was dropped
// in the graph, where a reshape brings it back.
func (sh *shapes) concatPart(c *current) (o draft.Operand, ok bool, err error) {
	op, isSlice := c.n.Op().(interface{ IsSlice() gtensor.Slice })
	if !sh.sizes.resized || !isSlice || op.IsSlice() == nil {
		return o, false, nil
	}
	x, axis, part := c.in[0], c.f.int("along"), op.IsSlice()
	if axis >= len(x.Shape) {
		return o, false, nil
	}
	for _, of := range c.kids[0].DerivOf() {
		if typeName(of.Op()) != "gorgonia.concatOp" || fieldsOf(of.Op()).int("axis") != axis {
			continue
		}
		was, from := 0, 0
		for _, k := range ops.Children(of) {
			n := sh.sizes.builtShape(k)[axis]
			now := n
			if v, ok := sh.values[k]; ok {
				now = v.Shape[axis]
			} else if x.Shape[axis] != sh.sizes.builtShape(of)[axis] {
				return o, false, fmt.Errorf("a slice of shape %v needs the value of %q, which is not computed", x.Shape, Called(k))
			}
			if was == part.Start() && was+n == part.End() && from+now <= x.Shape[axis] {
				sh.out.Marks = append(sh.out.Marks, markSlice(op))
				o = draft.Cut(x, axis, from, 1, now)
				if n == 1 && now == 1 {
					o = sh.Reshape(o, slices.Delete(slices.Clone(o.Shape), axis, axis+1))
				}
				return o, true, nil
			}
			was, from = was+n, from+now
		}
	}
	return o, false, nil
}

// diagonal lowers gorgonia.DiagFlat.
func (sh *shapes) diagonal(c *current) (draft.Operand, error) {
	x, n := sh.Stored(c.in[0]), c.in[0].Len()
	to := sh.Fresh(c.dtype, []int{n, n})
	sh.CopyTo(to, draft.Number(0, c.dtype, to.Shape))
	line := to
	line.Shape, line.View.Strides = []int{n}, []int{n + 1}
	sh.CopyTo(line, sh.Reshape(x, []int{n}))
	return to, nil
}
