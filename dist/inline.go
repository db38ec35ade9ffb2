package dist

import (
	"sync"
	"time"

	"github.com/symgrad/symgrad/internal/ticks"
	"github.com/symgrad/symgrad/tensor"
)

// Inliner is a Transport that can do an operation on the goroutine that calls, for views that
// Group.Blocking makes.
type Inliner interface {
	// Guard gives the transport the group's lock, once, before anything else: Start and Inline are
	// called with it held.
	Guard(mu sync.Locker)
	// Inline does op, after all operations that were started before, and returns its error. It
	// calls op.Posted when the other ranks can see its part, op.Blocks before it waits for longer
	// than a moment, and op.Resume at the end.
	Inline(op *Op) error
}

// inline runs operations on their caller. The group's lock is held from the check of the arguments
// to the end of the operation, so that the short way takes it once; an operation that has to wait
// long gives it back meanwhile.
type inline struct {
	c *core
	t Inliner // nil when the transport cannot

	free    sync.Cond // signalled when a blocked operation ends
	blocked bool      // an operation runs without the lock
	slow    bool      // the running operation has been blocked
	posted  bool      // the running operation is in the recorder

	times times // of timed operations, by Seq

	calls [sets][2]preparedCall

	group Op   // the last group call
	spare []Op // of a group call that is done, empty: the next one uses its memory
}

// sets is how many pairs of calls are kept; a power of two. Calls of one set take turns without
// being prepared anew, up to two of them: which set a call is in follows from addresses, and so is
// another in every run.
const sets = 8

// preparedCall is a call whose arguments have been checked, kept because the next call is often the
// same.
type preparedCall struct {
	verb verb
	red  RedOp
	op   Op // the present call; of KindInvalid while there is none
}

// verb has the arguments of a call except the reduction.
type verb struct {
	kind     Kind
	symm     bool
	timed    bool
	at       int // root or peer
	dst, src tensor.Buffer
	name     string
}

// same is v == w, in the order in which they are likely to differ.
func (v *verb) same(w *verb) bool {
	return v.dst == w.dst && v.src == w.src && v.kind == w.kind && v.at == w.at && v.symm == w.symm && v.timed == w.timed && v.name == w.name
}

// untimed is the size up to which an operation without a wait is not timed: two readings of the
// clock are a large part of its time.
const untimed = 4 << 10

func (in *inline) init(c *core) {
	in.c = c
	in.free.L = &c.rec.mu
	if t, ok := c.t.(Inliner); ok {
		in.t = t
		t.Guard(&c.rec.mu)
	}
}

// Await implements Queue, for timed operations, which are done.
func (in *inline) Await(uint64) error { return nil }

// Finished implements Queue.
func (in *inline) Finished(uint64) bool { return true }

// Elapsed implements Timer.
func (in *inline) Elapsed(ticket uint64) (time.Duration, error) {
	in.c.rec.mu.Lock()
	defer in.c.rec.mu.Unlock()
	return in.times.of(ticket)
}

// run does the operation of a call.
func (in *inline) run(v *verb, red *RedOp) (Work, error) {
	mu := &in.c.rec.mu
	mu.Lock()
	if in.blocked {
		in.idle()
	}
	set := &in.calls[v.set()]
	p := &set[0]
	var err error
	if !p.is(v, red) {
		if p = &set[1]; !p.is(v, red) {
			set[1] = set[0]
			p = &set[0]
			err = in.prepare(p, v, red)
		}
	}
	var w Work
	if err == nil {
		w, err = in.now(&p.op)
	}
	mu.Unlock()
	return w, err
}

// batch does a group call of view g.
func (in *inline) batch(g *Group, ops []Op) (Work, error) {
	in.c.rec.mu.Lock()
	defer in.c.rec.mu.Unlock()
	in.idle()
	op := &in.group
	*op = Op{Kind: KindBatch, Name: g.name, Ops: ops, Timed: g.timed, now: in}
	op.sign()
	for i := range ops {
		ops[i].Seq = in.c.seq + 1
	}
	w, err := in.now(op)
	if err == nil { // else the error has ops
		clear(ops)
		in.spare = ops[:0]
	}
	return w, err
}

