package main

import (
	"context"

	"github.com/symgrad/symgrad/examples/internal/rank"
)

// broadcast copies PE 0's array to all PEs, in place:
//
//	nvshmem.broadcast(src_array, src_array, size, 0, stream=stream)
func broadcast(_ context.Context, p *pe) (bad int, err error) {
	const size = 10
	src, err := p.array(size)
	if err != nil {
		return 0, err
	}
	if p.my == 0 {
		for i := range src.Values {
			src.Values[i] = float32(i)
		}
	}
	if err := rank.Done(p.team.Broadcast(src.Buffer(), src.Buffer(), 0)); err != nil {
		return 0, err
	}
	// Now all PEs have the same data.
	if err := show(p, "PE %d has 0 to %v", src.Values[size-1]); err != nil {
		return 0, err
	}
	bad = wrong(src.Values, func(i int) float32 { return float32(i) })
	return bad, p.free(src)
}
