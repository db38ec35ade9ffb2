package gpu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// endKind is the reason why a group is broken. The numbering is part of the wire format.
type endKind uint32

const (
	endDied endKind = 1 + iota
	endUser
	endMismatch
	endTimeout
	endClosed
	endFault
)

// fail breaks the group for good, on all ranks, unless it is already broken. about is the rank that
// caused it.
//
// Returns: the error of the broken group, which may have an older reason.
func (p *ledger) fail(kind endKind, about int, text string) error {
	if code := uint64(kind)<<32 | uint64(uint32(about)); p.record(code, text) {
		if p.far != nil {
			p.far.failed(code, text)
		}
		// Ends the waits of other ranks in the control group. An error means it is already broken
		// or closed.
		_ = p.control.Abort(errors.New(text))
	}
	return p.broken()
}

// record writes the reason to the abort page of this host, unless the page has one.
func (p *ledger) record(code uint64, text string) bool {
	if !atomic.CompareAndSwapUint64(p.word(p.home, verdictCode), 0, code) {
		return false
	}
	to := unsafe.Slice((*byte)(unsafe.Add(p.parts[p.home], verdictText)), maxVerdict)
	n := copy(to, text)
	*p.word(p.home, verdictLength) = uint64(n)
	atomic.StoreUint64(p.word(p.home, verdictReady), 1)
	p.wakeAll()
	return true
}

// broken returns the error of the broken group, or nil. Any goroutine may call it.
func (p *ledger) broken() error {
	if e := p.end.Load(); e != nil {
		return e.err
	}
	code := p.load(p.home, verdictCode)
	if code == 0 {
		return nil
	}
	return p.failureError(code)
}

// failureError turns the abort page, which all ranks share, into this rank's error.
func (p *ledger) failureError(code uint64) error {
	text := "no details, because the rank that broke the group died doing so"
	for turn := range 1200 { // the writer is between two stores
		if p.load(p.home, verdictReady) == 1 {
			n := min(*p.word(p.home, verdictLength), maxVerdict)
			text = string(unsafe.Slice((*byte)(unsafe.Add(p.parts[p.home], verdictText)), n))
			break
		}
		if turn < 1000 {
			runtime.Gosched()
		} else {
			time.Sleep(time.Millisecond)
		}
	}
	rank := int(int32(uint32(code)))
	var err error
	switch endKind(code >> 32) {
	case endDied:
		err = &dist.RankError{Rank: rank, How: text}
	case endMismatch:
		err = &brokenError{dist.ErrMismatch, text}
	case endTimeout:
		err = &brokenError{dist.ErrTimeout, text}
	case endClosed:
		err = &brokenError{dist.ErrClosed, text}
	case endUser:
		err = fmt.Errorf("%w by rank %d: %s", dist.ErrAborted, rank, text)
	default:
		err = fmt.Errorf("%w: rank %d: %s", dist.ErrAborted, rank, text)
	}
	if p.doubt != nil {
		p.doubt()
	}
	p.end.CompareAndSwap(nil, &ending{err})
	return p.end.Load().err
}

// brokenError is a sentinel with its full text. It matches ErrAborted too.
type brokenError struct {
	kind error
	text string
}

func (e *brokenError) Error() string {
	if strings.Contains(e.text, e.kind.Error()) {
		return e.text
	}
	return e.kind.Error() + ": " + e.text
}

func (e *brokenError) Is(target error) bool { return target == e.kind || target == dist.ErrAborted }

// settle returns the error of the group after a control group call returned err. If the group is
// not yet broken, it breaks it.
func (p *ledger) settle(err error) error {
	if err == nil {
		return nil
	}
	if e := p.broken(); e != nil {
		return e
	}
	var dead *dist.RankError
	switch {
	case errors.As(err, &dead):
		return p.fail(endDied, dead.Rank, dead.How)
	case errors.Is(err, dist.ErrMismatch):
		return p.fail(endMismatch, p.rank, err.Error())
	case errors.Is(err, dist.ErrTimeout):
		return p.fail(endTimeout, p.rank, err.Error())
	case errors.Is(err, dist.ErrClosed):
		return p.fail(endClosed, p.rank, err.Error())
	case errors.Is(err, dist.ErrAborted):
		return p.fail(endUser, p.rank, err.Error())
	}
	return p.fail(endFault, p.rank, err.Error())
}

// wakeAll wakes the watchers of this host's ranks.
func (p *ledger) wakeAll() {
	one := symmetric.Atomic{Op: symmetric.OpAdd, DType: tensor.U64, Value: 1}
	for i := range p.near {
		_, _ = p.region.Atomic(i, wakeAt, one) // an error means a broken control group, which wakes them as well
	}
}

// sight is the longest time between two checks of the engines by the watcher.
const sight = 100 * time.Millisecond

// watch returns when the group is broken or ctx ends. asks returns the engines' own errors, which
// break the group. A step timeout of the control group does not: an idle group has no messages.
func (p *ledger) watch(ctx context.Context, asks func() error) {
	seen := p.load(p.rank, wakeAt)
	for ctx.Err() == nil {
		turn, cancel := context.WithTimeout(ctx, sight)
		_, err := p.region.Wait(turn, symmetric.Watch{At: wakeAt, Count: 1, DType: tensor.U64, Cmp: symmetric.Ne, Value: seen})
		if err != nil && turn.Err() == nil && p.ends(err) {
			<-turn.Done() // the next wait would fail at once
		}
		cancel()
		if ctx.Err() != nil {
			return
		}
		seen = p.load(p.rank, wakeAt)
		if err := asks(); err != nil {
			_ = p.fail(endFault, p.rank, err.Error())
		}
		p.absent()
		if p.far != nil {
			p.far.check()
		}
		if p.broken() != nil {
			return
		}
	}
}

// ends reports whether err, from a wait on the control group, is permanent but breaks nothing: all
// others have closed their control groups. If err breaks the group, ends does so.
func (p *ledger) ends(err error) bool {
	switch {
	case errors.Is(err, dist.ErrAborted):
	case errors.Is(err, dist.ErrClosed):
		return true
	case errors.Is(err, dist.ErrTimeout):
		return false
	}
	var dead *dist.RankError
	if errors.As(err, &dead) { // of this host's group
		err = &dist.RankError{Rank: p.near[dead.Rank], How: dead.How}
	}
	_ = p.settle(err)
	return false
}

// absent breaks the group if a rank has left that this rank's operations wait for.
func (p *ledger) absent() {
	posted := p.load(p.rank, postedAt)
	for r := range p.parts {
		if r == p.rank || p.load(r, leftAt) == 0 {
			continue
		}
		waits := p.load(r, postedAt) < posted
		for _, out := range [...]bool{true, false} {
			waits = waits || atomic.LoadUint64(p.counter(r, p.rank, !out)) < atomic.LoadUint64(p.counter(p.rank, r, out))
		}
		if waits {
			_ = p.fail(endClosed, r, closedText(r))
			return
		}
	}
}
