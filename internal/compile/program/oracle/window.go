package oracle

import (
	"fmt"
	"math"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// windowed runs an operation that moves a window over images.
func windowed(op program.Op, o *operands) error {
	switch op := op.(type) {
	case *program.Conv:
		conv(op, o)
	case *program.ConvGradInput:
		convGradInput(op, o)
	case *program.ConvGradFilter:
		convGradFilter(op, o)
	case *program.Im2Col:
		im2col(op, o)
	case *program.Col2Im:
		col2im(op, o)
	case *program.MaxPool:
		maxPool(op, o)
	case *program.MaxPoolGrad:
		maxPoolGrad(op, o)
	case *program.AvgPool:
		avgPool(op, o)
	case *program.AvgPoolGrad:
		avgPoolGrad(op, o)
	default:
		return fmt.Errorf("unknown operation %T", op)
	}
	return nil
}

// taps calls f with each element (h, w) of the image in the window at (y, x), and its place (r, s)
// in the window.
func taps(w *program.Window, y, x int, f func(r, s, h, w int)) {
	for r := range w.R {
		for s := range w.S {
			h, v := y*w.StrideH-w.PadH+r*w.DilationH, x*w.StrideW-w.PadW+s*w.DilationW
			if h >= 0 && h < w.H && v >= 0 && v < w.W {
				f(r, s, h, v)
			}
		}
	}
}

// outputs calls f with each (n, k, y, x).
func outputs(w *program.Window, k int, f func(n, k, y, x int)) {
	indices([]int{w.N, k, w.OutH, w.OutW}, func(i []int, _ int) { f(i[0], i[1], i[2], i[3]) })
}

func conv(op *program.Conv, o *operands) {
	x, filter, y := o.in[0], o.in[1], o.out[0]
	outputs(&op.Window, op.K, func(n, k, i, j int) {
		sum := 0.0
		for c := range op.C {
			taps(&op.Window, i, j, func(r, s, h, w int) { sum += x.at(n, c, h, w) * filter.at(k, c, r, s) })
		}
		y.set(sum, n, k, i, j)
	})
}

func convGradInput(op *program.ConvGradInput, o *operands) {
	dy, filter := o.in[0], o.in[1]
	dx := newSums(o.out[0])
	outputs(&op.Window, op.K, func(n, k, i, j int) {
		for c := range op.C {
			taps(&op.Window, i, j, func(r, s, h, w int) { dx.add(dy.at(n, k, i, j)*filter.at(k, c, r, s), n, c, h, w) })
		}
	})
	dx.store()
}

func convGradFilter(op *program.ConvGradFilter, o *operands) {
	x, dy := o.in[0], o.in[1]
	df := newSums(o.out[0])
	outputs(&op.Window, op.K, func(n, k, i, j int) {
		for c := range op.C {
			taps(&op.Window, i, j, func(r, s, h, w int) { df.add(dy.at(n, k, i, j)*x.at(n, c, h, w), k, c, r, s) })
		}
	})
	df.store()
}

func im2col(op *program.Im2Col, o *operands) {
	x, cols := o.in[0], o.out[0]
	indices(cols.space, func(i []int, _ int) { cols.set(0, i...) })
	outputs(&op.Window, op.C, func(n, c, i, j int) {
		taps(&op.Window, i, j, func(r, s, h, w int) { cols.set(x.at(n, c, h, w), n, i, j, (c*op.R+r)*op.S+s) })
	})
}

func col2im(op *program.Col2Im, o *operands) {
	cols, x := o.in[0], newSums(o.out[0])
	outputs(&op.Window, op.C, func(n, c, i, j int) {
		taps(&op.Window, i, j, func(r, s, h, w int) { x.add(cols.at(n, i, j, (c*op.R+r)*op.S+s), n, c, h, w) })
	})
	x.store()
}

func maxPool(op *program.MaxPool, o *operands) {
	x, y := o.in[0], o.out[0]
	outputs(&op.Window, op.C, func(n, c, i, j int) {
		best := math.Inf(-1)
		taps(&op.Window, i, j, func(_, _, h, w int) { best = max(best, x.at(n, c, h, w)) })
		y.set(best, n, c, i, j)
	})
}

func maxPoolGrad(op *program.MaxPoolGrad, o *operands) {
	x, y, dy := o.in[0], o.in[1], o.in[2]
	dx := newSums(o.out[0])
	outputs(&op.Window, op.C, func(n, c, i, j int) {
		given := false
		taps(&op.Window, i, j, func(_, _, h, w int) {
			if !given && x.at(n, c, h, w) == y.at(n, c, i, j) {
				dx.add(dy.at(n, c, i, j), n, c, h, w)
				given = true
			}
		})
	})
	dx.store()
}

func avgPool(op *program.AvgPool, o *operands) {
	x, y := o.in[0], o.out[0]
	outputs(&op.Window, op.C, func(n, c, i, j int) {
		sum := 0.0
		taps(&op.Window, i, j, func(_, _, h, w int) { sum += x.at(n, c, h, w) })
		y.set(sum/float64(op.R*op.S), n, c, i, j)
	})
}

func avgPoolGrad(op *program.AvgPoolGrad, o *operands) {
	dy, dx := o.in[0], newSums(o.out[0])
	outputs(&op.Window, op.C, func(n, c, i, j int) {
		taps(&op.Window, i, j, func(_, _, h, w int) { dx.add(dy.at(n, c, i, j)/float64(op.R*op.S), n, c, h, w) })
	})
	dx.store()
}

// sums is an array of float64 sums, rounded once.
type sums struct {
	to  *array
	sum []float64
}

func newSums(to *array) *sums {
	n := 1
	for _, d := range to.space {
		n *= d
	}
	return &sums{to, make([]float64, n)}
}

func (s *sums) add(x float64, index ...int) {
	n := 0
	for i, d := range s.to.space {
		n = n*d + index[i]
	}
	s.sum[n] += x
}

func (s *sums) store() {
	indices(s.to.space, func(index []int, n int) { s.to.set(s.sum[n], index...) })
}
