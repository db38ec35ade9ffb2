package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// These tests need a GPU: see cudatest. Those that want a world of several ranks are in
// examples/ring, which may import backends.

// device is a GPU and a stream on it.
func device(t *testing.T) (*cuda.Device, dist.Stream) {
	t.Helper()
	v := cudatest.Devices(t, 1)[0]
	s, err := gpu.NewStream(v)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return v, s
}

// memory is n zero elements on v.
func memory[T tensor.Element](t *testing.T, v *cuda.Device, n int) tensor.Buffer {
	t.Helper()
	dt := tensor.TypeOf[T]()
	bytes := int64(n * dt.Size())
	at, err := v.Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Free(at); err != nil {
			t.Error(err)
		}
	})
	if err := v.Fill(at, 0, bytes); err != nil {
		t.Fatal(err)
	}
	b, err := tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&at)), n, dt, v.Tensor())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// function is the kernel k of text. Its module is closed with the test.
func function(t *testing.T, s dist.Stream, text string) *Function {
	t.Helper()
	m, err := Compile(s, Source{Name: t.Name() + ".cu", Text: text})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Synchronize(), m.Close()); err != nil {
			t.Error(err)
		}
	})
	f, err := m.Function("k")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// read is the elements of b.
func read[T tensor.Element](t *testing.T, s dist.Stream, b tensor.Buffer) []T {
	t.Helper()
	out := make([]T, b.Len())
	if err := Copy(s, tensor.Of(out), b); err != nil {
		t.Fatal(err)
	}
	return out
}

func write[T tensor.Element](t *testing.T, s dist.Stream, b tensor.Buffer, v []T) {
	t.Helper()
	if err := Copy(s, b, tensor.Of(v)); err != nil {
		t.Fatal(err)
	}
}

func TestKernelComputes(t *testing.T) {
	v, s := device(t)
	const n = 100_000
	x, y := make([]float32, n), make([]float32, n)
	for i := range x {
		x[i], y[i] = float32(i%1000), float32(i%7)
	}
	dx, dy := memory[float32](t, v, n), memory[float32](t, v, n)
	write(t, s, dx, x)
	write(t, s, dy, y)
	f := function(t, s, `extern "C" __global__ void k(int n, float a, const float *x, float *y) {
		for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
	}`)
	if err := f.Launch(s, Shape{Grid: [3]uint32{64}, Block: [3]uint32{256}}, int32(n), float32(3), dx, dy); err != nil {
		t.Fatal(err)
	}
	for i, got := range read[float32](t, s, dy) {
		if want := 3*x[i] + y[i]; got != want {
			t.Fatalf("element %d: %v, want %v", i, got, want)
		}
	}
}

func TestEveryTypeOfArgumentArrives(t *testing.T) {
	v, s := device(t)
	out := memory[float64](t, v, 16)
	f := function(t, s, `extern "C" __global__ void k(double *out, signed char a, unsigned char b, bool c, short d, unsigned short e,
		unsigned short half, unsigned short bf, int g, unsigned h, long long i, unsigned long long j, float l, double m, void *p, const double *q) {
		double all[] = {(double)a, (double)b, (double)c, (double)d, (double)e, (double)half, (double)bf, (double)g, (double)h,
			(double)i, (double)j, (double)l, m, (double)(p == 0), (double)(q == out)};
		for (int n = 0; n < sizeof all / sizeof *all; n++) out[n] = all[n];
	}`)
	err := f.Launch(s, Shape{}, out, int8(-1), uint8(255), true, int16(-300), uint16(60000), tensor.ToFloat16(1), tensor.ToBFloat16(1),
		int32(-70000), uint32(4e9), int64(-5e9), uint64(1)<<60, float32(0.25), 1e-300, nil, uintptr(out.Pointer()))
	if err != nil {
		t.Fatal(err)
	}
	want := []float64{-1, 255, 1, -300, 60000, 0x3c00, 0x3f80, -70000, 4e9, -5e9, 1 << 60, 0.25, 1e-300, 1, 1, 0}
	if got := read[float64](t, s, out); !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}

func TestArgumentsThatTheKernelDoesNotTake(t *testing.T) {
	v, s := device(t)
	out := memory[float64](t, v, 1)
	f := function(t, s, `extern "C" __global__ void k(double *out, double x) { *out = x; }`)
	for _, test := range []struct {
		args []any
		is   error
		want string
	}{
		{[]any{out, 1}, dist.ErrInvalid, "argument 2 (int): "},
		{[]any{tensor.Of([]float64{0}), 1.0}, dist.ErrDevice, "argument 1 (tensor.Buffer): "},
		{[]any{out, float32(1)}, dist.ErrInvalid, "[8 8] B"},
		{[]any{out}, dist.ErrInvalid, "[8 8] B"},
		{[]any{out, 1.0, 1.0}, dist.ErrInvalid, "[8 8] B"},
		{make([]any, mostArgs+1), dist.ErrInvalid, "129 arguments, at most 128"},
	} {
		if err := f.Launch(s, Shape{}, test.args...); !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) ||
			!strings.HasPrefix(err.Error(), "launch k of "+t.Name()) {
			t.Errorf("%v: error %v, want %q", test.args, err, test.want)
		}
	}
	if err := f.Launch(s, Shape{}, out, 2.5); err != nil {
		t.Fatal(err)
	}
	if got := read[float64](t, s, out); got[0] != 2.5 {
		t.Errorf("the right arguments give %v", got)
	}
}

