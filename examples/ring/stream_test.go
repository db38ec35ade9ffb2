package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/kernel"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// The shift by kernels that call NVSHMEM on the device, on the own streams of a world and of a part
// of it.
func TestKernelsCallNVSHMEM(t *testing.T) {
	for _, name := range []string{backend.CUDA, backend.NVSHMEM} {
		for _, n := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				onGPUs(t, n, backend.Config{Backend: name}, func(w *dist.World) error {
					part, err := w.Split(0, -w.Rank())
					if err != nil {
						return err
					}
					return errors.Join(shiftByNVSHMEM(w, w.Group), shiftByNVSHMEM(w, part), part.Close())
				})
			})
		}
	}
}

const shiftText = `
#include <nvshmem.h>
extern "C" __global__ void shift(int *destination) {
    nvshmem_int_p(destination, nvshmem_my_pe(), (nvshmem_my_pe() + 1) % nvshmem_n_pes());
}`

// shiftByNVSHMEM has each rank of w write its number to the next, by a kernel on the stream of g.
func shiftByNVSHMEM(w *dist.World, g *dist.Group) error {
	h, err := w.Heap(1 << 16)
	if err != nil {
		return err
	}
	r, err := h.Alloc(64)
	if err != nil {
		return err
	}
	m, err := kernel.Compile(g.Stream(), kernel.Source{Name: "shift.cu", Text: shiftText, NVSHMEM: true})
	if err != nil {
		return err
	}
	f, err := m.Function("shift")
	if err != nil {
		return err
	}
	if err := f.Launch(g.Stream(), kernel.Shape{}, r); err != nil {
		return err
	}
	if _, err := g.Barrier(); err != nil {
		return err
	}
	x, err := tensor.FromPointer(r.Local().Pointer(), 1, tensor.I32, w.Device())
	if err != nil {
		return err
	}
	got := []int32{-1}
	if err := kernel.Copy(g.Stream(), tensor.Of(got), x); err != nil {
		return err
	}
	if before := (w.Rank() + w.Size() - 1) % w.Size(); got[0] != int32(before) {
		return fmt.Errorf("rank %d has %d, want %d", w.Rank(), got[0], before)
	}
	return errors.Join(m.Close(), h.Close())
}

// onGPUs runs body as every rank of a world of n GPUs.
func onGPUs(t *testing.T, n int, cfg backend.Config, body func(w *dist.World) error) {
	t.Helper()
	if have := cudatest.Driver(t).Count(); have < n && n > 2 { // each rank makes the context of its own GPU
		t.Skipf("needs %d GPUs, there are %d; the same test with fewer is what has to run", n, have)
	} else if have < n {
		cudatest.Missing(t, "needs %d GPUs, there are %d", n, have)
	}
	open := func(ctx context.Context, opt conformance.LaunchOptions) (*dist.World, error) {
		cfg.StepTimeout, cfg.InitTimeout = opt.StepTimeout, time.Minute
		return backend.Open(ctx, cfg)
	}
	conformance.Processes(open)(t, n, conformance.LaunchOptions{}, body)
}

// The token goes round without kernels and without the host: by puts with signals, and waits for
// these, queued on streams, whatever has made the memory. It needs GPUs: see cudatest.
func TestTokenGoesRoundOnStreams(t *testing.T) {
	for _, name := range []string{backend.CUDA, backend.NCCL, backend.NVSHMEM} {
		for _, n := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				onGPUs(t, n, backend.Config{Backend: name, Timing: true}, goRound)
			})
		}
	}
}

// goRound passes the data of rank 0 to the next rank, 20 times round, and compares at the end.
func goRound(w *dist.World) error {
	h, err := w.Heap(1 << 16)
	if err != nil {
		return err
	}
	r, err := h.Alloc(128)
	if err != nil {
		return err
	}
	on, err := kernel.OnStream(r, w.Stream())
	if err != nil {
		return err
	}
	x, err := tensor.FromPointer(r.Local().Pointer(), 4, tensor.U64, w.Device())
	if err != nil {
		return err
	}
	const rounds = 20
	want := []uint64{3, 5, 7, 1 << 40}
	if w.Rank() == 0 {
		if err := kernel.Copy(w.Stream(), x, tensor.Of(want)); err != nil {
			return err
		}
	}
	pass := func(round uint64) error {
		return on.PutSignal((w.Rank()+1)%w.Size(), 0, x, symmetric.Signal{In: on, At: 64, Op: symmetric.SignalSet, Value: round})
	}
	for round := uint64(1); round <= rounds; round++ {
		if w.Rank() == 0 {
			if err := pass(round); err != nil {
				return err
			}
		}
		watch := symmetric.Watch{At: 64, Count: 1, DType: tensor.U64, Cmp: symmetric.Ge, Value: round}
		if _, err := on.Wait(context.Background(), watch); err != nil {
			return err
		}
		if w.Rank() != 0 {
			if err := pass(round); err != nil {
				return err
			}
		}
	}
	got := make([]uint64, len(want))
	if err := errors.Join(on.Quiet(), kernel.Copy(w.Stream(), tensor.Of(got), x)); err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("rank %d has %v, want %v", w.Rank(), got, want)
	}
	barrier, err := w.Barrier()
	if err != nil {
		return err
	}
	if ms, err := kernel.Elapsed(barrier); err != nil || ms <= 0 || ms > 10_000 {
		return fmt.Errorf("the barrier took %v ms: %w", ms, err)
	}
	return h.Close()
}
