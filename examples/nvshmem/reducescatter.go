package main

import (
	"context"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
)

// reduceScatter adds the arrays of all PEs and leaves one block of the sum on each. An fcollect of
// the blocks would complete a reduce:
//
//	nvshmem.reducescatter(team, dst_array, src_array, "sum", stream=stream)
func reduceScatter(_ context.Context, p *pe) (bad int, err error) {
	const block = 3
	src, err := p.array(block * p.n)
	if err != nil {
		return 0, err
	}
	dest, err := p.array(block)
	if err != nil {
		return 0, err
	}
	for i := range src.Values {
		src.Values[i] = float32(i * (p.my + 1))
	}
	if err := rank.Done(p.team.ReduceScatter(dest.Buffer(), src.Buffer(), dist.Sum)); err != nil {
		return 0, err
	}
	if err := show(p, "PE %d has a block that begins with %v", dest.Values[0]); err != nil {
		return 0, err
	}
	// Element i of the sum is i times the sum of 1 to n. This PE's block starts at element
	// block*my.
	bad = wrong(dest.Values, func(i int) float32 { return float32((block*p.my + i) * p.n * (p.n + 1) / 2) })
	return bad, p.free(src, dest)
}
