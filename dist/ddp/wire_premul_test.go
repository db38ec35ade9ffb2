package ddp_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// premul checks a premulsum of one dtype: each rank's input is drawn from its number, and the sum
// computed by definition.
func premul[T tensor.Element](random func(*rand.Rand) T, times, plus func(a, b T) T) func(w *dist.World) error {
	return func(w *dist.World) error {
		const length = 1777
		factors, ins := make([]T, w.Size()), make([][]T, w.Size())
		for r := range ins {
			rng := rand.New(rand.NewPCG(uint64(r), 7))
			factors[r], ins[r] = random(rng), make([]T, length)
			for i := range ins[r] {
				ins[r][i] = random(rng)
			}
		}
		for _, at := range []bool{false, true} {
			mine := factors[w.Rank()]
			red := dist.PreMulSum(mine)
			if at {
				red = dist.PreMulSumAt(tensor.Of([]T{mine}))
			}
			out := make([]T, length)
			work, err := w.AllReduce(tensor.Of(out), tensor.Of(ins[w.Rank()]), red)
			if err == nil {
				err = work.Wait()
			}
			if err != nil {
				return err
			}
			for i, x := range out {
				want := times(factors[0], ins[0][i])
				for r := 1; r < w.Size(); r++ {
					want = plus(want, times(factors[r], ins[r][i]))
				}
				if x != want {
					return fmt.Errorf("element %d by memory %v: %v, want %v", i, at, x, want)
				}
			}
		}
		return nil
	}
}

func whole[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64]() func(w *dist.World) error {
	return premul(func(rng *rand.Rand) T { return T(rng.Uint64()) }, func(a, b T) T { return a * b }, func(a, b T) T { return a + b })
}

func real[T float32 | float64]() func(w *dist.World) error {
	return premul(func(rng *rand.Rand) T { return T(rng.NormFloat64()) },
		func(a, b T) T { return T(a * b) }, func(a, b T) T { return T(a + b) })
}

// half is the sum of halves: products and sums in float32, rounded to T at the end. It is written
// for sums as float32, which the test rounds when it compares.
func halves[T tensor.Float16 | tensor.BFloat16](wide func(T) float32, narrow func(float32) T) func(w *dist.World) error {
	return func(w *dist.World) error {
		const length = 1777
		factors, ins := make([]T, w.Size()), make([][]T, w.Size())
		for r := range ins {
			rng := rand.New(rand.NewPCG(uint64(r), 8))
			factors[r], ins[r] = narrow(float32(rng.NormFloat64())), make([]T, length)
			for i := range ins[r] {
				ins[r][i] = narrow(float32(rng.NormFloat64()))
			}
		}
		out := make([]T, length)
		work, err := w.AllReduce(tensor.Of(out), tensor.Of(ins[w.Rank()]), dist.PreMulSum(factors[w.Rank()]))
		if err == nil {
			err = work.Wait()
		}
		if err != nil {
			return err
		}
		for i, x := range out {
			var sum float32
			for r := range ins {
				product := float32(wide(factors[r]) * wide(ins[r][i]))
				if r == 0 {
					sum = product
				} else {
					sum += product
				}
			}
			if want := narrow(sum); x != want {
				return fmt.Errorf("element %d: %#04x, want %#04x", i, x, want)
			}
		}
		return nil
	}
}

func TestPreMulSumIsExactForEveryDType(t *testing.T) {
	cases := map[tensor.DType]func(w *dist.World) error{
		tensor.F16:  halves(tensor.Float16.Float32, tensor.ToFloat16),
		tensor.BF16: halves(tensor.BFloat16.Float32, tensor.ToBFloat16),
		tensor.F32:  real[float32](), tensor.F64: real[float64](),
		tensor.I8: whole[int8](), tensor.I16: whole[int16](), tensor.I32: whole[int32](), tensor.I64: whole[int64](),
		tensor.U8: whole[uint8](), tensor.U16: whole[uint16](), tensor.U32: whole[uint32](), tensor.U64: whole[uint64](),
	}
	for _, dt := range tensor.DTypes() {
		body, ok := cases[dt]
		if !ok {
			t.Errorf("no case for %v", dt)
			continue
		}
		t.Run(dt.String(), func(t *testing.T) {
			onWorlds(t, someRanks(), func(_ *testing.T, w *dist.World) error { return body(w) })
		})
	}
}
