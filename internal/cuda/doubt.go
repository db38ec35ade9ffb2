package cuda

import (
	"sync"
	"sync/atomic"
	"time"
)

// doubt is what a device knows of work on it that may never end.
type doubt struct {
	open  atomic.Int64                // doubts that are not settled
	ended atomic.Pointer[func() bool] // of who had the last

	mu    sync.Mutex // of who looks
	stuck bool       // the work did not end in time; cleared when it has all the same
}

// endTime is how long work that is in doubt gets to end, once.
const endTime = time.Second

// Doubt notes that what is queued on the device may never end: it waits for a process that has died, and nobody can end it. To
// free memory, or to unload a module, then waits in the driver for good; so Free and the Close of modules, graphs and memory of
// the host ask Stuck from then on. ended reports whether the work has ended: before CUDA 12.5 the driver does not tell. It may be called again.
func (v *Device) Doubt(ended func() bool) {
	v.doubt.ended.Store(&ended)
	v.doubt.open.Add(1)
}

// Stuck reports whether the device has work that does not end, of which there was doubt. It gives the work a second, the first
// time.
func (v *Device) Stuck() bool {
	u := &v.doubt
	if u.open.Load() == 0 {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	settles := u.open.Load()
	if settles == 0 {
		return false
	}
	done, forget := v.drained(*u.ended.Load())
	defer forget()
	for began := time.Now(); !done(); time.Sleep(100 * time.Microsecond) {
		if u.stuck || time.Since(began) > endTime {
			u.stuck = true
			return true
		}
	}
	u.stuck = false
	u.open.CompareAndSwap(settles, 0) // a newer one may be of newer work
	return false
}

// drained is a function that reports whether the device has done all that is queued on it now: otherwise, if the driver does not
// tell. The caller calls forget when it asks no more.
func (v *Device) drained(otherwise func() bool) (done func() bool, forget func()) {
	all, err := v.NewEvent()
	if err != nil {
		return otherwise, func() {}
	}
	if !all.RecordAll() {
		_ = all.Close()
		return otherwise, func() {}
	}
	return func() bool {
		done, err := all.Done()
		return done || err != nil
	}, func() { _ = all.Close() }
}

// release is inside for calls that wait for the device: where it is stuck, what they would free is left to the end of the process.
func (v *Device) release(call string, fn func() int32) error {
	if v.Stuck() {
		return nil
	}
	return v.inside(call, fn)
}
