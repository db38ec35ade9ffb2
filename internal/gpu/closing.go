package gpu

import (
	"runtime"
	"sync/atomic"
	"time"
)

// States of closing: open, all ranks have arrived, or each rank leaves alone.
const (
	closingOpen = iota
	closingTogether
	closingApart
)

// leave records that this rank has closed its end, and waits up to grace for the others. The host
// of rank 0 decides, and other hosts wait for its decision as long again.
//
// Returns: whether all ranks have arrived; the result is equal on all ranks, except for a host that
// does not hear the decision.
func (p *ledger) leave(grace time.Duration) bool {
	atomic.StoreUint64(p.word(p.rank, leftAt), 1)
	p.arrive()
	if p.far != nil {
		p.far.left()
		if !p.decides() {
			grace *= 2
		}
	}
	p.wakeAll()
	began := time.Now()
	for turn := 0; ; turn++ {
		now := atomic.LoadUint64(p.word(p.home, closingAt))
		if now>>32 != closingOpen {
			return now>>32 == closingTogether
		}
		if late := time.Since(began) > grace; late || p.broken() != nil {
			p.decide(now, closingApart)
			continue
		}
		if p.far != nil {
			p.far.progress()
		}
		if turn < 100 {
			runtime.Gosched()
		} else {
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// decides reports whether this host decides how the group closes.
func (p *ledger) decides() bool { return p.home == 0 }

// arrive counts a rank that has left. The last one decides that all close together.
func (p *ledger) arrive() {
	state := p.word(p.home, closingAt)
	if now := atomic.AddUint64(state, 1); uint32(now) == uint32(p.size) && now>>32 == closingOpen && p.decides() {
		p.decide(now, closingTogether)
	}
}

// decide changes the state of closing from now, unless it has changed, and reports a decision for
// all hosts.
func (p *ledger) decide(now, state uint64) {
	if atomic.CompareAndSwapUint64(p.word(p.home, closingAt), now, state<<32|now&(1<<32-1)) && p.far != nil && p.decides() {
		p.far.decided(state)
	}
}
