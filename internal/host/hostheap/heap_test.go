package hostheap

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// host is a backend of one rank whose peers do nothing. It records its calls.
type host struct {
	arena    *symmetric.Arena
	calls    []string // collective ones
	rings    []string
	err      error // of Alloc and Free
	broken   atomic.Pointer[error]
	unmapped atomic.Bool

	mu      sync.Mutex
	changed sync.Cond
	rung    int
	asleep  chan struct{} // gets one when a wait goes to sleep
}

func (o *host) Alloc(alignment, bytes int64) (int64, error) {
	o.calls = append(o.calls, fmt.Sprintf("alloc %d %d", alignment, bytes))
	if o.err != nil {
		return 0, o.err
	}
	if err := CheckSize(alignment, bytes); err != nil {
		return 0, err
	}
	return o.arena.Aligned(alignment, bytes)
}

func (o *host) Free(off, n int64) error {
	o.calls = append(o.calls, fmt.Sprintf("free %d %d", off, n))
	if o.err != nil {
		return o.err
	}
	return o.arena.Free(off)
}

func (o *host) Stats() symmetric.Stats { return o.arena.Stats() }

func (o *host) Alive() error {
	if err := o.broken.Load(); err != nil {
		return *err
	}
	return nil
}

func (o *host) Ring(rank int, off, n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rings = append(o.rings, fmt.Sprintf("%d: %d+%d", rank, off, n))
	o.rung++
	o.changed.Broadcast()
}

func (o *host) Await(ctx context.Context, _, _ int64, done, leave func() bool) error {
	defer context.AfterFunc(ctx, func() { o.Ring(-1, 0, 0) })()
	o.mu.Lock()
	defer o.mu.Unlock()
	for !done() && !leave() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := o.Alive(); err != nil {
			return err
		}
		select {
		case o.asleep <- struct{}{}:
		default:
		}
		o.changed.Wait()
	}
	return nil
}

func (o *host) Unmap() error {
	o.unmapped.Store(true)
	return nil
}

const partBytes = 4096

// newHeap is rank 1's end of a heap of 3 ranks.
func newHeap(t *testing.T) (*Heap, *host) {
	t.Helper()
	arena, err := symmetric.NewArena(partBytes)
	if err != nil {
		t.Fatal(err)
	}
	o := &host{arena: arena, asleep: make(chan struct{}, 1)}
	o.changed.L = &o.mu
	parts := make([][]byte, 3)
	for r := range parts {
		words := make([]uint64, partBytes/8)
		parts[r] = unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), partBytes)
	}
	return New(o, Config{Rank: 1, Parts: parts, Spins: 3}), o
}