func TestCompilersLogIsInTheError(t *testing.T) {
	_, s := device(t)
	_, err := Compile(s, Source{Name: "wrong.cu", Text: "#include \"symgrad.h\"\nextern \"C\" __global__ void k() {\n    undeclared = 1;\n}\n"})
	if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), `wrong.cu(3): error: identifier "undeclared" is undefined`) {
		t.Errorf("error %v", err)
	}
}

func TestModuleNamesWhatItHasNot(t *testing.T) {
	_, s := device(t)
	m, err := Compile(s, Source{Name: "m.cu", Text: `extern "C" { __device__ int counts[3] = {7, 8, 9}; __global__ void k() { counts[0]++; } }`})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Function("mangled"); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), `function "mangled" of m.cu: `) {
		t.Errorf("error %v", err)
	}
	if _, err := m.Global("nothing"); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), `variable "nothing" of m.cu: `) {
		t.Errorf("error %v", err)
	}
	b, err := m.Global("counts")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]int32, 3)
	if err := Copy(s, tensor.Of(got), b); err != nil || !slices.Equal(got, []int32{7, 8, 9}) {
		t.Errorf("%v, %v", got, err)
	}
	f, err := m.Function("k")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, noFunction := m.Function("k")
	_, noGlobal := m.Global("counts")
	for _, err := range []error{f.Launch(s, Shape{}), f.AllowShared(1 << 16), noFunction, noGlobal} {
		if !errors.Is(err, dist.ErrClosed) {
			t.Errorf("after Close: error %v", err)
		}
	}
}

