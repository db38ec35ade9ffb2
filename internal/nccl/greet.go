package nccl

import (
	"errors"
	"time"

	"github.com/symgrad/symgrad/internal/cuda"
)

// greet exchanges a byte between all ranks. NCCL connects two ranks in their first message, despite
// NCCL_RUNTIME_CONNECT, and the call then waits for the other rank. An all-to-all, gather or
// scatter consists of messages. At this point all ranks wait for each other anyway.
//
// Collective: all ranks. Errors: *Error; that of an aborted communicator if not all ranks arrive
// within Config.InitTimeout.
func (c *Comm) greet() error {
	if c.size == 1 {
		return nil
	}
	limit := c.lib.cfg.InitTimeout
	if limit == 0 {
		limit = defaultInitTimeout
	}
	late := time.AfterFunc(limit, c.Abort)
	defer late.Stop()
	return c.with(func() error {
		at, err := c.dev.Alloc(int64(2 * c.size))
		if err != nil {
			return err
		}
		s, err := c.dev.NewStream(0)
		if err == nil {
			err = errors.Join(c.bytes(at, s), s.Synchronize(), s.Close())
		}
		return errors.Join(err, c.dev.Free(at))
	})
}

// bytes queues a message of one byte to and from every other rank. The sent bytes are at at, the
// received ones follow.
func (c *Comm) bytes(at uintptr, s *cuda.Stream) error {
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
