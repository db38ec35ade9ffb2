package nccl

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// Revoke ends what is queued and lets the communicator be split or shrunk afterwards, but take no more operations.
//
// Collective: all ranks that live. Errors: dist.ErrUnsupported before NCCL 2.28.7; *Error.
func (c *Comm) Revoke() error {
	return c.with(func() error {
		err := c.call(c.lib.t.revoke, "ncclCommRevoke", c.handle, 0)
		c.revoked = c.revoked || err == nil
		return err
	})
}

// UniqueID is where ranks that join the communicator meet it: one of its ranks makes it, gives it to them, and passes it to
// Grow. One id serves one Grow.
//
// Errors: dist.ErrUnsupported before NCCL 2.29.2; *Error.
func (c *Comm) UniqueID() (UniqueID, error) {
	var id [idBytes]byte
	err := c.with(func() error {
		if c.lib.t.growID == nil {
			return c.lib.unsupported(c.lib.lib.Require("ncclCommGetUniqueId", "2.29.2"))
		}
		if r := c.lib.t.growID(c.handle, &id); r != resultSuccess {
			return c.failure("ncclCommGetUniqueId", r, "")
		}
		return nil
	})
	return id, err
}

// Grow is a new communicator of size ranks: those of c, with their numbers, and new ones, which call Library.JoinComm. id is
// that of UniqueID on the rank that made it, and nil on the others.
//
// Collective: all ranks of c, and the new ones. Errors: dist.ErrUnsupported before NCCL 2.29.2; dist.ErrInvalid; *Error.
func (c *Comm) Grow(id *UniqueID, size int, name string) (*Comm, error) {
	if size <= c.size {
		return nil, fmt.Errorf("nccl: grow: %w: to %d ranks from %d", dist.ErrInvalid, size, c.size)
	}
	return c.child(name, true, func(out, cfg uintptr) error {
		at := uintptr(0)
		if id != nil {
			c.mem.id = *id
			at = uintptr(unsafe.Pointer(&c.mem.id))
		}
		joins := -1 // this rank keeps its number
		return c.call(c.lib.t.grow, "ncclCommGrow", c.handle, uintptr(size), at, uintptr(joins), out, cfg)
	})
}

// JoinComm is Grow for a rank that is new, as number rank of size.
//
// Collective, Errors: as Comm.Grow; dist.ErrTimeout when not all ranks came within Config.InitTimeout.
func (l *Library) JoinComm(dev *cuda.Device, id UniqueID, rank, size int, name string) (*Comm, error) {
	if size < 1 || rank < 0 || rank >= size {
		return nil, fmt.Errorf("nccl: grow: %w: rank %d is not in 0 to %d", dist.ErrInvalid, rank, size-1)
	}
	if err := l.t.grow.Err(); err != nil {
		return nil, l.unsupported(err)
	}
	c, err := l.newComm(dev, name, rank, size)
	if err != nil {
		return nil, err
	}
	c.mem.id = id
	out, cfg := uintptr(unsafe.Pointer(&c.mem.comm)), uintptr(unsafe.Pointer(&c.mem.cfg))
	err = onDevice(dev, func() error {
		return c.limited(func() error {
			return c.call(l.t.grow, "ncclCommGrow", 0, uintptr(size), uintptr(unsafe.Pointer(&c.mem.id)), uintptr(rank), out, cfg)
		})
	})
	if err != nil {
		return nil, errors.Join(err, c.unmap())
	}
	return c, nil
}

// Suspend gives the communicator's memory on the device back until Resume.
//
// Collective: all ranks. Errors: dist.ErrUnsupported before NCCL 2.29.7; *Error.
func (c *Comm) Suspend() error {
	return c.with(func() error { return c.call(c.lib.t.suspend, "ncclCommSuspend", c.handle, suspendMemory) })
}

// Resume undoes Suspend. Collective, Errors: as Suspend.
func (c *Comm) Resume() error {
	return c.with(func() error { return c.call(c.lib.t.resume, "ncclCommResume", c.handle) })
}

