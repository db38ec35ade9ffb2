package hostheap

import (
	"math"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
	"pgregory.net/rapid"
)

func TestExtentOfStridedElements(t *testing.T) {
	for _, c := range []struct {
		count, stride, size int
		want                int64
		ok                  bool
	}{
		{0, 1, 8, 0, true},
		{0, math.MaxInt, 8, 0, true},
		{1, 1, 4, 4, true},
		{1, math.MaxInt, 8, 8, true},
		{3, 1, 2, 6, true},
		{3, 5, 2, 22, true},
		{math.MaxInt, 1, 1, math.MaxInt64, true},
		{math.MaxInt, 1, 2, 0, false},
		{math.MaxInt, math.MaxInt, 8, 0, false},
		{2, math.MaxInt, 1, 0, false},
		{2, math.MaxInt - 1, 1, math.MaxInt64, true},
		{-1, 1, 8, 0, false},
		{1, 0, 8, 0, false},
		{1, -1, 8, 0, false},
	} {
		got, ok := extent(c.count, c.stride, c.size)
		if got != c.want || ok != c.ok {
			t.Errorf("%d elements of %d B, stride %d: %d, %v; want %d, %v", c.count, c.size, c.stride, got, ok, c.want, c.ok)
		}
	}
}

// A strided transfer there and back equals two loops over the elements, at any offset.
func TestStridedTransfersAreLoops(t *testing.T) {
	h, _ := newHeap(t)
	r := alloc(t, h, 1024)
	types := tensor.DTypes()
	rapid.Check(t, func(t *rapid.T) {
		dt := rapid.SampledFrom(types).Draw(t, "type")
		size := dt.Size()
		s := symmetric.Strides{
			Count:  rapid.IntRange(0, 10).Draw(t, "count"),
			Region: rapid.IntRange(1, 5).Draw(t, "region stride"),
			Buffer: rapid.IntRange(1, 5).Draw(t, "buffer stride"),
		}
		at := rapid.IntRange(0, 20).Draw(t, "at")
		words := make([]uint64, 50)
		for i := range words {
			words[i] = uint64(i+1) * 0x9e3779b97f4a7c15
		}
		src, err := tensor.FromPointer(unsafe.Pointer(&words[0]), 50, dt, tensor.Host)
		if err != nil {
			t.Fatal(err)
		}
		part := h.parts[2][r.Offset():][:1024]
		for i := range part {
			part[i] = byte(i)
		}
		want := slices.Clone(part)
		for i := range s.Count {
			copy(want[at+i*s.Region*size:][:size], src.Raw()[i*s.Buffer*size:])
		}
		if err := r.IPut(2, int64(at), src, s); err != nil || !slices.Equal(part, want) {
			t.Fatalf("iput of %v at %d, %+v: %v\n got % x\nwant % x", dt, at, s, err, part, want)
		}
		back := make([]uint64, 50)
		dst, err := tensor.FromPointer(unsafe.Pointer(&back[0]), 50, dt, tensor.Host)
		if err != nil {
			t.Fatal(err)
		}
		wantBack := make([]byte, dst.Bytes())
		for i := range s.Count {
			copy(wantBack[i*s.Buffer*size:][:size], src.Raw()[i*s.Buffer*size:])
		}
		if err := r.IGet(dst, 2, int64(at), s); err != nil || !slices.Equal(dst.Raw(), wantBack) {
			t.Fatalf("iget of %v at %d, %+v: %v\n got % x\nwant % x", dt, at, s, err, dst.Raw(), wantBack)
		}
	})
}

// Scalars are stored at the same place as by a copy, at any alignment, and nowhere else.
func TestScalarsAtEveryOffset(t *testing.T) {
	h, _ := newHeap(t)
	r := alloc(t, h, 64)
	part := h.parts[0][:64]
	for at := range int64(56) {
		scalarAt(t, r, part, at, uint8(0xa1))
		scalarAt(t, r, part, at, int16(-0x5432))
		scalarAt(t, r, part, at, float32(-1.5))
		scalarAt(t, r, part, at, uint64(0x8877665544332211))
	}
}

