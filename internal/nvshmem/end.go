package nvshmem

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/gpu"
)

// How long things may take when the runtime is closed, or used after an abort. Nothing here waits
// in the driver or in the library for work that may never end.
const (
	patience   = time.Second      // for operations of aborted groups
	closeTime  = 3 * time.Second  // for what is left on the device of a runtime that is closed
	finishTime = 20 * time.Second // for the library to finalize, which waits for the other ranks
)

// remains is what is left of groups that were aborted.
type remains struct {
	stuck atomic.Bool // an operation did not end

	mu      sync.Mutex
	seen    bool      // a group was aborted that had queued anything
	engines []*engine // those of which operations may be under way
}

// add notes that e was aborted. It asks nothing of the driver, where a call may be waiting. A
// stream that was closed before is no reason to look again: it was waited for.
func (a *remains) add(e *engine) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = true
	if s := e.last.Load(); e.busy.Load() > 0 || s != nil && s.Handle() != 0 {
		a.engines = append(a.engines, e)
	}
}

// any reports whether a group that had queued anything was aborted.
func (a *remains) any() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen
}

// ended reports whether all operations of aborted groups have ended. A stream that is closed by now
// cannot tell.
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

// settle is nil when operations of aborted groups have ended, for which it waits a little.
func (a *remains) settle(call string) error {
	if !a.stuck.Load() && within(patience, a.ended) {
		return nil
	}
	a.stuck.Store(true)
	return refused(call, dist.ErrAborted, "operations of an aborted group may be waiting on the GPU, and NVSHMEM would wait for them")
}

// ending is the end of a runtime.
type ending struct {
	once   sync.Once
	closed atomic.Bool
	left   atomic.Pointer[error] // why the library was left to the end of the process
}

// within asks done again and again until it is true, for limit at most. Returns: whether it was.
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

// idle reports whether the device has done all that e has queued. A group's streams wait for each
// other, so the last one tells. Errors: cuda.ErrClosed for a stream that was closed since; those of
// the driver.
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

// quiesce waits for what was queued with a team. A stream that its owner has closed was waited for
// then.
//
// Errors: dist.ErrAborted when the group is, because what waits for a peer then waits for good;
// those of the driver.
func (rt *Runtime) quiesce(t *team) error {
	rt.teams.mu.Lock()
	e := t.user
	rt.teams.mu.Unlock()
	if e == nil {
		return nil
	}
	for began := time.Now(); ; gpu.Rest(time.Since(began)) {
		idle, err := e.idle()
		switch {
		case idle || errors.Is(err, cuda.ErrClosed):
			return nil
		case err != nil:
			return err
		case e.gone.Load():
			return refused("split", dist.ErrAborted, "the group was aborted while its operations were waited for")
		}
	}
}

// firstSumEnds waits for the first sum of a group on s. It does not end where another rank could
// not queue its part.
func (rt *Runtime) firstSumEnds(s *cuda.Stream) error {
	var idle bool
	var err error
	if within(firstSumTime, func() bool {
		idle, err = s.Idle()
		return idle || err != nil
	}) {
		return err
	}
	rt.remains.stuck.Store(true)
	return fmt.Errorf("nvshmem: %w: the first sum of a group has not ended after %v: %s", dist.ErrTimeout, firstSumTime, rt.lib)
}

// healthy is nil while the library can be called and the device works. It asks the driver, which
// takes its time.
func (rt *Runtime) healthy(call string) error {
	if err := rt.open(call); err != nil {
		return err
	}
	if err := rt.remains.settle(call); err != nil {
		return err
	}
	if _, _, err := rt.dev.Memory(); err != nil {
		return rt.broke(call, "", 0, err)
	}
	return nil
}

// leave leaves the library as it is, to the end of the process, for the reason given.
func (rt *Runtime) leave(why error) {
	rt.end.left.CompareAndSwap(nil, &why)
	process.Lock()
	defer process.Unlock()
	if process.runtime == rt {
		process.broken = why
	}
}

// Left is why Close has left the library, and what is on the GPU, to the end of the process; nil
// before, and where it has stopped the library. Who holds the device's context then leaves it too:
// to give it back may wait for kernels for good.
func (rt *Runtime) Left() error {
	if why := rt.end.left.Load(); why != nil {
		return *why
	}
	return nil
}

// Close frees the memory that is still allocated and stops the library, if all ranks agree that no
// group was aborted, no error has come up, and the GPU has nothing to do. Else it leaves the
// library to the end of the process, which then cannot start it again; see Left. It waits for work
// on the GPU, and for the library, for some seconds each, and for the other ranks as long as
// p.Control of Start does.
//
// Collective: all ranks, with nothing of the runtime in use: engines closed, streams idle.
// Idempotent. Errors: dist.ErrTimeout when the library has not come back, after a death in this
// moment. That memory was still allocated, as that of a broken group is, and that the library was
// left for a reason that was known before is no error.
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
	// All ranks come here, and the library waits for all of them. One that dies now would keep the
	// others for good.
	stopped := make(chan error, 1)
	go func() { stopped <- rt.stop() }()
	select {
	case err := <-stopped:
		if err != nil {
			rt.leave(err)
			return err
		}
	case <-time.After(finishTime):
		err := refused("close", dist.ErrTimeout, "%v has not finalized after %v, because a rank has died, or left it: it ends with the process", rt.lib, finishTime)
		rt.leave(err)
		return err
	}
	rt.libc.free(unsafe.Pointer(rt.scratch))
	release(rt)
	rt.heap.clear()
	return nil
}

// finished is nil when this rank has nothing more to do with the library.
func (rt *Runtime) finished() error {
	if rt.remains.any() || rt.remains.stuck.Load() {
		return refused("close", dist.ErrAborted, "a group was aborted, and its operations may never end on some rank")
	}
	if !within(closeTime, rt.mu.TryLock) {
		return refused("close", dist.ErrTimeout, "a call of the library has not come back")
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

// drain waits until the device has done all that was queued on any of its streams. Drivers that
// cannot tell are believed to have; a device that has failed says so when it is asked next.
func (rt *Runtime) drain() error {
	all, err := rt.dev.MarkAll()
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

// stop calls the library for the last time.
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
