package direct

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/tensor"
)

func TestOneRankHasKernelsForFactorsOnly(t *testing.T) {
	for _, u := range unitsOf(1) {
		if progs := u.programs(); u.red != dist.RedPreMulSum || len(progs) != 1 || progs[0] != alone {
			t.Errorf("%v has kernels %v", u, progs)
		}
	}
	if got := len(unitsOf(1)); got != 8 { // 4 types of floats, 4 sizes of integers
		t.Errorf("%d units, want 8", got)
	}
	for _, kind := range collectives {
		for _, red := range dist.RedKinds() {
			op := dist.Op{Kind: kind, Red: dist.RedOp{Kind: red}}
			if got, want := copies(&op), !kind.Reduces() || red != dist.RedPreMulSum; got != want {
				t.Errorf("%v %v copies: %v, want %v", kind, red, got, want)
			}
		}
	}
}

// A launch of one rank has a thread for every 16 bytes, up to some waves, and no more blocks than
// Config.MaxCTAs. It does all of an operation at once, whatever its size.
func TestOneRankFillsTheDevice(t *testing.T) {
	for _, c := range []struct {
		bytes   int
		maxCTAs int
		want    int
	}{{4, 0, 1}, {8 << 10, 0, 1}, {8<<10 + 4, 0, 2}, {1 << 20, 0, 128}, {64 << 20, 0, 1024}, {64 << 20, 8, 8}, {8 << 10, 8, 1}} {
		s := &state{n: 1, p: &gpu.Member{Size: 1}, cfg: Config{MaxCTAs: c.maxCTAs}, most: 115}
		buf := hostBuffer(room(c.bytes), c.bytes/4, tensor.F32)
		op := dist.Op{Kind: dist.KindAllReduce, Count: buf.Len(), Src: buf, Dst: buf, Red: dist.PreMulSum(float32(2))}
		for w := range engineKinds {
			e := s.engine(w).(Tunable)
			if got, want := e.Shape(&op), (Shape{Blocks: c.want, Threads: MaxThreads}); got != want {
				t.Errorf("%s, %d B, at most %d blocks: %v, want %v", e.Name(), c.bytes, c.maxCTAs, got, want)
			}
			l := call{prog: w.programOf(op.Kind, 1, uint64(c.bytes))}
			if l.span, _ = spanOf(&op, 1); l.prog != alone || s.locateBuffers(&op, &l) || maxPiece(l.prog, &l.span, 1, s.board.part(alone), false) < 1<<40 {
				t.Errorf("%s: %d B by program %d, which stages or takes pieces", e.Name(), c.bytes, l.prog)
			}
		}
	}
}

// one is the bits of a factor that changes nothing.
func one(dt tensor.DType) uint64 {
	switch dt {
	case tensor.F16:
		return 0x3c00
	case tensor.BF16:
		return 0x3f80
	case tensor.F32:
		return 0x3f800000
	case tensor.F64:
		return 0x3ff0 << 48
	}
	return 1
}

// oneRank tests a group of one, captured: products by grids of many blocks and of few, factors of
// 1, and copies.
func oneRank(r *rank) error {
	rng := random(10)
	for _, dt := range tensor.DTypes() {
		for i, count := range []int{1, 3, 70001, 1<<20 + 5} {
			for _, inPlace := range []bool{false, true} {
				e := r.engines[i]
				for _, shape := range []Shape{{}, {Blocks: 3, Threads: 96}} {
					if err := errors.Join(e.Force(shape), r.scales(rng, e, dt, count, inPlace), e.Force(Shape{})); err != nil {
						return fmt.Errorf("shape %v: %w", shape, err)
					}
				}
			}
		}
	}
	return errors.Join(r.copied(rng), r.allocatesNothing(), r.clocked())
}

