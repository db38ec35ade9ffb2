package machine

import (
	"fmt"
	"log/slog"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/ops"
)

// hostOps has the ops that always run by their own Do, by the names of their types.
var hostOps = map[string]bool{
	"*gorgonia.ctcLossOp": true, "*gorgonia.ctcLossDiffOp": true, "*ops.ctcGradient": true,
	"*gorgonia.yoloOp": true,
}

// onHost adds a step that calls the Do of an op without a rule on the host.
func (l *lowering) onHost(c *current) (operand, error) {
	if c.n.Op().Arity() >= 0 && c.n.Op().Arity() != len(c.in) {
		return operand{}, fmt.Errorf("%w: it has no rule, and its Do takes %d inputs, not %d", ErrUnknownOp, c.n.Op().Arity(), len(c.in))
	}
	l.warnOfHost(c)
	shape, err := l.inferred(c)
	if err != nil {
		return operand{}, err
	}
	f := &call{label: "host: " + c.n.Op().String(), op: ops.Corrected(c.n.Op())}
	var in []program.View
	for i, o := range c.in {
		in = append(in, l.wholeOf(o).view)
		f.in = append(f.in, look{c.kids[i].Dtype(), o.shape, c.kids[i].IsScalar()})
	}
	to := l.fresh(c.dtype, shape)
	l.call(f, in, []program.View{to.view})
	return to, nil
}

// warnOfHost warns once of each type of op that unexpectedly runs by its Do: on a GPU of each, on
// the CPU of those that are not Gorgonia's. Config.Fallback silences it.
func (l *lowering) warnOfHost(c *current) {
	name := typeName(c.n.Op())
	known := hostOps[name] || rules[name].lower != nil
	if l.cfg.Fallback || known && !l.g.onGPU || l.g.warned[name] {
		return
	}
	if l.g.warned == nil {
		l.g.warned = map[string]bool{}
	}
	l.g.warned[name] = true
	log := l.cfg.Log
	if log == nil {
		log = slog.Default()
	}
	text := "machine: an op without a rule runs by its Do, with copies"
	if l.g.onGPU {
		text = "machine: an op runs on the host in each step: the device waits, and the step is not captured as one graph"
	}
	log.Warn(text, "program", l.cfg.Name, "op", name, "node", l.label)
}

// inferred returns the shape that an op infers for its result.
func (l *lowering) inferred(c *current) ([]int, error) {
	if !l.resized {
		return l.shapeOf(c.n), nil
	}
	var in []gorgonia.DimSizer
	for _, o := range c.in {
		in = append(in, gtensor.Shape(o.shape))
	}
	s, err := c.n.Op().InferShape(in...)
	return slices.Clone([]int(s)), err
}
