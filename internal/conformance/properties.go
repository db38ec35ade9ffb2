package conformance

import (
	"bytes"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// properties tests relations between operations, for all values.
func (s *suite) properties() error {
	for _, dt := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32, tensor.F64, tensor.I16} {
		for _, red := range redsOf(dt) {
			if err := s.scatterThenGather(dt, red, 37); err != nil {
				return err
			}
		}
	}
	if s.opt.Blocking {
		return nil // nothing can change while an operation is queued
	}
	err := s.lateScalar()
	if s.opt.skipsKind(dist.KindSplit, err) {
		return nil
	}
	return err
}

// needed tries the operations that lateScalar needs: there, a rank whose operation is rejected
// would block the others.
func (s *suite) needed() error {
	if s.opt.Skip == nil {
		return nil
	}
	x, y, factor := of(s.space, int32(0)), of(s.space, int32(0)), of(s.space, float32(1))
	f := of(s.space, float32(1))
	if err := s.both(x.buf, s.rank, y.buf, s.rank); err != nil {
		return err
	}
	return finish(s.g.AllReduce(f.buf, f.buf, dist.PreMulSumAt(factor.buf)))
}

// scatterThenGather: ReduceScatter then AllGather equals AllReduce, and a repetition gives the same
// bits.
func (s *suite) scatterThenGather(dt tensor.DType, red dist.RedKind, block int) error {
	label := fmt.Sprintf("reducescatter then allgather of %v[%d] %v", dt, block, red)
	s.reset()
	var all [4]window // source, allreduce, reducescatter, allgather
	for i, n := range [...]int{s.n * block, s.n * block, block, s.n * block} {
		w, err := s.window(nil, dt, n)
		if err != nil {
			return err
		}
		all[i] = w
	}
	src, direct, part, gathered := all[0].buf, all[1].buf, all[2].buf, all[3].buf
	c := scenario{kind: dist.KindAllReduce, dt: dt, red: red, data: s.opt.rounding(red), count: s.n * block}
	s.fill(src, func(i int) uint64 { return input(c.data, dt, red, s.n, s.rank, i) })
	op, err := s.reduction(c)
	if err != nil {
		return err
	}
	same := func() bool { return bytes.Equal(s.load(direct), s.load(gathered)) }
	if s.opt.loose(c) {
		same = func() bool { return s.near(c, gathered, c.count) == nil }
	}
	var first []byte
	for range 2 {
		for _, step := range []func() (dist.Work, error){
			func() (dist.Work, error) { return s.g.AllReduce(direct, src, op) },
			func() (dist.Work, error) { return s.g.ReduceScatter(part, src, op) },
			func() (dist.Work, error) { return s.g.FCollect(gathered, part) },
		} {
			if err := finish(step()); s.opt.skips(err) {
				return nil
			} else if err != nil {
				return fmt.Errorf("%s: %w", label, err)
			}
		}
		if !same() {
			s.fault("%s is not allreduce", label)
		}
		if first != nil && !bytes.Equal(first, s.load(direct)) {
			s.fault("%s: the same input gives other bits the second time", label)
		}
		first = bytes.Clone(s.load(direct))
	}
	return s.failed()
}

// lateScalar: a premulsum scalar in memory is read when the collective runs. It is changed while
// the collective waits for a message. The message comes after every rank has confirmed its change
// through another group.
func (s *suite) lateScalar() error {
	if err := s.needed(); err != nil {
		return err
	}
	other, err := s.g.Split(0, s.rank)
	if err != nil {
		return err
	}
	factor, x, gate := of(s.space, float32(-1)), of(s.space, float32(3)), of(s.space, int32(0))
	if s.rank > 0 {
		if _, err := s.g.Recv(gate.buf, 0); err != nil {
			return err
		}
	} else if err := s.openGate(other, factor, gate); err != nil {
		return err
	}
	w, err := s.g.AllReduce(x.buf, x.buf, dist.PreMulSumAt(factor.buf))
	if err != nil {
		return err
	}
	if s.rank > 0 {
		factor.set(0, float32(s.rank+1))
		if err := finish(other.Sync()); err != nil {
			return err
		}
	}
	if err := w.Wait(); err != nil {
		return err
	}
	if got, want := x.pull()[0], float32(3*s.n*(s.n+1)/2); got != want {
		s.fault("premulsum with a scalar in memory that changes before the collective runs: %v, want %v", got, want)
	}
	return other.Close()
}

// openGate is rank 0's part of lateScalar: it sends the messages after all ranks have changed their
// scalars.
func (s *suite) openGate(other *dist.Group, factor array[float32], gate array[int32]) error {
	factor.set(0, 1)
	if err := finish(other.Sync()); err != nil {
		return err
	}
	for r := 1; r < s.n; r++ {
		if err := finish(s.g.Send(gate.buf, r)); err != nil {
			return err
		}
	}
	return nil
}

// queue: many operations are queued before the first wait, and are waited for in another order.
func (s *suite) queue() error {
	const ops = 150
	var works [ops]dist.Work
	var data [ops]array[int64]
	for i := range works {
		data[i] = of(s.space, int64(i*(s.rank+1)), int64(i))
		w, err := s.g.AllReduce(data[i].buf, data[i].buf, dist.Sum)
		if err != nil {
			return s.allowed(err) // of the first, and so of all
		}
		works[i] = w
	}
	for k := range works {
		i := (k*77 + 13) % ops // 77 and 150 have no common factor
		if err := works[i].Wait(); err != nil {
			return err
		}
		got, want := data[i].pull(), []int64{int64(i * s.n * (s.n + 1) / 2), int64(i * s.n)}
		if got[0] != want[0] || got[1] != want[1] {
			s.fault("operation %d of %d queued: %v, want %v", i, ops, got, want)
		}
		if !works[i].Done() || works[i].Wait() != nil {
			s.fault("operation %d is not done after Wait, or Wait changes its mind", i)
		}
	}
	return nil
}