// now does a checked operation, with the lock held. Returns: a Work that knows its time, where it
// is timed.
func (in *inline) now(op *Op) (Work, error) {
	c := in.c
	if c.closed {
		return Work{}, c.opError(*op, ErrClosed)
	}
	if op.Timed {
		return in.timed(op)
	}
	c.seq++
	op.Seq = c.seq
	in.slow, in.posted = false, false
	err := in.t.Inline(op)
	if err != nil || in.slow || !in.posted || op.bytes > untimed {
		op.Posted()
		c.rec.ended(op.Seq, err)
	}
	return Work{}, err
}

// timed is now for an operation that is timed.
func (in *inline) timed(op *Op) (Work, error) {
	c := in.c
	c.seq++
	op.Seq = c.seq
	seq := op.Seq // the prepared call of op may be another one when the lock comes back
	in.slow, in.posted = false, false
	began := time.Now()
	in.note(op)
	err := in.t.Inline(op)
	took := max(time.Since(began), 1)
	c.rec.ended(seq, err)
	if err != nil {
		return Work{}, err
	}
	in.times.add(seq, took)
	return NewWork(in, seq), nil
}

// idle returns when no operation runs without the lock, which is held.
func (in *inline) idle() {
	for in.blocked {
		in.free.Wait()
	}
}

// is reports whether p is a call with these arguments.
func (p *preparedCall) is(v *verb, red *RedOp) bool {
	return p.op.Kind != KindInvalid && v.same(&p.verb) && (red == nil || red.same(&p.red))
}

// set is where among the prepared calls v is kept.
func (v *verb) set() int {
	return int(uintptr(v.dst.Pointer())>>9+uintptr(v.src.Pointer())>>12+uintptr(v.kind)) & (sets - 1)
}

// prepare makes and checks the operation of a call.
func (in *inline) prepare(p *preparedCall, v *verb, red *RedOp) error {
	p.op.Kind = KindInvalid // nothing to use again if the check finds a mistake
	op := Op{Kind: v.kind, Dst: v.dst, Src: v.src, Name: v.name, Symmetric: v.symm, Timed: v.timed, now: in}
	if red != nil {
		op.Red = *red
	}
	if v.kind.PointToPoint() {
		op.Peer = v.at
	} else {
		op.Root = v.at
	}
	if err := in.c.validate(&op, false); err != nil {
		return in.c.opError(op, err)
	}
	op.sign()
	p.verb, p.red, p.op = *v, op.Red, op
	return nil
}

// Posted is called by an Inliner once its part of o is visible to the other ranks, which then need
// a while to answer: the time to note o in the recorder.
func (o *Op) Posted() {
	if in := o.now; in != nil && !in.posted {
		in.note(o)
	}
}

// note puts the running operation into the recorder. A small one has ended with that, unless it
// blocks.
func (in *inline) note(op *Op) {
	in.posted = true
	now := ticks.Now()
	e := in.c.rec.queued(op, now)
	e.Started = now
	if op.bytes <= untimed {
		e.Ended = now
	}
}

// Blocks is called by an Inliner before it waits for longer than a moment: it lets other goroutines
// use the group, to read the recorder or to queue operations that follow.
func (o *Op) Blocks() {
	in := o.now
	if in == nil || in.blocked {
		return
	}
	o.Posted()
	in.c.rec.reopen(o.Seq)
	in.blocked, in.slow = true, true
	in.c.rec.mu.Unlock()
}

// Resume is called by an Inliner at the end of an operation: it holds the group's lock again.
func (o *Op) Resume() {
	if in := o.now; in != nil && in.blocked {
		in.resume()
	}
}

func (in *inline) resume() {
	in.c.rec.mu.Lock()
	in.blocked = false
	in.free.Broadcast()
}
