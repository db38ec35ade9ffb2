package program

import (
	"math"
	"slices"

	"github.com/symgrad/symgrad/tensor"
)

// Limits of one fused Map or Reduce. Larger ones would exceed the parameters and registers of a
// kernel.
const (
	maxIns    = 12
	maxOuts   = 8
	maxInstrs = 64
)

// elementwise is a Map or a Reduce in the form that passes rewrite.
type elementwise struct {
	space []int
	in    []View
	code  []Instr
	roots []int // registers that are stored or reduced
}

func elementsOf(s *Step) (*elementwise, bool) {
	switch o := s.Op.(type) {
	case *Map:
		return &elementwise{o.Space, s.In, o.Code, o.Stores}, true
	case *Reduce:
		return &elementwise{o.Space, s.In, o.Code, []int{len(o.Code) - 1}}, true
	}
	return nil, false
}

// tidy simplifies code: it folds constants, drops operations without effect and repeated ones, and
// then Ins that no register loads. It computes the same bits.
func (e *elementwise) tidy(p *Program, f32 bool) *elementwise {
	t := &tidier{p: p, e: e, f32: f32, alias: make([]int, len(e.code)), known: map[Instr]int{}}
	for r := range e.code {
		t.alias[r] = t.add(e.code[r])
	}
	roots := make([]int, len(e.roots))
	for k, r := range e.roots {
		roots[k] = t.alias[r]
	}
	return (&elementwise{e.space, e.in, t.code, roots}).prune()
}

type tidier struct {
	p     *Program
	e     *elementwise
	f32   bool
	code  []Instr
	alias []int         // the new register of each old one
	known map[Instr]int // registers by their instruction
}

// add returns the register that computes an old instruction.
func (t *tidier) add(in Instr) int {
	switch in.Op.arity() {
	case 3:
		in.A, in.B, in.C = t.alias[in.A], t.alias[in.B], t.alias[in.C]
	case 2:
		in.A, in.B, in.C = t.alias[in.A], t.alias[in.B], 0
	case 1:
		in.A, in.B, in.C = t.alias[in.A], 0, 0
	}
	switch in.Op {
	case Load:
		in = t.load(in)
	case Const:
		in = Instr{Op: Const, Value: t.round(in.Value)}
	case Rand:
		in = Instr{Op: Rand, Key: in.Key, PerUnit: in.PerUnit}
	default:
		in = Instr{Op: in.Op, A: in.A, B: in.B, C: in.C}
		if r, ok := t.trivial(&in); ok {
			return r
		}
	}
	key := in
	if in.Op == Const { // -0 differs from 0, and a NaN is equal to itself here
		key.Key, key.Value = math.Float64bits(in.Value), 0
	}
	if r, ok := t.known[key]; ok {
		return r
	}
	t.code = append(t.code, in)
	t.known[key] = len(t.code) - 1
	return len(t.code) - 1
}

func (t *tidier) round(x float64) float64 {
	if t.f32 {
		return float64(float32(x))
	}
	return x
}

// load returns the load of an In, the first of equal ones. If the In is one repeated number, it
// returns a constant.
func (t *tidier) load(in Instr) Instr {
	v := &t.e.in[in.A]
	k := slices.IndexFunc(t.e.in, func(w View) bool { return sameView(t.e.space, &w, v) })
	if x, ok := uniform(t.p, v, t.e.space); ok {
		return Instr{Op: Const, Value: t.round(x)}
	}
	return Instr{Op: Load, A: k}
}

// uniform returns the number that a view of a constant repeats. Integers that float32 cannot hold
// stay loads.
func uniform(p *Program, v *View, space []int) (float64, bool) {
	val := &p.Values[v.Value]
	if val.Place != Constant || lenOf(space) == 0 {
		return 0, false
	}
	lo, hi := v.bounds(space)
	if n := val.DType.Size(); hi > lo {
		first := val.Data[lo*n : (lo+1)*n]
		for e := lo; e <= hi; e++ {
			if !slices.Equal(first, val.Data[e*n:(e+1)*n]) {
				return 0, false
			}
		}
	}
	x := Element(val.DType, val.Data, lo)
	return x, val.DType.IsFloat() || math.Abs(x) <= 1<<24
}

// trivial returns the register that is equal to an instruction, bit by bit. Otherwise it may
// replace the instruction by a simpler one.
func (t *tidier) trivial(in *Instr) (int, bool) {
	args := in.args()
	constant := true
	for _, a := range args {
		constant = constant && t.code[a].Op == Const
	}
	if constant {
		var x [3]float64
		for k, a := range args {
			x[k] = t.code[a].Value
		}
		*in = Instr{Op: Const, Value: in.Op.Eval(t.f32, x[0], x[1], x[2])}
		return 0, false
	}
	switch in.Op {
	case Neg:
		if t.code[in.A].Op == Neg {
			return t.code[in.A].A, true
		}
	case Mul:
		return t.product(in)
	case Div:
		return t.quotient(in)
	case Sub:
		if t.is(in.B, 0) { // x-(+0) is x, for -0 too
			return in.A, true
		}
	case Add: // x+(-0) is x; x+0 is not, for x = -0
		if t.is(in.B, math.Copysign(0, -1)) {
			return in.A, true
		}
		if t.is(in.A, math.Copysign(0, -1)) {
			return in.B, true
		}
	case Select:
		if c := &t.code[in.A]; c.Op == Const {
			if c.Value != 0 {
				return in.B, true
			}
			return in.C, true
		}
	}
	return 0, false
}

