package cuda

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Event is a point in a stream's work, or between the work of several. Done and Synchronize, like
// the methods of streams that take one, allocate nothing, and answer ErrClosed after Close.
type Event struct {
	v        *Device
	h        atomic.Uintptr // CUevent; 0 when closed
	timed    bool
	borrowed bool // Close leaves the CUevent alone
}

// NewEvent makes an event without a time. Owns: the caller closes it. Errors: *Error.
func (v *Device) NewEvent() (*Event, error) { return v.newEvent(eventNoTiming) }

// NewTimer makes an event that knows when it was reached, which makes recording it dearer.
// Owns: the caller closes it. Errors: *Error.
func (v *Device) NewTimer() (*Event, error) { return v.newEvent(0) }

func (v *Device) newEvent(flags uint32) (*Event, error) {
	var h uintptr
	err := v.inside("cuEventCreate", func() int32 { return v.d.api.eventCreate(&h, flags) })
	if err != nil {
		return nil, err
	}
	e := &Event{v: v, timed: flags&eventNoTiming == 0}
	e.h.Store(h)
	return e, nil
}

// BorrowEvent is the event with a CUevent of somebody else's on this device. Its Close leaves the
// CUevent as it is.
func (v *Device) BorrowEvent(handle uintptr, timed bool) *Event {
	e := &Event{v: v, timed: timed, borrowed: true}
	e.h.Store(handle)
	return e
}

// errEventClosed is made once, because the hot path returns it.
var errEventClosed = fmt.Errorf("cuda: the event: %w", ErrClosed)

// Handle is the CUevent; 0 after Close.
func (e *Event) Handle() uintptr { return e.h.Load() }

// Device is whose streams may record the event.
func (e *Event) Device() *Device { return e.v }

// Done reports whether what the event was last recorded for is done; true if it never was. Errors:
// *Error, ErrClosed.
func (e *Event) Done() (bool, error) {
	h := e.h.Load()
	if h == 0 {
		return false, errEventClosed
	}
	return e.v.poll(&e.v.d.api.eventQuery, "cuEventQuery", h)
}

// Synchronize waits until what the event was last recorded for is done. Errors: *Error, ErrClosed.
func (e *Event) Synchronize() error {
	h := e.h.Load()
	if h == 0 {
		return errEventClosed
	}
	return e.v.call(&e.v.d.api.eventSync, "cuEventSynchronize", h)
}

// RecordAll records the event behind all that was queued on any stream of the device.
//
// Returns: false where that cannot be told: before CUDA 12.5, or while a stream is captured, whose
// capture fails then (CUDA Driver API, cuCtxRecordEvent).
func (e *Event) RecordAll() bool {
	h := e.h.Load()
	if h == 0 || e.v.d.api.ctxRecord == nil {
		return false
	}
	return e.v.inside("cuCtxRecordEvent", func() int32 { return e.v.d.api.ctxRecord(e.v.Context(), h) }) == nil
}

// MarkAll is an event that is recorded behind all that was queued on any stream of the device; nil
// where that cannot be told, as for RecordAll. Owns: the caller closes it. Errors: *Error.
func (v *Device) MarkAll() (*Event, error) {
	e, err := v.NewEvent()
	if err != nil || e.RecordAll() {
		return e, err
	}
	return nil, e.Close()
}

// Since is the time from start to e, both timers of one device, and reached. The driver counts in
// float32 milliseconds. Errors: ErrInvalid for an event that is no timer, *Error for one that is
// not reached yet, ErrClosed.
func (e *Event) Since(start *Event) (time.Duration, error) {
	from, to := start.h.Load(), e.h.Load()
	switch {
	case from == 0 || to == 0:
		return 0, errEventClosed
	case !start.timed || !e.timed:
		return 0, fmt.Errorf("cuda: %w: time between events that are no timers: make them with NewTimer", ErrInvalid)
	}
	var ms float32
	name, elapsed := "cuEventElapsedTime_v2", e.v.d.api.elapsed2
	if elapsed == nil {
		name, elapsed = "cuEventElapsedTime", e.v.d.api.elapsed
	}
	if err := e.v.inside(name, func() int32 { return elapsed(&ms, from, to) }); err != nil {
		return 0, err
	}
	return time.Duration(math.Round(float64(ms) * 1e6)), nil
}

// Close gives the event back; streams that wait for it go on waiting. Idempotent. Errors: *Error.
func (e *Event) Close() error {
	h := e.h.Swap(0)
	if h == 0 || e.borrowed {
		return nil
	}
	return e.v.inside("cuEventDestroy_v2", func() int32 { return e.v.d.api.eventDestroy(h) })
}
