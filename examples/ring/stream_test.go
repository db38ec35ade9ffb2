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
	"github.com/symgrad/symgrad/internal/cuda/cudatest"
	"github.com/symgrad/symgrad/kernel"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// The token goes round without kernels and without the host: by puts with signals, and waits for these, queued on streams, whatever has made
// the memory. It needs GPUs: see cudatest.
func TestTokenGoesRoundOnStreams(t *testing.T) {
	for _, name := range []string{backend.CUDA, backend.NCCL, backend.NVSHMEM} {
		for _, n := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				if have := cudatest.Driver(t).Count(); have < n && n > 2 { // each rank makes the context of its own GPU
					t.Skipf("needs %d GPUs, there are %d; the same test with fewer is what has to run", n, have)
				} else if have < n {
					cudatest.Missing(t, "needs %d GPUs, there are %d", n, have)
				}
				open := func(ctx context.Context, opt conformance.LaunchOptions) (*dist.World, error) {
					return backend.Open(ctx, backend.Config{Backend: name, Timing: true, StepTimeout: opt.StepTimeout, InitTimeout: time.Minute})
				}
				conformance.Processes(open)(t, n, conformance.LaunchOptions{}, goRound)
			})
		}
	}
}

// goRound passes what rank 0 has on to the next rank, 20 times round, and compares at the end.
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
