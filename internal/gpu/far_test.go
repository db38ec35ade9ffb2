package gpu

import (
	"errors"
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// A call that returns without an operation, such as an allocation, waits for the notes of all
// hosts: each rank has compared its call when it returns.
func TestCallsAreComparedBeforeTheyReturn(t *testing.T) {
	ledgers(t, 4, true, ages, func(p *ledger) error {
		same := allReduceEntry(3)
		if err := errors.Join(p.announce(&same), p.compared()); err != nil { // others are past the next call
			return want(err, dist.ErrMismatch, "count", "rank 3")
		}
		odd := allReduceEntry(4)
		if p.rank != 3 {
			odd = allReduceEntry(5)
		}
		err := p.announce(&odd)
		if p.far == nil {
			return want(p.awaitEnd(), dist.ErrMismatch, "count")
		}
		return want(errors.Join(err, p.compared()), dist.ErrMismatch, "count", "rank 3")
	})
}

// Notes that are too short, or name ranks of another host, are dropped.
func TestOddNotesAreDropped(t *testing.T) {
	onHosts(t, []int{0, 1}, func(control *dist.Group) error {
		return withLedger(control, true, ages, func(p *ledger) error {
			other := 1 - p.rank
			for kind := range byte(8) {
				for words := range 9 {
					if (kind == noteFailed && words > 0) || kind == noteLeft || kind == noteEntry && words == 8 || kind == noteDecided && words == 1 {
						continue
					}
					p.far.deposit(other, note(kind, make([]uint64, words)...))
				}
			}
			p.far.deposit(other, note(noteMessage, uint64(other), 1, 1, 3, uint64(tensor.F32), 0))
			if n := p.load(other, postedAt); n != 0 || p.broken() != nil {
				return fmt.Errorf("rank %d has posted %d, %v", other, n, p.broken())
			}
			return nil
		})
	})
}
