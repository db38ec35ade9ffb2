package program

import (
	"math"

	"github.com/symgrad/symgrad/tensor"
)

// Eval returns the result of the operation in f32 or f64 arithmetic; for Load, Const and Rand 0.
// Folding and the oracle share it. Back halves may differ in the last bits of functions that are
// not exactly rounded.
func (s Scalar) Eval(f32 bool, a, b, c float64) float64 {
	var x float64
	switch {
	case s < Add:
		x = s.unary(a)
	case s < Less:
		x = s.binary(a, b)
	case s < Select:
		x = s.compare(a, b)
	case s == Select:
		if x = c; a != 0 {
			x = b
		}
	}
	if !f32 {
		return x
	}
	if s == Cube {
		x = float64(float32(a*a)) * a // two products, two roundings
	}
	return float64(float32(x))
}

// Empty returns the reduction of no elements.
func (r Reduction) Empty() float64 {
	if r == Max {
		return math.Inf(-1)
	}
	return 0
}

// Combine returns the reduction of a and b.
func (r Reduction) Combine(a, b float64) float64 {
	if r == Max {
		return max(a, b)
	}
	return a + b
}

func (s Scalar) unary(a float64) float64 {
	switch s {
	case Neg:
		return -a
	case Abs:
		return math.Abs(a)
	case Sign:
		return sign(a)
	case Ceil:
		return math.Ceil(a)
	case Floor:
		return math.Floor(a)
	case Sin:
		return math.Sin(a)
	case Cos:
		return math.Cos(a)
	case Exp:
		return math.Exp(a)
	case Log:
		return math.Log(a)
	case Log2:
		return math.Log2(a)
	case Log1p:
		return math.Log1p(a)
	case Expm1:
		return math.Expm1(a)
	case Square:
		return a * a
	case Cube:
		return a * a * a
	case Sqrt:
		return math.Sqrt(a)
	case Rsqrt:
		return 1 / math.Sqrt(a)
	case Inverse:
		return 1 / a
	case Tanh:
		return math.Tanh(a)
	case Sigmoid:
		return 1 / (1 + math.Exp(-a))
	case Softplus:
		return max(a, 0) + math.Log1p(math.Exp(-math.Abs(a)))
	case Erf:
		return math.Erf(a)
	case ToBF16:
		return float64(tensor.BFloat16Of(a).Float32())
	case ToF16:
		return float64(tensor.Float16Of(a).Float32())
	}
	return 0
}

func sign(a float64) float64 {
	switch {
	case a > 0:
		return 1
	case a < 0:
		return -1
	}
	return 0
}

func (s Scalar) binary(a, b float64) float64 {
	switch s {
	case Add:
		return a + b
	case Sub:
		return a - b
	case Mul, Product:
		return a * b
	case Div:
		return a / b
	case Pow:
		return math.Pow(a, b)
	case Maximum:
		return max(a, b)
	case Minimum:
		return min(a, b)
	}
	return 0
}

func (s Scalar) compare(a, b float64) float64 {
	holds := false
	switch s {
	case Less:
		holds = a < b
	case LessEqual:
		holds = a <= b
	case Greater:
		holds = a > b
	case GreaterEqual:
		holds = a >= b
	case Equal:
		holds = a == b
	case NotEqual:
		holds = a != b
	}
	if holds {
		return 1
	}
	return 0
}

// Element returns element i of b, which has elements of type dt. 64-bit integers are rounded to
// float64.
func Element(dt tensor.DType, b []byte, i int) float64 {
	bits, size := uint64(0), dt.Size()
	for k := size - 1; k >= 0; k-- {
		bits = bits<<8 | uint64(b[i*size+k])
	}
	switch dt {
	case tensor.F16:
		return float64(tensor.Float16(bits).Float32())
	case tensor.BF16:
		return float64(tensor.BFloat16(bits).Float32())
	case tensor.F32:
		return float64(math.Float32frombits(uint32(bits)))
	case tensor.F64:
		return math.Float64frombits(bits)
	case tensor.I8:
		return float64(int8(bits))
	case tensor.I16:
		return float64(int16(bits))
	case tensor.I32:
		return float64(int32(bits))
	case tensor.I64:
		return float64(int64(bits))
	}
	return float64(bits)
}

// SetElement sets element i of b to x. For a floating-point dtype it rounds to nearest, ties to
// even. For an integer dtype it truncates toward zero and saturates; NaN becomes 0.
func SetElement(dt tensor.DType, b []byte, i int, x float64) {
	var bits uint64
	switch dt {
	case tensor.F16:
		bits = uint64(tensor.ToFloat16(float32(x)))
	case tensor.BF16:
		bits = uint64(tensor.ToBFloat16(float32(x)))
	case tensor.F32:
		bits = uint64(math.Float32bits(float32(x)))
	case tensor.F64:
		bits = math.Float64bits(x)
	default:
		bits = integer(x, dt)
	}
	for k := range dt.Size() {
		b[i*dt.Size()+k] = byte(bits >> (8 * k))
	}
}

// integer returns the bits of x as an integer of type dt.
func integer(x float64, dt tensor.DType) uint64 {
	bits := 8 * dt.Size()
	switch {
	case x != x:
		return 0
	case dt >= tensor.U8 && x <= 0:
		return 0
	case dt >= tensor.U8 && x >= math.Ldexp(1, bits):
		return math.MaxUint64
	case dt >= tensor.U8:
		return uint64(x)
	case x >= math.Ldexp(1, bits-1):
		return 1<<(bits-1) - 1
	case x <= -math.Ldexp(1, bits-1):
		return 1 << (bits - 1)
	}
	return uint64(int64(x))
}

// single reports whether a Map or Reduce computes in f32: no In and no Out is f64.
func single(p *Program, s *Step) bool {
	for _, v := range s.In {
		if p.Values[v.Value].DType == tensor.F64 {
			return false
		}
	}
	for _, v := range s.Out {
		if p.Values[v.Value].DType == tensor.F64 {
			return false
		}
	}
	return true
}
