package program

import "slices"

// Activations are results of the forward pass that the backward pass reads. activations has them,
// and what is needed to compute them again. Programs do not say where the backward pass begins:
// turn is found from the lives of values.
type activations struct {
	p    *Program
	f    *flow
	turn int // first step of the backward pass; 0 if there is none

	made    [][]ID // by step before turn: the results in the arena that it makes
	last    []int  // by value: last step before turn that touches it
	saved   []bool // by value: made before turn and read after it
	again   []bool // by step before turn: it can be repeated as long as its inputs are unchanged
	horizon []int  // by step before turn: the first later step that changes one of its inputs
}

// activationsOf returns the activations of a program.
func activationsOf(p *Program) *activations {
	a := &activations{p: p, f: flowOf(p), last: make([]int, len(p.Values)), saved: make([]bool, len(p.Values))}
	makers := make([]int, len(p.Values))
	for id := range p.Values {
		makers[id] = a.f.maker(ID(id))
	}
	a.turn = a.findTurn(makers)
	a.made, a.again, a.horizon = make([][]ID, a.turn), make([]bool, a.turn), make([]int, a.turn)
	for id, i := range makers {
		if i < 0 || i >= a.turn {
			continue
		}
		a.made[i] = append(a.made[i], ID(id))
		readers := a.f.readers[id]
		k, _ := slices.BinarySearch(readers, a.turn)
		a.saved[id] = k < len(readers)
		if a.last[id] = i; k > 0 {
			a.last[id] = readers[k-1]
		}
	}
	for i := range a.turn {
		a.again[i], a.horizon[i] = a.repeatable(i), a.unchangedUntil(i)
	}
	return a
}

// findTurn returns the step before which most results wait for their next reader, counted in bytes
// times the steps that they wait. All activations wait there. It returns 0 if no result waits.
func (a *activations) findTurn(makers []int) int {
	change := make([]float64, len(a.p.Steps)+1)
	for id, i := range makers {
		if i < 0 {
			continue
		}
		from, to := longestWait(i, a.f.readers[id])
		if to-from > 1 {
			weight := float64(a.p.Values[id].Bytes()) * float64(to-from)
			change[from+1] += weight
			change[to] -= weight
		}
	}
	turn, most, now := 0, 0.0, 0.0
	for i := range a.p.Steps {
		if now += change[i]; now > most*(1+1e-9) { // sums of floats that should be equal differ a little
			turn, most = i, now
		}
	}
	return turn
}

// longestWait returns the ends of the longest gap between the steps that touch a value.
func longestWait(made int, readers []int) (from, to int) {
	from, to = made, made
	at := made
	for _, r := range readers {
		if r-at > to-from {
			from, to = at, r
		}
		at = r
	}
	return from, to
}

// repeatable reports whether step i can be repeated: it makes all its results, or it is a batch
// normalization whose other results are the running statistics. Collectives are not repeated, as
// other ranks take part in them, and neither are Calls, which may have side effects.
func (a *activations) repeatable(i int) bool {
	s := &a.p.Steps[i]
	switch s.Op.(type) {
	case *Collective, *Call:
		return false
	case *BatchNorm:
		return len(a.made[i]) == 3
	}
	return len(s.Out) > 0 && len(a.made[i]) == len(s.Out)
}

// trains reports whether a step is a batch normalization that updates running statistics. In[1],
// In[2] and Out[3], Out[4] are the statistics, which do not affect its other results.
func trains(s *Step) bool {
	o, ok := s.Op.(*BatchNorm)
	return ok && o.Training
}

// unchangedUntil returns the first step after i that writes an input of step i, or the parameters
// that a fetched input comes from.
func (a *activations) unchangedUntil(i int) int {
	s, until := &a.p.Steps[i], len(a.p.Steps)
	for k, v := range s.In {
		if trains(s) && (k == 1 || k == 2) {
			continue
		}
		id := v.Value
		if home, ok := a.fetchedFrom(id); ok {
			id = home
		}
		writers := a.f.writers[id]
		if n, _ := slices.BinarySearch(writers, i); n < len(writers) {
			until = min(until, writers[n])
		}
	}
	return until
}

// fetchedFrom returns the shard that value id was gathered from, if a fetch made it.
func (a *activations) fetchedFrom(id ID) (home ID, ok bool) {
	i := a.f.maker(id)
	if i < 0 {
		return None, false
	}
	c, ok := a.p.Steps[i].Op.(*Collective)
	if !ok || !c.Fetch {
		return None, false
	}
	return a.p.Steps[i].In[0].Value, true
}

// costOf estimates the scalar operations of a step.
func costOf(p *Program, s *Step) float64 {
	size := func(w *Window, k int) float64 {
		return 2 * float64(w.N*w.OutH*w.OutW*k) * float64(w.C*w.R*w.S)
	}
	switch o := s.Op.(type) {
	case *MatMul:
		return 2 * float64(o.Batch*o.M) * float64(o.N) * float64(o.K)
	case *Attention:
		return 4 * float64(o.Batch*o.Heads*o.M) * float64(o.N) * float64(o.Depth)
	case *Conv:
		return size(&o.Window, o.K)
	case *Map:
		return float64(lenOf(o.Space)) * float64(len(o.Code))
	case *Reduce:
		return float64(lenOf(o.Space)) * float64(len(o.Code))
	}
	most := 0
	for _, v := range slices.Concat(s.In, s.Out) {
		most = max(most, p.Values[v.Value].Len())
	}
	const perElement = 8 // of a softmax or a normalization: a few passes with a function
	return perElement * float64(most)
}
