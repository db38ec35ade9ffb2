package optim

import (
	"runtime"
	"sync"
	"sync/atomic"
)

const (
	// spanLen is the number of elements of a span. The four arrays of an Adam step fill 128 KiB in
	// float32, well inside an L2 cache. A span takes about 5 µs in assembly and 20 µs in Go;
	// starting a goroutine takes 1 or 2 µs.
	spanLen = 8192
	// spansPerHelper is the number of spans that justify one more goroutine.
	spansPerHelper = 16
)

// span is the elements lo to hi of a parameter's owned elements: the unit of work in a step. It
// starts at the start of a block.
type span struct{ param, lo, hi int }

// appendSpans cuts the size elements of a parameter into spans.
func appendSpans(spans []span, param, size int) []span {
	for lo := 0; lo < size; lo += spanLen {
		spans = append(spans, span{param: param, lo: lo, hi: min(lo+spanLen, size)})
	}
	return spans
}

// crew calls a function for every number below n, on several goroutines if n is large enough. run
// starts the goroutines and waits for them.
type crew struct {
	helpers []func() // bodies of the extra goroutines, made once so that starting one allocates nothing
	do      func(worker, i int)
	n       int64
	next    atomic.Int64
	done    sync.WaitGroup
}

// newCrew returns a crew of the given number of goroutines, including the caller's; 0 means
// GOMAXPROCS.
func newCrew(workers int) *crew {
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	c := &crew{helpers: make([]func(), workers-1)}
	for i := range c.helpers {
		c.helpers[i] = func() {
			defer c.done.Done()
			c.drain(i + 1)
		}
	}
	return c
}

// workers returns the number of goroutines.
func (c *crew) workers() int { return len(c.helpers) + 1 }

// run calls do(worker, 0) ... do(worker, n-1), in no particular order, and returns when all have
// returned. Concurrent calls have different workers, which are below workers().
func (c *crew) run(n int, do func(worker, i int)) {
	c.do, c.n = do, int64(n)
	c.next.Store(0)
	helpers := c.helpers[:min(len(c.helpers), n/spansPerHelper)]
	c.done.Add(len(helpers))
	for _, help := range helpers {
		go help()
	}
	c.drain(0)
	c.done.Wait()
}

// drain takes numbers until all are taken.
func (c *crew) drain(worker int) {
	for i := c.next.Add(1) - 1; i < c.n; i = c.next.Add(1) - 1 {
		c.do(worker, int(i))
	}
}
