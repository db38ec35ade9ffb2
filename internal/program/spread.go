package program

// A spread is an AllGather, in place, of what each rank has updated of its part of the parameters.
// The updates stand before it, and before these the sum of the gradients; or it stands before all
// that reads them, and the updates were those of the run before. A rank whose part has no
// parameters has no updates, but the spread all the same.

// spreadOf is the value that step i spreads, and whether it is a spread: the same on all ranks.
func (p *Program) spreadOf(i int) (home ID, ok bool) {
	o, ok := p.Steps[i].Op.(*Collective)
	if !ok || o.parted() != partIn || o.Fetch {
		return 0, false
	}
	home = p.Steps[i].In[0].Value
	return home, p.Steps[i].outOf(home) >= 0
}

// opens reports whether step i spreads what was updated before the run: nothing has touched it yet.
// Of a spread of what the run updates, the sum of its gradients comes before it on all ranks, also
// where nobody reads or updates it.
func (p *Program) opens(i int) bool {
	home, ok := p.spreadOf(i)
	if !ok {
		return false
	}
	for j := range i {
		if p.sums(j) || readsValue(&p.Steps[j], home) || p.Steps[j].outOf(home) >= 0 {
			return false
		}
	}
	return true
}

// updatesBefore is the last Map before step i that writes home; -1 if there is none.
func (p *Program) updatesBefore(i int, home ID) int {
	for j := i - 1; j >= 0; j-- {
		if _, ok := p.Steps[j].Op.(*Map); ok && p.Steps[j].outOf(home) >= 0 {
			return j
		}
	}
	return -1
}

// sinkAllGathers puts each spread behind sums of gradients that stand behind it and have about as
// many elements, and not before the spread before it. Collectives keep their order, so that these
// sums would wait for the updates otherwise; now the updates run while the sums are on their way
// (see hurry), and spreads while the next updates do. A spread is not put behind a step that has to
// do with the parameters, or a Call; one of what was updated before the run stays where it is.
func sinkAllGathers(p *Program) {
	behind := make([][]int, len(p.Steps)) // of each step, the spreads that are put behind it
	moved := make([]bool, len(p.Steps))
	least := -1
	for i := range p.Steps {
		home, ok := p.spreadOf(i)
		if !ok || p.opens(i) {
			continue
		}
		to, passed := i, 0
		for j := i + 1; j < len(p.Steps) && (!asMany(passed, p.Values[home].Len()) || j <= least) && p.independentOf(j, home); j++ {
			if p.sums(j) {
				to, passed = j, passed+p.carried(j)
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

// independentOf reports whether step j has nothing to do with home, and is no Call.
func (p *Program) independentOf(j int, home ID) bool {
	s := &p.Steps[j]
	_, call := s.Op.(*Call)
	return !call && !readsValue(s, home) && s.outOf(home) < 0
}

// sums reports whether step j is a collective that others are to wait for as little as may be: any
// but a gather of parts or a fetch. Of those that a step of training has, nearly all sum gradients.
func (p *Program) sums(j int) bool {
	o, ok := p.Steps[j].Op.(*Collective)
	return ok && o.parted() != partIn && !o.Fetch
}

// spreads puts on the Comm stream the Maps that write what a spread gives, and Maps of results of
// collectives that these need, where a sum of gradients comes behind, and none between: the updates
// would come behind all that waits for no collective on Compute, and the sum with them.
func spreads(p *Program) {
	f := flowOf(p)
	for i := range p.Steps {
		home, ok := p.spreadOf(i)
		if !ok || !p.keepsWaiting(i, home) {
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

// keepsWaiting reports whether the spread i would keep a sum waiting: one comes behind it, and none
// between it and its updates.
func (p *Program) keepsWaiting(i int, home ID) bool {
	for j := p.updatesBefore(i, home) + 1; j < i; j++ {
		if p.sums(j) {
			return false
		}
	}
	for j := i + 1; j < len(p.Steps); j++ {
		if p.sums(j) {
			return true
		}
	}
	return false
}
