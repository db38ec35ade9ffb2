package shm

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

func TestHeapPutAndGetReachThePeer(t *testing.T) {
	onEach(t, 3, Config{}, func(w *dist.World) error {
		h, err := w.Heap(1 << 12)
		if err != nil {
			return err
		}
		r, err := h.Alloc(64)
		if err != nil {
			return err
		}
		next := (w.Rank() + 1) % w.Size()
		if err := errors.Join(r.Put(next, 8, tensor.Of([]int64{int64(w.Rank())})), h.Fence(), h.Quiet(), done(w.Barrier())); err != nil {
			return err
		}
		got := make([]int64, 1)
		if err := r.Get(tensor.Of(got), next, 8); err != nil || got[0] != int64(w.Rank()) {
			return fmt.Errorf("rank %d holds %d, %v; want %d", next, got[0], err, w.Rank())
		}
		peer, err := r.Peer(next)
		if err != nil || peer.Raw()[8] != byte(w.Rank()) {
			return fmt.Errorf("view of rank %d holds %d, %v", next, peer.Raw()[8], err)
		}
		return done(w.Barrier())
	})
}

func TestHeapRefusesWhatIsOutOfBounds(t *testing.T) {
	onEach(t, 2, Config{}, func(w *dist.World) error {
		h, err := w.Heap(1 << 12)
		if err != nil {
			return err
		}
		r, err := h.Alloc(16)
		if err != nil {
			return err
		}
		eight := tensor.Of(make([]byte, 8))
		_, peerErr := r.Peer(2)
		for what, c := range map[string]struct{ got, want error }{
			"peer 2":          {peerErr, dist.ErrRoot},
			"put to -1":       {r.Put(-1, 0, eight), dist.ErrRoot},
			"put behind end":  {r.Put(0, 9, eight), dist.ErrCount},
			"get before":      {r.Get(eight, 0, -1), dist.ErrCount},
			"free of another": {h.Free(nil), symmetric.ErrNotAllocated},
		} {
			if !errors.Is(c.got, c.want) {
				return fmt.Errorf("%s: error %v, want %v", what, c.got, c.want)
			}
		}
		if _, err := h.Alloc(1 << 20); !errors.Is(err, symmetric.ErrNoSpace) || !strings.Contains(err.Error(), "1048576") {
			return fmt.Errorf("alloc of 1 MiB: error %v, want ErrNoSpace with the size", err)
		}
		return nil
	})
}

func TestHeapGivesZeroedMemoryAgainAfterFree(t *testing.T) {
	onEach(t, 2, Config{}, func(w *dist.World) error {
		h, err := w.Heap(1 << 12)
		if err != nil {
			return err
		}
		first, err := h.Alloc(600)
		if err != nil {
			return err
		}
		mem := first.Local().Raw()
		for i := range mem {
			mem[i] = 7
		}
		if s := h.Stats(); s.Used != 1024 || s.Regions != 1 || s.Capacity != 1<<12 {
			return fmt.Errorf("stats %+v", s)
		}
		if err := h.Free(first); err != nil {
			return err
		}
		if want := byte(7); invariants.Enabled == (mem[0] == want) {
			return fmt.Errorf("freed memory holds %#x; invariants are enabled: %v", mem[0], invariants.Enabled)
		}
		if err := h.Free(first); !errors.Is(err, symmetric.ErrNotAllocated) {
			return fmt.Errorf("second free: error %v", err)
		}
		second, err := h.Alloc(600)
		if err != nil {
			return err
		}
		if second.Offset() != first.Offset() {
			return fmt.Errorf("offset %d, then %d", first.Offset(), second.Offset())
		}
		for i, b := range second.Local().Raw() {
			if b != 0 {
				return fmt.Errorf("byte %d is %d", i, b)
			}
		}
		return nil
	})
}

func TestClosedHeapIsAnError(t *testing.T) {
	onEach(t, 2, Config{}, func(w *dist.World) error {
		h, err := w.Heap(1 << 12)
		if err != nil {
			return err
		}
		if err := errors.Join(done(w.Barrier()), h.Close(), h.Close()); err != nil {
			return err
		}
		if _, err := h.Alloc(1); !errors.Is(err, dist.ErrClosed) {
			return fmt.Errorf("alloc: error %v, want ErrClosed", err)
		}
		return nil
	})
}

func TestHeapSizesMustAgree(t *testing.T) {
	for name, launch := range launchers {
		errs, err := launch(3, Config{}, func(w *dist.World) error {
			_, err := w.Heap(int64(4096 * (1 + w.Rank()/2)))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range errs {
			if !errors.Is(err, dist.ErrMismatch) || !strings.Contains(err.Error(), "8192 B") {
				t.Errorf("%s: rank %d: error %v, want ErrMismatch that names 8192 B", name, r, err)
			}
		}
	}
}

// Ranks that allocate in two heaps in another order would have regions at other offsets: all of
// them are told.
func TestHeapsMustAgree(t *testing.T) {
	for name, launch := range launchers {
		errs, err := launch(3, Config{}, func(w *dist.World) error {
			var heaps [2]symmetric.Heap
			for i := range heaps {
				h, err := w.Heap(4096)
				if err != nil {
					return err
				}
				heaps[i] = h
			}
			_, err := heaps[w.Rank()/2].Alloc(512)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range errs {
			if !errors.Is(err, dist.ErrMismatch) || !strings.Contains(err.Error(), "rank 0 has alloc in heap 1, rank 2 in heap 2") {
				t.Errorf("%s: rank %d: error %v, want ErrMismatch that names the heaps", name, r, err)
			}
		}
	}
}

// Sizes that wrap around when they are rounded, or multiplied by the ranks, are refused, and the
// group stays whole.
func TestHeapLargerThanAnyMemoryIsAnErrorOnAllRanks(t *testing.T) {
	for name, launch := range launchers {
		for _, bytes := range []int64{math.MaxInt64, math.MaxInt64 - pageBytes, 1 << 62, 1 << 48} {
			errs, err := launch(4, Config{}, func(w *dist.World) error {
				if h, err := w.Heap(bytes); !errors.Is(err, symmetric.ErrNoSpace) {
					return fmt.Errorf("heap %v of %d B: error %w, want ErrNoSpace", h, bytes, err)
				}
				return done(w.Barrier())
			})
			if err := errors.Join(append(errs, err)...); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A heap that a process could address, and that the machine has no memory for.
func TestHeapWithoutMemoryForItIsTheSameErrorOnAllRanks(t *testing.T) {
	for _, name := range []string{"mapped", "sockets"} {
		errs, err := launchers[name](3, Config{}, func(w *dist.World) error {
			if _, err := w.Heap(1 << 45); !errors.Is(err, symmetric.ErrNoSpace) || !strings.Contains(err.Error(), "105553116278784 B wanted") {
				return fmt.Errorf("error %w, want ErrNoSpace with the size", err)
			}
			return newHeapOf(w)
		})
		if err := errors.Join(append(errs, err)...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFullFileSystemIsTheSameErrorOnAllRanks(t *testing.T) {
	dir := smallTmpfs(t)
	errs, err := launchers["sockets"](3, Config{Dir: dir, ChunkBytes: 1 << 10}, func(w *dist.World) error {
		_, err := w.Heap(8 << 20)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range errs {
		if !errors.Is(err, symmetric.ErrNoSpace) || !strings.Contains(err.Error(), "no room for 25178112 B") || !strings.Contains(err.Error(), "heap of 8388608 B") {
			t.Errorf("rank %d: error %v, want one that names the sizes", r, err)
		}
	}
}
