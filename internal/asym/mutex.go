package asym

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Mutex is a lock for sections that are short as a rule, and seldom meet. Its Unlock is a Store: it
// does not wait, as that of sync.Mutex does, until all that the holder has written has left its
// core, which takes as long as another core takes to give up a line. Nobody is woken by it: who
// finds it taken looks again. The zero Mutex is free.
type Mutex struct {
	held   uint64       // 1 while it is taken
	wanted atomic.Int32 // 1 while somebody who found it taken looks again: who comes now stands behind
	queue  sync.Mutex   // of those
}

// Lock takes m.
func (m *Mutex) Lock() {
	if m.wanted.Load() != 0 || !atomic.CompareAndSwapUint64(&m.held, 0, 1) {
		m.wait()
	}
}

// Unlock gives m back.
func (m *Mutex) Unlock() { Store(&m.held, 0) }

// Between two looks a waiter lets other goroutines run, and later sleeps, since the holder may need
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
