package nvshmem

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Operations that NVSHMEM lacks, and, without NCCL, those whose own kernels have limits. They are
// copies into the peers' staging areas, as is a put on a stream. A sync before ensures that the
// areas are free, and a barrier after that the copies have arrived.

// between queues a sync, the copies, then a barrier.
func (e *engine) between(s *cuda.Stream, copies func() error) error {
	if err := e.sync(s); err != nil {
		return err
	}
	if err := copies(); err != nil {
		return err
	}
	return e.teamCall(&e.rt.lib.t.barrier, "nvshmemx_barrier_on_stream", s)
}

// gather puts every rank's block into root's area, one after the other.
func (e *engine) gather(op *dist.Op, s *cuda.Stream) error {
	dst, src, bytes, a := address(op.Dst), address(op.Src), op.Src.Bytes(), &e.team.area
	for at, step := int64(0), a.part/int64(e.size); at < bytes; at += step {
		m := min(step, bytes-at)
		err := e.between(s, func() error {
			return s.Copy(a.outOf(op.Root)+uintptr(int64(e.rank)*m), src+uintptr(at), m)
		})
		if err == nil && e.rank == op.Root {
			err = e.unpack(s, dst+uintptr(at), bytes, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// scatter puts a block of root's into every rank's area.
func (e *engine) scatter(op *dist.Op, s *cuda.Stream) error {
	dst, src, bytes, a := address(op.Dst), address(op.Src), op.Dst.Bytes(), &e.team.area
	for at, step := int64(0), a.part; at < bytes; at += step {
		m := min(step, bytes-at)
		err := e.between(s, func() error {
			if e.rank != op.Root {
				return nil
			}
			for r := range e.size {
				if err := s.Copy(a.inOf(r), src+uintptr(int64(r)*bytes+at), m); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			err = s.Copy(dst+uintptr(at), a.in(), m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) allGatherByCopies(s *cuda.Stream, dst, src uintptr, bytes int64) error {
	a := &e.team.area
	for at, step := int64(0), a.part/int64(e.size); at < bytes; at += step {
		m := min(step, bytes-at)
		err := e.between(s, func() error {
			for i := range e.size {
				r := (e.rank + i) % e.size // spread over the peers
				if err := s.Copy(a.outOf(r)+uintptr(int64(e.rank)*m), src+uintptr(at), m); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			err = e.unpack(s, dst+uintptr(at), bytes, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) broadcastByCopies(s *cuda.Stream, dst, src uintptr, bytes int64, root int) error {
	a := &e.team.area
	for at, step := int64(0), a.part; at < bytes; at += step {
		m := min(step, bytes-at)
		err := e.between(s, func() error {
			if e.rank != root {
				return nil
			}
			for i := 1; i < e.size; i++ {
				if err := s.Copy(a.inOf((root+i)%e.size), src+uintptr(at), m); err != nil {
					return err
				}
			}
			return nil
		})
		from := a.in()
		if e.rank == root {
			from = src + uintptr(at)
		}
		if to := dst + uintptr(at); err == nil && to != from {
			err = s.Copy(to, from, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// allToAllByCopies is an alltoall of bytes bytes for each pair of ranks.
func (e *engine) allToAllByCopies(s *cuda.Stream, dst, src uintptr, bytes int64) error {
	a := &e.team.area
	for at, step := int64(0), a.part/int64(e.size); at < bytes; at += step {
		m := min(step, bytes-at)
		err := e.between(s, func() error {
			for i := range e.size {
				r := (e.rank + i) % e.size
				if err := s.Copy(a.outOf(r)+uintptr(int64(e.rank)*m), src+uintptr(int64(r)*bytes+at), m); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			err = e.unpack(s, dst+uintptr(at), bytes, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
