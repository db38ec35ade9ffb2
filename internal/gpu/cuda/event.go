package cuda

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Event marks a point in the work of a stream. Done and Synchronize, and the methods of streams
// with an Event, allocate nothing, and return ErrClosed after Close.
type Event struct {
	v        *Device
	h        atomic.Uintptr // CUevent; 0 when closed
	timed    bool
	borrowed bool // Close leaves the CUevent alone
}

// NewEvent makes an event without timing. Owns: the caller closes it. Errors: *Error.
func (v *Device) NewEvent() (*Event, error) { return v.newEvent(eventNoTiming) }

// NewTimer makes an event that records its time, which makes recording slower. Owns: the caller
// closes it. Errors: *Error.
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

// BorrowEvent wraps another library's CUevent of this device. Its Close does not destroy the
// CUevent.
func (v *Device) BorrowEvent(handle uintptr, timed bool) *Event {
	e := &Event{v: v, timed: timed, borrowed: true}
	e.h.Store(handle)
	return e
}

// errEventClosed is allocated once, because the hot path returns it.
var errEventClosed = fmt.Errorf("cuda: the event: %w", ErrClosed)

// Handle returns the CUevent; 0 after Close.
func (e *Event) Handle() uintptr { return e.h.Load() }

// Device returns the device whose streams may record the event.
func (e *Event) Device() *Device { return e.v }

// Done reports whether the work before the last record of the event is done; true if it was never
// recorded. Errors: *Error, ErrClosed.
func (e *Event) Done() (bool, error) {
	h := e.h.Load()
	if h == 0 {
		return false, errEventClosed
	}
	return e.v.poll(&e.v.d.api.eventQuery, "cuEventQuery", h)
}

// Synchronize waits until the work before the last record of the event is done. Errors: *Error,
// ErrClosed.
func (e *Event) Synchronize() error {
	h := e.h.Load()
	if h == 0 {
		return errEventClosed
	}
	return e.v.call(&e.v.d.api.eventSync, "cuEventSynchronize", h)
}

// RecordAll records the event after the work queued so far on all streams of the device.
//
// Returns: false if the driver cannot: before CUDA 12.5, or during a capture, which then fails
// (CUDA Driver API, cuCtxRecordEvent).
func (e *Event) RecordAll() bool {
	h := e.h.Load()
	if h == 0 || e.v.d.api.ctxRecord == nil {
		return false
	}
	return e.v.inside("cuCtxRecordEvent", func() int32 { return e.v.d.api.ctxRecord(e.v.Context(), h) }) == nil
}

// MarkAll returns an event that RecordAll has recorded; nil if the driver cannot. Owns: the caller
// closes it. Errors: *Error.
func (v *Device) MarkAll() (*Event, error) {
	e, err := v.NewEvent()
	if err != nil || e.RecordAll() {
		return e, err
	}
	return nil, e.Close()
}

// Since returns the time from start to e, both timers of one device that are done. The driver
// counts in float32 milliseconds. Errors: ErrInvalid for an event that is not a timer, *Error for
// one that is not done, ErrClosed.
func (e *Event) Since(start *Event) (time.Duration, error) {
	from, to := start.h.Load(), e.h.Load()
	switch {
	case from == 0 || to == 0:
		return 0, errEventClosed
	case !start.timed || !e.timed:
		return 0, fmt.Errorf("cuda: %w: time between events without timing: make them with NewTimer", ErrInvalid)
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

// Close destroys the event; streams that wait for it are unaffected. Idempotent. Errors: *Error.
func (e *Event) Close() error {
	h := e.h.Swap(0)
	if h == 0 || e.borrowed {
		return nil
	}
	return e.v.inside("cuEventDestroy_v2", func() int32 { return e.v.d.api.eventDestroy(h) })
}
