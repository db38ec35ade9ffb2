package main

import (
	"context"

	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/tensor"
)

// putAndGet writes to the memory of the next PE and then reads that of the previous one, which does
// nothing for it:
//
//	nvshmem.core.put(dst, src, remote_pe, stream=stream)
//	nvshmem.core.barrier(team, stream=stream)
//	nvshmem.core.get(dst, src, remote_pe, stream=stream)
func putAndGet(_ context.Context, p *pe) (bad int, err error) {
	const size = 8
	box, err := p.array(size)
	if err != nil {
		return 0, err
	}
	next, before := (p.my+1)%p.n, (p.my+p.n-1)%p.n
	letter := make([]float32, size) // the local side may be private memory
	for i := range letter {
		letter[i] = float32(size*p.my + i)
	}
	if err := box.Region.Put(next, 0, tensor.Of(letter)); err != nil {
		return 0, err
	}
	if err := rank.Done(p.team.Barrier()); err != nil { // all letters have arrived
		return 0, err
	}
	bad = wrong(box.Values, func(i int) float32 { return float32(size*before + i) })

	// The letter in the previous PE's box came from the PE before it.
	far := (p.my + 2*p.n - 2) % p.n
	if err := box.Region.Get(tensor.Of(letter), before, 0); err != nil {
		return 0, err
	}
	bad += wrong(letter, func(i int) float32 { return float32(size*far + i) })
	if err := show(p, "PE %d fetched a letter that begins with %v", letter[0]); err != nil {
		return 0, err
	}
	return bad, p.free(box)
}