func scalarAt[T tensor.Element](t *testing.T, r symmetric.Region, part []byte, at int64, v T) {
	t.Helper()
	clear(part)
	want := make([]byte, len(part))
	copy(want[at:], tensor.Of([]T{v}).Raw())
	if err := symmetric.P(r, 0, at, v); err != nil || !slices.Equal(part, want) {
		t.Errorf("p of %v at %d: %v, % x", v, at, err, part)
	}
	if got, err := symmetric.G[T](r, 0, at); err != nil || got != v {
		t.Errorf("g of %v at %d: %v, %v", v, at, got, err)
	}
	clear(part)
	one := tensor.Of([]T{v})
	if err := r.Put(0, at, one); err != nil || !slices.Equal(part, want) {
		t.Errorf("put of %v at %d: %v, % x", v, at, err, part)
	}
	got := make([]T, 1)
	if err := r.Get(tensor.Of(got), 0, at); err != nil || got[0] != v {
		t.Errorf("get of %v at %d: %v, %v", v, at, got[0], err)
	}
}

// Goroutines of one rank may use a region at once: loops of exchanges lose no update either.
func TestExchangesLoseNothing(t *testing.T) {
	h, _ := newHeap(t)
	r := alloc(t, h, 64)
	const users, each = 4, 2000
	var all sync.WaitGroup
	for u := range users {
		all.Go(func() {
			bit := uint32(1) << u
			for range each {
				if err := symmetric.Xor(r, 2, 0, bit); err != nil {
					t.Error(err)
					return
				}
				if err := symmetric.Xor(r, 2, 8, uint64(bit)<<32); err != nil {
					t.Error(err)
					return
				}
				for {
					old, err := symmetric.AtomicFetch[int64](r, 2, 16)
					if err != nil {
						t.Error(err)
						return
					}
					held, err := symmetric.CompareSwap(r, 2, 16, old, old-1)
					if err != nil {
						t.Error(err)
						return
					}
					if held == old {
						break
					}
				}
			}
			if err := symmetric.Xor(r, 2, 0, bit); err != nil { // an odd number in all
				t.Error(err)
			}
		})
	}
	all.Wait()
	flags, err := symmetric.G[uint32](r, 2, 0)
	if err != nil || flags != 1<<users-1 {
		t.Errorf("32 bits: %#x, %v", flags, err)
	}
	if wide, err := symmetric.G[uint64](r, 2, 8); err != nil || wide != 0 {
		t.Errorf("64 bits: %#x, %v", wide, err)
	}
	if count, err := symmetric.G[int64](r, 2, 16); err != nil || count != -users*each {
		t.Errorf("count: %d, %v", count, err)
	}
}

func BenchmarkAccess(b *testing.B) {
	arena, err := symmetric.NewArena(partBytes)
	if err != nil {
		b.Fatal(err)
	}
	o := quietHost{host{arena: arena}}
	h := New(&o, Config{Rank: 0, Parts: [][]byte{make([]byte, partBytes), make([]byte, partBytes)}})
	r, err := h.Alloc(1024)
	if err != nil {
		b.Fatal(err)
	}
	word, line := tensor.Of([]uint64{1}), tensor.Of(make([]uint64, 8))
	signal := symmetric.Signal{In: r, At: 512, Op: symmetric.SignalAdd, Value: 1}
	for name, do := range map[string]func() error{
		"put 8":         func() error { return r.Put(1, 0, word) },
		"put 64":        func() error { return r.Put(1, 0, line) },
		"p":             func() error { return symmetric.P(r, 1, 0, uint64(1)) },
		"add":           func() error { return symmetric.Add(r, 1, 0, uint64(1)) },
		"put-signal 64": func() error { return r.PutSignal(1, 0, line, signal) },
		"test":          func() error { _, err := symmetric.Test(r, 0, symmetric.Eq, uint64(1)); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// quietHost notes nothing.
type quietHost struct{ host }

func (*quietHost) Ring(int, int64, int64) {}
