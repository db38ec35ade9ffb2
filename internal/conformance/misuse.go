package conformance

import (
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// misuse: invalid arguments are immediate errors of the right kind, and the group works afterwards.
func (s *suite) misuse() error {
	a, b := s.floats(8*s.n), s.floats(8*s.n)
	ints, odd := s.take(tensor.I32, 8*s.n), s.floats(s.n+1)
	gpu, err := foreign(a, s.dev)
	if err != nil {
		return err
	}
	shifted, err := a.Slice(1, 8*s.n)
	if err != nil {
		return err
	}
	shorter, err := a.Slice(0, 8*s.n-1)
	if err != nil {
		return err
	}
	no := tensor.Buffer{}
	g := s.g
	for _, c := range []struct {
		name string
		call func() (dist.Work, error)
		want error
	}{
		{"two dtypes", func() (dist.Work, error) { return g.AllReduce(a, ints, dist.Sum) }, dist.ErrDType},
		{"no source", func() (dist.Work, error) { return g.AllReduce(a, no, dist.Sum) }, dist.ErrDType},
		{"no destination", func() (dist.Work, error) { return g.AllGather(no, a) }, dist.ErrDType},
		{"destination too small", func() (dist.Work, error) { return g.AllReduce(shorter, b, dist.Sum) }, dist.ErrCount},
		{"partial overlap", func() (dist.Work, error) { return g.AllReduce(a, shifted, dist.Sum) }, dist.ErrAlias},
		{"alltoall in place", func() (dist.Work, error) { return g.AllToAll(a, a) }, dist.ErrAlias},
		{"on another device", func() (dist.Work, error) { return g.AllReduce(gpu, gpu, dist.Sum) }, dist.ErrDevice},
		{"root too large", func() (dist.Work, error) { return g.Reduce(a, b, dist.Sum, s.n) }, dist.ErrRoot},
		{"negative root", func() (dist.Work, error) { return g.Broadcast(a, b, -1) }, dist.ErrRoot},
		{"peer too large", func() (dist.Work, error) { return g.Send(a, s.n) }, dist.ErrRank},
		{"send to oneself", func() (dist.Work, error) { return g.Send(a, s.rank) }, dist.ErrRank},
		{"unknown reduction", func() (dist.Work, error) { return g.AllReduce(a, b, dist.RedOp{Kind: 99}) }, dist.ErrInvalid},
		{"sum of untyped bytes", func() (dist.Work, error) { return g.AllReduce(a.Untyped(), a.Untyped(), dist.Sum) }, dist.ErrDType},
		{"maximum of untyped bytes", func() (dist.Work, error) { return g.ReduceScatter(a.Untyped(), b.Untyped(), dist.Max) }, dist.ErrDType},
		{"untyped bytes and floats", func() (dist.Work, error) { return g.AllGather(a.Untyped(), b) }, dist.ErrDType},
		{"bits of floats", func() (dist.Work, error) { return g.AllReduce(a, b, dist.Xor) }, dist.ErrDType},
		{"premulsum of another dtype", func() (dist.Work, error) { return g.AllReduce(a, b, dist.PreMulSum(1.5)) }, dist.ErrDType},
		{"premulsum of two scalars", func() (dist.Work, error) {
			return g.AllReduce(a, b, dist.PreMulSumAt(s.floats(2)))
		}, dist.ErrCount},
	} {
		_, err := c.call()
		s.expect(c.name, err, c.want)
		s.expect(c.name, err, dist.ErrInvalid)
		if err != nil && !strings.Contains(err.Error(), "rank") {
			s.fault("%s: error %q does not name the rank", c.name, err)
		}
	}
	if s.n > 1 {
		_, err := g.ReduceScatter(a, odd, dist.Sum)
		s.expect("length that the ranks do not divide", err, dist.ErrCount)
	}
	return s.allowed(sums(g, s.space, 2))
}
