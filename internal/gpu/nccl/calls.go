package nccl

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// calls makes the calls of one communicator. Arguments of the hot path are in args, so that nothing
// is allocated. The lock of the Comm is held, except for failure, and the context is current.
type calls struct {
	lib    *Library
	rank   int
	size   int
	handle uintptr      // ncclComm_t, 0 once it has ended
	ending atomic.Int32 // open, closing or aborting
	args   [16]uintptr
}

// queue calls p with the first n of c.args.
func (c *calls) queue(p *dl.Proc, name string, n int) error {
	r, err := p.Call(c.args[:n]...)
	if err != nil {
		return c.lib.unsupported(err)
	}
	if int32(r) != resultSuccess {
		return c.failure(name, int32(r), "")
	}
	return nil
}

func (c *calls) startGroup() error { return c.queue(&c.lib.t.groupStart, "ncclGroupStart", 0) }
func (c *calls) endGroup() error   { return c.queue(&c.lib.t.groupEnd, "ncclGroupEnd", 0) }

// words sets c.args to the first arguments of all collectives.
func (c *calls) words(dst, src uintptr, count int, dtype int32) *[16]uintptr {
	a := &c.args
	a[0], a[1], a[2], a[3] = src, dst, uintptr(count), uintptr(dtype)
	return a
}

func (c *calls) allReduce(dst, src uintptr, count int, dtype, op int32, stream uintptr) error {
	a := c.words(dst, src, count, dtype)
	a[4], a[5], a[6] = uintptr(op), c.handle, stream
	return c.queue(&c.lib.t.allReduce, "ncclAllReduce", 7)
}

func (c *calls) reduce(dst, src uintptr, count int, dtype, op int32, root int, stream uintptr) error {
	a := c.words(dst, src, count, dtype)
	a[4], a[5], a[6], a[7] = uintptr(op), uintptr(root), c.handle, stream
	return c.queue(&c.lib.t.reduce, "ncclReduce", 8)
}

func (c *calls) reduceScatter(dst, src uintptr, count int, dtype, op int32, stream uintptr) error {
	a := c.words(dst, src, count, dtype)
	a[4], a[5], a[6] = uintptr(op), c.handle, stream
	return c.queue(&c.lib.t.redScatter, "ncclReduceScatter", 7)
}

func (c *calls) allGather(dst, src uintptr, count int, dtype int32, stream uintptr) error {
	a := c.words(dst, src, count, dtype)
	a[4], a[5] = c.handle, stream
	return c.queue(&c.lib.t.allGather, "ncclAllGather", 6)
}

func (c *calls) broadcast(dst, src uintptr, count int, dtype int32, root int, stream uintptr) error {
	a := c.words(dst, src, count, dtype)
	a[4], a[5], a[6] = uintptr(root), c.handle, stream
	return c.queue(&c.lib.t.broadcast, "ncclBroadcast", 7)
}

func (c *calls) send(src uintptr, count int, dtype int32, peer int, stream uintptr) error {
	a := &c.args
	a[0], a[1], a[2], a[3], a[4], a[5] = src, uintptr(count), uintptr(dtype), uintptr(peer), c.handle, stream
	return c.queue(&c.lib.t.send, "ncclSend", 6)
}

func (c *calls) recv(dst uintptr, count int, dtype int32, peer int, stream uintptr) error {
	a := &c.args
	a[0], a[1], a[2], a[3], a[4], a[5] = dst, uintptr(count), uintptr(dtype), uintptr(peer), c.handle, stream
	return c.queue(&c.lib.t.recv, "ncclRecv", 6)
}

func (c *calls) allToAll(dst, src uintptr, count int, dtype int32, size int, stream uintptr) error {
	if c.lib.t.allToAll.Err() == nil {
		a := c.words(dst, src, count, dtype)
		a[4], a[5] = c.handle, stream
		return c.queue(&c.lib.t.allToAll, "ncclAlltoAll", 6)
	}
	return c.exchange(dst, src, count, dtype, size, 0, c.size, 0, c.size, stream)
}

func (c *calls) gather(dst, src uintptr, count int, dtype int32, size, root int, stream uintptr) error {
	if c.lib.t.gather.Err() == nil {
		a := c.words(dst, src, count, dtype)
		a[4], a[5], a[6] = uintptr(root), c.handle, stream
		return c.queue(&c.lib.t.gather, "ncclGather", 7)
	}
	// Every rank has one block for the root. exchange counts blocks from rank 0 on, so src moves
	// back.
	from := 0
	if c.rank == root {
		from = c.size
	}
	return c.exchange(dst, src-uintptr(root*count*size), count, dtype, size, root, root+1, 0, from, stream)
}

func (c *calls) scatter(dst, src uintptr, count int, dtype int32, size, root int, stream uintptr) error {
	if c.lib.t.scatter.Err() == nil {
		a := c.words(dst, src, count, dtype)
		a[4], a[5], a[6] = uintptr(root), c.handle, stream
		return c.queue(&c.lib.t.scatter, "ncclScatter", 7)
	}
	to := 0
	if c.rank == root {
		to = c.size
	}
	return c.exchange(dst-uintptr(root*count*size), src, count, dtype, size, 0, to, root, root+1, stream)
}

// exchange sends block i of src to ranks to0 <= i < to1, and receives into block i of dst from
// ranks from0 <= i < from1, in one group. size is the bytes of an element.
func (c *calls) exchange(dst, src uintptr, count int, dtype int32, size, to0, to1, from0, from1 int, stream uintptr) error {
	if err := c.startGroup(); err != nil {
		return err
	}
	block := uintptr(count * size)
	var err error
	for i := to0; i < to1 && err == nil; i++ {
		err = c.send(src+uintptr(i)*block, count, dtype, i, stream)
	}
	for i := from0; i < from1 && err == nil; i++ {
		err = c.recv(dst+uintptr(i)*block, count, dtype, i, stream)
	}
	// The thread must leave the group, even after an error.
	if end := c.endGroup(); err == nil {
		err = end
	}
	return err
}

// call calls a function of NCCL that returns ncclResult_t, and converts failures to Error. The
// device's context is current.
func (c *calls) call(p dl.Proc, name string, words ...uintptr) error {
	r, err := p.Call(words...)
	if err != nil {
		return c.lib.unsupported(err)
	}
	if int32(r) != resultSuccess {
		return c.failure(name, int32(r), "")
	}
	return nil
}

func (c *calls) failure(call string, code int32, what string) error {
	err := c.lib.failure(call, code, what, c.rank, c.size, c.handle)
	if c.ending.Load() == aborting {
		return fmt.Errorf("%w: %w", errCommAborted, err)
	}
	return err
}

// number sets the rank and size of a new communicator.
func (c *calls) number() error {
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

// bytes queues a message of one byte to and from every other rank. The sent bytes are at at, the
// received ones follow.
func (c *calls) bytes(at uintptr, s *cuda.Stream) error {
	if err := c.startGroup(); err != nil {
		return err
	}
	var errs []error
	for peer := range c.size {
		if peer == c.rank {
			continue
		}
		errs = append(errs, c.send(at+uintptr(peer), 1, typeU8, peer, s.Handle()),
			c.recv(at+uintptr(c.size+peer), 1, typeU8, peer, s.Handle()))
	}
	return errors.Join(append(errs, c.endGroup())...)
}
