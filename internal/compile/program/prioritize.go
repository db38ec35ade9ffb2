package program

import "slices"

// prioritizeUpdates returns compute, which is sorted by level, with the updates that a spread waits
// for moved forward. Without that, an update would run after all steps that need no collective. It
// moves once the sums queued after its own sum have about as many elements. These sums then overlap
// the updates, and the update's own sum is done or nearly done. Steps that compute operands of the
// next sum follow the update, and the spread precedes later sums. Updates that no spread waits for
// stay late: they delay no gradient there, and hide the last sums and spreads (see leave).
//
// It moves only Maps and Reduces that lead to no sum. Pending Maps of one element that they need,
// such as terms of an optimizer's step, move with them.
func prioritizeUpdates(p *Program, compute, comm []int, level []int, deps [][]int, free []bool) []int {
	h := &hurrying{p: p, level: level, deps: deps, free: free, comm: comm}
	h.placed = make([]bool, len(p.Steps))
	h.asked, h.answer = make([]int, len(p.Steps)), make([]bool, len(p.Steps))
	h.leads = h.leading(func(i int) bool { return sums(p, i) })
	h.awaited = h.leading(func(i int) bool {
		_, ok := spreadOf(p, i)
		return ok && !free[i]
	})
	h.sent = append(h.sent, 0)
	for _, i := range comm {
		if !free[i] {
			h.sent = append(h.sent, h.sent[len(h.sent)-1]+carried(p, i))
		}
	}
	rest := slices.Clone(compute)
	for len(rest) > 0 {
		h.start()
		if i := h.next(rest); i >= 0 {
			h.place(i)
			rest = slices.DeleteFunc(rest, func(i int) bool { return h.placed[i] })
			continue
		}
		h.place(rest[0])
		rest = rest[1:]
	}
	h.leave()
	return h.order
}

// leave moves updates that no spread waits for after those at the end of the order that one waits
// for. It moves about as many elements as are spread meanwhile. Between two GPUs a spread takes as
// long as Adam for the same elements; among more GPUs it takes longer.
func (h *hurrying) leave() {
	spread := 0
	for i := range h.p.Steps {
		if home, ok := spreadOf(h.p, i); ok && !h.free[i] {
			spread += h.p.Values[home].Len()
		}
	}
	end := len(h.order)
	for end > 0 && !h.awaited[h.order[end-1]] {
		end--
	}
	from, left := end, 0
	for ; from > 0; from-- {
		i := h.order[from-1]
		if h.leads[i] || !h.moves(i) {
			break
		}
		if !h.awaited[i] {
			left += spaceOf(h.p, i)
		}
		if !asMany(spread, left) {
			break
		}
	}
	slices.SortStableFunc(h.order[from:end], func(i, j int) int {
		switch {
		case h.awaited[i] == h.awaited[j]:
			return 0
		case h.awaited[i]:
			return -1
		}
		return 1
	})
}

// asMany reports whether n elements are about as many as others, or more. The tolerance is for
// biases and for layers that differ a little.
func asMany(n, others int) bool { return 8*n >= 7*others }

// carried returns the number of elements that step i reduces on the Comm stream, or 0.
func carried(p *Program, i int) int {
	if !sums(p, i) {
		return 0
	}
	if o, ok := p.Steps[i].Op.(*Collective); ok && o.Whole > 0 {
		return o.Whole
	}
	return p.Values[p.Steps[i].In[0].Value].Len()
}

// hurrying has the order of Compute steps so far.
type hurrying struct {
	p       *Program
	level   []int // see levels
	deps    [][]int
	free    []bool // see atOnce
	comm    []int  // steps of Comm that are not started
	sent    []int  // elements that the steps of Comm reduce up to each level, without free steps
	started int    // level of the last started step
	leads   []bool // Compute steps that lead to a sum
	awaited []bool // Compute steps that lead to a spread of this run
	placed  []bool
	asked   []int  // by step, 1 + the length of order at the last call of ready
	answer  []bool // by step, the result of that call
	order   []int
}

// leading returns the steps that lead to a step for which to is true, without another Comm step in
// between.
func (h *hurrying) leading(to func(i int) bool) []bool {
	leads := make([]bool, len(h.p.Steps))
	for i := len(h.p.Steps) - 1; i >= 0; i-- {
		if !to(i) && (h.p.Steps[i].Stream == Comm || !leads[i]) {
			continue
		}
		for _, j := range h.deps[i] {
			leads[j] = true
		}
	}
	return leads
}

func (h *hurrying) place(i int) {
	for _, j := range h.deps[i] {
		if !h.placed[j] {
			h.place(j)
		}
	}
	h.placed[i] = true
	h.order = append(h.order, i)
}

// start starts the steps of Comm whose operands are ready.
func (h *hurrying) start() {
	for len(h.comm) > 0 {
		i := h.comm[0]
		if slices.ContainsFunc(h.deps[i], func(j int) bool { return !h.placed[j] }) {
			return
		}
		h.placed[i], h.comm = true, h.comm[1:]
		if !h.free[i] {
			h.started++
		}
	}
}

// next returns the first step of rest that has waited long enough, or -1.
func (h *hurrying) next(rest []int) int {
	from, _ := slices.BinarySearchFunc(rest, max(1, h.level[rest[0]]), func(i, level int) int { return h.level[i] - level })
	for _, i := range rest[from:] {
		l := h.level[i]
		if l >= h.started || !asMany(h.sent[h.started]-h.sent[l], h.sent[l]-h.sent[l-1]) {
			return -1
		}
		if h.awaited[i] && !h.leads[i] && h.moves(i) && h.ready(i) {
			return i
		}
	}
	return -1
}

// spaceOf returns the number of elements of a Map's or Reduce's space; 0 for other steps.
func spaceOf(p *Program, i int) int {
	switch o := p.Steps[i].Op.(type) {
	case *Map:
		return lenOf(o.Space)
	case *Reduce:
		return lenOf(o.Space)
	}
	return 0
}

// moves reports whether memory bounds the time of step i. Products would delay sums.
func (h *hurrying) moves(i int) bool {
	switch h.p.Steps[i].Op.(type) {
	case *Map, *Reduce:
		return true
	}
	return false
}

// ready reports whether all inputs of step i are made, except by Maps of one element.
func (h *hurrying) ready(i int) bool {
	now := len(h.order) + 1
	if h.asked[i] != now {
		h.asked[i] = now
		h.answer[i] = !slices.ContainsFunc(h.deps[i], func(j int) bool {
			m, ok := h.p.Steps[j].Op.(*Map)
			return !h.placed[j] && (!ok || h.p.Steps[j].Stream == Comm || lenOf(m.Space) != 1 || !h.ready(j))
		})
	}
	return h.answer[i]
}
