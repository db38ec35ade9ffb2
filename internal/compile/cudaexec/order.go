package cudaexec

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
)

// streams is the number of streams of a program: Compute, Comm and Side.
const streams = 3

// turn is the place of a step among those of other streams: the events that it waits for, and the
// one that it records.
type turn struct {
	waits  []int // numbers of events
	record int   // number of the event after the step; -1 for none
	ahead  bool  // the next step of Compute waits until this one has begun; see comm.goAhead
	behind bool  // this is that next step
}

// order is the turns of all steps, with as few events as possible. A step waits only for steps that
// its own stream has not waited for yet: a wait for a later step of the same stream covers the
// earlier ones.
type order struct {
	turns  []turn
	on     []program.Stream // where each step runs
	events int
}

// newOrder plans the events of p. A collective that p has on Compute also runs on the groups'
// stream, Comm: after the step of Compute before it, and before the one after it.
//
// Errors: dist.ErrInvalid for an unknown stream, and for a step that waits for itself or a later
// one.
func newOrder(p *program.Program) (order, error) {
	o := order{turns: make([]turn, len(p.Steps)), on: make([]program.Stream, len(p.Steps))}
	var waited [streams][streams]int // by stream: 1 + the newest step of each other stream that it has waited for
	compute, between := -1, -1
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Stream >= streams {
			return o, fmt.Errorf("cudaexec: %w: %s: stream %d, there are %d", dist.ErrInvalid, stepName(p, i), s.Stream, streams)
		}
		o.turns[i].record = -1
		o.on[i] = s.Stream
		_, collective := s.Op.(*program.Collective)
		last := [streams]int{-1, -1, -1}
		switch {
		case collective && s.Stream == program.Compute:
			o.on[i], last[program.Compute], between = program.Comm, compute, i
		case s.Stream == program.Compute:
			compute, last[program.Comm] = i, between
		}
		for _, j := range s.After {
			if j < 0 || j >= i {
				return o, fmt.Errorf("cudaexec: %w: %s waits for step %d, which does not come before it", dist.ErrInvalid, stepName(p, i), j)
			}
			if from := o.on[j]; from != o.on[i] {
				last[from] = max(last[from], j)
			}
		}
		for from, j := range last {
			o.wait(i, j, &waited[o.on[i]][from])
		}
	}
	return o, nil
}

// wait makes step i wait for step last of another stream, unless its own stream has already waited
// for that step or a later one.
func (o *order) wait(i, last int, waited *int) {
	if last < *waited {
		return
	}
	*waited = last + 1
	if o.turns[last].record < 0 {
		o.turns[last].record = o.events
		o.events++
	}
	o.turns[i].waits = append(o.turns[i].waits, o.turns[last].record)
}

// stepName returns the name of a step in errors: step 12 "dw0" (matmul 128x784x512).
func stepName(p *program.Program, i int) string {
	s := &p.Steps[i]
	if s.Op == nil {
		return fmt.Sprintf("step %d %q", i, s.Name)
	}
	return fmt.Sprintf("step %d %q (%v)", i, s.Name, s.Op)
}
