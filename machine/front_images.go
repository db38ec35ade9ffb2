package machine

import (
	"fmt"

	"github.com/symgrad/symgrad/internal/program"
)

// window returns the window of a gorgonia.im2colOp over images of a shape (op_nn.go:277).
func (c *current) window(n, ch, h, w int) program.Window {
	f := c.f
	win := program.Window{
		N: n, C: ch, H: h, W: w, R: f.int("h"), S: f.int("w"), PadH: f.int("padH"), PadW: f.int("padW"),
		StrideH: f.int("strideH"), StrideW: f.int("strideW"), DilationH: f.int("dilationH"), DilationW: f.int("dilationW"),
	}
	if f.err == nil {
		win.OutH = (h+2*win.PadH-(win.DilationH*(win.R-1)+1))/win.StrideH + 1
		win.OutW = (w+2*win.PadW-(win.DilationW*(win.S-1)+1))/win.StrideW + 1
	}
	return win
}

// images returns an error unless o has four dimensions.
func images(o operand) error {
	if len(o.shape) != 4 {
		return fmt.Errorf("images have shape %v, want four dimensions", o.shape)
	}
	return nil
}

// im2col lowers gorgonia.Im2Col.
func (l *lowering) im2col(c *current) (operand, error) {
	x := l.stored(c.in[0])
	if err := images(x); err != nil {
		return operand{}, err
	}
	w := c.window(x.shape[0], x.shape[1], x.shape[2], x.shape[3])
	return l.through(&program.Im2Col{Window: w}, []operand{x}, c, []int{w.N, w.OutH, w.OutW, w.C * w.R * w.S})
}

// col2im lowers its gradient.
func (l *lowering) col2im(c *current) (operand, error) {
	x := l.stored(c.in[0])
	if err := images(x); err != nil {
		return operand{}, err
	}
	w := c.window(x.shape[0], c.f.int("unpaddedC"), c.f.int("unpaddedH"), c.f.int("unpaddedW"))
	return l.through(&program.Col2Im{Window: w}, []operand{x}, c, []int{w.N, w.C, w.H, w.W})
}

// through adds a step with one result of the given shape.
func (l *lowering) through(op program.Op, in []operand, c *current, shape []int) (operand, error) {
	if c.f.err != nil {
		return operand{}, c.f.err
	}
	s := program.Step{Op: op}
	for _, o := range in {
		s.In = append(s.In, l.stored(o).view)
	}
	to := l.fresh(c.dtype, shape)
	s.Out = []program.View{to.view}
	l.add(s)
	return to, nil
}

// pool returns the window of a pooling over x. With explicit paddings Gorgonia starts the first
// window at the southern and the eastern one (op_nn.go:846).
func (c *current) pool(x operand) program.Window {
	f := c.f
	w := program.Window{
		N: x.shape[0], C: x.shape[1], H: x.shape[2], W: x.shape[3], R: f.int("h"), S: f.int("w"),
		PadH: f.int("padNorth"), PadW: f.int("padWest"), StrideH: f.int("strideH"), StrideW: f.int("strideW"),
		DilationH: 1, DilationW: 1,
	}
	if f.err != nil {
		return w
	}
	w.OutH = (w.H+f.int("padSouth")+f.int("padNorth")-w.R)/w.StrideH + 1
	w.OutW = (w.W+f.int("padEast")+f.int("padWest")-w.S)/w.StrideW + 1
	if f.bool("explicitPadding") {
		w.PadH, w.PadW = f.int("padSouth"), f.int("padEast")
	}
	return w
}

// maxPool lowers gorgonia.MaxPool2D.
func (l *lowering) maxPool(c *current) (operand, error) {
	return l.pooling(c, func(w program.Window) program.Op { return &program.MaxPool{Window: w} })
}

// avgPool lowers gorgonia.AveragePool2D to a mean over the window. Gorgonia v0.9.18 wrongly divides
// by the width of the images (op_avg_pool.go:282).
func (l *lowering) avgPool(c *current) (operand, error) {
	return l.pooling(c, func(w program.Window) program.Op { return &program.AvgPool{Window: w} })
}

func (l *lowering) pooling(c *current, op func(program.Window) program.Op) (operand, error) {
	x := c.in[0]
	if err := images(x); err != nil {
		return operand{}, err
	}
	w := c.pool(x)
	return l.through(op(w), []operand{x}, c, []int{w.N, w.C, w.OutH, w.OutW})
}

// maxPoolGrad lowers the gradient of maxPool, from x, y and dy.
func (l *lowering) maxPoolGrad(c *current) (operand, error) {
	if err := images(c.in[0]); err != nil {
		return operand{}, err
	}
	return l.through(&program.MaxPoolGrad{Window: c.pool(c.in[0])}, c.in[:3], c, c.in[0].shape)
}

// avgPoolGrad lowers the gradient of avgPool.
func (l *lowering) avgPoolGrad(c *current) (operand, error) {
	if err := images(c.in[0]); err != nil {
		return operand{}, err
	}
	return l.through(&program.AvgPoolGrad{Window: c.pool(c.in[0])}, c.in[2:3], c, c.in[0].shape)
}

// globalPool lowers gorgonia.GlobalAveragePool2D.
func (l *lowering) globalPool(c *current) (operand, error) {
	x := c.in[0]
	if err := images(x); err != nil {
		return operand{}, err
	}
	m := l.newCode(x.shape)
	m.load(x)
	sum, err := m.reduceTo([]bool{false, false, true, true}, program.Sum, l.fresh(c.dtype, x.shape[:2]))
	if err != nil {
		return operand{}, err
	}
	d := l.newCode([]int{x.shape[0], x.shape[1], 1, 1})
	return d.result(d.do(program.Div, d.load(sum), d.constant(float64(x.shape[2]*x.shape[3]))), c.dtype)
}
