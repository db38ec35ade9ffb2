package gpu

import (
	"fmt"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// core is the constants of a rank's end of a group, which all parts of a Transport share.
type core struct {
	cfg    Config
	member Member
	on     tensor.Device
	limit  time.Duration
	ledger *ledger
}

func (c *core) inDevice(f func() error) error {
	if err := c.member.Device.Enter(); err != nil {
		return err
	}
	defer c.member.Device.Leave()
	return f()
}

// fault breaks the group after an error of the driver or an engine on this rank: the others wait
// for this rank.
func (c *core) fault(err error) error {
	_ = c.ledger.fail(endFault, c.member.Rank, err.Error())
	return errBroken
}

// places records the locations of op's buffers in the group's heaps. Operations in place have one
// location for both.
//
// Errors: ErrInvalid for a buffer in no heap.
func (c *core) places(op *dist.Op, p *opEntry) error {
	p.symmetric = true
	p.src, p.dst = c.place(op.Src), c.place(op.Dst)
	if !op.Src.IsZero() && !op.Dst.IsZero() && tensor.Overlap(op.Src, op.Dst) { // in place, as dist has checked
		if op.Src.Len() < op.Dst.Len() {
			p.src = p.dst
		} else {
			p.dst = p.src
		}
	}
	for _, side := range [...]struct {
		name  string
		place uint64
	}{{"source", p.src}, {"destination", p.dst}} {
		if side.place == placePrivate {
			return fmt.Errorf("%w: the %s is in no symmetric heap of the group; a heap of the parent counts if it was made before Split",
				dist.ErrInvalid, side.name)
		}
	}
	return nil
}

// place returns the heap and offset of buf: 0 for no buffer, placePrivate for a buffer in no heap.
func (c *core) place(buf tensor.Buffer) uint64 {
	if buf.Len() == 0 {
		return 0
	}
	number, off := c.member.Memory.locate(address(buf), buf.Bytes())
	if number == 0 {
		return placePrivate
	}
	return number<<placeSlabBits | uint64(off)
}

// announceMessage posts a send or receive. Messages without elements are not queued. Such a receive
// is done when its send was announced and compared. So is one from another host, whose data may
// come before the note about it.
func (c *core) announceMessage(e *ticket, op *dist.Op) error {
	out := op.Kind == dist.KindSend
	k, err := c.ledger.post(op.Peer, out, op.DType(), op.Count)
	if err != nil {
		return errBroken
	}
	if !out && c.ledger.compare && (op.Count == 0 || !c.member.Near(op.Peer)) {
		if e.empty.k != 0 {
			e.more = append(e.more, e.empty)
		}
		e.empty = arrival{op.Peer, k}
	}
	return nil
}

func (c *core) opError(op *dist.Op, err error) error {
	return &dist.OpError{Op: *op, Rank: c.member.Rank, Size: c.member.Size, Err: err}
}

// whole calls f, which needs all ranks, unless the group is broken. Then the memory is left until
// the process ends.
func (c *core) whole(f func() error) error {
	if c.ledger.broken() != nil || f == nil {
		return nil
	}
	return f()
}

// device returns the device of the group's buffers.
func (c *core) device() tensor.Device { return c.on }
