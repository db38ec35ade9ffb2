package shm

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
)

// awaitTurns returns when t has handed n turns out.
func awaitTurns(t *Transport, n uint64) {
	for {
		t.turns.mu.Lock()
		next := t.turns.next
		t.turns.mu.Unlock()
		if next == n {
			return
		}
		runtime.Gosched()
	}
}

// A Split or Heap uses the control segment until it returns, so that an end closed meanwhile unmaps
// it later.
func TestCloseIsBehindASplitThatRuns(t *testing.T) {
	ends, err := Local(2, Mapped, Config{})
	if err != nil {
		t.Fatal(err)
	}
	at := func(r int) *Transport { return ends[r].(*worldTransport).Transport }
	split, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		sub, err := ends[0].Split(0, 0)
		split <- errors.Join(err, sub.Close())
	}()
	awaitTurns(at(0), 1)
	go func() { closed <- ends[0].Close() }()
	awaitTurns(at(0), 2)
	select {
	case err := <-closed:
		t.Fatalf("closed, %v, while a split runs", err)
	default:
	}
	sub, err := ends[1].Split(0, 0)
	if err := errors.Join(err, <-split, <-closed); err != nil {
		t.Fatal(err)
	}
	if _, err := ends[0].Split(0, 0); !errors.Is(err, dist.ErrClosed) {
		t.Errorf("split of a closed end: %v", err)
	}
	if err := errors.Join(sub.Close(), ends[1].Close(), ends[0].Close()); err != nil {
		t.Error(err)
	}
}

// A segment that a group makes while it is being closed is closed too.
func TestHeapMadeWhileItsGroupClosesIsGivenBack(t *testing.T) {
	ends, err := Local(2, Mapped, Config{})
	if err != nil {
		t.Fatal(err)
	}
	first := ends[0].(*worldTransport).Transport
	worlds := make([]*dist.World, 2)
	for r := range worlds {
		if worlds[r], err = dist.NewWorld(ends[r], dist.LocalInfo{Rank: r, Size: 2}, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	made, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := worlds[0].Heap(4096)
		made <- err
	}()
	awaitTurns(first, 1)
	go func() { closed <- worlds[0].Close() }()
	awaitTurns(first, 2)
	_, err = worlds[1].Heap(4096)
	if err := errors.Join(err, <-closed, worlds[1].Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-made; !errors.Is(err, dist.ErrClosed) {
		t.Errorf("a heap of a group that is closed: %v, want ErrClosed", err)
	}
	raw, err := os.ReadFile("/proc/self/maps")
	if n := strings.Count(string(raw), "symgrad"); n != 0 || err != nil {
		t.Errorf("%d mappings are left, %v", n, err)
	}
}
