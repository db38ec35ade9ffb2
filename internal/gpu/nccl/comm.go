package nccl

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"golang.org/x/sys/unix"
)

// Comm is one rank's end of an NCCL communicator. It takes one call at a time: calls of several
// goroutines wait for each other, but all ranks must make them in one order. Failed and Abort may
// be called at any time.
type Comm struct {
	calls
	dev  *cuda.Device
	name string

	done chan struct{} // closed when it has ended

	mu     sync.Mutex // held during calls
	mem    *page
	raw    []byte // mem, to unmap
	redOps redOpCache

	alive sync.RWMutex // write-locked to end handle
}

// States of a communicator.
const (
	open int32 = iota
	closing
	aborting
)

// newComm returns a Comm without a communicator.
func (l *Library) newComm(dev *cuda.Device, name string, rank, size int) (*Comm, error) {
	cname, err := l.names.of(name)
	if err != nil {
		return nil, err
	}
	mem, raw, err := newPage()
	if err != nil {
		return nil, err
	}
	c := &Comm{calls: calls{lib: l, rank: rank, size: size}, dev: dev, name: name, mem: mem, raw: raw, done: make(chan struct{})}
	l.cfg.fill(&mem.cfg, cname)
	return c, nil
}

// InitComm returns a new communicator of size ranks that meet at id; name appears in NCCL's own
// traces.
//
// Collective: all ranks, same id, size and settings, each with its own device. Errors: *Error;
// dist.ErrTimeout if not all ranks arrive within Config.InitTimeout.
func (l *Library) InitComm(dev *cuda.Device, id UniqueID, rank, size int, name string) (*Comm, error) {
	if size < 1 || rank < 0 || rank >= size {
		return nil, fmt.Errorf("nccl: %w: rank %d is not in 0 to %d", dist.ErrInvalid, rank, size-1)
	}
	c, err := l.newComm(dev, name, rank, size)
	if err != nil {
		return nil, err
	}
	c.mem.id = id
	if err := onDevice(dev, func() error { return c.limited(c.initRank) }); err != nil {
		return nil, errors.Join(err, c.unmap())
	}
	return c, nil
}

// NewComm is InitComm for the ranks of p, which meet through p's control group.
//
// Collective: all ranks of p. Errors: those of InitComm, on all ranks.
func (l *Library) NewComm(p *gpu.Member, name string) (*Comm, error) {
	var id UniqueID
	var err error
	if p.Rank == 0 {
		id, err = l.NewUniqueID()
	}
	if err := p.Agree(err); err != nil {
		return nil, err
	}
	if err := p.Share(id[:], 0); err != nil {
		return nil, fmt.Errorf("nccl: sharing the unique id: %w", err)
	}
	c, err := l.InitComm(p.Device, id, p.Rank, p.Size, name)
	if err := p.Agree(err); err != nil {
		if c != nil {
			c.Abort()
			err = errors.Join(err, c.Close())
		}
		return nil, err
	}
	return c, nil
}

// initRank calls the newest of NCCL's functions that make a communicator.
func (c *Comm) initRank() error {
	m, t := c.mem, &c.lib.t
	out, cfg := uintptr(unsafe.Pointer(&m.comm)), uintptr(unsafe.Pointer(&m.cfg))
	if t.initScalable.Err() == nil {
		return c.call(t.initScalable, "ncclCommInitRankScalable", out, uintptr(c.size), uintptr(c.rank), 1, uintptr(unsafe.Pointer(&m.id)), cfg)
	}
	// The id is passed by value. A struct of 128 bytes has class MEMORY in the SysV ABI: 16 words
	// on the stack. The other arguments use the first four of six registers; two zeros fill the
	// rest.
	words := [22]uintptr{out, uintptr(c.size), uintptr(c.rank), cfg}
	for i := range idBytes / 8 {
		words[6+i] = *(*uintptr)(unsafe.Pointer(&m.id[8*i]))
	}
	return c.call(t.initConfig, "ncclCommInitRankConfig", words[:]...)
}

// limited calls start, which stores a new communicator in mem.comm, and takes it over. It ends
// start after Config.InitTimeout, as when a rank died before it arrived.
func (c *Comm) limited(start func() error) error {
	limit := c.lib.cfg.InitTimeout
	if limit == 0 {
		limit = defaultInitTimeout
	}
	returned, ended := make(chan struct{}), make(chan struct{})
	late := false
	go func() {
		defer close(ended)
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-returned:
		case <-timer.C:
			late = true
			c.breakOff(returned)
		}
	}()
	err := start()
	close(returned)
	<-ended
	handle := atomic.LoadUintptr(&c.mem.comm)
	switch {
	case late:
		return fmt.Errorf("nccl: communicator %q rank %d/%d: not all ranks came within %v: %w", c.name, c.rank, c.size, limit,
			errors.Join(dist.ErrTimeout, err))
	case err != nil && handle != 0:
		abort := c.call(c.lib.t.abort, "ncclCommAbort", handle)
		return errors.Join(err, abort)
	case err != nil:
		return err
	}
	c.handle = handle
	return nil
}

// breakOff ends a call that makes a communicator on another thread. The abort is inside a group.
// Its first part, which sets the flags that the call reads, runs at once. Its second part, which
// frees the communicator, runs at the group's end, after the call has returned.
func (c *Comm) breakOff(returned <-chan struct{}) {
	t := &c.lib.t
	_ = onDevice(c.dev, func() error {
		if err := c.call(t.groupStart, "ncclGroupStart"); err != nil {
			<-returned
			return err
		}
		if handle := atomic.LoadUintptr(&c.mem.comm); handle != 0 {
			_ = c.call(t.abort, "ncclCommAbort", handle)
		}
		<-returned
		return c.call(t.groupEnd, "ncclGroupEnd")
	})
}

// Rank returns this rank's number in the communicator.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.size }

// Device returns the device of this rank.
func (c *Comm) Device() *cuda.Device { return c.dev }

// Library returns the library that runs the communicator.
func (c *Comm) Library() *Library { return c.lib }

// String returns "nccl communicator "world" rank 1/4".
func (c *Comm) String() string {
	return fmt.Sprintf("nccl communicator %q rank %d/%d", c.name, c.rank, c.size)
}

// gone returns the error of an ended communicator, or nil.
func (c *Comm) gone() error {
	switch c.ending.Load() {
	case closing:
		return errCommClosed
	case aborting:
		return errCommAborted
	}
	return nil
}

// with runs fn as one call: alone, on a locked thread with the device's context current, if the
// communicator is open.
func (c *Comm) with(fn func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.gone(); err != nil {
		return err
	}
	return onDevice(c.dev, fn)
}

// unmap frees the page, once.
func (c *Comm) unmap() error {
	raw := c.raw
	c.raw, c.mem = nil, nil
	if raw == nil {
		return nil
	}
	return unix.Munmap(raw)
}

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
