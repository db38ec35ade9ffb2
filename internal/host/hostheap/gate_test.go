package hostheap

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestGateLetsNobodyInOnceItCloses(t *testing.T) {
	g := NewGate()
	for range 2 {
		if !g.Enter() || g.Closed() {
			t.Fatal("an open gate keeps out")
		}
	}
	g.Leave()
	hurried := false
	closes := make(chan bool)
	inside := make(chan struct{})
	go func() {
		closes <- g.Close(func() { hurried = true; close(inside) })
	}()
	<-inside // it has closed and waits for the one inside
	if !g.Closed() || g.Enter() {
		t.Error("a closing gate lets in")
	}
	if g.Close(func() { t.Error("the second to close hurries") }) {
		t.Error("the gate closes twice")
	}
	select {
	case <-closes:
		t.Fatal("it closed with somebody inside")
	default:
	}
	g.Leave()
	if !<-closes || !hurried {
		t.Error("it did not close behind the last")
	}
	if g.Enter() {
		t.Error("a closed gate lets in")
	}
}

func TestEmptyGateClosesAtOnce(t *testing.T) {
	g := NewGate()
	if !g.Close(func() { t.Error("nobody is to be hurried") }) || g.Close(func() {}) || !g.Closed() {
		t.Error("it did not close once")
	}
}

// Every accepted access has left before Close returns, in any interleaving.
func TestGateClosesBehindTheLast(t *testing.T) {
	for range 200 {
		g := NewGate()
		var inside atomic.Int64
		var users sync.WaitGroup
		for range 4 {
			users.Go(func() {
				for g.Enter() {
					inside.Add(1)
					runtime.Gosched()
					inside.Add(-1)
					g.Leave()
				}
			})
		}
		var closers sync.WaitGroup
		var closed atomic.Int64
		for range 2 {
			closers.Go(func() {
				runtime.Gosched()
				if g.Close(func() {}) {
					closed.Add(1)
					if n := inside.Load(); n != 0 {
						t.Errorf("closed with %d inside", n)
					}
				}
			})
		}
		closers.Wait()
		users.Wait()
		if closed.Load() != 1 {
			t.Fatalf("%d have closed it", closed.Load())
		}
	}
}

// Whoever closes a heap may count on its memory being unmapped, and on nobody being inside, also
// when another is closing it.
func TestEveryCloseReturnsBehindTheLastAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, o := newHeap(t)
		if !h.gate.Enter() {
			t.Fatal("an open gate keeps out")
		}
		var closed atomic.Int64
		for range 2 {
			go func() {
				if err := h.Close(); err != nil || !o.unmapped.Load() {
					t.Errorf("closed with %v, unmapped: %v", err, o.unmapped.Load())
				}
				closed.Add(1)
			}()
		}
		synctest.Wait()
		if n := closed.Load(); n != 0 {
			t.Errorf("%d have closed it with somebody inside", n)
		}
		h.gate.Leave()
		synctest.Wait()
		if n := closed.Load(); n != 2 {
			t.Errorf("%d of 2 have closed it", n)
		}
	})
}
