package dist

import (
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/along"
	"github.com/symgrad/symgrad/internal/host/ticks"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Group is a set of ranks that communicate: an NVSHMEM team, an NCCL communicator. Its operations
// are methods that check their arguments, note the operation in the recorder and queue it on a
// stream; none waits for a peer. Methods may be called from several goroutines, but the order of
// operations must be the same on all ranks, so one goroutine should issue them.
type Group struct {
	c     *core
	s     Stream
	hints Hints
	batch *call // the group call that this view collects for, or nil
	block bool  // methods return when their operation is done
	other bool  // s is not the group's own
	along bool  // see package internal/along
	timed bool  // operations are timed
}

// call is a group call while its function runs.
type call struct {
	ops   []Op
	err   error // of the first operation with a wrong argument
	ended bool
}

// errEnded is the error of a view that outlived its group call.
var errEnded = fmt.Errorf("%w: the group call of this view has ended", ErrInvalid)

// core is shared by all views of one group. rec's lock guards the fields after rec.
type core struct {
	t    Transport
	info Info
	rec  *Recorder

	inline   inline
	seq      uint64
	newest   Work // the operation queued last, on any stream
	closed   bool
	gone     chan struct{}  // closed when Close is done
	stream   Stream         // the group's own
	children []closer       // subgroups and heaps, closed with the group
	kinds    map[string]int // of Ordinal
}

type closer interface{ Close() error }

// over reports whether the Close of a child is done. A heap without Closed counts as open.
func over(x closer) bool {
	switch x := x.(type) {
	case *Group:
		select {
		case <-x.c.gone:
			return true
		default:
			return false
		}
	case interface{ Closed() bool }:
		return x.Closed()
	}
	return false
}

func init() {
	along.View = func(group any) any {
		v := *group.(*Group)
		v.along = true
		return &v
	}
}

// streamer is a transport that makes its own streams: one for a device.
type streamer interface{ NewStream() (Stream, error) }

// NewGroup returns the group over t, which it owns and closes. traceEntries is the size of the
// recorder's ring; 0 means DefaultTraceEntries. Errors: the transport's, from making a stream.
func NewGroup(t Transport, traceEntries int) (*Group, error) {
	return newGroup(t, NewRecorder(traceEntries))
}

func newGroup(t Transport, rec *Recorder) (*Group, error) {
	c := &core{t: t, info: t.Info(), rec: rec, gone: make(chan struct{})}
	c.inline.init(c)
	if st, ok := t.(streamer); ok {
		s, err := st.NewStream()
		if err != nil {
			return nil, errors.Join(err, t.Close())
		}
		c.stream = s
	} else {
		c.stream = NewHostStream()
	}
	return &Group{c: c, s: c.stream, timed: c.info.Timing}, nil
}

// Rank returns this rank's number in the group, 0 to Size-1.
func (g *Group) Rank() int { return g.c.info.Rank }

// Size returns the number of ranks in the group.
func (g *Group) Size() int { return g.c.info.Size }

// Device returns the device of the group's buffers.
func (g *Group) Device() tensor.Device { return g.c.info.Device }

// Backend returns the name of the backend: "shm", "sim".
func (g *Group) Backend() string { return g.c.info.Backend }

// Ranks returns the number in the world of each rank of the group.
func (g *Group) Ranks() []int { return append([]int(nil), g.c.info.Ranks...) }

// Stream returns the stream of this view's operations.
func (g *Group) Stream() Stream { return g.s }

// Recorder returns the ring of the group's last operations.
func (g *Group) Recorder() *Recorder { return g.c.rec }

// On returns a view that queues operations on s. Operations on different streams still run in the
// order in which they were queued. Errors: its operations return ErrInvalid for a nil s.
func (g *Group) On(s Stream) *Group {
	v := *g
	v.s, v.block, v.other = s, false, s != g.c.stream
	return &v
}

// Blocking returns a view whose operations run on the calling goroutine. A call returns when its
// operation is done, with the operation's error and a Work that is done; a Batch does too. Nothing
// overlaps, but latency is least: on shared memory a small collective takes less time than queuing
// it. Operations queued before run first; other work on the group's own stream (HostStream.Do,
// Stream.Join) is not waited for. In a view On another stream, operations run on that stream in
// order, and the caller waits.
func (g *Group) Blocking() *Group {
	v := *g
	v.block = true
	return &v
}

// With returns a view with the hints of g and those that are set in h. It is a copy of the group,
// so keep one for operations of every step.
func (g *Group) With(h Hints) *Group {
	v := *g
	if h.Name != "" {
		v.hints.Name = h.Name
	}
	v.hints.Symmetric = v.hints.Symmetric || h.Symmetric
	v.hints.Overlap = v.hints.Overlap || h.Overlap
	return &v
}

// Timed returns a view whose operations are timed, for Work.Elapsed: one call, or a part of a
// program. On GPUs it adds two events to each operation and caches no launch.
// backend.Config.Timing does this for a whole world.
func (g *Group) Timed() *Group {
	v := *g
	v.timed = true
	return &v
}

// Heap returns a new symmetric heap of bytes bytes on every rank of the group; the group closes it.
//
// Collective: all ranks, same size. Errors: symmetric.ErrNoSpace; ErrUnsupported if the backend has
// no heap, or a rank cannot map it; ErrMismatch, ErrAborted, ErrTimeout, ErrClosed.
func (g *Group) Heap(bytes int64) (symmetric.Heap, error) {
	if err := g.c.open(); err != nil {
		return nil, fmt.Errorf("heap of %d B, rank %d/%d: %w", bytes, g.Rank(), g.Size(), err)
	}
	if bytes < 0 {
		return nil, fmt.Errorf("heap of %d B, rank %d/%d: %w", bytes, g.Rank(), g.Size(), ErrCount)
	}
	h, err := g.c.t.Heap(bytes)
	if err != nil {
		return nil, fmt.Errorf("heap of %d B, rank %d/%d: %w", bytes, g.Rank(), g.Size(), err)
	}
	if err := g.c.adopt(h); err != nil {
		return nil, fmt.Errorf("heap of %d B, rank %d/%d: %w", bytes, g.Rank(), g.Size(), err)
	}
	return h, nil
}

// Batch queues the operations that fn issues on its view as one group call, as ncclGroupStart and
// ncclGroupEnd do. Sends and receives among them progress together, so an exchange cannot deadlock.
// Works inside fn are done at once; the returned one covers all. Collectives run first, in order.
//
// Errors: fn's, or that of the first operation with a wrong argument; then nothing is queued.
// ErrInvalid for a nil fn.
func (g *Group) Batch(fn func(*Group) error) (Work, error) {
	if fn == nil {
		return Work{}, fmt.Errorf("group call, rank %d/%d: %w: no function", g.Rank(), g.Size(), ErrInvalid)
	}
	if g.batch != nil {
		if g.batch.ended {
			return Work{}, errEnded
		}
		return Work{}, fn(g) // nested: part of the outer call
	}
	var b call
	v := *g
	v.batch = &b
	err := fn(&v)
	b.ended = true
	if err == nil {
		err = b.err
	}
	if err != nil || len(b.ops) == 0 {
		return Work{}, err
	}
	if g.block && !g.other && g.c.inline.t != nil {
		return g.c.inline.batch(g, b.ops)
	}
	w, err := g.issue(&Op{Kind: KindBatch, Ops: b.ops, Timed: g.timed})
	if err != nil || !g.block {
		return w, err
	}
	return w.waited(g.timed)
}

// Abort makes pending and later operations of the group fail on every rank, with errors that match
// ErrAborted and carry cause. Abort or close groups split from it separately. Not collective.
func (g *Group) Abort(cause error) error {
	if cause == nil {
		cause = errors.New("no cause given")
	}
	return g.c.t.Abort(cause)
}

// Close waits for the queued operations, then closes heaps and subgroups made from g, its stream
// and its transport. Idempotent; a second caller also waits, since a process that ends with an open
// group counts as dead. Not collective: a peer that still waits for this rank gets ErrClosed.
func (g *Group) Close() error {
	c := g.c
	c.rec.mu.Lock()
	if c.closed {
		c.rec.mu.Unlock()
		<-c.gone
		return nil
	}
	defer close(c.gone)
	c.closed = true
	c.inline.idle()
	children, newest := c.children, c.newest
	c.children = nil
	c.rec.mu.Unlock()
	_ = newest.Wait() // the last to run, perhaps on the caller's stream; its Work reports its error
	errs := []error{c.stream.Close()}
	for i := len(children) - 1; i >= 0; i-- {
		errs = append(errs, children[i].Close())
	}
	return errors.Join(append(errs, c.t.Close())...)
}

func (c *core) open() error {
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	return nil
}

// adopt makes x a child, or closes it if the group was closed meanwhile. It forgets closed
// children, since a program may make and close any number.
func (c *core) adopt(x closer) error {
	c.rec.mu.Lock()
	closed := c.closed
	if !closed {
		c.children = append(slices.DeleteFunc(c.children, over), x)
	}
	c.rec.mu.Unlock()
	if closed {
		return errors.Join(ErrClosed, x.Close())
	}
	return nil
}

// do implements an operation; at is the root or the peer.
func (g *Group) do(kind Kind, dst, src tensor.Buffer, red *RedOp, at int) (Work, error) {
	if g.block && !g.other && g.batch == nil && g.c.inline.t != nil {
		return g.c.inline.run(&verb{kind, g.hints.Symmetric, g.timed, at, dst, src, g.hints.Name}, red)
	}
	var op Op // set field by field, since the compiler would build a whole Op and copy it
	op.Kind, op.Dst, op.Src, op.Timed = kind, dst, src, g.timed
	op.Symmetric, op.Overlap, op.Along = g.hints.Symmetric, g.hints.Overlap, g.along
	if red != nil {
		op.Red = *red
	}
	if kind.PointToPoint() {
		op.Peer = at
	} else {
		op.Root = at
	}
	w, err := g.issue(&op)
	if err != nil || g.batch != nil || !g.block {
		return w, err
	}
	return w.waited(g.timed)
}

// waited waits for w and returns it if it is timed, else a Work that is done.
func (w Work) waited(timed bool) (Work, error) {
	if err := w.Wait(); err != nil || !timed {
		return Work{}, err
	}
	return w, nil
}

// issue checks op, numbers it and queues it, or adds it to the open group call.
func (g *Group) issue(op *Op) (Work, error) {
	c := g.c
	op.Name = g.hints.Name
	err := c.validate(op, g.batch != nil)
	if err == nil && g.s == nil {
		err = fmt.Errorf("%w: no stream", ErrInvalid)
	}
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	if g.batch != nil {
		return Work{}, g.batch.add(c, *op, err)
	}
	if err != nil {
		return Work{}, c.opError(*op, err)
	}
	op.Seq = c.seq + 1
	if c.closed {
		return Work{}, c.opError(*op, ErrClosed)
	}
	for i := range op.Ops {
		op.Ops[i].Seq = op.Seq
	}
	op.rec = c.rec
	op.sign()
	c.rec.queued(op, ticks.Now())
	w, err := c.t.Start(*op, g.s)
	if err != nil {
		c.rec.ended(op.Seq, err)
		return Work{}, c.opError(*op, err)
	}
	c.seq++
	c.newest = w
	return w, nil
}

// add makes op a member of the group call; err is the error of its arguments. The core's lock is
// held.
func (b *call) add(c *core, op Op, err error) error {
	if err == nil && b.ended {
		err = errEnded
	}
	if err != nil {
		err = c.opError(op, err)
		if b.err == nil {
			b.err = err
		}
		return err
	}
	if b.ops == nil {
		b.ops, c.inline.spare = c.inline.spare, nil
	}
	b.ops = append(b.ops, op)
	return nil
}

func (c *core) opError(op Op, err error) error {
	return &OpError{Op: op, Rank: c.info.Rank, Size: c.info.Size, Err: err}
}
