package ddp_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// broadcast is rank 0's numbers.
func broadcast(w *dist.World, mine []float64) ([]float64, error) {
	all := slices.Clone(mine)
	work, err := w.Broadcast(tensor.Of(all), tensor.Of(all), 0)
	if err != nil {
		return nil, err
	}
	return all, work.Wait()
}

// uneven is parts of 1, 2, ... samples.
func uneven(ranks int) [][]int {
	parts := make([][]int, ranks)
	lo := 0
	for r := range parts {
		parts[r] = indices(lo, lo+r+1)
		lo += r + 1
	}
	return parts
}

// shareOracle is the product of a share and a gradient in dt.
func shareOracle(dt gtensor.Dtype, share, g float64) float64 {
	if dt == gtensor.Float64 {
		return share * g
	}
	return float64(float32(share) * float32(g))
}

// wireOracle computes the combined gradient with a wire dtype, step by step.
func wireOracle(dt gtensor.Dtype, wire tensor.DType, shares []float64, grads [][]float64) []float64 {
	out := make([]float64, len(grads[0]))
	for i := range out {
		var sum float32
		for r, g := range grads {
			v := toWire(wire, shareOracle(dt, shares[r], g[i]))
			if r == 0 {
				sum = v
			} else {
				sum += v
			}
		}
		out[i] = float64(toWire(wire, float64(sum)))
	}
	return out
}

// toWire is x rounded once to the wire's dtype. No float64 of these tests is so close to a tie that
// float32 hides it, which TestConvertRoundsOnce of package tensor is about.
func toWire(wire tensor.DType, x float64) float32 {
	if wire == tensor.F16 {
		return tensor.ToFloat16(float32(x)).Float32()
	}
	return tensor.ToBFloat16(float32(x)).Float32()
}

func TestWireDTypeGivesTheBitsOfItsDefinition(t *testing.T) {
	for _, wire := range []tensor.DType{tensor.BF16, tensor.F16} {
		for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64} {
			for _, f := range []family{mlp, cnn} {
				all := ownGradients(t, f, dt, uneven(4))
				for _, cfg := range []ddp.Config{{}, {BucketMB: 1.0 / 1024}, {BucketMB: 1.0 / 1024, NoOverlap: true}} {
					cfg.WireDType = wire
					t.Run(fmt.Sprintf("%v/%v/%s/%v", wire, dt, f.name, cfg.BucketMB), func(t *testing.T) {
						onWorlds(t, someRanks(), func(_ *testing.T, w *dist.World) error {
							n := w.Size()
							shares := make([]float64, n)
							for r := range shares {
								shares[r] = float64(r+1) / float64(n*(n+1)/2)
							}
							part := uneven(n)[w.Rank()]
							l, err := newLearner(w, f, dt, len(part), cfg, optim.Config{})
							if err != nil {
								return err
							}
							if err := l.run(part, float64(len(part))); err != nil {
								return err
							}
							got, err := gradients(l.d.Model())
							if err != nil {
								return err
							}
							want := wireOracle(dt, wire, shares, all[:n])
							if !slices.Equal(got, want) {
								return fmt.Errorf("gradient is off by %g from its definition", relative(got, want))
							}
							return l.close()
						})
					})
				}
			}
		}
	}
}

// bucketBytes returns the recorded bytes of collectives of buckets.
func bucketBytes(w *dist.World) int64 {
	total := int64(0)
	for _, r := range w.Recorder().Records() {
		if strings.HasPrefix(r.Name, "bucket ") {
			total += r.Bytes
		}
	}
	return total
}

