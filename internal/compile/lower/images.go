package lower

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
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
func checkImages(o draft.Operand) error {
	if len(o.Shape) != 4 {
		return fmt.Errorf("images have shape %v, want four dimensions", o.Shape)
	}
	return nil
}

// im2col lowers gorgonia.Im2Col.
func (im *images) im2col(c *current) (draft.Operand, error) {
	x := im.Stored(c.in[0])
	if err := checkImages(x); err != nil {
		return draft.Operand{}, err
	}
	w := c.window(x.Shape[0], x.Shape[1], x.Shape[2], x.Shape[3])
	return im.through(&program.Im2Col{Window: w}, []draft.Operand{x}, c, []int{w.N, w.OutH, w.OutW, w.C * w.R * w.S})
}

// col2im lowers its gradient.
func (im *images) col2im(c *current) (draft.Operand, error) {
	x := im.Stored(c.in[0])
	if err := checkImages(x); err != nil {
		return draft.Operand{}, err
	}
	w := c.window(x.Shape[0], c.f.int("unpaddedC"), c.f.int("unpaddedH"), c.f.int("unpaddedW"))
	return im.through(&program.Col2Im{Window: w}, []draft.Operand{x}, c, []int{w.N, w.C, w.H, w.W})
}

// pool returns the window of a pooling over x. With explicit paddings Gorgonia starts the first
// window at the southern and the eastern one (op_nn.go:846).
func (c *current) pool(x draft.Operand) program.Window {
	f := c.f
	w := program.Window{
		N: x.Shape[0], C: x.Shape[1], H: x.Shape[2], W: x.Shape[3], R: f.int("h"), S: f.int("w"),
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
func (im *images) maxPool(c *current) (draft.Operand, error) {
	return im.pooling(c, func(w program.Window) program.Op { return &program.MaxPool{Window: w} })
}

// avgPool lowers gorgonia.AveragePool2D to a mean over the window. Gorgonia v0.9.18 wrongly divides
// by the width of the images (op_avg_pool.go:282).
func (im *images) avgPool(c *current) (draft.Operand, error) {
	return im.pooling(c, func(w program.Window) program.Op { return &program.AvgPool{Window: w} })
}

func (im *images) pooling(c *current, op func(program.Window) program.Op) (draft.Operand, error) {
	x := c.in[0]
	if err := checkImages(x); err != nil {
		return draft.Operand{}, err
	}
	w := c.pool(x)
	return im.through(op(w), []draft.Operand{x}, c, []int{w.N, w.C, w.OutH, w.OutW})
}

// maxPoolGrad lowers the gradient of maxPool, from x, y and dy.
func (im *images) maxPoolGrad(c *current) (draft.Operand, error) {
	if err := checkImages(c.in[0]); err != nil {
		return draft.Operand{}, err
	}
	return im.through(&program.MaxPoolGrad{Window: c.pool(c.in[0])}, c.in[:3], c, c.in[0].Shape)
}

// avgPoolGrad lowers the gradient of avgPool.
func (im *images) avgPoolGrad(c *current) (draft.Operand, error) {
	if err := checkImages(c.in[0]); err != nil {
		return draft.Operand{}, err
	}
	return im.through(&program.AvgPoolGrad{Window: c.pool(c.in[0])}, c.in[2:3], c, c.in[0].Shape)
}

// globalPool lowers gorgonia.GlobalAveragePool2D.
func (im *images) globalPool(c *current) (draft.Operand, error) {
	x := c.in[0]
	if err := checkImages(x); err != nil {
		return draft.Operand{}, err
	}
	m := im.NewCode(x.Shape)
	m.Load(x)
	sum, err := m.ReduceTo([]bool{false, false, true, true}, program.Sum, im.Fresh(c.dtype, x.Shape[:2]))
	if err != nil {
		return draft.Operand{}, err
	}
	d := im.NewCode([]int{x.Shape[0], x.Shape[1], 1, 1})
	return d.Result(d.Do(program.Div, d.Load(sum), d.Constant(float64(x.Shape[2]*x.Shape[3]))), c.dtype)
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
func (im *images) upsampled(c *current) (draft.Operand, error) {
	x := c.in[0]
	space, err := c.scaled(x.Shape)
	if err != nil {
		return draft.Operand{}, err
	}
	y := im.Reshape(im.Stored(x), []int{space[0], space[1], space[2], 1, space[4], 1})
	y = draft.Stretch(draft.Stretch(y, 3, space[3]), 5, space[5])
	return im.Reshape(y, []int{space[0], space[1], space[2] * space[3], space[4] * space[5]}), nil
}

// upsampleGrad lowers its gradient, from x, y and dy: the sum over the copies of each element.
func (im *images) upsampleGrad(c *current) (draft.Operand, error) {
	space, err := c.scaled(c.in[0].Shape)
	if err != nil {
		return draft.Operand{}, err
	}
	if c.in[2].Len() != draft.SizeOf(space) {
		return draft.Operand{}, fmt.Errorf("a gradient of shape %v for %v", c.in[2].Shape, space)
	}
	m := im.NewCode(space)
	m.Load(im.Reshape(im.Stored(c.in[2]), space))
	return m.ReduceTo([]bool{false, false, false, true, false, true}, program.Sum, im.Fresh(c.dtype, slices.Clone(c.in[0].Shape)))
}
