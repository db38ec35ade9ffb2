package main

import (
	"context"

	"github.com/symgrad/symgrad/examples/internal/rank"
)

// allToAll sends block j of every PE's array to PE j, which orders its blocks by sender:
//
//	nvshmem.alltoall(team, dst_array, src_array, stream=stream)
func allToAll(_ context.Context, p *pe) (bad int, err error) {
	const block = 2
	src, err := p.array(block * p.n)
	if err != nil {
		return 0, err
	}
	dest, err := p.array(block * p.n)
	if err != nil {
		return 0, err
	}
	for i := range src.Values { // a number that encodes sender, receiver and index
		src.Values[i] = float32(100*p.my + i)
	}
	if err := rank.Done(p.team.AllToAll(dest.Buffer(), src.Buffer())); err != nil {
		return 0, err
	}
	if err := show(p, "PE %d received, from the last PE, %v", dest.Values[block*p.n-1]); err != nil {
		return 0, err
	}
	bad = wrong(dest.Values, func(i int) float32 {
		from, at := i/block, i%block
		return float32(100*from + block*p.my + at)
	})
	return bad, p.free(src, dest)
}
