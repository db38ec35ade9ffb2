package nvshmem

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// The library's collectives work directly on buffers in NVSHMEM's heap if the caller sets
// op.Symmetric: the buffers then have the same place on all ranks. Otherwise data goes through the
// staging area in chunks. The choice is equal on all ranks: it depends on op.Symmetric and on
// lengths.

// symmetric reports whether a buffer of op can be passed to the library.
func (e *engine) symmetric(op *dist.Op, b tensor.Buffer) bool {
	return op.Symmetric && e.rt.heap.has(address(b), b.Bytes())
}

// plain reports whether NVSHMEM leaves elements of type dt to NCCL. Its own kernels write to the
// peers' destinations, which must be free when the first rank begins (OpenSHMEM 1.5, section 9.9):
// they need a sync first.
func (e *engine) plain(dt tensor.DType, red dist.RedKind) bool {
	return e.rt.lib.nccl != nil && ofNCCL(dt, red)
}

// teamCall calls p with the team and the stream.
func (e *engine) teamCall(p *dl.Proc, name string, s *cuda.Stream) error {
	if err := e.paced(s); err != nil {
		return err
	}
	rt := e.rt
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.args[0], rt.args[1] = uintptr(e.team.id), s.Handle()
	return rt.queue(p, name, 2)
}

// moved calls p with team, dst, src, a count and the stream.
func (e *engine) moved(p *dl.Proc, name string, s *cuda.Stream, dst, src uintptr, n int64) error {
	if err := e.paced(s); err != nil {
		return err
	}
	rt := e.rt
	rt.mu.Lock()
	defer rt.mu.Unlock()
	a := &rt.args
	a[0], a[1], a[2], a[3], a[4] = uintptr(e.team.id), dst, src, uintptr(n), s.Handle()
	return rt.queue(p, name, 5)
}

// sync queues a synchronization of the team, without memory ordering.
func (e *engine) sync(s *cuda.Stream) error {
	return e.teamCall(&e.rt.lib.t.sync, "nvshmemx_team_sync_on_stream", s)
}

// reduceCall sets dst to the reduction of all src, n elements. dst may be src only with NCCL: with
// four ranks the library's own kernel would add partial results twice.
func (e *engine) reduceCall(s *cuda.Stream, dst, src uintptr, n int64, dt tensor.DType, red dist.RedKind) error {
	if !e.plain(dt, red) {
		if err := e.sync(s); err != nil {
			return err
		}
	}
	return e.moved(&e.rt.red().reduce[dt][red], "on-stream reduce", s, dst, src, n)
}

// scatterCall sets dst to this rank's block of the reduction of all src, n elements a block.
func (e *engine) scatterCall(s *cuda.Stream, dst, src uintptr, n int64, dt tensor.DType, red dist.RedKind) error {
	if !e.plain(dt, red) {
		if err := e.sync(s); err != nil {
			return err
		}
	}
	return e.moved(&e.rt.red().scatter[dt][red], "on-stream reduce-scatter", s, dst, src, n)
}

// native returns the library's reduction that red is built on.
func native(red dist.RedKind) dist.RedKind {
	if red == dist.RedAvg || red == dist.RedPreMulSum {
		return dist.RedSum
	}
	return red
}

// stageInput queues the copy of n elements from src to dst before a reduction; premulsum multiplies
// them by the factor.
func (e *engine) stageInput(op *dist.Op, s *cuda.Stream, dst, src uintptr, n, size int64) error {
	if op.Red.Kind == dist.RedPreMulSum {
		return e.multiply(op, s, dst, src, n)
	}
	return s.Copy(dst, src, n*size)
}

// finish queues the copy of n elements from src to dst after a reduction; avg divides them. src and
// dst may be equal.
func (e *engine) finish(op *dist.Op, s *cuda.Stream, dst, src uintptr, n, size int64) error {
	switch {
	case op.Red.Kind == dist.RedAvg:
		return e.divide(op.DType(), s, dst, src, n)
	case dst == src:
		return nil
	}
	return s.Copy(dst, src, n*size)
}

// reduced returns the staging part for the result of a reduction of the first part.
func (e *engine) reduced(dt tensor.DType, red dist.RedKind) uintptr {
	if e.plain(dt, red) {
		return e.team.area.in()
	}
	return e.team.area.out()
}

