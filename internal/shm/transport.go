package shm

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Transport is one rank's end of one group over shared memory. It implements dist.Transport.
type Transport struct {
	node  *node
	ranks []int // world rank of each rank of the group
	rank  int   // in the group
	size  int
	spins int
	seg   segment
	ctl   *control

	// Operations run in the order of their turns, whichever stream they are on. What follows is touched only by the
	// goroutine whose turn it is.
	round   uint64   // rounds entered, the value of the own flag
	step    uint64   // staging steps taken
	headers []header // of the current operation, by rank
	srcs    []tensor.Buffer
	scalars []uint64
	moves   []move // state of the members of a group call

	mu     sync.Mutex
	turned sync.Cond
	next   uint64 // turn to hand out
	turn   uint64 // turn that runs
	closed bool
}

func newTransport(nd *node, ranks []int, seg segment, l layout) *Transport {
	t := &Transport{
		node: nd, ranks: ranks, rank: slices.Index(ranks, nd.rank), size: len(ranks), spins: nd.spins,
		seg: seg, ctl: &control{layout: l, mem: seg.bytes()},
		headers: make([]header, len(ranks)), srcs: make([]tensor.Buffer, len(ranks)), scalars: make([]uint64, len(ranks)),
	}
	t.turned.L = &t.mu
	nd.join(t)
	return t
}

// Info implements dist.Transport.
func (t *Transport) Info() dist.Info {
	return dist.Info{Rank: t.rank, Size: t.size, Device: tensor.Host, Backend: "shm", Ranks: slices.Clone(t.ranks)}
}

// Start implements dist.Transport.
func (t *Transport) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	hs, ok := s.(*dist.HostStream)
	if !ok {
		return dist.Work{}, fmt.Errorf("%w: shm runs on host streams, not on one of %v", dist.ErrDevice, s.Device())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return dist.Work{}, dist.ErrClosed
	}
	w, err := hs.Submit(t, op, t.next)
	if err == nil {
		t.next++
	}
	return w, err
}

// Run implements dist.Runner: it waits for the operation's turn and does it.
func (t *Transport) Run(op *dist.Op, turn uint64) error {
	t.takeTurn(turn)
	defer t.endTurn()
	if err := t.do(op); err != nil {
		return &dist.OpError{Op: *op, Rank: t.rank, Size: t.size, Err: err}
	}
	return nil
}

func (t *Transport) do(op *dist.Op) error {
	if err := t.aborted(); err != nil {
		return err
	}
	peer := -1
	if op.Kind.PointToPoint() {
		peer = op.Peer
	}
	t.ctl.busy(t.rank, op.Kind, peer, op.Seq)
	defer t.ctl.idle(t.rank, op.Seq)
	switch {
	case op.Kind == dist.KindBatch:
		return t.batch(op)
	case op.Kind.PointToPoint():
		return t.exchange([]dist.Op{*op})
	}
	return t.collective(op)
}

func (t *Transport) takeTurn(turn uint64) {
	t.mu.Lock()
	for t.turn != turn {
		t.turned.Wait()
	}
	t.mu.Unlock()
}

func (t *Transport) endTurn() {
	t.mu.Lock()
	t.turn++
	t.turned.Broadcast()
	t.mu.Unlock()
}

// exclusive runs f, a call of the given kind, between the queued operations, as one of them, on the calling goroutine.
func (t *Transport) exclusive(kind dist.Kind, f func() error) error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return dist.ErrClosed
	}
	turn := t.next
	t.next++
	t.mu.Unlock()
	t.takeTurn(turn)
	defer t.endTurn()
	if err := t.aborted(); err != nil {
		return err
	}
	_, _, seq := unpackState(atomic.LoadUint64(t.ctl.state(t.rank)))
	t.ctl.busy(t.rank, kind, -1, seq)
	defer t.ctl.idle(t.rank, seq)
	return f()
}

// Split implements dist.Transport.
func (t *Transport) Split(color, key int) (dist.Transport, error) {
	var sub *Transport
	err := t.exclusive(dist.KindSplit, func() (err error) {
		sub, err = t.split(color, key)
		return err
	})
	if err != nil || sub == nil {
		return nil, err
	}
	return sub, nil
}

func (t *Transport) split(color, key int) (*Transport, error) {
	own := header{a: int64(color), b: int64(key), id: t.node.newID()}
	own.sig = dist.Signature{Kind: dist.KindSplit, Root: -1}
	if err := t.agree(&own); err != nil {
		return nil, err
	}
	if color < 0 {
		return nil, nil
	}
	var members []int // ranks of this group
	for r := range t.size {
		if t.headers[r].a == int64(color) {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(x, y int) int { return int(t.headers[x].b - t.headers[y].b) })
	world := make([]int, len(members))
	for i, r := range members {
		world[i] = t.ranks[r]
	}
	l := newLayout(len(members), t.node.cfg.ChunkBytes)
	seg, err := t.share("a group", world, t.headers[members[0]].id, l.size)
	if err != nil {
		return nil, err
	}
	return newTransport(t.node, world, seg, l), nil
}

// share is a new segment that the first of the given world ranks makes and the others receive under id. When it
// cannot be made, all of them get the reason.
func (t *Transport) share(purpose string, world []int, id uint64, size int64) (segment, error) {
	if world[0] != t.node.rank {
		o, err := t.node.link.take(world[0], id, t.aborted)
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", slices.Index(t.ranks, world[0]), err)
		}
		return o.seg, nil
	}
	o := offer{id: id, size: size}
	seg, err := t.node.maker.make(purpose, size)
	if err != nil {
		o.err = err.Error()
	}
	o.seg = seg
	for _, w := range world[1:] {
		if e := t.node.link.offer(w, o); e != nil && t.aborted() == nil {
			err = errors.Join(err, e)
		}
	}
	if err != nil && seg != nil {
		return nil, errors.Join(err, seg.close())
	}
	return seg, err
}

// Heap implements dist.Transport.
func (t *Transport) Heap(bytes int64) (symmetric.Heap, error) {
	var h *Heap
	err := t.exclusive(dist.KindHeap, func() (err error) {
		h, err = t.newHeap(bytes)
		return err
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// Abort implements dist.Transport.
func (t *Transport) Abort(cause error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return dist.ErrClosed
	}
	t.fail(abortUser, t.rank, cause.Error())
	return nil
}

// lost breaks the group because a rank of it has died; one that had closed its end is allowed to go.
func (t *Transport) lost(world int, how string) {
	r := slices.Index(t.ranks, world)
	if r >= 0 && r != t.rank && atomic.LoadUint64(t.ctl.left(r)) == 0 {
		t.fail(abortDied, r, how)
	}
}

// Close implements dist.Transport. The group has waited for its operations before.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	t.mu.Unlock()
	atomic.StoreUint64(t.ctl.left(t.rank), 1)
	t.node.leave(t)
	return t.seg.close()
}
