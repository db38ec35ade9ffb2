package nccl

import (
	"errors"
	"time"
)

// Failed is what went wrong behind the calls, as ncclCommGetAsyncError tells it: a network error, a
// peer whose process ended. nil while nothing did, and after Close or Abort.
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

// Abort ends what is queued and everything later, on this rank, and frees the communicator when no
// call is left in it. It returns when NCCL's kernels and waits have been told to end; Close waits
// for the rest. A peer that is not aborted as well waits for this rank until it is. Any goroutine;
// idempotent.
func (c *Comm) Abort() {
	if !c.ending.CompareAndSwap(open, aborting) {
		return
	}
	told := make(chan struct{})
	go c.abort(told)
	<-told
}

// patience is how long settle waits. Aborts take about half a second, but one whose device never
// ends what runs there takes for ever.
const patience = 5 * time.Second

// settle returns when an abort is through, if there is one, or patience is at its end: then the end
// of the process is its end. Returns: whether nothing is left of an abort.
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

// abort is the goroutine of Abort; Close and settle wait for it. ncclCommAbort frees what a call on
// another thread may still use, so it runs inside of a group: the flags that make kernels and calls
// end are raised at once, and the rest happens at the group's end, when this goroutine has the lock
// that calls hold.
func (c *Comm) abort(told chan<- struct{}) {
	defer close(c.done)
	t := &c.lib.t
	err := onDevice(c.dev, func() error {
		if err := c.call(t.groupStart, "ncclGroupStart"); err != nil {
			return err
		}
		err := c.call(t.abort, "ncclCommAbort", c.handle)
		close(told)
		told = nil
		c.mu.Lock()
		defer c.mu.Unlock()
		c.end()
		return errors.Join(err, c.call(t.groupEnd, "ncclGroupEnd"), c.unmap())
	})
	if told != nil {
		close(told)
	}
	// Nobody is left to hear of an error: the communicator is gone either way, and its memory with
	// the process at the latest.
	_ = err
}

// end makes the handle invalid for everybody and returns what it was.
func (c *Comm) end() uintptr {
	c.alive.Lock()
	defer c.alive.Unlock()
	handle := c.handle
	c.handle = 0
	return handle
}

// Close finishes what is queued and frees the communicator, or waits for the end of an Abort. CUDA
// graphs that captured its operations are closed before. Idempotent.
//
// Collective: all ranks of this host, unless Failed is an error, after which it aborts. Errors:
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
		return errors.Join(c.redOps.drop(c), c.call(t.finalize, "ncclCommFinalize", c.handle),
			c.call(t.destroy, "ncclCommDestroy", c.end()))
	})
	return errors.Join(err, c.unmap())
}
