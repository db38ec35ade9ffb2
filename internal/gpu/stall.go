package gpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
)

// stuckWork reports to the device that operations of this broken group may never end: see
// cuda.Device.Doubt. It runs once, since a broken group queues nothing more.
func (t *Transport) stuckWork() {
	t.doubted.Do(func() { t.member.Device.Doubt(t.drained) })
}

// stalled reports whether the device has operations of a broken group, this or another, that do not
// end. Freeing memory would then never return, so the memory is left until the process ends.
func (t *Transport) stalled() bool {
	if t.ledger.broken() != nil {
		t.stuckWork()
	}
	return t.member.Device.Stuck()
}

// drained reports whether the device has done the work queued on the streams of this group.
func (t *Transport) drained() bool {
	t.used.Lock()
	streams := slices.Clone(t.streams)
	t.used.Unlock()
	return !slices.ContainsFunc(streams, func(s *Stream) bool { return !s.drained() })
}

// idle waits until the device has done all its work, on any stream. The driver and the libraries do
// so in calls that allocate memory, make communicators or load kernels. Their waits would never end
// while a kernel waits for a dead peer.
//
// Errors: ErrInvalid while a stream of the group is captured, since the driver would end the
// capture; the error of the broken group; ErrTimeout after the step timeout, which breaks it.
func (t *Transport) idle() error {
	t.used.Lock()
	captured := slices.ContainsFunc(t.streams, func(s *Stream) bool { return s.capturing.Load() })
	t.used.Unlock()
	if captured {
		return fmt.Errorf("%w: a stream of the group is being captured: make heaps and parts before the capture, or after", dist.ErrInvalid)
	}
	all, err := t.member.Device.MarkAll()
	if all == nil { // an old driver
		return err
	}
	defer all.Close()
	var failed error
	err = t.ledger.poll(func() bool {
		var done bool
		done, failed = all.Done()
		return done || failed != nil
	}, func() string { return "earlier work on " + t.on.String() + " has not ended" })
	return errors.Join(failed, err)
}
