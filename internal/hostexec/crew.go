package hostexec

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	// spins is how often a helper looks for work before it parks, 30 to 80 µs in all: longer than the steps that are too
	// small to share, shorter than what anybody else would miss of a core.
	spins = 200
	// pauses is the length of one of these looks, in PAUSE instructions.
	pauses = 8
)

// task is work that is cut into pieces which may be done in any order, side by side.
type task interface {
	piece(w *worker, i int)
}

// worker is one goroutine's share of a crew: memory that only it uses.
type worker struct {
	id      int
	crew    *crew
	mem     *memory
	scratch unsafe.Pointer // scratchBytes, aligned to 64
	slots   []slot
	index   [maxDims]int
	vec     vecArgs
	tile    tile
	words   [6]uint32
	line    [lineBytes / 8]uint64
	lanes   [width]uint64 // of a row in work

	parked atomic.Int32
	wake   chan struct{}
}

// crew is goroutines that live from New to Close and do the pieces of one task after the other. The goroutine that calls
// run is one of them. Helpers join a task if they see it in time; it is done when no piece is left and none is in work,
// so a helper that sleeps costs nothing.
type crew struct {
	workers []*worker // the first is the caller's
	blocks  []block   // their scratch

	task   task
	pieces int64
	next   atomic.Int64

	// turn is odd while a task is open. A helper counts itself in before it looks at turn a second time and out after its
	// last piece; the caller closes the task, waits for inside to be 0, and only then changes task and pieces.
	turn   atomic.Uint32
	inside atomic.Int32
	closed atomic.Bool
	ended  sync.WaitGroup

	mu      sync.Mutex
	failed  atomic.Bool
	failure error
	at      int // piece of failure
}

// newCrew starts a crew of the given number of goroutines, the caller's included, each with that many bytes of scratch.
func newCrew(threads, scratch, slots int, mem *memory) *crew {
	c := &crew{}
	for i := range threads {
		b := newBlock(scratch)
		c.blocks = append(c.blocks, b)
		c.workers = append(c.workers, &worker{id: i, crew: c, mem: mem, scratch: b.p, slots: make([]slot, slots), wake: make(chan struct{}, 1)})
	}
	for _, w := range c.workers[1:] {
		c.ended.Add(1)
		go w.help()
	}
	return c
}

// run does the pieces 0 to pieces-1 of t and returns when all are done, or when one has failed and none is in work.
func (c *crew) run(t task, pieces int) error {
	c.task, c.pieces = t, int64(pieces)
	c.next.Store(0)
	if helpers := min(len(c.workers), pieces) - 1; helpers > 0 {
		c.turn.Add(1)
		for _, w := range c.workers[1 : 1+helpers] {
			if w.parked.CompareAndSwap(1, 0) {
				w.wake <- struct{}{}
			}
		}
		c.workers[0].drain()
		c.turn.Add(1)
		for i := 0; c.inside.Load() != 0; i++ {
			pause(pauses)
			if i%64 == 63 {
				runtime.Gosched()
			}
		}
	} else {
		c.workers[0].drain()
	}
	c.task = nil
	if !c.failed.Load() {
		return nil
	}
	return c.takeFailure()
}

func (c *crew) takeFailure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.failure
	c.failure = nil
	c.failed.Store(false)
	return err
}

// fail notes the error of a piece; that of the first piece is the task's.
func (c *crew) fail(piece int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil || piece < c.at {
		c.failure, c.at = err, piece
	}
	c.failed.Store(true)
}

// drain does pieces until none is left. A panic is a failure of the piece: it must not end the process, nor leave the
// other ranks waiting for this one.
func (w *worker) drain() {
	c := w.crew
	i := int64(-1)
	defer func() {
		if v := recover(); v != nil {
			c.fail(int(i), fmt.Errorf("BUG: panic: %v\n%s", v, debug.Stack()))
		}
	}()
	for i = c.next.Add(1) - 1; i < c.pieces && !c.failed.Load(); i = c.next.Add(1) - 1 {
		c.task.piece(w, int(i))
	}
}

// help is the life of a helper.
func (w *worker) help() {
	c := w.crew
	defer c.ended.Done()
	var seen uint32
	for !c.closed.Load() {
		turn := w.await(seen)
		if turn&1 == 0 {
			continue
		}
		seen = turn
		c.inside.Add(1)
		if c.turn.Load() == turn {
			w.drain()
		}
		c.inside.Add(-1)
	}
}

// await returns an open turn other than seen, or an even number when the crew is closed or a wake came too late.
func (w *worker) await(seen uint32) uint32 {
	c := w.crew
	for i := range spins {
		if turn := c.turn.Load(); turn&1 == 1 && turn != seen {
			return turn
		}
		if c.closed.Load() {
			return 0
		}
		pause(pauses)
		if i%32 == 31 {
			runtime.Gosched()
		}
	}
	w.parked.Store(1)
	if turn := c.turn.Load(); turn&1 == 1 && turn != seen || c.closed.Load() {
		if w.parked.CompareAndSwap(1, 0) {
			return turn
		}
	}
	<-w.wake
	return c.turn.Load()
}

// forget drops the addresses of past tasks. Memory that is bound no longer may be unmapped, and what is mapped there next
// may be the garbage collector's. No task is in work.
func (c *crew) forget() {
	for _, w := range c.workers {
		clear(w.slots)
		w.vec, w.tile = vecArgs{}, tile{}
	}
}

// close ends the helpers. No task is in work.
func (c *crew) close() {
	if c.closed.Swap(true) {
		return
	}
	for _, w := range c.workers[1:] {
		if w.parked.CompareAndSwap(1, 0) {
			w.wake <- struct{}{}
		}
	}
	c.ended.Wait()
}
