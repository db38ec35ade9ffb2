package conformance

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// memKind is the kind of memory of a case's buffers.
type memKind uint8

const (
	private memKind = iota // fresh memory of the rank
	shared                 // the symmetric heap
	mixed                  // the heap on even ranks, private on odd ones
	crossed                // source in the heap, destination private
	memKinds
	promised = memKinds // the heap, through a view that promises equal offsets: for devices
)

func (m memKind) String() string {
	return [...]string{"private", "heap", "mixed", "crossed", "heap, promised"}[m]
}

// scenario is one collective with all parameters that vary.
type scenario struct {
	kind    dist.Kind
	dt      tensor.DType
	red     dist.RedKind
	count   int
	root    int
	inPlace bool
	mem     memKind
	data    dataKind
	atHeap  bool // the scalar of premulsum is in memory
	longer  bool // the destination is longer than needed, if that is allowed
}

func (c scenario) String() string {
	text := fmt.Sprintf("%v %v[%d]", c.kind, c.dt, c.count)
	if c.kind.Reduces() {
		text += " " + c.red.String()
		if c.red == dist.RedPreMulSum && c.atHeap {
			text += " (scalar in memory)"
		}
	}
	if c.kind.Rooted() {
		text += fmt.Sprintf(" root %d", c.root)
	}
	if c.inPlace {
		text += " in place"
	}
	return fmt.Sprintf("%s, %v memory, %v data", text, c.mem, c.data)
}

// elements returns the elements that this rank reads and writes in c; -1 without a buffer.
func (s *suite) elements(c scenario) (src, dst int) {
	src, dst = c.count, c.count
	switch c.kind {
	case dist.KindAllGather, dist.KindGather:
		dst = s.n * c.count
	case dist.KindReduceScatter, dist.KindScatter:
		src = s.n * c.count
	case dist.KindAllToAll:
		src, dst = s.n*c.count, s.n*c.count
	}
	if s.rank != c.root {
		switch c.kind {
		case dist.KindReduce, dist.KindGather:
			dst = -1
		case dist.KindBroadcast, dist.KindScatter:
			src = -1
		}
	}
	return src, dst
}

// gather sets column to the ranks' inputs to element i of this rank's destination.
func (s *suite) gather(c scenario, i int, column []uint64) {
	if c.kind == dist.KindReduceScatter {
		i += s.rank * c.count
	}
	for r := range column {
		column[r] = input(c.data, c.dt, c.red, s.n, r, i)
	}
}

// regions returns the regions for source and destination of c on this rank; nil for private memory.
func (s *suite) regions(m memKind) (src, dst symmetric.Region) {
	if s.heap == nil || m == private || m == mixed && s.rank%2 == 1 {
		return nil, nil
	}
	if m == crossed {
		return s.src, nil
	}
	return s.src, s.dst
}

// buffers returns the filled source and the destination of c, and their windows. In place, one
// window holds both.
func (s *suite) buffers(c scenario) (src, dst tensor.Buffer, srcWin, dstWin window, err error) {
	srcLen, dstLen := s.elements(c)
	extra := 0
	if c.longer && c.kind != dist.KindBroadcast && c.kind != dist.KindScatter {
		extra = 3
	}
	srcAt, dstAt := s.regions(c.mem)
	if srcLen >= 0 {
		if srcWin, err = s.window(srcAt, c.dt, srcLen); err != nil {
			return
		}
		src = srcWin.buf
	}
	if dstLen >= 0 {
		if dstWin, err = s.window(dstAt, c.dt, dstLen+extra); err != nil {
			return
		}
		dst = dstWin.buf
	}
	if c.inPlace && srcLen >= 0 && dstLen >= 0 {
		lo := s.rank * c.count
		switch c.kind {
		case dist.KindAllGather, dist.KindGather:
			src, err = dst.Slice(lo, lo+c.count)
		case dist.KindReduceScatter, dist.KindScatter:
			dst, err = src.Slice(lo, lo+c.count)
		default:
			src, err = dst.Slice(0, srcLen)
		}
	}
	if !src.IsZero() {
		s.store(src, s.rows.input(c, s.rank, 0, srcLen))
	}
	return
}

