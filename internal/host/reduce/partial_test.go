package reduce_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// TestPartialResultsHaveTheBitsOfOne combines sources one by one through Partial, and compares the
// result with Into.
func TestPartialResultsHaveTheBitsOfOne(t *testing.T) {
	types := []tensor.DType{tensor.F16, tensor.BF16, tensor.F32, tensor.F64, tensor.I8, tensor.I64, tensor.U16, tensor.U64}
	reds := []dist.RedKind{dist.RedSum, dist.RedAvg, dist.RedProd, dist.RedMin, dist.RedMax, dist.RedPreMulSum, dist.RedXor}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, dt := range types {
		for _, red := range reds {
			if red.Bitwise() && dt.IsFloat() {
				continue
			}
			t.Run(fmt.Sprintf("%v/%v", dt, red), func(t *testing.T) { partial(t, rng, dt, red) })
		}
	}
}

func partial(t *testing.T, rng *rand.Rand, dt tensor.DType, red dist.RedKind) {
	const ranks, n = 3, 1500
	p := reduce.Partial{DType: dt, Red: red, Ranks: ranks}
	srcs, scalars := make([]tensor.Buffer, ranks), make([]uint64, ranks)
	for r := range srcs {
		srcs[r] = alloc(t, dt, n)
		raw := srcs[r].Raw()
		for i := range raw {
			raw[i] = byte(rng.Uint32())
		}
		scalars[r] = scalar(dt, 0.5+float64(r))
	}
	want := alloc(t, dt, n)
	if err := reduce.Into(want, srcs, red, scalars); err != nil {
		t.Fatal(err)
	}
	acc, next, got := alloc(t, p.Acc(), n), alloc(t, p.Acc(), n), alloc(t, dt, n)
	for r, src := range srcs {
		to := next
		if r == 0 {
			to = acc
		}
		if err := p.Begin(to, src, scalars[r]); err != nil {
			t.Fatal(err)
		}
		if r > 0 {
			if err := reduce.Into(acc, []tensor.Buffer{acc, next}, p.Combining(), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !p.Ends() && !bytes.Equal(acc.Raw(), want.Raw()) {
		t.Error("Ends is false, and the partial result of all differs from the result")
	}
	if err := p.Finish(got, acc); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Raw(), want.Raw()) {
		t.Error("result differs from Into")
	}
	if err := p.Begin(got, acc, 0); p.Acc() != dt && err == nil {
		t.Error("Begin took swapped types")
	}
}

// scalar returns the bits of v; of its integer part plus 1 for integers.
func scalar(dt tensor.DType, v float64) uint64 {
	switch dt {
	case tensor.F16:
		return uint64(tensor.ToFloat16(float32(v)))
	case tensor.BF16:
		return uint64(tensor.ToBFloat16(float32(v)))
	case tensor.F32:
		return uint64(math.Float32bits(float32(v)))
	case tensor.F64:
		return math.Float64bits(v)
	}
	return uint64(v) + 1
}

func alloc(t *testing.T, dt tensor.DType, n int) tensor.Buffer {
	t.Helper()
	words := make([]uint64, (n*dt.Size()+7)/8)
	b, err := tensor.FromPointer(unsafe.Pointer(unsafe.SliceData(words)), n, dt, tensor.Host)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
