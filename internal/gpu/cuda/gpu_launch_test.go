package cuda_test

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

// early lets the next one begin at once, lasts, and then does what has an effect only in order: x
// becomes 3x + by.
const earlyKernel = `
extern "C" __global__ void early(unsigned long long *x, unsigned by) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    unsigned long long v = *(volatile unsigned long long *)x, begin = clock64();
    while (clock64() - begin < 2000) {}
    if (threadIdx.x == 0 && blockIdx.x == 0) *x = 3 * v + by;
}
`

// inOrder returns the result of n launches on 0, with by from 1 upwards.
func inOrder(n int) (x uint64) {
	for i := range n {
		x = 3*x + uint64(i+1)
	}
	return x
}

func TestKernelsThatBeginEarlyKeepTheirOrder(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	f := cudatest.Kernel(t, v, earlyKernel, "early")
	s := stream(t, v, 0)
	p := alloc(t, v, 16)
	const n = 30
	queue := func() error {
		var errs []error
		for i := range n {
			var a cuda.Args
			a.Ptr(p)
			a.U32(uint32(i + 1))
			errs = append(errs, f.Launch(s, cuda.Launch{Block: [3]uint32{32}, Early: true}, &a))
		}
		return errors.Join(append(errs, s.Copy(p+8, p, 8))...)
	}
	must(t, v.Fill(p, 0, 16), queue(), s.Synchronize())
	for what, at := range map[string]uintptr{"them": p, "a copy behind them": p + 8} {
		if got := binary.LittleEndian.Uint64(read(t, v, at, 8)); got != inOrder(n) {
			t.Errorf("%s: %d, want %d", what, got, inOrder(n))
		}
	}
	x := captured(t, s, n+1, queue)
	must(t, v.Fill(p, 0, 16), x.Launch(s), s.Synchronize())
	for what, at := range map[string]uintptr{"in a graph": p, "a copy behind them in a graph": p + 8} {
		if got := binary.LittleEndian.Uint64(read(t, v, at, 8)); got != inOrder(n) {
			t.Errorf("%s: %d, want %d", what, got, inOrder(n))
		}
	}
}

func TestWhatIsKeptIsLaunchedAgain(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	f := cudatest.Kernel(t, v, kernels, "increment")
	s, other := stream(t, v, 0), stream(t, v, 0)
	p := alloc(t, v, 8)
	must(t, v.Fill(p, 0, 8))
	var a cuda.Args
	a.Ptr(p)
	a.U32(3)
	x, err := f.Keep(cuda.Launch{}, &a)
	must(t, err)
	a.Reset() // what is kept keeps its arguments
	a.Ptr(p)
	a.U32(1000)
	const n = 100
	for range n {
		must(t, x.Launch(s))
	}
	must(t, s.Synchronize(), x.Launch(other), f.Launch(other, cuda.Launch{}, &a), other.Synchronize())
	if got := binary.LittleEndian.Uint64(read(t, v, p, 8)); got != 3*(n+1)+1000 {
		t.Errorf("%d, want %d", got, 3*(n+1)+1000)
	}
	must(t, x.Close(), x.Close())
	if err := x.Launch(s); !errors.Is(err, cuda.ErrClosed) {
		t.Errorf("launched behind its end: %v", err)
	}
}

// A prepared launch can be set and launched while an earlier launch waits.
func TestWhatIsKeptIsSetBehindAWait(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	f := cudatest.Kernel(t, v, kernels, "increment")
	s := stream(t, v, 0)
	p, word := alloc(t, v, 8), pinned(t, v, 8)
	must(t, v.Fill(p, 0, 8))
	var a cuda.Args
	set := func(n uint32) {
		a.Reset()
		a.Ptr(p)
		a.U32(n)
	}
	const n = 300
	var all []*cuda.Kept
	nothing := cudatest.Kernel(t, v, kernels, "nothing")
	for range n {
		x, err := nothing.Keep(cuda.Launch{Block: [3]uint32{32}}, nil)
		must(t, err)
		all = append(all, x)
		must(t, x.Launch(s))
	}
	must(t, s.Synchronize(), s.Wait64(word.Device(), 1))
	open := func() { atomic.StoreUint64((*uint64)(word.Pointer()), 1) }
	patience := time.AfterFunc(20*time.Second, open)
	for i, x := range all {
		set(uint32(i + 1))
		must(t, x.Set(f, cuda.Launch{}, &a), x.Launch(s))
	}
	if !patience.Stop() {
		t.Error("a call has waited for what is queued before it")
	}
	open()
	must(t, s.Synchronize())
	if got := binary.LittleEndian.Uint64(read(t, v, p, 8)); got != n*(n+1)/2 {
		t.Errorf("%d, want %d", got, n*(n+1)/2)
	}
	for _, x := range all {
		must(t, x.Close())
	}
}
