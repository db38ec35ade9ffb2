package lower

import (
	"fmt"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/internal/nnop"
)

// layers has the rules of the ops of package nn.
type layers struct {
	work
}

func (la *layers) rules() map[string]rule {
	return map[string]rule{
		"*nnop.RoPE": {inputs: 3, lower: la.rope},
	}
}

// rope lowers an nnop.RoPE to one Map over pairs, which stores both elements of each.
func (la *layers) rope(c *current) (draft.Operand, error) {
	op, ok := c.n.Op().(*nnop.RoPE)
	x := la.Stored(c.in[0])
	if !ok || len(x.Shape) != 4 || x.Shape[3]%2 != 0 {
		return draft.Operand{}, fmt.Errorf("a rotation of shape %v", x.Shape)
	}
	half := x.Shape[3] / 2
	space := []int{x.Shape[0], x.Shape[1], x.Shape[2], half}
	from, step := half, 1
	if op.Interleaved {
		from, step = 1, 2
	}
	pair := func(o draft.Operand) (a, b draft.Operand) {
		return draft.Cut(o, 3, 0, step, half), draft.Cut(o, 3, from, step, half)
	}
	angle := func(o draft.Operand) draft.Operand { // (tokens, half) over the space
		o = la.Reshape(la.Stored(o), []int{1, space[1], 1, half})
		return draft.Stretch(draft.Stretch(o, 0, space[0]), 2, space[2])
	}
	m := la.NewCode(space)
	first, second := pair(x)
	a, b, cos, sin := m.Load(first), m.Load(second), m.Load(angle(c.in[1])), m.Load(angle(c.in[2]))
	less, more := program.Sub, program.Add
	if op.Inverse {
		less, more = more, less
	}
	p := m.Do(less, m.Do(program.Mul, a, cos), m.Do(program.Mul, b, sin))
	q := m.Do(more, m.Do(program.Mul, b, cos), m.Do(program.Mul, a, sin))
	to := la.Fresh(c.dtype, x.Shape)
	first, second = pair(to)
	return to, m.Store([]draft.Operand{first, second}, p, q)
}
