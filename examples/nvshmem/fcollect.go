package main

import (
	"context"

	"github.com/symgrad/symgrad/examples/internal/rank"
)

// fcollect gathers one element of every PE on all PEs, which other libraries call allgather:
//
//	nvshmem.fcollect(dest_array, src_array, 1, stream=stream)
func fcollect(_ context.Context, p *pe) (bad int, err error) {
	src, err := p.array(1) // each PE has one element
	if err != nil {
		return 0, err
	}
	dest, err := p.array(p.n) // and receives the elements of all PEs
	if err != nil {
		return 0, err
	}
	src.Values[0] = float32(p.my)
	if err := rank.Done(p.team.FCollect(dest.Buffer(), src.Buffer())); err != nil {
		return 0, err
	}
	if err := show(p, "PE %d received 0 to %v", dest.Values[p.n-1]); err != nil {
		return 0, err
	}
	bad = wrong(dest.Values, func(i int) float32 { return float32(i) })
	return bad, p.free(src, dest)
}
