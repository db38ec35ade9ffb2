package nvshmem

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
)

// Time limits for closing the runtime, or using it after an abort. No wait in the driver or in the
// library is for work that may never end.
const (
	patience   = time.Second      // for operations of aborted groups
	closeTime  = 3 * time.Second  // for work left on the device of a runtime that is closed
	finishTime = 20 * time.Second // for finalize, which waits for the other ranks
)

// remains tracks operations of aborted groups that may still run.
type remains struct {
	stuck atomic.Bool // an operation did not end

	mu      sync.Mutex
	seen    bool      // an aborted group had queued operations
	engines []*engine // engines whose operations may still run
}

// add records the abort of e. It calls no driver function, since one may block. A closed stream is
// skipped: its operations had ended.
func (a *remains) add(e *engine) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = true
	if s := e.last.Load(); e.busy.Load() > 0 || s != nil && s.Handle() != 0 {
		a.engines = append(a.engines, e)
	}
}

// any reports whether an aborted group had queued operations.
func (a *remains) any() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen
}

// ended reports whether all operations of aborted groups have ended. A stream closed since then
// cannot answer and counts as not ended.
func (a *remains) ended() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.engines) > 0 {
		if idle, err := a.engines[0].idle(); err != nil || !idle {
			return false
		}
		a.engines = a.engines[1:]
	}
	return true
}

// settle waits briefly for operations of aborted groups, and returns nil once they have ended.
func (a *remains) settle(call string) error {
	if !a.stuck.Load() && within(patience, a.ended) {
		return nil
	}
	a.stuck.Store(true)
	return refused(call, dist.ErrAborted, "operations of an aborted group may be waiting on the GPU, and NVSHMEM would hang with them")
}

// ending is the state of closing a runtime.
type ending struct {
	once   sync.Once
	closed atomic.Bool
	left   atomic.Pointer[error] // why the library was left to the end of the process
}

// within polls done until it is true, for at most limit. Returns: whether it was true.
func within(limit time.Duration, done func() bool) bool {
	for began := time.Now(); !done(); {
		waited := time.Since(began)
		if waited > limit {
			return false
		}
		gpu.Rest(waited)
	}
	return true
}

// idle reports whether the device has finished all operations of e. A group's streams wait for each
// other, so the last one decides. Errors: cuda.ErrClosed for a closed stream; those of the driver.
func (e *engine) idle() (bool, error) {
	if e.busy.Load() > 0 {
		return false, nil
	}
	s := e.last.Load()
	if s == nil {
		return true, nil
	}
	return s.Idle()
}

// leave leaves the library, as it is, to the end of the process.
func (rt *Runtime) leave(why error) {
	rt.end.left.CompareAndSwap(nil, &why)
	process.Lock()
	defer process.Unlock()
	if process.runtime == rt {
		process.broken = why
	}
}

// Left returns why Close left the library and its GPU work to the end of the process. It is nil
// before Close, and after a finalize. If it is not nil, the owner of the device's context must
// leave the context too: releasing it may wait for kernels that never end.
func (rt *Runtime) Left() error {
	if why := rt.end.left.Load(); why != nil {
		return *why
	}
	return nil
}

// Close frees the memory that is still allocated and stops the library. It does so only if all
// ranks agree that no group was aborted, no error occurred and the GPU is idle. Otherwise it leaves
// the library to the end of the process, which then cannot start it again; see Left. It waits some
// seconds for the GPU and some for the library, and for other ranks as long as p.Control of Start
// does.
//
// Collective: all ranks, with nothing of the runtime in use: engines closed, streams idle.
// Idempotent. Errors: dist.ErrTimeout if finalize does not return, because a rank died during it.
// No error: memory that was still allocated, and a library left for a known reason.
func (rt *Runtime) Close() (err error) {
	rt.end.once.Do(func() { err = rt.close() })
	return err
}

func (rt *Runtime) close() error {
	err := rt.member.Agree(rt.finished())
	rt.end.closed.Store(true)
	if err != nil {
		rt.leave(err)
		return nil
	}
	// All ranks call finalize, and it waits for all of them. A rank that dies now would block the
	// others forever.
	stopped := make(chan error, 1)
	go func() { stopped <- rt.stop() }()
	select {
	case err := <-stopped:
		if err != nil {
			rt.leave(err)
			return err
		}
	case <-time.After(finishTime):
		err := refused("close", dist.ErrTimeout, "%v has not finalized after %v, because a rank died or left: it is left to the end of the process", rt.lib, finishTime)
		rt.leave(err)
		return err
	}
	rt.libc.free(unsafe.Pointer(rt.scratch))
	release(rt)
	rt.heap.clear()
	return nil
}

// finished returns nil if this rank no longer needs the library.
func (rt *Runtime) finished() error {
	if rt.remains.any() || rt.remains.stuck.Load() {
		return refused("close", dist.ErrAborted, "a group was aborted, and its operations may never end on some rank")
	}
	if !within(closeTime, rt.mu.TryLock) {
		return refused("close", dist.ErrTimeout, "a call of the library has not returned")
	}
	rt.mu.Unlock()
	if err := rt.open("close"); err != nil {
		return err
	}
	if err := rt.drain(); err != nil {
		return err
	}
	if _, _, err := rt.dev.Memory(); err != nil {
		return rt.broke("close", "", 0, err)
	}
	return nil
}

// stop finalizes the library.
func (rt *Runtime) stop() error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if err := rt.dev.Enter(); err != nil {
		return err
	}
	defer rt.dev.Leave()
	rt.scale.close()
	rt.lib.t.finalize()
	return nil
}
