package machine

import "github.com/symgrad/symgrad/internal/program"

// finish optimizes the program and plans its memory.
func (l *lowered) finish(o *loweringOptions) error {
	l.p.Rows, l.p.Again, l.p.Aside = o.OnGPU, o.OnGPU, o.Aside != nil && o.Aside(l.p, l.groups)
	if o.Narrow {
		l.p.Narrow = program.NarrowFrom
	}
	var err error
	if o.NoOptimize {
		err = program.Pack(l.p)
	} else {
		err = program.Optimize(l.p)
	}
	if err != nil {
		return err
	}
	l.removeUnusedValues()
	return program.Plan(l.p)
}

// removeUnusedValues drops values that no step uses, except those placed outside the program.
func (l *lowered) removeUnusedValues() {
	p := l.p
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
	for _, all := range [][]binding{l.inputs, l.outputs, l.duals} {
		for i := range all {
			move(&all[i].id)
		}
	}
	for i := range l.states {
		move(&l.states[i].id)
	}
	for i := range l.fixed {
		move(&l.fixed[i].id)
	}
	move(&l.norm)
	move(&l.skipped)
	for _, id := range l.follow {
		move(id)
	}
	for _, h := range l.hooks {
		move(&h.grad)
		move(&h.reduced)
	}
}
