package nvshmem

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// placement says which memory the buffers of a case are in.
type placement struct {
	name      string
	symmetric bool // in the heap, at the same offsets, and the operation says so
	mixed     bool // even ranks in the heap, odd ones private, without the promise
	inPlace   bool
}

var placements = []placement{
	{"symmetric", true, false, false},
	{"symmetric in place", true, false, true},
	{"private", false, false, false},
	{"private in place", false, false, true},
	{"mixed", false, true, false},
}

// bench holds the engine and buffers for the cases of one rank.
type bench struct {
	r       *rank
	e       *engine
	rank, n int // in the engine's group
	stream  *cuda.Stream
	heap    room // symmetric
	private room
	half    int64 // offset of the sources; destinations begin at 0
	cases   int
	slab    *gpu.Slab
}

// newBench has room for destinations of bytes bytes, and sources.
func newBench(r *rank, rt *Runtime, e *engine, bytes int64) (*bench, error) {
	b := &bench{r: r, e: e, rank: e.rank, n: e.size, half: roundUp(bytes, 4096)}
	slab, err := rt.Alloc(r.member, 2*b.half+4096)
	if err != nil {
		return nil, err
	}
	b.slab = slab
	b.heap = room{r.dev, slab.Base[r.me()]}
	b.private.dev = r.dev
	if b.private.base, err = r.dev.Alloc(2*b.half + 4096); err != nil {
		return nil, err
	}
	if b.stream, err = r.dev.NewStream(0); err != nil {
		return nil, err
	}
	return b, nil
}

// of is the same bench for another engine.
func (b *bench) of(e *engine) *bench {
	c := *b
	c.e, c.rank, c.n, c.cases = e, e.rank, e.size, 0
	return &c
}

func (b *bench) close() error {
	return errors.Join(b.stream.Synchronize(), b.stream.Close(), b.r.dev.Free(b.private.base), b.slab.Free())
}

// example is one case: an operation, where its buffers lie, and how long it is.
type example struct {
	kind  dist.Kind
	dt    tensor.DType
	red   dist.RedKind
	count int
	root  int
	at    placement
	onGPU bool // the scalar of a premulsum is in memory
}

func (x example) String() string {
	s := fmt.Sprintf("%v %v", x.kind, x.dt)
	if x.kind.Reduces() {
		s += " " + x.red.String()
	}
	if x.kind.Rooted() {
		s += fmt.Sprintf(" root %d", x.root)
	}
	if x.onGPU {
		s += ", scalar on the GPU"
	}
	return fmt.Sprintf("%s, %d elements, %s", s, x.count, x.at.name)
}

// shape is how many elements source and destination have here, where in place puts the source in
// the destination (or, for reduce-scatter and scatter, the destination in the source), and whether
// this rank has them.
func (b *bench) shape(x example) (src, dst, shift int, hasSrc, hasDst bool) {
	c, n, isRoot := x.count, b.n, b.rank == x.root
	switch x.kind {
	case dist.KindReduce:
		return c, c, 0, true, isRoot
	case dist.KindBroadcast:
		return c, c, 0, isRoot, true
	case dist.KindAllGather:
		return c, n * c, b.rank * c, true, true
	case dist.KindReduceScatter:
		return n * c, c, -b.rank * c, true, true
	case dist.KindAllToAll:
		return n * c, n * c, 0, true, true
	case dist.KindGather:
		return c, n * c, x.root * c, true, isRoot
	case dist.KindScatter:
		return n * c, c, -x.root * c, isRoot, true
	}
	return c, c, 0, true, true // allreduce
}

// given returns element i of a rank's source.
func (b *bench) given(x example, rank, i int) int {
	if x.kind.Reduces() {
		return value(x.red, b.n, rank, i)
	}
	return (rank*31 + i*7 + 3) % 100
}

// wanted is element i of this rank's destination.
func (b *bench) wanted(x example, i int) int {
	c := x.count
	switch x.kind {
	case dist.KindAllReduce, dist.KindReduce:
		return reduced(x.red, b.n, i)
	case dist.KindReduceScatter:
		return reduced(x.red, b.n, b.rank*c+i)
	case dist.KindAllGather, dist.KindGather:
		return b.given(x, i/c, i%c)
	case dist.KindAllToAll:
		return b.given(x, i/c, b.rank*c+i%c)
	case dist.KindScatter:
		return b.given(x, x.root, b.rank*c+i)
	}
	return b.given(x, x.root, i)
}

// op is the operation of an example, with its source filled and its destination wiped.
func (b *bench) op(x example) (*dist.Op, room, error) {
	src, dst, shift, hasSrc, hasDst := b.shape(x)
	m := b.private
	if x.at.symmetric || x.at.mixed && b.rank%2 == 0 {
		m = b.heap
	}
	srcAt, dstAt, size := b.half, int64(0), int64(x.dt.Size())
	if x.at.inPlace { // where a rank has one buffer only, that is where it lies on root
		if shift >= 0 {
			srcAt = dstAt + int64(shift)*size
		} else {
			dstAt = srcAt + int64(-shift)*size
		}
	}
	if !hasSrc {
		srcAt = -1
	}
	if !hasDst {
		dstAt = -1
	}
	op := &dist.Op{Kind: x.kind, Root: x.root, Count: x.count, Symmetric: x.at.symmetric, Red: dist.RedOp{Kind: x.red}}
	var err1, err2 error
	op.Src, err1 = m.buffer(x.dt, srcAt, src)
	op.Dst, err2 = m.buffer(x.dt, dstAt, dst)
	if err := errors.Join(err1, err2); err != nil {
		return nil, m, err
	}
	if x.kind.Reduces() && x.red == dist.RedPreMulSum {
		if err := b.scalar(x, m, &op.Red.Scalar); err != nil {
			return nil, m, err
		}
	}
	err1 = m.write(op.Dst, elements(x.dt, op.Dst.Len(), func(int) int { return 77 }))
	err2 = m.write(op.Src, elements(x.dt, op.Src.Len(), func(i int) int { return b.given(x, b.rank, i) }))
	return op, m, errors.Join(err1, err2)
}

