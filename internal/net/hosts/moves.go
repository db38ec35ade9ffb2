package hosts

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/net/wire"
	"github.com/symgrad/symgrad/tensor"
)

// A message begins with a head: dtype and bytes. A short body follows in the head's message, a long
// one in a message of its own, once the receiver has compared the head with its buffer.
const (
	moveHead  = 16
	moveShort = 4 << 10
)

// moves are the messages of one operation, all on their way together.
type moves struct {
	t     *Transport
	list  []*move
	ready int // of list, from the start
	told  map[int]bool
}

// move is one message to or from another rank.
type move struct {
	op    *dist.Op
	head  wire.Request
	body  wire.Request
	frame []byte // head, and body if short
	n     uint64 // number of the message that is sent
	state moveState
}

type moveState uint8

const (
	moveOpen   moveState = iota // the head is on its way
	moveBody                    // the body is on its way
	moveClosed                  // done
)

// deliver sends and receives messages, all together. Messages to this rank itself are copied, in
// order.
//
// Errors: those of await; ErrMismatch for a message of another dtype or length.
func (t *Transport) deliver(ops ...*dist.Op) error {
	m := &moves{t: t}
	var out, in []*dist.Op // to and from this rank
	for _, op := range ops {
		switch {
		case op.Peer != t.rank:
			m.list = append(m.list, &move{op: op})
		case op.Kind == dist.KindSend:
			out = append(out, op)
		default:
			in = append(in, op)
		}
	}
	for i := range min(len(out), len(in)) {
		if err := t.fits(out[i].Src.DType(), out[i].Src.Bytes(), in[i]); err != nil {
			return err
		}
		copy(in[i].Dst.Raw(), out[i].Src.Raw())
	}
	if len(out) != len(in) {
		return t.late([]int{t.rank}) // no other operation of this rank can be its peer
	}
	for _, x := range m.list {
		x.start(t)
	}
	if len(m.list) == 0 {
		return nil
	}
	return t.await(&awaited{moves: m})
}

// start starts the head of a message.
func (x *move) start(t *Transport) {
	to := t.ranks[x.op.Peer]
	x.head.Fits, x.body.Fits = true, true
	if x.op.Kind == dist.KindRecv {
		x.frame = make([]byte, moveHead+moveShort)
		t.p.w.Recv(&x.head, to, t.tag(channelMessages), x.frame)
		return
	}
	src := x.op.Src.Raw()
	x.n = t.peers.sentTo(x.op.Peer)
	x.frame = make([]byte, moveHead, moveHead+moveShort)
	binary.LittleEndian.PutUint64(x.frame, uint64(len(src)))
	x.frame[8] = byte(x.op.Src.DType())
	if len(src) <= moveShort {
		x.frame = append(x.frame, src...)
	} else {
		t.p.w.Send(&x.body, to, t.tag(channelBodies), src)
	}
	t.p.w.Send(&x.head, to, t.tag(channelMessages), x.frame)
}

// advance moves the messages on, and reports whether all are done.
func (m *moves) advance() (bool, error) {
	for _, x := range m.list[m.ready:] {
		if err := x.advance(m.t); err != nil {
			return false, err
		}
	}
	for m.ready < len(m.list) && m.list[m.ready].state == moveClosed {
		m.ready++
	}
	return m.ready == len(m.list), nil
}

func (x *move) advance(t *Transport) error {
	if x.state == moveOpen && x.head.Done() {
		_, n, err := x.head.Result()
		if err != nil {
			return t.wireError(err)
		}
		x.state = moveBody
		if x.op.Kind == dist.KindRecv {
			if err := x.opened(t, x.frame[:n]); err != nil {
				return err
			}
		}
	}
	if x.state == moveBody && x.body.Done() {
		if _, _, err := x.body.Result(); err != nil {
			return t.wireError(err)
		}
		x.state = moveClosed
		if x.op.Kind == dist.KindRecv {
			t.peers.tookFrom(x.op.Peer)
		}
	}
	return nil
}

// opened handles the head of a received message.
func (x *move) opened(t *Transport, frame []byte) error {
	if len(frame) < moveHead {
		return t.wireError(fmt.Errorf("head of %d bytes", len(frame)))
	}
	bytes := int64(binary.LittleEndian.Uint64(frame))
	if err := t.fits(tensor.DType(frame[8]), bytes, x.op); err != nil {
		return err
	}
	dst := x.op.Dst.Raw()
	if bytes <= moveShort {
		copy(dst, frame[moveHead:])
		return nil
	}
	t.p.w.Recv(&x.body, t.ranks[x.op.Peer], t.tag(channelBodies), dst)
	return nil
}

// fits compares a message with the buffer of the receive in. A difference breaks the group.
func (t *Transport) fits(dt tensor.DType, bytes int64, in *dist.Op) error {
	if dt == in.Dst.DType() && bytes == in.Dst.Bytes() {
		return nil
	}
	count := bytes
	if size := int64(dt.Size()); size > 0 {
		count /= size
	}
	err := fmt.Errorf("%w on the message: rank %d sends %v[%d], rank %d receives %v[%d]",
		dist.ErrMismatch, in.Peer, dt, count, t.rank, in.Dst.DType(), in.Dst.Len())
	t.breakAll(err)
	return err
}

// peers returns to followed by the ranks whose messages are not done.
func (m *moves) peers(to []int) []int {
	for _, x := range m.list[m.ready:] {
		if x.state != moveClosed && !slices.Contains(to, x.op.Peer) {
			to = append(to, x.op.Peer)
		}
	}
	return to
}

// sends reports whether a message to rank is not done.
func (m *moves) sends(rank int) bool {
	return slices.ContainsFunc(m.list, func(x *move) bool {
		return x.op.Peer == rank && x.op.Kind == dist.KindSend && x.state != moveClosed
	})
}

// hint tells the peers once that this rank waits for them.
func (m *moves) hint() {
	if m.told == nil {
		m.told = map[int]bool{}
	}
	t := m.t
	for _, x := range m.list {
		if x.state == moveClosed || m.told[x.op.Peer] {
			continue
		}
		m.told[x.op.Peer] = true
		c := control{group: t.id, kind: controlHint, rank: t.rank}
		if x.op.Kind == dist.KindRecv {
			c.a, c.b = 1, t.peers.count(x.op.Peer).took
		} else {
			c.b = x.n
		}
		t.p.post(t.ranks[x.op.Peer], c)
	}
}
