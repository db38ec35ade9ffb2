package shm

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/symgrad/symgrad/dist"
)

// abortKind is the reason why a group is broken.
type abortKind uint32

const (
	abortDied abortKind = 1 + iota
	abortUser
	abortMismatch
	abortTimeout
	abortClosed
	abortFault
)

// fail breaks the group permanently, unless it is already broken. rank is the rank that the reason
// names.
func (c *control) fail(kind abortKind, rank int, text string) {
	if !atomic.CompareAndSwapUint64(c.abort(), 0, uint64(kind)<<32|uint64(uint32(rank))) {
		return
	}
	n := copy(c.mem[abortText:pageBytes], text)
	binary.LittleEndian.PutUint64(c.mem[abortLength:], uint64(n))
	atomic.StoreUint64(c.u64(abortReady), 1)
}

// aborted returns the error of a broken group, or nil.
func (c *control) aborted() error {
	code := atomic.LoadUint64(c.abort())
	if code == 0 {
		return nil
	}
	ready, text := c.u64(abortReady), "no details"
	if followed(ready, 1); atomic.LoadUint64(ready) == 1 {
		n := binary.LittleEndian.Uint64(c.mem[abortLength:])
		text = string(c.mem[abortText : abortText+min(n, maxAbortText)])
	}
	rank := int(int32(uint32(code)))
	switch abortKind(code >> 32) {
	case abortDied:
		return &dist.RankError{Rank: rank, How: text}
	case abortMismatch:
		return &brokenError{dist.ErrMismatch, text}
	case abortTimeout:
		return &brokenError{dist.ErrTimeout, text}
	case abortClosed:
		return &brokenError{dist.ErrClosed, text}
	case abortUser:
		return fmt.Errorf("%w by rank %d: %s", dist.ErrAborted, rank, text)
	}
	return fmt.Errorf("%w: rank %d: %s", dist.ErrAborted, rank, text)
}

// brokenError is a sentinel with a complete text by another rank; it matches ErrAborted too.
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
