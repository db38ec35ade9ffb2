package lower

import (
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
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
	n, ok := ra.out.Drops[op]
	if !ok {
		n = len(ra.out.Drops)
		ra.out.Drops[op] = n
	}
	return n
}

// dropout lowers gorgonia.Dropout: it keeps an element, divided by 1-p, if its random number is
// below 1-p (op_dropout.go:112).
func (ra *randoms) dropout(c *current) (draft.Operand, error) {
	return ra.dropped(c, c.in[0], reflect.ValueOf(c.n.Op()).Pointer())
}

// dropoutGrad applies the dropout of the forward pass to dy, with the same random numbers.
func (ra *randoms) dropoutGrad(c *current) (draft.Operand, error) {
	return ra.dropped(c, c.in[2], uintptr(c.f.pointer("dropoutOp")))
}

func (ra *randoms) dropped(c *current, x draft.Operand, op uintptr) (draft.Operand, error) {
	p := c.f.float("probability")
	ra.out.Marks = append(ra.out.Marks, markFlag(c.f.flag("isTraining")))
	switch {
	case p == 0 || !c.f.bool("isTraining"):
		return x, nil
	case !(p > 0 && p < 1):
		return draft.Operand{}, fmt.Errorf("a probability of %v", p)
	}
	keep, n := 1-p, ra.number(op)
	m := ra.NewCode(x.Shape)
	r := m.Do(program.Less, ra.draw(m, dropoutKey, n), m.Constant(keep))
	return m.Result(m.Do(program.Select, r, m.Do(program.Div, m.Load(x), m.Constant(keep)), m.Constant(0)), c.dtype)
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
func (ra *randoms) draw(m *draft.Code, kind, n int) int {
	if ra.Program.Clock == program.None {
		ra.Program.Clock = ra.Program.Add(program.Value{
			Name: "clock", DType: tensor.U64, Shape: []int{2}, Role: program.Input, Place: program.Outside,
		})
	}
	size := draft.SizeOf(m.Space)
	unit := size / max(ra.out.Samples, 1)
	if ra.out.Samples == 0 || size%ra.out.Samples != 0 {
		unit = size
		if len(m.Space) > 0 {
			unit = size / max(m.Space[0], 1)
		}
	}
	key := ra.seed*0x9e3779b97f4a7c15 + uint64(kind)<<32 + uint64(n) + 1
	return m.Put(program.Instr{Op: program.Rand, Key: key, PerUnit: unit})
}

// random lowers gorgonia.UniformRandomNode, GaussianRandomNode and BinomialRandomNode, drawn anew
// at each run.
func (ra *randoms) random(c *current) (draft.Operand, error) {
	a, b, which := c.f.float("a"), c.f.float("b"), c.f.code("which")
	n := ra.number(uintptr(c.n.ID())) // each node draws its own
	m := ra.NewCode(ra.sizes.of(c.n))
	switch which {
	case 0:
		u := ra.draw(m, uniformKey, n)
		return m.Result(m.Do(program.Add, m.Do(program.Mul, u, m.Constant(b-a)), m.Constant(a)), c.dtype)
	case 1: // Box and Muller: sqrt(-2 ln u) cos(2 pi v), with u in (0, 1]
		u := m.Do(program.Sub, m.Constant(1), ra.draw(m, normalKey, 2*n))
		r := m.Do(program.Sqrt, m.Do(program.Mul, m.Constant(-2), m.Do(program.Log, u)))
		angle := m.Do(program.Mul, m.Constant(2*math.Pi), ra.draw(m, normalKey, 2*n+1))
		z := m.Do(program.Mul, r, m.Do(program.Cos, angle))
		return m.Result(m.Do(program.Add, m.Do(program.Mul, z, m.Constant(b)), m.Constant(a)), c.dtype)
	case 2:
		return ra.binomial(c, n, a, b)
	}
	return draft.Operand{}, fmt.Errorf("random numbers of distribution %d", which)
}

// binomial lowers gorgonia.BinomialRandomNode: it counts the trials whose random number is below p.
func (ra *randoms) binomial(c *current, key int, trials, p float64) (draft.Operand, error) {
	if trials < 0 || trials != math.Trunc(trials) || !(p >= 0 && p <= 1) {
		return draft.Operand{}, fmt.Errorf("%v trials of probability %v", trials, p)
	}
	shape := ra.sizes.of(c.n)
	m := ra.NewCode(append(slices.Clone(shape), int(trials)))
	m.Do(program.Less, ra.draw(m, binomialKey, key), m.Constant(p))
	reduced := make([]bool, len(m.Space))
	reduced[len(shape)] = true
	return m.ReduceTo(reduced, program.Sum, ra.Fresh(c.dtype, shape))
}
