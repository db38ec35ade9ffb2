package machine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/symgrad/symgrad/internal/cuda"
)

// lap is one call of Mark.
type lap struct {
	at    time.Time   // on the CPU
	timer *cuda.Event // on a GPU
}

// Mark records when the runs so far end, for Intervals. On a GPU the device records it: the host
// does not wait, and later runs are not delayed.
//
// Errors: on a GPU, ErrNoValue before the first run and those of the device; ErrClosed.
func (m *Machine) Mark() error {
	switch {
	case m.closed:
		return fmt.Errorf("machine %s: %w", m.cfg.Name, ErrClosed)
	case m.device != nil && m.device.current == nil:
		return fmt.Errorf("machine %s: mark: %w: nothing has run", m.cfg.Name, ErrNoValue)
	case m.device == nil:
		m.laps = append(m.laps, lap{at: time.Now()})
		return nil
	}
	timer, err := m.device.dev.NewTimer()
	if err == nil {
		m.laps = append(m.laps, lap{timer: timer})
		err = m.device.current.Stream().Record(timer)
	}
	if err != nil {
		return fmt.Errorf("machine %s: mark: %w", m.cfg.Name, err)
	}
	return nil
}

// Intervals is the times from each call of Mark to the next, and forgets them all.
//
// Returns: when the runs are done; one less than there were calls. Errors: those of the runs;
// ErrClosed.
func (m *Machine) Intervals() ([]time.Duration, error) {
	if m.closed {
		return nil, fmt.Errorf("machine %s: %w", m.cfg.Name, ErrClosed)
	}
	times, err := m.betweenLaps()
	if err = errors.Join(err, m.forgetLaps()); err != nil {
		return nil, fmt.Errorf("machine %s: intervals: %w", m.cfg.Name, err)
	}
	return times, nil
}

func (m *Machine) betweenLaps() ([]time.Duration, error) {
	if m.device != nil {
		if err := m.device.wait(); err != nil {
			return nil, err
		}
	}
	var times []time.Duration
	for i, l := range m.laps {
		switch {
		case i == 0:
		case l.timer == nil:
			times = append(times, l.at.Sub(m.laps[i-1].at))
		default:
			d, err := l.timer.Since(m.laps[i-1].timer)
			if err != nil {
				return nil, err
			}
			times = append(times, d)
		}
	}
	return times, nil
}

func (m *Machine) forgetLaps() error {
	var errs []error
	for _, l := range m.laps {
		if l.timer != nil {
			errs = append(errs, l.timer.Close())
		}
	}
	m.laps = slices.Delete(m.laps, 0, len(m.laps))
	return errors.Join(errs...)
}
