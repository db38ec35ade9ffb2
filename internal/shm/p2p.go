package shm

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/ticks"
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

// exchange runs the sends and receives among ops until all are done, moving any that can move.
// Messages with the same peer and direction keep their order.
func (t *Transport) exchange(ops []dist.Op) error {
	t.moves = t.moves[:0]
	for i := range ops {
		if ops[i].Kind.PointToPoint() {
			t.moves = append(t.moves, message{op: &ops[i]})
		}
	}
	bell := t.ctl.bell(t.rank)
	var s sleeper
	for {
		seen := atomic.LoadUint64(bell)
		if t.waitPosted() { // the posted wait stays visible
			if err := t.restExchange(&s, bell, seen); err != nil {
				t.retract()
				return err
			}
			t.resumed = ticks.Now()
			continue
		}
		t.retract()
		moved, left, err := t.pass()
		switch {
		case err != nil:
			return err
		case left == 0:
			return nil
		case moved:
			s = sleeper{}
		case s.turns == 0 && t.rang(bell, seen):
		default:
			if s.turns == 0 {
				t.stalls()
				s = t.newSleeper()
			}
			if err := t.restExchange(&s, bell, seen); err != nil {
				return err
			}
			t.resumed = ticks.Now()
		}
	}
}

// rang reports whether bell changes from seen while this rank spins. It spins longer while a peer
// copies a message that this rank lends.
func (t *Transport) rang(bell *uint64, seen uint64) bool {
	n := t.patience()
	if n == spinsCaller {
		n += int(t.lentBytes() / 2) // a spin takes about 0.25 ns, the copy of two bytes about as long
	}
	for range n {
		if atomic.LoadUint64(bell) != seen {
			return true
		}
	}
	return false
}

// lentBytes returns the bytes of lent messages that peers have not read completely.
func (t *Transport) lentBytes() (n int64) {
	for i := range t.moves {
		if m := &t.moves[i]; m.lent != 0 && !m.done() {
			n += m.op.Src.Bytes()
		}
	}
	return n
}

// pass moves at most one chunk of every message that can move.
func (t *Transport) pass() (moved bool, left int, err error) {
	for i := range t.moves {
		m := &t.moves[i]
		if m.done() {
			continue
		}
		left++
		if t.queued(i) {
			continue
		}
		ok := false
		if m.op.Kind == dist.KindSend {
			ok = t.push(m)
		} else if ok, err = t.pop(m); err != nil {
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
func (t *Transport) queued(i int) bool {
	m := &t.moves[i]
	for j := range i {
		o := &t.moves[j]
		if !o.done() && o.op.Kind == m.op.Kind && o.op.Peer == m.op.Peer {
			return true
		}
	}
	return false
}

func (t *Transport) restExchange(s *sleeper, bell *uint64, seen uint64) error {
	peer := -1
	for i := range t.moves {
		if m := &t.moves[i]; !m.done() {
			if err := t.closedBy(m.op.Peer, bell, seen); err != nil {
				return err
			}
			peer = m.op.Peer
		}
	}
	return t.rest(s, bell, seen, peer)
}

// perChunk returns the elements of a message that fit into one ring slot.
func (t *Transport) perChunk(dt tensor.DType) int { return t.ctl.ring / dt.Size() }

// push puts the next chunk of a send into its ring, if there is room, or lends the source of a
// large message.
func (t *Transport) push(m *message) bool {
	from, to, op := t.rank, m.op.Peer, m.op
	if m.lent != 0 {
		return t.takenBack(m)
	}
	wrote := atomic.LoadUint64(t.ctl.wrote(from, to))
	if wrote-atomic.LoadUint64(t.ctl.read(from, to)) == ringDepth {
		return false
	}
	head, data := t.ctl.ringSlot(from, to, wrote)
	head[headType] = byte(op.Src.DType())
	binary.LittleEndian.PutUint64(head[headCount:], uint64(op.Count))
	if t.lends(m) {
		t.lend(m, head, wrote)
	} else {
		head[headHow] = inChunk
		n, size := min(t.perChunk(op.Src.DType()), op.Count-m.moved), op.Src.DType().Size()
		copy(data, op.Src.Raw()[m.moved*size:(m.moved+n)*size])
		m.moved, m.began = m.moved+n, true
	}
	atomic.StoreUint64(t.ctl.wrote(from, to), wrote+1)
	t.ring(to)
	return true
}

// pop takes the next chunk of a receive from its ring, if there is one, or reads the next piece of
// a lent message.
func (t *Transport) pop(m *message) (bool, error) {
	from, to, op := m.op.Peer, t.rank, m.op
	read := atomic.LoadUint64(t.ctl.read(from, to))
	if atomic.LoadUint64(t.ctl.wrote(from, to)) == read {
		return false, nil
	}
	head, data := t.ctl.ringSlot(from, to, read)
	dt, count := tensor.DType(head[headType]), int(binary.LittleEndian.Uint64(head[headCount:]))
	if dt != op.Dst.DType() || count != op.Count {
		err := fmt.Errorf("%w on a message: rank %d sends %v[%d], rank %d receives %v[%d]", dist.ErrMismatch,
			from, dt, count, to, op.Dst.DType(), op.Count)
		t.ctl.fail(abortMismatch, t.rank, err.Error())
		return false, err
	}
	switch {
	case head[headHow] == inChunk:
		n, size := min(t.perChunk(dt), op.Count-m.moved), dt.Size()
		if n > 0 {
			t.copyOut(unsafe.Add(op.Dst.Pointer(), m.moved*size), pointer(data), n*size)
		}
		m.moved, m.began = m.moved+n, true
	default:
		if err := t.borrow(m, head, read); err != nil {
			return false, err
		}
		if m.moved > 0 && !m.done() {
			return true, nil
		}
	}
	atomic.StoreUint64(t.ctl.read(from, to), read+1)
	t.ring(from)
	return true, nil
}

// ring notifies a rank that one of its rings has moved.
func (t *Transport) ring(rank int) {
	bell := t.ctl.bell(rank)
	atomic.AddUint64(bell, 1)
	wake(bell)
}
