package lower

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
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
func (c *current) ofIntegers() bool { return len(c.in) > 0 && !c.in[0].DType.IsFloat() }

// lower lowers an op of integers or bools to a step that computes with integers, or else to its
// Do.
func (ig *integers) lower(c *current) (draft.Operand, error) {
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
func (ig *integers) integerPair(c *current, op program.Scalar) (draft.Operand, error) {
	a, b := c.in[0], c.in[1]
	if a.DType != b.DType {
		return draft.Operand{}, fmt.Errorf("operands of types %v and %v", a.DType, b.DType)
	}
	shape, err := ig.sizes.common(c)
	if err != nil {
		return draft.Operand{}, err
	}
	if a.IsNum && b.IsNum && a.DType == tensor.I64 && !(op == program.Div && b.Num == 0) {
		if v := op.Integer(a.DType, int64(a.Num), int64(b.Num)); int64(float64(v)) == v && math.Abs(float64(v)) <= 1<<53 {
			return draft.Number(float64(v), c.dtype, shape), nil
		}
	}
	return ig.integerStep(&program.Integer{Space: slices.Clone(shape), Do: op}, c, a, b)
}

// integerStep adds a step over the space of op; its result has that shape.
func (ig *integers) integerStep(op *program.Integer, c *current, in ...draft.Operand) (draft.Operand, error) {
	to := ig.Fresh(c.dtype, op.Space)
	s := program.Step{Op: op, Out: []program.View{to.View}}
	for _, o := range in {
		v, err := ig.Over(o, op.Space)
		if err != nil {
			return draft.Operand{}, err
		}
		s.In = append(s.In, v)
	}
	ig.Add(s)
	return to, nil
}

// integerReduce lowers gorgonia.Sum and gorgonia.Max.
func (ig *integers) integerReduce(c *current, op program.Scalar) (draft.Operand, error) {
	x := ig.Stored(c.in[0])
	reduced, kept, err := reducedAxes(x.Shape, c.f.ints("along"))
	if err != nil {
		return draft.Operand{}, err
	}
	to := ig.Fresh(c.dtype, kept)
	ig.Add(program.Step{
		Op: &program.Integer{Space: slices.Clone(x.Shape), Reduced: reduced, Do: op},
		In: []program.View{x.View}, Out: []program.View{draft.ReducedView(to, reduced)},
	})
	return to, nil
}

// convert lowers gorgonia.ConvType. Conversion to an integer truncates.
func (ig *integers) convert(c *current) (draft.Operand, error) {
	x := c.in[0]
	switch {
	case x.DType == c.dtype:
		return x, nil
	case x.IsNum && c.dtype.IsFloat():
		return draft.Number(x.Num, c.dtype, x.Shape), nil
	case x.IsNum:
		return draft.Number(math.Trunc(x.Num), c.dtype, x.Shape), nil
	case !x.DType.IsFloat() && !c.dtype.IsFloat():
		return ig.integerStep(&program.Integer{Space: slices.Clone(x.Shape), Do: program.Load}, c, x)
	}
	m := ig.NewCode(x.Shape)
	return m.Result(m.Load(x), c.dtype)
}
