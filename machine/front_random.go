package machine

import (
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/tensor"
)

// randoms has the rules of dropouts and of nodes that draw random numbers.
type randoms struct {
	work
	seed uint64
}

func (ra *randoms) rules() map[string]rule {
	return map[string]rule{
		"*gorgonia.dropoutOp":     {inputs: 1, lower: ra.dropout},
		"*gorgonia.dropoutDiffOp": {inputs: 3, lower: ra.dropoutGrad},
		"gorgonia.randomOp":       {lower: ra.random, moves: true},
	}
}

// number returns the number of a dropout or a random node.
func (ra *randoms) number(op uintptr) int {
	n, ok := ra.out.drops[op]
	if !ok {
		n = len(ra.out.drops)
		ra.out.drops[op] = n
	}
	return n
}

// dropout lowers gorgonia.Dropout: it keeps an element, divided by 1-p, if its random number is
// below 1-p (op_dropout.go:112).
func (ra *randoms) dropout(c *current) (operand, error) {
	return ra.dropped(c, c.in[0], reflect.ValueOf(c.n.Op()).Pointer())
}

// dropoutGrad applies the dropout of the forward pass to dy, with the same random numbers.
func (ra *randoms) dropoutGrad(c *current) (operand, error) {
	return ra.dropped(c, c.in[2], uintptr(c.f.pointer("dropoutOp")))
}

func (ra *randoms) dropped(c *current, x operand, op uintptr) (operand, error) {
	p := c.f.float("probability")
	ra.out.marks = append(ra.out.marks, markFlag(c.f.flag("isTraining")))
	switch {
	case p == 0 || !c.f.bool("isTraining"):
		return x, nil
	case !(p > 0 && p < 1):
		return operand{}, fmt.Errorf("a probability of %v", p)
	}
	keep, n := 1-p, ra.number(op)
	m := ra.newCode(x.shape)
	r := m.do(program.Less, ra.draw(m, dropoutKey, n), m.constant(keep))
	return m.result(m.do(program.Select, r, m.do(program.Div, m.load(x), m.constant(keep)), m.constant(0)), c.dtype)
}

// Kinds of random numbers. Each use of one has its own key.
const (
	dropoutKey = iota
	uniformKey
	normalKey
	binomialKey
)

// draw returns the register of a random number in [0, 1), use number n of a kind. The numbers of a
// sample depend on its place in the whole batch, not on its place in this rank's batch.
func (ra *randoms) draw(m *code, kind, n int) int {
	if ra.p.Clock == program.None {
		ra.p.Clock = ra.p.Add(program.Value{
			Name: "clock", DType: tensor.U64, Shape: []int{2}, Role: program.Input, Place: program.Outside,
		})
	}
	size := sizeOf(m.space)
	unit := size / max(ra.out.samples, 1)
	if ra.out.samples == 0 || size%ra.out.samples != 0 {
		unit = size
		if len(m.space) > 0 {
			unit = size / max(m.space[0], 1)
		}
	}
	key := ra.seed*0x9e3779b97f4a7c15 + uint64(kind)<<32 + uint64(n) + 1
	return m.put(program.Instr{Op: program.Rand, Key: key, PerUnit: unit})
}

// random lowers gorgonia.UniformRandomNode, GaussianRandomNode and BinomialRandomNode, drawn anew
// at each run.
func (ra *randoms) random(c *current) (operand, error) {
	a, b, which := c.f.float("a"), c.f.float("b"), c.f.code("which")
	n := ra.number(uintptr(c.n.ID())) // each node draws its own
	m := ra.newCode(ra.sizes.of(c.n))
	switch which {
	case 0:
		u := ra.draw(m, uniformKey, n)
		return m.result(m.do(program.Add, m.do(program.Mul, u, m.constant(b-a)), m.constant(a)), c.dtype)
	case 1: // Box and Muller: sqrt(-2 ln u) cos(2 pi v), with u in (0, 1]
		u := m.do(program.Sub, m.constant(1), ra.draw(m, normalKey, 2*n))
		r := m.do(program.Sqrt, m.do(program.Mul, m.constant(-2), m.do(program.Log, u)))
		angle := m.do(program.Mul, m.constant(2*math.Pi), ra.draw(m, normalKey, 2*n+1))
		z := m.do(program.Mul, r, m.do(program.Cos, angle))
		return m.result(m.do(program.Add, m.do(program.Mul, z, m.constant(b)), m.constant(a)), c.dtype)
	case 2:
		return ra.binomial(c, n, a, b)
	}
	return operand{}, fmt.Errorf("random numbers of distribution %d", which)
}

// binomial lowers gorgonia.BinomialRandomNode: it counts the trials whose random number is below p.
func (ra *randoms) binomial(c *current, key int, trials, p float64) (operand, error) {
	if trials < 0 || trials != math.Trunc(trials) || !(p >= 0 && p <= 1) {
		return operand{}, fmt.Errorf("%v trials of probability %v", trials, p)
	}
	shape := ra.sizes.of(c.n)
	m := ra.newCode(append(slices.Clone(shape), int(trials)))
	m.do(program.Less, ra.draw(m, binomialKey, key), m.constant(p))
	reduced := make([]bool, len(m.space))
	reduced[len(shape)] = true
	return m.reduceTo(reduced, program.Sum, ra.fresh(c.dtype, shape))
}
