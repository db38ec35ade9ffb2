package shm

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/ticks"
	"github.com/symgrad/symgrad/tensor"
)

// message is the progress of one send or receive of an exchange.
type message struct {
	op    *dist.Op
	moved int    // elements
	began bool   // the first chunk has moved; an empty message has one too
	lent  uint64 // of a send whose receiver reads the source: the chunk with the source's place, plus one
	plain bool   // a send in chunks, because the receiver could not read the source
}

func (m *message) done() bool { return m.began && m.moved == m.op.Count }

// messenger runs sends and receives.
type messenger struct {
	*waiter
	refuses []bool     // by rank: it cannot read this rank's private memory
	one     [1]dist.Op // an operation of its own
}

func (x *messenger) init(w *waiter) { x.waiter, x.refuses = w, make([]bool, w.size) }

// run runs one send or receive.
func (x *messenger) run(op *dist.Op) error {
	x.one[0] = *op
	return x.exchange(x.one[:])
}

// exchange runs the sends and receives among ops until all are done, moving any that can move.
// Messages with the same peer and direction keep their order.
func (x *messenger) exchange(ops []dist.Op) error {
	x.moves = x.moves[:0]
	for i := range ops {
		if ops[i].Kind.PointToPoint() {
			x.moves = append(x.moves, message{op: &ops[i]})
		}
	}
	bell := x.ctl.bell(x.rank)
	var s sleeper
	for {
		seen := atomic.LoadUint64(bell)
		if x.waitPosted() { // the posted wait stays visible
			if err := x.restExchange(&s, bell, seen); err != nil {
				x.retract()
				return err
			}
			x.resumed = ticks.Now()
			continue
		}
		x.retract()
		moved, left, err := x.pass()
		switch {
		case err != nil:
			return err
		case left == 0:
			return nil
		case moved:
			s = sleeper{}
		case s.turns == 0 && x.rang(bell, seen):
		default:
			if s.turns == 0 {
				x.stalls()
				s = x.newSleeper()
			}
			if err := x.restExchange(&s, bell, seen); err != nil {
				return err
			}
			x.resumed = ticks.Now()
		}
	}
}

// rang reports whether bell changes from seen while this rank spins. It spins longer while a peer
// copies a message that this rank lends.
func (x *messenger) rang(bell *uint64, seen uint64) bool {
	n := x.patience()
	if n == spinsCaller {
		n += int(x.lentBytes() / 2) // a spin takes about 0.25 ns, the copy of two bytes about as long
	}
	for range n {
		if atomic.LoadUint64(bell) != seen {
			return true
		}
	}
	return false
}

// lentBytes returns the bytes of lent messages that peers have not read completely.
func (x *messenger) lentBytes() (n int64) {
	for i := range x.moves {
		if m := &x.moves[i]; m.lent != 0 && !m.done() {
			n += m.op.Src.Bytes()
		}
	}
	return n
}

// pass moves at most one chunk of every message that can move.
func (x *messenger) pass() (moved bool, left int, err error) {
	for i := range x.moves {
		m := &x.moves[i]
		if m.done() {
			continue
		}
		left++
		if x.queued(i) {
			continue
		}
		ok := false
		if m.op.Kind == dist.KindSend {
			ok = x.push(m)
		} else if ok, err = x.pop(m); err != nil {
			return false, 0, err
		}
		moved = moved || ok
		if m.done() {
			left--
		}
	}
	return moved, left, nil
}

// queued reports whether an unfinished message before i uses the same ring.
func (x *messenger) queued(i int) bool {
	m := &x.moves[i]
	for j := range i {
		o := &x.moves[j]
		if !o.done() && o.op.Kind == m.op.Kind && o.op.Peer == m.op.Peer {
			return true
		}
	}
	return false
}

func (x *messenger) restExchange(s *sleeper, bell *uint64, seen uint64) error {
	peer := -1
	for i := range x.moves {
		if m := &x.moves[i]; !m.done() {
			if err := x.closedBy(m.op.Peer, bell, seen); err != nil {
				return err
			}
			peer = m.op.Peer
		}
	}
	return x.rest(s, bell, seen, peer)
}

// perChunk returns the elements of a message that fit into one ring slot.
func (x *messenger) perChunk(dt tensor.DType) int { return x.ctl.ring / dt.Size() }

// push puts the next chunk of a send into its ring, if there is room, or lends the source of a
// large message.
func (x *messenger) push(m *message) bool {
	from, to, op := x.rank, m.op.Peer, m.op
	if m.lent != 0 {
		return x.takenBack(m)
	}
	wrote := atomic.LoadUint64(x.ctl.wrote(from, to))
	if wrote-atomic.LoadUint64(x.ctl.read(from, to)) == ringDepth {
		return false
	}
	head, data := x.ctl.ringSlot(from, to, wrote)
	head[headType] = byte(op.Src.DType())
	binary.LittleEndian.PutUint64(head[headCount:], uint64(op.Count))
	if x.lends(m) {
		x.lend(m, head, wrote)
	} else {
		head[headHow] = inChunk
		n, size := min(x.perChunk(op.Src.DType()), op.Count-m.moved), op.Src.DType().Size()
		copy(data, op.Src.Raw()[m.moved*size:(m.moved+n)*size])
		m.moved, m.began = m.moved+n, true
	}
	atomic.StoreUint64(x.ctl.wrote(from, to), wrote+1)
	x.ring(to)
	return true
}

// pop takes the next chunk of a receive from its ring, if there is one, or reads the next piece of
// a lent message.
func (x *messenger) pop(m *message) (bool, error) {
	from, to, op := m.op.Peer, x.rank, m.op
	read := atomic.LoadUint64(x.ctl.read(from, to))
	if atomic.LoadUint64(x.ctl.wrote(from, to)) == read {
		return false, nil
	}
	head, data := x.ctl.ringSlot(from, to, read)
	dt, count := tensor.DType(head[headType]), int(binary.LittleEndian.Uint64(head[headCount:]))
	if dt != op.Dst.DType() || count != op.Count {
		err := fmt.Errorf("%w on a message: rank %d sends %v[%d], rank %d receives %v[%d]", dist.ErrMismatch,
			from, dt, count, to, op.Dst.DType(), op.Count)
		x.ctl.fail(abortMismatch, x.rank, err.Error())
		return false, err
	}
	switch {
	case head[headHow] == inChunk:
		n, size := min(x.perChunk(dt), op.Count-m.moved), dt.Size()
		if n > 0 {
			x.copyOut(unsafe.Add(op.Dst.Pointer(), m.moved*size), pointer(data), n*size)
		}
		m.moved, m.began = m.moved+n, true
	default:
		if err := x.borrow(m, head, read); err != nil {
			return false, err
		}
		if m.moved > 0 && !m.done() {
			return true, nil
		}
	}
	atomic.StoreUint64(x.ctl.read(from, to), read+1)
	x.ring(from)
	return true, nil
}

// ring notifies a rank that one of its rings has moved.
func (x *messenger) ring(rank int) {
	bell := x.ctl.bell(rank)
	atomic.AddUint64(bell, 1)
	wake(bell)
}
