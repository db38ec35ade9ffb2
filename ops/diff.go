package ops

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// adjoints pairs each linear operation with the operation that carries its gradient. The pairing is
// its own inverse.
var adjoints = [...]dist.Kind{
	dist.KindAllReduce:     dist.KindAllReduce,
	dist.KindReduce:        dist.KindBroadcast,
	dist.KindBroadcast:     dist.KindReduce,
	dist.KindAllGather:     dist.KindReduceScatter,
	dist.KindReduceScatter: dist.KindAllGather,
	dist.KindAllToAll:      dist.KindAllToAll,
	dist.KindGather:        dist.KindScatter,
	dist.KindScatter:       dist.KindGather,
	dist.KindSend:          dist.KindRecv,
	dist.KindRecv:          dist.KindSend,
}

// adjoint returns the operation that maps dL/dy to dL/dx. The map from all ranks' x to all ranks' y
// is linear, including the ranks' weights. Its transpose is the reverse movement, with the weights
// before the sum moved after it and vice versa.
//
// Errors: dist.ErrUnsupported for prod, min and max.
func (c *collective) adjoint() (*collective, error) {
	switch c.pre.Kind {
	case dist.RedSum, dist.RedAvg, dist.RedPreMulSum:
	default:
		return nil, fmt.Errorf("gradient of %v of %q, rank %d/%d: %w: only sum, avg and premulsum can be differentiated",
			c, c.label(), c.g.Rank(), c.g.Size(), dist.ErrUnsupported)
	}
	a := &collective{
		kind: adjoints[c.kind], g: c.g, peer: c.peer, pre: c.post, post: c.pre, in: c.out, out: c.in,
		tensor: c.tensor + ".grad",
	}
	if a.kind == dist.KindAllReduce && a.post.Kind == dist.RedAvg {
		a.pre, a.post = a.post, a.pre // the same weight on all ranks: let the collective apply it
	}
	return a, nil
}

// differentiable reports whether a gradient exists: integers have none.
func (c *collective) differentiable() bool { return c.in.dt.IsFloat() && c.out.dt.IsFloat() }

// DiffWRT is true for the first input if its elements are floating-point numbers. It is true for
// prod, min and max too: SymDiff then returns the reason why they have no gradient.
func (c *collective) DiffWRT(inputs int) []bool {
	wrt := make([]bool, inputs)
	if inputs > 0 {
		wrt[0] = c.differentiable()
	}
	return wrt
}

// SymDiff returns the adjoint operation on grad.
//
// Collective: the node it adds is a collective of the same group; all ranks must differentiate.
// Errors: dist.ErrUnsupported for prod, min and max; dist.ErrCount for a gradient of another shape
// than the output.
func (c *collective) SymDiff(inputs gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	grads := make(gorgonia.Nodes, len(inputs))
	if len(grads) == 0 {
		return nil, fmt.Errorf("gradient of %v: %w: no input", c, dist.ErrInvalid)
	}
	if c.kind == dist.KindBarrier {
		grads[0] = grad
		return grads, nil
	}
	a, err := c.adjoint()
	if err != nil {
		return nil, err
	}
	if f, err := formOf(grad); err != nil || f.gdt != a.in.gdt || !f.shape.Eq(a.in.shape) {
		return nil, fmt.Errorf("gradient of %v of %q, rank %d/%d: %w: the gradient is %v, the output %v",
			c, c.label(), c.g.Rank(), c.g.Size(), dist.ErrCount, f, a.in)
	}
	grads[0], err = a.apply(grad, a.tensor)
	return grads, err
}

// DoDiff adds dL/dx to the gradient of the input, for gorgonia's lisp machine.
//
// Collective: as SymDiff. Errors: as SymDiff, and those of the operation.
func (c *collective) DoDiff(_ gorgonia.ExecutionContext, inputs gorgonia.Nodes, output *gorgonia.Node) error {
	if len(inputs) == 0 || !c.differentiable() {
		return nil
	}
	v, err := output.Grad()
	if err != nil {
		return err
	}
	if c.kind != dist.KindBarrier {
		a, err := c.adjoint()
		if err != nil {
			return err
		}
		if v, err = a.run(nil, v); err != nil {
			return err
		}
	}
	src, err := c.in.read(v)
	if err != nil {
		return fmt.Errorf("gradient of %v of %q: %w", c, c.label(), err)
	}
	sum, err := inputs[0].Grad()
	if err != nil {
		return err
	}
	dst, err := alias(sum)
	if err != nil || dst.DType() != src.DType() || dst.Len() != src.Len() {
		return fmt.Errorf("gradient of %v of %q: %w: cannot add %v to %v", c, c.label(), dist.ErrInvalid, src, dst)
	}
	if dst.DType() == tensor.F64 {
		add[float64](dst, src)
	} else {
		add[float32](dst, src)
	}
	return nil
}

func add[T float32 | float64](dst, src tensor.Buffer) {
	d, _ := tensor.Data[T](dst) // types are checked by DoDiff
	s, _ := tensor.Data[T](src)
	for i, v := range s {
		d[i] += v
	}
}

// scale multiplies b by this rank's weight of red on a group of n ranks. b is floating point unless
// red is sum: only adjoints have other weights.
func scale(b tensor.Buffer, red dist.RedOp, n int) {
	switch {
	case red.Kind == dist.RedSum:
	case b.DType() == tensor.F64:
		d, _ := tensor.Data[float64](b)
		scaleBy(d, red, n, func(s dist.Scalar) float64 { return math.Float64frombits(s.Bits) })
	case b.DType() == tensor.F32:
		d, _ := tensor.Data[float32](b)
		scaleBy(d, red, n, func(s dist.Scalar) float32 { return math.Float32frombits(uint32(s.Bits)) })
	}
}

// scaleBy divides by n for avg, as the collectives do. Otherwise it multiplies by the scalar; a
// scalar in memory is read at this call.
func scaleBy[T float32 | float64](d []T, red dist.RedOp, n int, value func(dist.Scalar) T) {
	if red.Kind == dist.RedAvg {
		for i := range d {
			d[i] /= T(n)
		}
		return
	}
	s := value(red.Scalar)
	if at, err := tensor.Data[T](red.Scalar.At); err == nil {
		s = at[0]
	}
	for i := range d {
		d[i] *= s
	}
}
