package cuda_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

// begunKernels is one that takes so many nanoseconds and sets word 2; one that waits for word 0, so
// long at most, and notes what it has seen in word 1; and one that sets word 0, and notes in word 3
// what it sees of the first.
const begunKernels = `
typedef unsigned long long u64;

__device__ u64 now() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

extern "C" __global__ void before(volatile u64 *words, u64 time) {
    const u64 begin = now();
    while (now() - begin < time) {}
    words[2] = 1;
}

extern "C" __global__ void waits(volatile u64 *words, u64 patience) {
    const u64 begin = now();
    while (words[0] == 0 && now() - begin < patience) {}
    words[1] = words[0];
}

extern "C" __global__ void tells(volatile u64 *words) {
    words[3] = words[2];
    words[0] = 1;
}
`

// Work that waits for the start of a kernel runs concurrently with it, and not before.
func TestWaitBegunIsForTheBeginningAndNotForTheEnd(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	if v.Driver().Version() < 12030 {
		cudatest.Missing(t, "%v knows no beginnings", v.Driver())
	}
	before, waits, tells := cudatest.Kernel(t, v, begunKernels, "before"), cudatest.Kernel(t, v, begunKernels, "waits"), cudatest.Kernel(t, v, begunKernels, "tells")
	s, side := stream(t, v, 0), stream(t, v, 0)
	fork, join := event(t, v), event(t, v)
	p := alloc(t, v, 32)
	var a, b, c cuda.Args
	a.Ptr(p)
	a.U64(uint64(10 * time.Second)) // of a kernel that nobody tells anything: the test fails then
	b.Ptr(p)
	c.Ptr(p)
	c.U64(uint64(time.Millisecond))
	count := func(want int) {
		t.Helper()
		if n, err := s.Captured(); n != want || err != nil {
			t.Errorf("%d operations captured, %v, want %d", n, err, want)
		}
	}
	begun := func(want bool) {
		t.Helper()
		if ok, err := side.WaitBegun(s); ok != want || err != nil {
			t.Errorf("WaitBegun says %t, %v, want %t", ok, err, want)
		}
	}
	count(0)
	begun(false)
	x := captured(t, s, 4, func() error {
		err := errors.Join(s.Fill(p, 0, 32), s.Record(fork), side.Wait(fork))
		count(1)
		begun(false) // a fill is no kernel
		err = errors.Join(err, before.Launch(s, cuda.Launch{}, &c), waits.Launch(s, cuda.Launch{}, &a))
		count(3)
		begun(true)
		return errors.Join(err, tells.Launch(side, cuda.Launch{}, &b), side.Record(join), s.Wait(join))
	})
	for range 3 {
		must(t, x.Launch(s), s.Synchronize())
		got := read(t, v, p, 32)
		if seen, late := binary.LittleEndian.Uint64(got[8:]), binary.LittleEndian.Uint64(got[24:]); seen != 1 || late != 1 {
			t.Errorf("the kernel that waits saw %d, and what tells it %d of the one before, want 1 and 1", seen, late)
		}
	}
	must(t, s.Close())
	if _, err := s.Captured(); !errors.Is(err, cuda.ErrClosed) {
		t.Errorf("Captured of a stream that is closed: %v", err)
	}
	if _, err := side.WaitBegun(s); !errors.Is(err, cuda.ErrClosed) {
		t.Errorf("WaitBegun of a stream that is closed: %v", err)
	}
}
