package main

import (
	"context"

	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/tensor"
)

// barrier makes every PE wait until all have reached this point:
//
//	time.sleep(0.1 * my_pe)                   # simulate work with different durations
//	print(f"PE {my_pe} reached barrier")
//	nvshmem.barrier(stream=stream)
//	print(f"PE {my_pe} passed barrier")
//
// Here, instead of printing the first line, every PE puts a mark into the memory of all others.
// After the barrier it must find all marks: all PEs arrived before it, and a barrier completes
// earlier puts.
func barrier(_ context.Context, p *pe) (bad int, err error) {
	marks, err := p.array(p.n)
	if err != nil {
		return 0, err
	}
	mine := []float32{work(p.my)}
	for peer := range p.n {
		at := int64(p.my) * int64(tensor.F32.Size())
		if err := marks.Region.Put(peer, at, tensor.Of(mine)); err != nil {
			return 0, err
		}
	}
	if err := rank.Done(p.team.Barrier()); err != nil {
		return 0, err
	}
	seen := p.n - wrong(marks.Values, func(i int) float32 { return float32(stepsOf(i)) })
	if err := show(p, "PE %d passed the barrier and sees the marks of %d PEs", int32(seen)); err != nil {
		return 0, err
	}
	return p.n - seen, p.free(marks)
}

// stepsOf returns the work of a PE in steps: higher numbers have more.
func stepsOf(pe int) int { return 1 + 100_000*pe }

// work does the steps and returns their number, which identifies the PE of a mark.
func work(pe int) float32 {
	done := 0
	for range stepsOf(pe) {
		done++
	}
	return float32(done)
}
