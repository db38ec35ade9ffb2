package main

import (
	"context"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
)

// reduce adds the arrays of all PEs and gives the sum to all, which other libraries call allreduce:
//
//	nvshmem.reduce(dest_array, src_array, size, 0, nvshmem.ReduceOp.SUM, stream=stream)
func reduce(_ context.Context, p *pe) (bad int, err error) {
	const size = 10
	src, err := p.array(size)
	if err != nil {
		return 0, err
	}
	dest, err := p.array(size)
	if err != nil {
		return 0, err
	}
	for i := range src.Values {
		src.Values[i] = float32(p.my)
	}
	if err := rank.Done(p.team.AllReduce(dest.Buffer(), src.Buffer(), dist.Sum)); err != nil {
		return 0, err
	}
	// Each element is the sum of 0 to n-1.
	expected := float32(p.n * (p.n - 1) / 2)
	if err := show(p, fmt.Sprintf("PE %%d sum result: %%v, expected: %v", expected), dest.Values[0]); err != nil {
		return 0, err
	}
	bad = wrong(dest.Values, func(int) float32 { return expected })
	return bad, p.free(src, dest)
}