// scalar sets this rank's factor.
func (b *bench) scalar(x example, m room, s *dist.Scalar) error {
	bits := encode(x.dt, factor(b.rank))
	s.DType = x.dt
	if !x.onGPU {
		s.Bits = bits
		return nil
	}
	at, err := m.buffer(x.dt, 2*b.half, 1)
	if err != nil {
		return err
	}
	s.At = at
	raw := make([]byte, x.dt.Size())
	put(raw, x.dt, 0, bits)
	return m.write(at, raw)
}

// run does an example and compares.
func (b *bench) run(x example) error {
	b.cases++
	op, m, err := b.op(x)
	if err != nil {
		return fmt.Errorf("%v: %w", x, err)
	}
	if err := b.e.Can(op); err != nil {
		return fmt.Errorf("%v: %w", x, err)
	}
	if err := b.r.dev.Enter(); err != nil {
		return err
	}
	defer b.r.dev.Leave()
	if err := b.e.Enqueue(op, b.stream); err != nil {
		return fmt.Errorf("%v: %w", x, err)
	}
	if err := b.stream.Synchronize(); err != nil {
		return fmt.Errorf("%v: %w", x, err)
	}
	return b.compare(x, op, m)
}

// compare looks at the destination, and at the source where it must have been left alone.
func (b *bench) compare(x example, op *dist.Op, m room) error {
	if !op.Dst.IsZero() {
		got, err := m.read(op.Dst)
		if err != nil {
			return err
		}
		if err := differ(x.String(), x.dt, got, elements(x.dt, op.Dst.Len(), func(i int) int { return b.wanted(x, i) })); err != nil {
			return err
		}
	}
	if op.Src.IsZero() || tensor.Overlap(op.Src, op.Dst) {
		return nil
	}
	got, err := m.read(op.Src)
	if err != nil {
		return err
	}
	return differ(x.String()+", source afterwards", x.dt, got, elements(x.dt, op.Src.Len(), func(i int) int { return b.given(x, b.rank, i) }))
}

var reducing = []dist.Kind{dist.KindAllReduce, dist.KindReduce, dist.KindReduceScatter}

var copying = []dist.Kind{dist.KindBroadcast, dist.KindAllGather, dist.KindAllToAll, dist.KindGather, dist.KindScatter}

// all runs every operation, type, reduction and placement at some lengths. The lengths of few run
// for each of them, those of many for some.
func (b *bench) all(few, many []int) error {
	for _, kind := range reducing {
		for _, dt := range tensor.DTypes() {
			for red := dist.RedSum; red <= dist.RedPreMulSum; red++ {
				for _, at := range placements {
					for _, count := range few {
						x := example{kind: kind, dt: dt, red: red, count: count, root: b.cases % b.n, at: at, onGPU: b.cases%2 == 1}
						if err := b.run(x); err != nil {
							return err
						}
					}
				}
			}
		}
		for _, at := range placements {
			for i, count := range many {
				dt := []tensor.DType{tensor.F32, tensor.BF16, tensor.I16, tensor.I64}[i%4]
				for _, red := range []dist.RedKind{dist.RedSum, dist.RedPreMulSum, dist.RedAvg} {
					if err := b.run(example{kind: kind, dt: dt, red: red, count: count, root: b.n - 1, at: at}); err != nil {
						return err
					}
				}
			}
		}
	}
	return b.copies(append(append([]int(nil), few...), many...))
}

// copies runs every operation that moves elements as they are.
func (b *bench) copies(counts []int) error {
	for _, kind := range copying {
		for _, at := range placements {
			if at.inPlace && kind == dist.KindAllToAll {
				continue
			}
			for i, count := range counts {
				dt := []tensor.DType{tensor.U8, tensor.F32, tensor.F64, tensor.I16}[i%4]
				for _, root := range []int{0, b.n - 1} {
					if err := b.run(example{kind: kind, dt: dt, count: count, root: root, at: at}); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// meet runs barriers and syncs.
func (b *bench) meet() error {
	if err := b.r.dev.Enter(); err != nil {
		return err
	}
	defer b.r.dev.Leave()
	for range 3 {
		for _, kind := range []dist.Kind{dist.KindBarrier, dist.KindSync} {
			if err := b.e.Enqueue(&dist.Op{Kind: kind}, b.stream); err != nil {
				return err
			}
		}
	}
	return b.stream.Synchronize()
}

// small is settings under which a few thousand elements take several chunks.
func small() Config { return Config{StagingBytes: 64 << 10, TeamStagingBytes: 64 << 10, MaxTeams: 24} }

func collectives(r *rank) error { return everything(r, small()) }

func withoutNCCL(r *rank) error {
	c := small()
	c.DisableNCCL = true
	return everything(r, c)
}

func everything(r *rank, c Config) error {
	rt, e, err := r.started(c)
	if err != nil {
		return err
	}
	fmt.Println(rt.Library())
	const most = 50001
	b, err := newBench(r, rt, e, int64(8*most*r.n()))
	if err != nil {
		return err
	}
	if err := b.all([]int{1, 1000}, []int{7, 8192, 20011, most}); err != nil {
		return err
	}
	if err := b.meet(); err != nil {
		return err
	}
	fmt.Println(b.cases, "cases")
	return errors.Join(b.close(), e.Close(), rt.Close())
}