func TestWireDTypeHalvesTheBytes(t *testing.T) {
	for _, c := range []struct {
		dt   gtensor.Dtype
		wire tensor.DType
		by   int64
	}{
		{gtensor.Float32, tensor.Invalid, 1},
		{gtensor.Float32, tensor.F32, 1},
		{gtensor.Float32, tensor.BF16, 2},
		{gtensor.Float32, tensor.F16, 2},
		{gtensor.Float64, tensor.F32, 1},
		{gtensor.Float64, tensor.BF16, 4},
	} {
		t.Run(fmt.Sprintf("%v by %v", c.dt, c.wire), func(t *testing.T) {
			onRanks(t, 2, func(w *dist.World) error {
				l, err := newLearner(w, mlp, c.dt, 3, ddp.Config{WireDType: c.wire, BucketMB: 1.0 / 1024}, optim.Config{})
				if err != nil {
					return err
				}
				whole := int64(0)
				for _, b := range l.d.Plan().Buckets {
					whole += b.Bytes()
				}
				for step := range 3 {
					if err := l.run(indices(0, 3), 3); err != nil {
						return err
					}
					want := whole / c.by
					if got := l.d.WireBytes(); got != want {
						return fmt.Errorf("WireBytes is %d, want %d of %d", got, want, whole)
					}
					if got := bucketBytes(w); got != want*int64(step+1) {
						return fmt.Errorf("%d B after %d steps, want %d each", got, step+1, want)
					}
				}
				return l.close()
			})
		})
	}
}

func TestAveragesGiveTheBitsOfTheirDefinition(t *testing.T) {
	for _, c := range []struct {
		average ddp.Average
		factor  func(rank, n int) float64
		share   func(r, n int) float64 // of rank r, whose weight is r+1
		rest    func(n int) float64
	}{
		{ddp.Mean, nil, func(r, n int) float64 { return float64(r+1) / float64(n*(n+1)/2) }, nil},
		{ddp.Sum, nil, func(r, _ int) float64 { return float64(r + 1) }, nil},
		{ddp.PreMulSum, func(r, _ int) float64 { return 0.3 - float64(r) }, func(r, _ int) float64 { return float64(r+1) * (0.3 - float64(r)) }, nil},
		{ddp.PreMulSum, nil, func(r, _ int) float64 { return float64(r + 1) }, nil},
		{
			ddp.PreDivide, func(int, int) float64 { return 3 },
			func(r, n int) float64 { return float64(r+1) * float64(n) / float64(n*(n+1)/2) / 3 },
			func(n int) float64 { return 3 / float64(n) },
		},
		{
			ddp.PreDivide, nil,
			func(r, n int) float64 {
				return float64(r+1) * float64(n) / float64(n*(n+1)/2) / []float64{0, 1, 2, 2, 2}[n]
			},
			func(n int) float64 { return []float64{0, 1, 2, 2, 2}[n] / float64(n) },
		},
	} {
		for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64} {
			all := ownGradients(t, mlp, dt, uneven(4))
			t.Run(fmt.Sprintf("%v/%v/%v", c.average, c.factor != nil, dt), func(t *testing.T) {
				onWorlds(t, someRanks(), func(_ *testing.T, w *dist.World) error {
					n, cfg := w.Size(), ddp.Config{Average: c.average}
					if c.factor != nil {
						cfg.Factor = c.factor(w.Rank(), n)
					}
					part := uneven(n)[w.Rank()]
					l, err := newLearner(w, mlp, dt, len(part), cfg, optim.Config{})
					if err != nil {
						return err
					}
					if err := l.run(part, float64(len(part))); err != nil {
						return err
					}
					got, err := gradients(l.d.Model())
					if err != nil {
						return err
					}
					for i, x := range got {
						var want float64
						for r := range n {
							p := shareOracle(dt, c.share(r, n), all[r][i])
							switch {
							case r == 0:
								want = p
							case dt == gtensor.Float32:
								want = float64(float32(want) + float32(p))
							default:
								want += p
							}
						}
						if c.rest != nil {
							want = shareOracle(dt, c.rest(n), want)
						}
						if x != want {
							return fmt.Errorf("element %d is %v, want %v", i, x, want)
						}
					}
					return l.close()
				})
			})
		}
	}
}

