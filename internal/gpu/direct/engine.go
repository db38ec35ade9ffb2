package direct

import (
	"cmp"
	"fmt"
	"sync/atomic"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// arguments is the number of kernel arguments: PARAMETERS in kernels/common.cu.
const arguments = 24

// Engine is one of the engines that Names lists. It queues kernels of this package.
type Engine struct {
	s      *state
	way    engineKind
	shapes *shapes
	forced Shape
	closed atomic.Bool
}

// Tunable is an engine whose launches can be shaped; all of Make's are.
type Tunable interface {
	gpu.Engine
	gpu.Native // packets do an operation without an algorithm of this engine
	// Shape returns the shape in which the engine would launch op.
	Shape(op *dist.Op) Shape
	// Shapes returns the shapes that a tuner tries.
	Shapes() []Shape
	// Force sets the shape of all later launches; the zero Shape ends that. Same on all ranks.
	// Errors: dist.ErrInvalid.
	Force(s Shape) error
}

var (
	_ Tunable       = (*Engine)(nil)
	_ gpu.Registrar = (*placed)(nil)
	_ gpu.Aside     = (*Engine)(nil)
	_ gpu.Keeper    = (*Engine)(nil)
)

// placed is an Engine that uses the data in place, in slabs that are registered with it.
type placed struct{ *Engine }

// Make returns the gpu.Maker of this package's engines, in the order of Names. It compiles and
// loads every kernel that they can need, so that no operation waits for that. With an empty cache
// this takes a minute of one core in all, which the ranks share. The groups of one Maker, and their
// parts, share loaded kernels.
func Make(cfg Config) gpu.Maker {
	kernels := new(shelf)
	return func(p *gpu.Member) ([]gpu.Engine, error) {
		s, err := newState(p, cfg, kernels)
		if err != nil {
			return nil, err
		}
		engines := make([]gpu.Engine, engineKinds)
		for w := range engineKinds {
			engines[w] = s.engine(w)
		}
		return engines, nil
	}
}

func (s *state) engine(w engineKind) gpu.Engine {
	s.engines.Add(1)
	e := &Engine{s: s, way: w, shapes: newShapes(w, s.n, s.most, s.cfg.Shapes).within(s.cfg.mostBlocks())}
	if w == twoshot || w == tiles || w == copier {
		return &placed{e}
	}
	return e
}

// Name implements gpu.Engine.
func (e *Engine) Name() string { return e.way.name() }

// Native implements gpu.Native.
func (e *Engine) Native(kind dist.Kind) bool { return e.way.native(kind) }

// Forget implements gpu.Keeper.
func (e *Engine) Forget() { e.s.kept.forget() }

// Kept implements gpu.Keeper.
func (e *Engine) Kept(op *dist.Op, s *cuda.Stream) *cuda.Kept {
	st := e.s
	if st.aborted.Load() || !st.keepsOn(s) {
		return nil
	}
	key := keyOf(e.way, op)
	return st.kept.of(&key)
}

// Can implements gpu.Engine. All collective operations are possible, of all types and reductions;
// messages are not.
func (e *Engine) Can(op *dist.Op) error {
	if _, ok := spanOf(op, e.s.n); !ok {
		return fmt.Errorf("%w: engine %q does collective operations only, no %v", dist.ErrUnsupported, e.Name(), op.Kind)
	}
	if op.Kind.Reduces() && op.Red.Kind.Bitwise() && op.DType().IsFloat() {
		return fmt.Errorf("%w: engine %q combines the bits of integers only, not of %v", dist.ErrUnsupported, e.Name(), op.DType())
	}
	return nil
}

// Shape implements Tunable.
func (e *Engine) Shape(op *dist.Op) Shape {
	if e.forced.Blocks > 0 {
		return e.forced
	}
	if int(op.Kind) >= len(e.shapes) {
		return greetShape
	}
	if e.s.n == 1 {
		return aloneShape(uint64(gpu.Size(op, 1)), cmp.Or(e.s.cfg.MaxCTAs, aloneBlocks))
	}
	return e.shapes[op.Kind][sizeClass(uint64(gpu.Size(op, e.s.n)))]
}

// Shapes implements Tunable.
func (e *Engine) Shapes() []Shape { return e.way.sweepShapes() }

// Force implements Tunable.
func (e *Engine) Force(s Shape) error {
	if s != (Shape{}) {
		if err := s.validate(); err != nil {
			return err
		}
		s.Blocks = min(s.Blocks, e.s.most, e.s.cfg.mostBlocks())
	}
	e.forced = s
	e.Forget()
	return nil
}

// call has the arguments of one operation for its launches.
type call struct {
	prog               program
	span               span
	src, dst           uintptr
	srcPlace, dstPlace uint64
	scalar             uint64
	scalarAt           uintptr
	keep               bool // cache the launch if it repeats
	key                keptKey
}

// Enqueue implements gpu.Engine.
func (e *Engine) Enqueue(op *dist.Op, s *cuda.Stream) error {
	st := e.s
	if st.aborted.Load() {
		return errAborted
	}
	l := call{src: uintptr(op.Src.Pointer()), dst: uintptr(op.Dst.Pointer())}
	var ok bool
	if l.span, ok = spanOf(op, st.n); !ok {
		return e.Can(op)
	}
	l.prog = e.way.programOf(op.Kind, st.n, l.span.block)
	if l.prog == alone && copies(op) {
		return st.copy(op, &l, s)
	}
	if op.Kind.Reduces() {
		l.scalar = op.Red.Scalar.Bits
		if !op.Red.Scalar.At.IsZero() {
			l.scalarAt = uintptr(op.Red.Scalar.At.Pointer())
		}
	}
	if e.way == copier {
		if done, err := e.byCopies(op, &l, s); done || err != nil {
			return err
		}
	}
	staged := st.locateBuffers(op, &l)
	shape := e.Shape(op)
	if l.keep = gpu.Size(op, st.n) <= mostKept && st.keepsOn(s); l.keep {
		l.key = keyOf(e.way, op)
	}
	v := variantOf(l.prog, st.n, op)
	p := st.board.part(l.prog)
	most := maxPiece(l.prog, &l.span, st.n, p, staged)
	l.keep = l.keep && l.span.block <= most
	for off := uint64(0); ; off += most {
		q := pieceOf(l.prog, &l.span, st.n, min(most, l.span.block-off))
		if err := st.launch(v, &l, &q, off, p, shape, s); err != nil {
			return st.fail(op, err)
		}
		if off+q.bytes >= l.span.block {
			return nil
		}
	}
}

// byCopies queues an operation by copy engines, and reports whether they can do it.
func (e *Engine) byCopies(op *dist.Op, l *call, s *cuda.Stream) (bool, error) {
	st := e.s
	c, ok := st.copying(op, l)
	if !ok {
		return false, nil
	}
	m := &st.mover
	*m = copyMover{
		s: st, stream: s, lane: s, opening: variantOf(onceShort, st.n, op), adding: variantOf(combine, st.n, op), call: *l,
		shape: e.Shape(op),
	}
	if err := c.run(op.Kind, m); err != nil {
		return true, st.fail(op, err)
	}
	if op.Kind == dist.KindAllGather {
		st.adder.number = op.Seq // the next all-gather may follow this one without a meeting: see along.View
	}
	return true, nil
}

// launch queues the kernel v for piece q of l, which begins off bytes into each rank's block.
func (s *state) launch(v variant, l *call, q *piece, off uint64, p part, shape Shape, stream *cuda.Stream) error {
	f, err := s.kernels.of(v)
	if err != nil {
		return err
	}
	l.prog = v.prog
	if l.span.flags &^= flagNext; s.mayOverlap(v, q, shape) {
		l.span.flags |= flagNext
	}
	words := s.words(l, q, off, p, shape)
	s.args.Reset()
	for _, w := range words {
		s.args.U64(w)
	}
	grid := cuda.Launch{Grid: [3]uint32{uint32(shape.Blocks), 1, 1}, Block: [3]uint32{uint32(shape.Threads), 1, 1}}
	if l.keep {
		if done, err := s.kept.launch(&l.key, f, grid, s.args, stream); done || err != nil {
			return err
		}
	}
	grid.Early = v.prog != alone
	return f.Launch(stream, grid, s.args)
}

// keepsOn reports whether launches on stream are cached. A capture could record the old arguments
// of a cached launch. Only the driver knows whether a stream of another library is captured.
func (s *state) keepsOn(stream *cuda.Stream) bool {
	return s.kept.on && !stream.Borrowed() && !stream.Recording()
}

// mayOverlap reports whether the next launch may begin before this one ends.
func (s *state) mayOverlap(v variant, q *piece, shape Shape) bool {
	return v.prog != alone && shape.Blocks <= earlyBlocks && q.bytes <= earlyBytes && 2*earlyBlocks <= s.most && s.cfg.MaxCTAs == 0
}

// locateBuffers finds the buffers, and reports whether data may need staging. Ranks must agree on
// that, so without op.Symmetric it assumes staging. It changes l.prog if the locations do not fit
// the kernel.
func (s *state) locateBuffers(op *dist.Op, l *call) (staged bool) {
	if l.prog == tileAll {
		l.dstPlace = s.placeOf(l.dst, uint64(op.Dst.Bytes()))
		l.prog = l.prog.apart(op.Symmetric, l.dstPlace)
	}
	if !l.prog.meets() {
		return false
	}
	src, dst := l.prog.needs()
	staged = !op.Symmetric || op.Kind.Rooted()
	if src {
		l.srcPlace = s.placeOf(l.src, uint64(op.Src.Bytes()))
		staged = staged || l.srcPlace == 0
	}
	if dst && l.span.receivers>>s.p.Rank&1 != 0 {
		l.dstPlace = s.placeOf(l.dst, uint64(op.Dst.Bytes()))
		staged = staged || l.dstPlace == 0
	}
	return staged
}

// words returns the kernel's arguments for piece q of l, which begins off bytes into each rank's
// block.
func (s *state) words(l *call, q *piece, off uint64, p part, shape Shape) (w [arguments]uint64) {
	w[0] = uint64(s.slab.Base[s.p.Rank]) // this rank's board, then those of the others in order
	for r, base := range s.slab.Base {
		if r < s.p.Rank {
			w[r+1] = uint64(base)
		} else if r > s.p.Rank {
			w[r] = uint64(base)
		}
	}
	srcStride, dstStride := l.span.srcStride, l.span.dstStride
	if q.stride != 0 {
		srcStride, dstStride = q.stride, q.stride
	}
	slice := q.bytes
	if l.prog == tileAll {
		slice = q.stride
	}
	copy(w[MaxRanks:], []uint64{
		uint64(s.local), uint64(s.stop.at),
		shifted(uint64(l.src), off), shifted(uint64(l.dst), off), shifted(l.srcPlace, off), shifted(l.dstPlace, off),
		q.bytes, srcStride, dstStride, q.slot, p.at, p.half, l.scalar, uint64(l.scalarAt), l.span.who(s.p.Rank),
		tilingOf(shape, s.n, slice, p.half),
	})
	return w
}

// shifted returns p + off, or 0 if p is 0.
func shifted(p, off uint64) uint64 {
	if p == 0 {
		return 0
	}
	return p + off
}

// fail records the first error of the driver or the compiler.
func (s *state) fail(op *dist.Op, err error) error {
	err = fmt.Errorf("direct: %v rank %d/%d (%d B): %w", op.Kind, s.p.Rank, s.n, op.Bytes(), err)
	s.failed.CompareAndSwap(nil, &err)
	return err
}

// Failed implements gpu.Engine.
func (e *Engine) Failed() error {
	if err := e.s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Abort implements gpu.Engine: kernels that wait for a peer read a word of the host now and then,
// and end.
func (e *Engine) Abort() { e.s.abort() }

// Split implements gpu.Engine. The engines of one group share a state, and so do their parts.
func (e *Engine) Split(sub *gpu.Member) (gpu.Engine, error) {
	if sub == nil {
		return nil, nil //nolint:nilnil // no part here is no error
	}
	st := e.s
	if st.division.of != sub {
		part, err := newState(sub, st.cfg, st.shelf)
		if err != nil {
			return nil, err
		}
		st.division = division{sub, part}
	}
	return st.division.part.engine(e.way), nil
}

// Close implements gpu.Engine.
func (e *Engine) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	return e.s.leave()
}

// Register implements gpu.Registrar.
func (e *placed) Register(s *gpu.Slab) error { return e.s.register(s) }

// Unregister implements gpu.Registrar.
func (e *placed) Unregister(s *gpu.Slab) error {
	e.s.unregister(s)
	return nil
}
