package cuda

import (
	"errors"
	"time"
)

// A Stopwatch takes the fastest of several rounds of launches, because disturbances only slow a
// round down. Compare measures each candidate in two turns, because an idle device is slow at
// first.
const (
	warmLaunches  = 3
	timedRounds   = 4
	timedLaunches = 10
	timedTurns    = 2
)

// Stopwatch measures the device time of repeated work on a stream.
type Stopwatch struct {
	s          *Stream
	start, end *Event
	rooms      []uintptr
}

// NewStopwatch makes a stopwatch for s.
//
// Owns: the caller closes it, before s. Errors: *Error.
func NewStopwatch(s *Stream) (*Stopwatch, error) {
	w := &Stopwatch{s: s}
	for _, to := range [...]**Event{&w.start, &w.end} {
		var err error
		if *to, err = s.Device().NewTimer(); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	return w, nil
}

// Room returns memory for an operand of bytes bytes; 0 for no bytes. Its content is a small number
// in every type, so that the device draws about the power of real data.
//
// Owns: w frees it in Close. Errors: ErrMemory, *Error.
func (w *Stopwatch) Room(bytes int64) (uintptr, error) {
	if bytes == 0 {
		return 0, nil
	}
	v := w.s.Device()
	p, err := v.Alloc(bytes)
	if err != nil {
		return 0, err
	}
	w.rooms = append(w.rooms, p)
	return p, v.Fill(p, 0x3c, bytes)
}

// Time returns the time of the work that queue queues, at least 1 ns. It launches the work as a
// graph, which keeps host time out of the result, unless the work cannot be captured. All of it has
// ended when Time returns.
//
// Errors: the first of queue, after which it queues no more; *Error, also for earlier work of the
// stream.
func (w *Stopwatch) Time(queue func() error) (time.Duration, error) {
	if err := w.run(func() error { return times(warmLaunches, queue) }); err != nil {
		return 0, err
	}
	all := func() error { return times(timedLaunches, queue) }
	if x := w.captured(all); x != nil {
		best, err := w.best(func() error { return x.Launch(w.s) })
		return best, errors.Join(err, x.Close())
	}
	return w.best(all)
}

func times(n int, queue func() error) error {
	for range n {
		if err := queue(); err != nil {
			return err
		}
	}
	return nil
}

// run queues work and waits for it. An error of the device takes precedence over one of queue.
func (w *Stopwatch) run(queue func() error) error {
	err := queue()
	if failed := w.s.Synchronize(); failed != nil {
		return failed
	}
	return err
}

// captured returns the work that queue queues as a graph; nil if it cannot be captured. The stream
// is unchanged then.
func (w *Stopwatch) captured(queue func() error) *GraphExec {
	g, err := w.s.Capture(queue)
	if err != nil {
		return nil
	}
	x, err := g.Instantiate()
	if err = errors.Join(err, g.Close()); err != nil && x != nil {
		err = errors.Join(err, x.Close())
	}
	if err != nil {
		return nil
	}
	return x
}

// best returns the time of one launch in the fastest of several rounds; queue queues one round.
// Each measured round follows another one, which keeps the device busy while the host queues.
func (w *Stopwatch) best(queue func() error) (time.Duration, error) {
	var best time.Duration
	for range timedRounds {
		round := func() error {
			for _, step := range [...]func() error{queue, func() error { return w.s.Record(w.start) }, queue, func() error { return w.s.Record(w.end) }} {
				if err := step(); err != nil {
					return err
				}
			}
			return nil
		}
		if err := w.run(round); err != nil {
			return 0, err
		}
		t, err := w.end.Since(w.start)
		if err != nil {
			return 0, err
		}
		if t /= timedLaunches; best == 0 || t < best {
			best = max(t, 1)
		}
	}
	return best, nil
}

// Compare returns the Time of each of n candidates; take(i) makes queue queue candidate i. A
// candidate is dropped, with time 0, if refused reports true for its error.
//
// Errors: those of take, and of Time except refused ones.
func (w *Stopwatch) Compare(n int, take func(i int) error, queue func() error, refused func(error) bool) ([]time.Duration, error) {
	best, out := make([]time.Duration, n), make([]bool, n)
	for turn := range timedTurns {
		for i := range best {
			if out[i] {
				continue
			}
			if err := take(i); err != nil {
				return nil, err
			}
			t, err := w.Time(queue)
			if err != nil && !refused(err) {
				return nil, err
			}
			if out[i] = err != nil; out[i] || turn == 0 || t < best[i] {
				best[i] = t
			}
		}
	}
	return best, nil
}

// Close frees the events and the rooms. Idempotent. Errors: *Error.
func (w *Stopwatch) Close() error {
	var errs []error
	for _, p := range w.rooms {
		errs = append(errs, w.s.Device().Free(p))
	}
	w.rooms = nil
	for _, e := range [...]*Event{w.start, w.end} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	return errors.Join(errs...)
}
