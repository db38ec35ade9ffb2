//go:build cuda

package culink

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/tensor"
)

// These tests need a GPU: package cu looks for one before any test runs.

// world is a GPU of ours, a stream on it, and its context, current for cu on this thread.
func world(t *testing.T) (*cuda.Device, *gpu.Stream) {
	t.Helper()
	v := cudatest.Devices(t, 1)[0]
	s, err := gpu.NewStream(v)
	if err != nil {
		t.Fatal(err)
	}
	ctx, release, err := Context(v.Tensor())
	if err != nil {
		t.Fatal(err)
	}
	if err := ctx.Lock(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), ctx.Unlock(), release()); err != nil {
			t.Error(err)
		}
	})
	return v, s
}

func pointer(s []int32) unsafe.Pointer { return tensor.Of(s).Pointer() }

func TestContextIsTheOneOfThisLibrary(t *testing.T) {
	v, _ := world(t)
	ctx, release, err := Context(v.Tensor())
	if err != nil {
		t.Fatal(err)
	}
	if contextHandle(ctx) != v.Context() {
		t.Errorf("cu has context %v, this library %#x", ctx, v.Context())
	}
	if err := Check(ctx, v.Tensor()); err != nil {
		t.Error(err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	d, err := Device(v.Tensor())
	if err != nil {
		t.Fatal(err)
	}
	other, err := d.MakeContext(cu.SchedAuto) // through the header of compat
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(other, v.Tensor()); !errors.Is(err, dist.ErrDevice) || !strings.Contains(err.Error(), "use culink.Context in place of cu's MakeContext") {
		t.Errorf("error %v", err)
	}
	if err := other.Destroy(); err != nil {
		t.Error(err)
	}
}

// cu's copies on our stream are in the order of ours.
func TestCopiesOfCuOnOurStream(t *testing.T) {
	v, s := world(t)
	const n = 1 << 16
	at, err := v.Alloc(4 * n)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := Buffer(cu.DevicePtr(at), n, tensor.I32, v.Tensor())
	if err != nil {
		t.Fatal(err)
	}
	p, err := Pointer(ours)
	if err != nil || uintptr(p) != at {
		t.Fatalf("pointer %v of %#x, %v", p, at, err)
	}
	cs, err := Stream(s)
	if err != nil || streamHandle(cs) != s.Handle() {
		t.Fatalf("stream %#x of %#x, %v", streamHandle(cs), s.Handle(), err)
	}
	if err := s.CUDA().Fill(at, 7, 4*n); err != nil {
		t.Fatal(err)
	}
	if err := cu.MemsetD32Async(p, 12345, n/2, cs); err != nil {
		t.Fatal(err)
	}
	if err := s.Synchronize(); err != nil {
		t.Fatal(err)
	}
	got, want := make([]int32, n), append(slices.Repeat([]int32{12345}, n/2), slices.Repeat([]int32{0x07070707}, n/2)...)
	if err := cu.MemcpyDtoH(pointer(got), p, 4*n); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d, ..., %d", got[0], got[n-1])
	}
	if err := v.Free(at); err != nil {
		t.Error(err)
	}
}

// Work of ours on a stream and on memory of cu's.
func TestOurWorkOnAStreamOfCu(t *testing.T) {
	_, s := world(t)
	cs, err := cu.MakeStream(cu.NonBlocking)
	if err != nil {
		t.Fatal(err)
	}
	p, err := cu.MemAlloc(64)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := FromStream(s, cs)
	if err != nil {
		t.Fatal(err)
	}
	if mine.Device() != s.Device() {
		t.Errorf("on %v, want %v", mine.Device(), s.Device())
	}
	if err := cu.MemsetD32Async(p, 5, 16, cs); err != nil {
		t.Fatal(err)
	}
	w, err := mine.(*gpu.Stream).Mark()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Join(w); err != nil {
		t.Fatal(err)
	}
	got := make([]int32, 16)
	if err := s.CUDA().CopyToHost(pointer(got), uintptr(p), 64); err != nil {
		t.Fatal(err)
	}
	if err := s.Synchronize(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, slices.Repeat([]int32{5}, 16)) {
		t.Errorf("%v", got)
	}
	if err := errors.Join(mine.Close(), cs.Destroy(), cu.MemFree(p)); err != nil {
		t.Error(err)
	}
}

// The functions that CUDA 13 changed work as before.
func TestFunctionsThatTheHeaderBringsBack(t *testing.T) {
	v, s := world(t)
	d, err := Device(v.Tensor())
	if err != nil {
		t.Fatal(err)
	}
	p, err := cu.MemAllocManaged(1<<16, cu.AttachGlobal)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := Stream(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		p.MemAdvise(1<<16, cu.SetPreferredLocation, d),
		p.MemAdvise(1<<16, cu.SetAccessedBy, cu.CPU),
		p.MemPrefetchAsync(1<<16, d, cs),
		p.MemPrefetchAsync(1<<16, cu.CPU, cs),
		s.Synchronize(),
		cu.MemFree(p),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	g, err := cu.MakeGraph()
	if err != nil {
		t.Fatal(err)
	}
	var nodes [2]cu.Node
	for i := range nodes {
		if nodes[i], err = g.AddEmptyNode(nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.AddDependencies(nodes[:1], nodes[1:]); err != nil {
		t.Error(err)
	}
	var from, to [1]cu.Node
	edges, _, err := g.Edges(from[:], to[:])
	if err != nil || len(edges) != 1 || edges[0] != 1 || from[0] != nodes[0] || to[0] != nodes[1] {
		t.Errorf("edges %v from %v to %v, %v", edges, from, to, err)
	}
	if err := g.Destroy(); err != nil {
		t.Error(err)
	}
}

func TestWhatIsOnTheHostIsRefused(t *testing.T) {
	v, s := world(t)
	host := dist.NewHostStream()
	defer func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, noDevice := Device(tensor.Host)
	_, _, noContext := Context(tensor.Host)
	_, tooFar := Device(tensor.CUDA(1 << 10))
	_, noPointer := Pointer(tensor.Of([]float32{1}))
	_, noBuffer := Buffer(0x1000, 1, tensor.F32, tensor.Host)
	for _, err := range []error{noDevice, noContext, tooFar, noPointer, noBuffer} {
		if !errors.Is(err, dist.ErrDevice) || !strings.HasPrefix(err.Error(), "culink: ") {
			t.Errorf("error %v", err)
		}
	}
	_, noStream := Stream(host)
	_, noLike := FromStream(host, cu.NoStream)
	for _, err := range []error{noStream, noLike} {
		if !errors.Is(err, dist.ErrUnsupported) {
			t.Errorf("error %v", err)
		}
	}
	if _, err := Buffer(0x1002, 1, tensor.F32, v.Tensor()); err == nil {
		t.Error("an address that is no multiple of 4 is taken for a float32's")
	}
	if b, err := Buffer(0, 0, tensor.F32, v.Tensor()); err != nil || b.Len() != 0 || s.Device() != v.Tensor() {
		t.Errorf("no elements: %v, %v", b, err)
	}
}
