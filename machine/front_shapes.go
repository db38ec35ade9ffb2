package machine

import (
	"fmt"
	"slices"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/tensor"
)

// reshaped lowers gorgonia.Reshape. If inputs have another number of samples than the graph, so
// have results: see followShape.
func (l *lowering) reshaped(c *current) (operand, error) {
	x, to := c.in[0], c.f.ints("to")
	if n := sizeOf(to); n != x.len() && n > 0 {
		if !l.resized || !l.followShape(c.f.ints("from"), to, x.shape) {
			return operand{}, fmt.Errorf("reshape of %d elements of shape %v to %v", x.len(), x.shape, to)
		}
	}
	return l.reshape(x, to), nil
}

// transposed lowers gorgonia.Transpose.
func (l *lowering) transposed(c *current) (operand, error) {
	x, axes := c.in[0], c.f.ints("pattern")
	if !isPermutation(axes, len(x.shape)) {
		return operand{}, fmt.Errorf("axes %v of shape %v", axes, x.shape)
	}
	l.moved = l.moved || len(axes) > 0 && axes[0] != 0 && l.isResized(c.kids[0], x)
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
func (l *lowering) size(c *current) (operand, error) {
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
func (l *lowering) repeated(c *current) (operand, error) {
	x, axis := c.in[0], c.f.int("along")
	if !c.in[1].isNum {
		return operand{}, fmt.Errorf("the number of repetitions is unknown before the run")
	}
	rep := int(c.in[1].num)
	shape := slices.Clone(x.shape)
	for len(shape) <= axis { // op_tensor.go:244
		shape = append(shape, 1)
	}
	x = l.reshape(x, shape)
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
	return l.reshape(l.copyOf(r), out), nil
}

// element lowers gorgonia.At.
func (l *lowering) element(c *current) (operand, error) {
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
	return l.reshape(x, nil), nil
}

// sliceOf is the slice of an axis.
type sliceOf struct {
	axis, from, step, n int
	whole               bool // the op has no slice: all of the axis
}

// readSlice returns the slice of a gorgonia.sliceOp for an operand of a shape.
func (l *lowering) readSlice(c *current, shape []int) (sliceOf, error) {
	s := sliceOf{axis: c.f.int("along"), step: 1}
	op, ok := c.n.Op().(interface{ IsSlice() gtensor.Slice })
	if !ok {
		return s, fmt.Errorf("%T is not a slice op", c.n.Op())
	}
	sl := op.IsSlice()
	if s.axis >= len(shape) {
		return s, fmt.Errorf("axis %d of shape %v", s.axis, shape)
	}
	l.marks = append(l.marks, markSlice(op))
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
func (l *lowering) sliced(c *current) (operand, error) {
	if o, ok, err := l.concatPart(c); ok || err != nil {
		return o, err
	}
	s, err := l.readSlice(c, c.in[0].shape)
	if err != nil {
		return operand{}, err
	}
	o := cut(c.in[0], s.axis, s.from, s.step, s.n)
	if s.n == 1 && !s.whole {
		return l.reshape(o, slices.Delete(slices.Clone(o.shape), s.axis, s.axis+1)), nil
	}
	return o, nil
}

// sliceIncrement lowers the gradient of a slice: the second input in the slice, zeros elsewhere.
func (l *lowering) sliceIncrement(c *current) (operand, error) {
	s, err := l.readSlice(c, c.in[0].shape)
	if err != nil {
		return operand{}, err
	}
	shape := c.in[0].shape
	to := l.fresh(c.dtype, shape)
	end := s.from + (s.n-1)*s.step + 1
	switch {
	case s.step > 1:
		l.copyTo(to, number(0, c.dtype, shape))
	default: // zeros around the slice
		for _, gap := range [][2]int{{0, s.from}, {end, shape[s.axis]}} {
			if n := gap[1] - gap[0]; n > 0 {
				part := cut(to, s.axis, gap[0], 1, n)
				l.copyTo(part, number(0, c.dtype, part.shape))
			}
		}
	}
	part := cut(to, s.axis, s.from, s.step, s.n)
	dy := c.in[1]
	if dy.len() != part.len() && dy.len() != 1 {
		return operand{}, fmt.Errorf("a gradient of shape %v for a slice of shape %v", dy.shape, part.shape)
	}
	l.copyTo(part, dy)
	return to, nil
}

// concatenated lowers gorgonia.Concat.
func (l *lowering) concatenated(c *current) (operand, error) {
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
	to, from := l.fresh(c.dtype, shape), 0
	for _, x := range c.in {
		part := cut(to, axis, from, 1, x.shape[axis])
		if !slices.Equal(part.shape, x.shape) {
			return operand{}, fmt.Errorf("shapes %v and %v", c.in[0].shape, x.shape)
		}
		l.copyTo(part, x)
		from += x.shape[axis]
	}
	return to, nil
}

// sum lowers gorgonia.Sum.
func (l *lowering) sum(c *current) (operand, error) { return l.reduce(c, program.Sum) }

// max lowers gorgonia.Max.
func (l *lowering) max(c *current) (operand, error) { return l.reduce(c, program.Max) }

// reduce reduces axes, which are dropped; all axes by default.
func (l *lowering) reduce(c *current, red program.Reduction) (operand, error) {
	x := c.in[0]
	reduced, kept, err := reducedAxes(x.shape, c.f.ints("along"))
	if err != nil {
		return operand{}, err
	}
	if x.isNum && (red == program.Max || isSmall(x.num*float64(x.len()), c.dtype)) {
		if red == program.Sum {
			x.num *= float64(x.len() / sizeOf(kept))
		}
		return number(x.num, c.dtype, kept), nil
	}
	m := l.newCode(x.shape)
	m.load(x)
	return m.reduceTo(reduced, red, l.fresh(c.dtype, kept))
}

// reducedAxes reports which axes a reduction along some of them drops, and returns the lengths of
// the others. Without axes it drops all.
func reducedAxes(shape, along []int) (reduced []bool, kept []int, err error) {
	reduced = make([]bool, len(shape))
	for _, a := range along {
		if a < 0 || a >= len(reduced) {
			return nil, nil, fmt.Errorf("axis %d of shape %v", a, shape)
		}
		reduced[a] = true
	}
	for a, d := range shape {
		reduced[a] = reduced[a] || len(along) == 0
		if !reduced[a] {
			kept = append(kept, d)
		}
	}
	return reduced, kept, nil
}

// reducedView returns a whole value, which lacks the reduced axes, as a view over the space of a
// reduction.
func reducedView(to operand, reduced []bool) program.View {
	out := program.View{Value: to.view.Value, Strides: make([]int, len(reduced))}
	k := 0
	for a := range reduced {
		if !reduced[a] {
			out.Strides[a] = to.view.Strides[k]
			k++
		}
	}
	return out
}

// isSmall reports whether v, and each partial sum of it, is an integer without rounding.
func isSmall(v float64, dt tensor.DType) bool {
	bound := 1e15
	if dt == tensor.F32 {
		bound = 1 << 24
	}
	return v == float64(int64(v)) && v < bound && v > -bound
}

// reduceTo adds a Reduce of the code's last register to a whole value, which lacks the reduced
// axes.
func (c *code) reduceTo(reduced []bool, red program.Reduction, to operand) (operand, error) {
	if c.err != nil {
		return operand{}, c.err
	}
	c.l.add(program.Step{
		Op: &program.Reduce{Space: c.space, Reduced: reduced, Red: red, Code: c.code},
		In: c.in, Out: []program.View{reducedView(to, reduced)},
	})
	return to, nil
}