func (e *engine) allReduce(op *dist.Op, s *cuda.Stream) error {
	dt, red := op.DType(), native(op.Red.Kind)
	dst, src, in := address(op.Dst), address(op.Src), e.team.area.in()
	size, count := int64(dt.Size()), int64(op.Count)
	direct := e.symmetric(op, op.Dst)
	if direct && op.Red.Kind != dist.RedPreMulSum && e.symmetric(op, op.Src) && (e.plain(dt, red) || dst != src) {
		if err := e.reduceCall(s, dst, src, count, dt, red); err != nil {
			return err
		}
		return e.finish(op, s, dst, dst, count, size)
	}
	for at, step := int64(0), e.team.area.part/size; at < count; at += step {
		n := min(step, count-at)
		off := uintptr(at * size)
		if err := e.stageInput(op, s, in, src+off, n, size); err != nil {
			return err
		}
		to := e.reduced(dt, red)
		if direct {
			to = dst + off
		}
		if err := e.reduceCall(s, to, in, n, dt, red); err != nil {
			return err
		}
		if err := e.finish(op, s, dst+off, to, n, size); err != nil {
			return err
		}
	}
	return nil
}

// reduce is allReduce into the staging area; only root copies the result.
func (e *engine) reduce(op *dist.Op, s *cuda.Stream) error {
	dt, red := op.DType(), native(op.Red.Kind)
	src, in := address(op.Src), e.team.area.in()
	size, count := int64(dt.Size()), int64(op.Count)
	direct := op.Red.Kind != dist.RedPreMulSum && e.symmetric(op, op.Src)
	for at, step := int64(0), e.team.area.part/size; at < count; at += step {
		n := min(step, count-at)
		off := uintptr(at * size)
		from := src + off
		if !direct {
			if err := e.stageInput(op, s, in, from, n, size); err != nil {
				return err
			}
			from = in
		}
		to := e.reduced(dt, red)
		if err := e.reduceCall(s, to, from, n, dt, red); err != nil {
			return err
		}
		if e.rank != op.Root {
			continue
		}
		if err := e.finish(op, s, address(op.Dst)+off, to, n, size); err != nil {
			return err
		}
	}
	return nil
}

// scatterLimit returns the most elements per rank of one reduce-scatter call. NCCL has no limit.
// The library's own kernel keeps those of all ranks in half of its scratch memory, and stops the
// device if they do not fit (reducescatter.cuh).
func (e *engine) scatterLimit(dt tensor.DType, red dist.RedKind) int64 {
	if e.plain(dt, red) {
		return 1 << 40
	}
	return scratchBytes / 2 / int64(e.size*dt.Size())
}