// TestSumOverNothingIsZero has weights that sum to 0: no mean, but a sum.
func TestSumOverNothingIsZero(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		l, err := newLearner(w, mlp, gtensor.Float32, 3, ddp.Config{Average: ddp.Sum}, optim.Config{})
		if err != nil {
			return err
		}
		if err := l.run(indices(0, 3), 0); err != nil {
			return err
		}
		got, err := gradients(l.d.Model())
		if err != nil {
			return err
		}
		if slices.ContainsFunc(got, func(x float64) bool { return x != 0 }) {
			return fmt.Errorf("the gradient is %v, want zeros", got)
		}
		return l.close()
	})
}

// TestAveragesOfMicroBatches has a mean, a sum and others of two runs of which the first is inside
// NoSync.
func TestAveragesOfMicroBatches(t *testing.T) {
	want := plainGradient(t, mlp, indices(0, 8))
	for _, c := range []struct {
		cfg   ddp.Config
		times float64
	}{
		{ddp.Config{}, 1},
		{ddp.Config{Average: ddp.Sum}, 8},
		{ddp.Config{Average: ddp.PreMulSum, Factor: 0.25}, 2},
		{ddp.Config{Average: ddp.PreDivide}, 1},
		{ddp.Config{Average: ddp.PreDivide, Factor: 8}, 1},
	} {
		t.Run(fmt.Sprintf("%v by %v", c.cfg.Average, c.cfg.Factor), func(t *testing.T) {
			onWorlds(t, []int{2}, func(_ *testing.T, w *dist.World) error {
				l, err := newLearner(w, mlp, gtensor.Float64, 2, c.cfg, optim.Config{})
				if err != nil {
					return err
				}
				lo := 4 * w.Rank()
				if err := l.d.NoSync(func() error { return l.run(indices(lo, lo+2), 2) }); err != nil {
					return err
				}
				if err := l.run(indices(lo+2, lo+4), 2); err != nil {
					return err
				}
				got, err := gradients(l.d.Model())
				if err != nil {
					return err
				}
				for i := range got {
					got[i] /= c.times
				}
				if e := relative(got, want); !(e <= 1e-14) {
					return fmt.Errorf("gradient off by %g", e)
				}
				return l.close()
			})
		})
	}
}

func TestParseAverageIsTheInverseOfString(t *testing.T) {
	for _, a := range []ddp.Average{ddp.Mean, ddp.Sum, ddp.PreMulSum, ddp.PreDivide} {
		if got, err := ddp.ParseAverage(a.String()); got != a || err != nil {
			t.Errorf("%v: %v, %v", a, got, err)
		}
	}
	if got, err := ddp.ParseAverage(""); got != ddp.Mean || err != nil {
		t.Errorf("nothing: %v, %v", got, err)
	}
	if _, err := ddp.ParseAverage("median"); err == nil || !strings.Contains(err.Error(), "premulsum") {
		t.Errorf("median: %v", err)
	}
	if s := ddp.Average(9).String(); s != "average(9)" {
		t.Errorf("9 is %q", s)
	}
}

// TestPreDivideKeepsSumsInRange divides before and after a wire dtype of few bits.
func TestPreDivideKeepsSumsInRange(t *testing.T) {
	onWorlds(t, []int{4}, func(_ *testing.T, w *dist.World) error {
		l, err := newLearner(w, mlp, gtensor.Float32, 3, ddp.Config{Average: ddp.PreDivide, Factor: 4, WireDType: tensor.F16}, optim.Config{})
		if err != nil {
			return err
		}
		if err := l.run(indices(0, 3), 3); err != nil {
			return err
		}
		got, err := gradients(l.d.Model())
		if err != nil {
			return err
		}
		want := plainGradient(t, mlp, indices(0, 3))
		if e := relative(got, want); math.IsNaN(e) || e > 0x1p-10 {
			return fmt.Errorf("gradient off by %g", e)
		}
		return l.close()
	})
}
