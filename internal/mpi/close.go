package mpi

import (
	"fmt"
	"time"

	"github.com/symgrad/symgrad/internal/wire"
)

// Close implements wire.Wire. It waits until pending sends have left, and calls MPI_Finalize, which
// waits for the other processes. Under MPICH's mpiexec it says goodbye to that program instead: see
// finalize. Pending receives end with wire.ErrClosed.
//
// If a process is gone, Close does not call MPI_Finalize, which could wait without end. The
// launcher then ends the job when this process exits: see the package comment. Errors: processes
// that do not close within Config.CloseTimeout; the process can still exit.
func (w *Wire) Close() error { return w.close() }

// end is the first Close.
func (w *Wire) end() error {
	w.mu.Lock()
	w.closed = true
	for _, p := range w.posted {
		p.r.Finish(p.peer, 0, wire.ErrClosed)
	}
	w.posted = nil
	for i := range w.table.entries {
		w.cancelAt(i)
	}
	if n := len(w.table.entries); n > 0 {
		w.test(n)
	}
	for _, a := range w.arrived {
		w.receive(a, nil)
	}
	w.arrived = nil
	w.mu.Unlock()

	until := time.Now().Add(w.wait)
	var pause wire.Backoff
	for w.drain() && time.Now().Before(until) {
		pause.Pause()
	}

	w.mu.Lock()
	w.over = true
	left := len(w.table.entries)
	w.failAll(wire.ErrClosed)
	gone := len(w.lost) > 0
	w.mu.Unlock()

	w.finish <- left == 0 && !gone
	switch {
	case left > 0:
		return fmt.Errorf("mpi: close: %d messages were not received within %v: other processes have failed, so exit with an error", left, w.wait)
	case gone:
		return nil
	}
	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	select {
	case err := <-w.ended:
		return err
	case <-limit.C:
		return fmt.Errorf("mpi: close: MPI_Finalize has not returned within %v: other processes have not closed, so exit with an error", w.wait)
	}
}

// drain moves pending messages, and reports whether some are left.
func (w *Wire) drain() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.poll()
	return len(w.table.entries) > 0
}
