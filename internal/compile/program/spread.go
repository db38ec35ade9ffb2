package program

// A spread is an in-place AllGather of parameters whose parts the ranks have updated. The sum of
// the gradients and the updates precede it. Or it precedes all readers and gathers the updates of
// the previous run. A rank without parameters in its part has no updates, but takes part in the
// spread.

// spreadOf reports whether step i is a spread, equally on all ranks, and the value that it gathers.
func spreadOf(p *Program, i int) (home ID, ok bool) {
	o, ok := p.Steps[i].Op.(*Collective)
	if !ok || o.parted() != partIn || o.Fetch {
		return 0, false
	}
	home = p.Steps[i].In[0].Value
	return home, p.Steps[i].outOf(home) >= 0
}

// opens reports whether step i spreads updates of the previous run: no earlier step touches the
// value. A spread of this run's updates follows a sum of gradients on all ranks, even on a rank
// without readers or updates.
func opens(p *Program, i int) bool {
	home, ok := spreadOf(p, i)
	if !ok {
		return false
	}
	for j := range i {
		if sums(p, j) || readsValue(&p.Steps[j], home) || p.Steps[j].outOf(home) >= 0 {
			return false
		}
	}
	return true
}

// updatesBefore returns the last Map before step i that writes home, or -1.
func updatesBefore(p *Program, i int, home ID) int {
	for j := i - 1; j >= 0; j-- {
		if _, ok := p.Steps[j].Op.(*Map); ok && p.Steps[j].outOf(home) >= 0 {
			return j
		}
	}
	return -1
}

// sinkAllGathers moves each spread after the sums of gradients that follow it, until these have
// about as many elements. Spreads keep their order. Collectives run in order, so these sums would
// otherwise wait for the updates. After the pass the updates overlap the sums (see
// prioritizeUpdates), and spreads overlap the next updates. A spread is not moved past a step that
// touches the parameters, or past a Call. A spread of the previous run's updates stays in place.
func sinkAllGathers(p *Program) {
	behind := make([][]int, len(p.Steps)) // by step, the spreads that follow it
	moved := make([]bool, len(p.Steps))
	least := -1
	for i := range p.Steps {
		home, ok := spreadOf(p, i)
		if !ok || opens(p, i) {
			continue
		}
		to, passed := i, 0
		for j := i + 1; j < len(p.Steps) && (!asMany(passed, p.Values[home].Len()) || j <= least) && independentOf(p, j, home); j++ {
			if sums(p, j) {
				to, passed = j, passed+carried(p, j)
			}
		}
		if to > i {
			behind[to], moved[i] = append(behind[to], i), true
		}
		least = max(least, to)
	}
	steps := make([]Step, 0, len(p.Steps))
	for i := range p.Steps {
		if !moved[i] {
			steps = append(steps, p.Steps[i])
		}
		for _, j := range behind[i] {
			steps = append(steps, p.Steps[j])
		}
	}
	p.Steps = steps
}

// independentOf reports whether step j does not touch home and is not a Call.
func independentOf(p *Program, j int, home ID) bool {
	s := &p.Steps[j]
	_, call := s.Op.(*Call)
	return !call && !readsValue(s, home) && s.outOf(home) < 0
}

// sums reports whether step j is a collective that should not be delayed: any except a gather of
// parts or a fetch. In a training step nearly all of them sum gradients.
func sums(p *Program, j int) bool {
	o, ok := p.Steps[j].Op.(*Collective)
	return ok && o.parted() != partIn && !o.Fetch
}

// spreads moves to the Comm stream the Maps that update a spread's value, with Maps of collectives'
// results that these need. It does so if a sum of gradients follows the spread and none is between
// updates and spread. On Compute the updates would run after all steps that wait for no collective,
// and the sum would wait for them.
func spreads(p *Program) {
	f := flowOf(p)
	for i := range p.Steps {
		home, ok := spreadOf(p, i)
		if !ok || !keepsWaiting(p, i, home) {
			continue
		}
		for j := range i {
			if _, ok := p.Steps[j].Op.(*Map); ok && p.Steps[j].outOf(home) >= 0 {
				p.Steps[j].Stream = Comm
				f.lead(j)
			}
		}
	}
}

// keepsWaiting reports whether spread i would delay a sum: one follows it, and none is between it
// and its updates.
func keepsWaiting(p *Program, i int, home ID) bool {
	for j := updatesBefore(p, i, home) + 1; j < i; j++ {
		if sums(p, j) {
			return false
		}
	}
	for j := i + 1; j < len(p.Steps); j++ {
		if sums(p, j) {
			return true
		}
	}
	return false
}
