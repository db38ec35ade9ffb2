package lower

import (
	"fmt"
	"slices"

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

// rope lowers an nnop.RoPE to one Map: each element times its cosine, and the other element of its
// pair times its sine. The other elements are a view with a negative stride.
func (la *layers) rope(c *current) (draft.Operand, error) {
	op, ok := c.n.Op().(*nnop.RoPE)
	x := la.Stored(c.in[0])
	if !ok || len(x.Shape) != 4 || x.Shape[3]%2 != 0 {
		return draft.Operand{}, fmt.Errorf("a rotation of shape %v", x.Shape)
	}
	half := x.Shape[3] / 2
	last, pair := []int{2, half}, 3 // the axis of the two elements of a pair
	if op.Interleaved {
		last, pair = []int{half, 2}, 4
	}
	space := append(slices.Clone(x.Shape[:3]), last...)
	x = la.Reshape(x, space)
	other := x
	other.View.Strides = slices.Clone(x.View.Strides)
	other.View.Offset += other.View.Strides[pair]
	other.View.Strides[pair] *= -1
	angle := func(o draft.Operand) draft.Operand { // (tokens, depth) over the space
		o = la.Reshape(la.Stored(o), append([]int{1, space[1], 1}, last...))
		return draft.Stretch(draft.Stretch(o, 0, space[0]), 2, space[2])
	}
	m := la.NewCode(space)
	turned := m.Do(program.Mul, m.Load(other), m.Load(angle(c.in[2])))
	sum := program.Add
	if op.Inverse {
		sum = program.Sub
	}
	y, err := m.Result(m.Do(sum, m.Do(program.Mul, m.Load(x), m.Load(angle(c.in[1]))), turned), c.dtype)
	if err != nil {
		return y, err
	}
	return la.Reshape(y, c.in[0].Shape), nil
}
