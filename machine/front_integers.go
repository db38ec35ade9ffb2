package machine

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/tensor"
)

// ofIntegers reports whether an op computes with integers or bools.
func (c *current) ofIntegers() bool { return len(c.in) > 0 && !c.in[0].dtype.IsFloat() }

// integers lowers an op of integers or bools to a step that computes with integers, or else to its
// Do.
func (l *lowering) integers(c *current) (operand, error) {
	switch typeName(c.n.Op()) {
	case "gorgonia.elemBinOp":
		op, ok := binaries[strings.Fields(c.n.Op().String())[0]]
		if ok && op != program.Pow {
			return l.integerPair(c, op)
		}
	case "gorgonia.minBetween":
		return l.integerPair(c, program.Minimum)
	case "gorgonia.maxBetween":
		return l.integerPair(c, program.Maximum)
	case "gorgonia.sumOp":
		return l.integerReduce(c, program.Add)
	case "gorgonia.maxOp", "*gorgonia.maxOp":
		return l.integerReduce(c, program.Maximum)
	}
	return l.onHost(c)
}

// integerPair lowers an elementwise op of two inputs.
func (l *lowering) integerPair(c *current, op program.Scalar) (operand, error) {
	a, b := c.in[0], c.in[1]
	if a.dtype != b.dtype {
		return operand{}, fmt.Errorf("operands of types %v and %v", a.dtype, b.dtype)
	}
	shape, err := l.commonOf(c)
	if err != nil {
		return operand{}, err
	}
	if a.isNum && b.isNum && a.dtype == tensor.I64 && !(op == program.Div && b.num == 0) {
		if v := op.Integer(a.dtype, int64(a.num), int64(b.num)); int64(float64(v)) == v && math.Abs(float64(v)) <= 1<<53 {
			return number(float64(v), c.dtype, shape), nil
		}
	}
	return l.integerStep(&program.Integer{Space: slices.Clone(shape), Do: op}, c, a, b)
}

// integerStep adds a step over the space of op; its result has that shape.
func (l *lowering) integerStep(op *program.Integer, c *current, in ...operand) (operand, error) {
	to := l.fresh(c.dtype, op.Space)
	s := program.Step{Op: op, Out: []program.View{to.view}}
	for _, o := range in {
		v, err := l.over(o, op.Space)
		if err != nil {
			return operand{}, err
		}
		s.In = append(s.In, v)
	}
	l.add(s)
	return to, nil
}

// integerReduce lowers gorgonia.Sum and gorgonia.Max.
func (l *lowering) integerReduce(c *current, op program.Scalar) (operand, error) {
	x := l.stored(c.in[0])
	reduced, kept, err := reducedAxes(x.shape, c.f.ints("along"))
	if err != nil {
		return operand{}, err
	}
	to := l.fresh(c.dtype, kept)
	l.add(program.Step{
		Op: &program.Integer{Space: slices.Clone(x.shape), Reduced: reduced, Do: op},
		In: []program.View{x.view}, Out: []program.View{reducedView(to, reduced)},
	})
	return to, nil
}

// convert lowers gorgonia.ConvType. Conversion to an integer truncates.
func (l *lowering) convert(c *current) (operand, error) {
	x := c.in[0]
	switch {
	case x.dtype == c.dtype:
		return x, nil
	case x.isNum && c.dtype.IsFloat():
		return number(x.num, c.dtype, x.shape), nil
	case x.isNum:
		return number(math.Trunc(x.num), c.dtype, x.shape), nil
	case !x.dtype.IsFloat() && !c.dtype.IsFloat():
		return l.integerStep(&program.Integer{Space: slices.Clone(x.shape), Do: program.Load}, c, x)
	}
	m := l.newCode(x.shape)
	return m.result(m.load(x), c.dtype)
}
