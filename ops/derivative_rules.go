package ops

import (
	"errors"
	"fmt"
	"hash"
	"math"
	"reflect"
	"strings"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// wrongExpression reports whether gorgonia's SymDiff of n's op combines right ops into a wrong
// expression: operatorPointwise_unary.go:263 and 463, operatorLinAlg.go:248, op_types.go:82.
func wrongExpression(n *gorgonia.Node) bool {
	op := n.Op()
	switch fmt.Sprintf("%T", op) {
	case "gorgonia.elemUnaryOp":
		return op.String() == "log2" || op.String() == "invSqrt"
	case "gorgonia.linAlgBinOp":
		return isOuter(op)
	case "*gorgonia.dtConvOp":
		return fromIntegers(n)
	}
	return false
}

func isOuter(op gorgonia.Op) bool { return strings.Contains(op.String(), "⊗") }

// fromIntegers reports whether n converts computed integers to floating-point numbers. Integers
// made from floating-point numbers are a step function, so the derivative is 0. Gorgonia uses the
// derivative of the identity and truncates it to integers.
func fromIntegers(n *gorgonia.Node) bool {
	in := Children(n)
	return len(in) == 1 && in[0].Op() != nil && isFloat(n.Dtype()) && !isFloat(in[0].Dtype())
}

func isFloat(dt gtensor.Dtype) bool { return dt == gtensor.Float32 || dt == gtensor.Float64 }

// ruleFor returns the right derivative of n's op. wrong: gorgonia's own is wrong or missing, at
// least on the tape machine.
func ruleFor(n *gorgonia.Node) (rule derivativeRule, wrong bool) {
	op := n.Op()
	switch fmt.Sprintf("%T", op) {
	case "gorgonia.elemUnaryOp":
		switch op.String() {
		case "log2":
			return derivativeRule{grad: log2Grad}, true
		case "invSqrt":
			return derivativeRule{grad: inverseSqrtGrad}, true
		}
	case "gorgonia.linAlgBinOp":
		return derivativeRule{grad: outerGrad}, isOuter(op)
	case "*gorgonia.globalAveragePoolOp":
		return derivativeRule{grad: globalPoolGrad}, true
	case "gorgonia.diagFlatOp":
		return derivativeRule{grad: diagonalGrad}, true
	case "*gorgonia.dtConvOp":
		none := func(inputs int) []bool { return make([]bool, inputs) }
		return derivativeRule{wrt: none}, fromIntegers(n)
	case "*gorgonia.ctcLossOp":
		return ctcRule(n), true
	case "*gorgonia.softmaxOp":
		return derivativeRule{grad: columnGrad}, n.Shape().IsColVec() && field(op, "axis", reflect.Int).Int() == -1
	case "*gorgonia.byIndicesOp":
		axis := field(op, "axis", reflect.Int).Int()
		return onTape(op, func([]gorgonia.Value) (gorgonia.Value, error) {
			return nil, fmt.Errorf("the tape machine's gradient along axis %d is wrong", axis)
		}), axis > 0
	case "*gorgonia.avgPoolOp":
		return onTape(op, func([]gorgonia.Value) (gorgonia.Value, error) {
			return nil, fmt.Errorf("the tape machine's gradient is that of one element of each window")
		}), true
	case "*gorgonia.BatchNormOp":
		return onTape(op, func(in []gorgonia.Value) (gorgonia.Value, error) {
			if !field(op, "training", reflect.Bool).Bool() {
				return nil, fmt.Errorf("the tape machine has no gradient in evaluation mode")
			}
			return in[0], nil
		}), true
	case "*gorgonia.sparsemaxOp":
		axis, rank := field(op, "axis", reflect.Int).Int(), n.Shape().Dims()
		return onTape(op, func([]gorgonia.Value) (gorgonia.Value, error) {
			return nil, errors.New("the tape machine's gradient is right " +
				"along the last axis of vectors and matrices only")
		}), rank > 2 || axis >= 0 && axis != int64(rank-1)
	case "*gorgonia.GroupNormOp":
		elements := groupElements(n)
		return onTape(op, func([]gorgonia.Value) (gorgonia.Value, error) {
			return nil, fmt.Errorf("the tape machine's moments of %d elements are wrong", elements)
		}), elements > 263 // 2 chunks of 16 vectors of 8 elements, and 7 more: op_group_norm.go:222
	case "*gorgonia.dropoutOp":
		return onTape(op, func(in []gorgonia.Value) (gorgonia.Value, error) { return dropoutGrad(op, in) }), true
	}
	return derivativeRule{}, false
}

// field returns a field of one of gorgonia's ops, or the zero Value of kind if the op has no such
// field.
func field(op gorgonia.Op, name string, kind reflect.Kind) reflect.Value {
	if f := reflect.Indirect(reflect.ValueOf(op)).FieldByName(name); f.IsValid() && f.Kind() == kind {
		return f
	}
	return reflect.Zero(map[reflect.Kind]reflect.Type{
		reflect.Int: reflect.TypeFor[int](), reflect.Uint: reflect.TypeFor[uint](),
		reflect.Bool: reflect.TypeFor[bool](), reflect.Float64: reflect.TypeFor[float64](),
	}[kind])
}

// number returns x as a constant of n's dtype.
func number(n *gorgonia.Node, x float64) *gorgonia.Node {
	if n.Dtype() == gtensor.Float32 {
		return gorgonia.NewConstant(float32(x))
	}
	return gorgonia.NewConstant(x)
}

// only returns n as the only gradient.
func only(n *gorgonia.Node, err error) (gorgonia.Nodes, error) { return gorgonia.Nodes{n}, err }

// log2Grad returns g / (x ln 2).
func log2Grad(in gorgonia.Nodes, _, g *gorgonia.Node) (gorgonia.Nodes, error) {
	d, err := gorgonia.HadamardProd(in[0], number(g, math.Ln2))
	if err != nil {
		return nil, err
	}
	return only(gorgonia.HadamardDiv(g, d))
}

// inverseSqrtGrad returns -g y³/2.
func inverseSqrtGrad(_ gorgonia.Nodes, y, g *gorgonia.Node) (gorgonia.Nodes, error) {
	d, err := gorgonia.Cube(y)
	if err != nil {
		return nil, err
	}
	if d, err = gorgonia.HadamardProd(d, number(g, -0.5)); err != nil {
		return nil, err
	}
	return only(gorgonia.HadamardProd(g, d))
}

// outerGrad returns g b and aᵀ g.
func outerGrad(in gorgonia.Nodes, _, g *gorgonia.Node) (gorgonia.Nodes, error) {
	a, err := gorgonia.Mul(g, in[1])
	if err != nil {
		return nil, err
	}
	b, err := gorgonia.Mul(in[0], g)
	return gorgonia.Nodes{a, b}, err
}

// globalPoolGrad spreads the gradient of a channel's mean over the channel, divided by its number
// of elements.
func globalPoolGrad(in gorgonia.Nodes, _, g *gorgonia.Node) (gorgonia.Nodes, error) {
	s := in[0].Shape()
	if len(s) != 4 {
		return nil, fmt.Errorf("%w: an input of shape %v, want 4 axes", dist.ErrInvalid, s)
	}
	g, err := gorgonia.Reshape(g, gtensor.Shape{s[0], s[1], 1, 1})
	if err != nil {
		return nil, err
	}
	if g, err = gorgonia.HadamardDiv(g, number(g, float64(s[2]*s[3]))); err != nil {
		return nil, err
	}
	_, g, err = gorgonia.Broadcast(in[0], g, gorgonia.NewBroadcastPattern(nil, []byte{2, 3}))
	return only(g, err)
}

// diagonalGrad returns the diagonal of g, in the shape of the input.
func diagonalGrad(in gorgonia.Nodes, _, g *gorgonia.Node) (gorgonia.Nodes, error) {
	n := in[0].Shape().TotalSize()
	d, err := gorgonia.Reshape(g, gtensor.Shape{n * n})
	if err != nil {
		return nil, err
	}
	places := make([]int, n)
	for i := range places {
		places[i] = i * (n + 1)
	}
	at := gorgonia.NewConstant(gtensor.New(gtensor.WithShape(n), gtensor.WithBacking(places)))
	if d, err = gorgonia.ByIndices(d, at, 0); err != nil || in[0].Dims() == 1 {
		return only(d, err)
	}
	return only(gorgonia.Reshape(d, in[0].Shape().Clone()))
}

// groupElements returns the number of elements of each group of a GroupNorm.
func groupElements(n *gorgonia.Node) int {
	s, groups := n.Shape(), int(field(n.Op(), "numGroups", reflect.Int).Int())
	if len(s) == 0 || s[0]*groups == 0 {
		return 0
	}
	return s.TotalSize() / (s[0] * groups)
}

// columnGrad returns y (g - Σ g y) for a softmax over all elements, and g - exp(y) Σ g for its
// logarithm.
func columnGrad(_ gorgonia.Nodes, y, g *gorgonia.Node) (gorgonia.Nodes, error) {
	isLog := field(y.Op(), "isLog", reflect.Bool).Bool()
	weighted, p := g, y
	var err error
	if isLog {
		p, err = gorgonia.Exp(y)
	} else {
		weighted, err = gorgonia.HadamardProd(g, y)
	}
	if err != nil {
		return nil, err
	}
	sum, err := gorgonia.Sum(weighted)
	if err != nil {
		return nil, err
	}
	if isLog {
		if p, err = gorgonia.HadamardProd(p, sum); err != nil {
			return nil, err
		}
		return only(gorgonia.Sub(g, p))
	}
	if sum, err = gorgonia.Sub(g, sum); err != nil {
		return nil, err
	}
	return only(gorgonia.HadamardProd(y, sum))
}

// onTape returns the rule of an op whose gradient is right in package machine and wrong on the tape
// machine. The rule adds a node to the gradient, which on the tape machine calls do to correct it
// or to return an error.
func onTape(op gorgonia.Op, do func(in []gorgonia.Value) (gorgonia.Value, error)) derivativeRule {
	sd, ok := op.(gorgonia.SDOp)
	if !ok {
		return derivativeRule{}
	}
	return derivativeRule{
		wrt: sd.DiffWRT,
		grad: func(in gorgonia.Nodes, y, g *gorgonia.Node) (gorgonia.Nodes, error) {
			grads, err := sd.SymDiff(in, y, g)
			if err != nil {
				return nil, err
			}
			grads[0], err = applyUnique(&tapeGradient{of: y, do: do}, grads[0], y, g)
			return grads, err
		},
	}
}

// tapeGradient passes on its first input, the gradient of an op's input, in package machine. A tape
// machine calls Do instead.
type tapeGradient struct {
	of *gorgonia.Node // the op's node
	do func(in []gorgonia.Value) (gorgonia.Value, error)
}

// Arity is 3: the gradient of the op's input, the op's result and the gradient of that result.
func (*tapeGradient) Arity() int { return 3 }

// Type is a → b → c → a.
func (*tapeGradient) Type() hm.Type {
	a := hm.TypeVariable('a')
	return hm.NewFnType(a, hm.TypeVariable('b'), hm.TypeVariable('c'), a)
}

func (*tapeGradient) InferShape(in ...gorgonia.DimSizer) (gtensor.Shape, error) {
	return firstShape(in)
}

func firstShape(in []gorgonia.DimSizer) (gtensor.Shape, error) {
	if s, ok := in[0].(gtensor.Shape); ok {
		return s.Clone(), nil
	}
	return nil, fmt.Errorf("%w: %T is no shape", dist.ErrInvalid, in[0])
}

// Do returns the gradient, in memory of its own.
//
// Errors: dist.ErrUnsupported, naming node and op.
func (t *tapeGradient) Do(inputs ...gorgonia.Value) (gorgonia.Value, error) {
	if len(inputs) != 3 {
		return nil, fmt.Errorf("%v: %w: %d inputs", t, dist.ErrInvalid, len(inputs))
	}
	v, err := t.do(inputs)
	if err != nil {
		return nil, fmt.Errorf("node %q, op %v: %w: %w; run the graph with package machine", t.of.Name(), t.of.Op(), dist.ErrUnsupported, err)
	}
	return gorgonia.CloneValue(v)
}

func (*tapeGradient) ReturnsPtr() bool { return true }

func (*tapeGradient) CallsExtern() bool { return false }

func (*tapeGradient) OverwritesInput() int { return -1 }

// WriteHash writes the ID of the op's node, which no other op of the graph writes.
func (t *tapeGradient) WriteHash(h hash.Hash) {
	_, _ = fmt.Fprintf(h, "symgrad gradient on tape %d", t.of.ID())
}

func (t *tapeGradient) Hashcode() uint32 { return hashOf(t) }

// String returns "gradient of dropout".
func (t *tapeGradient) String() string { return "gradient of " + t.of.Op().String() }

// dropoutGrad corrects the tape machine's gradient of a dropout. Gorgonia divides by the
// probability of dropping an element, also when none is dropped (op_dropout.go:222). Right is the
// probability of keeping it.
func dropoutGrad(op gorgonia.Op, in []gorgonia.Value) (gorgonia.Value, error) {
	p := field(op, "probability", reflect.Float64).Float()
	if p == 0 || !field(op, "isTraining", reflect.Bool).Bool() {
		return in[2], nil
	}
	v, err := gorgonia.CloneValue(in[0])
	if err != nil {
		return nil, err
	}
	switch e := v.Data().(type) {
	case []float64:
		for i := range e {
			e[i] *= p / (1 - p)
		}
	case []float32:
		for i := range e {
			e[i] *= float32(p / (1 - p))
		}
	default:
		return nil, fmt.Errorf("%w: elements of type %T", dist.ErrDType, e)
	}
	return v, nil
}
