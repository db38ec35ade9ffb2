package machine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/symgrad/symgrad/internal/cuda"
)

// runEnd is one call of Mark.
type runEnd struct {
	at    time.Time   // on the CPU
	timer *cuda.Event // on a GPU
}

// Mark records when the runs queued so far end, for Intervals. On a GPU the device records the
// time, so the host does not wait, and later runs are not delayed.
//
// Errors: on a GPU, ErrNoValue before the first run and those of the device; ErrClosed.
func (m *Machine) Mark() error {
	switch {
	case m.closed:
		return fmt.Errorf("machine %s: %w", m.cfg.Name, ErrClosed)
	case m.device != nil && m.device.current == nil:
		return fmt.Errorf("machine %s: mark: %w: nothing has run", m.cfg.Name, ErrNoValue)
	case m.device == nil:
		m.runEnds = append(m.runEnds, runEnd{at: time.Now()})
		return nil
	}
	timer, err := m.device.dev.NewTimer()
	if err == nil {
		m.runEnds = append(m.runEnds, runEnd{timer: timer})
		err = m.device.current.Stream().Record(timer)
	}
	if err != nil {
		return fmt.Errorf("machine %s: mark: %w", m.cfg.Name, err)
	}
	return nil
}

// Intervals returns the times from each call of Mark to the next, and clears them.
//
// Returns: when the runs are done; one interval less than calls. Errors: those of the runs;
// ErrClosed.
func (m *Machine) Intervals() ([]time.Duration, error) {
	if m.closed {
		return nil, fmt.Errorf("machine %s: %w", m.cfg.Name, ErrClosed)
	}
	times, err := m.measureIntervals()
	if err = errors.Join(err, m.closeRunEnds()); err != nil {
		return nil, fmt.Errorf("machine %s: intervals: %w", m.cfg.Name, err)
	}
	return times, nil
}

func (m *Machine) measureIntervals() ([]time.Duration, error) {
	if m.device != nil {
		if err := m.device.wait(); err != nil {
			return nil, err
		}
	}
	var times []time.Duration
	for i, l := range m.runEnds {
		switch {
		case i == 0:
		case l.timer == nil:
			times = append(times, l.at.Sub(m.runEnds[i-1].at))
		default:
			d, err := l.timer.Since(m.runEnds[i-1].timer)
			if err != nil {
				return nil, err
			}
			times = append(times, d)
		}
	}
	return times, nil
}

func (m *Machine) closeRunEnds() error {
	var errs []error
	for _, l := range m.runEnds {
		if l.timer != nil {
			errs = append(errs, l.timer.Close())
		}
	}
	m.runEnds = slices.Delete(m.runEnds, 0, len(m.runEnds))
	return errors.Join(errs...)
}
