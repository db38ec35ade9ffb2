package machine

import (
	"errors"
	"slices"
	"time"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// runEnd is one call of Mark.
type runEnd struct {
	at    time.Time   // on the CPU
	timer *cuda.Event // on a GPU
}

// runEnds are the calls of Mark since the last Intervals.
type runEnds []runEnd

func (r *runEnds) measure(d *device) ([]time.Duration, error) {
	if d != nil {
		if err := d.wait(); err != nil {
			return nil, err
		}
	}
	var times []time.Duration
	for i, l := range *r {
		switch {
		case i == 0:
		case l.timer == nil:
			times = append(times, l.at.Sub((*r)[i-1].at))
		default:
			d, err := l.timer.Since((*r)[i-1].timer)
			if err != nil {
				return nil, err
			}
			times = append(times, d)
		}
	}
	return times, nil
}

func (r *runEnds) close() error {
	var errs []error
	for _, l := range *r {
		if l.timer != nil {
			errs = append(errs, l.timer.Close())
		}
	}
	*r = slices.Delete(*r, 0, len(*r))
	return errors.Join(errs...)
}
