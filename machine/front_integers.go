package machine

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/tensor"
)

// integers has the rules of ops of integers and bools, and of conversions.
type integers struct {
	work
	host *hostOps
}

// conversions are the types of ops that convert elements to another dtype.
var conversions = []string{"*gorgonia.dtConvOp"}

func (ig *integers) rules() map[string]rule {
	all := map[string]rule{}
	for _, name := range conversions {
		all[name] = rule{inputs: 1, lower: ig.convert, moves: true}
	}
	return all
}

// ofIntegers reports whether an op computes with integers or bools.
func (c *current) ofIntegers() bool { return len(c.in) > 0 && !c.in[0].dtype.IsFloat() }

// lower lowers an op of integers or bools to a step that computes with integers, or else to its
// Do.
func (ig *integers) lower(c *current) (operand, error) {
	switch typeName(c.n.Op()) {
	case "gorgonia.elemBinOp":
		op, ok := binaries[strings.Fields(c.n.Op().String())[0]]
		if ok && op != program.Pow {
			return ig.integerPair(c, op)
		}
	case "gorgonia.minBetween":
		return ig.integerPair(c, program.Minimum)
	case "gorgonia.maxBetween":
		return ig.integerPair(c, program.Maximum)
	case "gorgonia.sumOp":
		return ig.integerReduce(c, program.Add)
	case "gorgonia.maxOp", "*gorgonia.maxOp":
		return ig.integerReduce(c, program.Maximum)
	}
	return ig.host.lower(c)
}

// integerPair lowers an elementwise op of two inputs.
func (ig *integers) integerPair(c *current, op program.Scalar) (operand, error) {
	a, b := c.in[0], c.in[1]
	if a.dtype != b.dtype {
		return operand{}, fmt.Errorf("operands of types %v and %v", a.dtype, b.dtype)
	}
	shape, err := ig.sizes.common(c)
	if err != nil {
		return operand{}, err
	}
	if a.isNum && b.isNum && a.dtype == tensor.I64 && !(op == program.Div && b.num == 0) {
		if v := op.Integer(a.dtype, int64(a.num), int64(b.num)); int64(float64(v)) == v && math.Abs(float64(v)) <= 1<<53 {
			return number(float64(v), c.dtype, shape), nil
		}
	}
	return ig.integerStep(&program.Integer{Space: slices.Clone(shape), Do: op}, c, a, b)
}

// integerStep adds a step over the space of op; its result has that shape.
func (ig *integers) integerStep(op *program.Integer, c *current, in ...operand) (operand, error) {
	to := ig.fresh(c.dtype, op.Space)
	s := program.Step{Op: op, Out: []program.View{to.view}}
	for _, o := range in {
		v, err := ig.over(o, op.Space)
		if err != nil {
			return operand{}, err
		}
		s.In = append(s.In, v)
	}
	ig.add(s)
	return to, nil
}

// integerReduce lowers gorgonia.Sum and gorgonia.Max.
func (ig *integers) integerReduce(c *current, op program.Scalar) (operand, error) {
	x := ig.stored(c.in[0])
	reduced, kept, err := reducedAxes(x.shape, c.f.ints("along"))
	if err != nil {
		return operand{}, err
	}
	to := ig.fresh(c.dtype, kept)
	ig.add(program.Step{
		Op: &program.Integer{Space: slices.Clone(x.shape), Reduced: reduced, Do: op},
		In: []program.View{x.view}, Out: []program.View{reducedView(to, reduced)},
	})
	return to, nil
}

// convert lowers gorgonia.ConvType. Conversion to an integer truncates.
func (ig *integers) convert(c *current) (operand, error) {
	x := c.in[0]
	switch {
	case x.dtype == c.dtype:
		return x, nil
	case x.isNum && c.dtype.IsFloat():
		return number(x.num, c.dtype, x.shape), nil
	case x.isNum:
		return number(math.Trunc(x.num), c.dtype, x.shape), nil
	case !x.dtype.IsFloat() && !c.dtype.IsFloat():
		return ig.integerStep(&program.Integer{Space: slices.Clone(x.shape), Do: program.Load}, c, x)
	}
	m := ig.newCode(x.shape)
	return m.result(m.load(x), c.dtype)
}
