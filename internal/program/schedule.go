package program

import (
	"cmp"
	"slices"
)

// schedule puts collectives on the Comm stream, each as early as its operands allow, and the steps that need their
// results behind those that do not. It says in After what waits for what on the other stream. Collectives keep their order
// on every rank, since it follows from the order of the steps alone.
func schedule(p *Program) {
	for i := range p.Steps {
		p.Steps[i].Stream, p.Steps[i].After = Compute, nil
		if _, ok := p.Steps[i].Op.(*Collective); ok {
			p.Steps[i].Stream = Comm
		}
	}
	bridges(p)
	deps := dependencies(p)
	p.reorder(levels(p, deps), deps)
	waits(p, dependencies(p))
}

// bridges puts Maps of one element that only collectives read, and whose operands are those of collectives or from before
// the run, on the Comm stream: factors of a sum that another one has to give. On Compute they would come behind all that
// waits for no collective, and the sums with them.
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

// dependencies is, of each step, the earlier ones that must be done before it: the writers of what it touches, and the
// readers of what it writes. Collectives and Calls, which may communicate as well, keep their order.
func dependencies(p *Program) [][]int {
	deps := make([][]int, len(p.Steps))
	writers, readers := make([]int, len(p.Values)), make([][]int, len(p.Values))
	// Several steps may write parts of a value; each waits for the one before it, so that the last stands for all.
	for v := range writers {
		writers[v] = -1
	}
	last := -1 // that ranks take part in, or that does more than compute
	for i := range p.Steps {
		s := &p.Steps[i]
		need := func(j int) {
			if j >= 0 && j != i && !slices.Contains(deps[i], j) {
				deps[i] = append(deps[i], j)
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
		switch s.Op.(type) {
		case *Collective, *Call:
			need(last)
			last = i
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

// levels is how many hand-overs from a collective to a Compute step are certainly done before a step starts.
func levels(p *Program, deps [][]int) []int {
	level := make([]int, len(p.Steps))
	for i := range p.Steps {
		for _, j := range deps[i] {
			l := level[j]
			if p.Steps[j].Stream == Comm && p.Steps[i].Stream == Compute {
				l++
			}
			level[i] = max(level[i], l)
		}
	}
	return level
}

// reorder sorts Compute steps by level, and puts each collective right behind the last step that it depends on.
func (p *Program) reorder(level []int, deps [][]int) {
	var compute, comm []int
	for i := range p.Steps {
		if p.Steps[i].Stream == Comm {
			comm = append(comm, i)
		} else {
			compute = append(compute, i)
		}
	}
	slices.SortStableFunc(compute, func(a, b int) int { return cmp.Compare(level[a], level[b]) })
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
		for len(comm) > 0 && ready(comm[0]) {
			place(comm[0])
			comm = comm[1:]
		}
		if k < len(compute) {
			place(compute[k])
		}
	}
	steps := make([]Step, len(order))
	for to, from := range order {
		steps[to] = p.Steps[from]
	}
	p.Steps = steps
}

// waits says in After which steps of other streams each step waits for: the last that it depends on, if its stream has not
// waited for that one already.
func waits(p *Program, deps [][]int) {
	var seen [streamCount][streamCount]int
	for s := range seen {
		for t := range seen[s] {
			seen[s][t] = -1
		}
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		last := -1
		for _, j := range deps[i] {
			if p.Steps[j].Stream != s.Stream {
				last = max(last, j)
			}
		}
		if last > seen[s.Stream][otherStream(s.Stream)] {
			seen[s.Stream][otherStream(s.Stream)] = last
			s.After = []int{last}
		}
	}
}

func otherStream(s Stream) Stream { return Comm - s }
