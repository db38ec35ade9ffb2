package program

import (
	"cmp"
	"slices"
)

// schedule assigns streams and order. Collectives run on the Comm stream, each as early as its
// operands allow. Steps that need their results follow those that do not, with exceptions (see
// prioritizeUpdates). Some steps that no product follows from run on Side (see assignSideStream).
// After gets the waits between streams.
//
// The order of collectives follows from the collectives alone, so it is equal on all ranks (see
// sinkAllGathers). A fetch (see Rematerialize) could start at once. It waits until the values
// before it are in use, so that Plan can give it bytes that are free by then.
func schedule(p *Program) {
	sinkAllGathers(p)
	for i := range p.Steps {
		p.Steps[i].Stream, p.Steps[i].After = Compute, nil
		if _, ok := p.Steps[i].Op.(*Collective); ok {
			p.Steps[i].Stream = Comm
		}
	}
	bridges(p)
	spreads(p)
	f := flowOf(p)
	fetch := fetchesOf(f)
	deps := dependencies(p, fetch)
	compute, comm := byStream(p)
	free := atOnce(p, deps, fetch)
	if !repeats(p) || !waitForRoom(p, free) {
		level := levels(p, deps, free)
		slices.SortStableFunc(compute, func(a, b int) int { return cmp.Compare(level[a], level[b]) })
		compute = prioritizeUpdates(p, compute, comm, level, deps, free)
	}
	reorder(p, compute, comm, deps, &fetching{f, fetch, deps})
	assignSideStream(p)
	fetch = fetchesOf(flowOf(p))
	waits(p, dependencies(p, fetch), fetch)
}

// bridges moves to the Comm stream Maps of one element that only collectives read, and that read
// only results of collectives and values from before the run. These are factors of a sum that come
// from another sum. On Compute they would run after all steps that wait for no collective, and
// would delay the sum.
func bridges(p *Program) {
	f := flowOf(p)
	onComm := func(j int) bool { return p.Steps[j].Stream == Comm }
	for i := range p.Steps {
		s := &p.Steps[i]
		m, ok := s.Op.(*Map)
		if !ok || lenOf(m.Space) != 1 {
			continue
		}
		from, to := 0, 0
		fits := true
		for _, v := range s.In {
			for _, j := range f.writers[v.Value] {
				fits = fits && j < i && onComm(j)
				from++
			}
		}
		for _, v := range s.Out {
			fits = fits && len(f.writers[v.Value]) == 1
			for _, j := range f.readers[v.Value] {
				_, collective := p.Steps[j].Op.(*Collective)
				fits = fits && j > i && collective
				to++
			}
		}
		if fits && from > 0 && to > 0 {
			s.Stream = Comm
		}
	}
}

// lead moves to the Comm stream the Maps that make inputs of step j from results of that stream and
// values from before the run.
func (f *flow) lead(j int) {
	p := f.p
	for _, v := range p.Steps[j].In {
		i := lastBefore(f.writers[v.Value], j)
		if i < 0 || p.Steps[i].Stream == Comm {
			continue
		}
		if _, ok := p.Steps[i].Op.(*Map); !ok {
			continue
		}
		from, other := 0, 0
		for _, w := range p.Steps[i].In {
			switch k := lastBefore(f.writers[w.Value], i); {
			case k >= 0 && p.Steps[k].Stream == Comm:
				from++
			case k >= 0:
				other++
			}
		}
		if from > 0 && other == 0 {
			p.Steps[i].Stream = Comm
		}
	}
}

// lastBefore returns the last of steps before step j, or -1.
func lastBefore(steps []int, j int) int {
	k, _ := slices.BinarySearch(steps, j)
	if k == 0 {
		return -1
	}
	return steps[k-1]
}

// dependencies returns, for each step, the earlier steps that must be done before it: the writers
// of values that it touches and the readers of values that it writes. Steps of the Comm stream and
// Calls, which may communicate too, keep their order. Each depends on the last of them, and on the
// last that is not a fetch.
func dependencies(p *Program, fetch []bool) [][]int {
	deps := make([][]int, len(p.Steps))
	writers, readers := make([]int, len(p.Values)), make([][]int, len(p.Values))
	// Several steps may write parts of a value. Each waits for the previous one, so the last one is
	// enough.
	for v := range writers {
		writers[v] = -1
	}
	neededBy := make([]int, len(p.Steps)) // the last step that depends on each; the first step depends on none
	last, lastBut := -1, -1               // steps that communicate or have side effects; lastBut is not a fetch
	for i := range p.Steps {
		s := &p.Steps[i]
		need := func(j int) {
			if j >= 0 && j != i && neededBy[j] != i {
				deps[i], neededBy[j] = append(deps[i], j), i
			}
		}
		for _, v := range s.In {
			need(writers[v.Value])
		}
		for _, v := range s.Out {
			need(writers[v.Value])
			for _, j := range readers[v.Value] {
				need(j)
			}
		}
		if _, call := s.Op.(*Call); call || s.Stream == Comm {
			need(last)
			need(lastBut)
			if last = i; !fetch[i] {
				lastBut = i
			}
		}
		for _, v := range s.In {
			readers[v.Value] = append(readers[v.Value], i)
		}
		for _, v := range s.Out {
			writers[v.Value], readers[v.Value] = i, nil
		}
	}
	return deps
}

