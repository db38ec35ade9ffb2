package shm

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Transport is one rank's end of one group over shared memory. It implements dist.Transport.
type Transport struct {
	// Operations run in the order of their turns, on any stream. Only the goroutine of the current
	// turn accesses the fields up to turns, except for the constants of member.
	smallPath
	staged   stagedPath
	direct   directPath
	messages messenger
	call     dist.Op // represents a call that is not a collective

	turns turns
	seg   segment
}

func newTransport(nd *node, ranks []int, seg segment, l layout) *Transport {
	n := len(ranks)
	t := &Transport{
		seg: seg,
	}
	t.member = member{
		node: nd, ranks: ranks, rank: slices.Index(ranks, nd.rank), size: n, spins: nd.spins, ctl: newControl(l, seg.bytes()),
	}
	t.begin()
	t.reducer.init(n)
	t.staged = stagedPath{announcer: &t.announcer, reducer: &t.reducer}
	t.direct.init(&t.announcer, &t.reducer)
	t.messages.init(&t.waiter)
	t.op = &t.call
	t.Guard(new(sync.Mutex))
	nd.join(&t.member)
	return t
}

// lines returns n words in cache lines of their own.
func lines[T any](n int) []T {
	const line = 128
	size := int(unsafe.Sizeof(*new(T)))
	return make([]T, n, (n*size+line-1)/line*line/size)
}

// Info implements dist.Transport.
func (t *Transport) Info() dist.Info {
	return dist.Info{Rank: t.rank, Size: t.size, Device: tensor.Host, Backend: "shm", Ranks: slices.Clone(t.ranks), Timing: t.node.cfg.Timing}
}

// Guard implements dist.Inliner.
func (t *Transport) Guard(mu sync.Locker) { t.turns.guard(mu) }

// Start implements dist.Transport.
func (t *Transport) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	hs, ok := s.(*dist.HostStream)
	if !ok {
		return dist.Work{}, fmt.Errorf("%w: shm runs on host streams, not on one of %v", dist.ErrDevice, s.Device())
	}
	if t.turns.closed {
		return dist.Work{}, dist.ErrClosed
	}
	w, err := hs.Submit(t, op, t.turns.next)
	if err == nil {
		t.turns.assign()
	}
	return w, err
}

// Run implements dist.Runner: it waits for the operation's turn and runs it.
func (t *Transport) Run(op *dist.Op, turn uint64) error {
	t.turns.wait(turn)
	t.eager = false
	err := t.do(op)
	t.wakeAll()
	t.turns.done()
	return err
}

// Inline implements dist.Inliner.
func (t *Transport) Inline(op *dist.Op) error {
	if turn := t.turns.assign(); t.turns.turn != turn {
		op.Blocks()
		t.turns.wait(turn)
	}
	if t.published != 0 { // by the previous operation; the lock has been a fence since
		t.wakeAgain()
	}
	t.eager = true
	var err error
	switch {
	case op.Memo&planSmall == 0 || atomic.LoadUint64(t.ctl.abort()) != 0:
		err = t.do(op)
	case op.Memo&planPair != 0: // the same with a shorter code path
		err = t.runPair(op)
	case op.Memo&planCast != 0:
		err = t.runCast(op)
	case op.Memo&planLine != 0:
		err = t.runLine(op)
	default:
		t.op = op
		if err = t.runSmall(op); err != nil {
			err = t.opError(op, err)
		}
		t.ctl.idle(t.rank, op.Seq)
	}
	if op.Memo&planSmall != 0 {
		t.claim(op)
	} else {
		t.staged.claim(op)
	}
	op.Resume()
	t.turns.end()
	return err
}

// do runs op in its turn.
func (t *Transport) do(op *dist.Op) error {
	if err := t.ctl.aborted(); err != nil {
		return t.opError(op, err)
	}
	t.op = op
	var err error
	switch {
	case op.Kind == dist.KindBatch:
		err = t.batch(op)
	case op.Kind.PointToPoint():
		err = t.messages.run(op)
	default:
		err = t.collective(op)
	}
	t.ctl.idle(t.rank, op.Seq)
	if err != nil {
		return t.opError(op, err)
	}
	return nil
}

// exclusive runs f, a call of the given kind, on the calling goroutine, with a turn among the
// queued operations.
func (t *Transport) exclusive(kind dist.Kind, f func() error) error {
	if err := t.turns.begin(); err != nil {
		return err
	}
	defer func() {
		t.wakeAll()
		t.turns.done()
	}()
	t.eager = false
	if err := t.ctl.aborted(); err != nil {
		return err
	}
	_, _, seq := unpackState(atomic.LoadUint64(t.ctl.state(t.rank)))
	t.call = dist.Op{Kind: kind, Seq: seq}
	t.direct.init(&t.announcer, &t.reducer)
	t.messages.init(&t.waiter)
	t.op = &t.call
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
		_, err := t.haveAll(dist.KindSplit, nil, nil)
		return nil, err
	}
	var members []int // ranks of this group
	for r := range t.size {
		if t.headers[r].a == int64(color) {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(x, y int) int { return cmp.Compare(t.headers[x].b, t.headers[y].b) })
	world := make([]int, len(members))
	for i, r := range members {
		world[i] = t.ranks[r]
	}
	l := newLayout(len(members), t.node.cfg.ChunkBytes)
	seg, err := t.share("a group", world, t.headers[members[0]].id, l.size)
	if seg, err = t.haveAll(dist.KindSplit, seg, err); err != nil {
		return nil, err
	}
	return newTransport(t.node, world, seg, l), nil
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
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	if t.turns.closed {
		return dist.ErrClosed
	}
	t.ctl.fail(abortUser, t.rank, cause.Error())
	return nil
}

// Lose breaks the group because rank is gone, unless that rank had closed its end. The ranks of one
// host need not call it: they find each other's deaths.
func (t *Transport) Lose(rank int, how string) {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	if !t.turns.closed {
		t.lost(t.ranks[rank], how)
	}
}

// Close implements dist.Transport. The group's operations have ended, but another goroutine may be
// in Split or Heap. Close therefore takes a turn of its own before it unmaps their memory. Until
// then the group can be aborted.
func (t *Transport) Close() error {
	if closed := t.turns.close(); closed {
		return nil
	}
	atomic.StoreUint64(t.ctl.left(t.rank), 1)
	t.node.leave(&t.member)
	return t.seg.close()
}

// Broken returns why the group is broken; nil if it is not, or if this end is closed.
func (t *Transport) Broken() error {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	if t.turns.closed {
		return nil
	}
	return t.ctl.aborted()
}
