package cudagen

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// place is a loop level in a kernel. A value is computed at the outermost level that it depends on.
type place int

const (
	atTop  place = iota // once per thread
	atKept              // of a Reduce: once per result
	atLoop              // in each turn of the loop, which has V neighbours
	atEach              // for each of the V
	places
)

// body is the code of a Map or Reduce, by loop level.
type body struct {
	n     *nest
	code  []program.Instr
	real  string         // type of arithmetic
	index string         // type of indices
	width int            // V
	tiles []int          // Ins in shared memory
	from  map[int]string // Ins in registers: their names
	kept  *group         // nil for a Map
	loop  *group

	lines  [places]strings.Builder
	after  strings.Builder // after the loop over the V
	where  []place         // of each register
	loaded []bool          // by In: whether its vector is loaded
	clock  bool            // whether Rand is used
}

// indents is the indentation of each loop level.
var indents = [places]string{"  ", "    ", "    ", "      "}

func (b *body) add(p place, format string, args ...any) {
	fmt.Fprintf(&b.lines[p], indents[p]+format+"\n", args...)
}

// innermost returns the level of single elements, and neighbour the index of an element in a turn.
func (b *body) innermost() place {
	if b.width == 1 {
		return atLoop
	}
	return atEach
}

func (b *body) neighbour() string {
	if b.width == 1 {
		return "0"
	}
	return "k"
}

// functions are the names of scalar operations in the text.
var functions = map[program.Scalar]string{
	program.Neg: "opNeg", program.Abs: "opAbs", program.Sign: "opSign", program.Ceil: "opCeil", program.Floor: "opFloor",
	program.Sin: "opSin", program.Cos: "opCos", program.Exp: "opExp", program.Log: "opLog", program.Log2: "opLog2",
	program.Log1p: "opLog1p", program.Expm1: "opExpm1", program.Square: "opSquare", program.Cube: "opCube",
	program.Sqrt: "opSqrt", program.Rsqrt: "opRsqrt", program.Inverse: "opInverse", program.Tanh: "opTanh",
	program.Sigmoid: "opSigmoid", program.Softplus: "opSoftplus", program.Erf: "opErf", program.ToBF16: "opToBF16", program.ToF16: "opToF16", program.Add: "opAdd", program.Sub: "opSub",
	program.Mul: "opMul", program.Product: "opProduct", program.Div: "opDiv", program.Pow: "opPow", program.Maximum: "opMaximum",
	program.Minimum: "opMinimum", program.Less: "opLess", program.LessEqual: "opLessEqual", program.Greater: "opGreater",
	program.GreaterEqual: "opGreaterEqual", program.Equal: "opEqual", program.NotEqual: "opNotEqual", program.Select: "opSelect",
}

// operands returns how many of A, B and C are registers.
func operands(op program.Scalar) int {
	switch {
	case op <= program.Rand:
		return 0
	case op < program.Add:
		return 1
	case op < program.Select:
		return 2
	}
	return 3
}

