package nccl

import (
	"testing"
	"testing/synctest"
)

// TestAnAbortIsWaitedForWhereASlabStays closes the engine of a broken group whose heap could not be
// freed. Its member, and with it the communicator, stay until the process ends.
func TestAnAbortIsWaitedForWhereASlabStays(t *testing.T) {
	for _, ending := range []int32{open, aborting} {
		synctest.Test(t, func(t *testing.T) {
			c := &Comm{done: make(chan struct{})}
			c.ending.Store(ending)
			e := &engine{m: &member{lib: new(Library), refs: 2}, comm: c}
			closed := make(chan error, 1)
			go func() { closed <- e.Close() }()
			synctest.Wait()
			if waits := len(closed) == 0; waits != (ending == aborting) {
				t.Errorf("ending %d: Close waits %t", ending, waits)
			}
			close(c.done)
			if err := <-closed; err != nil || e.m.refs != 1 {
				t.Errorf("ending %d: error %v, %d references", ending, err, e.m.refs)
			}
			if err := e.Close(); err != nil || e.m.refs != 1 {
				t.Errorf("ending %d, closed again: error %v, %d references", ending, err, e.m.refs)
			}
		})
	}
}
