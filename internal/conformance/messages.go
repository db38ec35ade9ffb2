package conformance

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// messages is sends and receives, alone and in group calls.
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
		if err := step(); err != nil {
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

// ring: everybody sends to the next rank and receives from the one before, itself in a world of one.
func (s *suite) ring(dt tensor.DType, count int, mem memKind) error {
	label := fmt.Sprintf("ring of %v[%d], %v memory", dt, count, mem)
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
	fill(src.buf, func(i int) uint64 { return hash(s.rank, i, 1) & mask(dt) })
	if err := s.both(src.buf, (s.rank+1)%s.n, dst.buf, from); err != nil {
		return fmt.Errorf("%s: %w", label, err)
	}
	err = errors.Join(dst.intact(count), src.intact(count),
		holds(dst.buf, count, func(i int) uint64 { return hash(from, i, 1) & mask(dt) }),
		holds(src.buf, count, func(i int) uint64 { return hash(s.rank, i, 1) & mask(dt) }))
	if err != nil {
		s.fault("%s: %w", label, err)
	}
	return nil
}

// chain: without group calls, each rank receives from the one before and then sends to the next.
func (s *suite) chain() error {
	token := []int32{7, 0}
	if s.rank > 0 {
		if err := finish(s.g.Recv(tensor.Of(token), s.rank-1)); err != nil {
			return err
		}
	}
	if token[0] != 7 || token[1] != int32(s.rank) {
		s.fault("chain: rank %d has %v", s.rank, token)
	}
	token[1]++
	if s.rank == s.n-1 {
		return nil
	}
	return finish(s.g.Send(tensor.Of(token), s.rank+1))
}

// inOrder: messages between two ranks arrive in the order in which they were sent, whatever their lengths.
func (s *suite) inOrder() error {
	const messages = 40
	if s.n == 1 || s.rank > 1 {
		return nil
	}
	for i := range messages {
		data := make([]int16, i%5)
		if s.rank == 0 {
			for j := range data {
				data[j] = int16(100*i + j)
			}
			if err := finish(s.g.Send(tensor.Of(data), 1)); err != nil {
				return err
			}
			continue
		}
		if err := finish(s.g.Recv(tensor.Of(data), 0)); err != nil {
			return err
		}
		for j, v := range data {
			if v != int16(100*i+j) {
				s.fault("message %d of %d: element %d is %d, want %d", i, messages, j, v, 100*i+j)
			}
		}
	}
	return nil
}

// everyPair: all ranks send to all ranks, themselves included, several messages at once.
func (s *suite) everyPair() error {
	const each = 3
	in, out := make([][]uint32, s.n*each), make([][]uint32, s.n*each)
	err := finish(s.g.Batch(func(g *dist.Group) error {
		for k := range each {
			for peer := range s.n {
				at := k*s.n + peer
				out[at], in[at] = []uint32{uint32(1000*s.rank + 10*peer + k)}, []uint32{0}
				if _, err := g.Recv(tensor.Of(in[at]), peer); err != nil {
					return err
				}
				if _, err := g.Send(tensor.Of(out[at]), peer); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	if err != nil {
		return err
	}
	for at, v := range in {
		if want := uint32(1000*(at%s.n) + 10*s.rank + at/s.n); v[0] != want {
			s.fault("message %d from rank %d is %d, want %d", at/s.n, at%s.n, v[0], want)
		}
	}
	return nil
}

// toOneself: a send to oneself works in a group call.
func (s *suite) toOneself() error {
	src, dst := []float64{1.5, -2}, make([]float64, 2)
	if err := s.both(tensor.Of(src), s.rank, tensor.Of(dst), s.rank); err != nil {
		return err
	}
	if dst[0] != 1.5 || dst[1] != -2 {
		s.fault("message to oneself: %v, want %v", dst, src)
	}
	return nil
}

// batches is group calls of several kinds of operation.
func (s *suite) batches() error {
	next, before := (s.rank+1)%s.n, (s.rank+s.n-1)%s.n
	sum, all := []int32{int32(s.rank)}, make([]int32, s.n)
	token, got := []int32{int32(10 * s.rank)}, []int32{-1}
	w, err := s.g.Batch(func(g *dist.Group) error {
		if _, err := g.Send(tensor.Of(token), next); err != nil {
			return err
		}
		if _, err := g.AllReduce(tensor.Of(sum), tensor.Of(sum), dist.Sum); err != nil {
			return err
		}
		inner, err := g.Batch(func(g *dist.Group) error { // nested: part of the outer call
			_, err := g.AllGather(tensor.Of(all), tensor.Of(sum))
			return err
		})
		if err != nil || !inner.Done() {
			return fmt.Errorf("nested group call: done %v, error %w", inner.Done(), err)
		}
		_, err = g.Recv(tensor.Of(got), before)
		return err
	})
	if err := finish(w, err); err != nil {
		return err
	}
	total := int32(s.n * (s.n - 1) / 2)
	if sum[0] != total || got[0] != int32(10*before) {
		s.fault("group call: sum %d, want %d; message %d, want %d", sum[0], total, got[0], 10*before)
	}
	for r, v := range all {
		if v != total {
			s.fault("group call: allgather after allreduce has %d from rank %d, want %d", v, r, total)
		}
	}
	return s.emptyBatches(sum)
}

// emptyBatches: group calls that queue nothing, because nothing is in them or because something in them is wrong.
func (s *suite) emptyBatches(x []int32) error {
	w, err := s.g.Batch(func(*dist.Group) error { return nil })
	if err := finish(w, err); err != nil {
		return err
	}
	own := errors.New("the caller's own")
	_, err = s.g.Batch(func(g *dist.Group) error {
		if _, err := g.AllReduce(tensor.Of(x), tensor.Of(x), dist.Sum); err != nil {
			return err
		}
		return own
	})
	s.expect("group call whose function fails", err, own)
	_, err = s.g.Batch(func(g *dist.Group) error {
		if _, err := g.AllReduce(tensor.Of(x), tensor.Of(x), dist.Sum); err != nil {
			return err
		}
		_, err := g.Recv(tensor.Of(x), s.n)
		return err
	})
	s.expect("group call with a wrong peer", err, dist.ErrRoot)
	return finish(s.g.Barrier())
}
