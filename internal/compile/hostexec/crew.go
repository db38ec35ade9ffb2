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
	// spins is the number of looks for work before a helper parks, 30 to 80 µs in all. That is
	// longer than steps that are too small to share, and too short for other processes to miss the
	// core.
	spins = 200
	// pauses is the length of one of these looks, in PAUSE instructions.
	pauses = 8
)

// task is work in pieces that may be done in any order, in parallel.
type task interface {
	piece(w *worker, i int)
}

// worker is a goroutine of a crew, with memory that only it uses.
type worker struct {
	id      int
	crew    *crew
	mem     *memory
	scratch unsafe.Pointer // aligned to 64
	slots   []slot
	index   [maxDims]int
	vec     vecArgs
	tile    tile
	words   [6]uint32
	line    [lineBytes / 8]uint64
	lanes   [width]uint64 // of the current row

	parked atomic.Int32
	wake   chan struct{}
	share
}

// crew is goroutines that live from New to Close and do the pieces of one task after the other. The
// goroutine that calls run is one of them. Each starts with its own pieces, the same part of every
// task, so that a core reads data that it has in its caches. A worker without pieces takes those of
// others. Helpers join a task if they see it in time. A task ends when no piece is left or running,
// so a sleeping helper costs nothing.
type crew struct {
	workers []*worker // the first is the caller's
	blocks  []block   // their scratch
	ended   sync.WaitGroup

	_ [lineBytes]byte // the fields after it are read by all, and written between tasks

	// turn is odd while a task is open. A helper sets inside before it reads turn a second time,
	// and clears it after its last piece. The caller closes the task, waits until no helper is
	// inside, and only then changes the task.
	turn   atomic.Uint32
	closed atomic.Bool
	failed atomic.Bool
	task   task
	pieces int
	owners int   // workers that have pieces of their own
	base   int64 // claims of any share before the task, at most; see share

	_ [lineBytes]byte

	mu      sync.Mutex
	failure error
	at      int // piece of failure
}

// share is a worker's own pieces of a task. claims counts over all tasks. Those of a task start at
// the crew's base, which is at least the claims of any share, so that no reset is needed.
type share struct {
	_      [lineBytes]byte
	claims atomic.Int64
	inside atomic.Bool // the worker may look at the task
	_      [lineBytes - 12]byte
}

// newCrew starts a crew of the given number of goroutines, including the caller's, each with so
// many bytes of scratch.
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

// run does the pieces 0 to pieces-1 of t. It returns when all are done, or when one has failed and
// none is running.
func (c *crew) run(t task, pieces int) error {
	c.task, c.pieces, c.owners = t, pieces, min(len(c.workers), pieces)
	if helpers := c.owners - 1; helpers > 0 {
		c.turn.Add(1)
		for _, w := range c.workers[1 : 1+helpers] {
			if w.parked.CompareAndSwap(1, 0) {
				w.wake <- struct{}{}
			}
		}
		c.workers[0].drain()
		c.turn.Add(1)
		c.leave()
	} else {
		c.workers[0].drain()
	}
	c.task = nil
	if c.owners > 0 {
		c.base += int64((pieces + c.owners - 1) / c.owners)
	}
	if !c.failed.Load() {
		return nil
	}
	return c.takeFailure()
}

// leave waits until no helper is inside.
func (c *crew) leave() {
	for _, w := range c.workers[1:] {
		for i := 0; w.inside.Load(); i++ {
			pause(pauses)
			if i%64 == 63 {
				runtime.Gosched()
			}
		}
	}
}

func (c *crew) takeFailure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.failure
	c.failure = nil
	c.failed.Store(false)
	return err
}

// fail records the error of a piece. The error of the first piece is the task's.
func (c *crew) fail(piece int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil || piece < c.at {
		c.failure, c.at = err, piece
	}
	c.failed.Store(true)
}

// drain does pieces until none is left: its own first, then those of others. A panic is a failure
// of the piece: it must not end the process, nor make other ranks wait for this one.
func (w *worker) drain() {
	c := w.crew
	i := -1
	defer func() {
		if v := recover(); v != nil {
			c.fail(i, fmt.Errorf("BUG: panic: %v\n%s", v, debug.Stack()))
		}
	}()
	for n := range c.owners {
		owner := (w.id + n) % c.owners
		from := c.workers[owner]
		lo, hi := owner*c.pieces/c.owners, (owner+1)*c.pieces/c.owners
		for i = from.claim(c.base, lo, hi); i < hi && !c.failed.Load(); i = from.claim(c.base, lo, hi) {
			c.task.piece(w, i)
		}
	}
}

// claim returns the next of the pieces lo to hi-1 of a share; hi if none is left.
func (s *share) claim(base int64, lo, hi int) int {
	for {
		was := s.claims.Load()
		next := max(was, base)
		if next-base >= int64(hi-lo) {
			return hi
		}
		if s.claims.CompareAndSwap(was, next+1) {
			return lo + int(next-base)
		}
	}
}

// help is the loop of a helper.
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
		w.inside.Store(true)
		if c.turn.Load() == turn {
			w.drain()
		}
		w.inside.Store(false)
	}
}

// await returns an open turn other than seen. It returns an even number when the crew is closed or
// a wake-up came too late.
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

// forget drops the addresses of past tasks. Memory that was unbound may be unmapped, and its
// addresses may later belong to the garbage collector. No task may be running.
func (c *crew) forget() {
	for _, w := range c.workers {
		clear(w.slots)
		w.vec, w.tile = vecArgs{}, tile{}
	}
}

// close ends the helpers. No task may be running.
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
