package ops_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// verb is a collective and its oracle: want returns rank's result, given all ranks' inputs in
// float64.
type verb struct {
	name  string
	apply func(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error)
	rows  func(rows, n int) int // axis 0 of the result; nil: as the input
	want  func(xs [][]float64, rank int) []float64
}

// rooted reports whether v has a root.
func (v verb) rooted() bool {
	return strings.HasPrefix(v.name, "reduce ") || slices.Contains([]string{"broadcast", "gather", "scatter"}, v.name)
}

// weighted is the reduction with this rank's weight; fold computes its result, with weights by
// rank.
func weighted(weight func(rank, n int) float64) func(xs [][]float64) []float64 {
	return func(xs [][]float64) []float64 {
		out := make([]float64, len(xs[0]))
		for r, x := range xs {
			for i, v := range x {
				out[i] += weight(r, len(xs)) * v
			}
		}
		return out
	}
}

func pairwise(f func(a, b float64) float64) func(xs [][]float64) []float64 {
	return func(xs [][]float64) []float64 {
		out := slices.Clone(xs[0])
		for _, x := range xs[1:] {
			for i, v := range x {
				out[i] = f(out[i], v)
			}
		}
		return out
	}
}

// reductions are the RedOps by name, as made on one rank, with their oracles. Premulsum's scalar is
// rank+2.
var reductions = []struct {
	name   string
	linear bool
	red    func(g *dist.Group, dt gtensor.Dtype) dist.RedOp
	fold   func(xs [][]float64) []float64
}{
	{"sum", true, only(dist.Sum), weighted(func(int, int) float64 { return 1 })},
	{"avg", true, only(dist.Avg), weighted(func(_, n int) float64 { return 1 / float64(n) })},
	{
		"premulsum", true, func(g *dist.Group, dt gtensor.Dtype) dist.RedOp { return preMul(dt, float64(g.Rank()+2)) },
		weighted(func(r, _ int) float64 { return float64(r + 2) }),
	},
	{"prod", false, only(dist.Prod), pairwise(func(a, b float64) float64 { return a * b })},
	{"min", false, only(dist.Min), pairwise(func(a, b float64) float64 { return min(a, b) })},
	{"max", false, only(dist.Max), pairwise(func(a, b float64) float64 { return max(a, b) })},
}

func only(red dist.RedOp) func(*dist.Group, gtensor.Dtype) dist.RedOp {
	return func(*dist.Group, gtensor.Dtype) dist.RedOp { return red }
}

func preMul(dt gtensor.Dtype, s float64) dist.RedOp {
	switch dt {
	case gtensor.Float32:
		return dist.PreMulSum(float32(s))
	case gtensor.Int64:
		return dist.PreMulSum(int64(s))
	case gtensor.Int32:
		return dist.PreMulSum(int32(s))
	case gtensor.Int16:
		return dist.PreMulSum(int16(s))
	case gtensor.Uint8:
		return dist.PreMulSum(uint8(s))
	}
	return dist.PreMulSum(s)
}

// block is part r of n of x.
func block(x []float64, r, n int) []float64 { return x[r*len(x)/n : (r+1)*len(x)/n] }

func zerosBut(on bool, x []float64) []float64 {
	if on {
		return x
	}
	return make([]float64, len(x))
}

