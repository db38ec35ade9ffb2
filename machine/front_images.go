package machine

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/program"
)

// images has the rules of convolutions, poolings and changes of resolution.
type images struct {
	work
}

func (im *images) rules() map[string]rule {
	return map[string]rule{
		"gorgonia.im2colOp":             {inputs: 1, lower: im.im2col},
		"gorgonia.col2imOp":             {inputs: 1, lower: im.col2im},
		"*gorgonia.maxPoolOp":           {inputs: 1, lower: im.maxPool},
		"*gorgonia.maxPoolDiffOp":       {inputs: 3, lower: im.maxPoolGrad},
		"*gorgonia.avgPoolOp":           {inputs: 1, lower: im.avgPool},
		"*gorgonia.avgPoolDiffOp":       {inputs: 3, lower: im.avgPoolGrad},
		"*gorgonia.globalAveragePoolOp": {inputs: 1, lower: im.globalPool},
		"*gorgonia.upsampleOp":          {inputs: 1, lower: im.upsampled, moves: true},
		"*gorgonia.upsampleDiffOp":      {inputs: 3, lower: im.upsampleGrad},
	}
}

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

// checkImages returns an error unless o has four dimensions.
func checkImages(o operand) error {
	if len(o.shape) != 4 {
		return fmt.Errorf("images have shape %v, want four dimensions", o.shape)
	}
	return nil
}

// im2col lowers gorgonia.Im2Col.
func (im *images) im2col(c *current) (operand, error) {
	x := im.stored(c.in[0])
	if err := checkImages(x); err != nil {
		return operand{}, err
	}
	w := c.window(x.shape[0], x.shape[1], x.shape[2], x.shape[3])
	return im.through(&program.Im2Col{Window: w}, []operand{x}, c, []int{w.N, w.OutH, w.OutW, w.C * w.R * w.S})
}

// col2im lowers its gradient.
func (im *images) col2im(c *current) (operand, error) {
	x := im.stored(c.in[0])
	if err := checkImages(x); err != nil {
		return operand{}, err
	}
	w := c.window(x.shape[0], c.f.int("unpaddedC"), c.f.int("unpaddedH"), c.f.int("unpaddedW"))
	return im.through(&program.Col2Im{Window: w}, []operand{x}, c, []int{w.N, w.C, w.H, w.W})
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
func (im *images) maxPool(c *current) (operand, error) {
	return im.pooling(c, func(w program.Window) program.Op { return &program.MaxPool{Window: w} })
}

// avgPool lowers gorgonia.AveragePool2D to a mean over the window. Gorgonia v0.9.18 wrongly divides
// by the width of the images (op_avg_pool.go:282).
func (im *images) avgPool(c *current) (operand, error) {
	return im.pooling(c, func(w program.Window) program.Op { return &program.AvgPool{Window: w} })
}

func (im *images) pooling(c *current, op func(program.Window) program.Op) (operand, error) {
	x := c.in[0]
	if err := checkImages(x); err != nil {
		return operand{}, err
	}
	w := c.pool(x)
	return im.through(op(w), []operand{x}, c, []int{w.N, w.C, w.OutH, w.OutW})
}

// maxPoolGrad lowers the gradient of maxPool, from x, y and dy.
func (im *images) maxPoolGrad(c *current) (operand, error) {
	if err := checkImages(c.in[0]); err != nil {
		return operand{}, err
	}
	return im.through(&program.MaxPoolGrad{Window: c.pool(c.in[0])}, c.in[:3], c, c.in[0].shape)
}

// avgPoolGrad lowers the gradient of avgPool.
func (im *images) avgPoolGrad(c *current) (operand, error) {
	if err := checkImages(c.in[0]); err != nil {
		return operand{}, err
	}
	return im.through(&program.AvgPoolGrad{Window: c.pool(c.in[0])}, c.in[2:3], c, c.in[0].shape)
}

// globalPool lowers gorgonia.GlobalAveragePool2D.
func (im *images) globalPool(c *current) (operand, error) {
	x := c.in[0]
	if err := checkImages(x); err != nil {
		return operand{}, err
	}
	m := im.newCode(x.shape)
	m.load(x)
	sum, err := m.reduceTo([]bool{false, false, true, true}, program.Sum, im.fresh(c.dtype, x.shape[:2]))
	if err != nil {
		return operand{}, err
	}
	d := im.newCode([]int{x.shape[0], x.shape[1], 1, 1})
	return d.result(d.do(program.Div, d.load(sum), d.constant(float64(x.shape[2]*x.shape[3]))), c.dtype)
}

// scaled returns the shape of a gorgonia.Upsample2D with its repetitions as axes: (N, C, H, scale,
// W, scale).
func (c *current) scaled(shape []int) ([]int, error) {
	scale := c.f.int("stride") + 1
	if c.f.err != nil {
		return nil, c.f.err
	}
	if len(shape) != 4 || scale < 1 {
		return nil, fmt.Errorf("%d times shape %v", scale, shape)
	}
	return []int{shape[0], shape[1], shape[2], scale, shape[3], scale}, nil
}

// upsampled lowers gorgonia.Upsample2D.
func (im *images) upsampled(c *current) (operand, error) {
	x := c.in[0]
	space, err := c.scaled(x.shape)
	if err != nil {
		return operand{}, err
	}
	y := im.reshape(im.stored(x), []int{space[0], space[1], space[2], 1, space[4], 1})
	y = stretch(stretch(y, 3, space[3]), 5, space[5])
	return im.reshape(y, []int{space[0], space[1], space[2] * space[3], space[4] * space[5]}), nil
}

// upsampleGrad lowers its gradient, from x, y and dy: the sum over the copies of each element.
func (im *images) upsampleGrad(c *current) (operand, error) {
	space, err := c.scaled(c.in[0].shape)
	if err != nil {
		return operand{}, err
	}
	if c.in[2].len() != sizeOf(space) {
		return operand{}, fmt.Errorf("a gradient of shape %v for %v", c.in[2].shape, space)
	}
	m := im.newCode(space)
	m.load(im.reshape(im.stored(c.in[2]), space))
	return m.reduceTo([]bool{false, false, false, true, false, true}, program.Sum, im.fresh(c.dtype, slices.Clone(c.in[0].shape)))
}
