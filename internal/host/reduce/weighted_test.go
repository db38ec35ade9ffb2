package reduce_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// Weighted has the bits of Into, also where the destination is a source.
func TestWeightedEqualsInto(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, dt := range []tensor.DType{tensor.F32, tensor.F64} {
		for _, n := range []int{0, 1, 5, 16, 63, 1000} {
			for ranks := 1; ranks <= 4; ranks++ {
				_, srcs := sources(t, rng, dt, ranks, n)
				factors, scalars := make([]float64, ranks), make([]uint64, ranks)
				for r := range factors {
					factors[r] = rng.NormFloat64()
					scalars[r] = math.Float64bits(factors[r])
					if dt == tensor.F32 {
						scalars[r] = uint64(math.Float32bits(float32(factors[r])))
					}
				}
				want := buffer(t, dt, make([]uint64, n))
				if err := reduce.Into(want, srcs, dist.RedPreMulSum, scalars); err != nil {
					t.Fatal(err)
				}
				if err := reduce.Weighted(srcs[ranks-1], srcs, factors); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(srcs[ranks-1].Raw(), want.Raw()) {
					t.Errorf("%v[%d] of %d sources: not the bits of Into", dt, n, ranks)
				}
			}
		}
	}
}

func TestWeightedChecksItsArguments(t *testing.T) {
	x, y, ints := tensor.Of(make([]float32, 3)), tensor.Of(make([]float32, 4)), tensor.Of(make([]int32, 3))
	wide := tensor.Of(make([]float64, 3))
	for name, err := range map[string]error{
		"no source":      reduce.Weighted(x, nil, nil),
		"lengths":        reduce.Weighted(x, []tensor.Buffer{x, y}, []float64{1, 2}),
		"dtypes":         reduce.Weighted(x, []tensor.Buffer{wide}, []float64{1}),
		"integers":       reduce.Weighted(ints, []tensor.Buffer{ints}, []float64{1}),
		"few factors":    reduce.Weighted(x, []tensor.Buffer{x, x}, []float64{1}),
		"many factors":   reduce.Weighted(x, []tensor.Buffer{x}, []float64{1, 2}),
		"no destination": reduce.Weighted(tensor.Buffer{}, []tensor.Buffer{x}, []float64{1}),
	} {
		if !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%s: %v, want an ErrInvalid", name, err)
		}
	}
}

func TestWeightedAllocatesNothing(t *testing.T) {
	x, y := tensor.Of(make([]float32, 100)), tensor.Of(make([]float32, 100))
	if n := testing.AllocsPerRun(1000, func() {
		if err := reduce.Weighted(x, []tensor.Buffer{x, y}, []float64{1, 0.5}); err != nil {
			t.Fatal(err)
		}
	}); n >= 1 {
		t.Errorf("%v allocations a call", n)
	}
}
