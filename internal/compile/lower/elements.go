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

// elements has the rules of elementwise ops of floating-point numbers.
type elements struct {
	work
}

func (el *elements) rules() map[string]rule {
	return map[string]rule{
		"gorgonia.elemBinOp":   {inputs: 2, lower: el.binary},
		"gorgonia.elemUnaryOp": {inputs: 1, lower: el.unary},
		"gorgonia.minBetween":  {inputs: 2, lower: el.between},
		"gorgonia.maxBetween":  {inputs: 2, lower: el.between},
		"gorgonia.Iop":         {inputs: 1, lower: el.identity, moves: true},
		"*nnop.Erf":            {inputs: 1, lower: el.errorFunction},
	}
}

// binaries are the scalar operations of gorgonia.elemBinOp (operatorPointwise_binary_const.go:56).
var binaries = map[string]program.Scalar{
	"+": program.Add, "-": program.Sub, "⊙": program.Mul, "÷": program.Div, "^": program.Pow,
	"<": program.Less, ">": program.Greater, "<=": program.LessEqual, ">=": program.GreaterEqual,
	"==": program.Equal, "!=": program.NotEqual,
}

// unaries are the scalar operations of gorgonia.elemUnaryOp (operatorPointwise_unary_const.go:113).
var unaries = map[string]program.Scalar{
	"abs": program.Abs, "sign": program.Sign, "ceil": program.Ceil, "floor": program.Floor, "sin": program.Sin,
	"cos": program.Cos, "exp": program.Exp, "ln": program.Log, "log2": program.Log2, "neg": program.Neg,
	"square": program.Square, "sqrt": program.Sqrt, "inv": program.Inverse, "invSqrt": program.Rsqrt, "cube": program.Cube,
	"tanh": program.Tanh, "sigmoid": program.Sigmoid, "log1p": program.Log1p, "expm1": program.Expm1, "softplus": program.Softplus,
}

// common returns the shape of an elementwise op's result: that of both operands, or of the one that
// is not a scalar.
func common(a, b draft.Operand) ([]int, error) {
	switch {
	case slices.Equal(a.Shape, b.Shape), b.Len() == 1 && len(a.Shape) >= len(b.Shape):
		return a.Shape, nil
	case a.Len() == 1, a.Len() == b.Len() && len(b.Shape) > len(a.Shape):
		return b.Shape, nil
	case a.Len() == b.Len():
		return a.Shape, nil
	}
	return nil, fmt.Errorf("shapes %v and %v do not match", a.Shape, b.Shape)
}

// binary lowers a gorgonia.elemBinOp of floating-point numbers. A comparison with a bool result
// stores bytes that are 1 or 0.
func (el *elements) binary(c *current) (draft.Operand, error) {
	words := strings.Fields(c.n.Op().String())
	op, ok := binaries[words[0]]
	if !ok {
		return draft.Operand{}, fmt.Errorf("unknown operation %q", words[0])
	}
	a, b := c.in[0], c.in[1]
	dt := c.dtype
	shape, err := el.sizes.common(c)
	if err != nil {
		return draft.Operand{}, err
	}
	if a.IsNum && b.IsNum {
		if v, ok := fold(op, a.Num, b.Num, dt); ok {
			return draft.Number(v, dt, shape), nil
		}
	}
	if one, ok := isFactor(op, a, b); ok {
		v, err := el.Over(one, shape)
		return draft.Operand{View: v, Shape: slices.Clone(shape), DType: dt}, err
	}
	m := el.NewCode(shape)
	return m.Result(m.Do(op, m.Load(a), m.Load(b)), dt)
}

// isFactor returns the operand that equals a product with 1, or a quotient by 1.
func isFactor(op program.Scalar, a, b draft.Operand) (draft.Operand, bool) {
	isOne := func(o draft.Operand) bool { return o.IsNum && o.Num == 1 }
	switch {
	case op == program.Mul && isOne(a) && !b.IsNum:
		return b, true
	case (op == program.Mul || op == program.Div) && isOne(b) && !a.IsNum:
		return a, true
	}
	return draft.Operand{}, false
}

// fold computes with two numbers, rounded as at run time.
func fold(op program.Scalar, a, b float64, dt tensor.DType) (float64, bool) {
	if dt == tensor.F32 { // double rounding changes no single operation on float32
		a, b = float64(float32(a)), float64(float32(b))
	}
	switch op {
	case program.Add:
		return a + b, true
	case program.Sub:
		return a - b, true
	case program.Mul:
		return a * b, true
	case program.Div:
		return a / b, true
	}
	return 0, false
}

// unary lowers a gorgonia.elemUnaryOp.
func (el *elements) unary(c *current) (draft.Operand, error) {
	name := c.n.Op().String()
	op, ok := unaries[name]
	if !ok {
		return draft.Operand{}, fmt.Errorf("unknown operation %q", name)
	}
	x := c.in[0]
	if x.IsNum {
		switch op {
		case program.Neg:
			return draft.Number(-x.Num, c.dtype, x.Shape), nil
		case program.Square:
			return draft.Number(x.Num*x.Num, c.dtype, x.Shape), nil
		case program.Sqrt:
			return draft.Number(math.Sqrt(x.Num), c.dtype, x.Shape), nil
		}
	}
	m := el.NewCode(x.Shape)
	r := m.Load(x)
	y := m.Do(op, r)
	if op == program.Sign && len(x.Shape) == 0 { // Gorgonia's Sign of a scalar 0 is 1 (math.go:13)
		y = m.Do(program.Select, r, y, m.Constant(1))
	}
	return m.Result(y, c.dtype)
}

// errorFunction lowers an nnop.Erf.
func (el *elements) errorFunction(c *current) (draft.Operand, error) {
	m := el.NewCode(c.in[0].Shape)
	return m.Result(m.Do(program.Erf, m.Load(c.in[0])), c.dtype)
}

// between lowers gorgonia.minBetween and gorgonia.maxBetween.
func (el *elements) between(c *current) (draft.Operand, error) {
	op := program.Minimum
	if typeName(c.n.Op()) == "gorgonia.maxBetween" {
		op = program.Maximum
	}
	shape, err := common(c.in[0], c.in[1])
	if err != nil {
		return draft.Operand{}, err
	}
	m := el.NewCode(shape)
	return m.Result(m.Do(op, m.Load(c.in[0]), m.Load(c.in[1])), c.dtype)
}

// identity lowers gorgonia.Iop.
func (el *elements) identity(c *current) (draft.Operand, error) { return c.in[0], nil }
