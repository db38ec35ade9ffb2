package wire

import (
	"runtime"
	"time"
)

// Backoff is how a goroutine waits for messages: it first polls, then yields its processor, then
// sleeps ever longer, so that processes with more ranks than processors get on. The zero value is
// ready.
type Backoff struct{ turns int }

// Limits of Backoff. A poll of a library takes about a microsecond, and a yield 0.3 us where no
// other thread wants the processor. A rank that polls longer keeps its processor from the rank that
// it waits for, if they share one. The first phases take a few milliseconds, in which most messages
// arrive. A sleep of 20 us takes about 70 us.
const (
	polls    = 20
	yields   = 2000
	maxSleep = time.Millisecond
)

// longYield is the duration of a yield that a program which computes took for itself. Sleeps are
// shorter then, because the system lets a thread run soon after its sleep.
const longYield = 200 * time.Microsecond

// Pauses returns the pauses since the last Reset.
func (b *Backoff) Pauses() int { return b.turns }

// Reset begins again with polls: there was progress.
func (b *Backoff) Reset() { b.turns = 0 }

// Pause waits a little, and longer each time.
func (b *Backoff) Pause() {
	b.turns++
	switch {
	case b.turns <= polls:
	case b.turns <= polls+yields:
		if b.turns%8 == 0 {
			runtime.Gosched()
			return
		}
		began := time.Now()
		if yield(); time.Since(began) > longYield {
			b.turns = polls + yields
		}
	default:
		time.Sleep(min(time.Duration(b.turns-polls-yields)*20*time.Microsecond, maxSleep))
	}
}

// Wait makes progress until all requests are done, and returns the first error of one. stop, if
// not nil, is called now and then; its error ends the wait early, with requests still pending.
func Wait(w Wire, stop func() error, rs ...*Request) error {
	var b Backoff
	for turn := 0; ; turn++ {
		open := false
		for _, r := range rs {
			open = open || !r.Done()
		}
		if !open {
			break
		}
		if w.Progress() {
			b.Reset()
			continue
		}
		if stop != nil && turn%64 == 63 {
			if err := stop(); err != nil {
				return err
			}
		}
		b.Pause()
	}
	for _, r := range rs {
		if _, _, err := r.Result(); err != nil {
			return err
		}
	}
	return nil
}
