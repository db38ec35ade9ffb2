package dist

import (
	"fmt"
	"sync"
	"time"

	"github.com/symgrad/symgrad/tensor"
)

// Stream is an ordered queue of work on one device. The type serves host and GPU; a group has its
// own stream, with the device's highest priority.
type Stream interface {
	// Device returns the device of the work.
	Device() tensor.Device
	// Join makes all work queued later wait for w, without blocking the caller.
	Join(w Work) error
	// Synchronize returns when all work queued so far is done.
	Synchronize() error
	// Close waits for the queued work and frees the stream. Idempotent.
	Close() error
}

// Work is one queued operation: a ticket of its stream. It is a small value and can be copied. The
// zero Work is done.
type Work struct {
	q      Queue
	ticket uint64
}

// Queue is the interface to a stream that its Works use.
type Queue interface {
	// Await returns when the ticket is done, with its error.
	Await(ticket uint64) error
	// Finished reports whether the ticket is done, without waiting.
	Finished(ticket uint64) bool
}

// NewWork returns the Work of one ticket of q, for backends.
func NewWork(q Queue, ticket uint64) Work { return Work{q, ticket} }

// Ticket returns NewWork's arguments; nil for the zero Work. A stream calls it to join a Work of
// another stream of its kind.
func (w Work) Ticket() (Queue, uint64) { return w.q, w.ticket }

// Wait returns when the operation is done. On the host the destination then holds the result; on a
// GPU the stream has passed the operation.
//
// Errors: the operation's, an *OpError. Waiting again returns the same error.
func (w Work) Wait() error {
	if w.q == nil {
		return nil
	}
	return w.q.Await(w.ticket)
}

// Done reports whether Wait would return at once.
func (w Work) Done() bool { return w.q == nil || w.q.Finished(w.ticket) }

// Timer is a Queue that measures operations.
type Timer interface {
	// Elapsed returns the time of a ticket that is done. Errors: ErrUnsupported for one that was
	// not timed, or was forgotten.
	Elapsed(ticket uint64) (time.Duration, error)
}

// errNotTimed is the error of work without a measured time.
var errNotTimed = fmt.Errorf("%w: the operation was not timed: use a view of Group.Timed, or backend.Config.Timing", ErrUnsupported)

// Elapsed waits for w and returns the time of its operation, including waits for other ranks: on a
// GPU by events around it, on the host from its start on the stream. It corresponds to
// enable_timing of NVSHMEM4Py.
//
// Errors: w's; ErrUnsupported for work that was not timed (see Group.Timed), for a group call
// between GPUs, and for work older than the last thousand of its stream.
func (w Work) Elapsed() (time.Duration, error) {
	if err := w.Wait(); err != nil {
		return 0, err
	}
	t, ok := w.q.(Timer)
	if !ok {
		return 0, errNotTimed
	}
	return t.Elapsed(w.ticket)
}

// times is a ring of the last timed tickets of a queue. The zero value is empty.
type times struct {
	ring []timing
	next int
}

type timing struct {
	ticket uint64
	took   time.Duration
}

// maxTimes is the most timed tickets of a queue.
const maxTimes = 1024

func (t *times) add(ticket uint64, took time.Duration) {
	if len(t.ring) < maxTimes {
		t.ring = append(t.ring, timing{ticket, took})
		return
	}
	t.ring[t.next] = timing{ticket, took}
	t.next = (t.next + 1) % maxTimes
}

// of returns the time of a ticket.
func (t *times) of(ticket uint64) (time.Duration, error) {
	for i := range t.ring {
		if t.ring[i].ticket == ticket {
			return t.ring[i].took, nil
		}
	}
	return 0, errNotTimed
}

// Runner runs one Op of a HostStream on the calling goroutine and returns its error. The stream
// reuses op after Run has returned.
type Runner interface {
	// Run runs op; tag is the argument of Submit.
	Run(op *Op, tag uint64) error
}

// HostStream is a Stream on the host: a queue with one worker goroutine.
type HostStream struct {
	mu      sync.Mutex
	queued  sync.Cond // signalled when a task is added or the stream closes
	ended   sync.Cond // signalled when a task is done
	tasks   []task    // ring
	head    int
	length  int
	last    uint64 // ticket of the newest task
	done    uint64 // every ticket up to here is done
	failed  []failure
	forgot  uint64 // newest ticket whose failure was dropped from failed
	times   times
	closing bool
	exited  chan struct{}
}

