package perf

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

func TestPatternGoesOnPastItsPeriod(t *testing.T) {
	p := newPattern(tensor.U16, func(i int) uint64 { return uint64(i) })
	got := make([]byte, 2*2500)
	p.fill(got, 1000)
	for i := range 2500 {
		want := (1000 + i) % period
		if have := int(got[2*i]) | int(got[2*i+1])<<8; have != want {
			t.Fatalf("element %d is %d, want %d", i, have, want)
		}
	}
	if n := p.wrong(got, 1000); n != 0 {
		t.Errorf("%d of its own elements are wrong", n)
	}
	got[1], got[2001], got[4999] = 0xff, 0xff, 0xff
	if n := p.wrong(got, 1000); n != 3 {
		t.Errorf("%d wrong elements found, want 3", n)
	}
}

// A block that is moved by whatever power of two, or is another rank's or iteration's, is seen.
func TestPatternsDoNotFitElsewhere(t *testing.T) {
	c := Case{Op: AllGather, DType: tensor.U8}
	p := inputPattern(c, 2, 0)
	raw := make([]byte, 4096)
	p.fill(raw, 0)
	for shift := 1; shift <= 1<<30; shift *= 2 {
		if n := p.wrong(raw, shift); n < 3000 {
			t.Errorf("moved by %d elements, %d of 4096 are wrong", shift, n)
		}
	}
	if n := p.wrong(raw, turn); n < 3000 {
		t.Errorf("one iteration later, %d of 4096 are wrong", n)
	}
	if n := inputPattern(c, 2, 1).wrong(raw, 0); n < 3000 {
		t.Errorf("for another rank, %d of 4096 are wrong", n)
	}
}

// Reductions are exact in every type: each partial sum, in any order, is a whole number that the
// type holds, or, for products, a power of two; integers may wrap.
func TestReductionsAreExact(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8, 31} {
		for red := dist.RedSum; red <= dist.RedPreMulSum; red++ {
			for i := range period {
				sum := int64(0)
				for r := range n {
					v := term(red, n, r, i)
					if v < 0 || v > 4 {
						t.Fatalf("%v: rank %d of %d has %d at %d", red, r, n, v, i)
					}
					sum += v * scalar(r)
				}
				if red != dist.RedProd && sum > 256 { // what bf16 counts to
					t.Fatalf("%v of %d ranks sums to %d at %d", red, n, sum, i)
				}
				if red == dist.RedAvg {
					plain := int64(0)
					for r := range n {
						plain += term(red, n, r, i)
					}
					if plain%int64(n) != 0 {
						t.Fatalf("the sum %d of %d ranks has no exact mean", plain, n)
					}
				}
			}
		}
	}
}

func TestCombine(t *testing.T) {
	terms := []int64{3, 1, 4}
	for red, want := range map[dist.RedKind]float64{
		dist.RedSum: 8, dist.RedProd: 12, dist.RedMin: 1, dist.RedMax: 4, dist.RedAvg: 8.0 / 3, dist.RedPreMulSum: 3 + 2 + 4,
	} {
		if got := combineFloats(red, terms); got != want {
			t.Errorf("%v of %v is %v, want %v", red, terms, got, want)
		}
		if got := combineInts(tensor.I32, red, terms); got != uint64(want) {
			t.Errorf("%v of %v is %v in integers, want %v", red, terms, got, uint64(want))
		}
	}
	for red, want := range map[dist.RedKind]uint64{dist.RedAnd: 0, dist.RedOr: 7, dist.RedXor: 6} {
		if got := combineInts(tensor.U8, red, terms); got != want {
			t.Errorf("%v of %v is %d, want %d", red, terms, got, want)
		}
	}
	many := make([]int64, 100)
	for i := range many {
		many[i] = 2
	}
	if got := combineInts(tensor.I8, dist.RedAvg, many); int8(got) != 0 {
		t.Errorf("an average of 100 i8 whose sum wraps to -56 is %d, want 0", int8(got))
	}
	if got := combineInts(tensor.U8, dist.RedAvg, many); got != 200/100 {
		t.Errorf("an average of u8 is %d", got)
	}
}

func TestBitsOfWholeNumbers(t *testing.T) {
	for dt, want := range map[tensor.DType]string{
		tensor.F16: "0042", tensor.BF16: "4040", tensor.F32: "00004040", tensor.F64: "0000000000000840",
		tensor.I8: "03", tensor.U16: "0300", tensor.I32: "03000000", tensor.U64: "0300000000000000",
	} {
		if got := fmt.Sprintf("%x", appendBits(nil, dt, bitsOf(dt, 3))); got != want {
			t.Errorf("3 as %v: %s, want %s", dt, got, want)
		}
	}
}

func TestPeriodIsWhole(t *testing.T) {
	for _, dt := range tensor.DTypes() {
		p := inputPattern(Case{Op: Broadcast, DType: dt}, 2, 0)
		if !bytes.Equal(p.at(period+5), p.at(5)) || len(p.at(0)) != period*dt.Size() {
			t.Errorf("%v: the pattern does not repeat", dt)
		}
	}
}
