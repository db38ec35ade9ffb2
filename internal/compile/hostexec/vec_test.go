package hostexec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// odd is numbers where functions change their form, and all that is not a number.
var odd = []float64{
	0, math.Copysign(0, -1), 1, -1, 0.5, -0.5, 2, math.Inf(1), math.Inf(-1), math.NaN(), 1e-40, -1e-40, 1e-45, 0x1p-126, 3e38, -3e38,
	88.7, 88.73, 89, 90, -87.3, -87.4, -103.9, -104, -105, -1000, 1000, 0.625, -0.625, 0.6249999, 9.1, -9.1, math.Sqrt2 / 2, math.Sqrt2,
	0.70710677, 1.9999999, 8388607.5, -8388607.5, 1.5, 2.5, -1.5, 1e10, 1e300, 1e-310,
}

// strip is n numbers with as many more on each side that nothing may touch, at an offset from a
// line.
type strip[T real] struct {
	all []T
	at  int
	n   int
}

func newStrip[T real](n, shift int) strip[T] {
	all := make([]T, n+64+shift+16)
	off := int(-uintptr(unsafe.Pointer(&all[16]))&63)/size[T]() + 16
	return strip[T]{all, off + shift, n}
}

func (s strip[T]) data() []T         { return s.all[s.at : s.at+s.n] }
func (s strip[T]) p() unsafe.Pointer { return unsafe.Pointer(&s.all[s.at]) }

func fillStrip[T real](r *rand.Rand, s strip[T]) {
	for i := range s.all {
		s.all[i] = T(r.NormFloat64())
		switch r.IntN(6) {
		case 0:
			s.all[i] = T(odd[r.IntN(len(odd))])
		case 1:
			s.all[i] *= T(math.Exp(20 * r.NormFloat64()))
		}
	}
}

func sameBits[T real](x, y T) bool {
	return x != x && y != y || math.Float64bits(float64(x)) == math.Float64bits(float64(y))
}

func testPrimitives[T real](t *testing.T, f func(*vecArgs), ops []vecOp) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, op := range ops {
		for _, n := range []int{0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 128, 200, 259} {
			for range 4 {
				var in [3]strip[T]
				v := vecArgs{op: op, n: n, sa: 1, sb: 1, sc: 1}
				steps := [3]*int{&v.sa, &v.sb, &v.sc}
				for i := range in {
					in[i] = newStrip[T](n, r.IntN(8))
					fillStrip(r, in[i])
					if r.IntN(4) == 0 {
						in[i] = newStrip[T](lineBytes/size[T](), 0)
						fill(in[i].p(), T(odd[r.IntN(len(odd))]))
						*steps[i] = 0
					}
				}
				got, want := newStrip[T](n, r.IntN(8)), newStrip[T](n, 0)
				if inPlace := r.IntN(4); inPlace < 3 && *steps[inPlace] == 1 {
					got = in[inPlace]
				}
				before := append([]T(nil), got.all...)
				v.a, v.b, v.c = in[0].p(), in[1].p(), in[2].p()
				v.d = want.p()
				vecPlain[T](&v)
				v.d = got.p()
				f(&v)
				for i, x := range want.data() {
					if !sameBits(got.data()[i], x) {
						t.Fatalf("op %d, n %d, steps %d %d %d: element %d is %v, in plain Go %v (a %v)", op, n, v.sa, v.sb, v.sc, i, got.data()[i], x, before)
					}
				}
				for i := range before {
					if (i < got.at || i >= got.at+n) && !sameBits(got.all[i], before[i]) {
						t.Fatalf("op %d, n %d: memory around it has changed at %d", op, n, i-got.at)
					}
				}
			}
		}
	}
}

func TestPrimitivesGiveTheBitsOfPlainGo(t *testing.T) {
	var all, arithmetic []vecOp
	for op := opCopy; op < opFoldSum; op++ {
		all = append(all, op)
		if op < opExp || op > opSigmoid {
			arithmetic = append(arithmetic, op)
		}
	}
	for name, l := range variants() {
		if l == nil {
			continue
		}
		t.Run(name+"/f32", func(t *testing.T) { testPrimitives[float32](t, l.f32, all) })
		t.Run(name+"/f64", func(t *testing.T) { testPrimitives[float64](t, l.f64, arithmetic) })
	}
}

// ulps is how many float32 lie between x and the true value y, from which it is rounded.
func ulps(x float32, y float64) float64 {
	if math.IsInf(y, 0) || math.Abs(y) > math.MaxFloat32 || y != y {
		if float64(x) == y || y != y && x != x || math.IsInf(float64(x), 0) && math.Signbit(y) == math.Signbit(float64(x)) {
			return 0
		}
		return math.Inf(1)
	}
	unit := math.Max(math.Ldexp(1, math.Ilogb(y)-23), 0x1p-149)
	if y == 0 {
		unit = 0x1p-149
	}
	return math.Abs(float64(x)-y) / unit
}

