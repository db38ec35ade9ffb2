package cuda

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// stuckWork tracks device work that may never end because a peer died.
type stuckWork struct {
	any atomic.Bool // the list is not empty

	mu    sync.Mutex // protects the list
	ended []func() bool

	look  sync.Mutex // serializes Stuck; protects the fields below
	all   *Event     // recorded after the work of the known entries; nil if the driver cannot
	known int        // entries of the list whose work all covers
	late  bool       // the wait for them has timed out
}

// endTime limits the wait for work in doubt. It is spent once.
const endTime = time.Second

// Doubt records that queued work may never end, because it waits for a process that has died.
// Freeing memory or unloading a module would then block in the driver. Free and the Close of
// modules, graphs and host memory therefore call Stuck from now on. ended reports whether the work
// has ended; it is used with drivers before CUDA 12.5.
func (v *Device) Doubt(ended func() bool) {
	u := &v.doubt
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = append(u.ended, ended)
	u.any.Store(true)
}

// Stuck reports whether work that Doubt reported has not ended. The first call waits for it for up
// to a second.
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
			u.all, _ = v.MarkAll() // without it done calls the functions
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

// done reports whether the work before u.all is done. Without that event it calls the functions.
func (u *stuckWork) done(ended []func() bool) bool {
	if u.all != nil {
		done, err := u.all.Done()
		return done || err != nil
	}
	return !slices.ContainsFunc(ended, func(ended func() bool) bool { return !ended() })
}

// release is inside for calls that wait for the device. On a stuck device it does nothing: the
// resource is left to the end of the process.
func (v *Device) release(call string, fn func() int32) error {
	if v.Stuck() {
		return nil
	}
	return v.inside(call, fn)
}
