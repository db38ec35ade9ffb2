package cuda

import (
	"errors"
	"time"
)

// How a Stopwatch measures: rounds of launches, of which the fastest round counts, because what
// disturbs only makes slower. Of several candidates each has its rounds twice: a device that had
// nothing to do is slow at first.
const (
	warmLaunches  = 3
	timedRounds   = 4
	timedLaunches = 10
	timedTurns    = 2
)

// Stopwatch measures what a stream takes for work that is queued on it over and over.
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

// Room is memory for an operand of so many bytes, with small numbers in all types, so that the
// device draws the power that it does with real ones; 0 for no bytes.
//
// Owns: w frees it when it closes. Errors: ErrMemory, *Error.
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

// Time is what the work takes that queue queues, at least 1 ns: in a graph, where the host has
// little part in it, unless it cannot be captured. The stream has done all of it when Time returns.
//
// Errors: the first of queue, after which no more is queued; *Error, also for what the stream had
// been given before that.
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

// run queues work and waits for it. What the device says of it is worth more than a refusal to
// queue more.
func (w *Stopwatch) run(queue func() error) error {
	err := queue()
	if failed := w.s.Synchronize(); failed != nil {
		return failed
	}
	return err
}

// captured is what queue queues as a graph; nil where it cannot be captured, which leaves the
// stream as it was.
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

// best is what one launch takes of the fastest of several rounds, each of which queue queues. As
// much is queued before each, so that the device has something to do until the host has queued the
// round.
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

// Compare is the Time of each of n candidates: take makes i the one that queue queues. One is left
// out, with 0, for which an error says so by refused.
//
// Errors: those of take, and of Time but for refused ones.
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
