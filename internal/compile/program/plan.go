package program

import (
	"cmp"
	"slices"
)

// alignment of values in the arena, in bytes. It is that of cudaMalloc, so vector loads and
// libraries see the same alignment.
const alignment = 256

// Plan gives each Arena value that a step touches its offset, and sets the size of the arena.
// Values share bytes if all steps of one are certainly done before the first step of the other
// starts. So a value that a Comm step touches is kept until a Compute step has waited for that
// step. The Out of a Map, or the gradient of a SparseCrossEntropy, takes the bytes of an In that is
// not read later, if both have the same view and element size. Outputs are kept to the end, and
// inputs from the start. Steps must have their streams: see Optimize. Errors: ErrInvalid.
func Plan(p *Program) error {
	if err := check(p); err != nil {
		return err
	}
	pl := newPlanner(p)
	for i := range p.Values {
		p.Values[i].Offset = 0
	}
	p.Arena = 0
	slots := pl.slots()
	slices.SortStableFunc(slots, func(a, b *slot) int { return cmp.Compare(b.bytes, a.bytes) })
	for i, s := range slots {
		s.offset = pl.place(s, slots[:i])
		for _, id := range s.values {
			p.Values[id].Offset = s.offset
		}
		p.Arena = max(p.Arena, s.offset+s.bytes)
	}
	return nil
}

// planner knows in which steps values are in use.
type planner struct {
	p     *Program
	order *order
	spans []span
	kept  []span // spans; with Program.Rows longer, so that rows of a run of steps do not meet: see keptSpans
}

// slot is memory for values that follow each other in place.
type slot struct {
	values []ID
	bytes  int64 // aligned
	offset int64
}

func newPlanner(p *Program) *planner {
	o := orderOf(p)
	pl := &planner{p: p, order: o, spans: o.spans(p)}
	if pl.kept = pl.spans; p.Rows {
		pl.kept = keptSpans(p, pl.spans)
	}
	return pl
}

// apart reports whether a and b are never in use at the same time.
func (pl *planner) apart(a, b ID) bool { return pl.dies(a, b, pl.spans) || pl.dies(b, a, pl.spans) }

// keptApart is apart for values in different slots.
func (pl *planner) keptApart(a, b ID) bool { return pl.dies(a, b, pl.kept) || pl.dies(b, a, pl.kept) }

// dies reports whether a is certainly unused when the first step of b starts.
func (pl *planner) dies(a, b ID, spans []span) bool {
	return pl.p.Values[a].Role == Temp && !pl.p.Values[b].early() && pl.order.precedes(&spans[a], &spans[b])
}

// early reports whether a value has contents before the first step.
func (v *Value) early() bool { return v.Role == Input || v.Role == Param || v.Role == State }

// reuses reports whether step i may write Out number out over In number in: a Map, or the gradient
// of a SparseCrossEntropy. Each element is read before it is written.
func (pl *planner) reuses(i, out, in int) bool {
	s := &pl.p.Steps[i]
	var space []int
	ok := false
	switch op := s.Op.(type) {
	case *Map:
		space, ok = op.Space, true
	case *SparseCrossEntropy:
		space, ok = []int{op.Rows, op.Classes}, in == 0 && out == 1
	}
	if !ok {
		return false
	}
	o, v := s.Out[out], s.In[in]
	from, to := &pl.p.Values[v.Value], &pl.p.Values[o.Value]
	if v.Value == o.Value || from.Place != Arena || to.Place != Arena || from.Role != Temp || to.early() ||
		from.DType.Size() != to.DType.Size() || !sameLook(space, &o, &v) {
		return false
	}
	for k := range s.In {
		if w := &s.In[k]; w.Value == o.Value || w.Value == v.Value && !sameLook(space, w, &v) {
			return false
		}
	}
	for k := range s.Out {
		if w := &s.Out[k]; w.Value == v.Value || k != out && w.Value == o.Value {
			return false
		}
	}
	return pl.lastOf(v.Value, i) && pl.firstOf(o.Value, i)
}

// lastOf reports whether all other steps of the value are certainly done when step i starts.
func (pl *planner) lastOf(id ID, i int) bool {
	for _, last := range pl.spans[id].last {
		if last >= 0 && last != i && !pl.order.before(last, i) {
			return false
		}
	}
	return true
}

// firstOf reports whether step i is certainly done when any other step of the value starts.
func (pl *planner) firstOf(id ID, i int) bool {
	for _, first := range pl.spans[id].first {
		if first >= 0 && first != i && !pl.order.before(i, first) {
			return false
		}
	}
	return true
}

// slots returns the slots of all arena values, in the order of their first steps. Values that
// follow each other in place share one.
func (pl *planner) slots() []*slot {
	of := make([]*slot, len(pl.p.Values))
	var all []*slot
	add := func(id ID) {
		if v := &pl.p.Values[id]; v.Place == Arena && of[id] == nil {
			of[id] = &slot{values: []ID{id}, bytes: aligned(v.Bytes())}
			all = append(all, of[id])
		}
	}
	for i := range pl.p.Steps {
		s := &pl.p.Steps[i]
		for _, v := range s.In {
			add(v.Value)
		}
		for out := range s.Out {
			if id := s.Out[out].Value; of[id] == nil {
				of[id] = pl.inherits(i, out, of)
			}
			add(s.Out[out].Value)
		}
	}
	return all
}

// inherits puts Out number out of step i into the slot of the first In that it may overwrite. It
// returns nil if there is none.
func (pl *planner) inherits(i, out int, of []*slot) *slot {
	s := &pl.p.Steps[i]
	id := s.Out[out].Value
	for in := range s.In {
		if !pl.reuses(i, out, in) {
			continue
		}
		to := of[s.In[in].Value]
		free := func(other ID) bool { return other == s.In[in].Value || pl.apart(other, id) }
		if all(to.values, free) {
			to.values = append(to.values, id)
			to.bytes = max(to.bytes, aligned(pl.p.Values[id].Bytes()))
			return to
		}
	}
	return nil
}

func all(ids []ID, ok func(ID) bool) bool {
	for _, id := range ids {
		if !ok(id) {
			return false
		}
	}
	return true
}

// place returns the offset of the smallest gap that fits s, between the placed slots that are in
// use at the same time.
func (pl *planner) place(s *slot, placed []*slot) int64 {
	var busy []*slot
	for _, other := range placed {
		if other.bytes > 0 && pl.meet(s, other) {
			busy = append(busy, other)
		}
	}
	slices.SortFunc(busy, func(a, b *slot) int { return cmp.Compare(a.offset, b.offset) })
	best, room, end := int64(-1), int64(0), int64(0)
	for _, other := range busy {
		if gap := other.offset - end; gap >= s.bytes && (best < 0 || gap < room) {
			best, room = end, gap
		}
		end = max(end, other.offset+other.bytes)
	}
	if best >= 0 {
		return best
	}
	return end
}

// meet reports whether some value of a is in use at the same time as some value of b.
func (pl *planner) meet(a, b *slot) bool {
	for _, x := range a.values {
		for _, y := range b.values {
			if !pl.keptApart(x, y) {
				return true
			}
		}
	}
	return false
}

func aligned(n int64) int64 { return (n + alignment - 1) / alignment * alignment }