// MemoryStat is which of a communicator's device memory to count.
type MemoryStat int32

// The counts of ncclCommMemStat_t, in bytes, except MemorySuspended, which is 0 or 1.
const (
	MemorySuspendable MemoryStat = iota
	MemorySuspended
	MemoryPersistent
	MemoryTotal
)

// Memory is one count of the communicator's device memory.
//
// Errors: dist.ErrUnsupported before NCCL 2.29.7; *Error.
func (c *Comm) Memory(which MemoryStat) (uint64, error) {
	var v uint64
	err := c.with(func() error {
		if c.lib.t.memStat == nil {
			return c.lib.unsupported(c.lib.lib.Require("ncclCommMemStats", "2.29.7"))
		}
		if r := c.lib.t.memStat(c.handle, int32(which), &v); r != resultSuccess {
			return c.failure("ncclCommMemStats", r, "")
		}
		return nil
	})
	return v, err
}

// PutSignal queues on s a copy of src into the window of peer, offset bytes from its beginning, and then a signal to peer.
//
// Owns: src belongs to the communicator until s is past the call. Errors: dist.ErrUnsupported before NCCL 2.29.2;
// dist.ErrRank; dist.ErrRange for bytes outside of the window; *Error.
func (c *Comm) PutSignal(src tensor.Buffer, peer int, w Window, offset int64, s *cuda.Stream) error {
	if err := c.checkPeer("put", peer); err != nil {
		return err
	}
	if offset < 0 || src.Bytes() > w.Bytes-offset {
		return fmt.Errorf("nccl: put to rank %d: %w: %d B at %d of a window of %d B", peer, dist.ErrRange, src.Bytes(), offset, w.Bytes)
	}
	if !src.DType().Valid() {
		return fmt.Errorf("nccl: put to rank %d: %w: no source", peer, dist.ErrDType)
	}
	return c.with(func() error {
		return c.call(c.lib.t.putSignal, "ncclPutSignal", uintptr(src.Pointer()), uintptr(src.Len()), uintptr(dtypes[src.DType()]),
			uintptr(peer), w.Handle, uintptr(offset), 0, 0, 0, c.handle, s.Handle())
	})
}

// Signal queues on s a signal to peer. Errors: as PutSignal.
func (c *Comm) Signal(peer int, s *cuda.Stream) error {
	if err := c.checkPeer("signal", peer); err != nil {
		return err
	}
	return c.with(func() error {
		return c.call(c.lib.t.signal, "ncclSignal", uintptr(peer), 0, 0, 0, c.handle, s.Handle())
	})
}

// WaitSignal makes what is queued on s later wait for counts[i] signals from rank i, for every i; 0 waits for none.
//
// Shapes: counts has one number for each rank. Errors: as PutSignal.
func (c *Comm) WaitSignal(counts []int, s *cuda.Stream) error {
	if len(counts) != c.size || c.size > maxSignals {
		return fmt.Errorf("nccl: signal wait: %w: %d counts for %d ranks, of at most %d", dist.ErrCount, len(counts), c.size, maxSignals)
	}
	return c.with(func() error {
		n := 0
		for peer, count := range counts {
			if count <= 0 {
				continue
			}
			c.mem.signals[n] = waitSignalDesc{count: int32(count), peer: int32(peer)}
			n++
		}
		if n == 0 {
			return nil
		}
		return c.call(c.lib.t.waitSignal, "ncclWaitSignal", uintptr(n), uintptr(unsafe.Pointer(&c.mem.signals[0])), c.handle, s.Handle())
	})
}

func (c *Comm) checkPeer(what string, peer int) error {
	if peer < 0 || peer >= c.size {
		return fmt.Errorf("nccl: %s: %w: peer %d is not in 0 to %d", what, dist.ErrRank, peer, c.size-1)
	}
	return nil
}
