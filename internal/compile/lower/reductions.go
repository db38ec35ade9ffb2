package lower

import (
	"fmt"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/tensor"
)

// reductions has the rules of sums and maxima over axes.
type reductions struct {
	work
}

func (re *reductions) rules() map[string]rule {
	return map[string]rule{
		"gorgonia.sumOp":  {inputs: 1, lower: re.sum},
		"gorgonia.maxOp":  {inputs: 1, lower: re.max},
		"*gorgonia.maxOp": {inputs: 1, lower: re.max},
	}
}

// sum lowers gorgonia.Sum.
func (re *reductions) sum(c *current) (draft.Operand, error) { return re.reduce(c, program.Sum) }

// max lowers gorgonia.Max.
func (re *reductions) max(c *current) (draft.Operand, error) { return re.reduce(c, program.Max) }

// reduce reduces axes, which are dropped; all axes by default.
func (re *reductions) reduce(c *current, red program.Reduction) (draft.Operand, error) {
	x := c.in[0]
	reduced, kept, err := reducedAxes(x.Shape, c.f.ints("along"))
	if err != nil {
		return draft.Operand{}, err
	}
	if x.IsNum && (red == program.Max || isSmall(x.Num*float64(x.Len()), c.dtype)) {
		if red == program.Sum {
			x.Num *= float64(x.Len() / draft.SizeOf(kept))
		}
		return draft.Number(x.Num, c.dtype, kept), nil
	}
	m := re.NewCode(x.Shape)
	m.Load(x)
	return m.ReduceTo(reduced, red, re.Fresh(c.dtype, kept))
}

// reducedAxes reports which axes a reduction along some of them drops, and returns the lengths of
// the others. Without axes it drops all.
func reducedAxes(shape, along []int) (reduced []bool, kept []int, err error) {
	reduced = make([]bool, len(shape))
	for _, a := range along {
		if a < 0 || a >= len(reduced) {
			return nil, nil, fmt.Errorf("axis %d of shape %v", a, shape)
		}
		reduced[a] = true
	}
	for a, d := range shape {
		reduced[a] = reduced[a] || len(along) == 0
		if !reduced[a] {
			kept = append(kept, d)
		}
	}
	return reduced, kept, nil
}

// isSmall reports whether v, and each partial sum of it, is an integer without rounding.
func isSmall(v float64, dt tensor.DType) bool {
	bound := 1e15
	if dt == tensor.F32 {
		bound = 1 << 24
	}
	return v == float64(int64(v)) && v < bound && v > -bound
}
