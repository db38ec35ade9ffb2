package ddp

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/drive"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// line runs the actions of one bucket on the host, in stream order. It is a dist.Runner, whose part
// k is the computation of action k.
type line struct {
	d       *DDP
	b       *bucket
	actions []drive.Action
	on      worker
	works   []dist.Work // of the collectives, each set before the part that reads it is queued
	err     error       // of a part of this step; the stream owns it
}

// worker has the computations and the collectives of one bucket's actions.
type worker interface {
	// compute runs the computation of an action: with Gather, the one after its collective.
	compute(a drive.Action) error
	// queue queues the collective of an action.
	queue(a drive.Action) (dist.Work, error)
	// spoil sets the inputs of the collective after an action that failed to NaN, so that their old
	// contents are not used as a gradient.
	spoil(a drive.Action)
}

// newLine returns the line of a bucket.
func newLine(d *DDP, b *bucket, actions []drive.Action, on worker) *line {
	l := &line{d: d, b: b, actions: actions, on: on}
	l.works = make([]dist.Work, l.before(len(actions)))
	return l
}

// communicates reports whether an action has a collective.
func communicates(a drive.Action) bool {
	return a.Do == drive.Sum || a.Do == drive.Trade || a.Do == drive.Gather
}

// computes reports whether an action has a computation.
func computes(a drive.Action) bool { return !communicates(a) || a.Do == drive.Gather }

// before returns the number of collectives before the computation of action k.
func (l *line) before(k int) int {
	n := 0
	for i, a := range l.actions[:min(k+1, len(l.actions))] {
		if communicates(a) && (i < k || computes(a)) {
			n++
		}
	}
	return n
}

// start queues all actions and returns the Work of the last one. Like a collective it does not wait
// for peers.
func (l *line) start() (last dist.Work, err error) {
	l.err = nil // the last step's parts have run
	n := 0
	for k, a := range l.actions {
		var work dist.Work
		if communicates(a) {
			if work, err = l.on.queue(a); err == nil {
				l.works[n] = work
				n++
			}
		}
		if err == nil && computes(a) {
			work, err = l.d.team.inOrder(l, l.b.name, uint64(k))
		}
		if err != nil {
			_ = last.Wait() // the bucket may be written again
			return dist.Work{}, err
		}
		last = work
	}
	return last, nil
}

// Run runs one part. If it fails, later parts return its error, and the other ranks get NaN.
func (l *line) Run(_ *dist.Op, part uint64) error {
	k := int(part)
	before := l.works[:l.before(k)]
	for _, w := range before {
		if err := w.Wait(); err != nil { // done, in stream order
			return err
		}
	}
	if len(before) > 0 { // set before this part was queued
		if err := l.b.scattered.Wait(); err != nil {
			return err
		}
	}
	if l.err == nil {
		l.err = l.on.compute(l.actions[k])
	}
	if l.err != nil && k+1 < len(l.actions) {
		l.on.spoil(l.actions[k])
	}
	return l.err
}

// summing is the worker of plain sums, and of ranks by themselves.
type summing struct {
	d *DDP
	b *bucket
}

func (s *summing) queue(drive.Action) (dist.Work, error) {
	return s.d.stage.reduce(s.b, s.b.buf, s.b.red)
}

func (s *summing) compute(a drive.Action) error {
	by := a.By
	if a.Do == drive.Scale {
		var err error
		if by, err = s.d.shares.of(s.b.dtype); err != nil {
			return err
		}
	}
	to, err := s.d.stage.part(s.b, s.b.buf)
	if err != nil {
		return err
	}
	return multiply(to, by)
}

func (*summing) spoil(drive.Action) {}

// multiply computes x[i] *= by for every element of b.
func multiply(b tensor.Buffer, by float64) error {
	if by == 1 {
		return nil
	}
	return reduce.Weighted(b, []tensor.Buffer{b}, []float64{by})
}

// spoil sets a message to NaN, if of floating-point numbers.
func spoil(message tensor.Buffer) {
	raw := message.Raw()
	for i := range raw {
		raw[i] = 0xff
	}
}
