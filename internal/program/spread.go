package program

// A spread is an in-place AllGather of the parameters that each rank has updated in its part. The
// updates precede it, and the sum of the gradients precedes these. Or it precedes all readers, and
// the updates were those of the previous run. A rank whose part has no parameters has no updates,
// but has the spread.

// spreadOf is the value that step i spreads, and whether it is a spread: the same on all ranks.
func (p *Program) spreadOf(i int) (home ID, ok bool) {
	o, ok := p.Steps[i].Op.(*Collective)
	if !ok || o.parted() != partIn || o.Fetch {
		return 0, false
	}
	home = p.Steps[i].In[0].Value
	return home, p.Steps[i].outOf(home) >= 0
}

// opens reports whether step i spreads updates of the previous run: no earlier step has touched its
// value. A spread of this run's updates follows the sum of its gradients on all ranks, also where
// that is neither read nor used for an update.
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

// sinkAllGathers moves each spread after later sums of gradients of about as many elements, and not
// before the previous spread. Collectives keep their order, so these sums would otherwise wait for
// the updates. Now the updates run during the sums (see prioritizeUpdates), and spreads during the
// next updates. A spread is not moved after a step that uses the parameters, or a Call; one of the
// previous run's updates is not moved.
func sinkAllGathers(p *Program) {
	behind := make([][]int, len(p.Steps)) // of each step, the spreads that are moved after it
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

// spreads puts Maps that write the input of a spread, and Maps of results of collectives that these
// need, on the Comm stream, if a sum of gradients follows, and none is in between. On Compute the
// updates would follow all steps that wait for no collective, and so would the sum.
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

// keepsWaiting reports whether the spread i would delay a sum: one follows it, and none is between
// it and its updates.
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
