package nccl

import (
	"errors"
	"time"
)

// Failed returns an asynchronous error of ncclCommGetAsyncError: a network error, or a peer whose
// process ended. It returns nil after Close or Abort.
func (c *Comm) Failed() error {
	c.alive.RLock()
	defer c.alive.RUnlock()
	if c.handle == 0 {
		return nil
	}
	var code int32
	if r := c.lib.t.asyncError(c.handle, &code); r != resultSuccess {
		return c.failure("ncclCommGetAsyncError", r, "")
	}
	if code == resultSuccess || code == resultInProgress {
		return nil
	}
	return c.failure("ncclCommGetAsyncError", code, "the operations in flight")
}

// Abort ends all queued and later work on this rank. It frees the communicator when no call uses
// it. It returns after NCCL's kernels and waits have got the flag to end; Close waits for the rest.
// A peer that is not aborted waits for this rank until it is. Any goroutine; idempotent.
func (c *Comm) Abort() {
	if !c.ending.CompareAndSwap(open, aborting) {
		return
	}
	raised := make(chan struct{})
	go c.abort(raised)
	<-raised
}

// patience is the longest wait of settle. Aborts take about half a second, but never end if work on
// the device does not.
const patience = 5 * time.Second

// settle waits for the end of an abort, at most for patience: after that the abort may last until
// the process ends. Returns: whether no abort is pending.
func (c *Comm) settle() bool {
	if c == nil || c.ending.Load() != aborting {
		return true
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-c.done:
		return true
	case <-limit.C:
		return false
	}
}

// abort is the goroutine of Abort; Close and settle wait for it. ncclCommAbort frees memory that a
// call on another thread may still use, so it runs inside a group. The flags that end kernels and
// calls are set at once. The rest happens at the group's end, when this goroutine has the lock that
// calls hold.
func (c *Comm) abort(raised chan<- struct{}) {
	defer close(c.done)
	t := &c.lib.t
	err := onDevice(c.dev, func() error {
		if err := c.call(t.groupStart, "ncclGroupStart"); err != nil {
			return err
		}
		err := c.call(t.abort, "ncclCommAbort", c.handle)
		close(raised)
		raised = nil
		c.mu.Lock()
		defer c.mu.Unlock()
		c.end()
		return errors.Join(err, c.call(t.groupEnd, "ncclGroupEnd"), c.unmap())
	})
	if raised != nil {
		close(raised)
	}
	// The error has no receiver: the communicator is gone in any case, and its memory at the latest
	// with the process.
	_ = err
}

// end clears the handle under the lock and returns the old one.
func (c *Comm) end() uintptr {
	c.alive.Lock()
	defer c.alive.Unlock()
	handle := c.handle
	c.handle = 0
	return handle
}

// Close finishes queued work and frees the communicator, or waits for the end of an Abort. CUDA
// graphs that captured its operations must be closed before. Idempotent.
//
// Collective: all ranks of this host. If Failed returns an error, Close aborts instead. Errors:
// *Error.
func (c *Comm) Close() error {
	if !c.ending.CompareAndSwap(open, closing) {
		<-c.done
		return nil
	}
	defer close(c.done)
	failed := c.Failed()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handle == 0 {
		return c.unmap()
	}
	t := &c.lib.t
	err := onDevice(c.dev, func() error {
		if failed != nil {
			return c.call(t.abort, "ncclCommAbort", c.end())
		}
		return errors.Join(c.redOps.drop(&c.calls), c.call(t.finalize, "ncclCommFinalize", c.handle),
			c.call(t.destroy, "ncclCommDestroy", c.end()))
	})
	return errors.Join(err, c.unmap())
}
