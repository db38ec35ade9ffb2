package asym

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Mutex is a lock for short sections with few conflicts. Its Unlock is a Store. Unlike that of
// sync.Mutex it does not wait until all writes of the holder have left its core, which takes as
// long as another core needs to give up a line. Unlock wakes no goroutine: waiting ones poll. The
// zero Mutex is free.
type Mutex struct {
	held   uint64       // 1 while it is taken
	wanted atomic.Int32 // 1 while a goroutine polls; new ones then queue after it
	queue  sync.Mutex   // of waiting goroutines
}

// Lock locks m.
func (m *Mutex) Lock() {
	if m.wanted.Load() != 0 || !atomic.CompareAndSwapUint64(&m.held, 0, 1) {
		m.wait()
	}
}

// Unlock unlocks m.
func (m *Mutex) Unlock() { Store(&m.held, 0) }

// Between two polls a waiter lets other goroutines run, and later sleeps, since the holder may need
// its core.
const (
	yields = 100
	rest   = 20 * time.Microsecond
)

func (m *Mutex) wait() {
	m.queue.Lock()
	defer m.queue.Unlock()
	m.wanted.Store(1)
	defer m.wanted.Store(0)
	for i := 0; !atomic.CompareAndSwapUint64(&m.held, 0, 1); i++ {
		runtime.Gosched()
		if i >= yields {
			nap(rest)
		}
	}
}
