package shm

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
)

// bells is the page of one rank's part by which writers wake it. Words of the part have no room for
// a count of sleepers beside them, so each unit of symmetric.Alignment bytes is hashed to a bell: a
// word that a sleeper sleeps on, with the count beside it. Data and signals in regions of their own
// lie in different units, so data wakes nobody in vain.
//
//	0          how many wait on this rank's part
//	64         bell of those who watch several units
//	128*(1+i)  bell i
type bells struct{ page unsafe.Pointer }

const (
	asleepAt  = 0
	wideAt    = 64
	bellBytes = 128
	bellCount = pageBytes/bellBytes - 1
)

func (b bells) asleep() *uint64 { return (*uint64)(unsafe.Add(b.page, asleepAt)) }
func (b bells) wide() *uint64   { return (*uint64)(unsafe.Add(b.page, wideAt)) }

func (b bells) unit(u int64) *uint64 {
	return (*uint64)(unsafe.Add(b.page, bellBytes*(1+u%bellCount)))
}

// of is the bell of those who watch bytes off to off+n.
func (b bells) of(off, n int64) *uint64 {
	first, last := units(off, n)
	if first != last {
		return b.wide()
	}
	return b.unit(first)
}

// units is the first and last unit of bytes off to off+n, n > 0.
func units(off, n int64) (first, last int64) {
	return off / symmetric.Alignment, (off + n - 1) / symmetric.Alignment
}

// Ring implements hostheap.Host. Atomics and signals are full fences, so that either the sleeper
// sees the word or this sees the sleeper; behind a longer Put the sleeper may be missed, and looks
// up after pollInterval.
func (o *host) Ring(rank int, off, n int64) {
	if b := o.h.bells[rank]; atomic.LoadUint64(b.asleep()) != 0 {
		b.ring(off, n)
	}
}

func (b bells) ring(off, n int64) {
	first, last := units(off, n)
	for u := first; u <= min(last, first+bellCount-1); u++ {
		strike(b.unit(u))
	}
	strike(b.wide())
}

func strike(bell *uint64) {
	atomic.AddUint64(bell, 1)
	wake(bell)
}

// Await implements hostheap.Host: it yields the core for a while and then sleeps on a bell.
// Counting itself among the sleepers comes before the look, as the writer's store comes before its
// look for sleepers.
func (o *host) Await(ctx context.Context, off, n int64, done, leave func() bool) error {
	b := o.h.bells[o.h.t.rank]
	bell, nd := b.of(off, n), o.h.t.node
	atomic.AddUint64(b.asleep(), 1)
	defer atomic.AddUint64(b.asleep(), ^uint64(0))
	var since time.Time
	for turn := 1; ; turn++ {
		seen := atomic.LoadUint64(bell)
		if done() || leave() {
			return nil
		}
		switch {
		case turn > nd.yields:
			futexWait(bell, seen, nd.poll, nd.holds)
		case turn%8 == 0:
			runtime.Gosched()
			continue
		default:
			if yield() > longYield {
				turn = nd.yields
			}
			continue
		}
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		if err := o.giveUp(ctx, now.Sub(since)); err != nil && !done() {
			return err
		}
	}
}

// giveUp is why a wait on the own part that has slept for so long should end.
func (o *host) giveUp(ctx context.Context, slept time.Duration) error {
	t := o.h.t
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := t.aborted(); err != nil {
		return err
	}
	if d := t.node.cfg.StepTimeout; slept > d {
		return fmt.Errorf("%w after %v", dist.ErrTimeout, d)
	}
	for p := range t.size {
		if p != t.rank && atomic.LoadUint64(t.ctl.left(p)) == 0 {
			return nil
		}
	}
	if t.size == 1 {
		return nil
	}
	return fmt.Errorf("all other ranks have closed their ends: %w", dist.ErrClosed)
}
