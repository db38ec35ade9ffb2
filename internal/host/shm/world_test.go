package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// memStore is a dist.Store for ranks in one process.
type memStore struct {
	mu      sync.Mutex
	values  map[string][]byte
	changed chan struct{}
}

func newMemStore() *memStore {
	return &memStore{values: map[string][]byte{}, changed: make(chan struct{})}
}

func (s *memStore) Set(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[key] = value
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

func (s *memStore) Get(ctx context.Context, key string) ([]byte, error) {
	for {
		s.mu.Lock()
		v, ok := s.values[key]
		changed := s.changed
		s.mu.Unlock()
		if ok {
			return v, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *memStore) Add(_ context.Context, key string, delta int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := append(s.values[key], make([]byte, 8)...)[:8]
	sum := int64(binary.LittleEndian.Uint64(v)) + delta
	s.values[key] = binary.LittleEndian.AppendUint64(nil, uint64(sum))
	return sum, nil
}

// launcher runs body on every rank of a fresh world and returns the errors by rank.
type launcher func(n int, cfg Config, body func(w *dist.World) error) ([]error, error)

func wrap(ts []dist.Transport, body func(w *dist.World) error) []error {
	errs := make([]error, len(ts))
	var wg sync.WaitGroup
	for r, t := range ts {
		wg.Go(func() {
			w, err := dist.NewWorld(t, dist.LocalInfo{Rank: r, Size: len(ts)}, 64, nil)
			if err != nil {
				errs[r] = err
				return
			}
			errs[r] = errors.Join(body(w), w.Close())
		})
	}
	wg.Wait()
	return errs
}

func local(m Memory) launcher {
	return func(n int, cfg Config, body func(w *dist.World) error) ([]error, error) {
		ts, err := Local(n, m, cfg)
		if err != nil {
			return nil, err
		}
		return wrap(ts, body), nil
	}
}

// sockets opens the world as processes do, by cards in a store and unix sockets, with all ranks in
// this process.
func sockets(n int, cfg Config, body func(w *dist.World) error) ([]error, error) {
	store := newMemStore()
	ts, errs := make([]dist.Transport, n), make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() { ts[r], errs[r] = Open(context.Background(), r, n, store, cfg) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return wrap(ts, body), nil
}

var launchers = map[string]launcher{"go memory": local(GoMemory), "mapped": local(Mapped), "sockets": sockets}

func onEach(t *testing.T, n int, cfg Config, body func(w *dist.World) error) {
	t.Helper()
	for name, launch := range launchers {
		t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
			errs, err := launch(n, cfg, body)
			if err := errors.Join(append(errs, err)...); err != nil {
				t.Error(err)
			}
		})
	}
}

func done(w dist.Work, err error) error {
	if err != nil {
		return err
	}
	return w.Wait()
}

func TestAllReduceOnPrivateAndHeapMemory(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7} {
		onEach(t, n, Config{ChunkBytes: 1 << 10}, func(w *dist.World) error {
			h, err := w.Heap(1 << 16)
			if err != nil {
				return err
			}
			for _, count := range []int{0, 1, 13, 1000, 3001} {
				r, err := h.Alloc(int64(4 * max(count, 1)))
				if err != nil {
					return err
				}
				raw, _ := tensor.FromPointer(r.Local().Pointer(), count, tensor.F32, tensor.Host)
				heap, _ := tensor.Data[float32](raw)
				private := make([]float32, count)
				mixed, mixedBuf := heap, raw
				if w.Rank()%2 == 1 {
					mixed, mixedBuf = private, tensor.Of(private)
				}
				for _, c := range []struct {
					what string
					data []float32
					buf  tensor.Buffer
				}{{"private", private, tensor.Of(private)}, {"heap", heap, raw}, {"mixed", mixed, mixedBuf}} {
					for i := range c.data {
						c.data[i] = float32(w.Rank()*1000 + i)
					}
					if err := done(w.AllReduce(c.buf, c.buf, dist.Sum)); err != nil {
						return err
					}
					for i, v := range c.data {
						if want := float32(n*i + 1000*n*(n-1)/2); v != want {
							return fmt.Errorf("%s[%d] of %d is %v, want %v", c.what, i, count, v, want)
						}
					}
				}
				if err := h.Free(r); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// Keys may be any number: their differences do not fit an int.
func TestSplitOrdersKeysThatAreFarApart(t *testing.T) {
	onEach(t, 3, Config{}, func(w *dist.World) error {
		g, err := w.Split(0, []int{math.MaxInt, 0, math.MinInt}[w.Rank()])
		if err != nil {
			return err
		}
		if got := g.Ranks(); !slices.Equal(got, []int{2, 1, 0}) {
			return fmt.Errorf("world ranks %v in the order of their keys, want 2, 1, 0", got)
		}
		return nil
	})
}

func TestRanksLeaveNothingBehind(t *testing.T) {
	fds := func() int {
		d, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(d)
	}
	maps := func() int {
		raw, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(raw), "symgrad")
	}
	cycle := func() {
		errs, err := sockets(2, Config{ChunkBytes: 1 << 10}, func(w *dist.World) error {
			h, err := w.Heap(4096)
			if err != nil {
				return err
			}
			if _, err := h.Alloc(100); err != nil {
				return err
			}
			g, err := w.Split(0, -w.Rank())
			if err != nil {
				return err
			}
			return done(g.Barrier())
		})
		if err := errors.Join(append(errs, err)...); err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	runtime.GC()
	fds0, goroutines0 := fds(), runtime.NumGoroutine()
	for range 1000 {
		cycle()
	}
	if n := fds(); n > fds0 {
		t.Errorf("%d file descriptors, %d before", n, fds0)
	}
	if n := maps(); n != 0 {
		t.Errorf("%d mappings are left", n)
	}
	// One that has told its owner that it ends may still be counted for a moment.
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines0)
		}
	}
}

func TestOpenTimesOutNamingWhoIsMissing(t *testing.T) {
	store := newMemStore()
	_, err := Open(context.Background(), 0, 2, store, Config{InitTimeout: 50 * time.Millisecond})
	if !errors.Is(err, dist.ErrTimeout) || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("error %v, want ErrTimeout that names rank 1", err)
	}
}

func TestOpenRefusesAnotherHost(t *testing.T) {
	store := newMemStore()
	_ = store.Set(context.Background(), "shm/1/card/1", []byte(`{"Host":"elsewhere"}`))
	_, err := Open(context.Background(), 0, 2, store, Config{InitTimeout: time.Minute})
	if !errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("error %v, want ErrUnsupported that names rank 1", err)
	}
}

func TestOpenRefusesWrongRank(t *testing.T) {
	for _, c := range [][2]int{{-1, 2}, {2, 2}, {0, 0}} {
		if _, err := Open(context.Background(), c[0], c[1], newMemStore(), Config{}); !errors.Is(err, dist.ErrRoot) {
			t.Errorf("rank %d of %d: error %v, want ErrRoot", c[0], c[1], err)
		}
	}
}
