package sim

import (
	"fmt"
	"slices"
	"sync"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// transport is one rank's end of one group. It implements dist.Transport and dist.Runner.
type transport struct {
	b    *board
	rank int // in the group

	// Operations run in the order of their turns, on any stream.
	mu     sync.Mutex
	turned sync.Cond
	next   uint64 // next turn to assign
	turn   uint64 // turn that may run
	closed bool
}

func newTransport(b *board, rank int) *transport {
	t := &transport{b: b, rank: rank}
	t.turned.L = &t.mu
	return t
}

// Info implements dist.Transport.
func (t *transport) Info() dist.Info {
	return dist.Info{Rank: t.rank, Size: t.size(), Device: tensor.Host, Backend: "sim", Ranks: slices.Clone(t.b.ranks), Timing: t.b.u.cfg.Timing}
}

func (t *transport) size() int { return len(t.b.ranks) }

// Start implements dist.Transport.
func (t *transport) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	hs, ok := s.(*dist.HostStream)
	if !ok {
		return dist.Work{}, fmt.Errorf("%w: sim runs on host streams, not on one of %v", dist.ErrDevice, s.Device())
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
func (t *transport) Run(op *dist.Op, turn uint64) error {
	t.takeTurn(turn)
	defer t.endTurn()
	if err := t.do(op); err != nil {
		return &dist.OpError{Op: *op, Rank: t.rank, Size: t.size(), Err: err}
	}
	return nil
}

func (t *transport) do(op *dist.Op) error {
	if err := t.apply(op); err != nil {
		return err
	}
	u := t.b.u
	u.mu.Lock()
	defer u.mu.Unlock()
	defer t.b.finished(t.rank, op.Seq)
	switch {
	case op.Kind == dist.KindBatch:
		return t.batch(op)
	case op.Kind.PointToPoint():
		return t.b.exchange(t.rank, activity{kind: op.Kind, peer: op.Peer, seq: op.Seq}, op)
	}
	return t.collective(op, activity{kind: op.Kind, peer: -1, seq: op.Seq})
}

// apply applies the script's fault for op, before it runs.
func (t *transport) apply(op *dist.Op) error {
	if !t.b.scripted {
		return nil
	}
	f := t.b.u.faultOf(t.rank, op.Seq)
	if f == nil {
		return nil
	}
	if f.kind == faultDie {
		t.b.u.kill(t.rank)
		return &dist.RankError{Rank: t.rank, How: killed}
	}
	t.b.u.mu.Lock()
	defer t.b.u.mu.Unlock()
	return t.b.hold(t.rank, op, f)
}

// batch runs the members of a group call: collectives first, in order, then all sends and receives
// together.
func (t *transport) batch(op *dist.Op) error {
	var moves []*dist.Op
	for i := range op.Ops {
		m := &op.Ops[i]
		if m.Kind.PointToPoint() {
			moves = append(moves, m)
			continue
		}
		if err := t.collective(m, activity{kind: m.Kind, peer: -1, seq: op.Seq, batched: true}); err != nil {
			return fmt.Errorf("%v in it: %w", m.Kind, err)
		}
	}
	if len(moves) == 0 {
		return nil
	}
	return t.b.exchange(t.rank, activity{kind: dist.KindBatch, peer: -1, seq: op.Seq}, moves...)
}

func (t *transport) collective(op *dist.Op, now activity) error {
	d := deposit{op: op, sig: op.Signature()}
	if op.Kind.Reduces() && op.Red.Kind == dist.RedPreMulSum {
		bits, err := reduce.ScalarBits(op.Red.Scalar)
		if err != nil {
			return err
		}
		d.scalar = bits
	}
	_, err := t.b.meet(t.rank, now, d)
	return err
}

// call runs a collective without an Op in its turn among the queued operations, on the calling
// goroutine.
func (t *transport) call(d deposit) (result, error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return result{}, dist.ErrClosed
	}
	turn := t.next
	t.next++
	t.mu.Unlock()
	t.takeTurn(turn)
	defer t.endTurn()
	t.b.u.mu.Lock()
	defer t.b.u.mu.Unlock()
	defer t.b.finished(t.rank, 0)
	d.sig.Root = -1
	return t.b.meet(t.rank, activity{kind: d.sig.Kind, peer: -1}, d)
}

func (t *transport) takeTurn(turn uint64) {
	t.mu.Lock()
	for t.turn != turn {
		t.turned.Wait()
	}
	t.mu.Unlock()
}

func (t *transport) endTurn() {
	t.mu.Lock()
	t.turn++
	t.turned.Broadcast()
	t.mu.Unlock()
}

// Split implements dist.Transport.
func (t *transport) Split(color, key int) (dist.Transport, error) {
	res, err := t.call(deposit{sig: dist.Signature{Kind: dist.KindSplit}, color: color, key: key})
	if err != nil || res.board == nil {
		return nil, err
	}
	return newTransport(res.board, res.rank), nil
}

// Heap implements dist.Transport.
func (t *transport) Heap(bytes int64) (symmetric.Heap, error) {
	res, err := t.call(deposit{sig: dist.Signature{Kind: dist.KindHeap, Count: bytes}})
	if err != nil {
		return nil, err
	}
	return newHeap(t, res.mem), nil
}

// Abort implements dist.Transport.
func (t *transport) Abort(cause error) error {
	t.mu.Lock()
	closed := t.closed
	t.mu.Unlock()
	if closed {
		return dist.ErrClosed
	}
	t.b.u.mu.Lock()
	defer t.b.u.mu.Unlock()
	t.b.abort(t.rank, cause)
	return nil
}

// Lose breaks the group because rank is gone, unless that rank had closed its end.
func (t *transport) Lose(rank int, how string) {
	t.b.u.mu.Lock()
	defer t.b.u.mu.Unlock()
	if !t.b.ends[rank].closed {
		t.b.fail(&dist.RankError{Rank: rank, How: how})
	}
}

// Close implements dist.Transport.
func (t *transport) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	t.b.u.mu.Lock()
	defer t.b.u.mu.Unlock()
	t.b.leave(t.rank)
	return nil
}
