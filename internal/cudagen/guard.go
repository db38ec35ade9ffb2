package cudagen

import (
	"slices"

	"github.com/symgrad/symgrad/internal/program"
)

// keeper returns the register of a Map whose nonzero value leaves the memory unchanged, if there is
// one and it is equal for all elements: Select(register, old value, anything), in place. Then
// threads return at once, and a Map over all gradients for a rare case costs one launch.
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
