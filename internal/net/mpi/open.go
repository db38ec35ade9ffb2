package mpi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/net/wire"
)

// defaultCloseTimeout is the wait of Close if Config.CloseTimeout is 0. Processes of a job usually
// end within seconds of each other.
const defaultCloseTimeout = time.Minute

// Wire is the end of a wire over MPI. It implements wire.Wire.
type Wire struct {
	lib  *library
	comm uintptr // a duplicate of MPI_COMM_WORLD
	fits uintptr // another, for requests with Fits, which the library matches
	info wire.Info
	wait time.Duration // of Close

	mu      sync.Mutex // guards all calls of MPI between Open and Close
	table   table
	posted  []posted  // in order
	arrived []arrival // in order
	lost    map[int]string
	news    []wire.PeerError // for OnLost
	turn    uint32           // calls of poll
	idle    uint32           // those since a test ended a request
	kept    [][]byte         // memory that the library may still write
	closed  bool             // no new requests
	over    bool             // no more calls of MPI

	pmi    pmi
	finish chan bool  // for the goroutine that began MPI: whether to call MPI_Finalize
	ended  chan error // from it
	close  func() error
}

var _ wire.Wire = (*Wire)(nil)

// opening guards Open: MPI begins once in a process.
var opening sync.Mutex

// Open begins MPI in this process, with the library of the launcher that started it.
//
// Collective: all processes of the job. Returns: a wire of all processes.
// Owns: a goroutine and its thread until Close. Errors: ErrNoLauncher; a missing library; a second
// Open; a library without MPI_THREAD_SERIALIZED; a library that does not know the launcher. If
// ctx's, MPI_Init_thread still waits for the other processes, and this one should exit. A failure
// inside MPI_Init_thread ends the process, with the library's message.
func Open(ctx context.Context, cfg Config) (*Wire, error) {
	opening.Lock()
	defer opening.Unlock()
	from := launcherOf(cfg.Environ)
	if from.name == "" && cfg.Library == "" {
		return nil, fmt.Errorf("mpi: %w", ErrNoLauncher)
	}
	w := &Wire{
		wait: cfg.CloseTimeout, lost: map[int]string{}, pmi: from.pmi,
		finish: make(chan bool, 1), ended: make(chan error, 1),
	}
	if w.wait == 0 {
		w.wait = defaultCloseTimeout
	}
	w.close = sync.OnceValue(w.end)
	begun := make(chan error, 1)
	go w.own(cfg, from, begun)
	select {
	case err := <-begun:
		if err != nil {
			return nil, err
		}
	case <-ctx.Done():
		return nil, fmt.Errorf("mpi: MPI_Init_thread waits for other processes: one has not called it, or its host is lost: %w", context.Cause(ctx))
	}
	w.info.OnLost = cfg.OnLost
	return w, nil
}

// own begins MPI, and ends it later on the same thread, as the standard demands.
func (w *Wire) own(cfg Config, from launcher, begun chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := guarded(func() (err error) {
		if w.lib, err = load(cfg, from); err != nil {
			return err
		}
		return w.begin(from)
	})
	begun <- err
	if err == nil && <-w.finish {
		w.ended <- w.finalize()
	}
}

// finalize ends MPI. MPICH's MPI_Finalize may wait without end: a process flushes its connections,
// and needs the progress of others, which wait for it without progress (seen with version 4.0 over
// UCX on busy machines). The processes have met in Close already, so mpiexec only needs to know.
func (w *Wire) finalize() error {
	if w.pmi.fd != 0 {
		return w.pmi.finish()
	}
	return w.lib.do("MPI_Finalize", w.lib.finalize)
}

// do calls a function outside the hot path; op is its name.
//
//go:uintptrescapes
func (l *library) do(op string, p dl.Proc, args ...uintptr) error {
	r, err := p.Call(args...)
	if err != nil {
		return fmt.Errorf("mpi: %w", err)
	}
	return l.check(op, int32(r))
}

