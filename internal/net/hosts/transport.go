package hosts

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/internal/net/wire"
	"github.com/symgrad/symgrad/tensor"
)

// Transport is one rank's end of one group. It implements dist.Transport and dist.Runner.
type Transport struct {
	p      *process
	id     uint32
	ranks  []int // rank in the world of each rank
	rank   int
	l      layout
	inner  inner
	column *dist.Group // blocking view of the ranks with this number on their hosts; nil without
	board  *board
	turns  turns
	fault  fault
	spans  spans
	peers  *peers
	notes  notes

	round uint64             // of the last exchange
	sends [2][]*wire.Request // of the data of this host, by half of the board
	recvs []*wire.Request    // of the data of other hosts
	now   dist.Op            // running operation, for messages
	op    *dist.Op           // the same, if it runs on its caller; or idle
	srcs  []unsafe.Pointer   // scratch of a reduction
	mults []uint64           // scalars of a premulsum

	last kernel // of the last reduction

	piece    piece          // scratch of a collective
	exchange exchange       // scratch of it
	gather   func(d []byte) // piece.gather

	slots [slots]slot     // of chains
	flows []*wire.Request // of a direct move

	gathered []byte // elements of all ranks, for a reduction in parts
	scratch  []byte // partial result of this rank's elements
}

// inner is the transport of the ranks of this host.
type inner struct {
	dist.Transport
	group *dist.Group  // blocking view of these ranks, for chains; nil if there are none
	since atomic.Int64 // nanoseconds of the time when broken first saw another reason than a death
}

// Close closes the group, or the transport.
func (i *inner) Close() error {
	if i.group != nil {
		return i.group.Close()
	}
	return i.Transport.Close()
}

// broken returns the death of a rank of this host, if the transport knows of one. Another reason
// counts after newsAfter: a rank that breaks the group breaks this transport too, and sends the
// reason to all ranks.
func (i *inner) broken(now time.Time) error {
	b, ok := i.Transport.(interface{ Broken() error })
	if !ok {
		return nil
	}
	err := b.Broken()
	switch {
	case err == nil || errors.Is(err, dist.ErrClosed):
		return nil
	case errors.As(err, new(*dist.RankError)):
		return err
	}
	i.since.CompareAndSwap(0, now.UnixNano())
	if now.Sub(time.Unix(0, i.since.Load())) < newsAfter {
		return nil
	}
	return err
}

// fault is why a group is broken.
type fault struct{ err atomic.Pointer[error] }

// set breaks the group, unless it is broken already.
func (f *fault) set(err error) bool { return f.err.CompareAndSwap(nil, &err) }

func (f *fault) get() error {
	if e := f.err.Load(); e != nil {
		return *e
	}
	return nil
}

// turns is the order of the operations of all streams.
type turns struct {
	mu     sync.Mutex
	turned sync.Cond
	next   uint64 // to assign
	turn   uint64 // that may run
	closed bool
}

// take waits for a turn.
func (u *turns) take(turn uint64) {
	u.mu.Lock()
	for u.turn != turn {
		u.turned.Wait()
	}
	u.mu.Unlock()
}

func (u *turns) end() {
	u.mu.Lock()
	u.turn++
	u.turned.Broadcast()
	u.mu.Unlock()
}

// newTransport makes this rank's end of a group over the transport of its ranks on this host.
//
// Collective: the ranks of this host.
func (p *process) newTransport(id uint32, ranks []int, near dist.Transport) (*Transport, error) {
	t := &Transport{p: p, id: id, ranks: ranks, rank: slices.Index(ranks, p.rank), op: &queued}
	t.inner.Transport = near
	t.gather = t.piece.gather
	t.l = newLayout(ranks, p.hosts, t.rank)
	t.turns.turned.L = &t.turns.mu
	t.peers = newPeers(len(ranks))
	t.srcs, t.mults = make([]unsafe.Pointer, len(ranks)), make([]uint64, len(ranks))
	var err error
	if t.board, err = newBoard(near, &t.l, p.cfg.SlotBytes); err != nil {
		return nil, err
	}
	for range t.l.far {
		t.sends[0] = append(t.sends[0], fitting())
		t.sends[1] = append(t.sends[1], fitting())
		t.recvs = append(t.recvs, fitting())
	}
	for i := range t.slots {
		s := &t.slots[i]
		for _, r := range []*wire.Request{&s.in, &s.out, &s.back, &s.on} {
			r.Fits = true
		}
	}
	if len(t.l.far) > 0 && len(t.l.members[t.l.host]) > 1 {
		g, err := dist.NewGroup(near, 8)
		if err != nil {
			return nil, errors.Join(err, t.board.close())
		}
		t.inner.group = g.Blocking()
	}
	return t, nil
}

func fitting() *wire.Request { return &wire.Request{Fits: true} }

// Info implements dist.Transport.
func (t *Transport) Info() dist.Info {
	return dist.Info{
		Rank: t.rank, Size: len(t.ranks), Device: tensor.Host, Backend: t.p.w.Info().Engine,
		Ranks: slices.Clone(t.ranks), Timing: t.p.cfg.Timing,
	}
}

// Broken returns why the group is broken; nil while it is whole.
func (t *Transport) Broken() error { return t.fault.get() }

// Start implements dist.Transport.
func (t *Transport) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	hs, ok := s.(*dist.HostStream)
	if !ok {
		return dist.Work{}, fmt.Errorf("%w: ranks of several hosts use host streams, not one of %v", dist.ErrDevice, s.Device())
	}
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	if t.turns.closed {
		return dist.Work{}, dist.ErrClosed
	}
	w, err := hs.Submit(t, op, t.turns.next)
	if err == nil {
		t.turns.next++
	}
	return w, err
}

