package direct

import (
	"errors"
	"fmt"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/tensor"
)

// behindAWait queues every kernel for the first time after one that waits for a peer. No call may
// wait for it, since the peer comes only after all of them. The driver queues about a thousand
// commands, so bitwise reductions have a turn of their own.
func behindAWait(r *rank) error {
	return errors.Join(turnBehindAWait(r, false), turnBehindAWait(r, true))
}

func turnBehindAWait(r *rank, bitwise bool) error {
	const count = 1 << 10
	late := r.Rank == 0
	if late {
		if err := r.Agree(nil); err != nil {
			return err
		}
	}
	// A call that waits ends when the kernel that it waits for does, and then fails.
	patience := time.AfterFunc(time.Minute, func() {
		for _, e := range r.engines {
			e.Abort()
		}
	})
	defer patience.Stop()
	buf := func(dt tensor.DType, n int) tensor.Buffer { return deviceBuffer(r.heap.Base[r.Rank], n, dt, r) }
	first := dist.Op{Kind: dist.KindAllReduce, Count: count, Src: buf(tensor.U32, count), Dst: buf(tensor.U32, count), Symmetric: true}
	err := r.engines[short].Enqueue(&first, r.s)
	queued := 0
	for _, dt := range tensor.DTypes() {
		for _, red := range dist.RedKinds() {
			if red.Bitwise() == bitwise && !(bitwise && dt.IsFloat()) {
				op := first
				op.Src, op.Dst, op.Red = buf(dt, count), buf(dt, count), dist.RedOp{Kind: red, Scalar: dist.Scalar{DType: dt}}
				queued += r.reduced(&op, &err)
			}
		}
	}
	queued += r.repeated(&first, &err)
	gathered := dist.Op{Kind: dist.KindAllGather, Count: count / r.Size, Src: buf(tensor.F32, count/r.Size), Dst: buf(tensor.F32, count), Symmetric: true}
	for _, e := range r.engines {
		queue(e, &gathered, r.s, &err)
		queued++
	}
	if err != nil {
		return fmt.Errorf("of %d operations behind a kernel that waits for rank 0: %w", queued, err)
	}
	if idle, err := r.s.Idle(); !late && (idle || err != nil) {
		return fmt.Errorf("before rank 0 has come the stream is idle: %v, error %w", idle, err)
	}
	if !late {
		if err := r.Agree(nil); err != nil {
			return err
		}
	}
	return r.s.Synchronize()
}

// reduced queues op, an allreduce, by all engines, and a reduce-scatter by those that have kernels
// for it. It returns how many operations it queued.
func (r *rank) reduced(op *dist.Op, err *error) (queued int) {
	for w, e := range r.engines {
		if engineKind(w) == copier && op.Red.Kind != dist.RedPreMulSum {
			continue // each is several commands
		}
		queue(e, op, r.s, err)
		queued++
		if engineKind(w).native(dist.KindReduceScatter) {
			part := *op
			part.Kind, part.Count = dist.KindReduceScatter, op.Count/r.Size
			part.Dst = deviceBuffer(r.heap.Base[r.Rank], part.Count, op.DType(), r)
			queue(e, &part, r.s, err)
			queued++
		}
	}
	return queued
}

// repeated queues op by all engines so often that it is kept; it returns how
// many it queued.
func (r *rank) repeated(op *dist.Op, err *error) (queued int) {
	for _, e := range r.engines {
		for range 3 {
			queue(e, op, r.s, err)
			queued++
		}
	}
	return queued
}

// loads opens the engines repeatedly: with a cache that has all kernels, and while a group has them
// loaded.
func loads(r *rank) error {
	for _, what := range []string{"with what is in the cache", "again"} {
		began := time.Now()
		engines, err := Make(Config{})(r.Member)
		if err != nil {
			return err
		}
		if r.Rank == 0 {
			fmt.Printf("opening among %d %s: %v\n", r.Size, what, time.Since(began))
		}
		for _, u := range unitsOf(r.Size) {
			for _, prog := range u.programs() {
				if f, err := engines[0].(*Engine).s.kernels.of(u.variant(prog)); f == nil || err != nil {
					return err
				}
			}
		}
		part := &gpu.Member{Device: r.Device, Rank: r.Rank, Size: r.Size, World: r.World, Control: r.Control, Memory: new(gpu.Memory)}
		began = time.Now()
		sub, err := engines[0].Split(part)
		if err != nil {
			return err
		}
		if r.Rank == 0 {
			fmt.Printf("a part of %d: %v\n", r.Size, time.Since(began))
		}
		if a, b := engines[0].(*Engine).s.kernels, sub.(*Engine).s.kernels; a != b {
			return errors.New("a part has loaded kernels that its group has")
		}
		if err := sub.Close(); err != nil {
			return err
		}
		for _, e := range engines {
			if err := e.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}
