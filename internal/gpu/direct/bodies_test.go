package direct

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// collectives is every operation of these engines.
var collectives = []dist.Kind{
	dist.KindAllReduce, dist.KindReduce, dist.KindBroadcast, dist.KindAllGather, dist.KindReduceScatter, dist.KindAllToAll,
	dist.KindGather, dist.KindScatter, dist.KindBarrier, dist.KindSync,
}

// random is where a test's random numbers come from, the same on all ranks.
func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 4)) }

// run does one operation and compares.
func (r *rank) run(e Tunable, s *spec) error {
	op, err := s.buffers(r)
	if err != nil {
		return err
	}
	if err := e.Can(&op); err != nil {
		return err
	}
	if err := errors.Join(e.Enqueue(&op, r.s), r.s.Synchronize()); err != nil {
		return fmt.Errorf("%s: %v: %w", e.Name(), s, err)
	}
	if err := s.check(r, &op); err != nil {
		return fmt.Errorf("%s: %w", e.Name(), err)
	}
	return nil
}

// everyReduction is all types and reductions, by every kernel that reduces; of premulsum with
// scalars of the host and of the device, and with factors that are powers of two and such that are
// not.
func everyReduction(r *rank) error {
	rng := random(1)
	for _, dt := range tensor.DTypes() {
		for _, red := range dist.RedKinds() {
			if red.Bitwise() && dt.IsFloat() {
				continue
			}
			for _, w := range []engineKind{short, line, lineTwice, oneshot, twoshot, tiles} {
				for _, count := range []int{1, 1025, 20011} {
					s := newSpec(rng, r.Size, dist.KindAllReduce, combo{dt, red}, count, 0)
					s.lay(rng, 0, count > 1025, rng.IntN(2) == 0)
					if err := r.run(r.engines[w], s); err != nil {
						return err
					}
					if red != dist.RedPreMulSum {
						continue
					}
					for _, change := range []func(){s.elsewhere, s.powers, s.elsewhere} {
						change()
						if err := r.run(r.engines[w], s); err != nil {
							return err
						}
					}
				}
			}
		}
	}
	return nil
}

