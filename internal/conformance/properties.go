package conformance

import (
	"bytes"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// properties is what must hold between operations, whatever the values.
func (s *suite) properties() error {
	for _, dt := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32, tensor.F64, tensor.I16} {
		for _, red := range redKinds {
			if err := s.scatterThenGather(dt, red, 37); err != nil {
				return err
			}
		}
	}
	if s.opt.Blocking {
		return nil // nothing can change while an operation is queued
	}
	return s.lateScalar()
}

// scatterThenGather: ReduceScatter then AllGather is AllReduce, and the same again gives the same, bit for bit.
func (s *suite) scatterThenGather(dt tensor.DType, red dist.RedKind, block int) error {
	label := fmt.Sprintf("reducescatter then allgather of %v[%d] %v", dt, block, red)
	var all [4]window // source, allreduce, reducescatter, allgather
	for i, n := range [...]int{s.n * block, s.n * block, block, s.n * block} {
		w, err := s.window(nil, dt, n)
		if err != nil {
			return err
		}
		all[i] = w
	}
	src, direct, part, gathered := all[0].buf, all[1].buf, all[2].buf, all[3].buf
	fill(src, func(i int) uint64 { return input(random, dt, red, s.n, s.rank, i) })
	op, err := s.reduction(scenario{dt: dt, red: red, data: random})
	if err != nil {
		return err
	}
	var first []byte
	for range 2 {
		for _, step := range []func() (dist.Work, error){
			func() (dist.Work, error) { return s.g.AllReduce(direct, src, op) },
			func() (dist.Work, error) { return s.g.ReduceScatter(part, src, op) },
			func() (dist.Work, error) { return s.g.FCollect(gathered, part) },
		} {
			if err := finish(step()); err != nil {
				return fmt.Errorf("%s: %w", label, err)
			}
		}
		if !bytes.Equal(direct.Raw(), gathered.Raw()) {
			s.fault("%s is not allreduce", label)
		}
		if first != nil && !bytes.Equal(first, direct.Raw()) {
			s.fault("%s: the same input gives other bits the second time", label)
		}
		first = bytes.Clone(direct.Raw())
	}
	return nil
}

// lateScalar: a premulsum scalar in memory is read when the collective runs. It is changed while the collective waits
// behind a message that comes after every rank, through another group, has said that it has changed its scalar.
func (s *suite) lateScalar() error {
	other, err := s.g.Split(0, s.rank)
	if err != nil {
		return err
	}
	factor, x, gate := []float32{-1}, []float32{3}, []int32{0}
	if s.rank > 0 {
		if _, err := s.g.Recv(tensor.Of(gate), 0); err != nil {
			return err
		}
	} else if err := s.openGate(other, factor, gate); err != nil {
		return err
	}
	w, err := s.g.AllReduce(tensor.Of(x), tensor.Of(x), dist.PreMulSumAt(tensor.Of(factor)))
	if err != nil {
		return err
	}
	if s.rank > 0 {
		factor[0] = float32(s.rank + 1)
		if err := finish(other.Sync()); err != nil {
			return err
		}
	}
	if err := w.Wait(); err != nil {
		return err
	}
	if want := float32(3 * s.n * (s.n + 1) / 2); x[0] != want {
		s.fault("premulsum with a scalar in memory that changes before the collective runs: %v, want %v", x[0], want)
	}
	return other.Close()
}

// openGate is rank 0's part of lateScalar: when all have changed their scalars, it lets them through.
func (s *suite) openGate(other *dist.Group, factor []float32, gate []int32) error {
	factor[0] = 1
	if err := finish(other.Sync()); err != nil {
		return err
	}
	for r := 1; r < s.n; r++ {
		if err := finish(s.g.Send(tensor.Of(gate), r)); err != nil {
			return err
		}
	}
	return nil
}

// queue: many operations are queued before any is waited for, and are waited for in another order.
func (s *suite) queue() error {
	const ops = 150
	var works [ops]dist.Work
	var data [ops][]int64
	for i := range works {
		data[i] = []int64{int64(i * (s.rank + 1)), int64(i)}
		b := tensor.Of(data[i])
		w, err := s.g.AllReduce(b, b, dist.Sum)
		if err != nil {
			return err
		}
		works[i] = w
	}
	for k := range works {
		i := (k*77 + 13) % ops // 77 and 150 have no common factor
		if err := works[i].Wait(); err != nil {
			return err
		}
		want := []int64{int64(i * s.n * (s.n + 1) / 2), int64(i * s.n)}
		if data[i][0] != want[0] || data[i][1] != want[1] {
			s.fault("operation %d of %d queued: %v, want %v", i, ops, data[i], want)
		}
		if !works[i].Done() || works[i].Wait() != nil {
			s.fault("operation %d is not done after Wait, or Wait changes its mind", i)
		}
	}
	return nil
}
