package gpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
)

// stuckWork notes that operations of the group, which is broken, may never end on the device: see
// cuda.Device.Doubt. Once is enough: a group that is broken queues nothing more.
func (t *Transport) stuckWork() {
	t.doubted.Do(func() { t.member.Device.Doubt(t.drained) })
}

// stalled reports whether the device has operations of this group, or of another that is broken,
// that do not end. To free memory then would wait for them, for good, whosever it is; it is left to
// the end of the process.
func (t *Transport) stalled() bool {
	if t.ledger.broken() != nil {
		t.stuckWork()
	}
	return t.member.Device.Stuck()
}

// drained reports whether the device has done what is queued on the streams of this group.
func (t *Transport) drained() bool {
	t.used.Lock()
	streams := slices.Clone(t.streams)
	t.used.Unlock()
	return !slices.ContainsFunc(streams, func(s *Stream) bool { return !s.drained() })
}

// idle waits until the device has done all that is queued on it, on any stream. The driver and the
// libraries wait for that in calls that make memory or communicators, or load kernels, and with a
// kernel that waits for a peer they would do so without an end.
//
// Errors: ErrInvalid while a stream of the group is captured, since the driver would end the
// capture; what broke the group; ErrTimeout after the step timeout, which breaks it.
func (t *Transport) idle() error {
	t.used.Lock()
	captured := slices.ContainsFunc(t.streams, func(s *Stream) bool { return s.capturing.Load() })
	t.used.Unlock()
	if captured {
		return fmt.Errorf("%w: a stream of the group is being captured: make heaps and parts before, or behind", dist.ErrInvalid)
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
	}, func() string { return "what was queued on " + t.on.String() + " before has not ended" })
	return errors.Join(failed, err)
}
