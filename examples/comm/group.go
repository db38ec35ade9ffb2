package main

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
)

// scatter sends from rank 0 to every rank its part, including rank 0 itself. In a group call sends
// and receives progress together, so their order does not matter:
//
//	ncclGroupStart();
//	if (rank == root)
//	    for (int r = 0; r < nranks; r++) ncclSend(sendbuff[r], size, type, r, comm, stream);
//	ncclRecv(recvbuff, size, type, root, comm, stream);
//	ncclGroupEnd();
func scatter(c *comm) (bad int, err error) {
	const root = 0
	parts, err := c.array(count*c.Size(), letter)
	if err != nil {
		return 0, err
	}
	part, err := c.array(count, none)
	if err != nil {
		return 0, err
	}
	err = rank.Done(c.Batch(func(g *dist.Group) error {
		for r := range c.Size() {
			if c.Rank() != root {
				break
			}
			b, err := parts.Slice(r*count, (r+1)*count)
			if err != nil {
				return err
			}
			if _, err := g.Send(b, r); err != nil {
				return err
			}
		}
		_, err := g.Recv(part.Buffer, root)
		return err
	}))
	if err != nil {
		return 0, err
	}
	return part.check(func(i int) int32 { return letter(c.Rank()*count + i) })
}