func alloc(t *testing.T, h *Heap, bytes int64) symmetric.Region {
	t.Helper()
	r, err := h.Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Wrong sizes reach the host as they are, so that ranks which differ notice it.
func TestAllocsAskTheHost(t *testing.T) {
	const huge = math.MaxInt64
	for _, c := range []struct {
		call string
		do   func(h *Heap) error
		want error
	}{
		{"alloc 512 100", func(h *Heap) error { _, err := h.Alloc(100); return err }, nil},
		{"alloc 512 -1", func(h *Heap) error { _, err := h.Alloc(-1); return err }, dist.ErrCount},
		{"alloc 512 5000", func(h *Heap) error { _, err := h.Alloc(5000); return err }, symmetric.ErrNoSpace},
		{"alloc 512 96", func(h *Heap) error { _, err := h.Calloc(12, 8); return err }, nil},
		{"alloc 512 0", func(h *Heap) error { _, err := h.Calloc(huge, 0); return err }, nil},
		{"alloc 512 -1", func(h *Heap) error { _, err := h.Calloc(-3, -3); return err }, dist.ErrCount},
		{"alloc 512 9223372036854775807", func(h *Heap) error { _, err := h.Calloc(huge/2, 3); return err }, symmetric.ErrNoSpace},
		{"alloc 512 9223372036854775807", func(h *Heap) error { _, err := h.Calloc(1<<32, 1<<32); return err }, symmetric.ErrNoSpace},
		{"alloc 2048 8", func(h *Heap) error { _, err := h.Aligned(2048, 8); return err }, nil},
		{"alloc 12 8", func(h *Heap) error { _, err := h.Aligned(12, 8); return err }, symmetric.ErrAlignment},
		{"alloc 8192 8", func(h *Heap) error { _, err := h.Aligned(8192, 8); return err }, symmetric.ErrAlignment},
	} {
		h, o := newHeap(t)
		err := c.do(h)
		if !errors.Is(err, c.want) || !slices.Equal(o.calls, []string{c.call}) {
			t.Errorf("%q, error %v; want %q, %v", o.calls, err, c.call, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "rank 1/3") {
			t.Errorf("error %q does not tell the rank", err)
		}
	}
}

func TestFreeIsOnceAndOfTheWhole(t *testing.T) {
	h, o := newHeap(t)
	other, _ := newHeap(t)
	r := alloc(t, h, 100)
	part, err := r.Slice(0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var nobody *Region
	for what, wrong := range map[string]symmetric.Region{
		"nil": nil, "a nil region": nobody, "another heap's": alloc(t, other, 100), "a slice": part,
	} {
		if err := h.Free(wrong); !errors.Is(err, symmetric.ErrNotAllocated) {
			t.Errorf("free of %s: %v", what, err)
		}
	}
	o.err = errors.New("ranks disagree")
	if err := h.Free(r); !errors.Is(err, o.err) {
		t.Errorf("refused free: %v", err)
	}
	o.err = nil
	if err := symmetric.P(r, 0, 0, uint8(1)); err != nil {
		t.Errorf("after a refused free: %v", err)
	}
	o.calls = nil
	if err := h.Free(r); err != nil || !slices.Equal(o.calls, []string{"free 0 100"}) {
		t.Errorf("%q, %v", o.calls, err)
	}
	if err := h.Free(r); !errors.Is(err, symmetric.ErrNotAllocated) || len(o.calls) != 1 {
		t.Errorf("second free: %q, %v", o.calls, err)
	}
	again := alloc(t, h, 50) // at the same place; the old region must not free it
	if err := h.Free(r); !errors.Is(err, symmetric.ErrNotAllocated) || h.Stats().Regions != 1 {
		t.Errorf("free of an old region where a new one is: %v, %+v", err, h.Stats())
	}
	if err := symmetric.P(again, 2, 0, uint8(1)); err != nil {
		t.Error(err)
	}
	for _, stale := range []symmetric.Region{r, part} {
		if _, err := stale.Slice(0, 1); !errors.Is(err, symmetric.ErrNotAllocated) || stale.Local().Bytes() != 0 {
			t.Errorf("slice of what is freed: %v; %d B of it are left", err, stale.Local().Bytes())
		}
	}
}

// Every call that writes rings for the bytes it wrote, and no other does.
func TestWritersRing(t *testing.T) {
	h, o := newHeap(t)
	alloc(t, h, 100)
	r := alloc(t, h, 100) // at 512
	b := tensor.Of(make([]uint16, 3))
	sig := symmetric.Signal{In: r, At: 40, Op: symmetric.SignalAdd, Value: 1}
	for _, c := range []struct {
		what string
		do   func() error
		want []string
	}{
		{"put", func() error { return r.Put(2, 3, b) }, []string{"2: 515+6"}},
		{"empty put", func() error { return r.Put(2, 3, tensor.Of([]uint16{})) }, nil},
		{"put nbi", func() error { return r.PutNBI(0, 94, b) }, []string{"0: 606+6"}},
		{"get", func() error { return r.Get(b, 2, 3) }, nil},
		{"iput", func() error {
			return r.IPut(2, 4, b, symmetric.Strides{Count: 2, Region: 5, Buffer: 2})
		}, []string{"2: 516+12"}},
		{"iget", func() error { return r.IGet(b, 2, 4, symmetric.Strides{Count: 2, Region: 5, Buffer: 2}) }, nil},
		{"p", func() error { return symmetric.P(r, 1, 7, float32(1)) }, []string{"1: 519+4"}},
		{"g", func() error { _, err := symmetric.G[float32](r, 1, 7); return err }, nil},
		{"put-signal", func() error { return r.PutSignal(2, 0, b, sig) }, []string{"2: 552+8"}},
		{"signal", func() error { return r.Signal(0, 48, symmetric.SignalSet, 5) }, []string{"0: 560+8"}},
		{"add", func() error { return symmetric.Add(r, 0, 4, int32(1)) }, []string{"0: 516+4"}},
		{"fetch", func() error { _, err := symmetric.AtomicFetch[int32](r, 0, 4); return err }, nil},
		{"test", func() error { _, err := symmetric.TestAny(r, 0, 4, symmetric.Ge, uint64(0)); return err }, nil},
	} {
		o.rings = nil
		if err := c.do(); err != nil || !slices.Equal(o.rings, c.want) {
			t.Errorf("%s: rings %q, %v; want %q", c.what, o.rings, err, c.want)
		}
	}
}

// In a broken group every call is the group's error and writes nothing.
func TestBrokenGroupRefusesEveryCall(t *testing.T) {
	h, o := newHeap(t)
	r := alloc(t, h, 64)
	dead := error(&dist.RankError{Rank: 2, How: "killed"})
	o.broken.Store(&dead)
	b := tensor.Of([]uint64{1})
	one := symmetric.Strides{Count: 1, Region: 1, Buffer: 1}
	_, atomicErr := symmetric.FetchInc[uint64](r, 0, 0)
	_, getErr := symmetric.G[uint64](r, 0, 0)
	_, testErr := symmetric.Test(r, 0, symmetric.Eq, int32(0))
	_, waitErr := symmetric.WaitUntil(context.Background(), r, 0, symmetric.Ne, int32(0))
	_, peerErr := r.Peer(0)
	for what, err := range map[string]error{
		"put": r.Put(0, 0, b), "get": r.Get(b, 0, 0), "iput": r.IPut(0, 0, b, one), "iget": r.IGet(b, 0, 0, one),
		"p": symmetric.P(r, 0, 0, 1.0), "g": getErr, "atomic": atomicErr, "test": testErr, "wait": waitErr, "peer": peerErr,
		"signal":     r.Signal(0, 0, symmetric.SignalSet, 1),
		"put-signal": r.PutSignal(0, 8, b, symmetric.Signal{In: r, Op: symmetric.SignalSet, Value: 1}),
		"fence":      h.Fence(), "quiet": h.Quiet(),
	} {
		var rank *dist.RankError
		if !errors.Is(err, dist.ErrAborted) || !errors.As(err, &rank) || rank.Rank != 2 {
			t.Errorf("%s: error %v, want the death of rank 2", what, err)
		}
	}
	if i := slices.IndexFunc(h.parts[0], func(v byte) bool { return v != 0 }); i >= 0 {
		t.Errorf("byte %d was written", i)
	}
}
