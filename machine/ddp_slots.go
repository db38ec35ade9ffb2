package machine

import (
	"slices"

	"github.com/symgrad/symgrad/internal/program"
)

// slotCopy is a step that copies a gradient to its slot.
type slotCopy struct {
	step, offset int
	bucket       program.ID
}

// bornInSlots removes copies to slots: the step that computes a gradient writes it into the slot,
// if only the copy reads it.
func (l *lowering) bornInSlots() {
	if l.exchange == nil {
		return
	}
	drop := make([]bool, len(l.p.Steps))
	for _, k := range l.exchange.copies {
		s := &l.p.Steps[k.step]
		if len(s.In) != 1 { // the gradient is a constant number
			continue
		}
		from := s.In[0]
		v := &l.p.Values[from.Value]
		n := 1
		for _, d := range s.Op.(*program.Map).Space {
			n *= d
		}
		if v.Place != program.Arena || v.Role != program.Temp || from.Offset != 0 || v.Len() != n ||
			!slices.Equal(from.Strides, s.Out[0].Strides) || l.readers(from.Value) != 1 || l.isForeign(from.Value) ||
			l.exchange.staged() && l.readSince(k.bucket, from.Value, k.step) {
			continue
		}
		l.shift(from.Value, k.bucket, k.offset)
		drop[k.step] = true
	}
	kept := l.p.Steps[:0]
	for i, s := range l.p.Steps {
		if !drop[i] {
			kept = append(kept, s)
		}
	}
	l.p.Steps = kept
}

// readSince reports whether a step after the first writer of value from, and before step i, reads
// value of. That is another bucket with the same memory as this one.
func (l *lowering) readSince(of, from program.ID, i int) bool {
	first := slices.IndexFunc(l.p.Steps, func(s program.Step) bool {
		return slices.ContainsFunc(s.Out, func(v program.View) bool { return v.Value == from })
	})
	return slices.ContainsFunc(l.p.Steps[max(first, 0):i], func(s program.Step) bool {
		return slices.ContainsFunc(s.In, func(v program.View) bool { return v.Value == of })
	})
}

// shift replaces value from by value to, at an offset, in all steps.
func (l *lowering) shift(from, to program.ID, offset int) {
	for i := range l.p.Steps {
		s := &l.p.Steps[i]
		s.In, s.Out = shifted(s.In, from, to, offset), shifted(s.Out, from, to, offset)
	}
}

func shifted(views []program.View, from, to program.ID, offset int) []program.View {
	if !slices.ContainsFunc(views, func(v program.View) bool { return v.Value == from }) {
		return views
	}
	views = slices.Clone(views) // steps may share a slice of views
	for k := range views {
		if views[k].Value == from {
			views[k].Value = to
			views[k].Offset += offset
		}
	}
	return views
}
