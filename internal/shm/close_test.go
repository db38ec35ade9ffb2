package shm

import (
	"errors"
	"runtime"
	"testing"

	"github.com/symgrad/symgrad/dist"
)

// A Split or Heap uses the control segment until it returns, so that an end closed meanwhile unmaps it later.
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
	queued := func(n uint64) {
		for {
			at(0).mu.Lock()
			next := at(0).next
			at(0).mu.Unlock()
			if next == n {
				return
			}
			runtime.Gosched()
		}
	}
	queued(1)
	go func() { closed <- ends[0].Close() }()
	queued(2)
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
