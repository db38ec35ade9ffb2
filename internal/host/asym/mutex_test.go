package asym

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

func TestMutexExcludes(t *testing.T) {
	const goroutines, rounds = 8, 5000
	var m Mutex
	var wg sync.WaitGroup
	in, total := 0, 0
	for range goroutines {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range rounds {
				m.Lock()
				in++
				if in != 1 {
					t.Errorf("%d goroutines hold the lock", in)
				}
				total++
				in--
				m.Unlock()
			}
		}()
	}
	wg.Wait()
	if total != goroutines*rounds {
		t.Errorf("counted to %d of %d", total, goroutines*rounds)
	}
}

// Who waits gets the lock although another goroutine takes it again and again.
func TestMutexIsNotKeptByOne(t *testing.T) {
	var m Mutex
	stop, held := false, make(chan struct{})
	go func() {
		defer close(held)
		for done := false; !done; {
			m.Lock()
			done = stop
			m.Unlock()
		}
	}()
	turns := 0
	for range 100 {
		m.Lock()
		turns++
		stop = turns == 100
		m.Unlock()
	}
	<-held
}

// A holder that keeps the lock for long is waited for.
func TestMutexWaitsForLong(t *testing.T) {
	var m Mutex
	m.Lock()
	began, got := make(chan struct{}), make(chan int)
	x := 1
	go func() {
		close(began)
		m.Lock()
		defer m.Unlock()
		got <- x
	}()
	<-began
	for range 1000 {
		select {
		case <-got:
			t.Fatal("the lock was taken twice")
		default:
		}
	}
	x = 2
	m.Unlock()
	if v := <-got; v != 2 {
		t.Errorf("what the holder wrote is not seen: %d", v)
	}
}

// A long wait does not depend on a clock, which stands still in a bubble while another waiter is in
// the queue.
func TestMutexTakesNoTimeOfABubble(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("here it naps by the clock")
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var m Mutex
		var wg sync.WaitGroup
		m.Lock()
		wg.Go(func() {
			m.Lock()
			defer m.Unlock()
		})
		for m.wanted.Load() == 0 {
			runtime.Gosched()
		}
		for range 10 * yields { // in which it looks as often
			runtime.Gosched()
		}
		m.Unlock()
		wg.Wait()
		if d := time.Since(began); d != 0 {
			t.Errorf("%v have passed", d)
		}
	})
}

func TestClaimChangesNothing(t *testing.T) {
	x := make([]uint64, 64)
	for i := range x {
		x[i] = uint64(i)
	}
	for _, lines := range []int{-1, 0, 1, 7, 8} {
		Claim(unsafe.Pointer(&x[0]), lines)
	}
	Claim(nil, 3) // it is a hint: what is not there is not an error
	for i, v := range x {
		if v != uint64(i) {
			t.Fatalf("element %d is %d", i, v)
		}
	}
}