func TestCallsOnAClosedStream(t *testing.T) {
	v, s := device(t)
	f := function(t, s, `extern "C" __global__ void k() {}`)
	closed, err := NewStream(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	there, here := memory[int32](t, v, 2), tensor.Of(make([]int32, 2))
	_, mark := Mark(closed)
	for what, err := range map[string]error{
		"copy to the host": Copy(closed, here, there), "copy from the host": Copy(closed, there, here),
		"copy between devices": Copy(closed, there, there), "launch": f.Launch(closed, Shape{}), "mark": mark,
	} {
		if !errors.Is(err, dist.ErrClosed) {
			t.Errorf("%s: error %v, want ErrClosed", what, err)
		}
	}
}

func TestLaunchAllocatesNothing(t *testing.T) {
	v, s := device(t)
	out := memory[float64](t, v, 1)
	f := function(t, s, `extern "C" __global__ void k(double *out, double x, int n) { *out = x * n; }`)
	var failed error
	x, n := 1.5, int32(1000)
	allocs := testing.AllocsPerRun(100, func() {
		if err := f.Launch(s, Shape{Block: [3]uint32{1}}, out, x, n); err != nil {
			failed = err
		}
		n++
	})
	if failed != nil || allocs != 0 {
		t.Errorf("%v allocations a launch, error %v", allocs, failed)
	}
}

const waiter = `#include "symgrad.h"
extern "C" __global__ void k(const unsigned long long *word, unsigned long long v, unsigned long long ns, const int *data, int *out) {
	out[0] = symgrad_wait(word, v, ns);
	out[1] = *data;
}`

// One stream waits in a kernel for a signal of another stream, and for the data that the signal
// covers.
func TestSignalsOrderWhatTheyCover(t *testing.T) {
	v, s := device(t)
	other, err := NewStream(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
	words, data, out := memory[uint64](t, v, 2), memory[int32](t, v, 1), memory[int32](t, v, 2)
	wait := function(t, s, waiter)
	tell := function(t, s, `#include "symgrad.h"
extern "C" __global__ void k(unsigned long long *word, int *data) {
	*data = 41;
	symgrad_signal(word, 5);
	*data = 42;
	symgrad_signal_add(word, 2);
}`)
	if err := wait.Launch(s, Shape{}, words, uint64(7), uint64(20*time.Second), data, out); err != nil {
		t.Fatal(err)
	}
	if err := tell.Launch(other, Shape{}, words, data); err != nil {
		t.Fatal(err)
	}
	if got := read[int32](t, s, out); !slices.Equal(got, []int32{1, 42}) {
		t.Errorf("%v, want the signal and 42", got)
	}
	if got := read[uint64](t, s, words); got[0] != 7 {
		t.Errorf("the signal is %d", got[0])
	}
	if err := other.Synchronize(); err != nil { // before its kernel is unloaded
		t.Error(err)
	}
}

func TestWaitHasAnEnd(t *testing.T) {
	v, s := device(t)
	words, data, out := memory[uint64](t, v, 1), memory[int32](t, v, 1), memory[int32](t, v, 2)
	wait := function(t, s, waiter)
	write(t, s, out, []int32{-1, -1})
	if err := wait.Launch(s, Shape{}, words, uint64(1), uint64(2*time.Millisecond), data, out); err != nil {
		t.Fatal(err)
	}
	if got := read[int32](t, s, out); !slices.Equal(got, []int32{0, 0}) {
		t.Errorf("%v, want no signal", got)
	}
}

// Work after a Join sees the work before the Mark.
func TestMarkJoinsStreams(t *testing.T) {
	v, s := device(t)
	other, err := NewStream(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
	out := memory[uint64](t, v, 2)
	slow := function(t, s, `#include "symgrad.h"
extern "C" __global__ void k(unsigned long long *out) {
	for (unsigned long long begin = symgrad_now(); symgrad_now() - begin < 20000000;) {}
	out[0] = 1;
}`)
	after := function(t, s, `extern "C" __global__ void k(unsigned long long *out) { out[1] = out[0] + 1; }`)
	if err := slow.Launch(s, Shape{}, out); err != nil {
		t.Fatal(err)
	}
	w, err := Mark(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Join(w); err != nil {
		t.Fatal(err)
	}
	if err := after.Launch(other, Shape{}, out); err != nil {
		t.Fatal(err)
	}
	if got := read[uint64](t, other, out); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("%v, want 1 and what was made of it", got)
	}
	if err := w.Wait(); err != nil || !w.Done() {
		t.Errorf("the mark: %v, done %v", err, w.Done())
	}
}

func TestSharedMemoryAndTogether(t *testing.T) {
	v, s := device(t)
	out := memory[int32](t, v, 1)
	f := function(t, s, `extern "C" __global__ void k(int *out) {
		extern __shared__ int room[];
		room[threadIdx.x] = threadIdx.x;
		__syncthreads();
		if (threadIdx.x == 0) atomicAdd(out, room[blockDim.x - 1]);
	}`)
	big := Shape{Block: [3]uint32{64}, Shared: 64 << 10}
	if err := f.Launch(s, big, out); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("without AllowShared: error %v", err)
	}
	if err := f.AllowShared(64 << 10); err != nil {
		t.Fatal(err)
	}
	n, err := f.Resident(big)
	if err != nil || n < v.SMs() {
		t.Fatalf("%d blocks at once on %d multiprocessors, %v", n, v.SMs(), err)
	}
	big.Grid, big.Together = [3]uint32{uint32(n)}, true
	if err := f.Launch(s, big, out); err != nil {
		t.Fatal(err)
	}
	if got := read[int32](t, s, out); got[0] != int32(63*n) {
		t.Errorf("%d of %d blocks have run", got[0]/63, n)
	}
	big.Grid[0] += uint32(v.SMs())
	if err := f.Launch(s, big, out); err == nil {
		t.Errorf("%d blocks run at once, where %d can", big.Grid[0], n)
	}
}

func TestCopies(t *testing.T) {
	v, s := device(t)
	a, b := memory[int32](t, v, 3), memory[int32](t, v, 3)
	write(t, s, a, []int32{1, 2, 3})
	if err := Copy(s, b, a); err != nil {
		t.Fatal(err)
	}
	if got := read[int32](t, s, b); !slices.Equal(got, []int32{1, 2, 3}) {
		t.Errorf("%v", got)
	}
	if err := Copy(s, b, tensor.Of([]int32{1})); !errors.Is(err, dist.ErrCount) || !strings.Contains(err.Error(), "4 B to 12 B") {
		t.Errorf("error %v", err)
	}
	host := tensor.Of([]int32{1})
	if err := Copy(s, host, host); !errors.Is(err, dist.ErrDevice) {
		t.Errorf("error %v", err)
	}
}

// A module of one GPU does not run on the stream of another.
func TestStreamsOfOtherDevices(t *testing.T) {
	devices := cudatest.Devices(t, 2)
	var streams [2]dist.Stream
	for i, v := range devices {
		s, err := gpu.NewStream(v)
		if err != nil {
			t.Fatal(err)
		}
		streams[i] = s
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	f := function(t, streams[0], `extern "C" __global__ void k() {}`)
	err := f.Launch(streams[1], Shape{})
	if want := fmt.Sprintf("the stream is on %v, the module on %v", devices[1].Tensor(), devices[0].Tensor()); !errors.Is(err, dist.ErrDevice) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// A stream that belongs to no group cannot compile for NVSHMEM.
func TestTextThatCallsNVSHMEMWantsAGroup(t *testing.T) {
	_, s := device(t)
	if _, err := Compile(s, Source{Text: "#include <nvshmem.h>", NVSHMEM: true}); !errors.Is(err, dist.ErrUnsupported) ||
		!strings.Contains(err.Error(), "no group's own") {
		t.Errorf("error %v", err)
	}
}

// A region that is not on a GPU has no view on a stream.
func TestRegionsOfTheHostHaveNoViewOnAStream(t *testing.T) {
	_, s := device(t)
	if _, err := OnStream(nil, s); !errors.Is(err, symmetric.ErrNotAllocated) {
		t.Errorf("no region: error %v", err)
	}
	if _, err := OnStream(struct{ symmetric.Region }{}, s); !errors.Is(err, dist.ErrUnsupported) {
		t.Errorf("another region: error %v", err)
	}
}
