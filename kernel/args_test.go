package kernel

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// heap is a world of one rank with a heap, on the host: its regions have addresses like any other.
func heap(t *testing.T) (*dist.World, symmetric.Heap) {
	t.Helper()
	worlds, err := sim.New(1, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := worlds[0].Close(); err != nil {
			t.Error(err)
		}
	})
	h, err := worlds[0].Heap(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	return worlds[0], h
}

func region(t *testing.T, h symmetric.Heap, bytes int64) symmetric.Region {
	t.Helper()
	r, err := h.Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func addressOf(b tensor.Buffer) uint64 { return uint64(uintptr(b.Pointer())) }

func TestArgumentsArePassedByTheirBits(t *testing.T) {
	_, h := heap(t)
	r := region(t, h, 64)
	words := tensor.Of(make([]float32, 4))
	for _, test := range []struct {
		arg  any
		want value
	}{
		{nil, value{0, 8}},
		{true, value{1, 1}},
		{false, value{0, 1}},
		{int8(-1), value{0xff, 1}},
		{uint8(200), value{200, 1}},
		{int16(-2), value{0xfffe, 2}},
		{uint16(65535), value{0xffff, 2}},
		{tensor.ToFloat16(1), value{0x3c00, 2}},
		{tensor.ToBFloat16(1), value{0x3f80, 2}},
		{int32(-1), value{0xffffffff, 4}},
		{uint32(math.MaxUint32), value{0xffffffff, 4}},
		{float32(-0.5), value{0xbf000000, 4}},
		{int64(-1), value{math.MaxUint64, 8}},
		{uint64(1) << 63, value{1 << 63, 8}},
		{0.5, value{0x3fe0000000000000, 8}},
		{uintptr(0x7f00_0000_1000), value{0x7f00_0000_1000, 8}},
		{tensor.Buffer{}, value{0, 8}},
		{words, value{addressOf(words), 8}},
		{r, value{addressOf(r.Local()), 8}},
	} {
		if got, err := valueOf(test.arg, tensor.Host); err != nil || got != test.want {
			t.Errorf("%T %v: %#v, %v; want %#v", test.arg, test.arg, got, err, test.want)
		}
	}
}

func TestArgumentsThatNoKernelTakes(t *testing.T) {
	_, h := heap(t)
	freed := region(t, h, 64)
	if err := h.Free(freed); err != nil {
		t.Fatal(err)
	}
	live := region(t, h, 64)
	for _, test := range []struct {
		name string
		arg  any
		on   tensor.Device
		is   error
		want string
	}{
		{"an int", 1, tensor.CUDA(0), dist.ErrInvalid, "C has no type like Go's int: use int32 or int64"},
		{"a uint", uint(1), tensor.CUDA(0), dist.ErrInvalid, "like Go's uint"},
		{"a string", "x", tensor.CUDA(0), dist.ErrInvalid, "a kernel cannot take a string"},
		{"a slice", []float32{1}, tensor.CUDA(0), dist.ErrInvalid, "a kernel cannot take a []float32"},
		{"a pointer", new(int32), tensor.CUDA(0), dist.ErrInvalid, "a kernel cannot take a *int32"},
		{"memory of the host", tensor.Of([]float32{1}), tensor.CUDA(1), dist.ErrDevice, "the kernel runs on cuda:1: copy it there"},
		{"a region of the host", live, tensor.CUDA(1), dist.ErrDevice, "the kernel runs on cuda:1"},
		{"a freed region", freed, tensor.Host, symmetric.ErrNotAllocated, "region: not allocated"},
		{"no table", (*Table)(nil), tensor.CUDA(0), dist.ErrInvalid, "no table of peers"},
		{"a closed table", &Table{}, tensor.CUDA(0), dist.ErrClosed, "peers: group closed"},
	} {
		_, err := valueOf(test.arg, test.on)
		if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.name, err, test.want)
		}
	}
}

// values converts arguments as Launch does.
func values(on tensor.Device, args ...any) (sum uint64, err error) {
	for _, a := range args {
		v, err := valueOf(a, on)
		if err != nil {
			return 0, err
		}
		sum += v.bits
	}
	return sum, nil
}

func TestArgumentsStayOnTheStack(t *testing.T) {
	_, h := heap(t)
	r := region(t, h, 64)
	b := r.Local()
	n, x := int32(12345), 1.5
	var failed error
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := values(tensor.Host, r, b, n, uint64(n)<<20, x, float32(x), int64(n)); err != nil {
			failed = err
		}
		n++
	})
	if failed != nil || allocs != 0 {
		t.Errorf("%v allocations a call, error %v", allocs, failed)
	}
}

func TestPeersOfARegionAreItsPartsByRank(t *testing.T) {
	const size = 3
	worlds, err := sim.New(size, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, size)
	for _, w := range worlds {
		go func() { done <- checkAddresses(w) }()
	}
	for range worlds {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func checkAddresses(w *dist.World) (err error) {
	defer func() { err = errors.Join(err, w.Close()) }()
	h, err := w.Heap(1 << 12)
	if err != nil {
		return err
	}
	r, err := h.Alloc(100)
	if err != nil {
		return err
	}
	all, err := addressesOf(r, w.Rank(), w.Size(), tensor.Host)
	if err != nil {
		return err
	}
	for rank, at := range all {
		part, err := r.Peer(rank)
		if err != nil {
			return err
		}
		if at != addressOf(part) {
			return errors.New("an address is not that of the peer's part")
		}
	}
	if all[w.Rank()] != addressOf(r.Local()) {
		return errors.New("the own part is not among the addresses")
	}
	if _, err := addressesOf(r, w.Rank(), w.Size(), tensor.CUDA(0)); !errors.Is(err, dist.ErrDevice) {
		return errors.Join(errors.New("a region of the host is taken for one of a GPU"), err)
	}
	if _, err := addressesOf(nil, w.Rank(), w.Size(), tensor.Host); !errors.Is(err, symmetric.ErrNotAllocated) {
		return errors.Join(errors.New("no region is taken for one"), err)
	}
	// The parts of the ranks of another group would be those of other ranks: one of fewer, and one
	// that counts otherwise.
	var taken error
	for _, other := range [][2]int{{0, 1}, {w.Rank() % 2, 2}, {(w.Rank() + 1) % w.Size(), w.Size()}} {
		if _, err := addressesOf(r, other[0], other[1], tensor.Host); !errors.Is(err, dist.ErrInvalid) {
			taken = errors.Join(taken, fmt.Errorf("rank %d of %d is taken for rank %d of %d: error %v", w.Rank(), w.Size(), other[0], other[1], err))
		}
	}
	defer func() { err = errors.Join(taken, err) }()
	work, err := w.Barrier()
	if err == nil {
		err = work.Wait()
	}
	if err == nil {
		err = h.Free(r)
	}
	if err != nil {
		return err
	}
	if _, err := addressesOf(r, w.Rank(), w.Size(), tensor.Host); !errors.Is(err, symmetric.ErrNotAllocated) {
		return errors.Join(errors.New("a freed region has addresses"), err)
	}
	return nil
}

// An interface is two words, as unkept takes it to be.
func TestUnkeptIsTheSameRegion(t *testing.T) {
	_, h := heap(t)
	r := region(t, h, 64)
	if unsafe.Sizeof(r) != 2*unsafe.Sizeof(uintptr(0)) || unkept(r) != r {
		t.Error("another region")
	}
}
