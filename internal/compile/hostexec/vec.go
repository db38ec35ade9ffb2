package hostexec

import (
	"math"
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// real is the types of arithmetic.
type real interface{ float32 | float64 }

// vecOp is a vector primitive: d[i] = op(a[i], b[i], c[i]).
type vecOp int

// The primitives. Those before plainOps are in assembly, in this order.
const (
	opCopy vecOp = iota
	opNeg
	opAbs
	opCeil
	opFloor
	opSquare
	opCube
	opSqrt
	opRsqrt
	opInverse
	opExp
	opLog
	opTanh
	opSigmoid
	opAdd
	opSub
	opMul
	opDiv
	opMaximum
	opMinimum
	opLess
	opLessEqual
	opGreater
	opGreaterEqual
	opEqual
	opNotEqual
	opSelect
	opMulAdd  // a*b + c, the product rounded first
	opFoldSum // lane i of width lanes of d += a[i] + a[i+width] + ..., in this order
	opFoldMax // the same with Maximum
	opSum     // d[0] = the sum of a: folded into lanes of 0, which are then joined, half onto half
	opMax     // the same with Maximum and -inf
	plainOps
	opSign = plainOps + iota - 33
	opSin
	opCos
	opLog2
	opLog1p
	opExpm1
	opSoftplus
	opErf
	opPow
	opToBF16
	opToF16
)

// vecOps maps scalar operations to primitives. Missing ones (Load, Const, Rand) are operands.
var vecOps = [...]vecOp{
	program.Neg: opNeg, program.Abs: opAbs, program.Sign: opSign, program.Ceil: opCeil, program.Floor: opFloor,
	program.Sin: opSin, program.Cos: opCos, program.Exp: opExp, program.Log: opLog, program.Log2: opLog2,
	program.Log1p: opLog1p, program.Expm1: opExpm1, program.Square: opSquare, program.Cube: opCube, program.Sqrt: opSqrt,
	program.Rsqrt: opRsqrt, program.Inverse: opInverse, program.Tanh: opTanh, program.Sigmoid: opSigmoid,
	program.Softplus: opSoftplus, program.Erf: opErf, program.ToBF16: opToBF16, program.ToF16: opToF16, program.Add: opAdd, program.Sub: opSub, program.Mul: opMul, program.Product: opMul, program.Div: opDiv,
	program.Pow: opPow, program.Maximum: opMaximum, program.Minimum: opMinimum, program.Less: opLess,
	program.LessEqual: opLessEqual, program.Greater: opGreater, program.GreaterEqual: opGreaterEqual,
	program.Equal: opEqual, program.NotEqual: opNotEqual, program.Select: opSelect,
}

// arity returns the number of operands of a scalar operation.
func arity(op program.Scalar) int {
	switch {
	case op == program.Select:
		return 3
	case op >= program.Add:
		return 2
	case op >= program.Neg:
		return 1
	}
	return 0
}

// vecArgs is a call of a primitive. It is a struct so that assembly takes a single word.
// vec_amd64.s has the offsets of its fields.
type vecArgs struct {
	op         vecOp
	n          int
	d, a, b, c unsafe.Pointer
	sa, sb, sc int // 1, or 0 for one number, repeated in 64 bytes
}

// lanes returns an operand as a slice, and the mask for its indices.
func lanes[T real](p unsafe.Pointer, step, n int) ([]T, int) {
	if step == 0 {
		return unsafe.Slice((*T)(p), 1), 0
	}
	return unsafe.Slice((*T)(p), n), -1
}

// vecPlain is a primitive in plain Go. It gives the same bits as assembly.
func vecPlain[T real](v *vecArgs) {
	a, ma := lanes[T](v.a, v.sa, v.n)
	switch v.op {
	case opFoldSum:
		fold(opAdd, unsafe.Slice((*T)(v.d), width), a)
		return
	case opFoldMax:
		fold(opMaximum, unsafe.Slice((*T)(v.d), width), a)
		return
	case opSum, opMax:
		reduce(v.op, (*T)(v.d), a)
		return
	}
	d := unsafe.Slice((*T)(v.d), v.n)
	switch {
	case v.op == opSelect || v.op == opMulAdd:
		b, mb := lanes[T](v.b, v.sb, v.n)
		c, mc := lanes[T](v.c, v.sc, v.n)
		ternary(v.op, d, a, b, c, ma, mb, mc)
	case v.op >= opAdd && v.op <= opMinimum || v.op == opPow:
		b, mb := lanes[T](v.b, v.sb, v.n)
		binary(v.op, d, a, b, ma, mb)
	case v.op >= opLess && v.op <= opNotEqual:
		b, mb := lanes[T](v.b, v.sb, v.n)
		compare(v.op, d, a, b, ma, mb)
	case v.op <= opInverse:
		unary(v.op, d, a, ma)
	default:
		functions(v.op, d, a, ma)
	}
}

func fold[T real](op vecOp, d, a []T) {
	for len(a) > 0 {
		n := min(width, len(a))
		binary(op, d[:n], d, a, -1, -1)
		a = a[n:]
	}
}

func reduce[T real](op vecOp, d *T, a []T) {
	var lanes [width]T
	red, join := program.Sum, opAdd
	if op == opMax {
		red, join = program.Max, opMaximum
		for i := range lanes {
			lanes[i] = neutral[T](program.Max)
		}
	}
	fold(join, lanes[:], a)
	*d = joined(red, lanes[:])
}

func ternary[T real](op vecOp, d, a, b, c []T, ma, mb, mc int) {
	for i := range d {
		switch {
		case op == opMulAdd:
			d[i] = T(a[i&ma]*b[i&mb]) + c[i&mc]
		case a[i&ma] != 0:
			d[i] = b[i&mb]
		default:
			d[i] = c[i&mc]
		}
	}
}

func binary[T real](op vecOp, d, a, b []T, ma, mb int) {
	switch op {
	case opAdd:
		for i := range d {
			d[i] = a[i&ma] + b[i&mb]
		}
	case opSub:
		for i := range d {
			d[i] = a[i&ma] - b[i&mb]
		}
	case opMul:
		for i := range d {
			d[i] = a[i&ma] * b[i&mb]
		}
	case opDiv:
		for i := range d {
			d[i] = a[i&ma] / b[i&mb]
		}
	case opMaximum:
		for i := range d {
			d[i] = max(a[i&ma], b[i&mb])
		}
	case opMinimum:
		for i := range d {
			d[i] = min(a[i&ma], b[i&mb])
		}
	case opPow:
		for i := range d {
			d[i] = T(math.Pow(float64(a[i&ma]), float64(b[i&mb])))
		}
	}
}

func compare[T real](op vecOp, d, a, b []T, ma, mb int) {
	for i := range d {
		x, y := a[i&ma], b[i&mb]
		holds := false
		switch op {
		case opLess:
			holds = x < y
		case opLessEqual:
			holds = x <= y
		case opGreater:
			holds = x > y
		case opGreaterEqual:
			holds = x >= y
		case opEqual:
			holds = x == y
		case opNotEqual:
			holds = x != y
		}
		d[i] = 0
		if holds {
			d[i] = 1
		}
	}
}

func unary[T real](op vecOp, d, a []T, ma int) {
	for i := range d {
		x := a[i&ma]
		switch op {
		case opNeg:
			x = -x
		case opAbs:
			x = T(math.Abs(float64(x)))
		case opCeil:
			x = T(math.Ceil(float64(x)))
		case opFloor:
			x = T(math.Floor(float64(x)))
		case opSquare:
			x *= x
		case opCube:
			x = T(x*x) * x
		case opSqrt:
			x = T(math.Sqrt(float64(x))) // rounding twice gives the float32 root: 53 > 2*24+2
		case opRsqrt:
			x = 1 / T(math.Sqrt(float64(x)))
		case opInverse:
			x = 1 / x
		}
		d[i] = x
	}
}

// functions computes operations that are not arithmetic. For float32 some are polynomials, as in
// assembly. The others, and all of float64, are those of package math.
func functions[T real](op vecOp, d, a []T, ma int) {
	if p := polynomial(op); p != nil && size[T]() == 4 {
		for i := range d {
			d[i] = T(p(float32(a[i&ma])))
		}
		return
	}
	f := function(op)
	for i := range d {
		d[i] = T(f(float64(a[i&ma])))
	}
}

func function(op vecOp) func(float64) float64 {
	switch op {
	case opExp:
		return math.Exp
	case opLog:
		return math.Log
	case opTanh:
		return math.Tanh
	case opSigmoid:
		return sigmoid
	case opSin:
		return math.Sin
	case opCos:
		return math.Cos
	case opLog2:
		return math.Log2
	case opLog1p:
		return math.Log1p
	case opExpm1:
		return math.Expm1
	case opSoftplus:
		return softplus
	case opErf:
		return math.Erf
	case opToBF16:
		return func(x float64) float64 { return float64(tensor.BFloat16Of(x).Float32()) }
	case opToF16:
		return func(x float64) float64 { return float64(tensor.Float16Of(x).Float32()) }
	}
	return sign
}

func polynomial(op vecOp) func(float32) float32 {
	switch op {
	case opExp:
		return exp32
	case opLog:
		return log32
	case opTanh:
		return tanh32
	case opSigmoid:
		return sigmoid32
	}
	return nil
}

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// softplus returns log(1 + exp(x)) without overflow.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }
