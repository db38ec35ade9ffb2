package shm

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/host/asym"
	"github.com/symgrad/symgrad/internal/long"
	"github.com/symgrad/symgrad/symmetric"
)

// A longer run than that of make test-long, a million rounds of each form on each kind of memory:
//
//	go test ./internal/host/shm -run 'Litmus|Quiet' -v -litmus 1000000
var litmusRounds = flag.Int("litmus", long.Times(2000, 20000), "rounds of each litmus test")

func TestLitmusOnGoMemory(t *testing.T) {
	conformance.RunLitmus(t, *litmusRounds, suiteOn(local(GoMemory)))
}

func TestLitmusOnMappings(t *testing.T) {
	needsMappedMemory(t)
	conformance.RunLitmus(t, *litmusRounds, suiteOn(local(Mapped)))
}

// Store buffering by direct stores and loads, which are not ordered by themselves: with Quiet
// between them one of the two ranks sees the other's store. Without it both may miss it, which is
// counted, to tell that the test can see it.
func TestQuietOrdersDirectStoresBeforeLoads(t *testing.T) {
	for name, launch := range launchers {
		for _, quiet := range []bool{true, false} {
			var missed atomic.Int64 // by both
			errs, err := launch(2, Config{}, func(w *dist.World) error { return storeBuffering(w, quiet, &missed) })
			if err := errors.Join(append(errs, err)...); err != nil {
				t.Fatal(err)
			}
			if n := missed.Load(); quiet && n > 0 {
				t.Errorf("%s: both ranks missed the other's store %d times in %d rounds", name, n, *litmusRounds)
			} else if !quiet {
				t.Logf("%s: without Quiet both ranks missed the other's store %d times in %d rounds", name, n, *litmusRounds)
			}
		}
	}
}

func storeBuffering(w *dist.World, quiet bool, missed *atomic.Int64) error {
	h, err := w.Heap(4 * symmetric.Alignment)
	if err != nil {
		return err
	}
	r, err := h.Alloc(2 * symmetric.Alignment)
	if err != nil {
		return err
	}
	peer, err := r.Peer(1 - w.Rank())
	if err != nil {
		return err
	}
	mine, theirs := words(r.Local().Pointer()), words(peer.Pointer())
	for round := uint64(1); round <= uint64(*litmusRounds); round++ {
		atomic.StoreUint64(theirs.gate, round)
		if err := reach(h, mine.gate, round); err != nil {
			return err
		}
		asym.Store(theirs.value, round)
		if quiet {
			if err := h.Quiet(); err != nil {
				return err
			}
		}
		seen := atomic.LoadUint64(mine.value)
		atomic.StoreUint64(theirs.seen, round<<1|seen/round&1)
		if err := reach(h, mine.seen, round<<1); err != nil {
			return err
		}
		switch {
		case seen != round && seen != round-1:
			return fmt.Errorf("round %d: read %d", round, seen)
		case w.Rank() == 0 && seen != round && atomic.LoadUint64(mine.seen)&1 == 0:
			missed.Add(1)
		}
	}
	return done(w.Barrier())
}

// reach returns when word has reached want. It spins, for the two ranks to go on at one time.
func reach(h symmetric.Heap, word *uint64, want uint64) error {
	for turns := 1; atomic.LoadUint64(word) < want; turns++ {
		if turns%1000 != 0 {
			continue
		}
		runtime.Gosched() // there may be one core
		if err := h.Fence(); err != nil {
			return err // the group is broken
		}
	}
	return nil
}

// cells are words of a part, on cache lines of their own.
type cells struct{ gate, value, seen *uint64 }

func words(part unsafe.Pointer) cells {
	at := func(off int) *uint64 { return (*uint64)(unsafe.Add(part, off)) }
	return cells{at(0), at(256), at(512)}
}
