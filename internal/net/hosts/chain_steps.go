package hosts

import (
	"slices"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/net/wire"
	"github.com/symgrad/symgrad/tensor"
)

// begin starts the messages of k that need only its source.
func (c *chain) begin(k *chunk) error {
	if !c.t.l.leads {
		return nil
	}
	if err := c.sent(k); err != nil {
		return err
	}
	if k.pos > 0 {
		c.recv(&k.s.in, k.prev, channelBulk, k.s.acc[:k.n*c.acc.Size()])
		return nil
	}
	if c.near != nil {
		return nil
	}
	own, err := c.own(k, k.s.acc)
	if err == nil {
		c.send(&k.s.out, k.next, channelBulk, own)
	}
	return err
}

// up combines k up to this host, and passes the carry or the result on.
func (c *chain) up(k *chunk) error {
	lead := c.t.l.leads
	if lead && k.pos > 0 {
		if err := c.t.wait(&k.s.in, k.prev); err != nil {
			return err
		}
	}
	if k.pos < k.last {
		if err := c.carry(k); err != nil || !lead || k.pos < k.low {
			return err
		}
		return c.expect(k)
	}
	result, err := c.finish(k)
	if err == nil && lead && k.low < k.last {
		c.send(&k.s.on, k.prev, channelResults, result)
	}
	return err
}

// carry makes the partial result up to this host, which is not the last, and sends it on.
func (c *chain) carry(k *chunk) error {
	if c.near == nil && k.pos == 0 {
		return nil // begin has sent it
	}
	acc, err := view(k.s.acc, k.n, c.acc)
	if err != nil {
		return err
	}
	part, err := c.add(k, acc)
	if err != nil {
		return err
	}
	if c.near != nil {
		if _, err := c.near.Reduce(acc, part, c.red(), 0); err != nil {
			return c.t.inside(err)
		}
	}
	if c.t.l.leads {
		c.send(&k.s.out, k.next, channelBulk, acc)
	}
	return nil
}

// finish makes the result, on the last host, and returns it on the ranks that have it.
func (c *chain) finish(k *chunk) (tensor.Buffer, error) {
	result, err := c.place(k)
	if err != nil {
		return result, err
	}
	acc := result
	if c.ends {
		if acc, err = view(k.s.acc, k.n, c.acc); err != nil {
			return result, err
		}
	}
	part, err := c.add(k, acc)
	if err != nil {
		return result, err
	}
	has := true
	switch near := c.t.near(k.root); {
	case c.near == nil:
	case k.root < 0:
		_, err = c.near.AllReduce(acc, part, c.red())
	default:
		has = max(near, 0) == c.near.Rank()
		_, err = c.near.Reduce(acc, part, c.red(), max(near, 0))
	}
	if err != nil {
		return result, c.t.inside(err)
	}
	if c.ends && has {
		err = c.p.Finish(result, acc)
	}
	return result, err
}

// add returns this rank's part of the sum of its host: its elements, on the leader with the carry.
// If the leader is the only rank, its part is in acc.
func (c *chain) add(k *chunk, acc tensor.Buffer) (tensor.Buffer, error) {
	own, err := c.own(k, c.t.scratch)
	if err != nil || k.pos == 0 || !c.t.l.leads {
		return own, err
	}
	to := acc
	if c.near != nil {
		if to, err = view(k.s.acc, k.n, c.acc); err != nil {
			return own, err
		}
	}
	srcs := [2]unsafe.Pointer{pointer(k.s.acc), own.Pointer()}
	dsts := [1]unsafe.Pointer{to.Pointer()}
	c.sum(dsts[:], srcs[:], k.n, c.t.mults, 0)
	return to, nil
}

// own returns this rank's elements, or the partial result that they begin, in memory.
func (c *chain) own(k *chunk, memory []byte) (tensor.Buffer, error) {
	src, err := c.op.Src.Slice(k.at, k.at+k.n)
	if err != nil || !c.begins {
		return src, err
	}
	part, err := view(memory, k.n, c.acc)
	if err != nil {
		return part, err
	}
	return part, c.p.Begin(part, src, c.t.mults[c.t.rank])
}

// place returns the memory of the result: in the destination, if this rank needs it.
func (c *chain) place(k *chunk) (tensor.Buffer, error) {
	if k.root < 0 || k.root == c.t.rank {
		return c.op.Dst.Slice(k.to, k.to+k.n)
	}
	return view(k.s.result, k.n, c.op.DType())
}

// expect starts to receive the result. A source that is still sent is not overwritten.
func (c *chain) expect(k *chunk) error {
	result, err := c.place(k)
	if err != nil {
		return err
	}
	if c.near == nil && k.pos == 0 {
		if err := c.t.wait(&k.s.out, k.next); err != nil {
			return err
		}
	}
	c.recv(&k.s.back, k.next, channelResults, result.Raw())
	return nil
}

// down passes the result of k to the previous host and to the ranks of this one.
func (c *chain) down(k *chunk) error {
	if k.pos == k.last || k.pos < k.low {
		return nil
	}
	result, err := c.place(k)
	if err != nil {
		return err
	}
	if c.t.l.leads {
		if err := c.t.wait(&k.s.back, k.next); err != nil {
			return err
		}
		if k.pos > k.low {
			c.send(&k.s.on, k.prev, channelResults, result)
		}
	}
	if c.near == nil {
		return nil
	}
	switch root := c.t.near(k.root); {
	case k.root < 0:
		_, err = c.near.Broadcast(result, result, 0)
	case root <= 0: // on another host, or the leader
	case c.t.l.leads:
		_, err = c.near.Send(result, root)
	case root == c.near.Rank():
		_, err = c.near.Recv(result, 0)
	}
	return c.t.inside(err)
}

// sent waits until messages from the slot of k are sent, so that it can be used again.
func (c *chain) sent(k *chunk) error {
	if err := c.t.wait(&k.s.out, -1); err != nil {
		return err
	}
	return c.t.wait(&k.s.on, -1)
}

func (c *chain) red() dist.RedOp { return dist.RedOp{Kind: c.p.Combining()} }

func (c *chain) send(r *wire.Request, to int, channel uint32, b tensor.Buffer) {
	c.t.p.w.Send(r, c.t.ranks[to], c.t.tag(channel), b.Raw())
}

func (c *chain) recv(r *wire.Request, from int, channel uint32, memory []byte) {
	c.t.p.w.Recv(r, c.t.ranks[from], c.t.tag(channel), memory)
}

// view returns n elements of memory.
func view(memory []byte, n int, dt tensor.DType) (tensor.Buffer, error) {
	return tensor.FromPointer(pointer(memory), n, dt, tensor.Host)
}

// near returns the number of a rank among those of this host; -1 if it is on another.
func (t *Transport) near(rank int) int { return slices.Index(t.l.members[t.l.host], rank) }
