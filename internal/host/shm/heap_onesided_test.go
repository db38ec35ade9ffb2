package shm

import (
	"context"
	"errors"
	"flag"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
	"golang.org/x/sys/unix"
)

// The minute of random calls:
//
//	go test ./internal/host/shm -run Random -v -random 1m
var randomFor = flag.Duration("random", 0, "how long random calls go on, on each kind of memory; 0 means a few thousand calls")

// init makes processes that are killed while they wait for signals.
func init() {
	roles["wait for a signal"] = func(w *dist.World) error {
		h, err := w.Heap(symmetric.Alignment)
		if err != nil {
			return err
		}
		r, err := h.Alloc(8)
		if err != nil {
			return err
		}
		turn := uint64(0)
		return forever(func() error {
			turn++
			if err := r.Signal((w.Rank()+1)%w.Size(), 0, symmetric.SignalAdd, 1); err != nil {
				return err
			}
			_, err := symmetric.SignalWait(context.Background(), r, 0, symmetric.Ge, turn)
			return err
		})
	}
}

func TestOneSidedCallsOnGoMemory(t *testing.T) {
	conformance.RunOneSided(t, suiteOn(local(GoMemory)))
}

func TestOneSidedCallsOnMappings(t *testing.T) {
	needsMappedMemory(t)
	conformance.RunOneSided(t, suiteOn(local(Mapped)))
}

func TestRandomCalls(t *testing.T) {
	for name, world := range launchers {
		if name == "sockets" || name == "mapped" && raceEnabled {
			continue // the same memory as mapped; no memory that the detector sees
		}
		t.Run(name, func(t *testing.T) {
			suiteOn(world)(t, 3, conformance.LaunchOptions{}, func(w *dist.World) error {
				calls, refused, err := conformance.Random{Seed: 7, Steps: 4000, For: *randomFor, Turns: raceEnabled}.Run(w)
				if refused == 0 || refused == calls {
					err = errors.Join(err, errors.New("random calls are all right or all wrong"))
				}
				t.Logf("rank %d: %d calls, %d refused", w.Rank(), calls, refused)
				return err
			})
		})
	}
}

// A wait does not burn its core: it spins for less than a millisecond and then sleeps.
func TestWaitSleeps(t *testing.T) {
	const waited = 300 * time.Millisecond
	errs, err := launchers["go memory"](1, Config{StepTimeout: waited}, func(w *dist.World) error {
		h, err := w.Heap(symmetric.Alignment)
		if err != nil {
			return err
		}
		r, err := h.Alloc(8)
		if err != nil {
			return err
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		before := threadTime(t)
		_, err = symmetric.SignalWait(context.Background(), r, 0, symmetric.Ne, 0)
		if used := threadTime(t) - before; used > waited/10 {
			t.Errorf("a wait of %v used the core for %v", waited, used)
		}
		if !errors.Is(err, dist.ErrTimeout) {
			return err
		}
		return nil
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Error(err)
	}
}

// threadTime is what this thread has used of a core.
func threadTime(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Error(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Close waits for the accesses that run and refuses the later ones; none of them meets memory that
// is unmapped.
func TestCloseComesBehindAccesses(t *testing.T) {
	errs, err := launchers["mapped"](2, Config{}, func(w *dist.World) error {
		for range 20 {
			h, err := w.Heap(1 << 16)
			if err != nil {
				return err
			}
			r, err := h.Alloc(1 << 16)
			if err != nil {
				return err
			}
			var users sync.WaitGroup
			ended := make([]error, 3)
			src := tensor.Of(make([]byte, 1<<16))
			for i := range ended {
				users.Go(func() {
					for ended[i] == nil {
						ended[i] = errors.Join(r.Put(w.Rank(), 0, src), r.Signal(w.Rank(), 8, symmetric.SignalAdd, 1))
					}
				})
			}
			err = errors.Join(done(w.Barrier()), h.Close())
			users.Wait()
			for _, e := range ended {
				if !errors.Is(e, dist.ErrClosed) {
					err = errors.Join(err, e)
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Error(err)
	}
}