// Run implements dist.Runner: it waits for the operation's turn and does it.
func (t *Transport) Run(op *dist.Op, turn uint64) error {
	t.turns.take(turn)
	defer t.turns.end()
	return t.run(op)
}

func (t *Transport) run(op *dist.Op) error {
	if err := t.do(op); err != nil {
		return &dist.OpError{Op: *op, Rank: t.rank, Size: len(t.ranks), Err: err}
	}
	return nil
}

func (t *Transport) do(op *dist.Op) error {
	if err := t.Broken(); err != nil {
		return err
	}
	t.now = dist.Op{Kind: op.Kind, Seq: op.Seq}
	switch {
	case op.Kind == dist.KindBatch:
		return t.batch(op)
	case op.Kind.PointToPoint():
		return t.deliver(op)
	}
	return t.collective(op)
}

// batch runs the members of a group call: collectives first, in order, then all messages together.
func (t *Transport) batch(op *dist.Op) error {
	var messages []*dist.Op
	for i := range op.Ops {
		m := &op.Ops[i]
		if m.Kind.PointToPoint() {
			messages = append(messages, m)
			continue
		}
		t.now.Kind = m.Kind
		if err := t.collective(m); err != nil {
			return fmt.Errorf("%v in it: %w", m.Kind, err)
		}
	}
	t.now.Kind = dist.KindBatch
	return t.deliver(messages...)
}

// exclusive runs f, a call of the given kind, on the calling goroutine, in its turn among the
// queued operations.
func (t *Transport) exclusive(kind dist.Kind, f func() error) error {
	t.turns.mu.Lock()
	if t.turns.closed {
		t.turns.mu.Unlock()
		return dist.ErrClosed
	}
	turn := t.turns.next
	t.turns.next++
	t.turns.mu.Unlock()
	t.turns.take(turn)
	defer t.turns.end()
	if err := t.Broken(); err != nil {
		return err
	}
	t.now = dist.Op{Kind: kind}
	return f()
}

// collective runs one collective.
func (t *Transport) collective(op *dist.Op) error {
	h := header{sig: op.Signature()}
	if op.Kind.Reduces() && op.Red.Kind == dist.RedPreMulSum {
		bits, err := reduce.ScalarBits(op.Red.Scalar)
		if err != nil {
			return err
		}
		h.scalar = bits
	}
	if op.Kind == dist.KindBarrier {
		if t.p.heaps.service.Load() != nil {
			t.op.Blocks()
		}
		flushed := t.p.flush(t)
		return errors.Join(t.move(op, &h), flushed)
	}
	return t.move(op, &h)
}

// fail breaks the group for this rank, unless it is broken already. Ranks of this host that wait
// for each other then stop.
func (t *Transport) fail(err error) {
	if t.fault.set(err) {
		if errors.As(err, new(*dist.RankError)) {
			err = errors.New(err.Error()) // its number is of another group
		}
		_ = t.inner.Abort(err) // it may be closed
	}
}

// breakAll breaks the group on all ranks.
func (t *Transport) breakAll(err error) {
	t.fail(err)
	if c, ok := reason(t.Broken()); ok {
		t.p.spread(t, c)
	}
}

// lostNear breaks the group after the death of a rank of this host, and reports it to the others.
func (t *Transport) lostNear(err error) {
	var gone *dist.RankError
	if errors.As(err, &gone) {
		near := t.l.members[t.l.host]
		if gone.Rank < len(near) {
			t.p.lost(t.ranks[near[gone.Rank]], gone.How, true)
			return
		}
	}
	t.fail(fmt.Errorf("%w: ranks of this host: %w", dist.ErrAborted, err))
}

// Abort implements dist.Transport.
func (t *Transport) Abort(cause error) error {
	t.turns.mu.Lock()
	closed := t.turns.closed
	t.turns.mu.Unlock()
	if closed {
		return dist.ErrClosed
	}
	t.breakAll(fmt.Errorf("%w by rank %d: %w", dist.ErrAborted, t.rank, cause))
	return nil
}

// Close implements dist.Transport. Another goroutine may be in Split or Heap, so that Close takes a
// turn of its own.
func (t *Transport) Close() error {
	t.turns.mu.Lock()
	turn := t.turns.next
	t.turns.next++
	t.turns.mu.Unlock()
	t.turns.take(turn)
	t.turns.mu.Lock()
	closed := t.turns.closed
	t.turns.closed = true
	t.turns.mu.Unlock()
	defer t.turns.end()
	if closed {
		return nil
	}
	if t.column != nil {
		_ = t.column.Close()
	}
	_ = t.p.flush(t) // before the news that this rank leaves, which may overtake its calls
	t.leave()
	t.p.remove(t)
	for _, r := range t.recvs {
		t.p.w.Cancel(r)
	}
	if !t.quiet() {
		return t.inner.Close() // the wire may still use the board: it is kept
	}
	return errors.Join(t.board.close(), t.inner.Close())
}

// quietTime is the wait for messages that have begun to arrive, after an error or in Close.
const quietTime = 100 * time.Millisecond

// quiet reports whether no message uses the board, after a short wait.
func (t *Transport) quiet() bool {
	all := slices.Concat(t.recvs, t.sends[0], t.sends[1], t.flows)
	for i := range t.slots {
		s := &t.slots[i]
		all = append(all, &s.in, &s.out, &s.back, &s.on)
	}
	var pause wire.Backoff
	for end := time.Now().Add(quietTime); time.Now().Before(end); {
		if !slices.ContainsFunc(all, (*wire.Request).Pending) {
			return true
		}
		if !t.p.w.Progress() {
			pause.Pause()
		}
	}
	return false
}
