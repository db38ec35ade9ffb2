package nvshmem

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// caller calls the library, one call at a time, and keeps its first failure.
type caller struct {
	lib    *Library
	member *gpu.Member
	dev    *cuda.Device

	failure atomic.Pointer[error] // first error of the library or the device
	remains remains
	end     ending

	mu      sync.Mutex // protects calls of the library, and the fields below
	driver  *driver
	scratch *scratch // C memory
	args    [8]uintptr
}

// setup calls a function that returns a code, outside of the hot path. The context is current.
//
//go:uintptrescapes
func (c *caller) setup(p *dl.Proc, name string, args ...uintptr) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err := p.Call(args...)
	if err != nil {
		return unsupported(name, p)
	}
	return c.code(name, r)
}

// code returns the error of a function that returned r.
func (c *caller) code(name string, r uintptr) error {
	if int32(r) == 0 {
		return nil
	}
	return &Error{Call: name, Code: int32(r), Library: c.lib.String()}
}

// fail records the first failure. After it the library is not called.
func (c *caller) fail(err error) { c.failure.CompareAndSwap(nil, &err) }

// Failed returns the first error of the library or the device, or nil.
func (c *caller) Failed() error {
	if e := c.failure.Load(); e != nil {
		return *e
	}
	return nil
}

// open returns nil while the library can be called.
func (c *caller) open(call string) error {
	if c.end.closed.Load() {
		return refused(call, dist.ErrClosed, "the runtime is closed")
	}
	return c.Failed()
}

// Library returns the library that the runtime was started with.
func (c *caller) Library() *Library { return c.lib }

// queue calls p with the first n of c.args. The lock is held.
func (c *caller) queue(p *dl.Proc, name string, n int) error {
	r, err := p.Call(c.args[:n]...)
	if err != nil {
		return unsupported(name, p)
	}
	if int32(r) == 0 {
		return nil
	}
	err = c.code(name, r)
	c.fail(err)
	return err
}

// void calls a function that returns nothing with the first n of c.args. The lock is held.
func (c *caller) void(p *dl.Proc, name string, n int) error {
	if _, err := p.Call(c.args[:n]...); err != nil {
		return unsupported(name, p)
	}
	return nil
}

// bare queues a call whose only argument is the stream.
func (c *caller) bare(call string, p *dl.Proc, s *cuda.Stream) error {
	if err := c.enter(call, s); err != nil {
		return err
	}
	defer c.exit()
	c.args[0] = s.Handle()
	return c.void(p, call, 1)
}

// Rank returns this rank's number in the runtime.
func (c *caller) Rank() int { return c.member.Rank }

// Size returns the number of ranks of the runtime.
func (c *caller) Size() int { return c.member.Size }

// enter takes the lock and makes the device's context current for a call on s; exit undoes both.
func (c *caller) enter(call string, s *cuda.Stream) error {
	c.mu.Lock()
	err := c.open(call)
	if err == nil {
		err = c.dev.Enter()
	}
	if err != nil {
		c.mu.Unlock()
		return err
	}
	if err = c.usable(call, s); err != nil {
		c.exit()
	}
	return err
}

func (c *caller) exit() {
	c.dev.Leave()
	c.mu.Unlock()
}

func (c *caller) checkRank(call string, rank int) error {
	if rank < 0 || rank >= c.member.Size {
		return refused(call, dist.ErrRank, "rank %d, want 0 to %d", rank, c.member.Size-1)
	}
	return nil
}

// healthy returns nil while the library can be called and the device works. It calls the driver,
// which takes time.
func (c *caller) healthy(call string) error {
	if err := c.open(call); err != nil {
		return err
	}
	if err := c.remains.settle(call); err != nil {
		return err
	}
	if _, _, err := c.dev.Memory(); err != nil {
		return c.broke(call, "", 0, err)
	}
	return nil
}

// firstSumEnds waits for the first sum of a group on s. It never ends if another rank could not
// queue its part.
func (c *caller) firstSumEnds(s *cuda.Stream) error {
	var idle bool
	var err error
	if within(firstSumTime, func() bool {
		idle, err = s.Idle()
		return idle || err != nil
	}) {
		return err
	}
	c.remains.stuck.Store(true)
	return fmt.Errorf("nvshmem: %w: the first sum of a group has not ended after %v: %s", dist.ErrTimeout, firstSumTime, c.lib)
}

// drain waits until the device has finished the work on all of its streams. A driver without this
// query is assumed idle; a failed device reports so at the next call.
func (c *caller) drain() error {
	all, err := c.dev.MarkAll()
	if all == nil {
		return err
	}
	defer all.Close()
	var idle bool
	if !within(closeTime, func() bool {
		idle, err = all.Done()
		return idle || err != nil
	}) {
		return refused("close", dist.ErrTimeout, "the GPU is still busy after %v, and NVSHMEM would wait for it", closeTime)
	}
	return err
}
