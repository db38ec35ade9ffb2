package sim

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
)

// post is one send or receive on the board.
type post struct {
	op   *dist.Op
	done bool
}

// exchange posts sends and receives at once and waits until all have met their counterparts. A rank
// has one exchange at a time, so the first pending posts of a pair of ranks match.
func (b *board) exchange(rank int, now activity, ops ...*dist.Op) error {
	if err := b.begin(rank, now); err != nil {
		return err
	}
	e := &b.ends[rank]
	e.posts, e.left = e.posts[:0], len(ops)
	for _, op := range ops {
		e.posts = append(e.posts, post{op: op})
	}
	for i := range e.posts {
		if err := b.match(rank, i); err != nil {
			b.fail(err)
			return err
		}
	}
	if e.left > 0 {
		return b.await(rank, forMoves)
	}
	return nil
}

// match completes post i of rank if its counterpart is on the board.
func (b *board) match(rank, i int) error {
	mine := &b.ends[rank].posts[i]
	if mine.done || b.oldest(rank, mine.op.Kind, mine.op.Peer) != mine {
		return nil
	}
	other := dist.KindSend
	if mine.op.Kind == dist.KindSend {
		other = dist.KindRecv
	}
	theirs := b.oldest(mine.op.Peer, other, rank)
	if theirs == nil {
		return nil
	}
	send, recv, from, to := mine, theirs, rank, mine.op.Peer
	if mine.op.Kind == dist.KindRecv {
		send, recv, from, to = theirs, mine, to, from
	}
	if s, r := send.op.Src, recv.op.Dst; s.DType() != r.DType() || s.Len() != r.Len() {
		return fmt.Errorf("%w on a message: rank %d sends %v[%d], rank %d receives %v[%d]", dist.ErrMismatch,
			from, s.DType(), s.Len(), to, r.DType(), r.Len())
	}
	copy(recv.op.Dst.Raw(), send.op.Src.Raw())
	mine.done, theirs.done = true, true
	b.ends[from].left--
	b.ends[to].left--
	b.changed.Broadcast()
	return nil
}

// oldest returns the first pending post of rank with the given kind and peer, or nil.
func (b *board) oldest(rank int, kind dist.Kind, peer int) *post {
	e := &b.ends[rank]
	if e.left == 0 {
		return nil
	}
	for i := range e.posts {
		if p := &e.posts[i]; !p.done && p.op.Kind == kind && p.op.Peer == peer {
			return p
		}
	}
	return nil
}
