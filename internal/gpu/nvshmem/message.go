package nvshmem

import (
	"errors"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// A message goes through the receiver's mailbox for its sender. Each mailbox has two flags of 0 or
// 1: full, at the receiver, and free, at the sender. Every message leaves the flags as it found
// them, so that a captured graph can run repeatedly.

// send queues, for each chunk: wait until the mailbox is free, fill it, set full.
func (e *engine) send(s *cuda.Stream, peer int, src uintptr, bytes int64) error {
	a := &e.team.area
	for at := int64(0); at < bytes; at += a.slot {
		m := min(a.slot, bytes-at)
		if err := e.waitFlag(s, a.free(peer)); err != nil {
			return err
		}
		if err := e.setFlag(s, a.free(peer), e.rank, 0); err != nil {
			return err
		}
		if err := s.Copy(a.mailAt(peer, e.rank), src+uintptr(at), m); err != nil {
			return err
		}
		if err := e.setFlag(s, a.full(e.rank), peer, 1); err != nil {
			return err
		}
	}
	return nil
}

// recv queues, for each chunk: wait until the mailbox is full, empty it, set free.
func (e *engine) recv(s *cuda.Stream, peer int, dst uintptr, bytes int64) error {
	a := &e.team.area
	for at := int64(0); at < bytes; at += a.slot {
		m := min(a.slot, bytes-at)
		if err := e.waitFlag(s, a.full(peer)); err != nil {
			return err
		}
		if err := s.Copy(dst+uintptr(at), a.mail(peer), m); err != nil {
			return err
		}
		if err := e.setFlag(s, a.full(peer), e.rank, 0); err != nil {
			return err
		}
		if err := e.setFlag(s, a.free(e.rank), peer, 1); err != nil {
			return err
		}
	}
	return nil
}

// waitFlag makes s wait until a flag of this rank is 1.
func (e *engine) waitFlag(s *cuda.Stream, flag uintptr) error {
	rt := e.rt
	rt.mu.Lock()
	defer rt.mu.Unlock()
	a := &rt.args
	a[0], a[1], a[2], a[3] = flag, uintptr(Equal), 1, s.Handle()
	return rt.void(&rt.lib.t.wait, "nvshmemx_signal_wait_until_on_stream", 4)
}

// setFlag sets a flag of a rank; flag is the address of this rank's own.
func (e *engine) setFlag(s *cuda.Stream, flag uintptr, rank int, to uintptr) error {
	rt := e.rt
	rt.mu.Lock()
	defer rt.mu.Unlock()
	a := &rt.args
	a[0], a[1], a[2], a[3], a[4] = flag, to, uintptr(SignalSet), uintptr(e.team.pes[rank]), s.Handle()
	return rt.void(&rt.lib.t.signal, "nvshmemx_signal_op_on_stream", 5)
}

// message is one send or receive of a batch.
type message struct {
	recv  bool
	peer  int
	addr  uintptr
	bytes int64
}

// batch is the messages of a group call, and the streams on which they run concurrently.
type batch struct {
	open     bool
	messages []message
	seen     []bool    // scratch of oneEach: channels that have a message
	channels []channel // of peer p: 2p for sends, 2p+1 for receives
	fork     *cuda.Event
}

// channel is the stream for messages in one direction between two ranks.
type channel struct {
	stream *cuda.Stream
	done   *cuda.Event
	used   bool
}

// add stores a message until the end of the batch.
func (b *batch) add(op *dist.Op) error {
	buf := op.Src
	if op.Kind == dist.KindRecv {
		buf = op.Dst
	}
	b.messages = append(b.messages, message{op.Kind == dist.KindRecv, op.Peer, address(buf), buf.Bytes()})
	return nil
}

// BeginBatch implements gpu.Batcher.
func (e *engine) BeginBatch(*cuda.Stream) error {
	e.batch.open, e.batch.messages = true, e.batch.messages[:0]
	return nil
}

// EndBatch implements gpu.Batcher. The messages progress together, because each may depend on any
// other.
func (e *engine) EndBatch(s *cuda.Stream) error {
	e.enter()
	defer e.leave()
	b := &e.batch
	b.open = false
	if err := e.ready(dist.KindBatch, s); err != nil {
		return err
	}
	if err := e.toMyself(s); err != nil {
		return err
	}
	if e.team == nil {
		return nil
	}
	if e.oneEach() {
		// Each message fits its mailbox, so a send waits for no receive of this batch. Sends come
		// first, in any order.
		for _, recv := range [...]bool{false, true} {
			for i := range b.messages {
				if m := &b.messages[i]; m.peer != e.rank && m.recv == recv {
					if err := e.carry(s, m); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
	return e.queueChannels(s)
}

// whole runs a batch that is one operation: its collectives in order, then its messages.
func (e *engine) whole(op *dist.Op, s *cuda.Stream) error {
	err := e.BeginBatch(s)
	for i := range op.Ops {
		if err != nil {
			break
		}
		if m := &op.Ops[i]; m.Kind.PointToPoint() {
			err = e.batch.add(m)
		} else {
			err = e.run(m, s)
		}
	}
	if err != nil {
		e.batch.open = false
		return err
	}
	return e.EndBatch(s)
}

// carry queues one message.
func (e *engine) carry(s *cuda.Stream, m *message) error {
	if m.recv {
		return e.recv(s, m.peer, m.addr, m.bytes)
	}
	return e.send(s, m.peer, m.addr, m.bytes)
}

// toMyself queues the messages of this rank to itself: the first send is copied to the first
// receive, and so on.
func (e *engine) toMyself(s *cuda.Stream) error {
	all := e.batch.messages
	next := 0
	for i := range all {
		if all[i].recv || all[i].peer != e.rank {
			continue
		}
		for next < len(all) && !(all[next].recv && all[next].peer == e.rank) {
			next++
		}
		if next == len(all) || all[next].bytes != all[i].bytes {
			return refused("group call", dist.ErrMismatch, "rank %d sends %d B to itself without a matching receive", e.rank, all[i].bytes)
		}
		if err := s.Copy(all[next].addr, all[i].addr, all[i].bytes); err != nil {
			return err
		}
		next++
	}
	for ; next < len(all); next++ {
		if all[next].recv && all[next].peer == e.rank {
			return refused("group call", dist.ErrMismatch, "rank %d receives %d B from itself without a matching send", e.rank, all[next].bytes)
		}
	}
	return nil
}

// oneEach reports whether every peer and direction has at most one message and all messages fit
// their mailboxes.
func (e *engine) oneEach() bool {
	b := &e.batch
	if b.seen == nil {
		b.seen = make([]bool, 2*e.size)
	}
	clear(b.seen)
	for i := range b.messages {
		m := &b.messages[i]
		at := b.channel(m)
		if m.peer == e.rank {
			continue
		}
		if b.seen[at] || m.bytes > e.team.area.slot {
			return false
		}
		b.seen[at] = true
	}
	return true
}

// channel returns the index of a message's channel.
func (b *batch) channel(m *message) int {
	if m.recv {
		return 2*m.peer + 1
	}
	return 2 * m.peer
}

// queueChannels queues the messages on a stream for each peer and direction, after the earlier work
// of s. Later work of s waits for them.
func (e *engine) queueChannels(s *cuda.Stream) error {
	b := &e.batch
	if err := e.openChannels(); err != nil {
		return err
	}
	if err := s.Record(b.fork); err != nil {
		return err
	}
	var failed error
	for i := range b.messages {
		m := &b.messages[i]
		if m.peer == e.rank || failed != nil {
			continue
		}
		l := &b.channels[b.channel(m)]
		if !l.used {
			l.used = true
			failed = l.stream.Wait(b.fork)
		}
		if failed == nil {
			failed = e.carry(l.stream, m)
		}
	}
	for i := range b.channels {
		l := &b.channels[i]
		if !l.used {
			continue
		}
		l.used = false
		if err := l.stream.Record(l.done); err != nil && failed == nil {
			failed = err
		}
		if err := s.Wait(l.done); err != nil && failed == nil {
			failed = err
		}
	}
	return failed
}

// openChannels makes the missing streams for the messages of the batch.
func (e *engine) openChannels() error {
	b, v := &e.batch, e.rt.dev
	if b.fork == nil {
		b.channels = make([]channel, 2*e.size)
		fork, err := v.NewEvent()
		if err != nil {
			return err
		}
		b.fork = fork
	}
	_, greatest, err := v.PriorityRange()
	if err != nil {
		return err
	}
	for i := range b.messages {
		l := &b.channels[b.channel(&b.messages[i])]
		if l.stream != nil {
			continue
		}
		if l.done == nil { // else left by a NewStream that failed
			if l.done, err = v.NewEvent(); err != nil {
				return err
			}
		}
		if l.stream, err = v.NewStream(greatest); err != nil {
			return err
		}
	}
	return nil
}

// close frees the streams and events.
func (b *batch) close() error {
	var errs []error
	for i := range b.channels {
		l := &b.channels[i]
		if l.stream != nil {
			errs = append(errs, l.stream.Close())
		}
		if l.done != nil {
			errs = append(errs, l.done.Close())
		}
	}
	b.channels = nil
	if b.fork != nil {
		errs = append(errs, b.fork.Close())
		b.fork = nil
	}
	return errors.Join(errs...)
}