// reduction returns the RedOp of c, with this rank's scalar for premulsum.
func (s *suite) reduction(c scenario) (dist.RedOp, error) {
	red := dist.RedOp{Kind: c.red}
	if c.red != dist.RedPreMulSum {
		return red, nil
	}
	bits := scalar(c.data, c.dt, s.n, s.rank)
	if !c.atHeap {
		red.Scalar = dist.Scalar{DType: c.dt, Bits: bits}
		return red, nil
	}
	at := s.factor
	if _, dst := s.regions(c.mem); s.heap == nil || dst == nil {
		at = nil
	}
	w, err := s.window(at, c.dt, 1)
	if err != nil {
		return red, err
	}
	s.fill(w.buf, func(int) uint64 { return bits })
	return dist.PreMulSumAt(w.buf), nil
}

// try runs c and records faults of its result.
func (s *suite) try(c scenario) error {
	s.cases++
	s.reset()
	src, dst, srcWin, dstWin, err := s.buffers(c)
	if err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	red, err := s.reduction(c)
	if err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	g := s.g
	if c.mem == promised {
		g = g.With(dist.Hints{Symmetric: true})
	}
	if err := finish(issue(g, c.kind, dst, src, red, c.root)); err != nil {
		if s.opt.skips(err) {
			return nil
		}
		return fmt.Errorf("%v: %w", c, err)
	}
	s.judge(c, dst, src, dstWin, srcWin)
	return s.failed()
}

// judge records faults of the result of c and of the memory around it.
func (s *suite) judge(c scenario, dst, src tensor.Buffer, dstWin, srcWin window) {
	srcLen, dstLen := s.elements(c)
	separate := !c.inPlace || srcLen < 0 || dstLen < 0
	within := c.kind == dist.KindReduceScatter || c.kind == dist.KindScatter // in place, the destination is in the source's window
	if dstLen >= 0 {
		err := s.right(c, dst, dstLen)
		if err == nil && (separate || !within) {
			err = dstWin.intact(dstLen)
		}
		if err != nil {
			s.fault("%v: %w", c, err)
		}
	}
	if srcLen >= 0 && (separate || within) {
		var err error
		if separate {
			err = s.equals(src, s.rows.input(c, s.rank, 0, srcLen))
		}
		if err == nil {
			err = srcWin.intact(srcLen)
		}
		if err != nil {
			s.fault("%v: the source was changed: %w", c, err)
		}
	}
}

// right reports the first of the n elements of dst that is not the result of c.
func (s *suite) right(c scenario, dst tensor.Buffer, n int) error {
	switch {
	case s.opt.loose(c):
		return s.near(c, dst, n)
	case s.opt.FMin && c.kind.Reduces() && c.dt.IsFloat() && (c.red == dist.RedMin || c.red == dist.RedMax):
		return s.fmin(c, dst, n)
	}
	return s.equals(dst, s.rows.wanted(c, s.rank)...)
}

func issue(g *dist.Group, kind dist.Kind, dst, src tensor.Buffer, red dist.RedOp, root int) (dist.Work, error) {
	switch kind {
	case dist.KindAllReduce:
		return g.AllReduce(dst, src, red)
	case dist.KindReduce:
		return g.Reduce(dst, src, red, root)
	case dist.KindBroadcast:
		return g.Broadcast(dst, src, root)
	case dist.KindAllGather:
		return g.AllGather(dst, src)
	case dist.KindReduceScatter:
		return g.ReduceScatter(dst, src, red)
	case dist.KindAllToAll:
		return g.AllToAll(dst, src)
	case dist.KindGather:
		return g.Gather(dst, src, root)
	case dist.KindScatter:
		return g.Scatter(dst, src, root)
	case dist.KindBarrier:
		return g.Barrier()
	}
	return g.Sync()
}