// verbs are all collectives of a group with n ranks and the given root; scalar marks those that
// take scalars.
func verbs(root int, linear bool) (all []verb, scalar int) {
	for _, r := range reductions {
		if linear && !r.linear {
			continue
		}
		all = append(all,
			verb{"allreduce " + r.name, func(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) {
				return ops.AllReduce(g, x, r.red(g, x.Dtype()))
			}, nil, func(xs [][]float64, _ int) []float64 { return r.fold(xs) }},
			verb{"reduce " + r.name, func(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) {
				return ops.Reduce(g, x, r.red(g, x.Dtype()), root)
			}, nil, func(xs [][]float64, rank int) []float64 { return zerosBut(rank == root, r.fold(xs)) }})
	}
	all = append(all,
		verb{"broadcast", func(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Broadcast(g, x, root)
		}, nil, func(xs [][]float64, _ int) []float64 { return xs[root] }},
		verb{"barrier", func(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Barrier(g, x)
		}, nil, func(xs [][]float64, rank int) []float64 { return xs[rank] }})
	scalar = len(all)
	for _, r := range reductions {
		if linear && !r.linear {
			continue
		}
		all = append(all, verb{"reducescatter " + r.name, func(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.ReduceScatter(g, x, r.red(g, x.Dtype()))
		}, over, func(xs [][]float64, rank int) []float64 { return block(r.fold(xs), rank, len(xs)) }})
	}
	return append(all,
		verb{"allgather", func(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.AllGather(g, x)
		}, times, func(xs [][]float64, _ int) []float64 { return slices.Concat(xs...) }},
		verb{"gather", func(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Gather(g, x, root)
		}, times, func(xs [][]float64, rank int) []float64 { return zerosBut(rank == root, slices.Concat(xs...)) }},
		verb{"scatter", func(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Scatter(g, x, root)
		}, over, func(xs [][]float64, rank int) []float64 { return block(xs[root], rank, len(xs)) }},
		verb{"alltoall", func(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.AllToAll(g, x)
		}, nil, func(xs [][]float64, rank int) (out []float64) {
			for _, x := range xs {
				out = append(out, block(x, rank, len(xs))...)
			}
			return out
		}}), scalar
}

func times(rows, n int) int { return rows * n }
func over(rows, n int) int  { return rows / n }

// inputs is small integers for every rank, multiples of 12 so that avg is exact for up to four
// ranks.
func inputs(n, count int, step float64) [][]float64 {
	xs := make([][]float64, n)
	for r := range xs {
		xs[r] = make([]float64, count)
		for i := range xs[r] {
			xs[r][i] = step * float64(1+(i*7+r*5)%4)
		}
	}
	return xs
}

func TestForwardOfEveryVerb(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4} {
		for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64} {
			for _, shape := range [][]int{{12}, {12, 3}, {12, 1}, {12, 2, 2}} {
				t.Run(fmt.Sprintf("%d ranks/%v%v", n, dt, shape), func(t *testing.T) {
					all, _ := verbs(n-1, false)
					forward(t, n, dt, 12, all, shape)
				})
			}
		}
	}
}

func TestForwardOfIntegers(t *testing.T) {
	for _, dt := range []gtensor.Dtype{gtensor.Int64, gtensor.Int32, gtensor.Int16, gtensor.Uint8} {
		t.Run(dt.String(), func(t *testing.T) {
			all, _ := verbs(0, false)
			forward(t, 3, dt, 3, all, []int{6, 2})
		})
	}
}

func TestForwardOfScalars(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4} {
		for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64, gtensor.Int64, gtensor.Int32, gtensor.Uint8} {
			t.Run(fmt.Sprintf("%d ranks/%v", n, dt), func(t *testing.T) {
				all, scalars := verbs(n/2, false)
				forward(t, n, dt, 12, all[:scalars], nil)
			})
		}
	}
}

// forward runs all verbs in one graph on n ranks and compares values, shapes, types and inputs
// afterwards.
func forward(t *testing.T, n int, dt gtensor.Dtype, step float64, all []verb, shape []int) {
	t.Helper()
	xs := inputs(n, size(shape), step)
	onRanks(t, n, func(w *dist.World) error {
		g := gorgonia.NewGraph()
		x := input(g, dt, "x", xs[w.Rank()], shape...)
		ys := make(gorgonia.Nodes, len(all))
		for i, v := range all {
			var err error
			if ys[i], err = v.apply(w.Group, x); err != nil {
				return err
			}
		}
		if err := run(g); err != nil {
			return err
		}
		for i, v := range all {
			if err := equal(v.name, ys[i].Value(), wrap(dt, v.want(xs, w.Rank()))); err != nil {
				return err
			}
			want := gtensor.Shape(slices.Clone(shape))
			if v.rows != nil {
				want[0] = v.rows(want[0], n)
			}
			if got := ys[i].Shape(); !slices.Equal(got, want) || !slices.Equal(ys[i].Value().Shape(), want) {
				return fmt.Errorf("%s: node has shape %v, value %v, want %v", v.name, got, ys[i].Value().Shape(), want)
			}
			if !ys[i].Type().Eq(x.Type()) {
				return fmt.Errorf("%s: type %v, want %v", v.name, ys[i].Type(), x.Type())
			}
		}
		return equal("the input", x.Value(), xs[w.Rank()])
	})
}

