package cudagen

import (
	"slices"

	"github.com/symgrad/symgrad/internal/program"
)

// keeper returns the register of a Map that leaves its memory unchanged if that register is not 0,
// and whether there is one that is equal for all elements: Select(register, present value,
// anything), in place. Then a thread has nothing to do, and a Map over all gradients for a rare
// case costs one launch.
func (f *flat) keeper(g *generator, i int, op *program.Map) (int, bool) {
	if len(op.Stores) != 1 || op.Code[op.Stores[0]].Op != program.Select {
		return 0, false
	}
	c := op.Code[op.Stores[0]]
	if f.where[c.A] != atTop || op.Code[c.B].Op != program.Load {
		return 0, false
	}
	from, to := &g.p.Steps[i].In[op.Code[c.B].A], &g.p.Steps[i].Out[0]
	if from.Value != to.Value || from.Offset != to.Offset || !slices.Equal(from.Strides, to.Strides) {
		return 0, false
	}
	return c.A, true
}