// is reports whether a register is the constant x, including its sign.
func (t *tidier) is(r int, x float64) bool {
	c := &t.code[r]
	return c.Op == Const && math.Float64bits(c.Value) == math.Float64bits(x)
}

func (t *tidier) product(in *Instr) (int, bool) {
	for _, pair := range [][2]int{{in.A, in.B}, {in.B, in.A}} {
		switch {
		case t.is(pair[0], 1):
			return pair[1], true
		case t.is(pair[0], -1):
			*in = Instr{Op: Neg, A: pair[1]}
			return 0, false
		}
	}
	return 0, false
}

// quotient replaces a division by a power of two by a multiplication, which is as exact.
func (t *tidier) quotient(in *Instr) (int, bool) {
	c := &t.code[in.B]
	if c.Op != Const {
		return 0, false
	}
	if c.Value == 1 {
		return in.A, true
	}
	if frac, exp := math.Frexp(c.Value); math.Abs(frac) == 0.5 && exp > -100 && exp < 100 {
		inverse := Instr{Op: Const, Value: 1 / c.Value}
		in.Op, in.B = Mul, t.constant(inverse)
	}
	return 0, false
}

func (t *tidier) constant(in Instr) int {
	key := Instr{Op: Const, Key: math.Float64bits(in.Value)}
	if r, ok := t.known[key]; ok {
		return r
	}
	t.code = append(t.code, in)
	t.known[key] = len(t.code) - 1
	return len(t.code) - 1
}

// prune drops registers that no root needs and Ins that no register loads.
func (e *elementwise) prune() *elementwise {
	need := make([]bool, len(e.code))
	for _, r := range e.roots {
		need[r] = true
	}
	for r := len(e.code) - 1; r >= 0; r-- {
		if !need[r] {
			continue
		}
		for _, a := range e.code[r].args() {
			need[a] = true
		}
	}
	n := &elementwise{space: e.space}
	at, ins := make([]int, len(e.code)), make([]int, len(e.in))
	for k := range ins {
		ins[k] = -1
	}
	for r, in := range e.code {
		if !need[r] {
			continue
		}
		if in.Op == Load {
			if ins[in.A] < 0 {
				ins[in.A] = len(n.in)
				n.in = append(n.in, e.in[in.A])
			}
			in.A = ins[in.A]
		} else {
			in = in.moved(at)
		}
		at[r] = len(n.code)
		n.code = append(n.code, in)
	}
	for _, r := range e.roots {
		n.roots = append(n.roots, at[r])
	}
	return n
}

// moved returns the instruction with renumbered registers.
func (in Instr) moved(at []int) Instr {
	n := in.Op.arity()
	if n > 0 {
		in.A = at[in.A]
	}
	if n > 1 {
		in.B = at[in.B]
	}
	if n > 2 {
		in.C = at[in.C]
	}
	return in
}

// put stores e in a step, unless the step would then compute in another type.
func (e *elementwise) put(p *Program, s *Step) bool {
	n := *s
	n.In = e.in
	switch o := s.Op.(type) {
	case *Map:
		n.Op = &Map{Space: e.space, Code: e.code, Stores: e.roots}
	case *Reduce:
		n.Op = &Reduce{Space: e.space, Reduced: o.Reduced, Red: o.Red, Code: e.code}
	}
	if single(p, &n) != single(p, s) {
		return false
	}
	*s = n
	return true
}

// work returns the number of instructions that compute.
func work(code []Instr) int {
	n := 0
	for i := range code {
		if op := code[i].Op; op != Load && op != Const {
			n++
		}
	}
	return n
}

func has(code []Instr, op Scalar) bool {
	return slices.ContainsFunc(code, func(in Instr) bool { return in.Op == op })
}

// copies reports whether s is a Map that copies bit by bit.
func copies(p *Program, s *Step) bool {
	m, ok := s.Op.(*Map)
	return ok && len(s.In) == 1 && len(s.Out) == 1 && m.Code[m.Stores[0]].Op == Load &&
		p.Values[s.In[0].Value].DType == p.Values[s.Out[0].Value].DType
}

// carries reports whether a value holds registers of f32 or f64 arithmetic as they are. f16 and
// bf16 count as f32: skipping the rounding in between only improves results.
func carries(dt tensor.DType, f32 bool) bool {
	if f32 {
		return dt == tensor.F32 || dt == tensor.F16 || dt == tensor.BF16
	}
	return dt == tensor.F64
}