func TestFunctionsAreAccurate(t *testing.T) {
	functions := []struct {
		name  string
		f     func(float32) float32
		truth func(float64) float64
		limit float64
	}{
		{"exp", exp32, math.Exp, 1.5},
		{"log", log32, math.Log, 1.5},
		{"tanh", tanh32, math.Tanh, 2},
		{"sigmoid", sigmoid32, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, 2.5},
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, fn := range functions {
		worst, where := 0.0, float32(0)
		try := func(x float32) {
			y := fn.truth(float64(x))
			if fn.name == "sigmoid" && y < 0x1p-125 {
				y = float64(fn.f(x)) // beyond exp's range; as Gorgonia, 0 is near enough
			}
			if u := ulps(fn.f(x), y); u > worst {
				worst, where = u, x
			}
		}
		for range 300_000 {
			try(math.Float32frombits(r.Uint32()))
			try(float32(r.NormFloat64() * 5))
			try(float32(1 + r.NormFloat64()*0.01))
			try(float32(r.Float64()*400 - 200))
			try(float32(r.Float64()*210 - 105))
		}
		for _, x := range odd {
			try(float32(x))
		}
		t.Logf("%s: at most %.2f units in the last place, at %v", fn.name, worst, where)
		if worst > fn.limit {
			t.Errorf("%s(%v) is %v, %v units off", fn.name, where, fn.f(where), worst)
		}
	}
}

func TestTransposedBlocks(t *testing.T) {
	for name, l := range variants() {
		if l == nil {
			continue
		}
		for blocks := 1; blocks < 4; blocks++ {
			const srcStep, dstStep = 40, 11
			src, dst := newStrip[float32](srcStep*8, 1), newStrip[float32](dstStep*8*blocks, 3)
			for i := range src.all {
				src.all[i] = float32(i)
			}
			l.transpose(dst.p(), src.p(), 4*dstStep, 4*srcStep, blocks)
			for i := range 8 {
				for j := range 8 * blocks {
					if x, y := dst.data()[j*dstStep+i], src.data()[i*srcStep+j]; x != y {
						t.Fatalf("%s: (%d, %d) is %v, want %v", name, i, j, x, y)
					}
				}
			}
			for i, x := range dst.all {
				if at := i - dst.at; x != 0 && (at < 0 || at%dstStep >= 8) {
					t.Fatalf("%s: memory around it has changed at %d: %v", name, at, fmt.Sprint(x))
				}
			}
		}
	}
}

func TestRectangles(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for name, l := range variants() {
		if l == nil {
			continue
		}
		for n := range 70 {
			for _, rows := range []int{0, 1, 3} {
				srcStep, dstStep := n+r.IntN(5), n+r.IntN(5)
				src, dst := newStrip[float32](srcStep*3+n, r.IntN(5)), newStrip[float32](dstStep*3+n, r.IntN(5))
				for i := range src.all {
					src.all[i] = float32(i)
				}
				for i := range dst.all {
					dst.all[i] = float32(1000 + i)
				}
				for _, add := range []bool{false, true} {
					want := append([]float32(nil), dst.all...)
					for y := range rows {
						for x := range n {
							to := &want[dst.at+y*dstStep+x]
							if !add {
								*to = 0
							}
							*to += src.data()[y*srcStep+x]
						}
					}
					f := l.copy2
					if add {
						f = l.add2
					}
					f(dst.p(), src.p(), 4*dstStep, 4*srcStep, rows, 4*n)
					if fmt.Sprint(dst.all) != fmt.Sprint(want) {
						t.Fatalf("%s: %d rows of %d, add %v: %v, want %v", name, rows, n, add, dst.all, want)
					}
				}
			}
		}
	}
}

func TestRandomNumbersAreThoseOfPlainGo(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for name, l := range variants() {
		if l == nil {
			continue
		}
		for n := range 70 {
			key, index, step := r.Uint64(), r.Uint64()&^(1<<31), r.Uint64()
			if n%3 == 0 {
				index = index>>32<<32 + 1<<32 - uint64(n) // up to the last of one upper half
			}
			dst := newStrip[float32](n, r.IntN(5))
			words := wordsOf(key, index, step)
			l.uniform(dst.p(), n, &words)
			for i, x := range dst.data() {
				if y := uniform[float32](philox(key, index+uint64(i), step)); x != y {
					t.Fatalf("%s: number %d of %d is %v, want %v", name, i, n, x, y)
				}
			}
			for i, x := range dst.all {
				if (i < dst.at || i >= dst.at+n) && x != 0 {
					t.Fatalf("%s: memory around it has changed at %d", name, i-dst.at)
				}
			}
		}
	}
}

// The example of the paper's library: counter and key of ones.
func TestPhiloxGivesItsKnownAnswers(t *testing.T) {
	if x := philox(0, 0, 0); x != 0x6627e8d5 {
		t.Errorf("zeros give %#x", x)
	}
	if x := philox(math.MaxUint64, math.MaxUint64, math.MaxUint64); x != 0x408f276d {
		t.Errorf("ones give %#x", x)
	}
}

func TestFoldsGiveTheBitsOfPlainGo(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for name, l := range variants() {
		if l == nil {
			continue
		}
		for _, op := range []vecOp{opFoldSum, opFoldMax} {
			for n := range 300 {
				a, got, want := newStrip[float32](n, r.IntN(5)), newStrip[float32](width, 0), newStrip[float32](width, 0)
				fillStrip(r, a)
				fillStrip(r, got)
				copy(want.data(), got.data())
				before := append([]float32(nil), got.all...)
				l.f32(&vecArgs{op: op, n: n, d: got.p(), a: a.p(), sa: 1})
				vecPlain[float32](&vecArgs{op: op, n: n, d: want.p(), a: a.p(), sa: 1})
				copy(before[got.at:], want.data())
				for i, x := range got.all {
					if !sameBits(x, before[i]) {
						t.Fatalf("%s: op %d of %d: lane %d is %v, in plain Go %v", name, op, n, i-got.at, x, before[i])
					}
				}
				var x, y float32
				whole := op + opSum - opFoldSum
				l.f32(&vecArgs{op: whole, n: n, d: unsafe.Pointer(&x), a: a.p(), sa: 1})
				vecPlain[float32](&vecArgs{op: whole, n: n, d: unsafe.Pointer(&y), a: a.p(), sa: 1})
				if !sameBits(x, y) {
					t.Fatalf("%s: op %d of %d is %v, in plain Go %v", name, whole, n, x, y)
				}
			}
		}
	}
}
