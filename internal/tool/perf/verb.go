package perf

import (
	"context"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// verb is one iteration of a case: start an operation and wait.
type verb func() error

// newVerb returns the iteration of case c on the buffers of l.
func newVerb(c Case, g *dist.Group, l *layout) verb {
	if c.Op.trait().oneSide {
		return newOneSided(c, l, g.Rank(), g.Size()-1)
	}
	dst, src, red, root := l.dst, l.src, l.red, c.Root
	switch c.Op {
	case AllReduce:
		return func() error { return wait(g.AllReduce(dst, src, red)) }
	case Reduce:
		return func() error { return wait(g.Reduce(dst, src, red, root)) }
	case Broadcast:
		return func() error { return wait(g.Broadcast(dst, src, root)) }
	case AllGather:
		return func() error { return wait(g.AllGather(dst, src)) }
	case ReduceScatter:
		return func() error { return wait(g.ReduceScatter(dst, src, red)) }
	case AllToAll:
		return func() error { return wait(g.AllToAll(dst, src)) }
	case Gather:
		return func() error { return wait(g.Gather(dst, src, root)) }
	case Scatter:
		return func() error { return wait(g.Scatter(dst, src, root)) }
	case SendRecv:
		exchange := sendAndReceive(g, dst, src)
		return func() error { return wait(g.Batch(exchange)) }
	}
	return func() error { return wait(g.Barrier()) }
}

// sendAndReceive returns the messages of a rank in sendrecv: one to the next rank, and one from the
// previous.
func sendAndReceive(g *dist.Group, dst, src tensor.Buffer) func(b *dist.Group) error {
	next, last := (g.Rank()+1)%g.Size(), (g.Rank()+g.Size()-1)%g.Size()
	return func(b *dist.Group) error {
		if _, err := b.Send(src, next); err != nil {
			return err
		}
		_, err := b.Recv(dst, last)
		return err
	}
}

// newOneSided returns the iteration of a rank in an operation between rank 0 and rank last. Other
// ranks do nothing.
func newOneSided(c Case, l *layout, rank, last int) verb {
	dst, src, m := l.dst, l.src, l.m
	switch {
	case c.Op == Atomics:
		return m.window(func() error {
			m.added++
			_, err := symmetric.FetchAdd[uint64](m.words, last, counterAt, 1)
			return err
		})
	case c.Op == PingPong && (rank == 0 || rank == last):
		return newPingPong(l, rank, last)
	case c.Op == PingPong || rank != 0:
	case c.Op == Put:
		return func() error {
			if err := m.recvReg.Put(last, 0, src); err != nil {
				return err
			}
			return m.heap.Quiet()
		}
	case c.Op == Get:
		return func() error { return m.sendReg.Get(dst, last, 0) }
	case c.Op == PutBW:
		return m.window(func() error { return m.recvReg.PutNBI(last, 0, src) })
	case c.Op == GetBW:
		return m.window(func() error { return m.sendReg.GetNBI(dst, last, 0) })
	}
	return func() error { return nil }
}

// window returns many operations and their completion.
func (m *memory) window(do verb) verb {
	return func() error {
		for range window {
			if err := do(); err != nil {
				return err
			}
		}
		return m.heap.Quiet()
	}
}

// newPingPong returns one round of data with a signal: rank 0 sends and waits, rank last waits and
// sends.
func newPingPong(l *layout, rank, last int) verb {
	m, src := l.m, l.src
	peer := last - rank
	send := func() error {
		return m.recvReg.PutSignal(peer, 0, src, symmetric.Signal{In: m.words, At: signalAt, Op: symmetric.SignalSet, Value: m.rounds})
	}
	receive := func() error { // the heap's step timeout detects a dead peer
		_, err := symmetric.SignalWait(context.Background(), m.words, signalAt, symmetric.Ge, m.rounds)
		return err
	}
	first, second := send, receive
	if rank == last {
		first, second = receive, send
	}
	return func() error {
		m.rounds++
		if err := first(); err != nil {
			return err
		}
		return second()
	}
}
