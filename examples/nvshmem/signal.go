package main

import (
	"context"

	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// putSignal writes to the memory of the next PE and sets a signal there after the data has arrived.
// Each PE waits only for its own signal, and there is no barrier:
//
//	nvshmem.core.put_signal(dst, src, signal_var, signal_val, signal_op, remote_pe, stream=stream)
//	nvshmem.core.signal_wait(signal_var, signal_val, signal_op, stream=stream)
func putSignal(ctx context.Context, p *pe) (bad int, err error) {
	const size, here = 8, 1
	box, err := p.array(size)
	if err != nil {
		return 0, err
	}
	signal, err := p.heap.Alloc(8) // a signal is an unsigned 64-bit number, 0 in fresh memory
	if err != nil {
		return 0, err
	}
	next, before := (p.my+1)%p.n, (p.my+p.n-1)%p.n
	letter := make([]float32, size)
	for i := range letter {
		letter[i] = float32(size*p.my + i)
	}
	set := symmetric.Signal{In: signal, Op: symmetric.SignalSet, Value: here}
	if err := box.Region.PutSignal(next, 0, tensor.Of(letter), set); err != nil {
		return 0, err
	}
	if _, err := symmetric.SignalWait(ctx, signal, 0, symmetric.Eq, here); err != nil {
		return 0, err
	}
	bad = wrong(box.Values, func(i int) float32 { return float32(size*before + i) })
	if err := show(p, "PE %d has a letter that begins with %v", box.Values[0]); err != nil {
		return 0, err
	}
	if err := p.heap.Free(signal); err != nil {
		return 0, err
	}
	return bad, p.free(box)
}
