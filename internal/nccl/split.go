package nccl

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
)

// Split divides the communicator: ranks that pass the same color form a new one, numbered by key and, among equal keys, by
// their rank here. A negative color gives nil.
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

// Shrink is a new communicator without the ranks in exclude, which do not call it; the others keep their order. With abort,
// what is queued ends first: the way out when the excluded ranks have died. The old communicator is to be closed, or aborted.
//
// Collective: all ranks that remain, same arguments. Errors: dist.ErrUnsupported before NCCL 2.27; dist.ErrInvalid for an
// empty list, one that holds this rank, or a rank out of range; *Error.
func (c *Comm) Shrink(exclude []int, abort bool, name string) (*Comm, error) {
	if err := c.checkExcluded(exclude); err != nil {
		return nil, err
	}
	flags := uintptr(0)
	if abort {
		flags = shrinkAbort
	}
	t := &c.lib.t
	return c.child(name, true, func(out, cfg uintptr) error {
		for i, r := range exclude {
			c.mem.excluded[i] = int32(r) // NCCL sorts the list in place
		}
		list := uintptr(unsafe.Pointer(&c.mem.excluded[0]))
		return c.call(t.shrink, "ncclCommShrink", c.handle, list, uintptr(len(exclude)), out, cfg, flags)
	})
}

func (c *Comm) checkExcluded(exclude []int) error {
	switch {
	case len(exclude) == 0:
		return fmt.Errorf("nccl: shrink: %w: no ranks to leave out", dist.ErrInvalid)
	case len(exclude) > maxExcluded:
		return fmt.Errorf("nccl: shrink: %w: %d ranks to leave out, at most %d fit", dist.ErrInvalid, len(exclude), maxExcluded)
	}
	seen := make(map[int]bool, len(exclude))
	for _, r := range exclude {
		switch {
		case r < 0 || r >= c.size:
			return fmt.Errorf("nccl: shrink: %w: %d is not in 0 to %d", dist.ErrRoot, r, c.size-1)
		case r == c.rank:
			return fmt.Errorf("nccl: shrink: %w: rank %d cannot leave itself out", dist.ErrInvalid, r)
		case seen[r]:
			return fmt.Errorf("nccl: shrink: %w: rank %d is named twice", dist.ErrInvalid, r)
		}
		seen[r] = true
	}
	return nil
}

// child makes a communicator out of this one by a call that is given where to leave it, and its configuration. member is
// whether this rank will be in it.
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

// number asks for this rank's place in a new communicator.
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
