package gpu

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// kin is what a group, its parts and theirs know of each other.
type kin struct {
	broken atomic.Bool // one of them is
	wreck  atomic.Bool // one of them has left kernels on the device that do not end
}

// stalled reports whether the group, or one of its kin, is broken and has left kernels behind that do not end. To free memory
// then would wait for them, for good, whosever it is; it is left to the end of the process.
func (t *Transport) stalled() bool {
	k := t.cfg.kin
	switch {
	case k.wreck.Load():
		return true
	case t.pact.broken() != nil:
		k.broken.Store(true)
	case !k.broken.Load():
		return false
	}
	began := time.Now()
	for done := t.drained(); !done(); {
		waited := time.Since(began)
		if waited > patience {
			k.wreck.Store(true)
			return true
		}
		Rest(waited)
	}
	return false
}

// drained is a function that reports whether the device has done what is queued on it now; before CUDA 12.5, whether it has
// done what is queued on the streams of this group.
func (t *Transport) drained() func() bool {
	if all, err := t.party.Device.NewEvent(); err == nil {
		if all.RecordAll() {
			return func() bool {
				done, err := all.Done()
				if done = done || err != nil; done {
					_ = all.Close()
				}
				return done
			}
		}
		_ = all.Close()
	}
	t.used.Lock()
	streams := slices.Clone(t.streams)
	t.used.Unlock()
	return func() bool {
		return !slices.ContainsFunc(streams, func(s *Stream) bool { return !s.drained() })
	}
}

// idle waits until the device has done all that is queued on it, on any stream. The driver and the libraries wait for that
// in calls that make memory or communicators, or load kernels, and with a kernel that waits for a peer they would do so
// without an end.
//
// Errors: ErrInvalid while a stream of the group is captured, since the driver would end the capture; what broke the group;
// ErrTimeout after the step timeout, which breaks it.
func (t *Transport) idle() error {
	t.used.Lock()
	captured := slices.ContainsFunc(t.streams, func(s *Stream) bool { return s.capturing.Load() })
	t.used.Unlock()
	if captured {
		return fmt.Errorf("%w: a stream of the group is being captured: make heaps and parts before, or behind", dist.ErrInvalid)
	}
	all, err := t.party.Device.NewEvent()
	if err != nil {
		return err
	}
	defer all.Close()
	if !all.RecordAll() { // an old driver
		return nil
	}
	var failed error
	err = t.pact.poll(func() bool {
		var done bool
		done, failed = all.Done()
		return done || failed != nil
	}, func() string { return "what was queued on " + t.on.String() + " before has not ended" })
	return errors.Join(failed, err)
}