// wrap is v as it wraps around in integers of dt.
func wrap(dt gtensor.Dtype, v []float64) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = x
		switch dt {
		case gtensor.Uint8:
			out[i] = float64(uint8(int64(x)))
		case gtensor.Int16:
			out[i] = float64(int16(int64(x)))
		}
	}
	return out
}

// Gorgonia's vectors may have two dimensions, one of them 1; a result gathered or cut from them is
// a matrix.
func TestVectorsOfTwoDimensions(t *testing.T) {
	for _, shape := range [][]int{{2, 1}, {1, 2}} {
		onRanks(t, 2, func(w *dist.World) error {
			g := gorgonia.NewGraph()
			x := gorgonia.NewVector(g, gtensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(shape...))
			if err := gorgonia.Let(x, dense(gtensor.Float64, []float64{1, 1}, shape...)); err != nil {
				return err
			}
			y, err := ops.AllGather(w.Group, x)
			if err != nil {
				return err
			}
			z, err := ops.ReduceScatter(w.Group, y, dist.Sum)
			if err != nil {
				return err
			}
			if shape[0] == 2 { // to (1, 1)
				if _, err = ops.ReduceScatter(w.Group, x, dist.Sum); err != nil {
					return err
				}
			}
			cost, err := gorgonia.Sum(z)
			if err != nil {
				return err
			}
			grads, err := differentiate(cost, x)
			if err != nil {
				return err
			}
			if err := run(g); err != nil {
				return err
			}
			if err := equal("z", z.Value(), []float64{2, 2}); err != nil {
				return err
			}
			return equal("dL/dx", grads[0].Value(), []float64{2, 2})
		})
	}
}

func TestSendRecvMovesATensorAndYieldsAToken(t *testing.T) {
	for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64, gtensor.Int32} {
		onRanks(t, 2, func(w *dist.World) error {
			g := gorgonia.NewGraph()
			x := input(g, dt, "x", []float64{1, 2, 3, 4, 5, 6}, 3, 2)
			if w.Rank() == 0 {
				token, err := ops.Send(w.Group, x, 1)
				if err != nil {
					return err
				}
				if err := run(g); err != nil {
					return err
				}
				if !token.IsScalar() || (dt != gtensor.Int32 && token.Dtype() != dt) {
					return fmt.Errorf("the token of %v is %v", dt, token.Type())
				}
				return equal("the token", token.Value(), []float64{0})
			}
			y, err := ops.Recv(w.Group, x, 0, dt, 3, 2)
			if err != nil {
				return err
			}
			x.Value().(*gtensor.Dense).Zero()
			if err := run(g); err != nil {
				return err
			}
			return equal("received", y.Value(), []float64{1, 2, 3, 4, 5, 6})
		})
	}
}

func TestPreMulSumReadsAScalarInMemoryAtEveryRun(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		s := []float64{0}
		g := gorgonia.NewGraph()
		x := input(g, gtensor.Float64, "x", []float64{1, 10}, 2)
		y, err := ops.AllReduce(w.Group, x, dist.PreMulSumAt(tensor.Of(s)))
		if err != nil {
			return err
		}
		cost, err := gorgonia.Sum(y)
		if err != nil {
			return err
		}
		grads, err := differentiate(cost, x)
		if err != nil {
			return err
		}
		vm := gorgonia.NewTapeMachine(g)
		defer vm.Close()
		for step := range 3 {
			s[0] = float64(step + w.Rank()) // ranks 0 and 1: the sum of the scalars is 2*step+1
			vm.Reset()
			if err := vm.RunAll(); err != nil {
				return err
			}
			sum := float64(2*step + 1)
			if err := equal("y", y.Value(), []float64{sum, 10 * sum}); err != nil {
				return err
			}
			if err := equal("dL/dx", grads[0].Value(), []float64{2 * s[0], 2 * s[0]}); err != nil {
				return err
			}
		}
		return nil
	})
}
