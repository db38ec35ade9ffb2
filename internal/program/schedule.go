package program

import (
	"cmp"
	"slices"
)

// schedule puts collectives on the Comm stream, each as early as its operands allow. Steps that
// need their results follow those that do not, or run while others are in flight (see
// prioritizeUpdates). Steps that no product depends on may use the Side stream (see
// assignSideStream). After names the waits between streams. Collectives have one order on every
// rank, since it depends only on them (see sinkAllGathers). A fetch (see Rematerialize) is not as
// early as possible, which is the beginning: it waits until the values before it are in use, and
// Plan then gives it the bytes of values that are no longer used.
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
	compute, comm := p.byStream()
	free := atOnce(p, deps, fetch)
	level := levels(p, deps, free)
	slices.SortStableFunc(compute, func(a, b int) int { return cmp.Compare(level[a], level[b]) })
	compute = p.prioritizeUpdates(compute, comm, level, deps, free)
	p.reorder(compute, comm, deps, &fetching{f, fetch, deps})
	assignSideStream(p)
	fetch = fetchesOf(flowOf(p))
	waits(p, dependencies(p, fetch), fetch)
}

// bridges puts Maps of one element that only collectives read, and whose operands come from
// collectives or from before the run, on the Comm stream: factors of a sum that depend on another
// sum. On Compute they would follow all steps that wait for no collective, and so would the sums.
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

// lead puts Maps on the Comm stream that make inputs of step j from results of that stream and from
// values of before the run.
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

// lastBefore is the last of steps before step j; -1 if there is none.
func lastBefore(steps []int, j int) int {
	k, _ := slices.BinarySearch(steps, j)
	if k == 0 {
		return -1
	}
	return steps[k-1]
}

// dependencies returns, for each step, the earlier ones that must be done before it: the writers of
// its operands, and the readers of its results. Steps of the Comm stream and Calls, which may
// communicate as well, keep their order; each follows the last of them, and the last that is no
// fetch.
func dependencies(p *Program, fetch []bool) [][]int {
	deps := make([][]int, len(p.Steps))
	writers, readers := make([]int, len(p.Values)), make([][]int, len(p.Values))
	// Several steps may write parts of a value; each waits for the one before it, so that the last
	// stands for all.
	for v := range writers {
		writers[v] = -1
	}
	neededBy := make([]int, len(p.Steps)) // the last step that depends on each; the first step depends on none
	last, lastBut := -1, -1               // that ranks take part in, or that does more than compute
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

// atOnce marks the steps of Comm whose readers need not follow other work: fetches, which are
// started before they are needed, spreads of updates of the previous run, and a first sum of one
// element that is ready from the beginning, such as a rank's weight.
func atOnce(p *Program, deps [][]int, fetch []bool) []bool {
	free := slices.Clone(fetch)
	for i := range p.Steps {
		s := &p.Steps[i]
		free[i] = free[i] || p.opens(i) || p.sums(i) && p.Values[s.In[0].Value].Len() == 1 && len(deps[i]) == 0
	}
	return free
}

// levels is the number, from 1, of the last step of Comm whose results a step needs, of those that
// it follows from and its own; 0 for none. Steps of Comm end in their order, so that a Compute step
// is ready no later than one of a higher level: updates come in the order in which gradients are
// reduced. Steps that are free do not count.
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

// byStream is the steps of each stream.
func (p *Program) byStream() (compute, comm []int) {
	for i := range p.Steps {
		if p.Steps[i].Stream == Comm {
			comm = append(comm, i)
		} else {
			compute = append(compute, i)
		}
	}
	return compute, comm
}

// reorder puts Compute steps in the order of compute, and each collective directly after the last
// step that it depends on, and fetches at their places.
func (p *Program) reorder(compute, comm []int, deps [][]int, fetches *fetching) {
	hold := fetches.holds(compute, comm)
	at := make([]int, len(p.Steps)) // of each placed step, its place
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
	p.permute(order)
}

// permute puts the steps in an order.
func (p *Program) permute(order []int) {
	steps := make([]Step, len(order))
	for to, from := range order {
		steps[to] = p.Steps[from]
	}
	p.Steps = steps
}

// waits fills After with the steps of other streams that each step waits for: the last of each
// stream that it depends on, unless its stream has already waited for that step or a later one. A
// fetch waits for all Compute steps before it, since its result gets bytes that they used. A Call
// follows a started fetch, and waits for it only if it reads the result. Products of Compute wait
// until Side has few unfinished steps.
func waits(p *Program, deps [][]int, fetch []bool) {
	o := &order{make([]Stream, len(p.Steps)), make([]clock, len(p.Steps))}
	var seen [streamCount]clock
	for s := range seen {
		seen[s] = never()
	}
	var aside []int
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
		case s.Stream == Compute && multiplies(s.Op) && len(aside) > farBehind:
			want[Side] = max(want[Side], aside[len(aside)-1-farBehind])
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

// waitFor is the steps that stream own, of which c is done, is to wait for so that those of want
// are; it joins them to c.
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

// comesBehind reports whether s, a step that depends on a fetch, is a Call that only has to come
// after its start.
func comesBehind(s, fetch *Step) bool {
	_, call := s.Op.(*Call)
	return call && !readsValue(s, fetch.Out[0].Value) && s.outOf(fetch.In[0].Value) < 0
}