// scales replays a product by any factor, and by 1, once each.
func (r *rank) scales(rng *rand.Rand, e Tunable, dt tensor.DType, count int, inPlace bool) error {
	for _, same := range []bool{false, true} {
		s := newSpec(rng, 1, dist.KindAllReduce, combo{dt, dist.RedPreMulSum}, count, 0)
		if same {
			s.scalars[0] = one(dt)
		}
		s.lay(rng, 0, rng.IntN(2) == 0, inPlace)
		op, err := s.buffers(r)
		if err = errors.Join(err, r.replay(&op, 1, e)); err == nil {
			err = s.check(r, &op)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
		if !same || !inPlace {
			continue
		}
		got := make([]byte, len(s.srcs[0]))
		err = r.Device.CopyToHost(unsafe.Pointer(unsafe.SliceData(got)), uintptr(op.Dst.Pointer()), int64(len(got)))
		if err != nil || !bytes.Equal(got, s.srcs[0]) {
			return fmt.Errorf("%s: %v: a factor of 1 in place changed bits, error %w", e.Name(), s, err)
		}
	}
	return nil
}

// copied captures every operation that has no factor: in place nothing is queued, elsewhere one
// copy.
func (r *rank) copied(rng *rand.Rand) error {
	for i, kind := range collectives {
		for red := dist.RedSum; red < dist.RedPreMulSum; red++ {
			for _, inPlace := range []bool{false, true} {
				s := newSpec(rng, 1, kind, combo{tensor.BF16, red}, 5001, 0)
				s.lay(rng, 0, false, inPlace)
				op, err := s.buffers(r)
				if err != nil {
					return err
				}
				nodes := 1
				if s.inPlace || s.length(true) == 0 {
					nodes = 0
				}
				if err := r.queues(r.engines[i%len(r.engines)], &op, nodes); err != nil {
					return fmt.Errorf("%v: %w", s, err)
				}
				if err := s.check(r, &op); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// queues captures op, of which there must be so many nodes, and runs the graph.
func (r *rank) queues(e Tunable, op *dist.Op, nodes int) error {
	err := errors.Join(r.s.BeginCapture(), e.Enqueue(op, r.s))
	g, e2 := r.s.EndCapture()
	if err = errors.Join(err, e2); err != nil {
		return err
	}
	x, err := g.Instantiate()
	if err != nil {
		return errors.Join(err, g.Close())
	}
	n, err := g.Nodes()
	if n != nodes {
		err = errors.Join(err, fmt.Errorf("%s queued %d things, want %d", e.Name(), n, nodes))
	}
	return errors.Join(err, x.Launch(r.s), r.s.Synchronize(), x.Close(), g.Close())
}

// allocatesNothing counts the allocations of a product and of a copy.
func (r *rank) allocatesNothing() error {
	if !r.alone { // goroutines allocate beside each other
		return nil
	}
	a, b := deviceBuffer(r.private, 256, tensor.F32, r), deviceBuffer(r.private+4096, 256, tensor.F32, r)
	for _, red := range []dist.RedOp{dist.Sum, dist.PreMulSum(float32(2))} {
		op := dist.Op{Kind: dist.KindAllReduce, Count: 256, Src: a, Dst: b, Red: red}
		var err error
		got := testing.AllocsPerRun(100, func() { queue(r.engines[tiles], &op, r.s, &err) })
		if err = errors.Join(err, r.s.Synchronize()); err != nil || got != 0 {
			return fmt.Errorf("%v in a group of one allocates %v times, error %w", red, got, err)
		}
	}
	return nil
}

// clocked logs the time of products of 64 MiB in place, by a factor in the device's memory.
func (r *rank) clocked() error {
	const bytes, rounds = 64 << 20, 50
	buf, at := deviceBuffer(r.private, bytes/4, tensor.F32, r), r.private+bytes
	from, err := r.Device.NewTimer()
	to, e2 := r.Device.NewTimer()
	err = errors.Join(err, e2, r.Device.Fill(r.private, 0, bytes))
	for _, factor := range []uint64{one(tensor.F32), one(tensor.F32) ^ 1} {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], factor)
		op := dist.Op{Kind: dist.KindAllReduce, Count: buf.Len(), Src: buf, Dst: buf, Red: dist.PreMulSumAt(deviceBuffer(at, 1, tensor.F32, r))}
		err = errors.Join(err, r.Device.CopyFromHost(at, unsafe.Pointer(&b), 4), r.s.Record(from))
		for range rounds {
			queue(r.engines[twoshot], &op, r.s, &err)
		}
		if err = errors.Join(err, r.s.Record(to), r.s.Synchronize()); err != nil {
			return err
		}
		took, err := to.Since(from)
		if err != nil {
			return err
		}
		fmt.Printf("one rank: 64 MiB of f32 in place, factor %#x: %v\n", factor, took/rounds)
	}
	return errors.Join(from.Close(), to.Close())
}
