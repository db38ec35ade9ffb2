package dist

import (
	"sync"
	"time"

	"github.com/symgrad/symgrad/internal/host/ticks"
	"github.com/symgrad/symgrad/tensor"
)

// Inliner is a Transport that can run an operation on the calling goroutine, for views of
// Group.Blocking.
type Inliner interface {
	// Guard passes the group's lock to the transport, once, before any other call. Start and Inline
	// are called with it held.
	Guard(mu sync.Locker)
	// Inline runs op, after all operations started before, and returns its error. It calls
	// op.Posted when the other ranks can see its part, op.Blocks before it waits longer than a
	// moment, and op.Resume at the end.
	Inline(op *Op) error
}

// inline runs operations on their caller. The group's lock is held from the check of the arguments
// to the end of the operation, so that the fast path takes it once. An operation that waits long
// releases it meanwhile.
type inline struct {
	c *core
	t Inliner // nil if the transport cannot

	free    sync.Cond // signalled when a blocked operation ends
	blocked bool      // an operation runs without the lock
	slow    bool      // the running operation has been blocked
	posted  bool      // the running operation is in the recorder

	times times // of timed operations, by Seq

	calls [sets][2]preparedCall

	group Op   // the last group call
	spare []Op // empty memory of a finished group call, for the next one
}

// sets is the number of pairs of prepared calls; a power of two. Two calls of one set can alternate
// without being prepared again. A call's set follows from addresses, and so differs between runs.
const sets = 8

// preparedCall is a call with checked arguments, cached because the next call is often the same.
type preparedCall struct {
	verb verb
	red  RedOp
	op   Op // of KindInvalid while empty
}

// verb is the arguments of a call, except the reduction.
type verb struct {
	kind     Kind
	symm     bool
	timed    bool
	at       int // root or peer
	dst, src tensor.Buffer
	name     string
}

// same returns v == w, comparing the likeliest difference first.
func (v *verb) same(w *verb) bool {
	return v.dst == w.dst && v.src == w.src && v.kind == w.kind && v.at == w.at && v.symm == w.symm && v.timed == w.timed && v.name == w.name
}

// untimed is the most bytes of an operation that is not timed unless it waits: two readings of the
// clock would take a good part of its time.
const untimed = 4 << 10

func (in *inline) init(c *core) {
	in.c = c
	in.free.L = &c.rec.mu
	if t, ok := c.t.(Inliner); ok {
		in.t = t
		t.Guard(&c.rec.mu)
	}
}

// Await implements Queue, for timed operations, which are already done.
func (in *inline) Await(uint64) error { return nil }

// Finished implements Queue.
func (in *inline) Finished(uint64) bool { return true }

// Elapsed implements Timer.
func (in *inline) Elapsed(ticket uint64) (time.Duration, error) {
	in.c.rec.mu.Lock()
	defer in.c.rec.mu.Unlock()
	return in.times.of(ticket)
}

// run runs the operation of a call.
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

// batch runs a group call of view g.
func (in *inline) batch(g *Group, ops []Op) (Work, error) {
	in.c.rec.mu.Lock()
	defer in.c.rec.mu.Unlock()
	in.idle()
	op := &in.group
	*op = Op{Kind: KindBatch, Name: g.hints.Name, Ops: ops, Timed: g.timed, now: in}
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

// now runs a checked operation, with the lock held. Returns: a Work with its time, if op is timed.
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

// timed is now for a timed operation.
func (in *inline) timed(op *Op) (Work, error) {
	c := in.c
	c.seq++
	op.Seq = c.seq
	seq := op.Seq // op may be overwritten by another call while the lock is released
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

// idle waits until no operation runs without the lock, which is held.
func (in *inline) idle() {
	for in.blocked {
		in.free.Wait()
	}
}

// is reports whether p is a call with these arguments.
func (p *preparedCall) is(v *verb, red *RedOp) bool {
	return p.op.Kind != KindInvalid && v.same(&p.verb) && (red == nil || red.same(&p.red))
}

// set returns the index of v's set of prepared calls.
func (v *verb) set() int {
	return int(uintptr(v.dst.Pointer())>>9+uintptr(v.src.Pointer())>>12+uintptr(v.kind)) & (sets - 1)
}

// prepare makes and checks the operation of a call.
func (in *inline) prepare(p *preparedCall, v *verb, red *RedOp) error {
	p.op.Kind = KindInvalid // nothing to reuse if the check fails
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

// Posted is called by an Inliner once its part of o is visible to the other ranks. They need a
// while to answer, which is used to record o.
func (o *Op) Posted() {
	if in := o.now; in != nil && !in.posted {
		in.note(o)
	}
}

// note records the running operation. A small one is recorded as ended, unless it blocks.
func (in *inline) note(op *Op) {
	in.posted = true
	now := ticks.Now()
	e := in.c.rec.queued(op, now)
	e.Started = now
	if op.bytes <= untimed {
		e.Ended = now
	}
}

// Blocks is called by an Inliner before it waits longer than a moment. It lets other goroutines use
// the group, to read the recorder or to queue later operations.
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

// Resume is called by an Inliner at the end of an operation. It takes the group's lock again.
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