// everyOperation is all operations by all engines, of few and of many elements, wherever buffers
// lie.
func everyOperation(r *rank) error {
	rng := random(2)
	for _, e := range r.engines {
		for _, kind := range collectives {
			for i, count := range []int{1, 2, 15, 121, 1000, 4099, 70001} {
				for _, symmetric := range []bool{false, true} {
					c := someCombos[(i+int(kind))%len(someCombos)]
					s := newSpec(rng, r.Size, kind, c, count, rng.IntN(r.Size))
					s.lay(rng, 0, symmetric, rng.IntN(2) == 0)
					if err := r.run(e, s); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// pieces is operations that are larger than the boards.
func pieces(r *rank) error {
	rng := random(3)
	for _, e := range r.engines {
		for _, kind := range collectives {
			for _, count := range []int{100003, 800001} {
				s := newSpec(rng, r.Size, kind, someCombos[0], count, rng.IntN(r.Size))
				s.lay(rng, 0, count == 100003, rng.IntN(2) == 0)
				if err := r.run(e, s); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// fewBlocks is all operations with Config.MaxCTAs, of sizes for which more blocks were measured
// too, and forced shapes.
func fewBlocks(r *rank) error {
	rng := random(4)
	for _, e := range r.engines {
		for i, kind := range []dist.Kind{dist.KindAllReduce, dist.KindReduceScatter, dist.KindAllGather} {
			s := newSpec(rng, r.Size, kind, someCombos[i%len(someCombos)], 1000003, 0)
			s.lay(rng, 0, true, i == 0)
			op, err := s.buffers(r)
			if err != nil {
				return err
			}
			if got := e.Shape(&op); got.Blocks != fewest || got.Threads != MaxThreads {
				return fmt.Errorf("%s: %v is launched as %v, want %dx%d", e.Name(), s, got, fewest, MaxThreads)
			}
			if err := errors.Join(r.run(e, s), e.Force(Shape{Blocks: 112, Threads: 256})); err != nil {
				return err
			}
			if got := e.Shape(&op); got.Blocks != fewest || got.Threads != 256 {
				return fmt.Errorf("%s: 112x256 is forced to be %v", e.Name(), got)
			}
			if err := errors.Join(r.run(e, s), e.Force(Shape{})); err != nil {
				return err
			}
		}
	}
	return everyOperation(r)
}

// randomOperations queues operations of all engines and shapes one after the other, and checks them
// at the end.
func randomOperations(r *rank) error {
	rng := random(5)
	for range 25 {
		var specs []*spec
		var ops []dist.Op
		var by []Tunable
		at := uintptr(0)
		for range 40 {
			count := 1 + rng.IntN([]int{4, 100, 3000, 100000}[rng.IntN(4)])
			s := newSpec(rng, r.Size, collectives[rng.IntN(len(collectives))], someCombos[rng.IntN(len(someCombos))], count, rng.IntN(r.Size))
			s.lay(rng, at, rng.IntN(2) == 0, rng.IntN(2) == 0)
			at = (at + s.room() + 4095) &^ 4095
			op, err := s.buffers(r)
			if err != nil {
				return err
			}
			e := r.engines[rng.IntN(len(r.engines))]
			specs, ops, by = append(specs, s), append(ops, op), append(by, e)
		}
		// Destinations of this rank are ready; no other may store to them before.
		if err := r.Agree(nil); err != nil {
			return err
		}
		all := twoshot.sweepShapes()
		for i := range ops {
			e := by[i]
			shape := all[rng.IntN(len(all))]
			shape.Tile = leastTile * rng.IntN(5)
			if err := errors.Join(e.Force(shape), e.Enqueue(&ops[i], r.s), e.Force(Shape{})); err != nil {
				return fmt.Errorf("%s: %v: %w", e.Name(), specs[i], err)
			}
		}
		if err := r.s.Synchronize(); err != nil {
			return err
		}
		for i, s := range specs {
			if err := s.check(r, &ops[i]); err != nil {
				return fmt.Errorf("operation %d by %s: %w", i, by[i].Name(), err)
			}
		}
	}
	return nil
}

// graphs captures one operation of each engine, in place on u32, and replays them. A premulsum with
// factors whose sum is 3 triples values that are equal on all ranks.
func graphs(r *rank) error {
	const count, replays = 3001, 1000
	buf := deviceBuffer(r.heap.Base[r.Rank], count, tensor.U32, r)
	factor := uint32(1)
	if r.Rank == 0 {
		factor = 3 - uint32(r.Size-1)
	}
	op := dist.Op{Kind: dist.KindAllReduce, Count: count, Src: buf, Dst: buf, Symmetric: true, Red: dist.PreMulSum(factor)}
	host := make([]uint32, count)
	for i := range host {
		host[i] = uint32(2*i + 1)
	}
	if err := r.Device.CopyFromHost(uintptr(buf.Pointer()), unsafe.Pointer(&host[0]), 4*count); err != nil {
		return err
	}
	if err := r.replay(&op, replays, r.engines...); err != nil {
		return err
	}
	if err := r.Device.CopyToHost(unsafe.Pointer(&host[0]), uintptr(buf.Pointer()), 4*count); err != nil {
		return err
	}
	power := uint32(1)
	for range replays * len(r.engines) {
		power *= 3
	}
	for i, got := range host {
		if want := uint32(2*i+1) * power; got != want {
			return fmt.Errorf("after %d replays element %d is %d, want %d", replays, i, got, want)
		}
	}
	return r.averages(buf)
}

// replay captures op by each of engines in one graph and launches it count times.
func (r *rank) replay(op *dist.Op, count int, engines ...Tunable) error {
	return r.captured(count, func() (failed error) {
		for _, e := range engines {
			queue(e, op, r.s, &failed)
		}
		return failed
	})
}

// captured launches a graph of f count times.
func (r *rank) captured(count int, f func() error) error {
	g, err := r.s.Capture(f)
	if err != nil {
		return err
	}
	x, err := g.Instantiate()
	if err != nil {
		return errors.Join(err, g.Close())
	}
	for range count {
		if err = x.Launch(r.s); err != nil {
			break
		}
	}
	return errors.Join(err, r.s.Synchronize(), x.Close(), g.Close())
}

// averages replays avg of values that differ, after which all ranks have the same, and go on having
// it.
func (r *rank) averages(buf tensor.Buffer) error {
	host := make([]uint32, buf.Len())
	op := dist.Op{Kind: dist.KindAllReduce, Count: buf.Len(), Src: buf, Dst: buf, Symmetric: true, Red: dist.Avg}
	for _, e := range r.engines {
		for i := range host {
			host[i] = uint32(i*r.Size + r.Rank)
		}
		if err := r.Device.CopyFromHost(uintptr(buf.Pointer()), unsafe.Pointer(&host[0]), buf.Bytes()); err != nil {
			return err
		}
		if err := r.Agree(nil); err != nil {
			return err
		}
		if err := r.replay(&op, 1000, e); err != nil {
			return err
		}
		if err := r.Device.CopyToHost(unsafe.Pointer(&host[0]), uintptr(buf.Pointer()), buf.Bytes()); err != nil {
			return err
		}
		for i, got := range host {
			if want := uint32(i)*uint32(r.Size) + uint32(r.Size-1)/2; got != want {
				return fmt.Errorf("%s: replayed avg: element %d is %d, want %d", e.Name(), i, got, want)
			}
		}
	}
	return nil
}

// aborts makes rank 0 wait for peers that never come. A single rank waits for no peer, but starts
// nothing more either.
func aborts(r *rank) error {
	if r.Rank != 0 {
		return r.Agree(nil) // until rank 0 has ended its waiting
	}
	buf := deviceBuffer(r.heap.Base[0], 100000, tensor.F32, r)
	op := dist.Op{Kind: dist.KindAllReduce, Count: buf.Len(), Src: buf, Dst: buf, Symmetric: true}
	large := op
	large.Src = deviceBuffer(r.heap.Base[0], 8<<20, tensor.F32, r)
	large.Dst, large.Count = large.Src, large.Src.Len()
	for _, e := range r.engines {
		if err := errors.Join(e.Enqueue(&op, r.s), e.Enqueue(&large, r.s)); err != nil {
			return err
		}
	}
	if idle, err := r.s.Idle(); err != nil || idle && r.Size > 1 {
		return fmt.Errorf("before the abort the stream is idle: %v, error %w", idle, err)
	}
	began := time.Now()
	r.engines[0].Abort()
	if err := r.s.Synchronize(); err != nil {
		return err
	}
	if took := time.Since(began); took > 5*time.Second {
		return fmt.Errorf("kernels ended %v after the abort", took)
	}
	for _, e := range r.engines {
		if err := e.Enqueue(&op, r.s); !errors.Is(err, dist.ErrAborted) {
			return fmt.Errorf("%s after the abort: error %w, want ErrAborted", e.Name(), err)
		}
	}
	return r.Agree(nil)
}

// splits makes groups of the even and the odd ranks, and sums in both and in the whole.
func splits(r *rank) error {
	g, err := r.Control.Split(r.Rank%2, 0)
	if err != nil {
		return err
	}
	part := &rank{s: r.s, private: r.private, Member: &gpu.Member{
		Device: r.Device, Rank: g.Rank(), Size: g.Size(), Control: g.Blocking(), Memory: new(gpu.Memory),
	}}
	for q := range g.Size() {
		part.World = append(part.World, 2*q+r.Rank%2)
	}
	for _, e := range r.engines {
		sub, err := e.Split(part.Member)
		if err != nil {
			return err
		}
		part.engines = append(part.engines, sub.(Tunable))
	}
	part.heap = &gpu.Slab{Bytes: r.heap.Bytes}
	for _, w := range part.World {
		part.heap.Base = append(part.heap.Base, r.heap.Base[w])
	}
	if err := part.engines[twoshot].(gpu.Registrar).Register(part.heap); err != nil {
		return err
	}
	for i, e := range part.engines {
		if err := r.runBoth(part, e, r.engines[i]); err != nil {
			return err
		}
	}
	errs := []error{part.engines[twoshot].(gpu.Registrar).Unregister(part.heap)}
	for _, e := range part.engines {
		errs = append(errs, e.Close())
	}
	none, err := r.engines[0].Split(nil)
	if none != nil {
		errs = append(errs, errors.New("a rank in no part got an engine"))
	}
	return errors.Join(append(errs, err, g.Close())...)
}

func (r *rank) runBoth(part *rank, e, whole Tunable) error {
	rng := random(uint64(7 + part.World[0]))
	s := newSpec(rng, part.Size, dist.KindAllReduce, someCombos[0], 5001, 0)
	s.lay(rng, 0, true, false)
	if err := part.run(e, s); err != nil {
		return err
	}
	if err := r.Agree(nil); err != nil {
		return err
	}
	rng = random(8)
	s = newSpec(rng, r.Size, dist.KindAllReduce, someCombos[0], 5001, 0)
	s.lay(rng, 0, false, true)
	return r.run(whole, s)
}

// allocations counts allocations of repeated calls, and logs a call's host cost.
func allocations(r *rank) error {
	const calls = 200
	for _, e := range r.engines {
		for _, kind := range []dist.Kind{dist.KindReduceScatter, dist.KindAllGather, dist.KindAllReduce} {
			for _, bytes := range []int64{8 << 20, 1 << 10} { // the last, an allreduce of 1 KiB, is what is timed below
				op := r.swept(kind, bytes)
				if err := r.countAllocations(e, &op, calls); err != nil {
					return err
				}
			}
		}
		op := r.swept(dist.KindAllReduce, 1<<10)
		op.Red = dist.RedOp{Kind: dist.RedPreMulSum, Scalar: dist.Scalar{DType: tensor.F32, Bits: 0x3f800000}}
		if err := r.countAllocations(e, &op, calls); err != nil {
			return err
		}
	}
	op := r.swept(dist.KindAllReduce, 1<<10)
	for _, e := range r.engines {
		if err := errors.Join(e.Enqueue(&op, r.s), r.s.Synchronize()); err != nil {
			return err
		}
		var err error
		began := time.Now()
		for range calls {
			queue(e, &op, r.s, &err)
		}
		took := time.Since(began) / calls
		if err = errors.Join(err, r.s.Synchronize()); err != nil {
			return err
		}
		if r.Rank == 0 {
			fmt.Printf("%s among %d: a call costs the host %v\n", e.Name(), r.Size, took)
		}
	}
	return nil
}

// countAllocations queues op some times, by when it is kept if it ever is, and then calls times
// more, which allocate nothing.
func (r *rank) countAllocations(e Tunable, op *dist.Op, calls int) error {
	var err error
	for range 3 {
		queue(e, op, r.s, &err)
	}
	if err = errors.Join(err, r.s.Synchronize()); err != nil {
		return err
	}
	if !r.alone { // goroutines allocate beside each other
		for range calls {
			queue(e, op, r.s, &err)
		}
	} else if got := testing.AllocsPerRun(calls-1, func() { queue(e, op, r.s, &err) }); got != 0 {
		err = fmt.Errorf("%s: a call of %v of %d elements allocates %v times", e.Name(), op.Kind, op.Count, got)
	}
	return errors.Join(err, r.s.Synchronize(), r.Agree(nil))
}

// queue queues op as a group does, and keeps the first error.
func queue(e Tunable, op *dist.Op, s *cuda.Stream, first *error) {
	var err error
	if kept := e.(gpu.Keeper).Kept(op, s); kept != nil {
		err = kept.Launch(s)
	} else {
		err = e.Enqueue(op, s)
	}
	if err != nil && *first == nil {
		*first = err
	}
}
