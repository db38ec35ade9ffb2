package lower

import (
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// finish optimizes the program and plans its memory.
func (l *Lowered) finish(o *Options) error {
	l.Program.Rows, l.Program.Again, l.Program.Aside = o.OnGPU, o.OnGPU, o.Aside != nil && o.Aside(l.Program, l.Groups)
	if o.Narrow.Valid() {
		l.Program.Narrow, l.Program.NarrowTo = program.NarrowFrom, o.Narrow
	}
	l.Program.Recompute, l.Program.ArenaLimit = o.Recompute, l.arenaLimit(o)
	var err error
	if o.NoOptimize {
		err = program.Pack(l.Program)
	} else {
		err = program.Optimize(l.Program)
	}
	if err != nil {
		return err
	}
	l.removeUnusedValues()
	return program.Plan(l.Program)
}

// arenaLimit returns the bytes that o.Memory leaves for the arena: at least 1 if there is a limit.
func (l *Lowered) arenaLimit(o *Options) int64 {
	if o.Memory <= 0 {
		return 0
	}
	left := o.Memory
	for i := range l.Program.Values {
		switch v := &l.Program.Values[i]; {
		case v.Place == program.Constant:
			left -= v.Bytes()
		case v.Place == program.Outside && v.Role == program.Input && o.OnGPU && program.ID(i) != l.Program.Clock:
			const sides = 2 // one is copied while the other is read
			left -= sides * v.Bytes()
		}
	}
	for _, b := range l.Outputs {
		if !b.Slot && !l.isReduced(b.ID) {
			left -= l.Program.Values[b.ID].Bytes()
		}
	}
	return max(left, 1)
}

// isReduced reports whether a value is a gradient in the memory of its reducer.
func (l *Lowered) isReduced(id program.ID) bool {
	return slices.ContainsFunc(l.Hooks, func(h *Hook) bool { return h.Reduced == id })
}

// removeUnusedValues drops values that no step uses, except those placed outside the program.
func (l *Lowered) removeUnusedValues() {
	p := l.Program
	used := make([]bool, len(p.Values))
	views := func(f func(v *program.View)) {
		for i := range p.Steps {
			for k := range p.Steps[i].In {
				f(&p.Steps[i].In[k])
			}
			for k := range p.Steps[i].Out {
				f(&p.Steps[i].Out[k])
			}
		}
	}
	views(func(v *program.View) { used[v.Value] = true })
	at := make([]program.ID, len(p.Values))
	kept := p.Values[:0]
	for i, v := range p.Values {
		at[i] = program.None
		if used[i] || v.Place == program.Outside {
			at[i] = program.ID(len(kept))
			kept = append(kept, v)
		}
	}
	p.Values = kept
	move := func(id *program.ID) {
		if *id != program.None {
			*id = at[*id]
		}
	}
	done := map[*program.View]bool{} // steps may share a slice of views
	views(func(v *program.View) {
		if !done[v] {
			done[v] = true
			move(&v.Value)
		}
	})
	move(&p.Clock)
	for _, all := range [][]Binding{l.Inputs, l.Outputs, l.Duals} {
		for i := range all {
			move(&all[i].ID)
		}
	}
	for i := range l.States {
		move(&l.States[i].ID)
	}
	for i := range l.Fixed {
		move(&l.Fixed[i].ID)
	}
	move(&l.Norm)
	move(&l.Skipped)
	for _, id := range l.follow {
		move(id)
	}
	for _, h := range l.Hooks {
		move(&h.Grad)
		move(&h.Reduced)
	}
}