func (e *engine) reduceScatter(op *dist.Op, s *cuda.Stream) error {
	dt, red := op.DType(), native(op.Red.Kind)
	dst, src, a := address(op.Dst), address(op.Src), &e.team.area
	size, count, n := int64(dt.Size()), int64(op.Count), int64(e.size)
	most := e.scatterLimit(dt, red)
	if count <= most && op.Red.Kind != dist.RedPreMulSum && e.symmetric(op, op.Src) {
		to := dst
		if tensor.Overlap(op.Dst, op.Src) || !e.symmetric(op, op.Dst) {
			to = a.out() // in place
		}
		if to == dst || count*size <= a.part {
			if err := e.scatterCall(s, to, src, count, dt, red); err != nil {
				return err
			}
			return e.finish(op, s, dst, to, count, size)
		}
	}
	for at, step := int64(0), min(most, a.part/(n*size)); at < count; at += step {
		m := min(step, count-at)
		for r := range n {
			if err := e.stageInput(op, s, a.in()+uintptr(r*m*size), src+uintptr((r*count+at)*size), m, size); err != nil {
				return err
			}
		}
		if err := e.scatterCall(s, a.out(), a.in(), m, dt, red); err != nil {
			return err
		}
		if err := e.finish(op, s, dst+uintptr(at*size), a.out(), m, size); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) allGather(op *dist.Op, s *cuda.Stream) error {
	dst, src, a := address(op.Dst), address(op.Src), &e.team.area
	bytes, n := op.Src.Bytes(), int64(e.size)
	if !e.plain(tensor.U8, dist.RedSum) {
		return e.allGatherByCopies(s, dst, src, bytes)
	}
	collect := &e.rt.lib.t.collect
	if e.symmetric(op, op.Dst) && e.symmetric(op, op.Src) {
		from := src
		if tensor.Overlap(op.Dst, op.Src) {
			from = a.in() // in place
		}
		if from == src || bytes <= a.part {
			if from != src {
				if err := s.Copy(from, src, bytes); err != nil {
					return err
				}
			}
			return e.moved(collect, "nvshmemx_fcollectmem_on_stream", s, dst, from, bytes)
		}
	}
	for at, step := int64(0), a.part/n; at < bytes; at += step {
		m := min(step, bytes-at)
		if err := s.Copy(a.in(), src+uintptr(at), m); err != nil {
			return err
		}
		if err := e.moved(collect, "nvshmemx_fcollectmem_on_stream", s, a.out(), a.in(), m); err != nil {
			return err
		}
		if err := e.unpack(s, dst+uintptr(at), bytes, m); err != nil {
			return err
		}
	}
	return nil
}

// unpack copies the m bytes of every rank in out to dst, where blocks are stride bytes apart.
func (e *engine) unpack(s *cuda.Stream, dst uintptr, stride, m int64) error {
	out := e.team.area.out()
	if m == stride {
		return s.Copy(dst, out, int64(e.size)*m)
	}
	for r := range int64(e.size) {
		if err := s.Copy(dst+uintptr(r*stride), out+uintptr(r*m), m); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) broadcast(op *dist.Op, s *cuda.Stream) error {
	dst, in, bytes := address(op.Dst), e.team.area.in(), op.Dst.Bytes()
	src := dst
	if e.rank == op.Root {
		src = address(op.Src)
	}
	if !e.plain(tensor.U8, dist.RedSum) {
		return e.broadcastByCopies(s, dst, src, bytes, op.Root)
	}
	if e.symmetric(op, op.Dst) {
		if src != dst && !e.rt.heap.has(src, bytes) {
			if err := s.Copy(dst, src, bytes); err != nil {
				return err
			}
			src = dst
		}
		return e.broadcastCall(s, dst, src, bytes, op.Root)
	}
	for at, step := int64(0), e.team.area.part; at < bytes; at += step {
		m := min(step, bytes-at)
		if e.rank == op.Root {
			if err := s.Copy(in, src+uintptr(at), m); err != nil {
				return err
			}
		}
		if err := e.broadcastCall(s, in, in, m, op.Root); err != nil {
			return err
		}
		if e.rank == op.Root && src == dst {
			continue
		}
		if err := s.Copy(dst+uintptr(at), in, m); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) broadcastCall(s *cuda.Stream, dst, src uintptr, bytes int64, root int) error {
	if err := e.paced(s); err != nil {
		return err
	}
	rt := e.rt
	rt.mu.Lock()
	defer rt.mu.Unlock()
	a := &rt.args
	a[0], a[1], a[2], a[3], a[4], a[5] = uintptr(e.team.id), dst, src, uintptr(bytes), uintptr(root), s.Handle()
	return rt.queue(&rt.lib.t.broadcast, "nvshmemx_broadcastmem_on_stream", 6)
}

func (e *engine) allToAll(op *dist.Op, s *cuda.Stream) error {
	dst, src, a := address(op.Dst), address(op.Src), &e.team.area
	n := int64(e.size)
	bytes := op.Src.Bytes() / n // of one pair of ranks
	if !e.plain(tensor.U8, dist.RedSum) {
		return e.allToAllByCopies(s, dst, src, bytes)
	}
	exchange := &e.rt.lib.t.exchange
	if e.symmetric(op, op.Dst) && e.symmetric(op, op.Src) {
		return e.moved(exchange, "nvshmemx_alltoallmem_on_stream", s, dst, src, bytes)
	}
	for at, step := int64(0), a.part/n; at < bytes; at += step {
		m := min(step, bytes-at)
		for r := range n {
			if err := s.Copy(a.in()+uintptr(r*m), src+uintptr(r*bytes+at), m); err != nil {
				return err
			}
		}
		if err := e.moved(exchange, "nvshmemx_alltoallmem_on_stream", s, a.out(), a.in(), m); err != nil {
			return err
		}
		if err := e.unpack(s, dst+uintptr(at), bytes, m); err != nil {
			return err
		}
	}
	return nil
}