// emit generates the code of all registers. Errors: an unknown operation or a missing operand.
func (b *body) emit() error {
	b.where = make([]place, len(b.code))
	b.loaded = make([]bool, len(b.n.ins))
	for r, c := range b.code {
		switch c.Op {
		case program.Load:
			if c.A < 0 || c.A >= len(b.n.ins) {
				return fmt.Errorf("register %d loads In %d of %d", r, c.A, len(b.n.ins))
			}
			b.load(r, c.A)
		case program.Const:
			b.add(atTop, "const %s r%d = %s;", b.real, r, literal(c.Value, b.real == "double"))
		case program.Rand:
			b.rand(r, c)
		default:
			if err := b.apply(r, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *body) apply(r int, c program.Instr) error {
	name, ok := functions[c.Op]
	if !ok {
		return fmt.Errorf("register %d is of unknown scalar operation %d", r, c.Op)
	}
	var args []string
	for _, x := range []int{c.A, c.B, c.C}[:operands(c.Op)] {
		if x < 0 || x >= r {
			return fmt.Errorf("register %d reads register %d", r, x)
		}
		b.where[r] = max(b.where[r], b.where[x])
		args = append(args, fmt.Sprintf("r%d", x))
	}
	b.add(b.where[r], "const %s r%d = %s(%s);", b.real, r, name, strings.Join(args, ", "))
	return nil
}

// placeOf returns the loop level for a value indexed like a, and whether it is a vector there.
func (b *body) placeOf(a *access) (place, bool) {
	switch {
	case b.loop.fixed(a) && (b.kept == nil || b.kept.fixed(a)):
		return atTop, false
	case b.loop.fixed(a):
		return atKept, false
	case b.width == 1, b.lastStride(a) == 0:
		return atLoop, false
	}
	return atEach, a.vector(b.width)
}

// lastStride returns the stride of a over the V.
func (b *body) lastStride(a *access) int {
	if len(a.strides) == 0 {
		return 0
	}
	return a.strides[len(a.strides)-1]
}

// offset returns the offset of a from its pointer.
func (b *body) offset(a *access) string {
	var terms []string
	if b.kept != nil {
		terms = b.kept.terms(a)
	}
	return sum(append(terms, b.loop.terms(a)...))
}

// load generates register r, and q, the element itself, of In j.
func (b *body) load(r, j int) {
	a := &b.n.ins[j]
	at, vector := b.placeOf(a)
	b.where[r] = at
	element := fmt.Sprintf("a%d[%s]", j, b.offset(a))
	if slices.Contains(b.tiles, j) {
		element = fmt.Sprintf("t%d[column][row]", j)
	}
	if name := b.from[j]; name != "" {
		if element = name; at != atKept {
			element = fmt.Sprintf("%s[t].x[%s]", name, b.neighbour())
		}
	} else if at == atEach {
		if !b.loaded[j] && vector {
			b.add(atLoop, "const Vec<%s, %d> v%d = load<%d>(a%d + %s);", ctype(a.dtype), b.width, j, b.width, j, b.offset(a))
		} else if !b.loaded[j] {
			b.add(atLoop, "const %s o%d = %s;", b.index, j, b.offset(a))
		}
		b.loaded[j] = true
		if vector {
			element = fmt.Sprintf("v%d.x[k]", j)
		} else {
			element = fmt.Sprintf("a%d[o%d + k * %d]", j, j, b.lastStride(a))
		}
	}
	b.add(at, "const %s q%d = %s;", ctype(a.dtype), r, element)
	b.add(at, "const %s r%d = (%s)number(q%d);", b.real, r, b.real, r)
}

// rand generates register r from the number of the element in the space.
func (b *body) rand(r int, c program.Instr) {
	if !b.clock {
		b.add(atTop, "const u64 clockStep = clock[0], clockFirst = clock[1];")
		b.clock = true
	}
	at, _ := b.placeOf(&b.n.index)
	b.where[r] = at
	element := b.offset(&b.n.index)
	if at == atEach {
		element = fmt.Sprintf("%s + k * %d", element, b.lastStride(&b.n.index))
	}
	b.add(at, "const %s r%d = uniform<%s>(clockFirst * %d + (u64)(%s), clockStep, %#xull);", b.real, r, b.real, c.PerUnit, element, c.Key)
}

// store generates Out j from register r.
func (b *body) store(j, r int) {
	a := &b.n.outs[j]
	if b.width == 1 {
		fmt.Fprintf(&b.after, "    %s\n", b.set(fmt.Sprintf("b%d[%s]", j, b.offset(a)), j, r))
		return
	}
	b.add(atLoop, "Vec<%s, %d> w%d;", ctype(a.dtype), b.width, j)
	b.add(atEach, "%s", b.set(fmt.Sprintf("w%d.x[k]", j), j, r))
	fmt.Fprintf(&b.after, "    store<%d>(b%d + %s, w%d);\n", b.width, j, b.offset(a), j)
}

// set returns the statement that assigns register r to an element of Out j.
func (b *body) set(to string, j, r int) string {
	if b.code[r].Op == program.Load && b.n.ins[b.code[r].A].dtype == b.n.outs[j].dtype {
		return fmt.Sprintf("%s = q%d;", to, r) // the bits unchanged
	}
	return fmt.Sprintf("put(%s, r%d);", to, r)
}

// storeAll generates the Outs of a Map. Errors: an unknown register.
func (b *body) storeAll(op *program.Map) error {
	for j, r := range op.Stores {
		if r < 0 || r >= len(op.Code) {
			return fmt.Errorf("out %d is register %d of %d", j, r, len(op.Code))
		}
		b.store(j, r)
	}
	return nil
}

// turn returns the body of the loop. Call it after emit and store, which determine the coordinates.
func (b *body) turn() string {
	s := b.loop.coordinates(b.index, "    ") + b.lines[atLoop].String()
	if each := b.lines[atEach].String(); each != "" {
		s += fmt.Sprintf("#pragma unroll\n    for (int k = 0; k < %d; k++) {\n%s    }\n", b.width, each)
	}
	return s + b.after.String()
}

// literal returns x as an exact C literal.
func literal(x float64, wide bool) string {
	bits, suffix := 64, ""
	if !wide {
		bits, suffix = 32, "f"
		x = float64(float32(x))
	}
	switch {
	case math.IsNaN(x):
		return "__uint_as_float(0x7fc00000u)"
	case math.IsInf(x, 1):
		return "__uint_as_float(0x7f800000u)"
	case math.IsInf(x, -1):
		return "__uint_as_float(0xff800000u)"
	case x == math.Trunc(x) && math.Abs(x) < 1<<20 && !(x == 0 && math.Signbit(x)):
		return strconv.FormatFloat(x, 'f', 1, 64) + suffix
	}
	return strconv.FormatFloat(x, 'x', -1, bits) + suffix
}