// atOnce reports which Comm steps need no other work to precede them: fetches, which start before
// they are needed, spreads of the previous run's updates, and early sums of one element. The last
// are ready at the start, such as a rank's weight.
func atOnce(p *Program, deps [][]int, fetch []bool) []bool {
	free := slices.Clone(fetch)
	for i := range p.Steps {
		s := &p.Steps[i]
		free[i] = free[i] || opens(p, i) || sums(p, i) && p.Values[s.In[0].Value].Len() == 1 && len(deps[i]) == 0
	}
	return free
}

// levels returns, for each step, the number, from 1, of the last Comm step that it follows from,
// itself included; 0 for none. Comm steps end in order, so a Compute step is ready no later than
// one of a higher level: updates come in the order in which gradients are reduced. Free steps do
// not count.
func levels(p *Program, deps [][]int, free []bool) []int {
	level := make([]int, len(p.Steps))
	comm := 0
	for i := range p.Steps {
		for _, j := range deps[i] {
			level[i] = max(level[i], level[j])
		}
		if p.Steps[i].Stream == Comm && !free[i] {
			comm++
			level[i] = comm
		}
	}
	return level
}

// waitForRoom reports whether some Compute step needs no result of a Comm step, except free ones,
// but writes a value that an earlier one reads: a gradient in a bucket that was used before. Sorted
// by level, such steps would come after the whole backward pass, and keep its results.
func waitForRoom(p *Program, free []bool) bool {
	needs, sent := make([]bool, len(p.Values)), make([]bool, len(p.Values)) // by value
	for i := range p.Steps {
		s := &p.Steps[i]
		need := s.Stream == Comm && !free[i]
		for _, v := range s.In {
			need = need || needs[v.Value]
			sent[v.Value] = sent[v.Value] || s.Stream == Comm
		}
		for _, v := range s.Out {
			if !need && sent[v.Value] {
				return true
			}
			needs[v.Value] = need
		}
	}
	return false
}

// byStream returns the steps of Comm and all other steps.
func byStream(p *Program) (compute, comm []int) {
	for i := range p.Steps {
		if p.Steps[i].Stream == Comm {
			comm = append(comm, i)
		} else {
			compute = append(compute, i)
		}
	}
	return compute, comm
}

// reorder puts Compute steps in the order of compute, and each collective right after the last step
// that it depends on; fetches wait for their place in fetches.holds.
func reorder(p *Program, compute, comm []int, deps [][]int, fetches *fetching) {
	hold := fetches.holds(compute, comm)
	at := make([]int, len(p.Steps)) // index of each placed step
	for i := range at {
		at[i] = -1
	}
	var order []int
	place := func(i int) {
		at[i] = len(order)
		order = append(order, i)
	}
	ready := func(i int) bool {
		return !slices.ContainsFunc(deps[i], func(j int) bool { return at[j] < 0 })
	}
	for k := 0; k <= len(compute); k++ {
		for len(comm) > 0 && hold[comm[0]] <= k && ready(comm[0]) {
			place(comm[0])
			comm = comm[1:]
		}
		if k < len(compute) {
			place(compute[k])
		}
	}
	permute(p, order)
}

// permute puts the steps in an order.
func permute(p *Program, order []int) {
	steps := make([]Step, len(order))
	for to, from := range order {
		steps[to] = p.Steps[from]
	}
	p.Steps = steps
}

// waits sets After: the steps of other streams that each step waits for. That is the last one of
// each stream that it depends on, unless an earlier wait covers it. A fetch waits for all earlier
// Compute steps, since its result takes bytes that they used. A Call follows the start of a fetch,
// and waits for its end only if it touches its buffers. Products of Compute wait if too many steps
// of Side are pending.
func waits(p *Program, deps [][]int, fetch []bool) {
	o := &order{make([]Stream, len(p.Steps)), make([]clock, len(p.Steps))}
	var seen [streamCount]clock
	for s := range seen {
		seen[s] = never()
	}
	var aside []int
	far := pendingAside(p)
	compute := -1 // the last Compute step
	for i := range p.Steps {
		s := &p.Steps[i]
		want := never()
		for _, j := range deps[i] {
			if !(fetch[j] && comesBehind(s, &p.Steps[j])) {
				want[p.Steps[j].Stream] = max(want[p.Steps[j].Stream], j)
			}
		}
		switch {
		case fetch[i]:
			want[Compute] = max(want[Compute], compute)
		case s.Stream == Compute && multiplies(s.Op) && len(aside) > far:
			want[Side] = max(want[Side], aside[len(aside)-1-far])
		}
		s.After = o.waitFor(&seen[s.Stream], want, s.Stream)
		o.stream[i], o.clock[i] = s.Stream, seen[s.Stream]
		seen[s.Stream][s.Stream] = i
		switch s.Stream {
		case Compute:
			compute = i
		case Side:
			aside = append(aside, i)
		}
	}
}

// waitFor returns the steps that stream own must wait for so that those of want are done, and joins
// them to c, the clock of own.
func (o *order) waitFor(c *clock, want clock, own Stream) (after []int) {
	for s, j := range want {
		covered := s == int(own) || j <= c[s]
		for t, k := range want {
			covered = covered || t != s && t != int(own) && k > c[t] && o.before(j, k)
		}
		if !covered {
			after = append(after, j)
		}
	}
	slices.Sort(after)
	for _, j := range after {
		o.join(c, j)
	}
	return after
}

// comesBehind reports whether s, a step that depends on a fetch, is a Call that must only follow
// the fetch's start.
func comesBehind(s, fetch *Step) bool {
	_, call := s.Op.(*Call)
	return call && !readsValue(s, fetch.Out[0].Value) && s.outOf(fetch.In[0].Value) < 0
}