type task struct {
	run Runner
	op  Op
	tag uint64
	f   func() error // of Do, when run is nil
	dep Work         // a join, when f is nil too
}

type failure struct {
	ticket uint64
	err    error
}

// maxFailures bounds the memory of a stream on which everything fails. Dropped failures return the
// oldest kept one.
const maxFailures = 1024

// NewHostStream returns an empty stream with a running worker. The caller closes it.
func NewHostStream() *HostStream {
	s := &HostStream{tasks: make([]task, 64), exited: make(chan struct{})}
	s.queued.L, s.ended.L = &s.mu, &s.mu
	go s.work()
	return s
}

// Device returns tensor.Host.
func (s *HostStream) Device() tensor.Device { return tensor.Host }

// Submit queues op for run, which gets tag. It does not wait.
//
// Errors: ErrClosed.
func (s *HostStream) Submit(run Runner, op Op, tag uint64) (Work, error) {
	return s.push(task{run: run, op: op, tag: tag})
}

// Do queues f to run on the stream's worker, in order, as cudaLaunchHostFunc does. The Work has f's
// error. f must not wait for work queued later on the same stream.
//
// Errors: ErrClosed; ErrInvalid for a nil f.
func (s *HostStream) Do(f func() error) (Work, error) {
	if f == nil {
		return Work{}, fmt.Errorf("stream: %w: no function", ErrInvalid)
	}
	return s.push(task{f: f})
}

// Join makes later work wait for w.
//
// Errors: ErrClosed.
func (s *HostStream) Join(w Work) error {
	if w.Done() {
		return nil
	}
	_, err := s.push(task{dep: w})
	return err
}

func (s *HostStream) push(t task) (Work, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return Work{}, fmt.Errorf("stream: %w", ErrClosed)
	}
	if s.length == len(s.tasks) {
		bigger := make([]task, 2*len(s.tasks))
		n := copy(bigger, s.tasks[s.head:])
		copy(bigger[n:], s.tasks[:s.head])
		s.tasks, s.head = bigger, 0
	}
	s.tasks[(s.head+s.length)%len(s.tasks)] = t
	s.length++
	s.last++
	s.queued.Signal()
	return Work{s, s.last}, nil
}

func (s *HostStream) work() {
	defer close(s.exited)
	var t task // one for all, since Run makes it escape
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for s.length == 0 {
			if s.closing {
				return
			}
			s.queued.Wait()
		}
		t = s.tasks[s.head]
		s.tasks[s.head] = task{} // drop the references
		s.head = (s.head + 1) % len(s.tasks)
		s.length--
		s.mu.Unlock()
		var began time.Time
		timed := t.run != nil && t.op.Timed
		if timed {
			began = time.Now()
		}
		err := t.do()
		t = task{}
		s.mu.Lock()
		s.done++
		if timed {
			s.times.add(s.done, max(time.Since(began), 1))
		}
		if err != nil {
			if len(s.failed) == maxFailures {
				s.forgot = s.failed[1].ticket
				s.failed = append(s.failed[:1], s.failed[2:]...)
			}
			s.failed = append(s.failed, failure{s.done, err})
		}
		s.ended.Broadcast()
	}
}

func (t *task) do() error {
	switch {
	case t.run != nil:
		t.op.rec.begin(t.op.Seq)
		err := t.run.Run(&t.op, t.tag)
		t.op.rec.end(t.op.Seq, err)
		return err
	case t.f != nil:
		return t.f()
	}
	_ = t.dep.Wait() // its owner reports the error
	return nil
}

// Await implements Queue.
func (s *HostStream) Await(ticket uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.done < ticket {
		s.ended.Wait()
	}
	for _, f := range s.failed {
		if f.ticket == ticket {
			return f.err
		}
	}
	if ticket <= s.forgot && ticket > s.failed[0].ticket {
		return s.failed[0].err
	}
	return nil
}

// Finished implements Queue.
func (s *HostStream) Finished(ticket uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done >= ticket
}

// Elapsed implements Timer.
func (s *HostStream) Elapsed(ticket uint64) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times.of(ticket)
}

// Synchronize waits for all work queued so far. Works report their own errors.
func (s *HostStream) Synchronize() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for last := s.last; s.done < last; {
		s.ended.Wait()
	}
	return nil
}

// Close waits for the queued work and ends the worker. Idempotent.
func (s *HostStream) Close() error {
	s.mu.Lock()
	s.closing = true
	s.queued.Signal()
	s.mu.Unlock()
	<-s.exited
	return nil
}
