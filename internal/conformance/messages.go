package conformance

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// messages tests sends and receives, alone and in group calls.
func (s *suite) messages() error {
	for _, dt := range tensor.DTypes() {
		for _, count := range []int{0, 1, 13, s.opt.large()} {
			if count > 13 && dt != tensor.F32 && dt != tensor.I8 {
				continue
			}
			for _, mem := range []memKind{private, shared, mixed, crossed} {
				if err := s.ring(dt, count, mem); err != nil {
					return err
				}
			}
		}
	}
	for _, step := range []func() error{s.chain, s.inOrder, s.everyPair, s.toOneself} {
		if err := s.allowed(step()); err != nil {
			return err
		}
	}
	return nil
}

// both queues a send and a receive as one group call and waits.
func (s *suite) both(src tensor.Buffer, to int, dst tensor.Buffer, from int) error {
	return finish(s.g.Batch(func(g *dist.Group) error {
		if _, err := g.Send(src, to); err != nil {
			return err
		}
		_, err := g.Recv(dst, from)
		return err
	}))
}

// ring: every rank sends to the next and receives from the previous one, in a world of one from
// itself.
func (s *suite) ring(dt tensor.DType, count int, mem memKind) error {
	label := fmt.Sprintf("ring of %v[%d], %v memory", dt, count, mem)
	s.reset()
	srcAt, dstAt := s.regions(mem)
	src, err := s.window(srcAt, dt, count)
	if err != nil {
		return err
	}
	dst, err := s.window(dstAt, dt, count)
	if err != nil {
		return err
	}
	from := (s.rank + s.n - 1) % s.n
	s.fill(src.buf, func(i int) uint64 { return hash(s.rank, i, 1) & mask(dt) })
	if err := s.both(src.buf, (s.rank+1)%s.n, dst.buf, from); s.opt.skips(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("%s: %w", label, err)
	}
	err = errors.Join(dst.intact(count), src.intact(count),
		s.holds(dst.buf, count, func(i int) uint64 { return hash(from, i, 1) & mask(dt) }),
		s.holds(src.buf, count, func(i int) uint64 { return hash(s.rank, i, 1) & mask(dt) }))
	if err != nil {
		s.fault("%s: %w", label, err)
	}
	return nil
}

// chain: each rank receives from the previous one and then sends to the next, without group calls.
func (s *suite) chain() error {
	token := of(s.space, int32(7), 0)
	if s.rank > 0 {
		if err := finish(s.g.Recv(token.buf, s.rank-1)); err != nil {
			return err
		}
	}
	if got := token.pull(); got[0] != 7 || got[1] != int32(s.rank) {
		s.fault("chain: rank %d has %v", s.rank, got)
	}
	token.set(1, int32(s.rank+1))
	if s.rank == s.n-1 {
		return nil
	}
	return finish(s.g.Send(token.buf, s.rank+1))
}

// inOrder: messages between two ranks arrive in the order in which they were sent, for all lengths.
func (s *suite) inOrder() error {
	const messages = 40
	if s.n == 1 || s.rank > 1 {
		return nil
	}
	for i := range messages {
		data := zeros[int16](s.space, i%5)
		if s.rank == 0 {
			for j := range data.x {
				data.x[j] = int16(100*i + j)
			}
			data.push()
			if err := finish(s.g.Send(data.buf, 1)); err != nil {
				return err
			}
			continue
		}
		if err := finish(s.g.Recv(data.buf, 0)); err != nil {
			return err
		}
		for j, v := range data.pull() {
			if v != int16(100*i+j) {
				s.fault("message %d of %d: element %d is %d, want %d", i, messages, j, v, 100*i+j)
			}
		}
	}
	return nil
}

// everyPair: all ranks send several messages to all ranks, including themselves, concurrently.
func (s *suite) everyPair() error {
	const each = 3
	in, out := make([]array[uint32], s.n*each), make([]array[uint32], s.n*each)
	err := finish(s.g.Batch(func(g *dist.Group) error {
		for k := range each {
			for peer := range s.n {
				at := k*s.n + peer
				out[at], in[at] = of(s.space, uint32(1000*s.rank+10*peer+k)), of(s.space, uint32(0))
				if _, err := g.Recv(in[at].buf, peer); err != nil {
					return err
				}
				if _, err := g.Send(out[at].buf, peer); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	if err != nil {
		return err
	}
	for at := range in {
		if got, want := in[at].pull()[0], uint32(1000*(at%s.n)+10*s.rank+at/s.n); got != want {
			s.fault("message %d from rank %d is %d, want %d", at/s.n, at%s.n, got, want)
		}
	}
	return nil
}

// toOneself: a send to the own rank works in a group call.
func (s *suite) toOneself() error {
	src, dst := of(s.space, 1.5, -2), zeros[float64](s.space, 2)
	if err := s.both(src.buf, s.rank, dst.buf, s.rank); err != nil {
		return err
	}
	if got := dst.pull(); got[0] != 1.5 || got[1] != -2 {
		s.fault("message to oneself: %v, want %v", got, src.x)
	}
	return nil
}

// batches tests group calls with several kinds of operation.
func (s *suite) batches() error {
	next, before := (s.rank+1)%s.n, (s.rank+s.n-1)%s.n
	sum, all := of(s.space, int32(s.rank)), zeros[int32](s.space, s.n)
	token, got := of(s.space, int32(10*s.rank)), of(s.space, int32(-1))
	w, err := s.g.Batch(func(g *dist.Group) error {
		if _, err := g.Send(token.buf, next); err != nil {
			return err
		}
		if _, err := g.AllReduce(sum.buf, sum.buf, dist.Sum); err != nil {
			return err
		}
		inner, err := g.Batch(func(g *dist.Group) error { // nested: part of the outer call
			_, err := g.AllGather(all.buf, sum.buf)
			return err
		})
		if err != nil || !inner.Done() {
			return fmt.Errorf("nested group call: done %v, error %w", inner.Done(), err)
		}
		_, err = g.Recv(got.buf, before)
		return err
	})
	if err := finish(w, err); s.opt.skips(err) {
		return s.emptyBatches(sum)
	} else if err != nil {
		return err
	}
	total := int32(s.n * (s.n - 1) / 2)
	if x, m := sum.pull()[0], got.pull()[0]; x != total || m != int32(10*before) {
		s.fault("group call: sum %d, want %d; message %d, want %d", x, total, m, 10*before)
	}
	for r, v := range all.pull() {
		if v != total {
			s.fault("group call: allgather after allreduce has %d from rank %d, want %d", v, r, total)
		}
	}
	return s.emptyBatches(sum)
}

// emptyBatches: group calls that queue nothing, because they are empty or contain an error.
func (s *suite) emptyBatches(x array[int32]) error {
	w, err := s.g.Batch(func(*dist.Group) error { return nil })
	if err := finish(w, err); err != nil {
		return err
	}
	own := errors.New("the caller's own")
	_, err = s.g.Batch(func(g *dist.Group) error {
		if _, err := g.AllReduce(x.buf, x.buf, dist.Sum); err != nil {
			return err
		}
		return own
	})
	s.expect("group call whose function fails", err, own)
	_, err = s.g.Batch(func(g *dist.Group) error {
		if _, err := g.AllReduce(x.buf, x.buf, dist.Sum); err != nil {
			return err
		}
		_, err := g.Recv(x.buf, s.n)
		return err
	})
	s.expect("group call with a wrong peer", err, dist.ErrRoot)
	return s.allowed(finish(s.g.Barrier()))
}
