package dl

import (
	"errors"
	"runtime"
	"sync"
	"testing"
)

func TestOnThreadStaysOnOneThread(t *testing.T) {
	gettid := libc(t).Proc("gettid", "glibc 2.30")
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			err := OnThread(func() error {
				first, err := gettid.Call()
				if err != nil {
					return err
				}
				for range 100 {
					runtime.Gosched()
					tid, err := gettid.Call()
					if err != nil {
						return err
					}
					if tid != first {
						t.Errorf("moved from thread %d to %d", first, tid)
					}
				}
				// Leaving a nested call must not release the thread.
				if err := OnThread(func() error { return nil }); err != nil {
					return err
				}
				runtime.Gosched()
				if tid, err := gettid.Call(); err != nil || tid != first {
					t.Errorf("after a nested call: thread %d, %v, want %d", tid, err, first)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestOnThreadReturnsTheError(t *testing.T) {
	want := errors.New("from inside")
	if err := OnThread(func() error { return want }); err != want {
		t.Errorf("got %v, want %v", err, want)
	}
}
