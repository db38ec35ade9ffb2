package main

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
)

// window gathers the elements of all ranks on every rank, from memory that is registered as a
// symmetric window:
//
//	ncclMemAlloc(&buff, size);
//	ncclCommWindowRegister(comm, buff, size, &win, NCCL_WIN_COLL_SYMMETRIC);
//	ncclAllGather(sendbuff, recvbuff, count, ncclInt, comm, stream);
//	ncclCommWindowDeregister(comm, win);
//
// A symmetric heap is such memory. The hint declares that the buffers are at the same offsets on
// all ranks.
func window(c *comm) (bad int, err error) {
	src, err := c.array(count, func(i int) int32 { return int32(c.Rank()*count + i) })
	if err != nil {
		return 0, err
	}
	dst, err := c.array(count*c.Size(), none)
	if err != nil {
		return 0, err
	}
	if err := rank.Done(c.With(dist.Hints{Symmetric: true}).AllGather(dst.Buffer, src.Buffer)); err != nil {
		return 0, err
	}
	return dst.check(func(i int) int32 { return int32(i) })
}
