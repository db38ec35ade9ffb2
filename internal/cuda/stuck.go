package cuda

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// stuckWork is what a device knows of work on it that may never end.
type stuckWork struct {
	any atomic.Bool // somebody has one

	mu    sync.Mutex // of the list
	ended []func() bool

	look  sync.Mutex // of who looks, with all that follows
	all   *Event     // behind all that was queued when somebody looked; nil for none
	known int        // doubts of the list that are about work in front of that
	late  bool       // it was waited for in vain
}

// endTime is how long work that is in doubt gets to end, once.
const endTime = time.Second

// Doubt notes that what is queued on the device may never end: it waits for a process that has
// died, and nobody can end it. To free memory, or to unload a module, then waits in the driver for
// good; so Free and the Close of modules, graphs and memory of the host ask Stuck from then on.
// ended reports whether the work has ended, where the driver does not tell: before CUDA 12.5.
func (v *Device) Doubt(ended func() bool) {
	u := &v.doubt
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = append(u.ended, ended)
	u.any.Store(true)
}

// Stuck reports whether the device has work that does not end, of which there was doubt. It gives
// the work a second, the first time.
func (v *Device) Stuck() bool {
	u := &v.doubt
	if !u.any.Load() {
		return false
	}
	u.look.Lock()
	defer u.look.Unlock()
	for {
		u.mu.Lock()
		list := slices.Clone(u.ended)
		u.any.Store(len(list) > 0)
		u.mu.Unlock()
		if len(list) == 0 {
			return false
		}
		if u.known == 0 {
			u.all, _ = v.MarkAll() // without one the functions are asked
			u.known = len(list)
		}
		for began := time.Now(); !u.done(list[:u.known]); time.Sleep(100 * time.Microsecond) {
			if u.late || time.Since(began) > endTime {
				u.late = true
				return true
			}
		}
		if u.all != nil {
			_ = u.all.Close()
		}
		u.mu.Lock()
		u.ended = slices.Delete(u.ended, 0, u.known)
		u.mu.Unlock()
		u.all, u.known, u.late = nil, 0, false
	}
}

// done reports whether the device has done all that is in front of u.all: as the functions say, if
// there is no such event.
func (u *stuckWork) done(ended []func() bool) bool {
	if u.all != nil {
		done, err := u.all.Done()
		return done || err != nil
	}
	return !slices.ContainsFunc(ended, func(ended func() bool) bool { return !ended() })
}

// release is inside for calls that wait for the device: where it is stuck, what they would free is
// left to the end of the process.
func (v *Device) release(call string, fn func() int32) error {
	if v.Stuck() {
		return nil
	}
	return v.inside(call, fn)
}
