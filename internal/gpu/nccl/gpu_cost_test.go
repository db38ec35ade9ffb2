package nccl

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/tensor"
)

// costly is operations of all ways of doing them.
func (r *rank) costly() ([]dist.Op, error) {
	const n = 256
	var errs []error
	buf := func(n int) tensor.Buffer {
		b, err := r.buffer(tensor.F32, n, make([]byte, 4*n))
		errs = append(errs, err)
		return b
	}
	one, two, many := buf(n), buf(n), buf(n*r.Size)
	at := buf(1)
	all := func(red dist.RedOp) dist.Op {
		return dist.Op{Kind: dist.KindAllReduce, Red: red, Count: n, Src: one, Dst: two}
	}
	ops := []dist.Op{
		all(dist.Sum), all(dist.Avg), all(dist.Max), all(dist.PreMulSum(float32(0.25))), all(dist.PreMulSumAt(at)),
		{Kind: dist.KindAllGather, Count: n, Src: one, Dst: many},
		{Kind: dist.KindReduceScatter, Red: dist.Sum, Count: n, Src: many, Dst: one},
		{Kind: dist.KindAllToAll, Count: 1, Src: many, Dst: two},
		{Kind: dist.KindBarrier},
	}
	return ops, errors.Join(errs...)
}

// Queuing allocates nothing on the Go heap, whatever the operation.
func TestEnqueueAllocatesNothing(t *testing.T) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			onGPUs(t, n, func(r *rank) error {
				ops, err := r.costly()
				if err != nil {
					return err
				}
				for i := range ops {
					if err := r.counts(&ops[i]); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// counts queues op some 100 times and counts the allocations of the whole process. It divides like
// testing.AllocsPerRun, which is for one goroutine, so that occasional allocations of the runtime
// do not count.
func (r *rank) counts(op *dist.Op) error {
	const runs = 100
	if err := r.do(r.plain, *op); err != nil {
		return err
	}
	return onDevice(r.Device, func() error {
		if err := r.Agree(nil); err != nil {
			return err
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			if err := r.plain.Can(op); err != nil {
				return err
			}
			if err := r.plain.Enqueue(op, r.s); err != nil {
				return err
			}
		}
		runtime.ReadMemStats(&after)
		if err := r.s.Synchronize(); err != nil {
			return err
		}
		if per := (after.Mallocs - before.Mallocs) / runs; per != 0 {
			return fmt.Errorf("%v %v: %d allocations per operation", op.Kind, op.Red, per)
		}
		return r.Agree(nil)
	})
}

// BenchmarkEnqueue measures the host cost of queueing one operation; the wait for the device is not
// timed.
func BenchmarkEnqueue(b *testing.B) {
	for _, kind := range []string{"allreduce", "premulsum", "window", "barrier"} {
		b.Run(kind, func(b *testing.B) {
			onGPUs(b, 2, func(r *rank) error {
				run := func() error { return r.loop(b, kind) }
				if kind == "window" {
					return r.withSlab(run)
				}
				return run()
			})
		})
	}
}

func (r *rank) loop(b *testing.B, kind string) error {
	buf, err := r.buffer(tensor.F32, 256, make([]byte, 1024))
	if err != nil {
		return err
	}
	op := dist.Op{Kind: dist.KindAllReduce, Count: 256, Src: buf, Dst: buf, Symmetric: kind == "window"}
	var e gpu.Engine = r.plain
	switch kind {
	case "premulsum":
		op.Red = dist.PreMulSum(float32(0.5))
	case "barrier":
		op = dist.Op{Kind: dist.KindBarrier}
	case "window":
		e = r.window
	}
	if err := r.do(e, op); err != nil {
		return err
	}
	var spent time.Duration
	err = onDevice(r.Device, func() error {
		const inFlight = 200 // the driver's queue has room for a thousand
		for i := 0; i < b.N; i += inFlight {
			began := time.Now()
			for range min(inFlight, b.N-i) {
				if err := e.Enqueue(&op, r.s); err != nil {
					return err
				}
			}
			spent += time.Since(began)
			if err := r.s.Synchronize(); err != nil {
				return err
			}
		}
		return nil
	})
	if r.Rank == 0 {
		b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "ns/enqueue")
	}
	return err
}
