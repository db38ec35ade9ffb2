package hostheap

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestGateLetsNobodyInOnceItCloses(t *testing.T) {
	g := newGate()
	for range 2 {
		if !g.enter() || g.closed() {
			t.Fatal("an open gate keeps out")
		}
	}
	g.leave()
	hurried := false
	closes := make(chan bool)
	inside := make(chan struct{})
	go func() {
		closes <- g.close(func() { hurried = true; close(inside) })
	}()
	<-inside // it has closed and waits for the one inside
	if !g.closed() || g.enter() {
		t.Error("a closing gate lets in")
	}
	if g.close(func() { t.Error("the second to close hurries") }) {
		t.Error("the gate closes twice")
	}
	select {
	case <-closes:
		t.Fatal("it closed with somebody inside")
	default:
	}
	g.leave()
	if !<-closes || !hurried {
		t.Error("it did not close behind the last")
	}
	if g.enter() {
		t.Error("a closed gate lets in")
	}
}

func TestEmptyGateClosesAtOnce(t *testing.T) {
	g := newGate()
	if !g.close(func() { t.Error("nobody is to be hurried") }) || g.close(func() {}) || !g.closed() {
		t.Error("it did not close once")
	}
}

// Whoever was let in is out before close returns, whatever the interleaving.
func TestGateClosesBehindTheLast(t *testing.T) {
	for range 200 {
		g := newGate()
		var inside atomic.Int64
		var users sync.WaitGroup
		for range 4 {
			users.Go(func() {
				for g.enter() {
					inside.Add(1)
					runtime.Gosched()
					inside.Add(-1)
					g.leave()
				}
			})
		}
		var closers sync.WaitGroup
		var closed atomic.Int64
		for range 2 {
			closers.Go(func() {
				runtime.Gosched()
				if g.close(func() {}) {
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
