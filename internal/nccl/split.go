package nccl

import (
	"errors"
	"sync/atomic"
	"unsafe"
)

// Split divides the communicator. Ranks that pass the same color form a new one, ordered by key and
// then by their rank here. A negative color returns nil.
//
// Collective: all ranks. Errors: dist.ErrUnsupported before NCCL 2.18; *Error.
func (c *Comm) Split(color, key int, name string) (*Comm, error) {
	t := &c.lib.t
	if color < 0 {
		color = splitNoColor
	}
	return c.child(name, color >= 0, func(out, cfg uintptr) error {
		return c.call(t.split, "ncclCommSplit", c.handle, uintptr(color), uintptr(key), out, cfg)
	})
}

// child makes a communicator out of this one by start, which gets the addresses of the result and
// of the configuration. member is set if this rank will be in it.
func (c *Comm) child(name string, member bool, start func(out, cfg uintptr) error) (*Comm, error) {
	n, err := c.lib.newComm(c.dev, name, c.rank, c.size)
	if err != nil {
		return nil, err
	}
	err = c.with(func() error {
		if err := start(uintptr(unsafe.Pointer(&n.mem.comm)), uintptr(unsafe.Pointer(&n.mem.cfg))); err != nil {
			return err
		}
		if !member {
			return nil
		}
		n.handle = atomic.LoadUintptr(&n.mem.comm)
		err := n.number()
		if err != nil {
			err = errors.Join(err, n.call(n.lib.t.abort, "ncclCommAbort", n.end()))
		}
		return err
	})
	if err != nil || !member {
		return nil, errors.Join(err, n.unmap())
	}
	return n, nil
}

// number sets the rank and size of a new communicator.
func (c *Comm) number() error {
	var rank, size int32
	if r := c.lib.t.userRank(c.handle, &rank); r != resultSuccess {
		return c.failure("ncclCommUserRank", r, "")
	}
	if r := c.lib.t.count(c.handle, &size); r != resultSuccess {
		return c.failure("ncclCommCount", r, "")
	}
	c.rank, c.size = int(rank), int(size)
	return nil
}
