package main

import (
	"context"
	"fmt"
	"io"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// shift is simple_shift: every rank puts its number into destination on the next rank, and reads
// its own after a barrier.
//
// Collective: all ranks.
func shift(w *dist.World, heap symmetric.Heap, out io.Writer) error {
	destination, err := heap.Alloc(4) // nvshmem_malloc(sizeof(int))
	if err != nil {
		return err
	}
	mype := int32(w.Rank())
	if err := symmetric.P(destination, next(w), 0, mype); err != nil { // nvshmem_int_p(destination, mype, peer)
		return err
	}
	if err := rank.Done(w.Barrier()); err != nil { // the puts of all ranks are complete
		return err
	}
	msg, err := symmetric.G[int32](destination, w.Rank(), 0)
	if err != nil {
		return err
	}
	all := make([]int32, w.Size())
	if err := rank.Done(w.AllGather(tensor.Of(all), tensor.Of([]int32{msg}))); err != nil {
		return err
	}
	for r, m := range all {
		fmt.Fprintf(out, "%d: received message %d\n", r, m)
	}
	if err := heap.Free(destination); err != nil {
		return err
	}
	return verdict(w, int64(msg), int64(before(w)))
}

// shiftSignal is shift without the barrier: a signal follows the number, and a rank waits only for
// its own signal.
//
// Collective: all ranks.
func shiftSignal(ctx context.Context, w *dist.World, heap symmetric.Heap) error {
	destination, err := heap.Alloc(4)
	if err != nil {
		return err
	}
	signal, err := heap.Alloc(signalBytes)
	if err != nil {
		return err
	}
	mype := []int32{int32(w.Rank())}
	here := symmetric.Signal{In: signal, Op: symmetric.SignalSet, Value: 1}
	if err := destination.PutSignal(next(w), 0, tensor.Of(mype), here); err != nil {
		return err
	}
	if _, err := symmetric.SignalWait(ctx, signal, 0, symmetric.Eq, 1); err != nil {
		return err
	}
	msg, err := symmetric.G[int32](destination, w.Rank(), 0)
	if err != nil {
		return err
	}
	for _, r := range []symmetric.Region{signal, destination} {
		if err := heap.Free(r); err != nil {
			return err
		}
	}
	return verdict(w, int64(msg), int64(before(w)))
}

// verdict fails on every rank if any rank got a wrong number.
//
// Collective: all ranks.
func verdict(w *dist.World, got, want int64) error {
	bad := 0
	if got != want {
		bad = 1
	}
	return rank.Verdict(w, "message that is not from the rank before it", bad)
}
