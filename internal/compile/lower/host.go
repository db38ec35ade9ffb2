package lower

import (
	"fmt"
	"log/slog"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/ops"
)

// hostOps lowers ops without a rule to steps that call their Do.
type hostOps struct {
	work
	opt   *Options
	parts *Parts
	rules map[string]rule
}

// byTheirDo has the ops that always run by their own Do, by the names of their types.
var byTheirDo = map[string]bool{
	"*gorgonia.ctcLossOp": true, "*gorgonia.ctcLossDiffOp": true, "*ops.ctcGradient": true,
	"*gorgonia.yoloOp": true,
}

// lower adds a step that calls the Do of an op without a rule on the host.
func (ho *hostOps) lower(c *current) (draft.Operand, error) {
	if c.n.Op().Arity() >= 0 && c.n.Op().Arity() != len(c.in) {
		return draft.Operand{}, fmt.Errorf("%w: it has no rule, and its Do takes %d inputs, not %d", ErrUnknownOp, c.n.Op().Arity(), len(c.in))
	}
	ho.warn(c)
	shape, err := ho.inferred(c)
	if err != nil {
		return draft.Operand{}, err
	}
	f := &Call{label: "host: " + c.n.Op().String(), Op: ops.Corrected(c.n.Op())}
	var in []program.View
	for i, o := range c.in {
		in = append(in, ho.WholeOf(o).View)
		f.in = append(f.in, look{c.kids[i].Dtype(), o.Shape, c.kids[i].IsScalar()})
	}
	to := ho.Fresh(c.dtype, shape)
	ho.call(f, in, []program.View{to.View})
	return to, nil
}

// warn warns once of each type of op that unexpectedly runs by its Do: on a GPU of each, on
// the CPU of those that are not Gorgonia's. Options.Fallback silences it.
func (ho *hostOps) warn(c *current) {
	name := typeName(c.n.Op())
	known := byTheirDo[name] || ho.rules[name].lower != nil
	if ho.opt.Fallback || known && !ho.opt.OnGPU || ho.parts.warned[name] {
		return
	}
	if ho.parts.warned == nil {
		ho.parts.warned = map[string]bool{}
	}
	ho.parts.warned[name] = true
	log := ho.opt.Log
	if log == nil {
		log = slog.Default()
	}
	text := "machine: an op without a rule runs by its Do, with copies"
	if ho.opt.OnGPU {
		text = "machine: an op runs on the host in each step: the device waits, and the step is not captured as one graph"
	}
	log.Warn(text, "program", ho.opt.Name, "op", name, "node", ho.Label)
}

// inferred returns the shape that an op infers for its result.
func (ho *hostOps) inferred(c *current) ([]int, error) {
	if !ho.sizes.resized {
		return ho.sizes.of(c.n), nil
	}
	var in []gorgonia.DimSizer
	for _, o := range c.in {
		in = append(in, gtensor.Shape(o.Shape))
	}
	s, err := c.n.Op().InferShape(in...)
	return slices.Clone([]int(s)), err
}
