package program

// order has the guaranteed order of steps: those of one stream run one after the other, and steps
// after those that they name in After.
type order struct {
	stream []Stream
	clock  []clock // of each step: the steps that are done before it starts
}

const streamCount = int(Side) + 1

// clock is, for each stream, the last step known to be done, or -1.
type clock [streamCount]int

func never() (c clock) {
	for s := range c {
		c[s] = -1
	}
	return c
}

func orderOf(p *Program) *order {
	o := &order{make([]Stream, len(p.Steps)), make([]clock, len(p.Steps))}
	last := never()
	for i := range p.Steps {
		step := &p.Steps[i]
		o.stream[i] = step.Stream
		c := &o.clock[i]
		*c = never()
		o.join(c, last[step.Stream])
		for _, j := range step.After {
			if j < i {
				o.join(c, j)
			}
		}
		last[step.Stream] = i
	}
	return o
}

// join adds step j, and the steps done before it, to clock c.
func (o *order) join(c *clock, j int) {
	if j < 0 {
		return
	}
	for s := range c {
		c[s] = max(c[s], o.clock[j][s])
	}
	s := o.stream[j]
	c[s] = max(c[s], j)
}

// before reports whether step a is certainly done when step b starts.
func (o *order) before(a, b int) bool { return a <= o.clock[b][o.stream[a]] }

// span is the first and the last step of each stream that touches a value, or -1.
type span struct{ first, last [streamCount]int }

func (s *span) touched() bool {
	for _, l := range s.last {
		if l >= 0 {
			return true
		}
	}
	return false
}

// spans returns the span of each value.
func (o *order) spans(p *Program) []span {
	all := make([]span, len(p.Values))
	for i := range all {
		for s := range streamCount {
			all[i].first[s], all[i].last[s] = -1, -1
		}
	}
	for i := range p.Steps {
		s := p.Steps[i].Stream
		touch := func(v View) {
			if all[v.Value].first[s] < 0 {
				all[v.Value].first[s] = i
			}
			all[v.Value].last[s] = i
		}
		for _, v := range p.Steps[i].In {
			touch(v)
		}
		for _, v := range p.Steps[i].Out {
			touch(v)
		}
	}
	return all
}

// precedes reports whether all steps of a are certainly done when the first of b starts.
func (o *order) precedes(a, b *span) bool {
	for _, last := range a.last {
		if last >= 0 && !o.startsAfter(b, last) {
			return false
		}
	}
	return true
}

// startsAfter reports whether step i is certainly done when the first step of s starts.
func (o *order) startsAfter(s *span, i int) bool {
	for _, first := range s.first {
		if first >= 0 && !o.before(i, first) {
			return false
		}
	}
	return true
}
