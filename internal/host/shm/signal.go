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

// bells is a page of a rank's part by which writers wake the rank. Words of the part have no space
// for a count of sleepers next to them. Each unit of symmetric.Alignment bytes is therefore hashed
// to a bell: a word to sleep on, with a count. Data and signals in separate regions are in
// different units, so writing data wakes no rank in vain.
//
//	0          number of waits on this rank's part
//	64         bell for waits on several units
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

// of returns the bell for waits on bytes off to off+n.
func (b bells) of(off, n int64) *uint64 {
	first, last := units(off, n)
	if first != last {
		return b.wide()
	}
	return b.unit(first)
}

// units returns the first and last unit of bytes off to off+n, n > 0.
func units(off, n int64) (first, last int64) {
	return off / symmetric.Alignment, (off + n - 1) / symmetric.Alignment
}

// Ring implements hostheap.Host. Atomics and signals are full fences: either the sleeper sees the
// word or Ring sees the sleeper. After a longer Put the sleeper may be missed; it checks every
// pollInterval.
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

// Await implements hostheap.Host: it yields the core for a while and then sleeps on a bell. It
// counts itself among the sleepers before it loads the words, as the writer stores before it looks
// for sleepers.
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

// giveUp returns why a wait on the own part, after sleeping for slept, should end, or nil.
func (o *host) giveUp(ctx context.Context, slept time.Duration) error {
	t := o.h.t
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := t.ctl.aborted(); err != nil {
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
