package machine

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/ops"
)

// shapes has the rules of ops that move or select elements.
type shapes struct {
	work
	values map[*gorgonia.Node]operand // of the nodes so far
}

func (sh *shapes) rules() map[string]rule {
	return map[string]rule{
		"gorgonia.reshapeOp":   {inputs: 1, lower: sh.reshaped, moves: true},
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

// reshaped lowers gorgonia.Reshape. If inputs have another number of samples than the graph, so
// have results: see followShape.
func (sh *shapes) reshaped(c *current) (operand, error) {
	x, to := c.in[0], c.f.ints("to")
	if n := sizeOf(to); n != x.len() && n > 0 {
		if !sh.sizes.resized || !sh.sizes.follow(c.f.ints("from"), to, x.shape) {
			return operand{}, fmt.Errorf("reshape of %d elements of shape %v to %v", x.len(), x.shape, to)
		}
	}
	return sh.reshape(x, to), nil
}

// transposed lowers gorgonia.Transpose.
func (sh *shapes) transposed(c *current) (operand, error) {
	x, axes := c.in[0], c.f.ints("pattern")
	if !isPermutation(axes, len(x.shape)) {
		return operand{}, fmt.Errorf("axes %v of shape %v", axes, x.shape)
	}
	sh.sizes.moved = sh.sizes.moved || len(axes) > 0 && axes[0] != 0 && sh.sizes.isResized(c.kids[0], x)
	return permute(x, axes), nil
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
func (sh *shapes) size(c *current) (operand, error) {
	x, axis := c.in[0], c.f.int("axis")
	if len(x.shape) == 0 {
		return number(1, c.dtype, nil), nil
	}
	if axis >= len(x.shape) {
		return operand{}, fmt.Errorf("axis %d of shape %v", axis, x.shape)
	}
	return number(float64(x.shape[axis]), c.dtype, nil), nil
}

// repeated repeats each element along an axis. With length 1 the result is a view.
func (sh *shapes) repeated(c *current) (operand, error) {
	x, axis := c.in[0], c.f.int("along")
	if !c.in[1].isNum {
		return operand{}, fmt.Errorf("the number of repetitions is unknown before the run")
	}
	rep := int(c.in[1].num)
	shape := slices.Clone(x.shape)
	for len(shape) <= axis { // op_tensor.go:244
		shape = append(shape, 1)
	}
	x = sh.reshape(x, shape)
	if rep == 1 {
		return x, nil
	}
	out := slices.Clone(shape)
	out[axis] *= rep
	if x.isNum || shape[axis] == 1 {
		r := x
		r.shape = out
		r.view.Strides = slices.Clone(x.view.Strides)
		if !x.isNum {
			r.view.Strides[axis] = 0
		}
		return r, nil
	}
	split := slices.Insert(slices.Clone(shape), axis+1, rep)
	r := x
	r.shape = split
	r.view.Strides = slices.Insert(slices.Clone(x.view.Strides), axis+1, 0)
	return sh.reshape(sh.copyOf(r), out), nil
}

// element lowers gorgonia.At.
func (sh *shapes) element(c *current) (operand, error) {
	x, at := c.in[0], c.f.ints("coordinates")
	if len(at) != len(x.shape) {
		return operand{}, fmt.Errorf("coordinates %v in shape %v", at, x.shape)
	}
	for axis, i := range at {
		if i < 0 || i >= x.shape[axis] {
			return operand{}, fmt.Errorf("coordinates %v in shape %v", at, x.shape)
		}
		x = cut(x, axis, i, 1, 1)
	}
	return sh.reshape(x, nil), nil
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
	sh.out.marks = append(sh.out.marks, markSlice(op))
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
func (sh *shapes) sliced(c *current) (operand, error) {
	if o, ok, err := sh.concatPart(c); ok || err != nil {
		return o, err
	}
	s, err := sh.readSlice(c, c.in[0].shape)
	if err != nil {
		return operand{}, err
	}
	o := cut(c.in[0], s.axis, s.from, s.step, s.n)
	if s.n == 1 && !s.whole {
		return sh.reshape(o, slices.Delete(slices.Clone(o.shape), s.axis, s.axis+1)), nil
	}
	return o, nil
}

// sliceIncrement lowers the gradient of a slice: the second input in the slice, zeros elsewhere.
func (sh *shapes) sliceIncrement(c *current) (operand, error) {
	s, err := sh.readSlice(c, c.in[0].shape)
	if err != nil {
		return operand{}, err
	}
	shape := c.in[0].shape
	to := sh.fresh(c.dtype, shape)
	end := s.from + (s.n-1)*s.step + 1
	switch {
	case s.step > 1:
		sh.copyTo(to, number(0, c.dtype, shape))
	default: // zeros around the slice
		for _, gap := range [][2]int{{0, s.from}, {end, shape[s.axis]}} {
			if n := gap[1] - gap[0]; n > 0 {
				part := cut(to, s.axis, gap[0], 1, n)
				sh.copyTo(part, number(0, c.dtype, part.shape))
			}
		}
	}
	part := cut(to, s.axis, s.from, s.step, s.n)
	dy := c.in[1]
	if dy.len() != part.len() && dy.len() != 1 {
		return operand{}, fmt.Errorf("a gradient of shape %v for a slice of shape %v", dy.shape, part.shape)
	}
	sh.copyTo(part, dy)
	return to, nil
}

// concatenated lowers gorgonia.Concat.
func (sh *shapes) concatenated(c *current) (operand, error) {
	axis := c.f.int("axis")
	shape := slices.Clone(c.in[0].shape)
	if axis >= len(shape) {
		return operand{}, fmt.Errorf("axis %d of shape %v", axis, shape)
	}
	shape[axis] = 0
	for _, x := range c.in {
		if len(x.shape) != len(shape) {
			return operand{}, fmt.Errorf("shapes %v and %v", c.in[0].shape, x.shape)
		}
		shape[axis] += x.shape[axis]
	}
	to, from := sh.fresh(c.dtype, shape), 0
	for _, x := range c.in {
		part := cut(to, axis, from, 1, x.shape[axis])
		if !slices.Equal(part.shape, x.shape) {
			return operand{}, fmt.Errorf("shapes %v and %v", c.in[0].shape, x.shape)
		}
		sh.copyTo(part, x)
		from += x.shape[axis]
	}
	return to, nil
}

// concatPart returns the slice of the gradient of a gorgonia.Concat for one of its inputs, when
// inputs have another number of samples. The op has the input's old place (op_tensor.go:1062), and
// the inputs' present lengths give the new one. An axis of one element is dropped if it was dropped
// in the graph, where a reshape brings it back.
func (sh *shapes) concatPart(c *current) (o operand, ok bool, err error) {
	op, isSlice := c.n.Op().(interface{ IsSlice() gtensor.Slice })
	if !sh.sizes.resized || !isSlice || op.IsSlice() == nil {
		return o, false, nil
	}
	x, axis, part := c.in[0], c.f.int("along"), op.IsSlice()
	if axis >= len(x.shape) {
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
				now = v.shape[axis]
			} else if x.shape[axis] != sh.sizes.builtShape(of)[axis] {
				return o, false, fmt.Errorf("a slice of shape %v needs the value of %q, which is not computed", x.shape, called(k))
			}
			if was == part.Start() && was+n == part.End() && from+now <= x.shape[axis] {
				sh.out.marks = append(sh.out.marks, markSlice(op))
				o = cut(x, axis, from, 1, now)
				if n == 1 && now == 1 {
					o = sh.reshape(o, slices.Delete(slices.Clone(o.shape), axis, axis+1))
				}
				return o, true, nil
			}
			was, from = was+n, from+now
		}
	}
	return o, false, nil
}

// diagonal lowers gorgonia.DiagFlat.
func (sh *shapes) diagonal(c *current) (operand, error) {
	x, n := sh.stored(c.in[0]), c.in[0].len()
	to := sh.fresh(c.dtype, []int{n, n})
	sh.copyTo(to, number(0, c.dtype, to.shape))
	line := to
	line.shape, line.view.Strides = []int{n}, []int{n + 1}
	sh.copyTo(line, sh.reshape(x, []int{n}))
	return to, nil
}