// begin calls MPI_Init_thread and finds this process's place.
func (w *Wire) begin(from launcher) error {
	l, out := w.lib, new(int32)
	if err := l.do("MPI_Initialized", l.initialized, uintptr(unsafe.Pointer(out))); err != nil {
		return err
	}
	if *out != 0 {
		return errors.New("mpi: MPI has begun in this process already: it begins once, so open one wire only")
	}
	if err := l.do("MPI_Init_thread", l.initThread, 0, 0, uintptr(l.serialized), uintptr(unsafe.Pointer(out))); err != nil {
		return err
	}
	err := w.meet()
	switch {
	case err != nil:
	case *out < l.serialized:
		err = fmt.Errorf("mpi: %s allows calls by one thread only (level %d): goroutines move between threads, so use a build with MPI_THREAD_SERIALIZED", l.Library, *out)
	case from.size > 1 && w.info.Size != from.size:
		err = fmt.Errorf("mpi: %s made a world of %d processes, but %s started %d: use the library of this launcher, or the launcher of this library",
			l.Library, w.info.Size, from.name, from.size)
	}
	if err != nil {
		return errors.Join(err, l.do("MPI_Finalize", l.finalize), w.pmi.finish())
	}
	return nil
}

// meet makes the communicator, and finds this process's place in it.
func (w *Wire) meet() error {
	l := w.lib
	rank, size, found, tags, comm, fits := new(int32), new(int32), new(int32), new(*int32), make([]byte, 8), make([]byte, 8)
	if err := errors.Join(
		l.do("MPI_Comm_set_errhandler", l.setErrhandler, l.world, l.errorsReturn),
		l.do("MPI_Comm_dup", l.commDup, l.world, uintptr(unsafe.Pointer(&comm[0]))),
		l.do("MPI_Comm_dup", l.commDup, l.world, uintptr(unsafe.Pointer(&fits[0]))),
		l.do("MPI_Comm_rank", l.commRank, l.world, uintptr(unsafe.Pointer(rank))),
		l.do("MPI_Comm_size", l.commSize, l.world, uintptr(unsafe.Pointer(size))),
		l.do("MPI_Comm_get_attr", l.getAttr, l.world, l.tagUB, uintptr(unsafe.Pointer(tags)), uintptr(unsafe.Pointer(found))),
	); err != nil {
		return err
	}
	if *found == 0 || *tags == nil {
		return fmt.Errorf("mpi: %s has no MPI_TAG_UB: use another library", l.Library)
	}
	w.comm, w.fits = l.word(comm), l.word(fits)
	w.table = newTable(&l.abi)
	w.info = wire.Info{
		Joint: true,
		Rank:  int(*rank), Size: int(*size), Engine: "mpi", Library: l.Library.String(),
		Tags: uint32(**tags) + 1,
	}
	return nil
}

// Close implements wire.Wire. It waits until pending sends have left, and calls MPI_Finalize, which
// waits for the other processes. Under MPICH's mpiexec it says goodbye to that program instead: see
// finalize. Pending receives end with wire.ErrClosed.
//
// If a process is gone, Close waits for a second at most, and does not call MPI_Finalize, which
// could wait without end. The launcher then ends the job when this process exits: see the package
// comment.
//
// Errors: processes that do not close within Config.CloseTimeout; the process can still exit.
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

	begun := time.Now()
	until := w.flush(begun.Add(w.wait))

	w.mu.Lock()
	w.over = true
	left := len(w.table.entries)
	w.failAll(wire.ErrClosed)
	gone := len(w.lost) > 0
	w.mu.Unlock()

	w.finish <- left == 0 && !gone
	switch {
	case left > 0:
		return fmt.Errorf("mpi: close: %d messages were not received within %v: other processes have failed, so exit with an error", left, time.Since(begun).Round(time.Millisecond))
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

// flush moves pending messages until none is left, at most until a time. From the first loss on it
// waits for a second: the job has failed.
//
// Returns: the time until which it would have waited.
func (w *Wire) flush(until time.Time) time.Time {
	var pause wire.Backoff
	for known := false; ; pause.Pause() {
		left, gone := w.drain()
		if gone && !known {
			known = true
			if soon := time.Now().Add(time.Second); soon.Before(until) {
				until = soon
			}
		}
		if left == 0 || !time.Now().Before(until) {
			return until
		}
	}
}

// drain moves pending messages. It returns the number that is left, and whether a process is lost.
func (w *Wire) drain() (left int, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.poll()
	return len(w.table.entries), len(w.lost) > 0
}
